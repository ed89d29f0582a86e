"""Training that begins with the weights of another run, of this city or of another, and on a part of the trips."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.registry import load_method, method_class
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.training import loop
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import fit
from tedtrajrec.training.start import few_trips, start_from
from tedtrajrec.training.train import train_method
from tedtrajrec.trips.simulate import simulate_trips

NAME = "tedtrajrec_parallel"
MODEL = [
    "model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.encoder_layers=1", "model.step_layers=1",
    "model.road_layers=1", "model.most=16",
]  # fmt: skip
TINY = [*MODEL, "model.unknown=0.5", "train.batch=5", "train.epochs=1", "train.lr=0.01"]
OTHER = CityConfig(radius_m=500.0, block_m=120.0, river_m=60.0, radials=3)


@pytest.fixture(scope="session")
def other_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 12 short trips of another city to train with, 4 to validate and 4 to test."""
    city = synthetic_city(config=OTHER, seed=9)
    trips = simulate_trips(city, trips=60, step_s=15, seed=3, workers=1)
    short = np.argsort(trips.lengths, kind="stable")[:20]
    parts = {"train": short[:12], "valid": short[12:16], "test": short[16:]}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    return write_dataset(tmp_path_factory.mktemp("other") / "other", city, splits, step_s=15, time_zone="Europe/Berlin")


