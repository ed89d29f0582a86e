"""From chosen candidates to routes: the segments driven, when, and the fixes that the chain did not use."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.matching.fixes import Candidates
from tedtrajrec.trips.matching.lattice import BREAK_NO_ROUTE, BREAK_TOO_FAST, GOES_ON, Lattice
from tedtrajrec.trips.matching.transitions import FOLLOWED, NO_ROUTE, Model, backwards, farthest
from tedtrajrec.trips.matching.ways import Roads, Scratch, trace_way

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


class Lines(NamedTuple):
    """The geometry of all segments on the network's plane."""

    offset: Ints  # [S+1]
    x: Floats  # [G]
    y: Floats  # [G]
    along: Floats  # [G] metres from the start of the segment


class Positions(NamedTuple):
    """Where the fixes of a chunk were matched; filled in by :func:`drive`."""

    segment: Segments  # [F] -1 where unmatched
    along: Floats  # [F]
    distance: Floats  # [F]
    probability: Floats  # [F]
    piece: Ints  # [F] number of the piece in the chunk, -1 where unmatched
    status: NDArray[np.uint8]  # [F]


class Driven(NamedTuple):
    """The routes of a chunk: P pieces, each a chain that did not break."""

    trip: Ints  # [P] number of the trip in the chunk
    ends: NDArray[np.uint8]  # [P] why the piece ends
    offset: Ints  # [P+1]
    segment: Segments  # [N]
    enter: Floats  # [N] seconds
    leave: Floats  # [N]


