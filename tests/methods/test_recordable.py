"""Losses, gradients and answers of learned methods, without waiting for the device or shapes that depend on values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import METHODS, make_method, method_class
from tedtrajrec.methods.stepwise import StepwiseMethod
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tests.methods.recordable import run_recordable

LEARNED = [name for name in METHODS if issubclass(method_class(name), LearnedMethod)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=20, step_s=15, seed=5)
    path: Path = tmp_path_factory.mktemp("recordable") / "city"
    return write_dataset(path, city, {"train": shards_of(trips)}, step_s=15, time_zone="Europe/Berlin")


@pytest.fixture(scope="module")
def batch(dataset: Dataset) -> Batch:
    trips = dataset.split("train").trips(np.arange(4))
    observed = draw_observed(trips, "1/8", seed=2)
    return make_batch(trips, observed, dataset.network, step_s=15, time_zone="Europe/Berlin")


@pytest.mark.parametrize("name", LEARNED)
def test_can_be_recorded(name: str, dataset: Dataset, batch: Batch) -> None:
    method: Any = make_method(name, dataset.network, ["d=16"])
    method.precompute(dataset)
    inputs = method.inputs(batch, torch.rand(batch.step_mask.shape) < 0.5)
    weights = list(method.train().parameters())
    run_recordable(lambda: torch.autograd.grad(method.loss(inputs).total, weights, materialize_grads=True))
    if isinstance(method, StepwiseMethod):  # others look for the answer on the CPU
        method.eval()
        method._kept_roads()  # is made before a graph is recorded
        run_recordable(lambda: method.decode(inputs))
        run_recordable(lambda: method.decode(inputs, 3))


def test_what_cannot_be_recorded_is_noticed() -> None:
    x = torch.ones(3)
    for work in (lambda: float(x.sum()), lambda: x[x > 0], x.nonzero):
        with pytest.raises(AssertionError, match="cannot be recorded"):
            run_recordable(work)
