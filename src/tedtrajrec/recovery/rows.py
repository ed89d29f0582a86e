"""From positions at known times, the knots, to rows at the times that are asked for.

Between two knots the way that leads from one to the other is driven at constant speed. Where no way leads there in
time, there is a break, and the nearest knot in time counts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.evaluation.drivable import TOLERANCE_M
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.resample import positions_on_tracks, tracks_along

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Segments = NDArray[np.int32]


class Knots(NamedTuple):
    """K positions of Q stretches, in order of time."""

    offsets: Ints  # [Q+1]
    time: Floats  # [K] epoch seconds, rising within a stretch
    segment: Segments  # [K]
    ratio: Floats  # [K]
    probability: Floats  # [K]


class Rows(NamedTuple):
    """R positions of Q stretches at the times asked for."""

    offsets: Ints  # [Q+1]
    time: Ints  # [R]
    segment: Segments  # [R]
    ratio: Floats  # [R]
    probability: Floats  # [R]


def row_times(start: Ints, end: Ints, step_s: int) -> tuple[Ints, Ints]:
    """Return offsets and times of rows: every ``step_s`` seconds from the start, and the end itself."""
    count = (end - start) // step_s + 1
    tail = (end - start) % step_s > 0
    offsets = np.concatenate([[0], np.cumsum(count + tail)]).astype(np.int64)
    time = np.repeat(start, count + tail) + ranges(np.zeros(len(start), np.int64), count + tail) * step_s
    time[offsets[1:][tail] - 1] = end[tail]
    return offsets, time


def rows_from(router: Router, knots: Knots, offsets: Ints, time: Ints) -> Rows:
    """Return positions at given times; at the time of a knot they are its own, bit for bit.

    Parameters
    ----------
    router
        Over the metres of the network.
    knots
        At least one in every stretch.
    offsets, time
        Times of stretch ``i`` are ``time[offsets[i]:offsets[i + 1]]``, rising.
    """
    before, after = around(knots.offsets, knots.time, offsets, time)
    exact = knots.time[before] == time
    nearest = np.where(time - knots.time[before] <= knots.time[after] - time, before, after)
    segment, ratio = knots.segment[nearest].copy(), knots.ratio[nearest].copy()
    probability = np.where(
        exact, knots.probability[before], np.minimum(knots.probability[before], knots.probability[after])
    )
    asked = ~exact & (before < after)
    if asked.any():
        stretch = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        some = np.unique(stretch[asked])
        mine = np.flatnonzero(asked)  # their times still rise within a stretch
        count = np.bincount(stretch[mine], minlength=len(offsets) - 1)[some]
        at = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        found, where = _between(router, _chosen(knots, some), at, time[mine])
        known = found >= 0
        segment[mine[known]], ratio[mine[known]] = found[known], where[known]
    return Rows(offsets, time, segment, ratio, probability)


def around(knot_offsets: Ints, knot_time: Floats, offsets: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return the last knot not after and the first not before each time, within its stretch [R].

    Before the first knot of a stretch both are the first, after the last both are the last.
    """
    stretch = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    of_knot = np.repeat(np.arange(len(knot_offsets) - 1), np.diff(knot_offsets))
    # Knots and times in one order, a time before a knot of the same time: the knots that come before it are counted.
    kind = np.repeat([1, 0], [len(knot_time), len(time)])
    order = np.lexsort([kind, np.append(knot_time, time), np.append(of_knot, stretch)])
    is_knot = order < len(knot_time)
    passed = np.empty(len(time), np.int64)
    passed[order[~is_knot] - len(knot_time)] = np.cumsum(is_knot)[~is_knot]
    low, high = knot_offsets[:-1][stretch], knot_offsets[1:][stretch] - 1
    after = np.clip(passed, low, high)
    before = np.where(knot_time[after] <= time, after, np.maximum(after - 1, low))
    return before, after


def _chosen(knots: Knots, some: Ints) -> Knots:
    lengths = np.diff(knots.offsets)[some]
    row = ranges(knots.offsets[some], lengths)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return Knots(offsets, knots.time[row], knots.segment[row], knots.ratio[row], knots.probability[row])


def _between(router: Router, knots: Knots, offsets: Ints, time: Ints) -> tuple[Segments, Floats]:
    """Return positions on the ways between knots; -1 in breaks."""
    joined = np.ones(len(knots.time), bool)
    joined[knots.offsets[:-1]] = False
    back_m = -np.diff(knots.ratio, prepend=0.0) * router.network.length_m[knots.segment]
    back_m[np.diff(knots.segment, prepend=-1) != 0] = 0.0
    joined &= back_m <= TOLERANCE_M  # a loop would lead back as well, but nobody takes it within a step
    after = np.flatnonzero(joined)
    before = after - 1
    routes = router.routes(
        knots.segment[before],
        knots.ratio[before],
        knots.segment[after],
        np.where(back_m[after] > 0, knots.ratio[before], knots.ratio[after]),
        limit_m=TOP_SPEED_MPS * (knots.time[after] - knots.time[before]) + TOLERANCE_M,
    )
    tracks = tracks_along(knots.offsets, knots.time, knots.segment, knots.ratio, joined, routes)
    return positions_on_tracks(router.network, tracks, offsets, time)


def find_breaks(router: Router, starts: Mask, time: Ints, segment: Segments, ratio: Floats) -> Mask:
    """Return the rows that no drivable way leads to from the row before in time, by the rule of ``check_drives``.

    Parameters
    ----------
    starts
        Rows that begin a trip [R]; nothing leads to these.
    """
    after = np.flatnonzero(~starts)
    before = after - 1
    seconds = time[after] - time[before]
    stays = segment[after] == segment[before]
    ahead_m = (ratio[after] - ratio[before]) * router.network.length_m[segment[after]]
    way_m = np.where(ahead_m < -TOLERANCE_M, np.inf, ahead_m)
    other = np.flatnonzero(~stays)
    reach_m = TOP_SPEED_MPS * seconds + TOLERANCE_M
    way_m[other] = router.distances(
        segment[before[other]],
        ratio[before[other]],
        segment[after[other]],
        ratio[after[other]],
        limit_m=reach_m[other],
    )
    broken = np.zeros(len(time), bool)
    broken[after] = way_m > reach_m
    return broken
