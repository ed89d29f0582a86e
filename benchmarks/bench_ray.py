"""Stages on a Ray cluster of this machine against the same stages on its threads.

    python benchmarks/bench_ray.py NETWORK [--trips 4000] [--parts 8] [--processors 2] [--runs 3]

Simulates trips, writes them as Parquet parts, and matches, prepares and recovers (``route_hmm``) the parts: once with
all threads of one process, once on Ray with a task of one processor for each part. Prints the median of the runs, after
one that does not count, what starting and connecting to Ray costs, and how long an empty task takes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tedtrajrec.cluster.parts import match_parts, recover_parts
from tedtrajrec.cluster.pool import ray_pool
from tedtrajrec.data import prepare
from tedtrajrec.data.prepare import PrepareConfig, prepare_dataset
from tedtrajrec.data.sampling import thin_mask, trip_keys
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.threads import Over
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips


def write_parts(trips: Trips, folder: Path, parts: int) -> Path:
    """Write trips as so many Parquet files."""
    folder.mkdir()
    for number, which in enumerate(np.array_split(np.arange(len(trips)), parts)):
        write_trips(trips.select(which), folder / f"part-{number:03d}.parquet")
    return folder


def seconds(work: Callable[[Path], object], place: Path, runs: int) -> float:
    """Return the median time of a stage that makes a folder, which is removed again; the first run does not count."""
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        work(place)
        times.append(time.perf_counter() - start)
        shutil.rmtree(place)
    return statistics.median(times[1:])


def main() -> None:
    """Print a row for each stage."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("network", type=Path)
    parser.add_argument("--trips", type=int, default=4000)
    parser.add_argument("--parts", type=int, default=8)
    parser.add_argument("--processors", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    network = RoadNetwork.load(arguments.network)
    trips = simulate_trips(network, trips=arguments.trips, step_s=15, seed=1).replace(segment=None, ratio=None)
    sparse = trips.keep_fixes(thin_mask(trips.offsets, "1/8", seed=0, trip_key=trip_keys(trips.traj_id)))
    recoverer = Recoverer.from_network(network)
    config = PrepareConfig(time_zone="UTC")
    prepare.CHUNK_FIXES = -(-trips.n_fixes // arguments.parts)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        dense_parts = write_parts(trips, folder / "dense", arguments.parts)
        sparse_parts = write_parts(sparse, folder / "sparse", arguments.parts)

        def stages(over: Over) -> dict[str, tuple[int, Callable[[Path], object]]]:
            return {
                "match": (
                    trips.n_fixes,
                    lambda place: match_parts(dense_parts, place, network=arguments.network, over=over),
                ),
                "prepare": (
                    trips.n_fixes,
                    lambda place: prepare_dataset(dense_parts, network, place, config, over=over),
                ),
                "recover": (sparse.n_fixes, lambda place: recover_parts(sparse_parts, place, recoverer, over=over)),
            }

        here = {name: seconds(work, folder / "made", arguments.runs) for name, (_, work) in stages(map).items()}
        start = time.perf_counter()
        with ray_pool("local", processors=arguments.processors) as pool:
            list(pool.map(abs, range(arguments.processors)))
            begun = time.perf_counter() - start
            start = time.perf_counter()
            list(pool.map(abs, range(200)))
            empty = (time.perf_counter() - start) / 200
            there = {
                name: (fixes, seconds(work, folder / "made", arguments.runs))
                for name, (fixes, work) in stages(pool.map).items()
            }
    print(
        f"{len(trips):,} trips of {trips.n_fixes:,} fixes in {arguments.parts} parts, {network.n_segments:,} segments"
    )
    print(f"start of Ray with the first tasks {begun:.1f} s; an empty task {1000 * empty:.1f} ms")
    print(f"{'stage':<10}{'threads s':>11}{'Ray s':>9}{'Ray/threads':>13}{'fixes/s here':>14}{'on Ray':>10}")
    for name, (fixes, took) in there.items():
        rate = f"{fixes / here[name]:>14,.0f}{fixes / took:>10,.0f}"
        print(f"{name:<10}{here[name]:>11.2f}{took:>9.2f}{took / here[name]:>13.2f}{rate}")


if __name__ == "__main__":
    main()
