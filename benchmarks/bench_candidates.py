"""Fixes per second of the candidate search on the real Porto network and trips, beside shapely in the same run.

    python benchmarks/bench_candidates.py [--data FOLDER] [--runs 5]

Every line is the median over the runs; all give segment, distance, ratio and point. shapely is given a part of the fixes
at large radii, where it is slow. Machines are noisy: the ratio to shapely, taken in turns, says more than the figure.
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
from pathlib import Path

import numpy as np
import shapely
import torch

from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.candidates_torch import TorchCandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))


def read_fixes(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return lon and lat of all fixes of a Porto trip file."""
    with gzip.open(path, "rt") as file:
        lon, lat = np.array([fix for row in csv.DictReader(file) for fix in json.loads(row["POLYLINE"])]).T
    return lon, lat


class ShapelyFinder:
    """The same question put to shapely: tree query, distance, place along the line, point there."""

    def __init__(self, network: RoadNetwork) -> None:
        owner = np.repeat(np.arange(len(network)), np.diff(network.geom_offset))
        self.plane = network.plane
        self.lines = shapely.linestrings(np.column_stack(network.geom_xy), indices=owner)
        shapely.prepare(self.lines)
        self.tree = shapely.STRtree(self.lines)

    def within(self, lon: np.ndarray, lat: np.ndarray, radius_m: float) -> int:
        """Search, and return the number of candidates."""
        points = shapely.points(*self.plane.to_xy(lon, lat))
        point, segment = self.tree.query(points, predicate="dwithin", distance=radius_m)
        points, lines = points[point], self.lines[segment]
        distance = shapely.distance(points, lines)
        along = shapely.line_locate_point(lines, points)
        ratio = along / shapely.length(lines)
        place = shapely.get_coordinates(shapely.line_interpolate_point(lines, along))
        self.plane.to_lonlat(place[:, 0], place[:, 1])
        np.lexsort([segment, distance, point])
        return len(ratio)


def rates(tasks: dict[str, tuple[Callable[[], object], int]], runs: int) -> dict[str, float]:
    """Return the median fixes per second of each task, the tasks taken in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(runs):
        for name, (task, _) in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return {name: n / statistics.median(seconds[name]) for name, (_, n) in tasks.items()}


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
    tensors, rival, on_torch = (
        (torch.tensor(lon), torch.tensor(lat)),
        ShapelyFinder(network),
        TorchCandidateFinder(network),
    )
    finder.within(lon[:10], lat[:10], 50.0)  # compile
    finder.nearest(lon[:10], lat[:10])

    print(f"\n{'radius':>8} {'found/fix':>10} {'what':<16} {'fixes/s':>12} {'x shapely':>10}")
    for radius, share in ((50.0, 1), (100.0, 4), (400.0, 32)):
        n = len(lon) // share
        part = slice(None, None, share)  # every so many fixes, from all over the city
        few = [values[part].contiguous() for values in tensors]
        found = finder.within(lon, lat, radius)
        tasks: dict[str, tuple[Callable[[], object], int]] = {
            "shapely": (lambda r=radius, p=part: rival.within(lon[p], lat[p], r), n),
            "numba, 1 worker": (lambda r=radius: finder.within(lon, lat, r, workers=1), len(lon)),
            "numba, 2 workers": (lambda r=radius: finder.within(lon, lat, r, workers=2), len(lon)),
            "torch, CPU": (lambda r=radius, t=few: on_torch.within(*t, r), n),
        }
        measured = rates(tasks, options.runs)
        for name, rate in measured.items():
            times = rate / measured["shapely"]
            print(f"{radius:6.0f} m {found.offsets[-1] / len(lon):10.1f} {name:<16} {rate:12,.0f} {times:10.1f}")
    measured = rates(
        {f"{w} worker(s)": (lambda w=w: finder.nearest(lon, lat, workers=w), len(lon)) for w in (1, 2)}, options.runs
    )
    for name, rate in measured.items():
        print(f"nearest, {name}: {rate:,.0f} fixes/s")


if __name__ == "__main__":
    main()
