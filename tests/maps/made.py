"""Two recoveries of the same drives on the tiny city, with all that a map can show."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.table import TEXT, Trips
from tedtrajrec.trips.writers import write_trips

START = 1_372_672_800  # 2013-07-01 10:00:00 UTC
STEP = 15
PER_SEGMENT = (0.25, 0.75)  # ratios of the two steps on each segment


def street(network: RoadNetwork, nodes: list[int]) -> list[int]:
    """Return the segments along nodes that are joined by streets."""
    ends = list(zip(network.seg_from.tolist(), network.seg_to.tolist(), strict=True))
    return [ends.index(pair) for pair in itertools.pairwise(nodes)]


def drives(network: RoadNetwork) -> list[list[int]]:
    """Return three drives over the 6 x 6 grid: along the bottom and up, up and along, and diagonally."""
    return [
        street(network, [0, 1, 2, 3, 4, 10, 16, 22]),
        street(network, [0, 6, 12, 13, 14, 15, 16, 22]),
        street(network, [1, 7, 8, 14, 15, 21, 22, 28]),
    ]


def recovered(network: RoadNetwork, ways: list[list[int]], **columns: Any) -> RecoveredTrips:
    """Return trips that drive the given ways, two steps on each segment; every fifth step is a fix."""
    n = [2 * len(way) for way in ways]
    segment = np.concatenate([np.repeat(way, 2) for way in ways]).astype(np.int32)
    ratio = np.tile(PER_SEGMENT, len(segment) // 2)
    lon, lat = network.point_at(segment, ratio)
    number = np.concatenate([np.arange(count) for count in n])
    last = np.cumsum(n) - 1
    values: dict[str, Any] = {
        "traj_id": np.array([f"drive {i + 1}" for i in range(len(ways))], TEXT),
        "offsets": np.concatenate([[0], np.cumsum(n)]).astype(np.int64),
        "time": START + 3600 * np.repeat(np.arange(len(ways)), n) + STEP * number,
        "lon": lon.round(7),
        "lat": lat.round(7),
        "segment": segment,
        "ratio": ratio,
        "osm_way_id": 700 + segment.astype(np.int64),
        "observed": (number % 5 == 0) | np.isin(np.arange(len(segment)), last),
        "probability": np.resize(np.array([0.99, 0.9, 0.6, 0.3], np.float32), len(segment)),
        "broken": np.zeros(len(segment), bool),
    }
    return RecoveredTrips(**(values | columns))


def write_files(network: RoadNetwork, folder: Path) -> dict[str, Path]:
    """Write the network, two recoveries, the fixes and the truth; return their files by name."""
    ways = drives(network)
    model = recovered(network, ways)
    broken = model.broken.copy()
    broken[model.offsets[2] + 6] = True
    model = recovered(network, ways, broken=broken)
    other = recovered(network, [ways[1], ways[0], ways[2]], probability=np.full(model.n_rows, np.nan, np.float32))
    fixes = Trips(model.traj_id, model.offsets, model.time, model.lon + 1e-4, model.lat).keep_fixes(model.observed)
    truth = Trips(model.traj_id, model.offsets, model.time, model.lon, model.lat, model.segment, model.ratio)
    files = {
        name: folder / name for name in ("network.npz", "model.parquet", "other.parquet", "sparse.csv", "truth.csv")
    }
    network.save(files["network.npz"])
    write_trips(model.to_trips(), files["model.parquet"])
    write_trips(other.to_trips(), files["other.parquet"])
    write_trips(fixes, files["sparse.csv"])
    write_trips(truth, files["truth.csv"])
    return files
