"""Prepare: how long it takes, and how true the truth is that it makes of noisy fixes.

    python benchmarks/bench_prepare.py truth NETWORK [--trips 1000]
    python benchmarks/bench_prepare.py speed TRIPS NETWORK [--workers 2]

``truth`` simulates trips, adds Gaussian noise of 3, 5 and 10 m to the true positions, prepares them and compares the
steps and routes with the exact ones. Beside it: each fix projected onto the true route, which is the best that can be
had of a fix alone. ``speed`` prepares a file by matching and prints time and peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import tempfile
import time
from collections import deque
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import SPLITS, Dataset
from tedtrajrec.data.prepare import PrepareConfig, TruthConfig, prepare_dataset
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import match
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, concat_trips
from tedtrajrec.trips.writers import write_trips

STEP_S = 15
CONFIG = PrepareConfig(step_s=STEP_S, time_zone="Europe/Lisbon", truth=TruthConfig(source="match"))


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    truth = verbs.add_parser("truth")
    truth.add_argument("network", type=Path)
    truth.add_argument("--trips", type=int, default=1000)
    speed = verbs.add_parser("speed")
    speed.add_argument("trips", type=Path)
    speed.add_argument("network", type=Path)
    speed.add_argument("--workers", type=int, default=None)
    arguments = parser.parse_args()
    if arguments.verb == "truth":
        measure_truth(RoadNetwork.load(arguments.network), arguments.trips)
    else:
        measure_speed(arguments.trips, arguments.network, arguments.workers)


def measure_speed(trips: Path, network: Path, workers: int | None) -> None:
    """Print time and memory of preparing a file."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        start = time.perf_counter()
        print(prepare_dataset(trips, network, Path(folder) / "dataset", CONFIG, workers=workers, show_progress=True))
        peak = resource.getrusage(resource.RUSAGE_SELF)
        used = f"{time.perf_counter() - start:.0f} s, {peak.ru_utime + peak.ru_stime:.0f} s of processor"
        print(f"{used}, peak memory {peak.ru_maxrss / 1e6:.2f} GB")


def measure_truth(network: RoadNetwork, trips: int) -> None:
    """Print how many steps and how much of the routes are right, by noise."""
    fine = simulate_trips(network, trips=trips, step_s=1, seed=11)
    second = np.arange(fine.n_fixes) - np.repeat(fine.offsets[:-1], fine.lengths)
    fine = fine.keep_fixes(second <= np.repeat((fine.lengths - 1) // STEP_S * STEP_S, fine.lengths))
    true_routes = [
        whole_route(network, np.asarray(fine.segment)[a:b]) for a, b in itertools.pairwise(fine.offsets.tolist())
    ]
    second = np.arange(fine.n_fixes) - np.repeat(fine.offsets[:-1], fine.lengths)
    exact = fine.keep_fixes(second % STEP_S == 0)
    print(f"{trips} trips, {exact.n_fixes} fixes, {STEP_S} s apart")
    print("noise   step accuracy: projected  prepared  known    route recall  precision")
    rng = np.random.default_rng(5)
    for noise_m in (3.0, 5.0, 10.0):
        x, y = network.plane.to_xy(*network.point_at(exact.segment, exact.ratio))
        lon, lat = network.plane.to_lonlat(x + rng.normal(0, noise_m, len(x)), y + rng.normal(0, noise_m, len(y)))
        noisy = exact.replace(lon=lon, lat=lat, segment=None, ratio=None)
        found, kept = prepared_segments(network, noisy)
        right = found == exact.segment
        projected = project(network, noisy, true_routes) == exact.segment
        recall, precision = compare_routes(network, noisy, true_routes)
        steps = f"{projected[kept].mean():25.4f} {right[kept].mean():9.4f} {(found[kept] >= 0).mean():6.3f}"
        print(f"{noise_m:4.0f} m {steps}{recall:16.4f} {precision:10.4f}")


def prepared_segments(network: RoadNetwork, trips: Trips) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Return the segment that prepare gives each fix, and which fixes are in the dataset at all."""
    with tempfile.TemporaryDirectory() as folder:
        write_trips(trips, Path(folder) / "trips.parquet")
        prepare_dataset(Path(folder) / "trips.parquet", network, Path(folder) / "dataset", CONFIG)
        dataset = Dataset(Path(folder) / "dataset")
        steps = concat_trips([dataset.split(name).trips() for name in SPLITS])
    number = {name: i for i, name in enumerate(trips.traj_id.tolist())}
    of_step = np.array([number[name.partition("#")[0]] for name in steps.traj_id.tolist()])[steps.trip_of_fix]
    row = trips.offsets[of_step] + (steps.time - trips.time[trips.offsets[of_step]]) // STEP_S
    found, kept = np.full(trips.n_fixes, -1, np.int32), np.zeros(trips.n_fixes, bool)
    found[row], kept[row] = np.asarray(steps.segment), True
    return found, kept


def whole_route(network: RoadNetwork, segments: NDArray[np.int32]) -> list[int]:
    """Return the segments driven, with those too short to be seen at one step a second."""
    seen = segments[np.concatenate([[True], segments[1:] != segments[:-1]])].tolist()
    route = seen[:1]
    for goal in seen[1:]:
        before = {route[-1]: -1}
        queue = deque([route[-1]])
        while queue and (goal not in before or goal == route[-1]):
            here = queue.popleft()
            for after in network.successors(here).tolist():
                if after not in before:
                    before[after] = here
                    queue.append(after)
        way = [goal]
        while before[way[-1]] >= 0:
            way.append(before[way[-1]])
        route += way[-2::-1]
    return route


def project(network: RoadNetwork, trips: Trips, true_routes: list[list[int]]) -> NDArray[np.int32]:
    """Return the segment of the true route that is nearest to each fix."""
    x, y = network.geom_xy
    at_x, at_y = network.plane.to_xy(trips.lon, trips.lat)
    nearest = np.empty(trips.n_fixes, np.int32)
    for trip, (a, b) in enumerate(itertools.pairwise(trips.offsets.tolist())):
        route = np.array(true_routes[trip])
        pieces = np.diff(network.geom_offset)[route] - 1
        i = ranges(network.geom_offset[route], pieces)
        dx, dy = x[i + 1] - x[i], y[i + 1] - y[i]
        px, py = at_x[a:b, None] - x[i], at_y[a:b, None] - y[i]
        share = np.clip((px * dx + py * dy) / np.maximum(dx**2 + dy**2, 1e-12), 0, 1)
        best = np.hypot(px - share * dx, py - share * dy).argmin(axis=1)
        nearest[a:b] = np.repeat(route, pieces)[best]
    return nearest


def compare_routes(network: RoadNetwork, trips: Trips, true_routes: list[list[int]]) -> tuple[float, float]:
    """Return recall and precision of the matched routes by length of segments."""
    matched = match(trips, network, CONFIG.match)
    both = true = found = 0.0
    for trip, route in enumerate(true_routes):
        pieces = range(matched.piece_offsets[trip], matched.piece_offsets[trip + 1])
        driven = {s for piece in pieces for s in matched.route(piece).tolist()}
        both += network.length_m[list(driven & set(route))].sum()
        true += network.length_m[list(set(route))].sum()
        found += network.length_m[list(driven)].sum()
    return both / true, both / found


if __name__ == "__main__":
    main()
