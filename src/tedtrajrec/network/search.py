"""Compiled shortest-path searches over the segment graph, used by :mod:`tedtrajrec.network.routing`.

A state is a segment and its label the cost from the end of the source segment to the start of that segment: the *gap*
between the two. What lies before and behind (the rest of the source, the part of the target) is known without a search,
so one search serves all positions on its source.

Searches are A*: keys are labels plus a lower bound on what is left to the nearest target, straight-line distance to a
disc around all targets times the least cost per metre. The bound never shrinks faster than the cost along a segment
grows, so a segment that comes out of the heap is settled for good. With scattered targets the disc covers everything,
the bound is zero and the search is Dijkstra's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.network.heap import pop, push

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

# Rounding must not reject a route of exactly the limit: searches go this much further, the caller compares exactly.
SLACK = 1e-9
LAST_STAMP = 2**30 - 1


class Graph(NamedTuple):
    """The segment graph with costs, as the searches read it."""

    succ_offset: Ints  # [S+1]
    succ: Segments
    cost: Floats  # [S]
    x: Floats  # [S] start of the segment on the network's plane, metres
    y: Floats  # [S]
    end_x: Floats  # [S] its end, where all its successors start
    end_y: Floats  # [S]
    per_metre: float  # least cost of a straight metre


class Scratch(NamedTuple):
    """Working memory of one thread; stamps tell the entries of this search from those of earlier ones."""

    label: Floats  # [S]
    parent: Segments  # [S] segment before this one on the best way found
    mark: Segments  # [S] 2 x stamp: has a label; 2 x stamp + 1: settled
    wanted: Segments  # [S] stamp: is a target
    keys: Floats  # [E + S] heap
    items: Segments
    stamp: Segments  # [1] number of the last search


class Pairs(NamedTuple):
    """Questions: distinct pairs of segments, those of one source together, and room for the answers."""

    source: Segments  # [P]
    target: Segments  # [P]
    room: Floats  # [P] largest gap of interest
    gap: Floats  # [P] filled by the search; inf where it is larger than the room or there is no route
    n_segments: Ints  # [P] filled by :func:`chains`: segments of the route, source and target included; 0 for no route

    def part(self, first: int, last: int) -> Pairs:
        """Return the pairs from ``first`` up to ``last``, sharing the memory of their answers."""
        return Pairs._make(array[first:last] for array in self)


def new_pairs(source: Ints, target: Ints, room: Floats) -> Pairs:
    """Return questions with empty answers."""
    n = len(source)
    return Pairs(source.astype(np.int32), target.astype(np.int32), room, np.empty(n), np.zeros(n, np.int64))


def new_scratch(n_segments: int, n_successors: int) -> Scratch:
    """Return working memory; the heap has room for every successor of every segment and the source's once more."""
    return Scratch(
        label=np.empty(n_segments),
        parent=np.empty(n_segments, np.int32),
        mark=np.zeros(n_segments, np.int32),
        wanted=np.zeros(n_segments, np.int32),
        keys=np.empty(n_successors + n_segments + 1),
        items=np.empty(n_successors + n_segments + 1, np.int32),
        stamp=np.zeros(1, np.int32),
    )


