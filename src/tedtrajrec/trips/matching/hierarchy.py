"""A contraction hierarchy of the segment graph: what makes long ways short to search.

Segments are *contracted* one after another, the least important first: a segment is taken out of the graph, and where
the cheapest way between two of its neighbours led through it, a *shortcut* takes its place. A cheapest way then climbs
from its start to ever more important segments, over arcs and shortcuts, and down again to its end, so a search that
only climbs, from both ends, finds it. (Geisberger, Sanders, Schultes and Delling, Contraction hierarchies, 2008.)

The *rank* of a segment tells how important it is; that of the most important, contracted last, is 0. Segments are
numbered anew here, by *place*, so that what is near on the map is near in memory. Arcs are kept at their lower end,
those that leave it (direction 0) apart from those that enter it (direction 1).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.network.heap import pop, push

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]
Records = NDArray[Any]

# Bounds of a search for a way round a segment; one that is not found costs a shortcut, not a wrong result.
MOST_SETTLED = 40
MOST_WAITING = 1000
NONE = np.int32(-1)
GONE = np.int32(-2)  # as a part: a cheaper arc has replaced this one


ARC = np.dtype(
    [
        ("upper", np.int32),  # place of its upper end
        ("left", np.int32),  # the two arcs of a shortcut, in driving order; -1 and the segment it leads to otherwise
        ("right", np.int32),
        ("cost", np.float64),
        ("metres", np.float64),
        ("seconds", np.float64),
    ],
    align=True,
)


class Hierarchy(NamedTuple):
    """The contracted graph of S segments with A arcs."""

    place: Numbers  # [S] of each segment
    rank: Numbers  # [S] at each place
    offset: Ints  # [2 S + 1] place p has in direction d the arcs offset[2 p + d]:offset[2 p + d + 1]
    arc: Records  # [A] ARC


class _Graph(NamedTuple):
    """The graph while it is contracted: arcs in one list for each end, new ones in front."""

    first_out: Numbers  # [S] first arc that leaves the segment, -1 for none
    first_in: Numbers  # [S]
    next_out: Numbers  # [A] next arc that leaves the same segment
    next_in: Numbers  # [A]
    tail: Numbers  # [A]
    head: Numbers  # [A]
    cost: Floats  # [A]
    hops: Numbers  # [A] number of original arcs
    left: Numbers  # [A] the two arcs of a shortcut; -1 for none
    right: Numbers


class _Scratch(NamedTuple):
    """Working memory of the searches for ways round a segment."""

    cost: Floats  # [S]
    mark: Ints  # [S] number of the search that reached it
    keys: Floats  # heap
    items: Numbers
    search: Ints  # [1] number of the last search


def build_hierarchy(succ_offset: Ints, succ: Numbers, arcs: tuple[Floats, Floats, Floats], order: Numbers) -> Hierarchy:
    """Contract a graph.

    Parameters
    ----------
    arcs
        Cost, metres and seconds from the start of a segment to the start of its successor, for all successors. Costs
        must be whole multiples of a power of two, so that sums do not depend on their order.
    order
        The segments in the order of their places.
    """
    n = len(succ_offset) - 1
    tail = np.repeat(np.arange(n, dtype=np.int32), np.diff(succ_offset))
    contracted, graph = _contract(n, tail, succ, arcs[0])
    rank, place = np.empty(n, np.int32), np.empty(n, np.int32)
    rank[contracted] = np.arange(n - 1, -1, -1, dtype=np.int32)
    place[order] = np.arange(n, dtype=np.int32)

    # Each arc moves to its lower end.
    kept = np.flatnonzero((graph.left != GONE) & (graph.tail != graph.head))
    tail, head = graph.tail[kept], graph.head[kept]
    climbs = rank[head] < rank[tail]
    lower, upper = np.where(climbs, tail, head), np.where(climbs, head, tail)
    end = 2 * place[lower].astype(np.int64) + ~climbs
    by_end = np.argsort(end, kind="stable")
    kept = kept[by_end]
    new = np.full(len(graph.tail), -1, np.int32)
    new[kept] = np.arange(len(kept))
    is_shortcut = graph.left[kept] >= 0
    arc = np.empty(len(kept), ARC)
    arc["upper"] = place[upper[by_end]]
    arc["left"] = np.where(is_shortcut, new[graph.left[kept]], -1)
    arc["right"] = np.where(is_shortcut, new[graph.right[kept]], graph.head[kept])
    for name, values in zip(("cost", "metres", "seconds"), arcs, strict=True):
        arc[name] = _over_parts(values, graph.left, graph.right)[kept]
    return Hierarchy(place, rank[order], np.searchsorted(end[by_end], np.arange(2 * n + 1)), arc)


@njit(cache=True, nogil=True)
def _over_parts(values: Floats, left: Numbers, right: Numbers) -> Floats:  # pragma: no cover  (compiled)
    """Return values of all arcs from those of the original ones; a shortcut comes after its parts."""
    out = np.zeros(len(left))
    for arc in range(len(values)):
        out[arc] = values[arc]
    for arc in range(len(values), len(left)):
        if left[arc] >= 0:
            out[arc] = out[left[arc]] + out[right[arc]]
    return out


@njit(cache=True, nogil=True)
def _contract(
    n: int, tail: Numbers, head: Numbers, cost: Floats
) -> tuple[Numbers, _Graph]:  # pragma: no cover  (compiled)
    """Return the segments in the order they were contracted, and all arcs ever made."""
    n_arcs = len(tail)
    graph = _Graph(
        np.full(n, NONE),
        np.full(n, NONE),
        np.empty(n_arcs, np.int32),
        np.empty(n_arcs, np.int32),
        tail.copy(),
        head.copy(),
        cost.copy(),
        np.ones(n_arcs, np.int32),
        np.full(n_arcs, NONE),
        np.full(n_arcs, NONE),
    )
    for arc in range(n_arcs):
        if tail[arc] != head[arc]:
            _link(graph, arc)
    graph = _with_room(graph, n_arcs, n_arcs)
    scratch = _Scratch(
        np.empty(n),
        np.zeros(n, np.int64),
        np.empty(MOST_WAITING),
        np.empty(MOST_WAITING, np.int32),
        np.zeros(1, np.int64),
    )
    needed = np.empty((64, 2), np.int32)
    level = np.zeros(n, np.int32)
    keys, items = np.empty(n + 1), np.empty(n + 1, np.int32)
    size = 0
    for v in range(n):
        key, _ = _importance(graph, scratch, v, level[v], needed)
        size = push(keys, items, size, key, v)
    order = np.empty(n, np.int32)
    done = 0
    while size > 0:
        v = items[0]
        size = pop(keys, items, size)
        key, count = _importance(graph, scratch, v, level[v], needed)
        if size > 0 and key > keys[0]:
            size = push(keys, items, size, key, v)
            continue
        if count > len(needed):
            needed = np.empty((2 * count, 2), np.int32)
            _importance(graph, scratch, v, level[v], needed)
        order[done] = v
        done += 1
        arc = graph.first_out[v]
        while arc >= 0:
            level[graph.head[arc]] = max(level[graph.head[arc]], level[v] + 1)
            _unlink(graph.first_in, graph.next_in, graph.head[arc], arc)
            arc = graph.next_out[arc]
        arc = graph.first_in[v]
        while arc >= 0:
            level[graph.tail[arc]] = max(level[graph.tail[arc]], level[v] + 1)
            _unlink(graph.first_out, graph.next_out, graph.tail[arc], arc)
            arc = graph.next_in[arc]
        graph = _with_room(graph, n_arcs, count)
        for k in range(count):
            n_arcs = _add_shortcut(graph, n_arcs, needed[k, 0], needed[k, 1])
    return order, _with_room(graph, n_arcs, -1)


@njit(cache=True, nogil=True)
def _with_room(graph: _Graph, n_arcs: int, more: int) -> _Graph:  # pragma: no cover  (compiled)
    """Return the graph with room for ``more`` arcs than the ``n_arcs`` it has; with -1 without any."""
    if 0 <= more <= len(graph.tail) - n_arcs:
        return graph
    room = 2 * (n_arcs + more) if more >= 0 else n_arcs
    return _Graph(
        graph.first_out,
        graph.first_in,
        resized(graph.next_out, n_arcs, room),
        resized(graph.next_in, n_arcs, room),
        resized(graph.tail, n_arcs, room),
        resized(graph.head, n_arcs, room),
        resized(graph.cost, n_arcs, room),
        resized(graph.hops, n_arcs, room),
        resized(graph.left, n_arcs, room),
        resized(graph.right, n_arcs, room),
    )


@njit(cache=True, nogil=True)
def _link(graph: _Graph, arc: int) -> None:  # pragma: no cover  (compiled)
    u, w = graph.tail[arc], graph.head[arc]
    graph.next_out[arc] = graph.first_out[u]
    graph.first_out[u] = arc
    graph.next_in[arc] = graph.first_in[w]
    graph.first_in[w] = arc


@njit(cache=True, nogil=True)
def _unlink(first: Numbers, following: Numbers, v: int, arc: int) -> None:  # pragma: no cover  (compiled)
    """Take an arc out of the list of ``v``."""
    if first[v] == arc:
        first[v] = following[arc]
        return
    before = first[v]
    while following[before] != arc:
        before = following[before]
    following[before] = following[arc]


@njit(cache=True, nogil=True)
def _add_shortcut(graph: _Graph, n_arcs: int, a: int, b: int) -> int:  # pragma: no cover  (compiled)
    """Join two arcs unless there is a cheaper one between their ends already, and return the number of arcs."""
    u, w = graph.tail[a], graph.head[b]
    cost = graph.cost[a] + graph.cost[b]
    arc = graph.first_out[u]
    while arc >= 0:
        if graph.head[arc] == w:
            if graph.cost[arc] <= cost:
                return n_arcs
            _unlink(graph.first_out, graph.next_out, u, arc)
            _unlink(graph.first_in, graph.next_in, w, arc)
            graph.left[arc] = GONE
            break
        arc = graph.next_out[arc]
    graph.tail[n_arcs], graph.head[n_arcs] = u, w
    graph.cost[n_arcs] = cost
    graph.hops[n_arcs] = graph.hops[a] + graph.hops[b]
    graph.left[n_arcs], graph.right[n_arcs] = a, b
    _link(graph, n_arcs)
    return n_arcs + 1


@njit(cache=True, nogil=True)
def _importance(
    graph: _Graph, scratch: _Scratch, v: int, level: int, needed: Numbers
) -> tuple[float, int]:  # pragma: no cover  (compiled)
    """Return how important a segment is, and how many shortcuts take its place; ``needed`` gets their pairs of arcs.

    Least important is what takes more arcs with it than it leaves; the level keeps the contraction even over the graph.
    """
    n_in = n_out = hops = 0
    arc = graph.first_in[v]
    while arc >= 0:
        n_in += 1
        hops += graph.hops[arc]
        arc = graph.next_in[arc]
    most = 0.0
    arc = graph.first_out[v]
    while arc >= 0:
        n_out += 1
        hops += graph.hops[arc]
        most = max(most, graph.cost[arc])
        arc = graph.next_out[arc]
    count = new_hops = 0
    if n_out > 0:
        a = graph.first_in[v]
        while a >= 0:
            _search_round(graph, scratch, v, a, graph.cost[a] + most)
            b = graph.first_out[v]
            while b >= 0:
                w = graph.head[b]
                if w != graph.tail[a] and not (
                    scratch.mark[w] == scratch.search[0] and scratch.cost[w] <= graph.cost[a] + graph.cost[b]
                ):
                    if count < len(needed):
                        needed[count, 0], needed[count, 1] = a, b
                    count += 1
                    new_hops += graph.hops[a] + graph.hops[b]
                b = graph.next_out[b]
            a = graph.next_in[a]
    key = level + (count + 1.0) / (n_in + n_out + 1.0) + (new_hops + 1.0) / (hops + 1.0)
    return key, count


@njit(cache=True, nogil=True)
def _search_round(
    graph: _Graph, scratch: _Scratch, v: int, a: int, limit: float
) -> None:  # pragma: no cover  (compiled)
    """Label segments with the cost from the start of arc ``a``, which leads to ``v``, without passing ``v``."""
    cost, mark, keys, items = scratch[:4]
    stamp = scratch.search[0] + 1
    scratch.search[0] = stamp
    source = graph.tail[a]
    cost[source] = 0.0
    mark[source] = stamp
    size = push(keys, items, 0, 0.0, source)
    settled = 0
    while size > 0 and settled < MOST_SETTLED:
        key = keys[0]
        u = items[0]
        size = pop(keys, items, size)
        if key > cost[u]:
            continue
        settled += 1
        arc = graph.first_out[u]
        while arc >= 0:
            w = graph.head[arc]
            total = key + graph.cost[arc]
            if w != v and total <= limit and size < MOST_WAITING and (mark[w] != stamp or total < cost[w]):
                mark[w] = stamp
                cost[w] = total
                size = push(keys, items, size, total, w)
            arc = graph.next_out[arc]
