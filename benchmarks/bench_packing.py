"""Bytes and seconds of packing a prepared dataset, beside its rounded arrays as byte planes through xz in the same run.

    python benchmarks/bench_packing.py DATASET

The rival rounds alike, takes segments and parts as they are and fixes as differences from the true place, splits each
array into planes of equal bytes and gives each plane to xz.
"""

from __future__ import annotations

import lzma
import resource
import sys
import tempfile
import time
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import SPLITS, Dataset
from tedtrajrec.data.pack import pack_dataset, unpack_dataset
from tedtrajrec.data.packing.positions import DEGREE, PART_M


def packed_sizes(path: Path) -> Counter[str]:
    """Return the bytes of each part of a packed dataset."""
    sizes: Counter[str] = Counter()
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            folder, _, part = member.filename.partition("/")
            sizes["network" if folder == "network" else part.split("/")[-1]] += member.compress_size
    del sizes[""]
    return sizes


def planes_through_xz(dataset: Dataset) -> Counter[str]:
    """Return the bytes of each array of the rival."""
    sizes: Counter[str] = Counter()
    network = dataset.network
    parts = np.ceil(network.length_m / PART_M)
    for trips in (trips for name in SPLITS for trips in dataset.split(name).shards()):
        known = trips.segment >= 0
        part = np.where(known, np.rint(np.nan_to_num(trips.ratio) * parts[trips.segment]), -1)
        lon, lat = network.point_at(np.maximum(trips.segment, 0), np.nan_to_num(part / parts[trips.segment]))
        arrays = {
            "segment": trips.segment,
            "part": part,
            "east": np.nan_to_num(np.rint((trips.lon - lon) * DEGREE), nan=-(1 << 30)),
            "north": np.nan_to_num(np.rint((trips.lat - lat) * DEGREE), nan=-(1 << 30)),
        }
        for name, array in arrays.items():
            for plane in array.astype("<i4").view(np.uint8).reshape(-1, 4).T:
                sizes[name] += len(lzma.compress(np.ascontiguousarray(plane).tobytes()))
    return sizes


def report(what: str, sizes: Counter[str], steps: int, seconds: float) -> None:
    """Print sizes in all and for each step."""
    print(
        f"{what}: {sum(sizes.values()) / 1e6:.2f} MB, {sum(sizes.values()) / steps:.3f} bytes a step, {seconds:.1f} s"
    )
    for name, size in sizes.items():
        print(f"  {name:<10}{size:>12,} bytes {size / steps:>8.3f} a step")


def main() -> None:
    """Pack, unpack, and compare."""
    dataset = Dataset(sys.argv[1])
    steps = sum(size.steps for size in dataset.info.splits.values())
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "packed"
        pack_dataset(dataset, file)  # compiles
        start = time.perf_counter()
        pack_dataset(dataset, file)
        report("packed", packed_sizes(file), steps, time.perf_counter() - start)
        unpack_dataset(file, Path(folder) / "warm")
        start = time.perf_counter()
        unpack_dataset(file, Path(folder) / "unpacked")
        print(f"unpacked in {time.perf_counter() - start:.1f} s")
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB")
    start = time.perf_counter()
    report("planes through xz", planes_through_xz(dataset), steps, time.perf_counter() - start)


if __name__ == "__main__":
    main()
