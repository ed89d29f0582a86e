"""Which trip a case study draws, and where methods differ on it.

The rule. A trip takes part if it has at least as many steps as half of all test trips, its truth is known at every step
and can be driven on this map, and all methods answer at every step and are on its true route at every fix: they know
where it went by, and differ in what they recover between. Of these, the trip is drawn on which methods differ
most: the share of steps, in the mean over pairs of methods, at which one is on the true route and the other is not. Of
equal trips it is the one of more steps, then the one whose id comes first. So nobody picks it. It is a trip on which
methods differ, not a typical one.

Areas are stretches between two fixes at which some methods are on the true route and others are not.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.drivable import check_drives
from tedtrajrec.evaluation.run import truth_of
from tedtrajrec.experiments.trips import CellTrips
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_AREAS = 4


class Area(NamedTuple):
    """A stretch of a trip on which methods differ."""

    letter: str
    first: int  # step
    last: int  # step, the last of them

    @property
    def steps(self) -> slice:
        """Its steps among those of the trip."""
        return slice(self.first, self.last + 1)


@dataclass(frozen=True, eq=False)
class Case:
    """One trip of n steps with the answers of M methods."""

    trip: Trips  # with the truth
    observed: Mask  # [n]
    step_s: int
    methods: tuple[str, ...]
    segment: NDArray[np.int32]  # [M, n]
    ratio: Floats  # [M, n]
    right: Mask  # [M, n] on the true segment
    on_route: Mask  # [M, n] on the true route, if perhaps too early or too late
    accuracy: Floats  # [M] on all test trips
    areas: tuple[Area, ...]


class Ranking(NamedTuple):
    """The trips that take part."""

    order: Ints  # [K] numbers of trips, the one to be drawn first
    difference: Floats  # [T] of all trips
    on_route: Mask  # [M, N] which answers are on the true routes


def rank_trips(dataset: Dataset, trips: Trips, cells: Mapping[str, CellTrips]) -> Ranking:
    """Return the trips that take part in the order of the rule.

    Parameters
    ----------
    dataset
        Whose network the trips are on.
    trips
        All test trips, with their truth.
    cells
        What each method recovered of them from the same fixes.
    """
    router, observed = Router(dataset.network), next(iter(cells.values())).observed
    drives = check_drives(
        router,
        trips.offsets,
        *truth_of(trips),
        step_s=dataset.info.step_s,
        fix_lon=trips.lon,
        fix_lat=trips.lat,
        observed=observed,
    )
    segment = np.stack([cell.segment for cell in cells.values()])
    on_route = on_true_routes(router, trips, segment)
    lost_at = (segment < 0).any(axis=0) | (observed & ~on_route.all(axis=0))
    lost = np.bincount(trips.trip_of_fix[lost_at], minlength=len(trips)) > 0
    fit = np.flatnonzero((trips.lengths >= np.median(trips.lengths)) & drives.drivable_120kmh & ~lost)
    share = on_route.mean(axis=0)
    of_pairs = 2 * share * (1 - share) * len(cells) / (len(cells) - 1)
    difference = (np.bincount(trips.trip_of_fix, of_pairs, len(trips)) / trips.lengths).round(9)  # equal ones stay so
    place = np.unique(np.array(trips.traj_id.tolist(), np.str_), return_inverse=True)[1]
    return Ranking(fit[np.lexsort([place[fit], -trips.lengths[fit], -difference[fit]])], difference, on_route)


def on_true_routes(router: Router, trips: Trips, segment: NDArray[np.int32]) -> Mask:
    """Return which answers [M, N] are on a segment that the trip of their step drives on; -1 never is."""
    true, ratio = truth_of(trips)
    start = np.flatnonzero((np.diff(trips.trip_of_fix) == 0) & (true[:-1] >= 0) & (true[1:] >= 0))
    routes = router.routes(true[start], ratio[start], true[start + 1], ratio[start + 1])
    n = router.network.n_segments
    of_route = np.repeat(trips.trip_of_fix[start], np.diff(routes.offsets)) * n + routes.segment
    known = np.flatnonzero(true >= 0)
    driven = np.union1d(of_route, trips.trip_of_fix[known] * n + true[known])
    on: Mask = np.isin(trips.trip_of_fix * n + segment, driven) & (segment >= 0)
    return on


def areas_of(on_route: Mask, observed: Mask) -> tuple[Area, ...]:
    """Return the areas of one trip in the order of its steps.

    Of many, those are kept in which most answers are off the route; of equal ones the first.

    Parameters
    ----------
    on_route
        Which answers are on the true route [M, n].
    observed
        Which steps were given [n].
    """
    differ = np.flatnonzero(on_route.any(axis=0) & ~on_route.all(axis=0))
    gap = np.cumsum(observed)[differ]
    runs = [(int(steps[0]), int(steps[-1])) for number in np.unique(gap) if len(steps := differ[gap == number])]
    off = [-int((~on_route[:, first : last + 1]).sum()) for first, last in runs]
    kept = sorted(np.argsort(off, kind="stable")[:MOST_AREAS].tolist())
    return tuple(Area(string.ascii_uppercase[k], *runs[run]) for k, run in enumerate(kept))


def make_case(dataset: Dataset, trips: Trips, cells: Mapping[str, CellTrips], ranking: Ranking) -> Case:
    """Return the first trip of a ranking with what methods answered."""
    which = int(ranking.order[0])
    rows = slice(int(trips.offsets[which]), int(trips.offsets[which + 1]))
    trip = trips.select([which])
    observed = next(iter(cells.values())).observed[rows]
    segment = np.stack([cell.segment[rows] for cell in cells.values()])
    return Case(
        trip=trip,
        observed=observed,
        step_s=dataset.info.step_s,
        methods=tuple(cells),
        segment=segment,
        ratio=np.stack([cell.ratio[rows].astype(np.float64) for cell in cells.values()]),
        right=segment == truth_of(trip)[0],
        on_route=ranking.on_route[:, rows],
        accuracy=np.array([np.nanmean(cell.accuracy, dtype=np.float64) for cell in cells.values()]),
        areas=areas_of(ranking.on_route[:, rows], observed),
    )
