"""Cleaning and thinning 150,000 trips of 48 fixes: median of five runs, beside plain loops timed in the same run.

    python benchmarks/bench_cleaning.py [--trips 150000]

The reference of cleaning is one numpy pass over all steps (distance and speed, nothing dropped); that of thinning draws
``rng.choice`` trip by trip.
"""

from __future__ import annotations

import argparse

import numpy as np

from tedtrajrec.data.sampling import thin_mask, trip_keys
from tedtrajrec.network.geodesy import LocalPlane, short_distance_m
from tedtrajrec.trips.clean import clean_trips
from tedtrajrec.trips.table import Trips, as_text
from timing import median_s

FIXES = 48


def wander(n_trips: int) -> Trips:
    """Return random walks of 4 m/s with a fix every 15 s, of which one in 500 is 20 km astray."""
    rng = np.random.default_rng(1)
    x = np.cumsum(rng.normal(60, 80, (n_trips, FIXES)), axis=1)
    y = np.cumsum(rng.normal(0, 80, (n_trips, FIXES)), axis=1)
    x[rng.random(x.shape) < 0.002] += 20_000
    begin = 1_400_000_000 + rng.integers(0, 30 * 86_400, (n_trips, 1))
    lon, lat = LocalPlane(-8.62, 41.15).to_lonlat(x.ravel(), y.ravel())
    seconds = (begin + 15 * np.arange(FIXES)).ravel()
    return Trips(as_text(np.arange(n_trips)), np.arange(n_trips + 1) * FIXES, seconds, lon, lat)


def choose_one_by_one(trips: Trips) -> None:
    """Draw an eighth of the inner fixes of each trip in a Python loop."""
    rng = np.random.default_rng(0)
    for n in trips.lengths.tolist():
        rng.choice(n - 2, (n - 2) // 8, replace=False)


def measure_speeds(trips: Trips) -> None:
    """Measure the speed of every step in one pass."""
    step = short_distance_m(trips.lon[:-1], trips.lat[:-1], trips.lon[1:], trips.lat[1:])
    np.divide(step, np.maximum(np.diff(trips.time), 1))


def main() -> None:
    """Print rates and ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trips", type=int, default=150_000)
    trips = wander(parser.parse_args().trips)
    keys = trip_keys(trips.traj_id)

    clean, one_pass = median_s(lambda: clean_trips(trips)), median_s(lambda: measure_speeds(trips))
    print(
        f"clean_trips  {clean:7.3f} s  {trips.n_fixes / clean / 1e6:6.1f} M fixes/s  {clean / one_pass:.1f} x one pass"
    )
    loop = median_s(lambda: choose_one_by_one(trips))
    for rule in ("exact", "bernoulli", "uniform"):
        thin = median_s(lambda rule=rule: thin_mask(trips.offsets, "1/8", seed=1, trip_key=keys, rule=rule))
        print(
            f"thin_mask    {thin:7.3f} s  {trips.n_fixes / thin / 1e6:6.1f} M fixes/s  1/{loop / thin:.0f} loop  {rule}"
        )
    named = median_s(lambda: trip_keys(trips.traj_id))
    print(f"trip_keys    {named:7.3f} s  {len(trips) / named / 1e6:6.1f} M ids/s")


if __name__ == "__main__":
    main()
