"""What every method of the registry must do, on a small made-up city."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.errors import InputError
from tedtrajrec.methods.base import Method, Recovered
from tedtrajrec.methods.registry import METHODS, describe_methods, load_method, make_method, method_class
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips

STEP_S = 15
ZONE = "Europe/Berlin"


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=100, step_s=STEP_S, seed=5)
    parts = {"train": np.arange(85), "valid": np.arange(85, 92), "test": np.arange(92, 100)}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    return write_dataset(tmp_path_factory.mktemp("contract") / "city", city, splits, step_s=STEP_S, time_zone=ZONE)


@pytest.fixture(scope="module")
def training_only(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The same training trips, and nothing to validate or test with."""
    splits = {"train": shards_of(dataset.split("train").trips())}
    path = tmp_path_factory.mktemp("contract") / "training_only"
    return write_dataset(path, dataset.network, splits, step_s=STEP_S, time_zone=ZONE)


def batch_of(dataset: Dataset, trips: Trips) -> Batch:
    return make_batch(
        trips,
        draw_observed(trips, "1/8", seed=2),
        dataset.network,
        step_s=STEP_S,
        time_zone=ZONE,
        finder=CandidateFinder(dataset.network),
    )


@pytest.fixture(scope="module")
def batch(dataset: Dataset) -> Batch:
    return batch_of(dataset, dataset.split("test").trips())


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
    assert (found.segment.dtype, found.ratio.dtype) == (torch.int64, torch.float32)
    segment, ratio, log_prob = (values[batch.step_mask] for values in found)
    assert ((segment >= 0) & (segment < method.network.n_segments)).all()
    assert ((ratio >= 0) & (ratio <= 1)).all()
    said = ~torch.isnan(log_prob)
    assert (log_prob[said] <= 1e-6).all()
    assert torch.isfinite(log_prob[said]).all()


def test_a_trip_does_not_depend_on_the_others(method: Method[Any], dataset: Dataset, recovered: Recovered) -> None:
    trips = dataset.split("test").trips()
    few = np.array([6, 1, 3])
    apart = batch_of(dataset, trips.select(few))
    width = apart.step_mask.shape[1]
    among = Recovered(*(values[few, :width] for values in recovered))
    assert_same(among, method.recover(apart), apart.step_mask)


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
    other = synthetic_city(config=CityConfig(radius_m=500.0, block_m=120.0, river_m=60.0, radials=3), seed=9)
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


def test_names_and_descriptions() -> None:
    for name, line in describe_methods().items():
        assert method_class(name).name == name
        assert line.endswith(".")
