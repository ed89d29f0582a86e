"""Lists of candidates of a length that suits the city, chosen before training: once, and not where it is given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError
from tedtrajrec.methods.base import read_description
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.training import lists
from tedtrajrec.training.lists import FILE, SIZES, choose_lists, read_lists, suited_lists
from tedtrajrec.training.loop import validation_batches
from tedtrajrec.training.train import train_method
from tests.training.conftest import SHORT

TINY = [
    *("model.d=8", "model.heads=2", "model.width=8", "model.hidden=8", "model.encoder_layers=1"),
    *("model.step_layers=1", "model.road_layers=1", "train.batch=10", "train.epochs=1"),
]


class Made:
    """Has given shares of steps, the first ones, in its lists."""

    def __init__(self, shares: dict[int, float]) -> None:
        self.shares, self.most = shares, 0

    def listed(self, batch: Batch, most: int) -> torch.Tensor:
        between = (batch.segment >= 0) & batch.step_mask & ~batch.observed
        number = between.flatten().cumsum(0).view(between.shape)
        return number <= self.shares[most] * between.sum()

    def use_lists(self, most: int) -> None:
        self.most = most


def batches_of(dataset: Dataset) -> list[Batch]:
    return list(validation_batches(dataset, SHORT, SHORT.keep))


@pytest.mark.parametrize(
    ("missed", "expected"),
    [
        ((0.0, 0.0, 0.0, 0.0, 0.0, 0.0), 48),
        ((0.5, 0.3, 0.2, 0.05, 0.05, 0.05), 144),
        ((0.5, 0.4, 0.3, 0.2, 0.1, 0.0), 256),
        ((1.0, 1.0, 1.0, 1.0, 1.0, 1.0), 48),
    ],
)
def test_the_shortest_lists_are_taken_that_miss_hardly_more(
    small_dataset: Dataset, missed: tuple[float, ...], expected: int
) -> None:
    found = suited_lists(
        Made({size: 1 - share for size, share in zip(SIZES, missed, strict=True)}), batches_of(small_dataset)
    )
    assert found is not None
    assert found.most == expected
    assert list(found.tried) == [str(size) for size in SIZES]
    assert list(found.tried.values()) == pytest.approx(missed, abs=1 / found.steps)


def test_without_known_steps_nothing_is_chosen(tmp_path: Path) -> None:
    method = Made(dict.fromkeys(SIZES, 1.0))
    assert suited_lists(method, []) is None
    choose_lists(method, tmp_path, [], write=True)
    assert method.most == 0
    assert not list(tmp_path.iterdir())


def test_truth_is_looked_for_in_lists_of_a_length(small_dataset: Dataset) -> None:
    method = TedTrajRecParallel(small_dataset.network, ParallelConfig(d=8, heads=2, width=8, most=16))
    method.precompute(small_dataset)
    batch = batches_of(small_dataset)[0]
    inputs = method.inputs(batch)
    listed = inputs.list_segment.gather(1, inputs.slot[..., None].expand(-1, -1, 16))
    exists = inputs.list_exists.gather(1, inputs.slot[..., None].expand(-1, -1, 16))
    expected = ((listed == batch.segment[..., None]) & exists).any(-1)
    assert torch.equal(method.listed(batch, 16), expected)
    assert (method.listed(batch, 48) >= expected).all()
    method.use_lists(48)
    assert method.config.most == 48
    assert method.inputs(batch).list_segment.shape[-1] == 48


def test_a_run_says_what_was_chosen_and_keeps_it(
    small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    monkeypatch.setattr(lists, "SIZES", (4, 8, 32))
    train_method("tedtrajrec_parallel", small_dataset, run, overrides=TINY, device="cpu")
    found = read_lists(run)
    assert found is not None
    assert found.most in (8, 32)
    assert read_description(run)["config"]["most"] == found.most
    assert json.loads((run / "train.json").read_text())["method"]["most"] == found.most
    assert f"lists of {found.most} candidates" in str(found)
    monkeypatch.setattr(lists, "suited_lists", None)  # what a run has is read
    train_method("tedtrajrec_parallel", small_dataset, run, overrides=TINY, device="cpu")
    (run / FILE).write_text("{}")
    with pytest.raises(InputError, match="not the choice of lists"):
        read_lists(run)


@pytest.mark.parametrize("given", [True, False])
def test_what_is_given_and_what_is_not_asked_for(small_dataset: Dataset, tmp_path: Path, given: bool) -> None:
    overrides = [*TINY, "model.most=16"] if given else TINY
    train_method("tedtrajrec_parallel", small_dataset, tmp_path, overrides=overrides, choose=given, device="cpu")
    assert read_lists(tmp_path) is None
    assert read_description(tmp_path)["config"]["most"] == (16 if given else ParallelConfig().most)


def test_a_run_of_before_goes_on_as_it_is(small_dataset: Dataset, tmp_path: Path) -> None:
    train_method("tedtrajrec_parallel", small_dataset, tmp_path, overrides=TINY, choose=False, device="cpu")
    train_method("tedtrajrec_parallel", small_dataset, tmp_path, overrides=TINY, device="cpu")
    assert read_lists(tmp_path) is None
