"""A dataset of a few simulated trips, and a method small enough to be trained in a second."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.trips.simulate import simulate_trips

TINY = TedTrajRecConfig(d=8, heads=2, width=8, encoder_layers=1, road_layers=1, dropout=0.1)
SHORT = TrainConfig(epochs=2, batch=8, lr=0.01, most_valid=6)


@pytest.fixture(scope="session")
def small_dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Return 20 trips to train with, 6 to validate and 4 to test, short ones of a small city."""
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=90, step_s=15, seed=5, workers=1)
    short = np.argsort(trips.lengths, kind="stable")[:30]
    parts = {"train": short[:20], "valid": short[20:26], "test": short[26:]}
    splits = {name: shards_of(trips.select(which)) for name, which in parts.items()}
    path = tmp_path_factory.mktemp("training") / "dataset"
    return write_dataset(path, city, splits, step_s=15, time_zone="Europe/Berlin", source="made.csv")


def new_method(dataset: Dataset, config: TedTrajRecConfig = TINY) -> TedTrajRec:
    """Return a method with fresh weights, the same each time."""
    torch.manual_seed(0)
    return TedTrajRec(dataset.network, config)


def files_of(folder: Path) -> set[str]:
    """Return the paths of all files below a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
