"""Breaks that the choices of a trip leave, though the map has a way: they are driven around.

The choices of the steps of a gap, from one fix to the next, need not hold any way through it. Where they hold none,
the way around a break is the shortest one between two steps of the gap, before it and after it, that are as near to
each other as the time to drive it allows; it is driven at constant speed, and all other steps stay where they are.
Where not even the way from fix to fix fits into the time, other positions of fixes are tried: of all that leave the
fewest gaps without a way those that move the fewest fixes, and of these the most likely ones. What is broken then is a
gap between whose likely positions the map has no way in the time.
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

STAY = 1e4  # far above what probabilities of a trip can add up to
BREAK = 1e8  # far above what the fixes of a trip that stay can
CHOICES = 12  # positions of a fix that are tried
TOLERANCE_M = 0.5


class Fixes(NamedTuple):
    """The M observed steps of some trips, in order."""

    row: Ints  # [M] among all steps
    trip: Ints  # [M]


class Positions(NamedTuple):
    """Where steps may be; the most likely first, and each segment once."""

    segment: Ints  # [N, K] -1 where there is none
    ratio: Floats  # [N, K]
    likely: Floats  # [N, K] minus infinity for those that do not count


def bridge(
    router: Router, fixes: Fixes, positions: Positions, reach_m: float, segment: Ints, ratio: Floats, broken: Bools
) -> Bools:
    """Drive around breaks where the map has a way, and return which steps were changed [N].

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
    _mend(router, left[bad], right[bad], reach_m, segment, ratio, broken)

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


def _mend(router: Router, left: Ints, right: Ints, reach_m: float, segment: Ints, ratio: Floats, broken: Bools) -> None:
    """Drive around the breaks of gaps with as few steps changed as possible; those without a way stay."""
    while True:
        some = _has_break(broken, left, right)
        left, right = left[some], right[some]
        if not len(left):
            return
        count = np.cumsum(broken)
        at = np.searchsorted(count, count[left] + 1)  # the first break of each gap is the move to this step
        ends = right - at + 1
        pairs = (at - left) * ends
        gap = np.repeat(np.arange(len(left)), pairs)
        pair = ranges(np.zeros(len(left), np.int64), pairs)
        a, b = left[gap] + pair // ends[gap], at[gap] + pair % ends[gap]
        known = (segment[a] >= 0) & (segment[b] >= 0)
        gap, a, b = gap[known], a[known], b[known]
        way = router.distances(segment[a], ratio[a], segment[b], ratio[b], limit_m=reach_m * (b - a) + TOLERANCE_M)
        order = np.lexsort([way, b - a, np.isinf(way), gap])  # a gap's ends are known, so every gap has a pair
        best = order[np.searchsorted(gap[order], np.arange(len(left)))]
        has_way = np.isfinite(way[best])
        best, left, right = best[has_way], left[has_way], right[has_way]
        _drive(router, a[best], b[best], reach_m, segment, ratio, broken)


def _drive(
    router: Router, left: Ints, right: Ints, reach_m: float, segment: Ints, ratio: Floats, broken: Bools
) -> None:
    """Fill the steps between two with the shortest way between them, where it fits into the time."""
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
    """Choose positions of fixes anew, so that as many gaps as possible have a way, and mend the gaps beside them."""
    row = fixes.row
    stays = (positions.segment[row] == segment[row][:, None]) & (positions.segment[row] >= 0)
    value = np.where(stays, STAY, positions.likely[row])
    order = np.argsort(-value, axis=1, kind="stable")[:, :CHOICES]
    choices = (positions.segment[row], np.where(stays, ratio[row][:, None], positions.ratio[row]), value)
    some, at, value = (np.take_along_axis(part, order, axis=1) for part in choices)
    exists = (some >= 0) & (value > -np.inf)
    k = some.shape[1]
    gap = np.flatnonzero(np.diff(fixes.trip) == 0)
    g, a, b = np.nonzero(exists[gap][:, :, None] & exists[gap + 1][:, None, :])
    limit = reach_m * (row[gap + 1] - row[gap])[g] + TOLERANCE_M
    way = np.full((len(gap), k, k), np.inf)
    first, second = (gap[g], a), (gap[g] + 1, b)
    way[g, a, b] = router.distances(some[first], at[first], some[second], at[second], limit_m=limit)
    best = _best_chain(np.where(exists, value, -2 * BREAK), np.isfinite(way), gap, len(row))

    chosen = np.arange(len(best)), best
    moved = exists[chosen] & (value[chosen] != STAY)
    segment[row[moved]], ratio[row[moved]] = some[chosen][moved], at[chosen][moved]
    beside = gap[moved[gap] | moved[gap + 1] | _has_break(broken, row[gap], row[gap + 1])]
    left, right = row[beside], row[beside + 1]
    _mark(router, left, right, reach_m, segment, ratio, broken)
    known = (segment[left] >= 0) & (segment[right] >= 0)
    _mend(router, left[known], right[known], reach_m, segment, ratio, broken)


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
    """Say of every move of gaps whether it cannot be driven."""
    after = ranges(left + 1, right - left)
    after = after[(segment[after] >= 0) & (segment[after - 1] >= 0)]
    here = segment[after - 1], ratio[after - 1]
    way = router.distances(*here, segment[after], ratio[after], limit_m=reach_m + TOLERANCE_M)
    broken[after] = np.isinf(way)
