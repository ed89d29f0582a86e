"""Fixes per second of the candidate search on the real Porto network and trips, beside shapely in the same run.

    python benchmarks/bench_candidates.py [--data FOLDER] [--runs 5]

Every line is the median over the runs; all give segment, distance, ratio and point, in order of distance. At large
radii shapely and torch are given a part of the fixes only. The runs are taken in turns, so that other work on the
machine slows all alike.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import shapely
import torch
from numpy.typing import NDArray

from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.candidates_torch import TorchCandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))


def read_fixes(path: Path) -> tuple[Floats, Floats]:
    """Return lon and lat of all fixes of a Porto trip file."""
    with gzip.open(path, "rt") as file:
        lon, lat = np.array([fix for row in csv.DictReader(file) for fix in json.loads(row["POLYLINE"])]).T
    return lon, lat


class ShapelyFinder:
    """The same question put to shapely: tree query, distance, place along the line, point there."""

    def __init__(self, network: RoadNetwork) -> None:
        owner = np.repeat(np.arange(len(network)), np.diff(network.geom_offset))
        self.plane = network.plane
        self.lines = np.asarray(shapely.linestrings(np.column_stack(network.geom_xy), indices=owner))
        shapely.prepare(self.lines)
        self.tree = shapely.STRtree(self.lines)

    def within(self, lon: Floats, lat: Floats, radius_m: float) -> int:
        """Search, and return the number of candidates."""
        points = np.asarray(shapely.points(*self.plane.to_xy(lon, lat)))
        point, segment = self.tree.query(points, predicate="dwithin", distance=radius_m)
        points, lines = points[point], self.lines[segment]
        distance = shapely.distance(points, lines)
        along = shapely.line_locate_point(lines, points)
        ratio = along / shapely.length(lines)
        place = shapely.get_coordinates(shapely.line_interpolate_point(lines, along))
        self.plane.to_lonlat(place[:, 0], place[:, 1])
        np.lexsort([segment, distance, point])
        return len(ratio)


class Task(NamedTuple):
    """A search to time."""

    run: Callable[[], object]
    n_fixes: int


def rates(tasks: dict[str, Task], runs: int) -> dict[str, float]:
    """Return the median fixes per second of each task, the tasks taken in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(runs):
        for name, task in tasks.items():
            start = time.perf_counter()
            task.run()
            seconds[name].append(time.perf_counter() - start)
    return {name: task.n_fixes / statistics.median(seconds[name]) for name, task in tasks.items()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    lon, lat = read_fixes(options.data / "porto" / "trips.csv.gz")
    network = RoadNetwork.from_osm(options.data / "porto" / "porto.osm.pbf")
    start = time.perf_counter()
    finder = CandidateFinder(network)
    print(f"{network}; {len(lon)} fixes; index built in {(time.perf_counter() - start) * 1000:.0f} ms")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}; torch {torch.__version__} on the CPU")
    rival, on_torch = ShapelyFinder(network), TorchCandidateFinder(network)
    finder.within(lon[:10], lat[:10], 50.0)  # compile
    finder.nearest(lon[:10], lat[:10])

    print(f"\n{'radius':>8} {'found/fix':>10} {'what':<16} {'fixes/s':>12} {'x shapely':>10}")
    for radius, share in ((50.0, 1), (100.0, 4), (400.0, 32)):
        part = slice(None, None, share)  # every so many fixes, from all over the city
        n = len(lon[part])
        found = finder.within(lon, lat, radius)
        tasks = {
            "shapely": Task(partial(rival.within, lon[part], lat[part], radius), n),
            "numba, 1 worker": Task(partial(finder.within, lon, lat, radius, workers=1), len(lon)),
            "numba, 2 workers": Task(partial(finder.within, lon, lat, radius, workers=2), len(lon)),
            "torch, CPU": Task(partial(on_torch.within, torch.tensor(lon[part]), torch.tensor(lat[part]), radius), n),
        }
        measured = rates(tasks, options.runs)
        for name, rate in measured.items():
            times = rate / measured["shapely"]
            print(f"{radius:6.0f} m {found.offsets[-1] / len(lon):10.1f} {name:<16} {rate:12,.0f} {times:10.1f}")
    tasks = {f"{w} worker(s)": Task(partial(finder.nearest, lon, lat, workers=w), len(lon)) for w in (1, 2)}
    measured = rates(tasks, options.runs)
    for name, rate in measured.items():
        print(f"nearest, {name}: {rate:,.0f} fixes/s")


if __name__ == "__main__":
    main()
