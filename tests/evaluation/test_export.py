"""A run handed on: weights in half precision that answer the same, and a card that says what they are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.evaluation.evaluate import evaluate_methods
from tedtrajrec.evaluation.export import MOST_ERROR, export_model, halve
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.methods.registry import load_method
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.training.train import train_method
from tedtrajrec.trips.simulate import simulate_trips

ROOT = Path(__file__).parents[2]
SETTINGS = [
    "model.d=16", "model.heads=2", "model.width=16", "model.encoder_layers=1", "model.road_layers=1",
    "train.epochs=12", "train.batch=16", "train.lr=0.01", "train.seed=3",
]  # fmt: skip


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 64 short trips to train with, 24 to validate and 8 to test."""
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=160, step_s=15, seed=5, workers=1)
    short = np.argsort(trips.lengths, kind="stable")[:96]
    parts = {"train": short[:64], "valid": short[64:88], "test": short[88:]}
    return write_dataset(
        tmp_path_factory.mktemp("export") / "dataset",
        city,
        {name: shards_of(trips.select(which)) for name, which in parts.items()},
        step_s=15,
        time_zone="Europe/Berlin",
        source="made.csv",
        dropped={"below_min_steps": 7},
        config={"truth": {"source": "given", "rematch": True}},
    )


@pytest.fixture(scope="module")
def run(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with weights that were trained a little."""
    path = tmp_path_factory.mktemp("export") / "run"
    train_method("tedtrajrec", dataset, path, overrides=SETTINGS, device="cpu")
    return path


@pytest.fixture(scope="module")
def metrics(dataset: Dataset, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the evaluations of the run and of another method, at two shares."""
    folder = tmp_path_factory.mktemp("export") / "metrics"
    evaluate_methods([str(run), "linear_hmm"], dataset.path, keep=["1/8", "1/16"], output=folder)
    return folder


@pytest.fixture(scope="module")
def model(dataset: Dataset, run: Path, metrics: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run as a model with all that a card can say."""
    folder = tmp_path_factory.mktemp("export") / "smallville"
    export_model(run, folder, dataset=dataset, metrics=[metrics], note="Made by the tests.")
    return folder


def test_what_past_trips_taught_is_kept(dataset: Dataset, tmp_path: Path) -> None:
    small = ["model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.most=16", "train.epochs=1"]
    run, folder = tmp_path / "run", tmp_path / "model"
    train_method("tedtrajrec_parallel", dataset, run, overrides=small, device="cpu")
    export_model(run, folder)
    whole, half = load_file(run / "model.safetensors"), load_file(folder / "model.safetensors")
    taught = [name for name in whole if name.startswith("past.")]
    assert taught
    assert all(np.array_equal(whole[name], half[name]) and whole[name].dtype == half[name].dtype for name in taught)
    assert half["road_gnn.table"].dtype == np.float16
    assert card_of(folder)["taught"] == sorted(taught)
    limits = " ".join(card_of(folder)["limits"])
    for said in (
        "could be handed on",
        "in another city all roads",
        "connected by a route that can be driven in the time",
    ):
        assert said in limits
    draw = draw_steps(dataset, keep="1/8")
    before, after = (evaluate_draw(load_method(path, dataset.network), draw).summary for path in (run, folder))
    assert after["accuracy"] == pytest.approx(before["accuracy"], abs=0.02)


def test_a_run_that_was_killed_or_made_before_is_exported_as_well(dataset: Dataset, tmp_path: Path) -> None:
    """Without the network beside it, and without a setting that was added since."""
    small = ["model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.voted=0.3", "train.epochs=1"]
    run = tmp_path / "run"
    train_method("tedtrajrec_parallel", dataset, run, overrides=small, device="cpu")
    (run / "network.npz").unlink()
    settings = json.loads((run / "train.json").read_text())
    del settings["method"]["enforced"]
    (run / "train.json").write_text(json.dumps(settings))
    export_model(run, tmp_path / "model")
    whole, half = load_file(run / "model.safetensors"), load_file(tmp_path / "model" / "model.safetensors")
    taught = [name for name in whole if name.startswith("past.")]
    assert any(name.startswith("past.lookup.") for name in taught)
    assert all(whole[name].dtype == half[name].dtype for name in taught)
    assert card_of(tmp_path / "model")["taught"] == sorted(taught)


def card_of(folder: Path) -> dict[str, Any]:
    card: dict[str, Any] = json.loads((folder / "card.json").read_text("utf-8"))
    return card


def test_the_weights_are_halved(run: Path, model: Path) -> None:
    whole, half = load_file(run / "model.safetensors"), load_file(model / "model.safetensors")
    assert whole.keys() == half.keys()
    for name, array in whole.items():
        if name.startswith("calibration."):
            assert np.array_equal(half[name], array)
            continue
        assert half[name].dtype == np.float16
        np.testing.assert_allclose(half[name].astype(np.float32), array, rtol=2**-11, atol=2**-25)
    assert len({path.stat().st_mode for path in model.iterdir()}) == 1  # who may read the card may read the weights
    assert sorted(path.name for path in model.iterdir()) == [
        *("README.md", "card.json", "config.json", "model.safetensors", "network.npz", "profile.json"),
    ]
    for name in ("network.npz", "profile.json"):
        assert (model / name).read_bytes() == (run / name).read_bytes()
    assert (model / "model.safetensors").stat().st_size < 0.6 * (run / "model.safetensors").stat().st_size


def test_it_answers_as_the_run_does(dataset: Dataset, run: Path, model: Path) -> None:
    draw = draw_steps(dataset, keep="1/8", split="train")
    before, after = (
        evaluate_draw(load_method(folder, dataset.network), draw, keep_steps=True) for folder in (run, model)
    )
    assert before.steps is not None
    assert after.steps is not None
    assert len(np.unique(before.steps.segment)) > 20  # it learned something, so that a change would show
    same = before.steps.segment == after.steps.segment
    assert same.mean() >= 0.99
    assert np.abs(before.steps.ratio - after.steps.ratio)[same].max() < 2e-4  # bfloat16 would differ more


@given(
    hnp.arrays(
        np.float32, st.integers(1, 50), elements=st.floats(-1e9, 1e9, width=32, allow_subnormal=False)
    )
)  # fmt: skip
def test_what_half_precision_cannot_hold_stays_whole(array: np.ndarray) -> None:
    written = halve(array)
    assert written.dtype in (np.float16, np.float32)
    error = np.linalg.norm(written.astype(np.float64) - array.astype(np.float64))
    assert error <= MOST_ERROR * np.linalg.norm(array.astype(np.float64))
    if array.size and np.abs(array).min() >= 2**-14 and np.abs(array).max() < 65_504:
        assert written.dtype == np.float16


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1.0, 7e4], np.float32), ([1e-8, -2e-8], np.float32), ([1.0, 1e-8], np.float16), ([0.0, 0.0], np.float16)],
)
def test_large_and_tiny_weights(values: list[float], kind: type) -> None:
    assert halve(np.array(values, np.float32)).dtype == kind


def test_whole_numbers_are_left_alone() -> None:
    assert halve(np.array([1, 70_000])).dtype == np.int64


def test_arrays_that_stay_whole_are_named_and_load(dataset: Dataset, run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    weights = load_file(run / "model.safetensors")
    weights["road_gnn.table"][0, 0] = 1e5
    save_file(weights, tmp_path / "run" / "model.safetensors")
    card = export_model(tmp_path / "run", tmp_path / "model")
    assert card["half_precision"]["kept_whole"] == ["road_gnn.table"]
    assert "road_gnn.table" in (tmp_path / "model" / "README.md").read_text("utf-8")
    loaded = load_method(tmp_path / "model", dataset.network)
    np.testing.assert_array_equal(loaded.state()["road_gnn.table"], weights["road_gnn.table"])


# ---------------------------------------------------------------------- the card


def test_the_card_holds_every_fact(dataset: Dataset, run: Path, metrics: Path, model: Path) -> None:
    card = card_of(model)
    said = json.loads((run / "train.json").read_text())
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: (row["valid_accuracy"], -row["epoch"]))
    assert (card["name"], card["method"], card["note"]) == ("smallville", "tedtrajrec", "Made by the tests.")
    assert card["training"]["settings"] == said["train"]
    assert {"name": "tedtrajrec", **card["model"]} == said["method"]
    assert card["training"]["valid_accuracy"] == best["valid_accuracy"]
    assert (card["training"]["epochs"], card["training"]["best_epoch"]) == (12, best["epoch"] + 1)
    assert card["network"]["hash"] == dataset.network.hash
    assert card["network"]["segments"] == dataset.network.n_segments
    assert (card["data"]["source"], card["data"]["step_s"]) == ("made.csv", 15)
    assert card["data"]["splits"]["train"]["trips"] == 64
    assert card["data"]["train_steps"] == [dataset.split("train").lengths.min(), dataset.split("train").lengths.max()]
    arrays = load_file(run / "model.safetensors")
    assert card["parameters"] == sum(array.size for name, array in arrays.items() if "calibration" not in name)
    assert card["bytes"] == (model / "model.safetensors").stat().st_size
    evaluated = {
        (row["method"], row["draw"]["keep"]): row["metrics"]["accuracy"] for row in card["evaluations"]
    }  # fmt: skip
    written = [json.loads(file.read_text()) for file in metrics.rglob("metrics.json")]
    assert evaluated == {(row["method"], row["draw"]["keep"]): row["metrics"]["accuracy"] for row in written}
    assert list(evaluated) == [(name, keep) for keep in ("1/8", "1/16") for name in ("tedtrajrec", "linear_hmm")]


def test_half_precision_is_measured_on_the_trips_of_validation(model: Path, dataset: Dataset) -> None:
    half = card_of(model)["half_precision"]
    assert half["kept_whole"] == []
    assert 0 < half["largest_error"] < 2**-11
    assert (half["trips"], half["steps"]) == (24, dataset.split("valid").n_steps)
    assert 0.99 <= half["same_segment"] <= 1
    assert half["accuracy_before"] == pytest.approx(card_of(model)["training"]["valid_accuracy"])
    assert half["accuracy"] == pytest.approx(half["accuracy_before"], abs=0.01)


def test_the_text_tells_what_the_data_tell(model: Path, dataset: Dataset) -> None:
    card, text = card_of(model), (model / "README.md").read_text("utf-8")
    settings = card["training"]["settings"]
    facts = [
        "smallville", "made.csv", dataset.network.hash, "64 (", "Europe/Berlin", "7 below min steps", "| step_s | 15 |",
        "synthetic city (not a real place)", "licence of the trips | not recorded", "licence of the map | not recorded",
        "keep 1/8, rule exact", "| seed | 3 |", f"{card['training']['valid_accuracy']:.4f}", card["exported"],
        f"{card['half_precision']['same_segment']:.3%}", f"{card['parameters']:,}", "Made by the tests.",
        *(f"{name} {version}" for name, version in card["versions"].items()),
        *(f"| `{name}` | {value} |" for name, value in card["model"].items()),
        *(f"| `{name}` | {settings[name]} |" for name in ("lr", "batch", "weight_decay", "forcing", "schedule")),
        *card["limits"],
    ]  # fmt: skip
    for row in card["evaluations"]:
        facts += [
            f"{row['metrics'][name]:.3f}" for name in ("accuracy", "accuracy_missing", "recall", "precision", "f1")
        ]
        facts += [f"{row['metrics'][name]:.0f}" for name in ("mae_m", "rmse_m")]
    assert [fact for fact in facts if fact not in text] == []


def test_the_limits_are_those_of_the_data(model: Path, dataset: Dataset) -> None:
    text = " ".join(card_of(model)["limits"])
    train = dataset.split("train").trips()
    assert train.segment is not None
    for fact in (
        f"trained on network {dataset.network.hash}. On a newer extract of the same city it knows new roads only by",
        "any other network is refused.",
        f"{train.lengths.min()} to {train.lengths.max()} steps",
        f"on {len(np.unique(train.segment[train.segment >= 0]))} of {dataset.network.n_segments} segments",
        "steps of 15 s, 1/8 of them observed",
        "True positions came with the trips, and were found by matching where they were not given;",
        "At keep 1/16",
        "need not be connected",
    ):
        assert fact in text


def test_without_dataset_and_metrics_the_card_says_less(run: Path, tmp_path: Path) -> None:
    card = export_model(run, tmp_path / "bare")
    text = (tmp_path / "bare" / "README.md").read_text("utf-8")
    assert "same_segment" not in card["half_precision"]
    assert "segments" not in card["network"]
    assert "None were given." in text
    assert "It was not evaluated on test trips." in card["limits"]
    assert "## Note" not in text


def test_rows_of_a_file_serve_as_well(run: Path, metrics: Path, model: Path, tmp_path: Path) -> None:
    rows = [json.loads(file.read_text()) for file in sorted(metrics.rglob("metrics.json"))]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    card = export_model(run, tmp_path / "model", metrics=[tmp_path / "rows.jsonl"])
    assert card["evaluations"] == card_of(model)["evaluations"]


def test_command_line(
    run: Path, dataset: Dataset, metrics: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", str(run), "-o", str(tmp_path / "smallville"), "--dataset", str(dataset.path)]
    words += ["--metrics", str(metrics), "--note", "Made by the tests."]
    with pytest.raises(SystemExit) as stop:
        main(words)
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert f"{card_of(model)['parameters']:,} parameters, {card_of(model)['bytes'] / 1e6:.1f} MB" in out
    assert "of the validation steps get the same segment as before" in out
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "smallville" / name).read_bytes() == (model / name).read_bytes()
    assert card_of(tmp_path / "smallville") | {"exported": ""} == card_of(model) | {"exported": ""}
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "exists already" in " ".join(capsys.readouterr().err.split())


# ---------------------------------------------------------------------- what is refused


def test_a_folder_that_exists_is_not_replaced(run: Path, model: Path) -> None:
    before = (model / "card.json").read_bytes()
    with pytest.raises(OutputError, match="exists already"):
        export_model(run, model)
    assert (model / "card.json").read_bytes() == before


def test_another_dataset_is_refused(run: Path, dataset: Dataset, tmp_path: Path) -> None:
    splits = {"train": shards_of(dataset.split("train").trips(np.arange(9)))}
    other = write_dataset(tmp_path / "other", dataset.network, splits, step_s=15, time_zone="Europe/Berlin")
    with pytest.raises(InputError, match="not the dataset of the run"):
        export_model(run, tmp_path / "model", dataset=other)
    assert not (tmp_path / "model").exists()


def damaged(run: Path, to: Path, file: str, text: str | None) -> Path:
    shutil.copytree(run, to)
    if text is None:
        (to / file).unlink()
    else:
        (to / file).write_text(text)
    return to


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("train.json", None, "the settings of a training run"),
        ("train.json", "{}", "does not describe a training run"),
        ("train.json", "[1]", "does not describe a training run"),
        ("metrics.jsonl", None, "the metrics of a training run"),
        ("metrics.jsonl", "{}\n", "not the metrics of a training run"),
        ("metrics.jsonl", '{"best": false}\n', "not the metrics of a training run"),
        ("model.safetensors", "no weights", "does not hold weights"),
        ("config.json", '{"method": "tedtrajrec", "network": "x", "config": {}}', "not the settings of train.json"),
    ],
)
def test_a_damaged_run_is_told(run: Path, tmp_path: Path, file: str, text: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        export_model(damaged(run, tmp_path / "run", file, text), tmp_path / "model")
    assert file in str(caught.value)
    assert not (tmp_path / "model").exists()


def test_weights_that_diverged_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    weights = load_file(run / "model.safetensors")
    weights["road_gnn.table"][0, 0] = np.nan
    save_file(weights, tmp_path / "run" / "model.safetensors")
    with pytest.raises(InputError, match=r"road_gnn\.table holds values that are not finite"):
        export_model(tmp_path / "run", tmp_path / "model")


def test_evaluations_of_something_else_are_refused(run: Path, metrics: Path, tmp_path: Path) -> None:
    own = next(metrics.glob("tedtrajrec-test-1of8*/metrics.json"))
    other = next(metrics.glob("linear_hmm-test-1of8*/metrics.json"))
    row = json.loads(own.read_text())
    wrong = {
        "network 123": row | {"dataset": row["dataset"] | {"network_hash": "123"}},
        "other settings": row | {"config": row["config"] | {"d": 128}},
        "no evaluation of tedtrajrec": json.loads(other.read_text()),
        "does not hold evaluations": {"schema": 1},
    }
    for message, content in wrong.items():
        (tmp_path / "metrics.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=message):
            export_model(run, tmp_path / "model", metrics=[tmp_path / "metrics.json"])
    with pytest.raises(InputError, match="on the same steps in"):
        export_model(run, tmp_path / "model", metrics=[own.parent, metrics])
    with pytest.raises(InputError, match=r"there is no metrics\.json"):
        export_model(run, tmp_path / "model", metrics=[run])
    assert not (tmp_path / "model").exists()


# ---------------------------------------------------------------------- on a machine without geo libraries

BARE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name.split(".")[0] in {forbidden} else find(name, *rest)
from tedtrajrec.evaluation.export import export_model
export_model({run!r}, {output!r}, dataset={dataset!r})
"""


def test_it_runs_where_only_the_core_can(run: Path, dataset: Dataset, tmp_path: Path) -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    forbidden = next(set(c["forbidden_modules"]) for c in contracts if c["type"] == "forbidden")
    code = BARE.format(forbidden=forbidden, run=str(run), output=str(tmp_path / "model"), dataset=str(dataset.path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "same_segment" in card_of(tmp_path / "model")["half_precision"]
