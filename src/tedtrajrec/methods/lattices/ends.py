"""The two ends of a gap: where each fix may be, and how the map leads from one to the next."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.methods.past.passed import Ends
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.reach import Gaps, Reached
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

NOISE_M = 10.0  # of fixes, across the road
EXTRA_S = 3.0  # that an end pays for each nat it is less likely than the nearest
FARTHEST = 8.0  # nats; what is less likely is no end of a way
QUICK_S = 5.0  # a way that takes less is as good as this one
FIT = 0.5  # spread of the logarithm of a way's time over that of the gap


def find_ends(finder: CandidateFinder, fixes: Trips, radius_m: float, most: int, workers: int | None) -> Ends:
    """Return the candidates of the fixes, still without routes.

    Parameters
    ----------
    finder
        Finds segments around fixes.
    fixes
        The observed fixes of trips.
    radius_m, most
        Candidates lie within this distance, the nearest ones and at most so many; the very nearest counts however far
        it is.
    workers
        Number of threads; all processors if not given.
    """
    found = finder.within(fixes.lon, fixes.lat, radius_m, most=most, workers=workers)
    offset, segment, ratio, distance = found.offsets, found.segment, found.ratio, found.distance_m
    lost = np.flatnonzero(np.diff(offset) == 0)
    if len(lost):
        near = finder.nearest(fixes.lon[lost], fixes.lat[lost], workers=workers)
        at = offset[lost]
        segment, ratio = np.insert(segment, at, near.segment), np.insert(ratio, at, near.ratio)
        distance = np.insert(distance, at, near.distance_m)
        offset = offset + np.concatenate([[0], np.cumsum(np.diff(offset) == 0)])
    fix = np.repeat(np.arange(fixes.n_fixes), np.diff(offset))
    nats = (distance**2 - distance[offset[:-1]][fix] ** 2) / (2 * NOISE_M**2)
    weight = np.exp(-nats)
    weight /= np.bincount(fix, weight, fixes.n_fixes)[fix]
    none, poor = np.full(len(segment), -1), np.zeros(len(segment))
    return Ends(offset, segment, ratio, distance, nats, weight, none, poor)


def gaps_between(fixes: Trips, ends: Ends) -> tuple[Ints, Gaps]:
    """Return the fix at which each gap begins, and the gaps between the likely candidates of it and of the next."""
    first = np.flatnonzero(np.diff(fixes.trip_of_fix) == 0)
    fix = np.repeat(np.arange(fixes.n_fixes), np.diff(ends.offset))
    likely = np.bincount(fix[ends.nats <= FARTHEST], minlength=fixes.n_fixes)  # the nearest ones, so they come first

    def side(which: Ints) -> tuple[Ints, Segments, Floats, Floats]:
        rows = ranges(ends.offset[which], likely[which])
        offset = np.concatenate([[0], np.cumsum(likely[which])])
        return offset, ends.segment[rows], ends.ratio[rows], EXTRA_S * ends.nats[rows]

    seconds = np.maximum(fixes.time[first + 1] - fixes.time[first], 1).astype(np.float64)
    return first, Gaps(seconds, *side(first), *side(first + 1))


def with_routes(ends: Ends, cost: Floats, first: Ints, seconds: Floats, reached: Reached) -> Ends:
    """Return the candidates with the map's best route to each from the fix before.

    Parameters
    ----------
    ends
        The candidates.
    cost
        Seconds that each segment takes.
    first, seconds
        The fix at which each gap begins, and its time.
    reached
        What was found between the candidates of :func:`gaps_between`.
    """
    ends = ends._replace(route=ends.route.copy(), fit=ends.fit.copy())
    _find_routes(ends, cost, first, seconds, reached)
    return ends


@njit(cache=True, nogil=True)
def _find_routes(
    ends: Ends, cost: Floats, first: Ints, seconds: Floats, reached: Reached
) -> None:  # pragma: no cover  (compiled)
    for g in range(len(first)):
        for k in range(ends.offset[first[g] + 1], ends.offset[first[g] + 2]):
            e = ends.segment[k]
            for r in range(reached.offset[g], reached.offset[g + 1]):
                if reached.segment[r] == e and reached.reached[r] & 1:
                    a = ends.offset[first[g]] + reached.from_a[r]
                    took = reached.before_s[r] - EXTRA_S * ends.nats[a] + ends.ratio[k] * cost[e]
                    off = np.log(max(took, QUICK_S) / seconds[g]) / FIT
                    ends.route[k], ends.fit[k] = a, np.exp(-0.5 * off * off)
                    break
