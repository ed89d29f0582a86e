"""Trained models are found by name, in the repository and in a wheel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.errors import InputError
from tedtrajrec.methods import shipped
from tedtrajrec.methods.registry import METHODS, load_method, saved_folder
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips

ROOT = Path(__file__).parents[2]
TINY = TedTrajRecConfig(d=8, heads=2, width=8, encoder_layers=1, road_layers=1)
MOST_BYTES = 10_000_000


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


def card_for(network: RoadNetwork, name: str) -> dict[str, Any]:
    return {
        "name": name,
        "method": "tedtrajrec",
        "network": {
            "hash": network.hash, "source": "city.osm.pbf", "segments": network.n_segments, "bbox": [1.0, 2.0, 3.0, 4.0]
        },
        "data": {"step_s": 15},
        "training": {"valid_accuracy": 0.5, "settings": {"keep": ["1/8", "1/16"]}},
        "evaluations": [],
    }  # fmt: skip


@pytest.fixture
def package(city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an installed package with one model, ``town``."""
    folder = tmp_path / "site-packages" / "tedtrajrec"
    torch.manual_seed(1)
    TedTrajRec(city, TINY).save(folder / "_models" / "town")
    (folder / "_models" / "town" / "card.json").write_text(json.dumps(card_for(city, "town")))
    (folder / "_models" / "README.md").write_text("not a model")
    monkeypatch.setattr(shipped, "PACKAGE", folder)
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_model_is_loaded_by_name(package: Path, city: RoadNetwork) -> None:
    assert list(shipped.shipped_models()) == ["town"]
    by_name, by_folder = load_method("town", city), load_method(package / "_models" / "town", city)
    assert isinstance(by_name, TedTrajRec)
    assert by_name.config == TINY
    for name, array in by_folder.state().items():
        np.testing.assert_array_equal(by_name.state()[name], array)


def test_a_folder_of_ones_own_goes_first(package: Path, city: RoadNetwork, tmp_path: Path) -> None:
    (tmp_path / "town").mkdir()  # of data, say: it holds no saved method
    assert saved_folder("town") == package / "_models" / "town"
    TedTrajRec(city, TINY).save(tmp_path / "town")
    assert saved_folder("town") == Path("town")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="description of a saved method"):
        load_method("empty", city)


@pytest.mark.usefixtures("package")
def test_an_unknown_name_lists_what_there_is(city: RoadNetwork) -> None:
    with pytest.raises(InputError, match="no saved method or trained model 'village'") as caught:
        load_method("village", city)
    for name in ("town", *METHODS):
        assert name in str(caught.value)


def test_another_network_is_refused_with_the_right_one(
    package: Path, city: RoadNetwork, tiny_city: RoadNetwork
) -> None:
    with pytest.raises(InputError, match=f"made for network {city.hash}, not for {tiny_city.hash}") as caught:
        load_method("town", tiny_city)
    assert f"made from city.osm.pbf, {city.n_segments} segments in 1.0000,2.0000,3.0000,4.0000" in str(caught.value)
    (package / "_models" / "town" / "card.json").unlink()
    with pytest.raises(InputError, match=r"Use the network\.npz of the dataset it was trained on"):
        load_method(package / "_models" / "town", tiny_city)


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"name": "town"}'])
def test_a_damaged_card_is_told(package: Path, text: str) -> None:
    (package / "_models" / "town" / "card.json").write_text(text)
    with pytest.raises(InputError, match=r"card\.json: this is not the card of a trained model"):
        shipped.describe_models()


def test_the_repository_is_looked_into_where_nothing_is_installed(
    city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "src" / "tedtrajrec")
    (tmp_path / "models" / "town").mkdir(parents=True)
    (tmp_path / "models" / "town" / "card.json").write_text(json.dumps(card_for(city, "town")))
    assert shipped.shipped_models() == {}  # a folder of that name, but not of this project
    (tmp_path / "pyproject.toml").touch()
    assert shipped.shipped_models() == {"town": tmp_path / "models" / "town"}


def run(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    out = capsys.readouterr()
    assert (stop.value.code or 0) == code, out.err
    return " ".join((out.out + out.err).split())


def test_command_line(
    package: Path, city: RoadNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    line = run(["models"], capsys)
    for fact in ("town", "tedtrajrec", "city.osm.pbf", city.hash, "15 s", "1/8|1/16", "0.500 (validation)"):
        assert fact in line
    card = card_for(city, "town")
    row = {"draw": {"split": "test", "keep": "1/8"}, "metrics": {"accuracy": 0.25}}
    card["evaluations"] = [
        {**row, "method": "linear_hmm"},
        {**row, "method": "tedtrajrec", "metrics": {"accuracy": 0.75}},
    ]
    (package / "_models" / "town" / "card.json").write_text(json.dumps(card))
    assert "0.750 (test, keep 1/8)" in run(["models"], capsys)

    trips = simulate_trips(city, trips=6, step_s=15, seed=1, workers=1)
    write_dataset(tmp_path / "ds", city, {"test": shards_of(trips)}, step_s=15, time_zone="Europe/Berlin")
    assert "tedtrajrec 1/8" in run(["evaluate", "town", str(tmp_path / "ds")], capsys)
    text = run(["evaluate", "village", str(tmp_path / "ds")], capsys, code=2)
    assert "trained models (town)" in text
    for path in (package / "_models" / "town").iterdir():
        path.unlink()
    assert "has none" in run(["models"], capsys)


# ---------------------------------------------------------------------- the models of this repository


def test_a_wheel_holds_the_models() -> None:
    wheel = pytest.importorskip("hatchling.builders.wheel", reason="the build backend is not installed")
    builder = wheel.WheelBuilder(str(ROOT))
    paths = {file.distribution_path for file in builder.recurse_included_files()}
    assert {"tedtrajrec/__init__.py", "tedtrajrec/methods/shipped.py", "tedtrajrec/_models/README.md"} <= paths
    assert {path.split("/")[0] for path in paths} == {"tedtrajrec"}
    own = {path.relative_to(ROOT / "models") for path in (ROOT / "models").rglob("*") if path.is_file()}
    assert {f"tedtrajrec/_models/{path.as_posix()}" for path in own} <= paths


def test_every_folder_of_models_is_one() -> None:
    folders = sorted(path for path in (ROOT / "models").iterdir() if path.is_dir())
    assert sorted(shipped.shipped_models().values()) == folders
    for folder in folders:
        card = shipped.read_card(folder)
        assert card["name"] == folder.name
        assert folder.name not in METHODS  # the method would hide it
        assert (folder / "README.md").read_text("utf-8").startswith(f"# {folder.name}\n")
        assert sum(path.stat().st_size for path in folder.iterdir()) <= MOST_BYTES
        assert json.loads((folder / "config.json").read_text("utf-8"))["network"] == card["network"]["hash"]


@pytest.mark.real
def test_the_model_of_chengdu_loads(chengdu: RoadNetwork) -> None:
    if "chengdu" not in shipped.shipped_models():
        pytest.skip("there is no model of Chengdu in models/ yet")
    assert load_method("chengdu", chengdu).network is chengdu
