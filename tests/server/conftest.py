"""A small city with sparse trips, and a service for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import SIZES, synthetic_city
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.server.loading import Served, load_served
from tedtrajrec.server.settings import ServerSettings
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tests.server.running import running


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOKEN", "MODEL", "NETWORK", "PORT", "HOST", "WORKERS"):
        monkeypatch.delenv(f"TEDTRAJREC_{name}", raising=False)


@pytest.fixture(scope="session")
def city() -> RoadNetwork:
    """Return a made-up city of 500 segments."""
    return synthetic_city(config=SIZES["small"])


@pytest.fixture(scope="session")
def dense(city: RoadNetwork) -> Trips:
    """Return 64 simulated trips with their truth."""
    return simulate_trips(city, trips=64, seed=3)


@pytest.fixture(scope="session")
def sparse(dense: Trips) -> Trips:
    """Return the same trips thinned, without the truth."""
    thinned = thin_trips(dense, "1/4")
    return Trips(thinned.traj_id, thinned.offsets, thinned.time, thinned.lon, thinned.lat)


@pytest.fixture(scope="session")
def network_file(city: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of the city."""
    path = tmp_path_factory.mktemp("city") / "city.npz"
    city.save(path)
    return path


@pytest.fixture(scope="session")
def settings(network_file: Path) -> ServerSettings:
    """Return settings of a service without a model."""
    return ServerSettings(network=network_file)


@pytest.fixture(scope="session")
def served(settings: ServerSettings) -> Served:
    """Return what such a service has loaded, which is shared to save time."""
    return load_served(settings)


@pytest.fixture(scope="session")
def recoverer(served: Served) -> Recoverer:
    """Return what recovers trips there, for use without the service."""
    return served.default.recoverer()


@pytest.fixture(scope="session")
def http(settings: ServerSettings, served: Served) -> Iterator[httpx.Client]:
    """Return a client of a running service."""
    with running(settings, lambda _: served) as client:
        yield client


@pytest.fixture
def one(sparse: Trips) -> Trips:
    """Return one sparse trip."""
    return sparse.select(np.arange(1))
