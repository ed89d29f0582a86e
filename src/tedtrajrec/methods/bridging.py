"""Breaks that the choices of a trip leave, though the map has a way: they are driven around.

The likely choices of the steps of a gap, from one fix to the next, need not hold any way through it. Where they hold
none, the way around a break is the shortest one between two steps of the gap, before it and after it, that are as near
to each other as the time to drive it allows; it is driven at constant speed, and all other steps stay where they are.
Where not even the way from fix to fix fits into the time, positions of fixes are chosen anew among all roads around
them, at a price for each gap that is left without a way (:mod:`tedtrajrec.methods.near_fixes`). With an infinite one,
what is broken then cannot be driven by any trip that passes the fixes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.near_fixes import Around, Fixes, choose_fixes
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.resample import positions_on_tracks, tracks_along

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE_M = 0.5  # more than where fixes are chosen, so that rounding makes nothing impossible


class Steps(NamedTuple):
    """Trips as they are, at N steps in all."""

    segment: Ints  # [N] -1 where there is none
    ratio: Floats  # [N]
    lowest: Floats  # [N] the stretch where a step must be, as ratios
    highest: Floats  # [N]
    broken: Bools  # [N] whether the move to the step cannot be driven


def bridge(
    router: Router, fixes: Fixes, around: Callable[[Ints], Around], reach_m: float, price: float, steps: Steps
) -> Bools:
    """Drive around breaks where the map has a way, change the steps in place, and return which were changed [N].

    Parameters
    ----------
    router
        Over the metres of the network.
    fixes
        The observed steps; those of a trip are all its steps that count here.
    around
        Returns where some of the fixes may be, by their places among all.
    reach_m
        Metres that can be driven in a step.
    price
        Nats that a gap without a way costs.
    steps
        The trips.
    """
    segment, ratio, broken = steps.segment, steps.ratio, steps.broken
    before = segment.copy(), ratio.copy()
    left, right = _gaps(fixes)
    bad = _has_break(broken, left, right)
    bad &= (segment[left] >= 0) & (segment[right] >= 0)
    _mend(router, left[bad], right[bad], reach_m, segment, ratio, broken)

    bad = _has_break(broken, left, right)
    trips = np.unique(fixes.trip[:-1][np.diff(fixes.trip) == 0][bad])
    for trip in trips:  # one by one: all roads around all fixes of many would be a lot of memory
        few = np.flatnonzero(fixes.trip == trip)
        _move_fixes(router, Fixes(fixes.row[few], fixes.trip[few]), around(few), reach_m, price, steps)
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
    begin = left  # breaks up to here stay
    while True:
        some = _has_break(broken, begin, right)
        begin, right = begin[some], right[some]
        if not len(begin):
            return
        count = np.cumsum(broken)
        at = np.searchsorted(count, count[begin] + 1)  # the next break of each gap is the move to this step
        ends = right - at + 1
        pairs = (at - begin) * ends
        gap = np.repeat(np.arange(len(begin)), pairs)
        pair = ranges(np.zeros(len(begin), np.int64), pairs)
        a, b = begin[gap] + pair // ends[gap], at[gap] + pair % ends[gap]
        way = np.full(len(gap), np.inf)
        known = np.flatnonzero((segment[a] >= 0) & (segment[b] >= 0))
        first, last = a[known], b[known]
        limit = reach_m * (last - first) + TOLERANCE_M
        way[known] = router.distances(segment[first], ratio[first], segment[last], ratio[last], limit_m=limit)
        order = np.lexsort([way, b - a, np.isinf(way), gap])
        best = order[np.searchsorted(gap[order], np.arange(len(begin)))]
        has_way = np.isfinite(way[best])
        few = best[has_way]
        has_way[has_way] = _drive(router, a[few], b[few], reach_m, segment, ratio, broken)
        begin = np.where(has_way, begin, at)


def _drive(
    router: Router, left: Ints, right: Ints, reach_m: float, segment: Ints, ratio: Floats, broken: Bools
) -> Bools:
    """Fill the steps between two with the shortest way between them, and return where it fits into the time."""
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
    return fits


def _move_fixes(router: Router, fixes: Fixes, around: Around, reach_m: float, price: float, steps: Steps) -> None:
    """Choose positions of fixes anew, so that more gaps have a way, and mend the gaps beside them."""
    row = fixes.row
    segment, ratio, lowest, highest, broken = steps
    chosen = choose_fixes(router, fixes, around, segment[row], ratio[row], reach_m, price)
    moved = (chosen.segment != segment[row]) | (chosen.ratio != ratio[row])
    for whole, part in zip((segment, ratio, lowest, highest), chosen[:4], strict=True):
        whole[row[moved]] = part[moved]
    gap = np.flatnonzero(np.diff(fixes.trip) == 0)
    beside = gap[moved[gap] | moved[gap + 1] | _has_break(broken, row[gap], row[gap + 1])]
    left, right = row[beside], row[beside + 1]
    _mark(router, left, right, reach_m, segment, ratio, broken)
    known = (segment[left] >= 0) & (segment[right] >= 0)
    _mend(router, left[known], right[known], reach_m, segment, ratio, broken)


def _mark(router: Router, left: Ints, right: Ints, reach_m: float, segment: Ints, ratio: Floats, broken: Bools) -> None:
    """Say of every move of gaps whether it cannot be driven."""
    after = ranges(left + 1, right - left)
    after = after[(segment[after] >= 0) & (segment[after - 1] >= 0)]
    here = segment[after - 1], ratio[after - 1]
    way = router.distances(*here, segment[after], ratio[after], limit_m=reach_m + TOLERANCE_M)
    broken[after] = np.isinf(way)
