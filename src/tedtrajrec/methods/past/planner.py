"""One route between two segments as past trips to the destination would take it.

    from o to d: on to the successor x with the most past trips that drove x and later d, never twice to the same;
    d itself wins at once; where successors are equal, the one whose direction is nearest to that of d

A walk that comes to no end takes the fastest route of the map. What begins and ends at one node is cut out.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.methods.past.pairs import Pairs
from tedtrajrec.network.near import find_near
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

PART = 256  # routes that one thread plans at a time


class Ragged(NamedTuple):
    """Rows of segments."""

    offsets: Ints  # [P+1]
    segment: Segments  # row p has segment[offsets[p]:offsets[p + 1]]


class _Map(NamedTuple):
    succ_offset: Ints
    succ: Segments
    start_x: Floats  # [S] metres
    start_y: Floats
    end_x: Floats
    end_y: Floats


class Planner:
    """Plans routes.

    Parameters
    ----------
    network
        The road network.
    pairs
        Which segments past trips drove one after the other.
    most
        Segments of a walk at most.
    """

    def __init__(self, network: RoadNetwork, pairs: Pairs, *, most: int = 79) -> None:
        self.pairs, self._most = pairs, most
        x, y = network.geom_xy
        first, last = network.geom_offset[:-1], network.geom_offset[1:] - 1
        self._map = _Map(
            network.succ_offset.astype(np.int64), network.succ.astype(np.int32), x[first], y[first], x[last], y[last]
        )
        self._fastest = Router(network, cost=network.length_m / network.speed_mps)

    def routes(
        self,
        source: ArrayLike,
        source_ratio: ArrayLike,
        target: ArrayLike,
        target_ratio: ArrayLike,
        own: Ragged | None = None,
        *,
        workers: int | None = None,
    ) -> Ragged:
        """Return a route of segments for each pair of positions; where there is none, the two segments alone.

        Parameters
        ----------
        source, source_ratio, target, target_ratio
            Positions [P]. The route between two of one segment is that segment.
        own
            The segments that the trip of each pair drove itself, in order: its own drive does not count.
        workers
            Number of threads; all processors if not given.
        """
        a, b = np.asarray(source, np.int32), np.asarray(target, np.int32)
        from_a, to_b = np.asarray(source_ratio, np.float64), np.asarray(target_ratio, np.float64)
        none = np.zeros(len(a) + 1, np.int64), np.zeros(0, np.int32)
        own_offset, own_segment = none if own is None else own

        def walk(part: slice) -> tuple[Ints, Segments]:
            bound = own_offset[part.start : part.stop + 1]
            return _walk(self._map, self.pairs, a[part], b[part], bound, own_segment, self._most)

        parts = [slice(k, min(k + PART, len(a))) for k in range(0, len(a), PART)] or [slice(0, 0)]
        count, segment = (np.concatenate(column) for column in zip(*map_parts(walk, parts, workers), strict=True))
        lost = np.flatnonzero(count == 0)
        fast = self._fastest.routes(a[lost], from_a[lost], b[lost], to_b[lost], workers=workers)
        fast_count = np.diff(fast.offsets)
        leaps = fast_count == 0
        size = count.copy()
        size[lost] = np.where(leaps, 2, fast_count)
        offsets = np.concatenate([[0], np.cumsum(size)])
        out = np.empty(offsets[-1], np.int32)
        walked = np.flatnonzero(count)
        out[ranges(offsets[walked], count[walked])] = segment
        out[ranges(offsets[lost[~leaps]], fast_count[~leaps])] = fast.segment
        out[offsets[lost[leaps]]], out[offsets[lost[leaps]] + 1] = a[lost[leaps]], b[lost[leaps]]
        return Ragged(offsets, out)


@njit(cache=True, nogil=True)
def _walk(
    roads: _Map, pairs: Pairs, source: Segments, target: Segments, own_offset: Ints, own: Segments, most: int
) -> tuple[Ints, Segments]:  # pragma: no cover  (compiled)
    """Return how many segments each route has, 0 where the walk came to no end, and these segments."""
    count = np.zeros(len(source), np.int64)
    out = np.empty(len(source) * (most + 1), np.int32)
    route = np.empty(most + 1, np.int32)
    n_out = 0
    for p in range(len(source)):
        goal = target[p]
        route[0] = source[p]
        n = 1
        while n <= most and route[n - 1] != goal:
            best = _next(roads, pairs, route[:n], goal, own[own_offset[p] : own_offset[p + 1]])
            if best < 0:
                break
            route[n] = best
            n += 1
        if route[n - 1] != goal:
            continue
        k = 0
        while k < n:  # from each segment to the last on the route that may follow it
            out[n_out] = route[k]
            n_out += 1
            count[p] += 1
            onward = k + 1
            for j in range(n - 1, k + 1, -1):
                if _follows(roads, route[k], route[j]):
                    onward = j
                    break
            k = onward
    return count, out[:n_out].copy()


@njit(cache=True, nogil=True)
def _follows(roads: _Map, a: int, b: int) -> bool:  # pragma: no cover  (compiled)
    return bool(np.any(roads.succ[roads.succ_offset[a] : roads.succ_offset[a + 1]] == b))


@njit(cache=True, nogil=True)
def _next(roads: _Map, pairs: Pairs, route: Segments, goal: int, own: Segments) -> int:  # pragma: no cover  (compiled)
    """Return the successor of the last segment of a route, or -1 where there is none that is not on it."""
    best, most, nearest = -1, -1.0, -2.0
    here = route[-1]
    for x in roads.succ[roads.succ_offset[here] : roads.succ_offset[here + 1]]:
        if x == goal:
            return int(x)
        used = False
        for other in route:
            used = used or other == x
        if used:
            continue
        place = find_near(pairs.offset, pairs.target, x, goal)
        trips = float(pairs.trips[place]) if place >= 0 else 0.0
        if trips > 0.0 and _drove(own, x, goal):
            trips -= 1.0
        along_x, along_y = roads.end_x[x] - roads.start_x[x], roads.end_y[x] - roads.start_y[x]
        there_x, there_y = roads.start_x[goal] - roads.start_x[x], roads.start_y[goal] - roads.start_y[x]
        size = math.hypot(along_x, along_y) * math.hypot(there_x, there_y)
        cosine = (along_x * there_x + along_y * there_y) / size if size > 0.0 else 0.0
        if trips > most or (trips == most and cosine > nearest):
            best, most, nearest = int(x), trips, cosine
    return best


@njit(cache=True, nogil=True)
def _drove(own: Segments, a: int, b: int) -> bool:  # pragma: no cover  (compiled)
    """Return whether a trip drove a and later b."""
    seen = False
    for segment in own:
        if seen and segment == b:
            return True
        seen = seen or segment == a
    return False
