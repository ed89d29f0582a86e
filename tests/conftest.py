"""Fixtures that many tests share: a tiny city one can draw by hand, and the real data where it is present."""

from __future__ import annotations

import os
from pathlib import Path

# Before numpy and torch are loaded, and for the processes that tests start: the tensors of the tests are small, and
# threads that wait for each other take several times the processor time of one.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch
from hypothesis import settings

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips

# Kernels compile in the first example, so time limits would fail by chance; CI repeats the same examples each time.
settings.register_profile("tedtrajrec", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("tedtrajrec")

# Where there is no CUDA device, kernels for one are interpreted. Triton has to know that when it is loaded, which
# torch_geometric does; that has not been imported yet, and nothing else of the tests runs any kernel.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real data; skip without it, or fail where it is required (CI)."""
    if not DATA.is_dir():
        reason = f"real data not found at {DATA}; set TEDTRAJREC_DATA"
        if os.environ.get("TEDTRAJREC_REQUIRE_DATA"):
            pytest.fail(reason)
        pytest.skip(reason)
    return DATA


@pytest.fixture(scope="session")
def peers_dir(data_dir: Path) -> Path:
    """Return the folder of peer measurements beside the real data."""
    return data_dir.parent / "peers"


@pytest.fixture(scope="session")
def porto(data_dir: Path) -> RoadNetwork:
    """Return the real Porto network."""
    return RoadNetwork.from_osm(data_dir / "porto" / "porto.osm.pbf")


@pytest.fixture(scope="session")
def chengdu(data_dir: Path) -> RoadNetwork:
    """Return the real Chengdu network."""
    return RoadNetwork.from_table(data_dir / "chengdu" / "network.geojson.gz")


def make_grid(
    columns: int = 6,
    rows: int = 6,
    *,
    spacing_m: float = 100.0,
    one_way_row: int | None = 2,
    u_turns: bool = False,
    forbidden_turns: np.ndarray | None = None,
) -> RoadNetwork:
    """Return a grid of two-way streets near Porto; ``one_way_row`` runs east only.

    Node (column, row) has the number ``row * columns + column`` and the source id 1000 + that. Segments are ordered row
    by row: eastward and westward streets first, then northward and southward ones.
    """
    lat0, lon0 = 41.15, -8.62
    dlat, dlon = spacing_m / 111_074.0, spacing_m / 83_956.0
    x, y = np.meshgrid(np.arange(columns), np.arange(rows))
    lon, lat = (lon0 + x * dlon).ravel(), (lat0 + y * dlat).ravel()
    pairs = []
    for row in range(rows):
        for column in range(columns - 1):
            a = row * columns + column
            pairs.append((a, a + 1))
            if row != one_way_row:
                pairs.append((a + 1, a))
    for row in range(rows - 1):
        for column in range(columns):
            a = row * columns + column
            pairs += [(a, a + columns), (a + columns, a)]
    start, end = np.array(pairs).T
    return RoadNetwork.build(
        node_lon=lon,
        node_lat=lat,
        node_id=1000 + np.arange(columns * rows),
        seg_from=start,
        seg_to=end,
        road_class=np.full(len(start), 11),
        speed_mps=np.full(len(start), 10.0),
        geom_offset=np.arange(len(start) + 1) * 2,
        geom_lon=np.column_stack([lon[start], lon[end]]).ravel(),
        geom_lat=np.column_stack([lat[start], lat[end]]).ravel(),
        u_turns=u_turns,
        forbidden_turns=forbidden_turns,
        meta={"source": "a grid made by the tests"},
    )


def published_trips(data_dir: Path, network: RoadNetwork) -> Trips:
    """Return the trips of Chengdu with the positions that were published with them."""
    table = read_trips(data_dir / "chengdu" / "trips.csv.gz", timezone="Asia/Shanghai")
    order = np.argsort(network.source_id)
    ids = np.ma.filled(table.extra["edge_id"], -1)
    segment = order[np.searchsorted(network.source_id, ids, sorter=order).clip(max=len(order) - 1)]
    known = network.source_id[segment] == ids
    return table.replace(segment=np.where(known, segment, -1).astype(np.int32))


@pytest.fixture(scope="session")
def tiny_city() -> RoadNetwork:
    """Return a 6 x 6 grid of streets, 100 m apart, with one one-way street."""
    return make_grid()
