"""The training loop: what it leaves behind, when it stops, and how it goes on."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.methods.learned import Inputs, Losses
from tedtrajrec.methods.registry import load_method
from tedtrajrec.training.checkpoint import FILE, Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import choose_device, fit, largest, validate, validation_batches
from tedtrajrec.training.trainer import Trainer
from tests.nn import literal
from tests.training.conftest import SHORT, TINY, files_of, new_method


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def whole(small_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from start to end."""
    run = tmp_path_factory.mktemp("run") / "whole"
    fitted = fit(new_method(small_dataset), small_dataset, run, SHORT, device="cpu")
    assert (fitted.epochs, fitted.finished) == (2, True)
    return run


def assert_same_run(a: Path, b: Path) -> None:
    """Check that two runs have the same weights, states and metrics, bit for bit."""
    for name in (FILE, "model.safetensors"):
        x, y = load_file(a / name), load_file(b / name)
        assert x.keys() == y.keys()
        assert all(torch.equal(value, y[key]) for key, value in x.items())
    timeless = [[{**row, "seconds": 0} for row in rows_of(run)] for run in (a, b)]
    assert timeless[0] == timeless[1]
    assert (a / "train.json").read_text() == (b / "train.json").read_text()


def test_what_a_run_leaves(whole: Path, small_dataset: Dataset) -> None:
    assert files_of(whole) == {"config.json", "model.safetensors", "metrics.jsonl", "train.json", str(FILE)}
    rows = rows_of(whole)
    assert [row["epoch"] for row in rows] == [0, 1]
    for row in rows:
        assert row.keys() == {
            "epoch", "loss_total", "loss_segment", "loss_ratio", "valid_accuracy", "best", "lr", "seconds",
        }  # fmt: skip
        assert row["loss_total"] == pytest.approx(row["loss_segment"] + row["loss_ratio"], rel=1e-5)
        assert 0 <= row["valid_accuracy"] <= 1
    assert rows[1]["loss_segment"] < rows[0]["loss_segment"]
    assert rows[0]["best"]
    total = 2 * 3  # batches; the last one of an epoch says the rate
    expected = [max(1e-3, 0.5 * (1 + math.cos(math.pi * (k - 1) / (total - 1)))) for k in (2, 5)]
    assert [row["lr"] for row in rows] == pytest.approx([SHORT.lr * share for share in expected])
    loaded = load_method(whole, small_dataset.network)
    assert loaded.config == TINY


def test_again_it_is_the_same(whole: Path, small_dataset: Dataset, tmp_path: Path) -> None:
    torch.manual_seed(99)
    method = new_method(small_dataset)
    torch.manual_seed(98)  # the state of the generator at the start does not matter
    fit(method, small_dataset, tmp_path, SHORT, device="cpu")
    assert_same_run(tmp_path, whole)


def test_stopped_after_every_batch_it_goes_on(whole: Path, small_dataset: Dataset, tmp_path: Path) -> None:
    calls = 0
    finished = False
    while not finished:
        fitted = fit(new_method(small_dataset), small_dataset, tmp_path, SHORT, device="cpu", max_minutes=0.0)
        finished = fitted.finished
        calls += 1
        assert calls < 20
        if not finished:
            assert "to be gone on with" in str(fitted)
    assert calls >= 6  # three batches an epoch
    assert_same_run(tmp_path, whole)


def test_a_finished_run_is_left_alone(whole: Path, small_dataset: Dataset) -> None:
    before = {name: (whole / name).stat().st_mtime_ns for name in files_of(whole)}
    fitted = fit(new_method(small_dataset), small_dataset, whole, SHORT, device="cpu")
    assert (fitted.epochs, fitted.finished) == (2, True)
    assert {name: (whole / name).stat().st_mtime_ns for name in files_of(whole)} == before


