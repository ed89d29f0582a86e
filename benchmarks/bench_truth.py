"""How good is the truth that the matcher makes: simulated trips, matched from noisy fixes, against the exact truth.

    python benchmarks/bench_truth.py [--network NETWORK] [--config FILE] [--trips 3000] [--noise 3 5 10]

Trips of the given simulation, a fix every 15 s. Every fix errs by a normal deviate of the given standard deviation
along each axis, independent of the others, and the matcher estimates the noise itself. Beside it stands what a matcher
that knew the route could reach: each fix is put on the nearest place of the true route within 4 deviations of the true
place. The true route is the shortest between positions 3 s apart of the same trips.
Recall and precision: metres of the true route that are matched, of the matched route that are true.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.config import load_config
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.match import Matched, Matcher
from tedtrajrec.trips.matching.routes import Lines, nearest_between
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.simulation.config import NoiseConfig, SimulationConfig
from tedtrajrec.trips.table import Trips

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))
CONFIG = Path(__file__).parents[1] / "configs" / "porto-sim.toml"
STEP_S = 15
FINE_S = 3  # between these the true route is the shortest
NEAR = 4.0  # deviations around the true place in which a fix is put on the true route

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


class TrueRoutes(NamedTuple):
    """The segments that the trips drove, in order, and where on them each fix was."""

    offsets: Ints  # [T+1]
    segment: Segments
    at: Ints  # [F] place of the fix's segment in ``segment``


def true_routes(network: RoadNetwork, trips: Trips, every: int = 1) -> TrueRoutes:
    """Return the routes between the true positions of consecutive fixes, the shortest ones.

    Parameters
    ----------
    trips
        Simulated trips, which never move backwards on a segment.
    every
        Only every so many fixes of each trip count as fixes; the others only tell the route.
    """
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips have no true positions")
    segment, ratio = trips.segment, trips.ratio
    starts = np.zeros(trips.n_fixes, bool)
    starts[trips.offsets[:-1]] = True
    later = np.flatnonzero(~starts)
    legs = Router(network).routes(segment[later - 1], ratio[later - 1], segment[later], ratio[later])
    # A leg begins with the segment that the one before ended with.
    length = np.ones(trips.n_fixes, np.int64)
    length[later] = np.diff(legs.offsets) - 1
    first = np.zeros(len(legs.segment), bool)
    first[legs.offsets[:-1]] = True
    whole = np.empty(int(length.sum()), np.int32)
    ends = np.cumsum(length)
    is_start = np.zeros(len(whole), bool)
    is_start[ends[trips.offsets[:-1]] - 1] = True
    whole[is_start] = segment[trips.offsets[:-1]]
    whole[~is_start] = legs.segment[~first]
    counted = (np.arange(trips.n_fixes) - trips.offsets[trips.trip_of_fix]) % every == 0
    return TrueRoutes(np.concatenate([[0], ends[trips.offsets[1:] - 1]]), whole, ends[counted] - 1)


@njit(cache=True, nogil=True)
def _project(
    lines: Lines,
    routes: TrueRoutes,
    trip_offsets: Ints,
    along: Floats,
    x: Floats,
    y: Floats,
    near: float,
) -> Segments:  # pragma: no cover  (compiled)
    """Return the segment of the place on the true route nearest to each fix, within ``near`` metres of the true one."""
    out = np.empty(len(x), np.int32)
    for trip in range(len(trip_offsets) - 1):
        for i in range(trip_offsets[trip], trip_offsets[trip + 1]):
            best2 = np.inf
            for step in (-1, 1):  # backwards from the true place, then onwards
                k, left = routes.at[i], near
                here = along[i]
                while routes.offsets[trip] <= k < routes.offsets[trip + 1] and left > 0.0:
                    segment = routes.segment[k]
                    if step < 0:
                        low, high = max(here - left, 0.0), here
                    else:
                        low, high = here, min(here + left, lines.along[lines.offset[segment + 1] - 1])
                    distance2, _ = nearest_between(lines, segment, low, high, x[i], y[i])
                    if distance2 < best2:
                        best2, out[i] = distance2, segment
                    left -= high - low
                    k += step
                    if routes.offsets[trip] <= k < routes.offsets[trip + 1]:
                        here = lines.along[lines.offset[routes.segment[k] + 1] - 1] if step < 0 else 0.0
    return out


def on_true_route(network: RoadNetwork, trips: Trips, routes: TrueRoutes, near_m: float) -> Segments:
    """Return the segment of each fix if it is put on the nearest place of the true route."""
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips have no true positions")
    x, y = network.plane.to_xy(trips.lon, trips.lat)
    lines = Lines(network.geom_offset, *network.geom_xy, network.geom_along)
    along = trips.ratio * network.length_m[trips.segment]
    return _project(lines, routes, trips.offsets, along, x, y, near_m)


def route_overlap(network: RoadNetwork, routes: TrueRoutes, matched: Matched) -> tuple[float, float]:
    """Return recall and precision of the matched routes by metres; what is driven twice counts once."""
    driven = matched.route_offsets[matched.piece_offsets]
    true, found = (
        np.unique(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)) * len(network) + segment)
        for offsets, segment in ((routes.offsets, routes.segment), (driven, matched.route_segment))
    )
    both, of_true, of_found = (
        network.length_m[keys % len(network)].sum() for keys in (np.intersect1d(true, found), true, found)
    )
    return float(both / of_true), float(both / of_found)


def run_truth(network: RoadNetwork, config: SimulationConfig, n_trips: int, noises: list[float]) -> None:
    """Print one row for each noise."""
    matcher = Matcher(network)
    print("noise  step accuracy  true route given  difference  route recall  precision  breaks")
    every = STEP_S // FINE_S
    routes = None
    for noise in noises:
        white = NoiseConfig(drift_m=0.0, jitter_m=noise, sky_sigma=0.0, outlier_share=0.0)
        fine = simulate_trips(
            network, trips=n_trips, step_s=FINE_S, seed=1, config=dataclasses.replace(config, noise=white)
        )
        number = np.arange(fine.n_fixes) - fine.offsets[fine.trip_of_fix]
        trips = fine.keep_fixes(number % every == 0)
        if routes is None:  # the noise does not change the truth; what comes after the last fix does not count
            last = (fine.lengths - 1) // every * every
            routes = true_routes(network, fine.keep_fixes(number <= last[fine.trip_of_fix]), every)
        matched = matcher.match(trips)
        ours = np.mean(matched.segment == trips.segment)
        given = np.mean(on_true_route(network, trips, routes, NEAR * noise) == trips.segment)
        recall, precision = route_overlap(network, routes, matched)
        breaks = len(matched.piece_ends) - len(trips)
        print(
            f"{noise:4g} m  {ours:13.4f}  {given:16.4f}  {ours - given:+10.4f}  {recall:12.4f}  {precision:9.4f}"
            f"  {breaks:6}",
            flush=True,
        )


def main() -> None:
    """Run with the settings of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", type=Path, help="a network file; the Porto extract if not given")
    parser.add_argument("--config", type=Path, default=CONFIG)
    parser.add_argument("--trips", type=int, default=3000)
    parser.add_argument("--noise", type=float, nargs="*", default=[3.0, 5.0, 10.0])
    arguments = parser.parse_args()
    if arguments.network:
        network = RoadNetwork.load(arguments.network)
    else:
        network = RoadNetwork.from_osm(DATA / "porto" / "porto.osm.pbf")
    config = load_config(SimulationConfig, arguments.config)
    run_truth(network, config, arguments.trips, arguments.noise)


if __name__ == "__main__":
    main()
