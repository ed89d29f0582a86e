"""A dataset of a few simulated trips on a grid of streets."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.trips.simulate import simulate_trips
from tests.conftest import make_grid

STEP_S, ZONE = 15, "Europe/Lisbon"


def write_few_trips(path: Path, trips: int = 40) -> Dataset:
    """Write a dataset of so many training trips, and four each for validation and test."""
    city = make_grid(10, 10, spacing_m=150.0)
    made = simulate_trips(city, trips=trips + 8, step_s=STEP_S, seed=3)
    parts = {"train": (0, trips), "valid": (trips, trips + 4), "test": (trips + 4, trips + 8)}
    splits = {name: shards_of(made.select(np.arange(*part))) for name, part in parts.items()}
    return write_dataset(path / "few", city, splits, step_s=STEP_S, time_zone=ZONE)
