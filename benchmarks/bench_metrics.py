"""Metrics of 30,000 recovered Porto trips: median of five runs, beside plain loops timed in the same run.

    python benchmarks/bench_metrics.py [network source] [--trips 30000]

Trips are simulated and thinned to 1/8. Predicted is the segment nearest to the straight line between observed fixes: a
poor method, with many wrong steps far from the truth. The reference of the sequences is a loop in Python over trips.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from tedtrajrec.data.sampling import thin_mask, trip_keys
from tedtrajrec.evaluation.drivable import check_drives
from tedtrajrec.evaluation.metrics import evaluate_trips, gaps_without_route
from tedtrajrec.evaluation.summary import compare, summarise
from tedtrajrec.methods.placing import place
from tedtrajrec.network.build import build_network
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.routing import Router
from tedtrajrec.trips import sequences
from tedtrajrec.trips.simulate import simulate_trips
from timing import median_s

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))
LOOP_TRIPS = 300  # the reference loop is timed on some and scaled


def common_in_python(a: list[int], b: list[int]) -> int:
    """Return the length of the longest common subsequence by the textbook recurrence."""
    row = [0] * (len(b) + 1)
    for x in a:
        before = row
        row = [0]
        for k, y in enumerate(b):
            row.append(before[k] + 1 if x == y else max(before[k + 1], row[k]))
    return row[-1]


def main() -> None:
    """Print seconds and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", default=DATA / "porto" / "porto.osm.pbf")
    parser.add_argument("--trips", type=int, default=30_000)
    arguments = parser.parse_args()

    network = build_network(arguments.network)
    trips = simulate_trips(network, trips=arguments.trips, seed=1)
    assert trips.segment is not None
    assert trips.ratio is not None
    observed = thin_mask(trips.offsets, "1/8", seed=0, trip_key=trip_keys(trips.traj_id))
    clock = trips.time - trips.time[trips.offsets[:-1]].repeat(trips.lengths) + 1_000_000 * trips.trip_of_fix
    lon = np.interp(clock, clock[observed], trips.lon[observed])
    lat = np.interp(clock, clock[observed], trips.lat[observed])
    nearest = CandidateFinder(network).nearest(lon, lat)
    truth, true_ratio, segment, ratio = trips.segment, trips.ratio, nearest.segment.astype(np.int32), nearest.ratio
    steps = (trips.offsets, truth, true_ratio, segment, ratio)
    router = Router(network)

    metrics = evaluate_trips(router, *steps, observed=observed)
    summary = summarise(metrics)
    print(f"{network}\n{len(trips)} trips, {trips.n_fixes} steps, {observed.sum()} observed")
    print(", ".join(f"{name} {summary[name]:.3f}" for name in ("accuracy", "f1", "mae_m", "rmse_m", "capped_share")))

    total = median_s(lambda: evaluate_trips(router, *steps, observed=observed))
    one = median_s(lambda: evaluate_trips(router, *steps, observed=observed, workers=1))
    print(f"evaluate_trips       {total:7.2f} s with all cores, {one:.2f} s with one thread")
    apart = median_s(lambda: router.both_ways(segment, ratio, truth, true_ratio))
    print(f"  network distances  {apart:7.2f} s")
    gaps = median_s(lambda: gaps_without_route(router, trips.offsets, truth, observed))
    print(f"  gaps without route {gaps:7.2f} s")

    fixes = {"fix_lon": trips.lon, "fix_lat": trips.lat, "observed": observed}
    drives = median_s(lambda: check_drives(router, trips.offsets, segment, ratio, step_s=15, **fixes))
    true_drives = median_s(lambda: check_drives(router, trips.offsets, truth, true_ratio, step_s=15, **fixes))
    print(f"check_drives         {drives:7.2f} s, of the truth {true_drives:.2f} s")
    rough = np.clip(true_ratio + np.random.default_rng(0).normal(0, 0.2, len(truth)), 0, 1)
    placing = median_s(lambda: place(router, trips.offsets, truth, rough, step_s=15))
    print(f"place, rough truth   {placing:7.2f} s, {1e3 * placing / len(trips):.3f} ms a trip")

    everything = np.ones(len(truth), bool)
    a, b = sequences.collapse(trips.offsets, truth, everything), sequences.collapse(trips.offsets, segment, everything)
    compiled = median_s(lambda: sequences.common_subsequence(*a, *b))
    some = min(LOOP_TRIPS, len(trips))
    rows = [[part[1][part[0][i] : part[0][i + 1]].tolist() for i in range(some)] for part in (a, b)]
    loop = median_s(lambda: [common_in_python(x, y) for x, y in zip(*rows, strict=True)]) * len(trips) / some
    print(f"  subsequences       {compiled:7.3f} s, {loop / compiled:.0f} times as fast as a loop in Python")
    print(f"compare              {median_s(lambda: compare(metrics, metrics)):7.2f} s with 2,000 resamples")


if __name__ == "__main__":
    main()
