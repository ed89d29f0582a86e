"""Calibration at the end of training: saved with the best weights, once, and only where there is something to learn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.methods import calibration
from tedtrajrec.methods.tedtrajrec import TedTrajRec
from tedtrajrec.training.calibrate import calibrate_run, learn_calibration
from tedtrajrec.training.loop import fit, validation_batches
from tedtrajrec.training.train import train_method
from tests.training.conftest import SHORT, files_of, new_method

TINY = ["model.d=8", "model.heads=2", "model.width=8", "model.encoder_layers=1", "train.batch=10", "train.epochs=1"]


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the few trips here suffice for bins."""
    monkeypatch.setattr(calibration, "STEPS_PER_BIN", 5)


def test_probabilities_are_true_on_the_trips_learned_from(small_dataset: Dataset) -> None:
    method = new_method(small_dataset)
    batches = list(validation_batches(small_dataset, SHORT, SHORT.keep))
    said: dict[bool, list[float]] = {}
    right: dict[bool, list[float]] = {}
    method.calibration = learn_calibration(method, batches)
    for batch in batches:
        answer = method.recover(batch)
        for seen in (True, False):
            some = (batch.segment >= 0) & (batch.observed == seen)
            said.setdefault(seen, []).extend(answer.log_prob.exp()[some].tolist())
            right.setdefault(seen, []).extend((answer.segment == batch.segment)[some].tolist())
    for seen in (True, False):
        assert len(right[seen]) > 10  # half a step more in a bin of 5 is counted as right
        assert np.mean(said[seen]) == pytest.approx(np.mean(right[seen]), abs=0.1)


def test_the_end_of_training_saves_it(small_dataset: Dataset, tmp_path: Path) -> None:
    train_method("tedtrajrec", small_dataset, tmp_path / "run", overrides=TINY, device="cpu")
    method = TedTrajRec.load(tmp_path / "run", small_dataset.network)
    assert method.calibration is not None
    before = {name: (tmp_path / "run" / name).read_bytes() for name in files_of(tmp_path / "run")}
    written = (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns
    train_method("tedtrajrec", small_dataset, tmp_path / "run", overrides=TINY, device="cpu")  # there is nothing to do
    assert (tmp_path / "run" / "model.safetensors").stat().st_mtime_ns == written
    assert {name: (tmp_path / "run" / name).read_bytes() for name in files_of(tmp_path / "run")} == before


def test_a_run_of_old_is_calibrated_without_another_change(small_dataset: Dataset, tmp_path: Path) -> None:
    method = new_method(small_dataset)
    fit(method, small_dataset, tmp_path, SHORT, device="cpu")
    weights = load_file(tmp_path / "model.safetensors")
    assert not [name for name in weights if name.startswith("calibration")]
    assert TedTrajRec.load(tmp_path, small_dataset.network).calibration is None
    batches = list(validation_batches(small_dataset, SHORT, SHORT.keep))
    calibrate_run(method, tmp_path, batches)
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() - weights.keys() == {"calibration.said", "calibration.right"}
    assert all(np.array_equal(found[name], array) for name, array in weights.items())
    assert method.calibration is None
    one, two = TedTrajRec.load(tmp_path, small_dataset.network), new_method(small_dataset)
    two.restore(weights)
    for batch in batches:
        assert torch.equal(one.recover(batch).segment, two.recover(batch).segment)


def test_without_validation_trips_there_is_none(small_dataset: Dataset, tmp_path: Path) -> None:
    few = small_dataset.split("train").trips(np.arange(8))
    dataset = write_dataset(
        tmp_path / "few", small_dataset.network, {"train": shards_of(few)}, step_s=15, time_zone="Europe/Berlin"
    )
    train_method("tedtrajrec", dataset, tmp_path / "run", overrides=TINY, device="cpu")
    assert TedTrajRec.load(tmp_path / "run", dataset.network).calibration is None


def test_all_shares_of_training_take_part(small_dataset: Dataset) -> None:
    counts = [
        sum(int(batch.observed.sum()) for batch in validation_batches(small_dataset, SHORT, keeps))
        for keeps in (["1/2"], ["1/8"], ["1/2", "1/8"])
    ]
    assert counts[0] > counts[1]
    assert counts[2] == counts[0] + counts[1]
