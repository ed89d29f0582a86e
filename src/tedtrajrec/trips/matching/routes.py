"""From chosen candidates to routes: the segments driven, when, and the fixes that the chain did not use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.trips.matching.fixes import Candidates
from tedtrajrec.trips.matching.lattice import BREAK_NO_ROUTE, BREAK_TOO_FAST, GOES_ON, Lattice
from tedtrajrec.trips.matching.transitions import FOLLOWED, NO_ROUTE, STAND, Model, backwards, farthest
from tedtrajrec.trips.matching.ways import Roads, Scratch, trace_way

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


AROUND = 1.5  # noise_m; a fix is put on the nearest place of the route that is no farther from its candidate


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
    time = fixes[2]
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
    begin = 0  # first step of the piece
    place = np.empty(n_steps, np.int64)  # where in the route the segment of each step is
    odds = np.empty(n_steps)  # probability of the way that leads to each step
    for n in range(n_steps):
        i, c = lattice.fix[n], chosen[n]
        if c < 0:  # left out, and so are the fixes that stay near it
            positions.status[i] = NO_ROUTE
            for f in range(i + 1, _next_unlike(positions.status, FOLLOWED, i + 1, len(time))):
                positions.status[f] = NO_ROUTE
            continue
        segment, along = candidates.segment[c], candidates.along[c]
        if lattice.before[n] < 0:
            if size > 0 and ends[piece] == BREAK_NO_ROUTE and _jumps(model, candidates, fixes, last, i):
                ends[piece] = BREAK_TOO_FAST
            piece += 1
            begin = n
            while trip_offsets[trip + 1] <= i:
                trip += 1
            piece_trip[piece] = trip
            if size == len(route):
                route = resized(route, size, 2 * size)
            route[size] = segment
            size += 1
        else:
            p = chosen[lattice.before[n]]
            source = candidates.segment[p]
            if segment != source or along < candidates.along[p] - backwards(model, candidates.noise[i]):
                route, size = trace_way(roads, scratch, source, segment, route, size)
            odds[n] = probability[c] * _share_from(lattice, candidates, n, p, c)
        place[n] = size - 1
        if lattice.broken[n] != GOES_ON:
            if len(enter) < len(route):
                n_places = len(enter) + len(route)
                enter, leave = resized(enter, len(enter), n_places), resized(leave, len(leave), n_places)
            end = _next_unlike(positions.status, FOLLOWED, i + 1, trip_offsets[trip + 1])
            size = _settle(
                roads,
                model,
                lines,
                candidates,
                (lattice.fix[begin : n + 1], place[begin : n + 1], chosen[begin : n + 1], odds[begin : n + 1]),
                probability,
                fixes,
                (piece, end),
                (route, enter, leave),
                (offset[piece], size),
                positions,
            )
            ends[piece] = lattice.broken[n]
            last = i
            offset[piece + 1] = size
    return Driven(piece_trip, ends, offset, route[:size], enter[:size], leave[:size])


@njit(cache=True, nogil=True)
def _settle(
    roads: Roads,
    model: Model,
    lines: Lines,
    candidates: Candidates,
    steps: tuple[Ints, Ints, Ints, Floats],
    probability: Floats,
    fixes: tuple[Floats, Floats, Ints],
    which: tuple[int, int],
    driven: tuple[Segments, Floats, Floats],
    span: tuple[int, int],
    positions: Positions,
) -> int:  # pragma: no cover  (compiled)
    """Put all fixes of one piece on its route, fill in when each of its segments was driven, and return its end.

    A fix is put on the nearest place of the route around its candidate, and where that would mean to go back, all fixes
    concerned on the mean of their places: a vehicle that stands is where its fixes are on average.

    Parameters
    ----------
    steps
        Fix, place in the route, chosen candidate (-1: left out) and probability of the way to each step.
    which
        The number of the piece, and the fix after its last one.
    driven
        The segments of all routes, when they were entered and left; ``span`` is where the route of this piece is. What
        comes before the first fix and after the last is cut off.
    """
    step_fix, place, chosen, odds = steps
    x, y, time = fixes
    piece, end = which
    route, enter, leave = driven
    begin, size = span
    start = np.zeros(size - begin + 1)  # metres of the route up to each of its segments
    for r in range(begin, size):
        start[r - begin + 1] = start[r - begin] + roads.length[route[r]]

    n_fixes = end - step_fix[0]
    fix = np.empty(n_fixes, np.int64)
    metres = np.empty(n_fixes)  # along the route
    likely = np.empty(n_fixes)
    count = 0
    for n in range(len(step_fix)):
        if chosen[n] < 0:
            continue
        i, c = step_fix[n], chosen[n]
        later = n + 1
        while later < len(step_fix) and chosen[later] < 0:
            later += 1
        here = start[place[n] - begin] + candidates.along[c]
        there = here if later == len(step_fix) else start[place[later] - begin] + candidates.along[chosen[later]]
        around = AROUND * candidates.noise[i] if model.backwards == STAND else 0.0
        stay = model.stand * candidates.noise[i] if model.backwards == STAND else 0.0
        for f in range(i, end if later == len(step_fix) else step_fix[later]):
            if f > i and positions.status[f] != FOLLOWED:
                continue
            # A fix that was not used lies between two steps, or stays near the last one.
            low, high = (here, here) if f == i else (here - stay, max(here, there) + stay)
            fix[count] = f
            metres[count] = _nearest_on(lines, route[begin:size], start, low - around, high + around, x[f], y[f])
            likely[count] = probability[c] if f == i or later == len(step_fix) else odds[later]
            count += 1
    _straighten(metres[:count])

    at = begin
    while at < size - 1 and start[at - begin + 1] <= metres[0]:
        at += 1
    skipped = at - begin
    ahead, since = metres[0] - start[skipped], float(time[fix[0]])
    enter[at] = since
    n = 0
    for k in range(count):
        f = fix[k]
        where = at
        while where < size - 1 and start[where - begin + 1] <= metres[k]:
            where += 1
        along = min(max(metres[k] - start[where - begin], 0.0), roads.length[route[where]])
        _pass(roads, route, (enter, leave), (at, ahead, since), (where, along, float(time[f])))
        at, ahead, since = where, along, float(time[f])
        distance2, _ = nearest_between(lines, route[where], along, along, x[f], y[f])
        positions.segment[f], positions.along[f] = route[where], along
        positions.distance[f] = np.sqrt(distance2)
        positions.piece[f] = piece
        while n + 1 < len(step_fix) and step_fix[n + 1] <= f:
            n += 1
        if step_fix[n] == f:
            c = chosen[n]
            if model.backwards != STAND:
                positions.segment[f], positions.along[f] = candidates.segment[c], candidates.along[c]
                positions.distance[f] = candidates.distance[c]
            else:
                for other in range(candidates.offsets[f], candidates.offsets[f + 1]):
                    if candidates.segment[other] == route[where]:
                        likely[k] = probability[other]
        positions.probability[f] = likely[k]
    leave[at] = since
    size = at + 1
    if skipped > 0:
        for r in range(begin, size - skipped):
            route[r], enter[r], leave[r] = route[r + skipped], enter[r + skipped], leave[r + skipped]
    return size - skipped


@njit(cache=True, nogil=True)
def _nearest_on(
    lines: Lines, route: Segments, start: Floats, low: float, high: float, x: float, y: float
) -> float:  # pragma: no cover  (compiled)
    """Return how many metres along a route, between ``low`` and ``high``, the place nearest to a point is."""
    first = min(max(int(np.searchsorted(start, low, side="right")) - 1, 0), len(route) - 1)
    best2, best = np.inf, low
    for r in range(first, len(route)):
        if start[r] > high and r > first:
            break
        distance2, along = nearest_between(lines, route[r], max(low - start[r], 0.0), high - start[r], x, y)
        if distance2 < best2:
            best2, best = distance2, start[r] + along
    return best


@njit(cache=True, nogil=True)
def _straighten(values: Floats) -> None:  # pragma: no cover  (compiled)
    """Replace values by the nearest ones, by squares, that never fall: falling neighbours share their mean."""
    mean, weight = np.empty(len(values)), np.empty(len(values), np.int64)
    n = 0
    for value in values:
        mean[n], weight[n] = value, 1
        while n > 0 and mean[n - 1] >= mean[n]:
            total = weight[n - 1] + weight[n]
            mean[n - 1] += (mean[n] - mean[n - 1]) * weight[n] / total
            weight[n - 1] = total
            n -= 1
        n += 1
    k = 0
    for m in range(n):
        values[k : k + weight[m]] = mean[m]
        k += weight[m]


@njit(cache=True, nogil=True)
def _next_unlike(values: NDArray[np.uint8], value: int, start: int, end: int) -> int:  # pragma: no cover  (compiled)
    """Return the first place from ``start`` on that holds another value, or ``end``."""
    while start < end and values[start] == value:
        start += 1
    return start


@njit(cache=True, nogil=True)
def _jumps(
    model: Model, candidates: Candidates, fixes: tuple[Floats, Floats, Ints], a: int, b: int
) -> bool:  # pragma: no cover  (compiled)
    """Return whether nothing gets from fix ``a`` to fix ``b`` in the time, even in a straight line."""
    x, y, time = fixes
    straight = np.sqrt((x[b] - x[a]) ** 2 + (y[b] - y[a]) ** 2)
    return bool(straight > farthest(model, float(time[b] - time[a]), candidates.noise[b]))


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
