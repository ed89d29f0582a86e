"""What lies near: for each segment all that can be reached from its end within some metres, as one sparse table.

Where a vehicle may be one step later is looked up here, so that decoding needs no search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

ROWS_PER_PART = 512
SLACK = 1e-9  # of the radius: a way of exactly the radius counts


@dataclass(frozen=True, eq=False)
class NearTable:
    """The N pairs of segments near each other: row s holds those that can be reached from the end of s.

    12 bytes a pair. A successor is 0 m away. The segment itself is in its row only where one can come round to it.
    """

    offsets: Ints  # [S+1] row s is offsets[s]:offsets[s + 1]
    target: Segments  # [N] rising within a row
    metres: Reals  # [N] from the end of s to the start of the target, along the shortest way
    seconds: Reals  # [N] that this way takes
    radius_m: float

    def __len__(self) -> int:
        return len(self.target)

    def lookup(self, source: ArrayLike, target: ArrayLike) -> tuple[Reals, Reals]:
        """Return metres and seconds from the end of each source to the start of its target; inf where it is not near.

        Parameters
        ----------
        source, target
            Segments, of shapes that fit each other; a negative one is near nothing.
        """
        a, b = np.broadcast_arrays(np.asarray(source, np.int64), np.asarray(target, np.int64))
        if a.size and max(a.max(), b.max()) >= len(self.offsets) - 1:
            raise IndexError(f"segments go from 0 to {len(self.offsets) - 2}")
        metres, seconds = np.empty(a.shape, np.float32), np.empty(a.shape, np.float32)
        table = self.offsets, self.target, self.metres, self.seconds
        _look_up(*table, a.ravel(), b.ravel(), metres.ravel(), seconds.ravel())
        return metres, seconds


def near_table(
    network: RoadNetwork,
    radius_m: float,
    cost_s: ArrayLike | None = None,
    *,
    n_roads: int | None = None,
    workers: int | None = None,
) -> NearTable:
    """Return which segments can be reached from the end of each segment within ``radius_m`` metres.

    Time and memory grow with the number of pairs: linearly with the network, with the square of the radius.

    Parameters
    ----------
    network
        The road network; its turn rules hold.
    radius_m
        The longest way, from the end of one segment to the start of the other.
    cost_s
        Seconds that each segment takes [S]; free flow if not given. Ways are the shortest in metres all the same.
    n_roads
        Segments from this number on are links: ways lead over them, but they have no rows and are no targets.
    workers
        Number of threads; all processors if not given.
    """
    n = network.n_segments if n_roads is None else n_roads
    cost = network.length_m / network.speed_mps if cost_s is None else np.asarray(cost_s, np.float64)
    if cost.shape != (network.n_segments,):
        raise ValueError(f"cost_s has shape {cost.shape}; the network has {network.n_segments} segments")
    if not (np.isfinite(cost) & (cost >= 0)).all():
        raise ValueError("seconds must be finite and not negative")
    if not 0 <= n <= network.n_segments:
        raise ValueError(f"n_roads is {n}; the network has {network.n_segments} segments")
    if not 0 <= radius_m < np.inf:
        raise ValueError(f"radius_m is {radius_m}; it must be finite and not negative")
    graph = _Graph(network.succ_offset, network.succ, network.length_m, cost)
    scratches: list[_Scratch] = []

    def run(first: int) -> _Rows:
        try:
            scratch = scratches.pop()
        except IndexError:
            scratch = _new_scratch(network.n_segments, len(network.succ))
        rows = _rows(graph, scratch, first, min(first + ROWS_PER_PART, n), radius_m * (1 + SLACK), n)
        scratches.append(scratch)
        return rows

    nothing = _Rows(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.float32))
    parts = [nothing, *map_parts(run, range(0, n, ROWS_PER_PART), workers)]
    rows = _Rows._make(np.concatenate(column) for column in zip(*parts, strict=True))
    offsets = np.concatenate([[0], np.cumsum(rows.size)])
    return NearTable(offsets, rows.target, rows.metres, rows.seconds, float(radius_m))


@njit(cache=True, nogil=True)
def find_near(offsets: Ints, target: Segments, a: int, b: int) -> int:  # pragma: no cover  (compiled)
    """Return the place of the pair (a, b) in a table of these offsets and targets, or -1 where b is not near a."""
    if a < 0:
        return -1
    low, high = offsets[a], offsets[a + 1]
    while low < high:
        middle = (low + high) >> 1
        if target[middle] < b:
            low = middle + 1
        else:
            high = middle
    return low if low < offsets[a + 1] and target[low] == b else -1


@njit(cache=True, nogil=True)
def _look_up(
    offsets: Ints,
    target: Segments,
    metres: Reals,
    seconds: Reals,
    a: Ints,
    b: Ints,
    out_m: Reals,
    out_s: Reals,
) -> None:  # pragma: no cover  (compiled)
    for i in range(len(a)):
        place = find_near(offsets, target, a[i], b[i])
        out_m[i] = metres[place] if place >= 0 else np.inf
        out_s[i] = seconds[place] if place >= 0 else np.inf


class _Graph(NamedTuple):
    succ_offset: Ints  # [S+1]
    succ: Segments
    length: Floats  # [S]
    cost: Floats  # [S]


class _Scratch(NamedTuple):
    metres: Floats  # [S] from the end of the source to the start of the segment
    seconds: Floats  # [S]
    mark: Ints  # [S] 2 x stamp: has a label; 2 x stamp + 1: settled
    keys: Floats  # [E + S] heap
    items: Segments
    found: Segments  # [S] settled roads
    stamp: Ints  # [1]


class _Rows(NamedTuple):
    size: Ints  # of each row
    target: Segments
    metres: Reals
    seconds: Reals


def _new_scratch(n_segments: int, n_successors: int) -> _Scratch:
    return _Scratch(
        np.empty(n_segments),
        np.empty(n_segments),
        np.zeros(n_segments, np.int64),
        np.empty(n_successors + 1),
        np.empty(n_successors + 1, np.int32),
        np.empty(n_segments, np.int32),
        np.zeros(1, np.int64),
    )


@njit(cache=True, nogil=True)
def _settle(
    graph: _Graph, scratch: _Scratch, source: int, radius: float, n_roads: int
) -> int:  # pragma: no cover  (compiled)
    """Search from the end of ``source`` (Dijkstra) and return how many roads were found."""
    metres, seconds, mark, keys, items, found, stamp = scratch
    stamp[0] += 1
    reached, settled = 2 * stamp[0], 2 * stamp[0] + 1
    size = n = 0
    segment = source
    way_m = way_s = 0.0
    while True:
        if way_m <= radius:
            for i in range(graph.succ_offset[segment], graph.succ_offset[segment + 1]):
                follower = graph.succ[i]
                if mark[follower] < reached or (mark[follower] == reached and way_m < metres[follower]):
                    mark[follower] = reached
                    metres[follower] = way_m
                    seconds[follower] = way_s
                    size = push(keys, items, size, way_m, follower)
        while size > 0 and mark[items[0]] == settled:
            size = pop(keys, items, size)
        if size == 0:
            return n
        segment = items[0]
        size = pop(keys, items, size)
        mark[segment] = settled
        if segment < n_roads:
            found[n] = segment
            n += 1
        way_m = metres[segment] + graph.length[segment]
        way_s = seconds[segment] + graph.cost[segment]


@njit(cache=True, nogil=True)
def _rows(
    graph: _Graph, scratch: _Scratch, first: int, last: int, radius: float, n_roads: int
) -> _Rows:  # pragma: no cover  (compiled)
    """Return the rows from ``first`` up to ``last``."""
    count = np.empty(last - first, np.int64)
    target = np.empty(64 * (last - first), np.int32)
    metres, seconds = np.empty(len(target), np.float32), np.empty(len(target), np.float32)
    size = 0
    for source in range(first, last):
        n = _settle(graph, scratch, source, radius, n_roads)
        count[source - first] = n
        if size + n > len(target):
            more = np.empty(size + n, np.int32)  # twice as long
            target = np.concatenate((target[:size], more))
            metres = np.concatenate((metres[:size], more.astype(np.float32)))
            seconds = np.concatenate((seconds[:size], more.astype(np.float32)))
        row = np.sort(scratch.found[:n])
        for segment in row:
            target[size] = segment
            metres[size] = scratch.metres[segment]
            seconds[size] = scratch.seconds[segment]
            size += 1
    return _Rows(count, target[:size].copy(), metres[:size].copy(), seconds[:size].copy())
