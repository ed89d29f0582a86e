"""A Ray cluster of two workers on this machine, and a small city with trips in one file and in parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.cluster.pool import RayPool, ray_pool
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips


@pytest.fixture(scope="session")
def pool() -> Iterator[RayPool]:
    """Return a cluster of two processors."""
    pytest.importorskip("ray", reason="the extra 'cluster' is not installed")
    with ray_pool("local", processors=2) as made:
        yield made


@pytest.fixture(scope="session")
def city() -> RoadNetwork:
    """Return a small city."""
    return synthetic_city(size="small")


@pytest.fixture(scope="session")
def network_file(city: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of its network."""
    path = tmp_path_factory.mktemp("cluster") / "network.npz"
    city.save(path)
    return path


@pytest.fixture(scope="session")
def driven(city: RoadNetwork) -> Trips:
    """Return trips of it without their truth."""
    trips = simulate_trips(city, trips=60, step_s=15, seed=1, workers=1)
    return trips.replace(segment=None, ratio=None)


@pytest.fixture(scope="session")
def trip_file(driven: Trips, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return all trips in one file."""
    path = tmp_path_factory.mktemp("cluster") / "trips.parquet"
    write_trips(driven, path)
    return path


@pytest.fixture(scope="session")
def trip_folder(driven: Trips, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return them in a folder of five parts of different sizes."""
    folder = tmp_path_factory.mktemp("cluster") / "parts"
    folder.mkdir()
    for number, which in enumerate(np.split(np.arange(len(driven)), [5, 20, 31, 50])):
        write_trips(driven.select(which), folder / f"part-{number}.parquet")
    return folder