@pytest.fixture(scope="session")
def first_run(small_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in the small city."""
    run = tmp_path_factory.mktemp("start") / "first"
    assert train_method(NAME, small_dataset, run, overrides=TINY, device="cpu").finished
    return run


def new(dataset: Dataset) -> TedTrajRecParallel:
    torch.manual_seed(7)
    return TedTrajRecParallel(
        dataset.network,
        ParallelConfig(d=8, heads=2, width=8, hidden=8, encoder_layers=1, step_layers=1, road_layers=1, most=16),
    )


def test_weights_of_the_same_city(first_run: Path, small_dataset: Dataset) -> None:
    method = new(small_dataset)
    start_from(method, first_run)
    saved = load_method(first_run, small_dataset.network).state()
    assert any(name.startswith("calibration.") for name in saved)
    for name, array in method.state().items():
        np.testing.assert_array_equal(array, saved[name])
    assert method.calibration is None  # it will be learned anew
    assert method.start is not None
    assert (method.start["run"], method.start["network"]) == ("first", small_dataset.network.hash)


def test_weights_of_another_city(first_run: Path, other_dataset: Dataset) -> None:
    method = new(other_dataset)
    start_from(method, first_run)
    saved = load_file(first_run / "model.safetensors")
    for name, value in method.state_dict().items():
        if name == "road_gnn.table":
            assert value.shape[0] == other_dataset.network.n_segments != len(saved[name])
            assert not value.any()
        else:
            np.testing.assert_array_equal(value.numpy(), saved[name])
    assert method.origin is None  # it is being trained here
    assert method.note == ""


def test_a_run_says_what_it_started_from(
    first_run: Path, other_dataset: Dataset, small_dataset: Dataset, tmp_path: Path
) -> None:
    more = [*TINY, "train.lr=1e-9", "train.weight_decay=0"]
    train_method(NAME, other_dataset, tmp_path / "second", overrides=more, start=first_run, device="cpu")
    described = json.loads((tmp_path / "second" / "config.json").read_text())
    start = described["start"]
    assert (start["run"], start["network"]) == ("first", small_dataset.network.hash)
    assert json.loads((tmp_path / "second" / "train.json").read_text())["start"] == start
    before, after = (load_file(run / "model.safetensors") for run in (first_run, tmp_path / "second"))
    np.testing.assert_allclose(after["point.weight"], before["point.weight"], atol=1e-6)  # hardly trained
    assert len(after["past.pace"]) == other_dataset.network.n_segments
    assert after["past.passing.n_trips"] == [12]
    assert "calibration.said" in after
    loaded = load_method(tmp_path / "second", other_dataset.network)
    assert loaded.note == ""
    loaded.save(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text()) == described

    train_method(NAME, small_dataset, tmp_path / "third", overrides=TINY, start=tmp_path / "second", device="cpu")
    third = json.loads((tmp_path / "third" / "config.json").read_text())["start"]
    assert third["run"] == "second"
    assert third["start"] == start


def test_a_stopped_run_goes_on_bit_for_bit(
    first_run: Path, other_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*TINY, "train.epochs=2", "train.most_train=9", "train.batch=3"]

    def run(name: str, max_minutes: float | None = None) -> loop.Fitted:
        return train_method(
            NAME, other_dataset, tmp_path / name, overrides=settings, start=first_run, device="cpu",
            max_minutes=max_minutes,
        )  # fmt: skip

    assert run("whole").finished
    monkeypatch.setattr(loop, "CHECKPOINT_S", 0.0)
    for _ in range(3):
        assert not run("stopped", max_minutes=0).finished  # one batch each
    assert run("stopped").finished
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "stopped"))
    assert a.keys() == b.keys()
    for name, array in a.items():
        np.testing.assert_array_equal(array, b[name])
    with pytest.raises(ConfigError, match="other settings"):
        train_method(NAME, other_dataset, tmp_path / "whole", overrides=settings, device="cpu")


def test_starts_that_do_not_fit(
    first_run: Path, small_dataset: Dataset, other_dataset: Dataset, tmp_path: Path
) -> None:
    def run(name: str, dataset: Dataset, start: str | Path, *more: str) -> None:
        train_method(name, dataset, tmp_path / "run", overrides=[*TINY, *more], start=start, device="cpu")

    with pytest.raises(ConfigError, match=r"differ in width \(8 there, 16 here\).*--set model\.width=8"):
        run(NAME, other_dataset, first_run, "model.width=16")
    with pytest.raises(InputError, match="no saved method or trained model 'nowhere'"):
        run(NAME, other_dataset, "nowhere")
    plain = ["model.d=8", "model.heads=2", "model.width=8", "train.epochs=1"]
    train_method("tedtrajrec", small_dataset, tmp_path / "paper", overrides=plain, device="cpu")
    with pytest.raises(InputError, match="this is tedtrajrec, not tedtrajrec_parallel"):
        run(NAME, other_dataset, tmp_path / "paper")
    with pytest.raises(
        InputError, match=r"tedtrajrec learns holds for the segments of one network only.*let tedtrajrec"
    ):
        train_method("tedtrajrec", other_dataset, tmp_path / "run", overrides=plain, start=tmp_path / "paper")
    assert not (tmp_path / "run").exists()
    train_method("tedtrajrec", small_dataset, tmp_path / "on", overrides=plain, start=tmp_path / "paper", device="cpu")
    assert json.loads((tmp_path / "on" / "config.json").read_text())["start"]["run"] == "paper"


def test_parts_of_the_trips_hold_each_other(small_dataset: Dataset) -> None:
    ids = {
        most: set(few_trips(small_dataset, TrainConfig(most_train=most)).split("train").trips().traj_id.tolist())
        for most in (5, 10, 0, 20, 99)
    }
    assert [len(ids[most]) for most in (5, 10, 0, 20, 99)] == [5, 10, 20, 20, 20]
    assert ids[5] < ids[10] < ids[0]
    other = few_trips(small_dataset, TrainConfig(most_train=5, seed=1))
    assert set(other.split("train").trips().traj_id.tolist()) != ids[5]
    assert len(other.split("valid")) == 6
    with pytest.raises(ValueError, match="few_trips"):
        fit(new(small_dataset), small_dataset, "nowhere", TrainConfig(most_train=5))
    with pytest.raises(ValueError, match="most_train must not be"):
        TrainConfig(most_train=-1)


@pytest.mark.parametrize("name", ["route_hmm", "lookup", NAME])
def test_the_past_is_that_of_the_part(small_dataset: Dataset, tmp_path: Path, name: str) -> None:
    few = few_trips(small_dataset, TrainConfig(most_train=6))
    trips = few.split("train").trips()
    alone = write_dataset(
        tmp_path / "alone", small_dataset.network, {"train": shards_of(trips)}, step_s=15, time_zone="Europe/Berlin"
    )
    states = []
    for dataset in (few, alone):
        torch.manual_seed(0)
        method = new(dataset) if name == NAME else method_class(name)(dataset.network)
        method.precompute(dataset)
        states.append(method.state())
    assert states[0].keys() == states[1].keys()
    for key, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][key])


def test_command_line(
    first_run: Path, other_dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [word for setting in (*TINY, "train.most_train=7") for word in ("--set", setting)]
    command = ["train", NAME, str(other_dataset.path), "-o", str(tmp_path / "run"), "--device", "cpu", *words]
    with pytest.raises(SystemExit) as stop:
        main([*command, "--start", str(first_run)])
    assert not stop.value.code, capsys.readouterr()
    assert load_file(tmp_path / "run" / "model.safetensors")["past.passing.n_trips"] == [7]
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", str(first_run), str(other_dataset.path), "--keep", "1/4", "-o", str(tmp_path / "metrics")])
    said = capsys.readouterr().out
    assert not stop.value.code, said
    note = "it uses roads, routes and the matcher's drive, without the memory of streets or past trips."
    assert "This model was trained on another network (" in said
    assert note in said
    (file,) = (tmp_path / "metrics").rglob("metrics.json")
    assert json.loads(file.read_text())["note"].endswith(note)
