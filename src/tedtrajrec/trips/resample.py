"""Positions at any time on the routes that matched trips drove.

The matched fixes of a piece are knots on its route. Between two knots the vehicle covers what the route costs at a
constant rate; what a metre costs decides where it is fast: the same everywhere for constant speed, 1 / speed for the
same share of free flow everywhere, or a learned pace.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Routes
from tedtrajrec.trips.match import Matched
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

ROUNDING_S = 1e-5  # times of routes are floats of about 1e9 seconds, good to a microsecond


class Tracks(NamedTuple):
    """K knots of T trips on their routes; between two consecutive knots of one piece the route is driven."""

    offsets: Ints  # [T+1] trip i has the knots offsets[i]:offsets[i + 1]
    time: Floats  # [K] epoch seconds, never falling within a trip
    segment: Segments  # [K]
    ratio: Floats  # [K]
    piece: Ints  # [K]
    place: Ints  # [K] where in ``route`` the knot lies; never falling within a piece
    route: Segments  # [N] the segments of all routes


def positions_on_routes(
    network: RoadNetwork,
    trips: Trips,
    matched: Matched,
    at_offsets: ArrayLike,
    at_time: ArrayLike,
    *,
    metre_cost: ArrayLike | None = None,
) -> tuple[Segments, Floats]:
    """Return segment and ratio at the given times on the routes that the matcher found.

    At the time of a matched fix the position is its own (of several fixes of one time, that of the first). Where a fix
    lies a little behind the one before it on the same segment, the vehicle moves back.

    Parameters
    ----------
    network
        The network of the routes.
    trips, matched
        The trips and what :func:`~tedtrajrec.trips.match.match` returned for them.
    at_offsets
        Times of trip ``i`` are ``at_offsets[i]:at_offsets[i + 1]`` [T+1].
    at_time
        Epoch seconds, never falling within a trip [Q].
    metre_cost
        What a metre of each segment costs, positive where one was driven [S]; constant speed if not given.

    Returns
    -------
    tuple[Segments, Floats]
        Segment and ratio [Q]; -1 and NaN before the first and after the last matched fix of a trip, and in a break.
    """
    return positions_on_tracks(network, tracks_of(trips, matched), at_offsets, at_time, metre_cost=metre_cost)


def tracks_of(trips: Trips, matched: Matched) -> Tracks:
    """Return the matched fixes of trips with their places in the routes."""
    if len(matched.segment) != trips.n_fixes or len(matched.piece_offsets) != len(trips) + 1:
        raise ValueError("these are not the matched trips")
    knot = np.flatnonzero(matched.piece >= 0)
    time, segment, piece = trips.time[knot].astype(np.float64), matched.segment[knot], matched.piece[knot]
    place = _find_places(
        time, segment, piece, matched.route_offsets, matched.route_segment, matched.route_leave + ROUNDING_S
    )
    if len(place) and place.min() < 0:
        raise ValueError("the routes do not lead through the matched fixes")
    offsets = np.searchsorted(knot, trips.offsets).astype(np.int64)
    return Tracks(offsets, time, segment, matched.ratio[knot], piece, place, matched.route_segment)


def tracks_along(
    offsets: Ints, time: Floats, segment: Segments, ratio: Floats, joined: NDArray[np.bool_], routes: Routes
) -> Tracks:
    """Return tracks through given positions along given routes.

    Parameters
    ----------
    offsets, time, segment, ratio
        The knots; see :class:`Tracks`.
    joined
        Which knots are reached from the one before by one of the routes [K]; at all others a piece begins.
    routes
        For each joined knot in order, the route that leads to it; where there is none, a piece begins too.
    """
    length = np.diff(routes.offsets)
    count = np.zeros(len(time), np.int64)
    count[joined] = length - 1
    starts = ~joined
    starts[joined] = length == 0
    count[starts] = 1
    place = np.cumsum(count) - 1
    route = np.repeat(segment, count)  # right where a piece begins
    onto = np.flatnonzero(~starts)
    chosen = length > 0
    route[ranges(place[onto - 1] + 1, count[onto])] = routes.segment[
        ranges(routes.offsets[:-1][chosen] + 1, count[onto])
    ]
    return Tracks(offsets, time, segment, ratio, np.cumsum(starts) - 1, place, route)


def positions_on_tracks(
    network: RoadNetwork,
    tracks: Tracks,
    at_offsets: ArrayLike,
    at_time: ArrayLike,
    *,
    metre_cost: ArrayLike | None = None,
) -> tuple[Segments, Floats]:
    """Return segment and ratio at the given times on tracks; see :func:`positions_on_routes`."""
    offsets, times = np.asarray(at_offsets, np.int64), np.asarray(at_time, np.float64)
    if len(offsets) != len(tracks.offsets) or offsets[0] != 0 or offsets[-1] != len(times):
        raise ValueError(f"the offsets do not divide {len(times)} times among {len(tracks.offsets) - 1} trips")
    falls = np.diff(times) < 0
    starts = offsets[1:-1]
    falls[starts[(starts > 0) & (starts < len(times))] - 1] = False
    if falls.any():
        raise ValueError("the times of a trip must not fall")
    # Only what is driven is looked at: a pass over all segments would be most of the work in a large network.
    cost = np.ones(len(tracks.route))
    if metre_cost is not None:
        of_all = np.asarray(metre_cost)
        if of_all.shape != (network.n_segments,):
            raise ValueError(f"metre_cost has shape {of_all.shape}; the network has {network.n_segments} segments")
        cost = of_all[tracks.route].astype(np.float64)
        if not (np.isfinite(cost) & (cost > 0)).all():
            raise ValueError("metre_cost holds one positive number for each segment")
    return _sample(tracks, network.length_m[tracks.route], cost, offsets, times)


@njit(cache=True, nogil=True)
def _find_places(
    time: Floats, segment: Segments, piece: Ints, route_offsets: Ints, route: Segments, leave: Floats
) -> Ints:  # pragma: no cover  (compiled)
    """Return the place of each knot in the route of its piece; -1 where there is none.

    It is the first of its segment, from the place of the knot before it on, that was not left before the knot's time:
    so a segment that is driven twice is told by the clock.
    """
    place = np.empty(len(time), np.int64)
    at = 0
    last = -1
    for k in range(len(time)):
        if piece[k] != last:
            last = piece[k]
            at = route_offsets[last]
        end = route_offsets[last + 1]
        while at < end and (route[at] != segment[k] or leave[at] < time[k]):
            at += 1
        place[k] = at if at < end else -1
    return place


@njit(cache=True, nogil=True)
def _sample(
    tracks: Tracks, length: Floats, metre_cost: Floats, at_offsets: Ints, at_time: Floats
) -> tuple[Segments, Floats]:  # pragma: no cover  (compiled)
    """Return segment and ratio at the times; ``length`` and ``metre_cost`` are those of the places of the routes."""
    segment = np.full(len(at_time), -1, np.int32)
    ratio = np.full(len(at_time), np.nan)
    for trip in range(len(tracks.offsets) - 1):
        k, end = tracks.offsets[trip], tracks.offsets[trip + 1]  # k: the first knot that is not before the time
        walked = -1  # the knot that the walk below leads to
        at, passed, total = 0, 0.0, 0.0
        for q in range(at_offsets[trip], at_offsets[trip + 1]):
            t = at_time[q]
            while k < end and tracks.time[k] < t:
                k += 1
            if k == end:
                break
            if tracks.time[k] == t:
                segment[q], ratio[q] = tracks.segment[k], tracks.ratio[k]
                continue
            if k == tracks.offsets[trip] or tracks.piece[k - 1] != tracks.piece[k]:
                continue
            share = (t - tracks.time[k - 1]) / (tracks.time[k] - tracks.time[k - 1])
            first, goal = tracks.place[k - 1], tracks.place[k]
            if first == goal:
                segment[q] = tracks.segment[k]
                ratio[q] = tracks.ratio[k - 1] + share * (tracks.ratio[k] - tracks.ratio[k - 1])
                continue
            if walked != k:  # a new gap: what does it cost?
                walked, at, passed, total = k, first, 0.0, 0.0
                for r in range(first, goal + 1):
                    total += _cost(tracks, length, metre_cost, k, r)
            here = _cost(tracks, length, metre_cost, k, at)
            while at < goal and passed + here < share * total:
                passed += here
                at += 1
                here = _cost(tracks, length, metre_cost, k, at)
            low, high = _range(tracks, k, at)
            segment[q] = tracks.route[at]
            ratio[q] = low + (high - low) * min((share * total - passed) / here, 1.0) if here > 0.0 else low
    return segment, ratio


@njit(cache=True, nogil=True)
def _range(tracks: Tracks, k: int, r: int) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return from which to which ratio place ``r`` of the route is driven between knot ``k`` and the one before it."""
    low = tracks.ratio[k - 1] if r == tracks.place[k - 1] else 0.0
    high = tracks.ratio[k] if r == tracks.place[k] else 1.0
    return low, high


@njit(cache=True, nogil=True)
def _cost(tracks: Tracks, length: Floats, metre_cost: Floats, k: int, r: int) -> float:  # pragma: no cover  (compiled)
    low, high = _range(tracks, k, r)
    return float((high - low) * length[r] * metre_cost[r])
