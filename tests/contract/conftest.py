"""One small dataset for all methods: simulated trips on a grid of streets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tests.conftest import make_grid

STEP_S = 15
ZONE = "Europe/Lisbon"


def write_trips_of(path: Path, dataset: Dataset, *splits: str) -> Dataset:
    """Write a dataset that has only these splits of another one."""
    parts = {name: shards_of(dataset.split(name).trips()) for name in splits}  # type: ignore[arg-type]
    return write_dataset(path, dataset.network, parts, step_s=STEP_S, time_zone=ZONE)  # type: ignore[arg-type]


def batch_of(dataset: Dataset, trips: Trips) -> Batch:
    """Return trips with an eighth of their steps observed."""
    return make_batch(
        trips,
        draw_observed(trips, "1/8", seed=2),
        dataset.network,
        step_s=STEP_S,
        time_zone=ZONE,
        finder=CandidateFinder(dataset.network),
    )


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 60 trips to train with, 6 to validate and 8 to test."""
    city = make_grid(6, 6, spacing_m=150.0)
    trips = simulate_trips(city, trips=74, step_s=STEP_S, seed=5, workers=1)
    parts = {"train": np.arange(60), "valid": np.arange(60, 66), "test": np.arange(66, 74)}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    return write_dataset(tmp_path_factory.mktemp("contract") / "grid", city, splits, step_s=STEP_S, time_zone=ZONE)


@pytest.fixture(scope="session")
def batch(dataset: Dataset) -> Batch:
    """Return the trips to test with."""
    return batch_of(dataset, dataset.split("test").trips())
