"""Routing on the real Porto network: bounded queries per second, beside scipy on the same queries in the same run.

    python benchmarks/bench_routing.py [network source] [--queries 5000]

Sources are distinct random segments. Each target is drawn from all segments within the 3 km reach of its source, so
nearly all queries have an answer. Rates are the median of five runs.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from tedtrajrec.network.build import build_network
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from timing import median_s

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))
LIMIT_M = 3000.0
ROWS = 100  # scipy answers with dense rows: sources are given to it in chunks

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def segment_graph(network: RoadNetwork) -> csr_array:
    """Return scipy's graph: from the start of each segment to the starts of its successors."""
    source = np.repeat(np.arange(len(network)), np.diff(network.succ_offset))
    return csr_array((network.length_m[source], network.succ, network.succ_offset), shape=(len(network),) * 2)


def scipy_rows(graph: csr_array, sources: Ints, targets: Ints, limit: float) -> Floats:
    """Return for each source the distance to its own target [K] (or targets [K, B]), from start to start."""
    out = np.empty(targets.shape)
    for i in range(0, len(sources), ROWS):
        rows = dijkstra(graph, indices=sources[i : i + ROWS], limit=limit)
        part = targets[i : i + ROWS]
        out[i : i + ROWS] = np.take_along_axis(rows, part.reshape(len(part), -1), axis=1).reshape(part.shape)
    return out


def draw_queries(network: RoadNetwork, graph: csr_array, n: int, rng: np.random.Generator) -> tuple[Ints, ...]:
    """Draw distinct sources and, for each, one of the segments within its reach; both with random ratios."""
    seg_a = rng.choice(len(network), min(n, len(network)), replace=False)
    seg_b = np.empty_like(seg_a)
    for i in range(0, len(seg_a), ROWS):
        rows = np.isfinite(dijkstra(graph, indices=seg_a[i : i + ROWS], limit=LIMIT_M))
        seg_b[i : i + ROWS] = [rng.choice(np.flatnonzero(row)) for row in rows]
    return seg_a, rng.random(len(seg_a)), seg_b, rng.random(len(seg_a))