@njit(cache=True, nogil=True)
def _settle(
    graph: Graph, scratch: Scratch, source: int, targets: Segments, room: float
) -> np.int32:  # pragma: no cover  (compiled)
    """Search from the end of ``source`` until all ``targets`` (distinct) are settled or the cost passes ``room``.

    Return the mark of settled segments; a target without it has no route within the room.
    """
    label, parent, mark, wanted, keys, items = scratch[:6]
    stamp = scratch.stamp[0] + 1
    if stamp > LAST_STAMP:
        mark[:] = 0
        wanted[:] = 0
        stamp = 1
    scratch.stamp[0] = stamp
    reached, settled = np.int32(2 * stamp), np.int32(2 * stamp + 1)

    low_x = high_x = graph.x[targets[0]]
    low_y = high_y = graph.y[targets[0]]
    for target in targets:
        wanted[target] = stamp
        low_x, high_x = min(low_x, graph.x[target]), max(high_x, graph.x[target])
        low_y, high_y = min(low_y, graph.y[target]), max(high_y, graph.y[target])
    centre_x, centre_y = (low_x + high_x) / 2, (low_y + high_y) / 2
    radius = np.hypot(high_x - low_x, high_y - low_y) / 2

    room += SLACK * (1.0 + room)
    left = len(targets)
    size = 0
    segment = source
    cost = 0.0  # from the end of the source to the end of the segment
    while True:
        away = np.sqrt((graph.end_x[segment] - centre_x) ** 2 + (graph.end_y[segment] - centre_y) ** 2) - radius
        key = cost + max(away, 0.0) * graph.per_metre
        if key <= room:
            for i in range(graph.succ_offset[segment], graph.succ_offset[segment + 1]):
                follower = graph.succ[i]
                if mark[follower] < reached or (mark[follower] == reached and cost < label[follower]):
                    mark[follower] = reached
                    label[follower] = cost
                    parent[follower] = segment
                    size = push(keys, items, size, key, follower)
        while size > 0 and mark[items[0]] == settled:
            size = pop(keys, items, size)
        if size == 0:
            return settled
        segment = items[0]
        size = pop(keys, items, size)
        mark[segment] = settled
        if wanted[segment] == stamp:
            left -= 1
            if left == 0:
                return settled
        cost = label[segment] + graph.cost[segment]


@njit(cache=True, nogil=True)
def gaps(graph: Graph, scratch: Scratch, pairs: Pairs) -> None:  # pragma: no cover  (compiled)
    """Fill in the gap of every pair; the pairs of one source share a search."""
    source, target = pairs.source, pairs.target
    first = 0
    while first < len(source):
        last = first + 1
        while last < len(source) and source[last] == source[first]:
            last += 1
        settled = _settle(graph, scratch, source[first], target[first:last], pairs.room[first:last].max())
        for i in range(first, last):
            pairs.gap[i] = scratch.label[target[i]] if scratch.mark[target[i]] == settled else np.inf
        first = last


@njit(cache=True, nogil=True)
def append_chain(
    parent: Segments, source: int, target: int, out: Segments, size: int
) -> tuple[Segments, int]:  # pragma: no cover  (compiled)
    """Write the segments from ``source`` to ``target``, both included, behind the first ``size`` of ``out``.

    Each segment but the source names the one before it in ``parent``; both may be the same segment. Return ``out``,
    which is replaced by a longer one where it is full, and how much of it is used.
    """
    count = 2
    segment = parent[target]
    while segment != source:
        segment = parent[segment]
        count += 1
    if size + count > len(out):
        out = resized(out, size, 2 * (size + count))
    segment = target
    for k in range(size + count - 1, size, -1):
        out[k] = segment
        segment = parent[segment]
    out[size] = source
    return out, size + count


@njit(cache=True, nogil=True)
def chains(graph: Graph, scratch: Scratch, pairs: Pairs) -> Segments:  # pragma: no cover  (compiled)
    """Fill in gap and number of segments of every pair, and return their routes one after another.

    Every pair has a search of its own, so that of several equal routes the same one is found whatever else is asked.
    """
    source, target = pairs.source, pairs.target
    out = np.empty(64 * len(source), np.int32)
    size = 0
    for i in range(len(source)):
        settled = _settle(graph, scratch, source[i], target[i : i + 1], pairs.room[i])
        if scratch.mark[target[i]] != settled:
            pairs.gap[i] = np.inf
            pairs.n_segments[i] = 0
            continue
        before = size
        out, size = append_chain(scratch.parent, source[i], target[i], out, size)
        pairs.gap[i] = scratch.label[target[i]]
        pairs.n_segments[i] = size - before
    return out[:size].copy()
