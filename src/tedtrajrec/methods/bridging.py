"""Gaps that a trip cannot be driven through by its choices, though the map has a way: they get the shortest one.

The choices of the steps inside a gap need not hold any way through it. Where they hold none, the way between the
positions at its two fixes is driven at constant speed. Where not even that fits into the time, other choices of fixes
are tried: of all ways from fix to fix, one of the fewest gaps without a way, and of these the most likely one. What
is broken then is a gap between whose likely positions the map has no way in the time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.resample import positions_on_tracks, tracks_along

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BREAK = 1e6  # far above what probabilities of a trip can add up to
CHOICES = 12  # positions of a fix that are tried
TOLERANCE_M = 0.5


class Fixes(NamedTuple):
    """The M observed steps of some trips, in order."""

    row: Ints  # [M] among all steps
    trip: Ints  # [M]


class Positions(NamedTuple):
    """Where steps may be; the most likely first."""

    segment: Ints  # [N, K] -1 where there is none
    ratio: Floats  # [N, K]
    likely: Floats  # [N, K] minus infinity for those that do not count


def bridge(
    router: Router, fixes: Fixes, positions: Positions, reach_m: float, segment: Ints, ratio: Floats, broken: Bools
) -> Bools:
    """Drive gaps that hold a break along the map where that is possible, and return which steps were changed [N].

    Parameters
    ----------
    router
        Over the metres of the network.
    fixes
        The observed steps; those of a trip are all its steps that count here.
    positions
        Choices of all steps; those of observed steps are looked at.
    reach_m
        Metres that can be driven in a step.
    segment, ratio, broken
        The trips as they are, and where they are broken [N]; changed in place.
    """
    before = segment.copy(), ratio.copy()
    left, right = _gaps(fixes)
    bad = _has_break(broken, left, right)
    bad &= (segment[left] >= 0) & (segment[right] >= 0)
    _drive(router, left[bad], right[bad], reach_m, segment, ratio, broken)

    bad = _has_break(broken, left, right)
    trips = np.unique(fixes.trip[:-1][np.diff(fixes.trip) == 0][bad])
    if len(trips):
        few = np.isin(fixes.trip, trips)
        _choose_again(router, Fixes(fixes.row[few], fixes.trip[few]), positions, reach_m, segment, ratio, broken)
    changed: Bools = (segment != before[0]) | (ratio != before[1])
    return changed


def _gaps(fixes: Fixes) -> tuple[Ints, Ints]:
    same = np.flatnonzero(np.diff(fixes.trip) == 0)
    return fixes.row[same], fixes.row[same + 1]


def _has_break(broken: Bools, left: Ints, right: Ints) -> Bools:
    """Return whether a move after ``left`` and up to ``right`` is broken."""
    count = np.cumsum(broken)
    found: Bools = count[right] > count[left]
    return found


def _drive(
    router: Router, left: Ints, right: Ints, reach_m: float, segment: Ints, ratio: Floats, broken: Bools
) -> None:
    """Fill gaps with the shortest way between their ends, where it fits into the time."""
    limit = reach_m * (right - left) + TOLERANCE_M
    routes = router.routes(segment[left], ratio[left], segment[right], ratio[right], limit_m=limit)
    fits = np.diff(routes.offsets) > 0
    ends = np.stack([left, right], axis=1).ravel()
    offsets = 2 * np.arange(len(left) + 1)
    joined = np.tile([False, True], len(left))
    tracks = tracks_along(offsets, ends.astype(np.float64), segment[ends].astype(np.int32), ratio[ends], joined, routes)
    inner = np.where(fits, right - left - 1, 0)
    rows = ranges(left + 1, inner)
    found, along = positions_on_tracks(router.network, tracks, np.append(0, np.cumsum(inner)), rows.astype(np.float64))
    segment[rows], ratio[rows] = found, along
    broken[ranges(left[fits] + 1, (right - left)[fits])] = False


def _choose_again(
    router: Router, fixes: Fixes, positions: Positions, reach_m: float, segment: Ints, ratio: Floats, broken: Bools
) -> None:
    """Choose positions of fixes anew, so that as many gaps as possible have a way, and drive those that changed."""
    order = np.argsort(-positions.likely[fixes.row], axis=1, kind="stable")[:, :CHOICES]
    some, at, likely = (np.take_along_axis(part[fixes.row], order, axis=1) for part in positions)
    exists = (some >= 0) & (likely > -np.inf)
    k = some.shape[1]
    gap = np.flatnonzero(np.diff(fixes.trip) == 0)
    steps = fixes.row[gap + 1] - fixes.row[gap]
    g, a, b = np.nonzero(exists[gap][:, :, None] & exists[gap + 1][:, None, :])
    limit = reach_m * steps[g] + TOLERANCE_M
    way = np.full((len(gap), k, k), np.inf)
    first, second = (gap[g], a), (gap[g] + 1, b)
    way[g, a, b] = router.distances(some[first], at[first], some[second], at[second], limit_m=limit)
    score = np.where(exists, likely, -2 * BREAK)
    best = _best_chain(score, np.isfinite(way), gap, len(fixes.row))

    every = np.arange(len(best))
    row = fixes.row
    new_segment, new_ratio = some[every, best], at[every, best]
    moved = exists[every, best] & ((segment[row] != new_segment) | (ratio[row] != new_ratio))
    segment[row[moved]], ratio[row[moved]] = new_segment[moved], new_ratio[moved]
    redrive = moved[gap] | moved[gap + 1] | _has_break(broken, row[gap], row[gap + 1])
    broken[ranges(row[gap[redrive]] + 1, steps[redrive])] = False
    left, right = row[gap[redrive]], row[gap[redrive] + 1]
    known = (segment[left] >= 0) & (segment[right] >= 0)
    _drive(router, left[known], right[known], reach_m, segment, ratio, broken)
    _mark(router, left, right, reach_m, segment, ratio, broken)


def _best_chain(score: Floats, joined: Bools, gap: Ints, n: int) -> Ints:
    """Return the choice of each fix: of the paths with the fewest gaps that are not joined the most likely one."""
    into = np.full(n, -1)
    into[gap + 1] = np.arange(len(gap))
    total, come = score.copy(), np.zeros(score.shape, np.int64)
    for i in range(n):
        if into[i] >= 0:
            ways = total[i - 1][:, None] - np.where(joined[into[i]], 0.0, BREAK)
            come[i] = ways.argmax(axis=0)
            total[i] += ways.max(axis=0)
    best: Ints = total.argmax(axis=1)
    for i in range(n - 1, 0, -1):
        if into[i] >= 0:
            best[i - 1] = come[i, best[i]]
    return best


def _mark(router: Router, left: Ints, right: Ints, reach_m: float, segment: Ints, ratio: Floats, broken: Bools) -> None:
    """Mark the moves of gaps that cannot be driven."""
    after = ranges(left + 1, right - left)
    after = after[(segment[after] >= 0) & (segment[after - 1] >= 0)]
    here = segment[after - 1], ratio[after - 1]
    way = router.distances(*here, segment[after], ratio[after], limit_m=reach_m + TOLERANCE_M)
    broken[after] = np.isinf(way)