def draw_transitions(network: RoadNetwork, n: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw what a matcher asks: the eight segments about one fix, and about the next, some 300 m on [n, 8]."""
    x, y = network.plane.to_xy(*network.point_at(np.arange(len(network)), 0.5))
    tree = cKDTree(np.column_stack([x, y]))
    fix = tree.data[rng.integers(0, len(network), n)]
    following = fix + rng.normal(0, 220, (n, 2))
    return tree.query(fix, 8)[1], tree.query(following, 8)[1]


def position_queries(router: Router, graph: csr_array, n: int, rng: np.random.Generator) -> None:
    """Measure single queries of 3 km, with and without routes."""
    query = draw_queries(router.network, graph, n, rng)
    seg_a, ratio_a, seg_b, ratio_b = query
    n = len(seg_a)
    distance = router.distances(*query, limit_m=LIMIT_M)
    found = np.isfinite(distance)
    print(
        f"\n{n:,} position-to-position queries of {LIMIT_M / 1000:g} km, distinct sources; reachable {found.mean():.3f}"
    )
    print(f"  distance of those found: median {np.median(distance[found]):.0f} m, max {distance[found].max():.0f} m")
    rates = {}
    for what, ask in (("distances", router.distances), ("with routes", router.routes)):
        for workers in (1, 2):
            rates[what, workers] = n / median_s(lambda ask=ask, w=workers: ask(*query, limit_m=LIMIT_M, workers=w))
            print(f"  {what:<12} {workers} worker{'s' * (workers > 1):<2} {rates[what, workers]:>10,.0f} queries/s")
    few = min(n, 1000)
    rate = few / median_s(lambda: scipy_rows(graph, seg_a[:few], seg_b[:few], LIMIT_M))
    print(f"  scipy dijkstra(limit=), first {few:,} {rate:>5,.0f} queries/s (one core)")
    print(
        f"  ratio to scipy: {rates['distances', 1] / rate:.1f} with 1 worker, {rates['distances', 2] / rate:.1f} with 2"
    )
    theirs = scipy_rows(graph, seg_a[:few], seg_b[:few], LIMIT_M)
    length = router.network.length_m
    theirs += ratio_b[:few] * length[seg_b[:few]] - ratio_a[:few] * length[seg_a[:few]]
    both = found[:few] & np.isfinite(theirs) & (seg_a[:few] != seg_b[:few])
    print(
        f"  largest difference from scipy on {both.sum()} answers: {np.abs(theirs - distance[:few])[both].max():.1e} m"
    )


def matcher_queries(router: Router, graph: csr_array, n: int, rng: np.random.Generator) -> None:
    """Measure 8 x 8 matrices of 2 km, one call each and all in one call."""
    before, after = draw_transitions(router.network, n, rng)
    ratio = rng.random((2, n, 8))

    def one_by_one() -> None:
        for i in range(n):
            router.many_to_many(before[i], ratio[0, i], after[i], ratio[1, i], limit_m=2000.0, workers=1)

    pair = [np.repeat(before, 8, axis=1), np.repeat(ratio[0], 8, axis=1), np.tile(after, 8), np.tile(ratio[1], 8)]
    flat = [array.ravel() for array in pair]
    distance = router.distances(*flat, limit_m=2000.0)
    print(f"\n{n:,} transitions of 8 x 8 positions, 2 km; reachable {np.isfinite(distance).mean():.3f}")
    single = n / median_s(one_by_one)
    print(f"  many_to_many, one call each, 1 worker  {single:>9,.0f} matrices/s")
    for workers in (1, 2):
        rate = n / median_s(lambda w=workers: router.distances(*flat, limit_m=2000.0, workers=w))
        print(f"  distances, all in one call, {workers} worker{'s' * (workers > 1):<2} {rate:>9,.0f} matrices/s")
    few = min(n, 100)
    sources, targets = before[:few].ravel(), np.repeat(after[:few], 8, axis=0)
    rate = few / median_s(lambda: scipy_rows(graph, sources, targets, 2000.0))
    print(f"  scipy dijkstra(limit=), first {few}       {rate:>9,.0f} matrices/s (one core)")
    print(f"  ratio to scipy, one call each: {single / rate:.1f}")


def metric_queries(router: Router, n: int, rng: np.random.Generator) -> None:
    """Measure the error metric on predictions of which most are near the truth and some are far off."""
    network = router.network
    x, y = network.plane.to_xy(*network.point_at(np.arange(len(network)), 0.5))
    tree = cKDTree(np.column_stack([x, y]))
    truth = rng.integers(0, len(network), n)
    spread = np.array([0.0, 60.0, 1000.0])[rng.choice(3, n, p=[0.6, 0.3, 0.1])]
    guess = tree.query(tree.data[truth] + rng.normal(size=(n, 2)) * spread[:, None])[1]
    guess = np.where(spread > 0, guess, truth)
    pairs = truth, rng.random(n), guess, rng.random(n)
    capped = router.both_ways(*pairs)[1]
    print(f"\nboth_ways on {n:,} pairs of prediction and truth ({(truth == guess).mean():.2f} on one segment)")
    print(f"  capped {capped.mean():.4f}")
    for workers in (1, 2):
        rate = n / median_s(lambda w=workers: router.both_ways(*pairs, workers=w))
        print(f"  {workers} worker{'s' * (workers > 1):<2} {rate:>10,.0f} pairs/s")


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else None)
    parser.add_argument("source", nargs="?", default=str(DATA / "porto" / "porto.osm.pbf"))
    parser.add_argument("--queries", type=int, default=5000)
    arguments = parser.parse_args()
    network = build_network(arguments.source)
    print(
        f"{network}, {len(network.succ):,} successors; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at start"
    )
    router, graph, rng = Router(network), segment_graph(network), np.random.default_rng(1)
    position_queries(router, graph, arguments.queries, rng)
    matcher_queries(router, graph, 1000, rng)
    metric_queries(router, 100_000, rng)


if __name__ == "__main__":
    main()
