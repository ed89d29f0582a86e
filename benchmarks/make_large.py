"""A dataset of the size of the paper's Shanghai-L: a made-up city of 35,000 segments, trips with steps of 10 s.

    python benchmarks/make_large.py -o large/ [--trips 20000]

Writes ``network.npz``, ``trips.parquet``, the prepared ``dataset/`` and ``shanghai-like.pack``, small enough to
send to another machine, and prints what each stage took. A stage whose output is there is not run again, so that the
same command goes on after an interrupt. Truth is exact: segments and ratios are those that were driven.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path

from tedtrajrec.data.dataset import SPLITS, Dataset
from tedtrajrec.data.pack import pack_dataset
from tedtrajrec.data.prepare import PrepareConfig, TruthConfig, prepare_dataset
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.stages import simulate_file

CITY = CityConfig(radius_m=13_200.0, block_m=218.0, river_m=400.0, radials=11)
SETTINGS = Path(__file__).parents[1] / "configs" / "shanghai-like.toml"
STEP_S = 10
PREPARE = PrepareConfig(step_s=STEP_S, time_zone="Asia/Shanghai", truth=TruthConfig(source="given"))


def make_large(folder: Path, trips: int) -> Dataset:
    """Make the dataset, or what is missing of it, and return it."""
    network, raw, dataset, packed = (
        folder / name for name in ("network.npz", "trips.parquet", "dataset", "shanghai-like.pack")
    )
    folder.mkdir(parents=True, exist_ok=True)
    _stage(network, lambda: synthetic_city(seed=0, config=CITY).save(network))
    _stage(raw, lambda: simulate_file(network, raw, trips=trips, step_s=STEP_S, seed=1, config=SETTINGS))
    _stage(dataset, lambda: prepare_dataset(raw, network, dataset, PREPARE))
    prepared = Dataset(dataset)
    _stage(packed, lambda: pack_dataset(prepared, packed))
    return prepared


def _stage(output: Path, work: Callable[[], object]) -> None:
    if output.exists():
        print(f"{output.name}: there already")
        return
    wall, before = time.perf_counter(), _processor_s()
    said = work()
    took = f"{time.perf_counter() - wall:.0f} s, {_processor_s() - before:.0f} s of processor"
    files = [output] if output.is_file() else [path for path in output.rglob("*") if path.is_file()]
    size = f"{sum(path.stat().st_size for path in files) / 1e6:.1f} MB"
    print(f"{output.name}: {took}, {size}" + (f"; {said}" if said else ""), flush=True)


def _processor_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Make it and print what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for all files")
    parser.add_argument("--trips", type=int, default=20_000, help="to simulate")
    arguments = parser.parse_args()
    dataset = make_large(arguments.output, arguments.trips)
    network = dataset.network
    west, south, east, north = network.bbox
    x, y = network.plane.to_xy([west, east], [south, north])
    print(f"{network.n_segments:,} segments, {(x[1] - x[0]) / 1e3:.1f} x {(y[1] - y[0]) / 1e3:.1f} km")
    for name in SPLITS:
        split = dataset.split(name)
        print(f"{name}: {len(split):,} trips, {split.n_steps:,} steps, {split.n_steps / len(split):.1f} a trip")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


if __name__ == "__main__":
    main()
