"""What every method of the registry must do, before any training."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError
from tedtrajrec.methods.base import Method, Recovered
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import METHODS, Needs, describe_method, load_method, make_method, method_class
from tests.conftest import make_grid
from tests.contract.conftest import batch_of, write_trips_of


@pytest.fixture(scope="module")
def training_only(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same training trips, and nothing to validate or test with."""
    return write_trips_of(tmp_path_factory.mktemp("contract") / "training_only", dataset, "train")


def prepared(name: str, dataset: Dataset) -> Method[Any]:
    torch.manual_seed(0)  # for methods that start from random weights
    method = make_method(name, dataset.network)
    method.precompute(dataset)
    return method


@pytest.fixture(scope="module", params=list(METHODS))
def method(request: pytest.FixtureRequest, dataset: Dataset) -> Method[Any]:
    return prepared(request.param, dataset)


@pytest.fixture(scope="module")
def recovered(method: Method[Any], batch: Batch) -> Recovered:
    return method.recover(batch)


def assert_same(a: Recovered, b: Recovered, where: torch.Tensor) -> None:
    """Check that two results agree at the real steps; arithmetic may be done in another order."""
    assert torch.equal(a.segment[where], b.segment[where])
    torch.testing.assert_close(a.ratio[where], b.ratio[where], rtol=0, atol=1e-4)
    torch.testing.assert_close(a.log_prob[where], b.log_prob[where], rtol=1e-3, atol=1e-3, equal_nan=True)


def test_every_step_has_an_answer_in_range(method: Method[Any], batch: Batch, recovered: Recovered) -> None:
    found = recovered
    shape = batch.step_mask.shape
    assert found.segment.shape == found.ratio.shape == found.log_prob.shape == shape
    assert (found.segment.dtype, found.ratio.dtype, found.log_prob.dtype) == (
        torch.int64, torch.float32, torch.float32
    )  # fmt: skip
    segment, ratio, log_prob = (values[batch.step_mask] for values in found)
    assert ((segment >= 0) & (segment < method.network.n_segments)).all()
    assert ((ratio >= 0) & (ratio <= 1)).all()
    said = ~torch.isnan(log_prob)
    assert (log_prob[said] <= 1e-6).all()
    assert torch.isfinite(log_prob[said]).all()


def test_a_trip_does_not_depend_on_the_others(method: Method[Any], dataset: Dataset, recovered: Recovered) -> None:
    trips = dataset.split("test").trips()
    for few in ([6, 1, 3], [2]):  # some methods have a way of their own for one trip
        apart = batch_of(dataset, trips.select(np.array(few)))
        width = apart.step_mask.shape[1]
        among = Recovered(*(values[few, :width] for values in recovered))
        assert_same(among, method.recover(apart), apart.step_mask)


def test_choices_begin_with_the_answer(method: Method[Any], dataset: Dataset, batch: Batch) -> None:
    first, choices = method.best(batch, 1), method.best(batch, 3)
    real = batch.step_mask
    assert choices.segment.shape[:2] == choices.ratio.shape[:2] == choices.log_prob.shape[:2] == real.shape
    assert 1 <= choices.segment.shape[2] <= 3
    assert_same(Recovered(*(part[..., 0] for part in first)), Recovered(*(part[..., 0] for part in choices)), real)
    found = choices.segment[real].sort(dim=-1).values
    assert ((found >= -1) & (found < method.network.n_segments)).all()
    assert ((found[:, 1:] != found[:, :-1]) | (found[:, 1:] < 0)).all()  # all different
    one = batch_of(dataset, dataset.split("test").trips(np.array([2])))
    n, k = one.step_mask.shape[1], choices.segment.shape[2]
    among = Recovered(*(values[2:3, :n].flatten(1) for values in choices))
    alone = Recovered(*(values.flatten(1) for values in method.best(one, 3)))
    assert_same(among, alone, torch.ones(1, n * k, dtype=torch.bool))


def test_the_same_again(method: Method[Any], batch: Batch, recovered: Recovered) -> None:
    assert_same(method.recover(batch), recovered, batch.step_mask)


def test_saved_and_loaded(method: Method[Any], batch: Batch, recovered: Recovered, tmp_path: Path) -> None:
    method.save(tmp_path / "run")
    loaded = load_method(tmp_path / "run", method.network)
    assert type(loaded) is type(method)
    assert loaded.config == method.config
    for a, b in zip(recovered, loaded.recover(batch), strict=True):
        torch.testing.assert_close(a[batch.step_mask], b[batch.step_mask], rtol=0, atol=0, equal_nan=True)


def test_another_network_is_refused_or_told_of(method: Method[Any], tmp_path: Path) -> None:
    method.save(tmp_path / "run")
    other = make_grid(3, 4, spacing_m=120.0)
    assert method.note == ""
    if type(method).adopt is not Method.adopt:
        assert method.network.hash in load_method(tmp_path / "run", other).note
        return
    with pytest.raises(InputError, match="holds for the segments of one network only"):
        load_method(tmp_path / "run", other)


def test_learns_from_training_trips_only(
    method: Method[Any], training_only: Dataset, batch: Batch, recovered: Recovered
) -> None:
    assert len(training_only.split("valid")) == len(training_only.split("test")) == 0
    again = prepared(method.name, training_only)
    state, expected = again.state(), method.state()
    assert state.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(state[name], array)
    assert_same(again.recover(batch), recovered, batch.step_mask)


def test_does_not_look_at_the_truth(method: Method[Any], batch: Batch, recovered: Recovered) -> None:
    mixed = torch.randperm(batch.segment.numel(), generator=torch.Generator().manual_seed(1))
    shuffled = dataclasses.replace(
        batch,
        segment=batch.segment.flatten()[mixed].reshape(batch.segment.shape),
        ratio=batch.ratio.flatten()[mixed].reshape(batch.ratio.shape),
    )
    assert_same(method.recover(shuffled), recovered, batch.step_mask)


@pytest.mark.parametrize("name", METHODS)
def test_the_registry_says_what_the_class_is(name: str) -> None:
    cls, needs = method_class(name), METHODS[name].needs
    assert cls.name == name
    assert describe_method(name).endswith(".")
    assert issubclass(cls, LearnedMethod) == (needs in (Needs.TRAINING, Needs.PRETRAINING))
    fields = {field.name for field in dataclasses.fields(cls.Config)}
    assert ("pretrain_epochs" in fields) == (needs is Needs.PRETRAINING)
    if needs is Needs.NOTHING:
        assert cls.precompute is Method.precompute
    if needs in (Needs.BETTER, Needs.PAST):
        assert cls.precompute is not Method.precompute
    assert all(isinstance(preset, cls.Config) for preset in cls.PRESETS.values())
    assert cls.PRESETS.get("default", cls.Config()) == cls.Config()
