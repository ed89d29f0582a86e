"""Past trips as an index: who passed a position, and where each of them was at any time.

A past trip is a row of *pieces*. A piece lies on one segment and is driven at constant speed: one begins at every step
and wherever the shortest route to the next step enters another segment. So a past trip can be cut at the very place of
a fix, whether or not one of its own steps was there, and its steps need not be those of the trip to recover.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.sampling import trip_keys
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ratios = NDArray[np.uint16]
Segments = NDArray[np.int32]
Seconds = NDArray[np.float32]

RATIO = 65_535
"""Ratios are stored as integers from 0 to this."""

OPENS, CLOSES = 1, 2

FARTHEST = 3.0  # standard deviations that a trip may stay away from a position that it did not pass


class History(NamedTuple):
    """P pieces of T past trips in order of trip and time, and the V visits of each segment.

    16 bytes a piece and 9 a visit. A piece lasts until the next one of its trip begins; the last one of a trip lasts no
    time. A segment of -1 stands for an unknown position.
    """

    offset: Ints  # [T+1] trip i has the pieces offset[i]:offset[i + 1]
    segment: Segments  # [P]
    low: Ratios  # [P] where on the segment it begins
    high: Ratios  # [P] where it ends; not before it begins
    time: Seconds  # [P] when it begins, in seconds from the start of its trip
    trip: Segments  # [P]
    visit_offset: Ints  # [S+1] visits of segment s are visit_offset[s]:visit_offset[s + 1]
    visit: Segments  # [V] pieces, rising
    visit_low: Ratios  # [V] their low and high once more, because they are read one after another
    visit_high: Ratios  # [V]
    visit_open: NDArray[
        np.uint8
    ]  # [V] OPENS where the trip did not drive up to the piece, CLOSES where it did not go on


class Passes(NamedTuple):
    """K passes of past trips at C positions."""

    offset: Ints  # [C+1] passes of position c are offset[c]:offset[c + 1]
    piece: Ints  # [K] piece of the history
    place: Ints  # [K] number of the position
    time: Floats  # [K] seconds from the start of the past trip
    weight: Floats  # [K] 1, or less where the trip only came near


def order_of_past(trips: Trips) -> Ints:
    """Return the order in which a history holds trips: as good as drawn, so that its first ones are a fair sample."""
    return np.argsort(trip_keys(trips.traj_id), kind="stable")


def make_history(network: RoadNetwork, trips: Trips, *, most_visits: int, workers: int | None = None) -> History:
    """Return the history of trips.

    Parameters
    ----------
    network
        The network of the positions.
    trips
        Trips with segment and ratio; steps of unknown position (segment -1) are allowed.
    most_visits
        How many visits of one segment are kept; see :func:`index_visits`.
    workers
        Number of threads; all processors if not given.
    """
    trips = trips.select(order_of_past(trips))
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no positions")
    segment, ratio = trips.segment, np.nan_to_num(trips.ratio)
    elapsed = (trips.time - np.repeat(trips.time[trips.offsets[:-1]], trips.lengths)).astype(np.float64)
    goes_on = np.ones(trips.n_fixes, bool)
    goes_on[trips.offsets[1:] - 1] = False
    lasts = np.where(goes_on, np.diff(elapsed, append=0.0), 0.0)

    step = np.flatnonzero(goes_on & (segment >= 0) & (np.roll(segment, -1) >= 0))
    a, b = segment[step], segment[step + 1]
    goal = np.where(a == b, np.maximum(ratio[step], ratio[step + 1]), ratio[step + 1])  # backwards is standing still
    routes = Router(network).routes(a, ratio[step], b, goal, limit_m=TOP_SPEED_MPS * lasts[step], workers=workers)
    driven = np.diff(routes.offsets)
    way = np.flatnonzero(driven)
    more = driven[way] - 1

    # A piece for each step, and one for each segment entered on the way to the next. Without a way the trip leaps when
    # half the time is over.
    count = 1 + goes_on
    count[step[way]] = driven[way]
    start = np.concatenate([[0], np.cumsum(count)])
    step_of = np.repeat(np.arange(trips.n_fixes), count)
    segment_of, low, part = segment[step_of], ratio[step_of], np.zeros(len(step_of))
    high = low.copy()

    entered = ranges(start[step[way]] + 1, more)
    segment_of[entered] = routes.segment[ranges(routes.offsets[way] + 1, more)]
    low[entered] = 0.0
    high[ranges(start[step[way]], more)] = 1.0
    high[start[step[way]] + more] = goal[way]
    metres = (high - low) * network.length_m[segment_of]
    before = np.cumsum(metres) - metres
    before -= before[start[step_of]]
    whole = np.bincount(step_of, metres, trips.n_fixes)[step_of]
    part[entered] = (before / np.maximum(whole, 1e-9))[entered]

    leaps = goes_on.copy()
    leaps[step[way]] = False
    leap = np.flatnonzero(leaps)
    landed = start[leap] + 1
    segment_of[landed], part[landed] = segment[leap + 1], 0.5
    low[landed] = high[landed] = ratio[leap + 1]
    return index_visits(
        network.n_segments,
        offset=start[trips.offsets],
        segment=segment_of,
        low=_stored(low),
        high=_stored(high),
        time=(elapsed[step_of] + part * lasts[step_of]).astype(np.float32),
        most_visits=most_visits,
    )


def _stored(ratio: Floats) -> Ratios:
    stored: Ratios = np.rint(ratio.clip(0, 1) * RATIO).astype(np.uint16)
    return stored


def index_visits(
    n_segments: int,
    offset: NDArray[np.integer],
    segment: Segments,
    low: Ratios,
    high: Ratios,
    time: Seconds,
    *,
    most_visits: int,
) -> History:
    """Return a history from its pieces.

    Of each segment the first ``most_visits`` visits are kept. Trips come in an order that is as good as drawn, so those
    are visits of a sample of trips, and the sample of a busy segment is part of that of every less busy one: sub-trips
    between two busy segments survive as often as visits do.
    """
    trip = np.repeat(np.arange(len(offset) - 1, dtype=np.int32), np.diff(offset))
    goes_on = (trip[1:] == trip[:-1]) & (segment[1:] == segment[:-1]) & (low[1:] == high[:-1])
    opens, closes = low > 0, high < RATIO
    opens[1:] &= ~goes_on
    closes[:-1] &= ~goes_on
    is_open = (OPENS * opens + CLOSES * closes).astype(np.uint8)
    known = np.flatnonzero(segment >= 0)
    visit = known[np.argsort(segment[known], kind="stable")].astype(np.int32)
    start = np.searchsorted(segment[visit], np.arange(n_segments + 1))
    rank = np.arange(len(visit)) - start[segment[visit]]
    visit = visit[rank < most_visits]
    return History(
        offset=offset.astype(np.int64),
        segment=segment,
        low=low,
        high=high,
        time=time,
        trip=trip,
        visit_offset=np.searchsorted(segment[visit], np.arange(n_segments + 1)).astype(np.int64),
        visit=visit,
        visit_low=low[visit],
        visit_high=high[visit],
        visit_open=is_open[visit],
    )


def no_history(n_segments: int) -> History:
    """Return the history of no trips."""
    none = np.zeros(0, np.uint16)
    return index_visits(
        n_segments, np.zeros(1, np.int64), none.astype(np.int32), none, none, none.astype(np.float32), most_visits=1
    )


def history_state(history: History) -> Arrays:
    """Return a history as few arrays; 12 bytes a piece."""
    return {name: getattr(history, name) for name in ("offset", "segment", "low", "high", "time")}


def restored_history(state: Arrays, n_segments: int, most_visits: int) -> History:
    """Return the history that :func:`history_state` described."""
    return index_visits(n_segments, **state, most_visits=most_visits)


@njit(cache=True, nogil=True)
def find_passes(
    history: History, segment: Segments, ratio: Floats, length: Floats, near_m: float, left_out: int
) -> Passes:  # pragma: no cover  (compiled)
    """Return the past trips that passed some positions.

    Parameters
    ----------
    history
        The past trips.
    segment, ratio
        The positions [C].
    length
        Metres of all segments [S].
    near_m
        A trip that starts, ends or leaps on the segment without passing the position counts with the weight of a normal
        distribution over the metres it stayed away, with this standard deviation.
    left_out
        A past trip that does not count, usually because it is the one to recover; -1 for none.
    """
    room = 0
    for s in segment:
        room += history.visit_offset[s + 1] - history.visit_offset[s]
    offset = np.zeros(len(segment) + 1, np.int64)
    piece, place = np.empty(room, np.int64), np.empty(room, np.int64)
    time, weight = np.empty(room), np.empty(room)
    n = 0
    for c in range(len(segment)):
        s = segment[c]
        at = ratio[c] * RATIO
        metres = length[s] / (RATIO * near_m)
        for v in range(history.visit_offset[s], history.visit_offset[s + 1]):
            low, high = float(history.visit_low[v]), float(history.visit_high[v])
            if low <= at < high:
                z = 0.0
            elif at < low and history.visit_open[v] & OPENS:
                z = (low - at) * metres
            elif at >= high and history.visit_open[v] & CLOSES:
                z = (at - high) * metres
            else:
                continue
            if z > FARTHEST:
                continue
            p = np.int64(history.visit[v])
            if history.trip[p] == left_out:
                continue
            piece[n], place[n] = p, c
            time[n] = history.time[p]
            if at > low and high > low:
                time[n] += (history.time[p + 1] - history.time[p]) * (min(at, high) - low) / (high - low)
            weight[n] = np.exp(-0.5 * z * z)
            n += 1
        offset[c + 1] = n
    return Passes(offset, piece[:n], place[:n], time[:n], weight[:n])


@njit(cache=True, nogil=True)
def position_at(history: History, piece: int, time: float) -> tuple[int, int, float]:  # pragma: no cover  (compiled)
    """Return where the trip of ``piece`` was: the piece, its segment (-1: unknown) and the ratio.

    ``time`` is in seconds from the start of the trip and not before ``piece``.
    """
    end = history.offset[history.trip[piece] + 1]
    while piece + 1 < end and history.time[piece + 1] <= time:
        piece += 1
    low = float(history.low[piece])
    if piece + 1 < end and history.high[piece] > history.low[piece]:
        share = (time - history.time[piece]) / (history.time[piece + 1] - history.time[piece])
        low += share * (float(history.high[piece]) - low)
    return piece, int(history.segment[piece]), low / RATIO