@njit(cache=True, nogil=True)
def nearest_between(
    lines: Lines, segment: int, low: float, high: float, x: float, y: float
) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return squared distance and measure of the place on a segment between ``low`` and ``high`` nearest to a point."""
    best2, best = np.inf, low
    for v in range(lines.offset[segment], lines.offset[segment + 1] - 1):
        start, end = lines.along[v], lines.along[v + 1]
        if end < low or start > high:
            continue
        dx, dy = lines.x[v + 1] - lines.x[v], lines.y[v + 1] - lines.y[v]
        length2 = dx * dx + dy * dy
        t = ((x - lines.x[v]) * dx + (y - lines.y[v]) * dy) / length2 if length2 > 0.0 else 0.0
        metres = min(max(start + t * (end - start), start, low), end, high)
        t = (metres - start) / (end - start) if end > start else 0.0
        distance2 = (x - lines.x[v] - t * dx) ** 2 + (y - lines.y[v] - t * dy) ** 2
        if distance2 < best2:
            best2, best = distance2, metres
    return best2, best


@njit(cache=True, nogil=True)
def drive(
    roads: Roads,
    scratch: Scratch,
    model: Model,
    lines: Lines,
    candidates: Candidates,
    lattice: Lattice,
    probability: Floats,
    chosen: Ints,
    fixes: tuple[Floats, Floats, Ints],
    trip_offsets: Ints,
    positions: Positions,
) -> Driven:  # pragma: no cover  (compiled)
    """Return the routes through the chosen candidates and fill in the positions of all fixes."""
    x, y, time = fixes
    n_steps = len(lattice.fix)
    n_pieces = 0
    for n in range(n_steps):
        n_pieces += chosen[n] >= 0 and lattice.before[n] < 0
    piece_trip, ends = np.empty(n_pieces, np.int64), np.empty(n_pieces, np.uint8)
    offset = np.zeros(n_pieces + 1, np.int64)
    route = np.empty(4 * n_steps + 4, np.int32)
    enter, leave = np.empty(len(route)), np.empty(len(route))
    size = 0
    piece = last = -1
    trip = 0
    # Where on the route the vehicle is (number of the segment in it, metres on it, never less than before) and when.
    at, ahead, since = 0, 0.0, 0.0
    for n in range(n_steps):
        i, c = lattice.fix[n], chosen[n]
        if c < 0:  # left out, and so are the fixes that stay near it
            positions.status[i] = NO_ROUTE
            for f in range(i + 1, len(x) if n + 1 == n_steps else lattice.fix[n + 1]):
                if positions.status[f] != FOLLOWED:
                    break
                positions.status[f] = NO_ROUTE
            continue
        segment, along = candidates.segment[c], candidates.along[c]
        if lattice.before[n] < 0:
            if size > 0 and ends[piece] == BREAK_NO_ROUTE and _jumps(model, candidates, fixes, last, i):
                ends[piece] = BREAK_TOO_FAST
            piece += 1
            while trip_offsets[trip + 1] <= i:
                trip += 1
            piece_trip[piece] = trip
            if size == len(route):
                route = _longer(route, size)
            if len(enter) < len(route):
                enter, leave = _longer(enter, len(route)), _longer(leave, len(route))
            route[size] = segment
            at, ahead, since = size, along, float(time[i])
            enter[at] = since
            size += 1
        else:
            q = lattice.before[n]
            j, p = lattice.fix[q], chosen[q]
            source, was = candidates.segment[p], candidates.along[p]
            if segment != source or along < was - backwards(model, candidates.noise[i]):
                # What is at the very end of a segment is at the start of the next; a route does not begin with an end.
                at_end = was >= roads.length[source]
                begins = lattice.before[q] < 0
                if at_end and begins:
                    size -= 1
                route, size = trace_way(roads, scratch, source, segment, route, size)
                if len(enter) < len(route):
                    enter, leave = _longer(enter, len(route)), _longer(leave, len(route))
                if at_end:
                    if not begins:
                        leave[at] = since
                        at += 1
                    enter[at] = since
                    ahead = 0.0
                    positions.segment[j], positions.along[j] = route[at], 0.0
            goal = size - 1
            odds = probability[c] * _share_from(lattice, candidates, n, p, c)
            for f in range(j + 1, i):
                if positions.status[f] == FOLLOWED:  # it lies between the two, and not before the one before it
                    best2, best, where = np.inf, ahead, at
                    for r in range(at, goal + 1):
                        low = ahead if r == at else 0.0
                        high = max(along, low) if r == goal else roads.length[route[r]]
                        distance2, metres = nearest_between(lines, route[r], low, high, x[f], y[f])
                        if distance2 < best2:
                            best2, best, where = distance2, metres, r
                    _pass(roads, route, (enter, leave), (at, ahead, since), (where, best, float(time[f])))
                    at, ahead, since = where, best, float(time[f])
                    _put(positions, f, (route[where], best, np.sqrt(best2)), odds, piece)
            _pass(roads, route, (enter, leave), (at, ahead, since), (goal, along, float(time[i])))
            ahead = max(along, ahead) if goal == at else along
            at, since = goal, float(time[i])
        _put(positions, i, (segment, along, candidates.distance[c]), probability[c], piece)
        if lattice.broken[n] != GOES_ON:
            for f in range(i + 1, trip_offsets[trip + 1]):
                if positions.status[f] != FOLLOWED:
                    break
                distance2, ahead = nearest_between(lines, route[at], ahead, roads.length[route[at]], x[f], y[f])
                since = float(time[f])
                _put(positions, f, (route[at], ahead, np.sqrt(distance2)), probability[c], piece)
            leave[at] = since
            ends[piece] = lattice.broken[n]
            last = i
            offset[piece + 1] = size
    return Driven(piece_trip, ends, offset, route[:size], enter[:size], leave[:size])


@njit(cache=True, nogil=True)
def _jumps(
    model: Model, candidates: Candidates, fixes: tuple[Floats, Floats, Ints], a: int, b: int
) -> bool:  # pragma: no cover  (compiled)
    """Return whether nothing gets from fix ``a`` to fix ``b`` in the time, even in a straight line."""
    x, y, time = fixes
    straight = np.sqrt((x[b] - x[a]) ** 2 + (y[b] - y[a]) ** 2)
    return bool(straight > farthest(model, float(time[b] - time[a]), candidates.noise[b]))


@njit(cache=True, nogil=True)
def _longer(values: NDArray[Any], room: int) -> NDArray[Any]:  # pragma: no cover  (compiled)
    """Return a copy with at least ``room`` more or twice the places."""
    grown = np.empty(len(values) + max(room, len(values)), values.dtype)
    grown[: len(values)] = values
    return grown


@njit(cache=True, nogil=True)
def _share_from(
    lattice: Lattice, candidates: Candidates, n: int, p: int, c: int
) -> float:  # pragma: no cover  (compiled)
    """Return the probability that step ``n``, if at candidate ``c``, was reached from candidate ``p``."""
    first = candidates.offsets[lattice.fix[n]]
    width = candidates.offsets[lattice.fix[n] + 1] - first
    total = part = 0.0
    for k in range(lattice.live_offset[n + 1] - lattice.live_offset[n]):
        source = lattice.live[lattice.live_offset[n] + k]
        flow = lattice.share[source] * lattice.weight[lattice.weight_offset[n] + k * width + c - first]
        total += flow
        if source == p:
            part = flow
    return part / total if total > 0.0 else 1.0


@njit(cache=True, nogil=True)
def _pass(
    roads: Roads,
    route: Segments,
    times: tuple[Floats, Floats],
    was: tuple[int, float, float],
    now: tuple[int, float, float],
) -> None:  # pragma: no cover  (compiled)
    """Fill in when the vehicle left and entered the segments between two places of the route.

    Between the two it drives at the same share of free flow everywhere.
    """
    enter, leave = times
    at, ahead, since = was
    goal, along, until = now
    total = 0.0
    for r in range(at, goal + 1):
        low = ahead if r == at else 0.0
        high = along if r == goal else roads.length[route[r]]
        total += max(high - low, 0.0) * roads.seconds[route[r]] / roads.length[route[r]]
    driven = 0.0
    for r in range(at, goal):
        low = ahead if r == at else 0.0
        driven += (roads.length[route[r]] - low) * roads.seconds[route[r]] / roads.length[route[r]]
        when = since + (until - since) * (driven / total if total > 0.0 else 1.0)
        leave[r] = enter[r + 1] = when


@njit(cache=True, nogil=True)
def _put(
    positions: Positions, f: int, place: tuple[int, float, float], probability: float, piece: int
) -> None:  # pragma: no cover  (compiled)
    positions.segment[f], positions.along[f], positions.distance[f] = place
    positions.probability[f] = probability
    positions.piece[f] = piece
