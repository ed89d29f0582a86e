"""Features of candidates: the one place where they are named and filled in.

All are plain numbers that any network has, so they carry over to another city; where past trips say nothing (nobody
drove there, or the city is new), counts are 0 and times those of the map. Candidates of gaps and of fixes share their
columns; those that only the other kind has are 0.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.methods.lattices.history import (
    ALL,
    FITTING,
    MEAN_S,
    SD_S,
    TRIPS,
    History,
    between,
    count_visits,
    joining,
)
from tedtrajrec.methods.past.passed import Asked, Ends, Passed
from tedtrajrec.network.reach import Reached
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

STATIC = 34  # columns of both kinds together
SPREAD_S, SPREAD_SHARE = 15.0, 0.3  # spread of the time of a way that nobody drove: seconds, and this share of it
SPREAD_MORE_S = 30.0  # of the times of segments that only past drives know
RARE = 1e-4  # added where a logarithm is taken


class GapColumn(IntEnum):
    """Features of a candidate of a gap; its way is the best one from fix to fix over it, on the map."""

    IS_GAP = 0  # 1
    BEFORE = 1  # time of the way to its start, over that of the gap
    AFTER = 2  # of the way from its end
    WHOLE = 3  # of the candidate itself
    LATER = 4  # minutes that the way takes longer than the best one
    LATER_SHARE = 5  # the same over the best one
    BEST = 6  # time of the best way, over that of the gap
    GAP = 7  # log(minutes of the gap)
    LENGTH = 8  # log(length / 100 m + .05)
    BEFORE_KM = 9
    AFTER_KM = 10
    HAS_BEFORE = 11  # the map has the way to it
    HAS_AFTER = 12  # and the way from it
    CAME = 13  # log(1 + trips that came from the earlier fix)
    GOES = 14  # log(1 + trips that went to the later one)
    VISITS = 15  # log(1 + trips that drove it)
    CAME_SD = 16  # spread of their times in minutes
    GOES_SD = 17
    OF_FIRST = 18  # the earlier fix lies on it
    OF_LAST = 19  # the later one does
    SPEED = 20  # free flow, 20 m/s
    EVIDENCE = 21  # log(weight of all past drives of the gap) / 4


class FixColumn(IntEnum):
    """Features of a candidate of a fix."""

    LENGTH = 8  # as of a gap
    CAME = 13  # log(1 + trips that came from the fix before)
    GOES = 14  # log(1 + trips that went to the fix after)
    VISITS = 15  # as of a gap
    SPEED = 20  # as of a gap
    DISTANCE = 21  # from the fix, 30 m
    CLOSE = 22  # exp(-(distance / 15 m)^2)
    WEIGHT = 23  # probability by distance alone
    COSINE_AFTER = 24  # of the angle between the candidate and the straight line to the fix after
    COSINE_BEFORE = 25  # from the fix before
    RANK = 26  # by distance, 8
    CAME_FITTING = 27  # as CAME, each trip counting as well as its time fits that of the gap
    GOES_FITTING = 28
    KNOWN = 29  # as VISITS
    POSTERIOR = 30  # probability by distance and past drives of the whole trip
    LOG_POSTERIOR = 31  # log / 4


class Clock(IntEnum):
    """Times of a candidate, in seconds, for what depends on the step: since the earlier fix, or to the later one."""

    BEFORE = 0  # to its start on the map
    WHOLE = 1
    AFTER = 2  # from its end on the map
    ARRIVE = 3  # to its start, by past trips where there are some
    ARRIVE_SD = 4
    LEAVE = 5  # from its end
    LEAVE_SD = 6
    RATIO = 7  # where on it a fix is; 0 of gaps


class Roads(NamedTuple):
    """Segments as numbers."""

    cost: Floats  # [S] seconds to drive it whole
    log_length: Reals  # [S] log(length / 100 m + .05)
    speed: Reals  # [S] metres a second, free flow
    direction: Floats  # [S, 2] from start to end, of length 1


class Fixes(NamedTuple):
    """F fixes of all trips."""

    x: Floats  # [F] metres on the network's plane
    y: Floats  # [F]
    time: Ints  # [F]


class Lists(NamedTuple):
    """Candidates of B trips, J lists of C each, to be filled in."""

    segment: Ints  # [B, J, C]
    exists: NDArray[np.bool_]  # [B, J, C]
    static: Reals  # [B, J, C, STATIC]
    clock: Reals  # [B, J, C, len(Clock)]
    size: Ints  # [B, J]


def roads_of(network: RoadNetwork, cost: Floats) -> Roads:
    """Return the segments of a network, which take so many seconds each."""
    x, y = network.plane.to_xy(network.node_lon, network.node_lat)
    way = np.stack([x[network.seg_to] - x[network.seg_from], y[network.seg_to] - y[network.seg_from]], axis=1)
    direction = way / np.maximum(np.hypot(*way.T), 1e-6)[:, None]
    return Roads(cost, np.log(network.length_m / 100 + 0.05).astype(np.float32), network.speed_mps, direction)


def empty_lists(n_trips: int, n_lists: int, most: int) -> Lists:
    """Return lists without candidates."""
    shape = n_trips, n_lists, most
    return Lists(
        np.zeros(shape, np.int64),
        np.zeros(shape, np.bool_),
        np.zeros((*shape, STATIC), np.float32),
        np.zeros((*shape, len(Clock)), np.float32),
        np.zeros(shape[:2], np.int64),
    )


@njit(cache=True, nogil=True)
def describe_gaps(
    roads: Roads,
    ends: Ends,
    asked: Asked,
    reached: Reached,
    passed: Passed,
    history: History,
    low: int,
    high: int,
    out: Lists,
) -> None:  # pragma: no cover  (compiled)
    """Fill in the lists of the gaps of trips ``low`` to ``high``: what the map found, then what only past drives know.

    Parameters
    ----------
    roads, ends, asked
        Segments, candidates of the fixes, and the trips.
    reached, passed, history
        What the map, past drives and pairs of past trips say.
    low, high
        Which trips.
    out
        The lists.
    """
    most = out.segment.shape[2]
    came, goes, visits = np.empty((most, 4)), np.empty((most, 4)), np.empty(most)
    for trip in range(low, high):
        for g in range(asked.gap[trip], asked.gap[trip + 1]):
            i = g - asked.gap[trip]
            fix, place = asked.fix[trip] + i, 2 * i + 1
            segment = reached.segment[reached.offset[g] : reached.offset[g + 1]]
            static, clock = out.static[trip, place], out.clock[trip, place]
            between(history, trip, ends, fix, False, roads.cost, segment, came)
            between(history, trip, ends, fix + 1, True, roads.cost, segment, goes)
            count_visits(history, trip, segment, visits)
            _describe_ways(roads, reached, g, asked.seconds[g], static, clock)
            _describe_history(came, goes, visits, len(segment), static, clock)
            n = _describe_more(roads, passed, g, asked.seconds[g], len(segment), static, clock)
            evidence = np.log(passed.evidence[g] + RARE) / 4
            for c in range(n):
                static[c, GapColumn.EVIDENCE] = evidence
                out.segment[trip, place, c] = segment[c] if c < len(segment) else passed.more[g, c - len(segment)]
                out.exists[trip, place, c] = True
            out.size[trip, place] = n


@njit(cache=True, nogil=True)
def _describe_ways(
    roads: Roads, reached: Reached, gap: int, seconds: float, static: Reals, clock: Reals
) -> None:  # pragma: no cover  (compiled)
    """Fill in what the map says of the segments that it found for a gap."""
    first, stop = reached.offset[gap], reached.offset[gap + 1]
    best = np.inf
    for r in range(first, stop):
        best = min(best, max(reached.before_s[r] + roads.cost[reached.segment[r]] + reached.after_s[r], 1.0))
    log_seconds = np.log(seconds / 60)
    for r in range(first, stop):
        e, row, times = reached.segment[r], static[r - first], clock[r - first]
        before, whole, after = float(reached.before_s[r]), roads.cost[e], float(reached.after_s[r])
        later = max(before + whole + after, 1.0) - best
        row[GapColumn.IS_GAP] = 1.0
        row[GapColumn.BEFORE] = _within(before / seconds, -1.0, 3.0)
        row[GapColumn.AFTER] = _within(after / seconds, -1.0, 3.0)
        row[GapColumn.WHOLE] = _within(whole / seconds, 0.0, 2.0)
        row[GapColumn.LATER] = _within(later / 60, 0.0, 5.0)
        row[GapColumn.LATER_SHARE] = _within(later / best, 0.0, 5.0)
        row[GapColumn.BEST] = _within(best / seconds, 0.0, 4.0)
        row[GapColumn.GAP] = log_seconds
        row[GapColumn.LENGTH] = roads.log_length[e]
        row[GapColumn.BEFORE_KM] = reached.before_m[r] / 1000
        row[GapColumn.AFTER_KM] = reached.after_m[r] / 1000
        row[GapColumn.HAS_BEFORE] = reached.reached[r] & 1
        row[GapColumn.HAS_AFTER] = reached.reached[r] >> 1 & 1
        row[GapColumn.OF_FIRST] = before < 0.0
        row[GapColumn.OF_LAST] = after < 0.0
        row[GapColumn.SPEED] = roads.speed[e] / 20
        times[Clock.BEFORE], times[Clock.WHOLE], times[Clock.AFTER] = before, whole, after


@njit(cache=True, nogil=True)
def _describe_history(
    came: Floats, goes: Floats, visits: Floats, n: int, static: Reals, clock: Reals
) -> None:  # pragma: no cover  (compiled)
    """Fill in what pairs of past trips say of ``n`` candidates of a gap, or times as on the map."""
    for c in range(n):
        row, times = static[c], clock[c]
        row[GapColumn.CAME], row[GapColumn.GOES] = np.log(1 + came[c, TRIPS]), np.log(1 + goes[c, TRIPS])
        row[GapColumn.VISITS] = np.log(1 + visits[c])
        row[GapColumn.CAME_SD], row[GapColumn.GOES_SD] = came[c, SD_S] / 60, goes[c, SD_S] / 60
        times[Clock.ARRIVE], times[Clock.LEAVE] = times[Clock.BEFORE], times[Clock.AFTER]
        times[Clock.ARRIVE_SD] = SPREAD_S + SPREAD_SHARE * abs(times[Clock.BEFORE])
        times[Clock.LEAVE_SD] = SPREAD_S + SPREAD_SHARE * abs(times[Clock.AFTER])
        if came[c, TRIPS] > 0.0:
            times[Clock.ARRIVE], times[Clock.ARRIVE_SD] = came[c, MEAN_S], came[c, SD_S]
        if goes[c, TRIPS] > 0.0:
            times[Clock.LEAVE], times[Clock.LEAVE_SD] = goes[c, MEAN_S], goes[c, SD_S]


@njit(cache=True, nogil=True)
def _describe_more(
    roads: Roads, passed: Passed, gap: int, seconds: float, n: int, static: Reals, clock: Reals
) -> int:  # pragma: no cover  (compiled)
    """Fill in the segments that only past drives know, behind ``n`` others, and return the number of all."""
    for k in range(passed.more.shape[1]):
        e = passed.more[gap, k]
        if e < 0:
            break
        row, times = static[n], clock[n]
        weight, enter, leave = passed.stay[gap, k]
        before, whole = enter / weight * seconds, max((leave - enter) / weight, 0.01) * seconds
        after = seconds - before - whole
        row[GapColumn.IS_GAP] = row[GapColumn.BEST] = 1.0
        row[GapColumn.BEFORE], row[GapColumn.AFTER] = before / seconds, after / seconds
        row[GapColumn.WHOLE] = whole / seconds
        row[GapColumn.GAP] = np.log(seconds / 60)
        row[GapColumn.LENGTH] = roads.log_length[e]
        row[GapColumn.SPEED] = roads.speed[e] / 20
        times[Clock.BEFORE], times[Clock.WHOLE], times[Clock.AFTER] = before, whole, after
        times[Clock.ARRIVE], times[Clock.LEAVE] = before, after
        times[Clock.ARRIVE_SD] = times[Clock.LEAVE_SD] = SPREAD_MORE_S
        n += 1
    return n


@njit(cache=True, nogil=True)
def describe_fixes(
    roads: Roads,
    fixes: Fixes,
    ends: Ends,
    asked: Asked,
    posterior: Reals,
    history: History,
    low: int,
    high: int,
    out: Lists,
) -> None:  # pragma: no cover  (compiled)
    """Fill in the lists of the fixes of trips ``low`` to ``high``; see :func:`describe_gaps`."""
    most = out.segment.shape[2]
    came, goes, visits = np.empty((most, 2)), np.empty((most, 2)), np.empty(most)
    for trip in range(low, high):
        first, stop = asked.fix[trip], asked.fix[trip + 1]
        for f in range(first, stop):
            back_x = back_y = ahead_x = ahead_y = 0.0
            came[:], goes[:] = 0.0, 0.0
            if f > first:
                back_x, back_y = _towards(fixes, f - 1, f)
                seconds = float(fixes.time[f] - fixes.time[f - 1])
                joining(history, trip, ends, f, f - 1, seconds, roads.cost, came)
            if f + 1 < stop:
                ahead_x, ahead_y = _towards(fixes, f, f + 1)
                seconds = float(fixes.time[f + 1] - fixes.time[f])
                joining(history, trip, ends, f, f + 1, seconds, roads.cost, goes)
            place, offset = 2 * (f - first), ends.offset[f]
            n = ends.offset[f + 1] - offset
            count_visits(history, trip, ends.segment[offset : offset + n], visits)
            for c in range(n):
                e = ends.segment[offset + c]
                way = roads.direction[e]
                static = out.static[trip, place, c]
                static[FixColumn.LENGTH] = roads.log_length[e]
                static[FixColumn.SPEED] = roads.speed[e] / 20
                static[FixColumn.DISTANCE] = ends.distance_m[offset + c] / 30
                static[FixColumn.CLOSE] = np.exp(-((ends.distance_m[offset + c] / 15) ** 2))
                static[FixColumn.WEIGHT] = ends.weight[offset + c]
                static[FixColumn.COSINE_AFTER] = way[0] * ahead_x + way[1] * ahead_y
                static[FixColumn.COSINE_BEFORE] = way[0] * back_x + way[1] * back_y
                static[FixColumn.RANK] = c / 8
                static[FixColumn.CAME], static[FixColumn.GOES] = np.log(1 + came[c, ALL]), np.log(1 + goes[c, ALL])
                static[FixColumn.CAME_FITTING] = np.log(1 + came[c, FITTING])
                static[FixColumn.GOES_FITTING] = np.log(1 + goes[c, FITTING])
                static[FixColumn.VISITS] = static[FixColumn.KNOWN] = np.log(1 + visits[c])
                static[FixColumn.POSTERIOR] = posterior[offset + c]
                static[FixColumn.LOG_POSTERIOR] = np.log(posterior[offset + c] + RARE) / 4
                out.clock[trip, place, c, Clock.RATIO] = ends.ratio[offset + c]
                out.segment[trip, place, c], out.exists[trip, place, c] = e, True
            out.size[trip, place] = n


@njit(cache=True, nogil=True)
def _towards(fixes: Fixes, a: int, b: int) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return the direction from one fix to another, of length 1; shorter where they are less than a metre apart."""
    x, y = fixes.x[b] - fixes.x[a], fixes.y[b] - fixes.y[a]
    away = max(np.hypot(x, y), 1.0)
    return x / away, y / away


@njit(cache=True, nogil=True)
def _within(value: float, least: float, most: float) -> float:  # pragma: no cover  (compiled)
    return min(max(value, least), most)
