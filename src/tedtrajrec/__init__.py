"""Sparse, irregular GPS in; dense trips on the road network out.

The names below are the public interface; everything else may change between releases. They load when first used, so
that a machine without geo libraries can import the core.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

__all__ = [
    "Dataset",
    "Recoverer",
    "RoadNetwork",
    "TedtrajrecError",
    "Trips",
    "build_network",
    "match",
    "prepare_dataset",
    "read_trips",
    "simulate_trips",
    "train_method",
    "write_trips",
]

_HOME = {
    "Dataset": "tedtrajrec.data.dataset",
    "Recoverer": "tedtrajrec.recovery.recoverer",
    "RoadNetwork": "tedtrajrec.network.roadnet",
    "TedtrajrecError": "tedtrajrec.errors",
    "Trips": "tedtrajrec.trips.table",
    "build_network": "tedtrajrec.network.build",
    "match": "tedtrajrec.trips.match",
    "prepare_dataset": "tedtrajrec.data.prepare",
    "read_trips": "tedtrajrec.trips.readers",
    "simulate_trips": "tedtrajrec.trips.simulate",
    "train_method": "tedtrajrec.training.train",
    "write_trips": "tedtrajrec.trips.writers",
}

if TYPE_CHECKING:
    from tedtrajrec.data.dataset import Dataset
    from tedtrajrec.data.prepare import prepare_dataset
    from tedtrajrec.errors import TedtrajrecError
    from tedtrajrec.network.build import build_network
    from tedtrajrec.network.roadnet import RoadNetwork
    from tedtrajrec.recovery.recoverer import Recoverer
    from tedtrajrec.training.train import train_method
    from tedtrajrec.trips.match import match
    from tedtrajrec.trips.readers import read_trips
    from tedtrajrec.trips.simulate import simulate_trips
    from tedtrajrec.trips.table import Trips
    from tedtrajrec.trips.writers import write_trips


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'tedtrajrec' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
