"""Look-up at scale: time and memory of its index, and trips recovered a second beside Route + HMM in the same run.

    python benchmarks/bench_lookup.py [network source] [--trips 105000] [--recover 1000]

Training trips are simulated with steps of 15 s; those to recover are others, thinned to 1/8. Recovery is the median of
five runs.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.lookup import Lookup, LookupConfig
from tedtrajrec.methods.past.history import make_history
from tedtrajrec.methods.route_hmm import RouteHmm
from tedtrajrec.network.build import build_network
from tedtrajrec.trips.simulate import simulate_trips
from timing import median_s

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))
STEP_S, ZONE = 15, "Europe/Lisbon"


def main() -> None:
    """Print seconds, megabytes and trips a second."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", default=DATA / "porto" / "porto.osm.pbf")
    parser.add_argument("--trips", type=int, default=105_000)
    parser.add_argument("--recover", type=int, default=1000)
    arguments = parser.parse_args()

    network = build_network(arguments.network)
    trips = simulate_trips(network, trips=arguments.trips + arguments.recover, step_s=STEP_S, seed=1)
    past, sought = np.split(np.random.default_rng(0).permutation(len(trips)), [arguments.trips])
    training, trips = trips.select(past), trips.select(sought)
    batch = make_batch(trips, draw_observed(trips, "1/8"), network, step_s=STEP_S, time_zone=ZONE)

    start = time.perf_counter()
    history = make_history(network, training, most_visits=LookupConfig.most_visits)
    seconds = time.perf_counter() - start
    size = sum(array.nbytes for array in history) / 1e6
    print(f"index of {training}: {seconds:.1f} s, {size:.0f} MB, {len(history.segment):,} pieces")

    lookup, route = Lookup(network), RouteHmm(network)
    with tempfile.TemporaryDirectory() as folder:
        splits = {"train": shards_of(training)}
        dataset = write_dataset(Path(folder) / "ds", network, splits, step_s=STEP_S, time_zone=ZONE)
        route.precompute(dataset)
        start = time.perf_counter()
        lookup.precompute(dataset)
        print(f"precompute, settings chosen: {time.perf_counter() - start:.1f} s")
    print(f"saved: {sum(array.nbytes for array in lookup.state().values()) / 1e6:.0f} MB")
    for method in (route, lookup):
        taken = median_s(lambda method=method: method.recover(batch))  # type: ignore[misc]
        print(f"{method.name}: {len(trips) / taken:,.0f} trips/s")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB, training trips included")


if __name__ == "__main__":
    main()