def test_a_run_of_before_lacks_settings_that_are_new(whole: Path, small_dataset: Dataset, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    said = json.loads((run / "train.json").read_text())
    for part, name in (("method", "guided"), ("train", "most_train")):
        del said[part][name]
    (run / "train.json").write_text(json.dumps(said))
    assert fit(new_method(small_dataset), small_dataset, run, SHORT, device="cpu").finished
    said["method"]["unheard_of"] = 1
    (run / "train.json").write_text(json.dumps(said))
    with pytest.raises(ConfigError, match="other settings"):
        fit(new_method(small_dataset), small_dataset, run, SHORT, device="cpu")


def test_other_settings_or_another_dataset_are_refused(whole: Path, small_dataset: Dataset, tmp_path: Path) -> None:
    wider = dataclasses.replace(TINY, width=16)
    for method, config in (
        (new_method(small_dataset), dataclasses.replace(SHORT, lr=0.5)),
        (new_method(small_dataset, wider), SHORT),
    ):
        with pytest.raises(ConfigError, match="other settings"):
            fit(method, small_dataset, whole, config, device="cpu")
    splits = {"train": shards_of(small_dataset.split("test").trips())}
    other = write_dataset(tmp_path / "d", small_dataset.network, splits, step_s=15, time_zone="Europe/Berlin")
    with pytest.raises(ConfigError, match="another dataset"):
        fit(new_method(small_dataset), other, whole, SHORT, device="cpu")


def test_patience(small_dataset: Dataset, tmp_path: Path) -> None:
    config = dataclasses.replace(SHORT, epochs=20, lr=1e-9, patience=2)  # it learns nothing
    fitted = fit(new_method(small_dataset), small_dataset, tmp_path, config, device="cpu")
    assert (fitted.epochs, fitted.best_epoch, fitted.finished) == (3, 0, True)
    assert [row["best"] for row in rows_of(tmp_path)] == [True, False, False]
    again = fit(new_method(small_dataset), small_dataset, tmp_path, config, device="cpu")
    assert (again.epochs, again.finished) == (3, True)


def test_the_best_weights_are_kept(small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    accuracies = iter([0.5, 0.7, 0.6, 0.7])
    monkeypatch.setattr("tedtrajrec.training.loop.validate", lambda method, *_: (method.eval(), next(accuracies))[1])
    config = dataclasses.replace(SHORT, epochs=4, schedule="constant")
    fitted = fit(new_method(small_dataset), small_dataset, tmp_path / "four", config, device="cpu")
    assert (fitted.best_epoch, fitted.best_accuracy) == (1, 0.7)
    assert [row["best"] for row in rows_of(tmp_path / "four")] == [True, True, False, False]
    accuracies = iter([0.5, 0.7])
    monkeypatch.setattr("tedtrajrec.training.loop.validate", lambda method, *_: (method.eval(), next(accuracies))[1])
    shorter = dataclasses.replace(config, epochs=2)
    fit(new_method(small_dataset), small_dataset, tmp_path / "two", shorter, device="cpu")
    best, last = load_file(tmp_path / "four" / "model.safetensors"), load_file(tmp_path / "two" / FILE)
    assert all(torch.equal(value, last[f"model.{name}"]) for name, value in best.items())


def test_without_validation_trips_the_last_weights_are_kept(small_dataset: Dataset, tmp_path: Path) -> None:
    splits = {"train": shards_of(small_dataset.split("train").trips(np.arange(8)))}
    dataset = write_dataset(tmp_path / "d", small_dataset.network, splits, step_s=15, time_zone="Europe/Berlin")
    fitted = fit(new_method(dataset), dataset, tmp_path / "run", SHORT, device="cpu")
    assert fitted.best_epoch == 1
    assert "no validation trips, so the weights are those of the last epoch" in str(fitted)
    kept, last = load_file(tmp_path / "run" / "model.safetensors"), load_file(tmp_path / "run" / FILE)
    assert all(torch.equal(value, last[f"model.{name}"]) for name, value in kept.items())


def test_without_training_trips(small_dataset: Dataset, tmp_path: Path) -> None:
    splits = {"valid": shards_of(small_dataset.split("valid").trips())}
    dataset = write_dataset(tmp_path / "d", small_dataset.network, splits, step_s=15, time_zone="Europe/Berlin")
    with pytest.raises(InputError, match="no training trips"):
        fit(new_method(dataset), dataset, tmp_path / "run", SHORT)
    assert not (tmp_path / "run").exists()


def test_an_error_in_a_batch_reaches_the_caller(
    small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr("tedtrajrec.training.loop.training_batch", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        fit(new_method(small_dataset), small_dataset, tmp_path, SHORT, device="cpu")


def test_a_loss_that_is_not_finite_ends_the_run(small_dataset: Dataset, tmp_path: Path) -> None:
    config = dataclasses.replace(SHORT, lr=1e30, schedule="constant")
    with pytest.raises(ConfigError, match=r"not finite by batch 3 of epoch 1\. .*train\.lr below 1e\+30") as caught:
        fit(new_method(small_dataset), small_dataset, tmp_path, config, device="cpu")
    assert "another folder" in str(caught.value)
    assert files_of(tmp_path) == {"train.json"}  # no state to go on from


def test_validation_trips_can_be_drawn_several_times(small_dataset: Dataset) -> None:
    once = list(validation_batches(small_dataset, SHORT, ["1/8", "1/4"]))
    thrice = list(validation_batches(small_dataset, SHORT, ["1/8", "1/4"], draws=3))
    assert len(thrice) == 3 * len(once)
    for k, batch in enumerate(thrice):
        same = once[k // 3]
        assert torch.equal(batch.segment, same.segment)
        assert torch.equal(batch.observed, same.observed) == (k % 3 == 0)


def test_validation_is_the_mean_over_trips(small_dataset: Dataset) -> None:
    method = new_method(small_dataset)
    batches = list(validation_batches(small_dataset, SHORT, SHORT.keep))
    shares = []
    for batch in batches:
        batch.segment[0, 2:] = -1  # unknown; does not count
        found = method.recover(batch).segment
        for i in range(len(batch)):
            known = batch.segment[i] >= 0
            shares.append(float((found[i] == batch.segment[i])[known].double().mean()))
    assert len(shares) == 6
    assert validate(method, batches) == pytest.approx(np.mean(shares), abs=1e-7)
    assert validate(method, []) == 0.0


def rates(config: TrainConfig, per_epoch: int, dataset: Dataset) -> list[float]:
    trainer = Trainer(new_method(dataset), config, per_epoch)
    return [trainer.rate(Progress(epoch, step)) for epoch in range(config.epochs) for step in range(per_epoch)]


def test_schedules(small_dataset: Dataset) -> None:
    constant = TrainConfig(epochs=2, lr=0.1, schedule="constant")
    assert rates(constant, 5, small_dataset) == [0.1] * 10
    found = rates(TrainConfig(epochs=10, lr=0.1, warm_up=0.2), 10, small_dataset)
    assert found[:20] == pytest.approx([0.1 * (k + 1) / 20 for k in range(20)])
    assert found[20:] == pytest.approx([max(1e-4, 0.05 * (1 + math.cos(math.pi * k / 80))) for k in range(80)])


def test_gradients_are_clipped_and_weights_without_one_stay(small_dataset: Dataset) -> None:
    method = new_method(small_dataset, dataclasses.replace(TINY, dropout=0.0)).train()
    trainer = Trainer(method, TrainConfig(clip=1e-3, optimizer="adam", weight_decay=0.0), 1)
    inputs = literal.made_inputs(small_dataset.network.n_segments, 0, fixes=(2, 2), steps=(2, 2))
    one = type(inputs)(*(part[:, :1] for part in inputs))  # of one step, so that nothing is fed
    before = method.decoder.core.get_parameter("from_fed.weight").clone()
    losses = trainer(one, Progress())
    assert math.isfinite(float(losses.total))
    norm = torch.stack([p.grad.norm() for p in method.parameters() if p.grad is not None]).norm()
    assert float(norm) == pytest.approx(1e-3, rel=1e-3)
    assert torch.equal(method.decoder.core.get_parameter("from_fed.weight"), before)


def test_the_largest_batch_is_shown_first_and_changes_nothing(
    whole: Path, small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    class Preparing(Trainer):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.prepared = False

        def prepare(self, inputs: Inputs) -> None:
            super().prepare(inputs)
            steps.append(inputs.step_mask.numel())

        def __call__(self, inputs: Inputs, progress: Progress) -> Losses:
            steps.append(inputs.step_mask.numel())
            return super().__call__(inputs, progress)

    monkeypatch.setattr("tedtrajrec.training.loop.Trainer", Preparing)
    fit(new_method(small_dataset), small_dataset, tmp_path, SHORT, device="cpu")
    assert len(steps) == 1 + 2 * 3
    assert steps[0] == max(steps[1:4]) > min(steps[1:4])
    assert_same_run(tmp_path, whole)


def test_largest() -> None:
    lengths = np.array([5, 9, 2, 3, 4, 4])
    assert largest([np.array([5]), np.array([1]), np.array([2, 3, 4])], lengths) == 2
    assert largest([np.array([0, 5]), np.array([1, 2])], lengths) == 1


def test_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    for name in ("gpu", "meta"):
        with pytest.raises(ConfigError, match=f"no device '{name}'"):
            choose_device(name)
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="no CUDA device"):
            choose_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert [choose_device(name).index for name in ("auto", "cuda", "cuda:2")] == [None, None, 2]
    with pytest.raises(ConfigError, match="CUDA_VISIBLE_DEVICES=1"):
        choose_device("cuda:1")


def test_settings_of_training_are_checked() -> None:
    for change in (
        {"epochs": 0}, {"batch": 0}, {"lr": 0.0}, {"clip": -1.0}, {"forcing": 1.5}, {"warm_up": -0.1}, {"patience": -1},
        {"weight_decay": -0.1}, {"seed": -1}, {"seed": 2**31}, {"keep": ()},
    ):  # fmt: skip
        with pytest.raises(ValueError, match="must"):
            TrainConfig(**change)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="share to keep"):
        TrainConfig(keep=("2",))
