"""All LCSS and EDR distances between simulated trips of a made-up city: one row of JSON for each measure and size.

    python benchmarks/bench_similarity.py [--device cuda] [--trips 15000] [--workers 2]

``distances_s`` is the median time for all distances, block by block, none kept; ``neighbours_s`` that for the nearest
trip of each and all within 0.55 of it as well, ``clusters_s`` that of DBSCAN with 11 radii on these. The reference is
the textbook recurrence, compiled, on one thread, timed on 20,000 pairs of the same trips. On the CPU 2,000 of the trips
come first: time grows with the square of their number, and ``extrapolated_s`` is what that says of all.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.evaluation.clustering import EPS, cluster_trips
from tedtrajrec.evaluation.similarity import MEASURES, Measure, Sequences, distance_blocks, find_neighbours
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.training.loop import choose_device
from tedtrajrec.trips.sequences import common_subsequence
from tedtrajrec.trips.simulate import simulate_trips
from timing import median_s

PAIRS = 20_000  # of the reference
FEWER = 2_000


@njit(cache=True, nogil=True)
def edits_by_the_book(
    offsets_a: NDArray[np.int64], a: NDArray[np.int32], offsets_b: NDArray[np.int64], b: NDArray[np.int32]
) -> NDArray[np.int64]:
    """Return the edit distance of each pair of sequences, with one row of the table kept."""
    out = np.empty(len(offsets_a) - 1, np.int64)
    for i in range(len(out)):
        x, y = a[offsets_a[i] : offsets_a[i + 1]], b[offsets_b[i] : offsets_b[i + 1]]
        row = np.arange(len(y) + 1)
        for j in range(len(x)):
            diagonal = row[0]
            row[0] = j + 1
            for k in range(1, len(y) + 1):
                above = row[k]
                row[k] = min(diagonal + (x[j] != y[k - 1]), above + 1, row[k - 1] + 1)
                diagonal = above
        out[i] = row[-1]
    return out


def main() -> None:
    """Print rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--trips", type=int, default=15_000)
    parser.add_argument("--workers", type=int)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    network = synthetic_city(size="large")
    trips = simulate_trips(network, trips=arguments.trips, seed=1)
    for measure in MEASURES:
        smaller: dict[str, Any] | None = None
        sizes = {min(FEWER, len(trips)), len(trips)} if device.type == "cpu" else {len(trips)}
        for n in sorted(sizes):
            some = trips.select(np.linspace(0, len(trips) - 1, n).astype(int))
            row = measured(Sequences.of(some.offsets, some.segment), measure, device, arguments.workers)
            if smaller is not None:
                row["extrapolated_s"] = smaller["distances_s"] * (n / smaller["trips"]) ** 2
            smaller = row
            print(json.dumps(row | machine()), flush=True)


def measured(sequences: Sequences, measure: Measure, device: torch.device, workers: int | None) -> dict[str, Any]:
    """Return the figures of one measure."""
    n = len(sequences)
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

    def all_distances() -> None:
        for _, distances in distance_blocks(sequences, measure, device=device, workers=workers):
            del distances
        if device.type == "cuda":
            torch.cuda.synchronize()

    seconds = median_s(all_distances)
    device_mb = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else None
    found = find_neighbours(sequences, measure, radius=max(EPS), device=device, workers=workers)
    neighbours_s = median_s(
        lambda: find_neighbours(sequences, measure, radius=max(EPS), device=device, workers=workers)
    )
    start = time.perf_counter()
    labels = cluster_trips(found.graph)
    clusters_s = time.perf_counter() - start
    reference = reference_pairs_per_s(sequences, measure)
    return {
        "measure": measure,
        "device": str(device),
        "trips": n,
        "steps": len(sequences.values),
        "longest": int(sequences.lengths.max()),
        "segments": sequences.n_values,
        "workers": workers,
        "distances_s": seconds,
        "pairs_per_s": n * n / seconds,
        "reference_pairs_per_s": reference,
        "ratio": n * n / seconds / reference,
        "neighbours_s": neighbours_s,
        "share_within": found.graph.nnz / n**2,
        "clusters_s": clusters_s,
        "clusters": [int(label.max(initial=-1)) + 1 for label in labels],
        "host_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "host_mb_before": before_mb,
        "device_mb": device_mb,
    }


def reference_pairs_per_s(sequences: Sequences, measure: Measure) -> float:
    """Return how many pairs a second the textbook recurrence does on one thread."""
    first, second = (np.random.default_rng(k).integers(0, len(sequences), PAIRS) for k in (0, 1))
    pairs = (*picked(sequences, first), *picked(sequences, second))
    work = edits_by_the_book if measure == "edr" else common_subsequence
    work(*(array[:2] if array.dtype == np.int64 else array for array in pairs))  # compiles
    start = time.perf_counter()
    work(*pairs)
    return PAIRS / (time.perf_counter() - start)


def picked(sequences: Sequences, trips: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return offsets and values of some trips."""
    lengths = sequences.lengths[trips]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return offsets, sequences.values[ranges(sequences.offsets[trips], lengths)]


if __name__ == "__main__":
    main()
