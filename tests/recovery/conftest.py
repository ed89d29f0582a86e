"""A small city with simulated trips, and recoverers on it: of the map alone, and of models nobody trained for long."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.training.train import train_method
from tedtrajrec.trips.simulate import simulate_trips

TINY = [
    *("model.d=16", "model.heads=2", "model.width=16", "model.hidden=16", "model.encoder_layers=1"),
    *("model.step_layers=1", "model.road_layers=1", "model.most=32", "train.batch=10", "train.epochs=1"),
]


@pytest.fixture(scope="session")
def recovery_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 40 short trips to train with, 6 to validate and 20 to test, of a small city."""
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=90, step_s=15, seed=5, workers=1)
    order = np.argsort(trips.lengths, kind="stable")
    parts = {"train": order[:40], "valid": order[40:46], "test": order[46:66]}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    path = tmp_path_factory.mktemp("recovery") / "dataset"
    return write_dataset(path, city, splits, step_s=15, time_zone="Europe/Berlin")


@pytest.fixture(scope="session")
def run(recovery_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the run of a small parallel model."""
    path = tmp_path_factory.mktemp("recovery") / "run"
    train_method("tedtrajrec_parallel", recovery_dataset, path, overrides=TINY, device="cpu")
    return path


@pytest.fixture(scope="session")
def model(run: Path) -> Recoverer:
    """Return the recoverer of that model."""
    return Recoverer.load(run, device="cpu")


@pytest.fixture(scope="session")
def untrained(recovery_dataset: Dataset) -> Recoverer:
    """Return the recoverer of the map alone."""
    return Recoverer.from_network(recovery_dataset.network, time_zone="Europe/Berlin")
