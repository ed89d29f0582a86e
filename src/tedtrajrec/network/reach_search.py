"""Compiled searches of :mod:`tedtrajrec.network.reach`.

A label is the cost of the best way from an end of the gap: forwards to the start of a segment, backwards from its end.
Labels belong to segments one *comes* to. An end's own segment, where the way begins in the middle, has a cost of its
own (its start lies behind), so that a way round the block back to it is another one than staying on it.

The backward search comes first. It is A* with landmark bounds on what is left to the earlier fix, so it settles
segments by a lower bound of their total. The forward search then knows what is left, so it settles segments by their
very total and stops after as many as are wanted. If the backward search stopped too early for that, it goes on, and the
forward search is done again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.heap import pop, push

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

FORWARD, BACKWARD = 1, 2  # bits of ``reached``

ELLIPSE, ELLIPSE_M = 1.3, 800.0  # where there is no way: how far about the straight line to look, times and plus metres
DETOUR = 1.3  # of a way that the map lacks, over the straight line
SLACK = 1e-9  # rounding must not reject a way of exactly the limit
FIRST = 2  # segments the backward search settles before the forward search tries, times those wanted


class Graph(NamedTuple):
    """The segment graph with costs, as the searches read it."""

    succ_offset: Ints  # [S+1]
    succ: Segments
    pred_offset: Ints  # [S+1]
    pred: Segments
    cost: Floats  # [S] seconds
    length: Floats  # [S] metres
    height: Reals  # [S, 2L] see landmarks.landmark_heights
    x: Floats  # [S] start of the segment on the network's plane
    y: Floats  # [S]
    end_x: Floats  # [S]
    end_y: Floats  # [S]
    n_roads: int  # segments from here on are links
    per_metre: float  # typical seconds of a metre


class Ends(NamedTuple):
    """E positions where one fix of G gaps may be: of all gaps together, or of one."""

    segment: Segments  # [E]
    own_s: Floats  # [E] cost from the position back to the start of its segment (b: on to its end), with a minus
    own_m: Floats  # [E] the same in metres
    extra_s: Floats  # [E] what an unlikely position pays; part of own_s
    x: Floats  # [E] on the network's plane
    y: Floats  # [E]


class Rules(NamedTuple):
    """What belongs to a gap; see :class:`tedtrajrec.network.reach.Band`."""

    most: int
    band_s: float
    band_share: float
    horizon_s: float
    horizon_share: float
    top_mps: float
    slack_m: float
    back_m: float
    reach_share: float


class Labels(NamedTuple):
    """Labels of one search; stamps tell its entries from those of earlier ones."""

    seconds: Floats  # [S]
    metres: Floats  # [S]
    end: Segments  # [S] number of the end, within the gap, that the way comes from
    mark: Ints  # [S] 2 x stamp: has a label; 2 x stamp + 1: settled
    keys: Floats  # [E + S + 1] heap
    items: Segments


class Scratch(NamedTuple):
    """Working memory of one thread."""

    forward: Labels
    backward: Labels
    is_a: Ints  # [S] stamp of the gap where an end of the earlier fix is on the segment
    is_b: Ints  # [S] the same of the later fix
    is_found: Ints  # [S] stamp of the forward search
    bound: Floats  # [S] cost of the segment and least cost of a way to it, where it has a backward label
    found: Segments  # [S]
    total: Floats  # [S] of the found segments
    stamp: Ints  # [1]


class Way(NamedTuple):
    """The best way over a segment."""

    total: float  # inf: there is none
    before_s: float
    before_m: float
    after_s: float
    after_m: float
    a: int  # the ends
    b: int
    reached: int


class Out(NamedTuple):
    """Room for the segments of some gaps."""

    segment: Segments
    before_s: Reals
    before_m: Reals
    after_s: Reals
    after_m: Reals
    from_a: NDArray[np.int16]
    from_b: NDArray[np.int16]
    reached: NDArray[np.uint8]


def new_out(size: int) -> Out:
    """Return empty room for so many segments."""
    reals = (np.empty(size, np.float32) for _ in range(4))
    return Out(
        np.empty(size, np.int32), *reals, np.empty(size, np.int16), np.empty(size, np.int16), np.empty(size, np.uint8)
    )


def new_scratch(n_segments: int, n_successors: int) -> Scratch:
    """Return working memory; a heap has room for every successor of every segment and for those of the ends."""

    def labels() -> Labels:
        return Labels(
            np.empty(n_segments),
            np.empty(n_segments),
            np.empty(n_segments, np.int32),
            np.zeros(n_segments, np.int64),
            np.empty(n_successors + n_segments + 1),
            np.empty(n_successors + n_segments + 1, np.int32),
        )

    return Scratch(
        labels(),
        labels(),
        np.zeros(n_segments, np.int64),
        np.zeros(n_segments, np.int64),
        np.zeros(n_segments, np.int64),
        np.empty(n_segments),
        np.empty(n_segments, np.int32),
        np.empty(n_segments),
        np.zeros(1, np.int64),
    )


# ---------------------------------------------------------------------- the way over one segment


@njit(cache=True, nogil=True)
def _way(
    graph: Graph, scratch: Scratch, marks: tuple[int, int, int], a: Ends, b: Ends, e: int, back_m: float
) -> Way:  # pragma: no cover  (compiled)
    """Return the best way over segment ``e``; ``marks`` are those of the gap and of settled labels of both searches."""
    forward, backward = scratch.forward, scratch.backward
    stamp, came, goes = marks
    cost, length = graph.cost[e], graph.length[e]
    best = Way(np.inf, 0.0, 0.0, 0.0, 0.0, 0, 0, FORWARD | BACKWARD)
    n_a = len(a.segment) if scratch.is_a[e] == stamp else 0
    n_b = len(b.segment) if scratch.is_b[e] == stamp else 0
    for i in range(-1, n_a):
        if i < 0:
            if forward.mark[e] != came:
                continue
            before_s, before_m, end_a = forward.seconds[e], forward.metres[e], forward.end[e]
        else:
            if a.segment[i] != e:
                continue
            before_s, before_m, end_a = a.own_s[i], a.own_m[i], i
        for j in range(-1, n_b):
            if j < 0:
                if backward.mark[e] != goes:
                    continue
                after_s, after_m, end_b = backward.seconds[e], backward.metres[e], backward.end[e]
            else:
                if b.segment[j] != e:
                    continue
                after_s, after_m, end_b = b.own_s[j], b.own_m[j], j
            total = before_s + cost + after_s
            if i >= 0 and j >= 0:
                if before_m + length + after_m < -back_m:
                    continue  # nobody reverses: this way leads round to the segment again
                total = max(total, a.extra_s[i] + b.extra_s[j])
            if total < best.total:
                best = Way(total, before_s, before_m, after_s, after_m, end_a, end_b, FORWARD | BACKWARD)
    return best


@njit(cache=True, nogil=True)
def _half_way(
    graph: Graph, scratch: Scratch, marks: tuple[int, int, int], a: Ends, b: Ends, e: int
) -> Way:  # pragma: no cover  (compiled)
    """Return the best way over segment ``e`` where one side of it is a road that the map lacks."""
    forward, backward = scratch.forward, scratch.backward
    stamp, came, goes = marks
    cost, length, x, y = graph.cost[e], graph.length[e], graph.x[e], graph.y[e]
    best = Way(np.inf, 0.0, 0.0, 0.0, 0.0, 0, 0, 0)

    before_s, before_m, end_a = np.inf, 0.0, 0
    if forward.mark[e] == came:
        before_s, before_m, end_a = forward.seconds[e], forward.metres[e], forward.end[e]
    if scratch.is_a[e] == stamp:
        for i in range(len(a.segment)):
            if a.segment[i] == e and a.own_s[i] < before_s:
                before_s, before_m, end_a = a.own_s[i], a.own_m[i], i
    if before_s < np.inf:
        for j in range(len(b.segment)):
            metres = DETOUR * np.hypot(b.x[j] - graph.end_x[e], b.y[j] - graph.end_y[e])
            after_s = metres * graph.per_metre + b.extra_s[j]
            if before_s + cost + after_s < best.total:
                best = Way(before_s + cost + after_s, before_s, before_m, after_s, metres, end_a, j, FORWARD)

    after_s, after_m, end_b = np.inf, 0.0, 0
    if backward.mark[e] == goes:
        after_s, after_m, end_b = backward.seconds[e], backward.metres[e], backward.end[e]
    if scratch.is_b[e] == stamp:
        for j in range(len(b.segment)):
            if b.segment[j] == e and b.own_s[j] < after_s:
                after_s, after_m, end_b = b.own_s[j], b.own_m[j], j
    if after_s < np.inf:
        for i in range(len(a.segment)):
            metres = DETOUR * np.hypot(a.x[i] - x, a.y[i] - y)
            before_s = metres * graph.per_metre + a.extra_s[i]
            if before_s + cost + after_s < best.total:
                best = Way(before_s + cost + after_s, before_s, metres, after_s, after_m, i, end_b, BACKWARD)
    return best


# ---------------------------------------------------------------------- searches


@njit(cache=True, nogil=True)
def _label_ends(
    graph: Graph, offset: Ints, neighbour: Segments, labels: Labels, ends: Ends, reached: int
) -> None:  # pragma: no cover  (compiled)
    """Label all segments next to those of the ends."""
    for i in range(len(ends.segment)):
        e = ends.segment[i]
        seconds, metres = ends.own_s[i] + graph.cost[e], ends.own_m[i] + graph.length[e]
        for k in range(offset[e], offset[e + 1]):
            n = neighbour[k]
            if labels.mark[n] < reached or seconds < labels.seconds[n]:
                labels.mark[n] = reached
                labels.seconds[n] = seconds
                labels.metres[n] = metres
                labels.end[n] = i


@njit(cache=True, nogil=True)
def _base(graph: Graph, a: Ends) -> Floats:  # pragma: no cover  (compiled)
    """Return what to take from the heights of a segment to bound the cost of a way to its start from all of the ends."""
    base = np.full(graph.height.shape[1], -np.inf)
    for i in range(len(a.segment)):
        for k in range(len(base)):
            base[k] = max(base[k], graph.height[a.segment[i], k] - a.own_s[i])
    return base


@njit(cache=True, nogil=True)
def _bound(graph: Graph, base: Floats, e: int) -> float:  # pragma: no cover  (compiled)
    """Return the cost of a segment and the least cost of a way to it."""
    least = -np.inf
    for k in range(len(base)):
        least = max(least, graph.height[e, k] - base[k])
    return least + graph.cost[e]


@njit(cache=True, nogil=True)
def _start_backward(
    graph: Graph, scratch: Scratch, base: Floats, b: Ends, reached: int, limit: float
) -> int:  # pragma: no cover  (compiled)
    """Label what leads to the later fix; return the size of the heap."""
    labels = scratch.backward
    _label_ends(graph, graph.pred_offset, graph.pred, labels, b, reached)
    size = 0
    for j in range(len(b.segment)):
        for k in range(graph.pred_offset[b.segment[j]], graph.pred_offset[b.segment[j] + 1]):
            p = graph.pred[k]
            if labels.end[p] == j:
                scratch.bound[p] = _bound(graph, base, p)
                key = labels.seconds[p] + scratch.bound[p]
                if key <= limit:
                    size = push(labels.keys, labels.items, size, key, p)
    return size


@njit(cache=True, nogil=True)
def _go_backward(
    graph: Graph,
    scratch: Scratch,
    base: Floats,
    a: Ends,
    stamp: int,
    size: int,
    quota: int,
    best: tuple[float, float],
    limits: tuple[float, float, float],
) -> tuple[int, float, float, float]:  # pragma: no cover  (compiled)
    """Settle some ``quota`` segments by the least total they can have.

    ``best`` are seconds and metres of the best way so far, ``limits`` the horizon and the band. Return the size of the
    heap, the best way now, and the total up to which everything is settled.
    """
    labels = scratch.backward
    reached, settled = 2 * stamp, 2 * stamp + 1
    best_s, best_m = best
    horizon, band_s, band_share = limits
    limit = min(horizon, best_s + max(band_s, band_share * best_s)) * (1 + SLACK)
    while True:
        while size > 0 and labels.mark[labels.items[0]] == settled:
            size = pop(labels.keys, labels.items, size)
        if size == 0 or labels.keys[0] > limit:
            return 0, best_s, best_m, limit
        if quota <= 0 and labels.keys[0] > best_s:
            return size, best_s, best_m, np.nextafter(labels.keys[0], 0.0)
        e = labels.items[0]
        size = pop(labels.keys, labels.items, size)
        labels.mark[e] = settled
        quota -= 1
        seconds, metres = labels.seconds[e] + graph.cost[e], labels.metres[e] + graph.length[e]
        if scratch.is_a[e] == stamp:
            for i in range(len(a.segment)):
                if a.segment[i] == e and a.own_s[i] + seconds < best_s:
                    best_s, best_m = a.own_s[i] + seconds, a.own_m[i] + metres
            limit = min(horizon, best_s + max(band_s, band_share * best_s)) * (1 + SLACK)
        for k in range(graph.pred_offset[e], graph.pred_offset[e + 1]):
            p = graph.pred[k]
            if labels.mark[p] < reached:
                scratch.bound[p] = _bound(graph, base, p)
            elif labels.mark[p] == settled or seconds >= labels.seconds[p]:
                continue
            labels.mark[p] = reached
            labels.seconds[p] = seconds
            labels.metres[p] = metres
            labels.end[p] = labels.end[e]
            if seconds + scratch.bound[p] <= limit:
                size = push(labels.keys, labels.items, size, seconds + scratch.bound[p], p)


@njit(cache=True, nogil=True)
def _left(graph: Graph, scratch: Scratch, b: Ends, stamp: int, e: int) -> float:  # pragma: no cover  (compiled)
    """Return the cost of a segment and of what is left behind it; inf where the backward search did not settle it."""
    left = np.inf
    if scratch.backward.mark[e] == 2 * stamp + 1:
        left = scratch.backward.seconds[e]
    if scratch.is_b[e] == stamp:
        for j in range(len(b.segment)):
            if b.segment[j] == e:
                left = min(left, b.own_s[j])
    return left + graph.cost[e]


@njit(cache=True, nogil=True)
def _go_forward(
    graph: Graph, scratch: Scratch, a: Ends, b: Ends, stamp: int, level: float, top_m: float, rules: Rules
) -> tuple[int, int]:  # pragma: no cover  (compiled)
    """Find the segments with the least totals up to ``level``; return how many, and the stamp of the search."""
    labels = scratch.forward
    scratch.stamp[0] += 1
    number = scratch.stamp[0]
    reached, settled = 2 * number, 2 * number + 1
    marks = stamp, settled, 2 * stamp + 1
    _label_ends(graph, graph.succ_offset, graph.succ, labels, a, reached)
    size = n = 0
    for i in range(len(a.segment)):
        for k in range(graph.succ_offset[a.segment[i]], graph.succ_offset[a.segment[i] + 1]):
            f = graph.succ[k]
            if labels.end[f] == i:
                key = labels.seconds[f] + _left(graph, scratch, b, stamp, f)
                if key <= level:
                    size = push(labels.keys, labels.items, size, key, f)
    while n < rules.most:
        while size > 0 and labels.mark[labels.items[0]] == settled:
            size = pop(labels.keys, labels.items, size)
        if size == 0:
            break
        e = labels.items[0]
        size = pop(labels.keys, labels.items, size)
        labels.mark[e] = settled
        n = _note(graph, scratch, marks, a, b, e, n, level, top_m, rules.back_m)
        seconds, metres = labels.seconds[e] + graph.cost[e], labels.metres[e] + graph.length[e]
        for k in range(graph.succ_offset[e], graph.succ_offset[e + 1]):
            f = graph.succ[k]
            if labels.mark[f] == settled or (labels.mark[f] == reached and seconds >= labels.seconds[f]):
                continue
            key = seconds + _left(graph, scratch, b, stamp, f)
            if key <= level:
                labels.mark[f] = reached
                labels.seconds[f] = seconds
                labels.metres[f] = metres
                labels.end[f] = labels.end[e]
                size = push(labels.keys, labels.items, size, key, f)
    for e in a.segment:  # one need not come to where one is
        n = _note(graph, scratch, marks, a, b, e, n, level, top_m, rules.back_m)
    return n, number


@njit(cache=True, nogil=True)
def _note(
    graph: Graph,
    scratch: Scratch,
    marks: tuple[int, int, int],
    a: Ends,
    b: Ends,
    e: int,
    n: int,
    level: float,
    top_m: float,
    back_m: float,
) -> int:  # pragma: no cover  (compiled)
    """Note a segment as found if its best way is within the limits; return how many there are now."""
    if e >= graph.n_roads or scratch.is_found[e] == marks[1]:
        return n
    way = _way(graph, scratch, marks, a, b, e, back_m)
    if way.total <= level and way.before_m + graph.length[e] + way.after_m <= top_m:
        scratch.is_found[e] = marks[1]
        scratch.found[n] = e
        scratch.total[n] = way.total
        n += 1
    return n


@njit(cache=True, nogil=True)
def _spread(
    graph: Graph,
    scratch: Scratch,
    turns: tuple[Ints, Segments],
    labels: Labels,
    ends: Ends,
    number: int,
    limit: float,
    foci: tuple[float, float, float, float],
    n: int,
) -> int:  # pragma: no cover  (compiled)
    """Find everything within ``limit`` seconds of the ends and inside the ellipse about two points (Dijkstra).

    ``turns`` are offsets and neighbours to go to. Return how many segments are found now.
    """
    offset, neighbour = turns
    ax, ay, bx, by = foci
    widest = ELLIPSE * np.hypot(bx - ax, by - ay) + ELLIPSE_M
    reached, settled = 2 * number, 2 * number + 1
    _label_ends(graph, offset, neighbour, labels, ends, reached)
    size = 0
    for i in range(len(ends.segment)):
        n = _note_half(graph, scratch, ends.segment[i], number, n)
        for k in range(offset[ends.segment[i]], offset[ends.segment[i] + 1]):
            if labels.end[neighbour[k]] == i:
                size = push(labels.keys, labels.items, size, labels.seconds[neighbour[k]], neighbour[k])
    while size > 0 and labels.keys[0] <= limit:
        e = labels.items[0]
        size = pop(labels.keys, labels.items, size)
        x, y = (graph.x[e] + graph.end_x[e]) / 2, (graph.y[e] + graph.end_y[e]) / 2
        if labels.mark[e] == settled or np.hypot(x - ax, y - ay) + np.hypot(x - bx, y - by) > widest:
            continue
        labels.mark[e] = settled
        n = _note_half(graph, scratch, e, number, n)
        seconds, metres = labels.seconds[e] + graph.cost[e], labels.metres[e] + graph.length[e]
        for k in range(offset[e], offset[e + 1]):
            f = neighbour[k]
            if labels.mark[f] < reached or (labels.mark[f] == reached and seconds < labels.seconds[f]):
                labels.mark[f] = reached
                labels.seconds[f] = seconds
                labels.metres[f] = metres
                labels.end[f] = labels.end[e]
                size = push(labels.keys, labels.items, size, seconds, f)
    return n


@njit(cache=True, nogil=True)
def _note_half(graph: Graph, scratch: Scratch, e: int, number: int, n: int) -> int:  # pragma: no cover  (compiled)
    """Note a segment as found from one side; return how many there are now."""
    if e < graph.n_roads and scratch.is_found[e] != 2 * number + 1:
        scratch.is_found[e] = 2 * number + 1
        scratch.found[n] = e
        n += 1
    return n


# ---------------------------------------------------------------------- one gap, many gaps


@njit(cache=True, nogil=True)
def _standing(graph: Graph, a: Ends, b: Ends, back_m: float) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return seconds and metres of the best way that stays on one segment; inf where there is none."""
    best_s, best_m = np.inf, 0.0
    for i in range(len(a.segment)):
        for j in range(len(b.segment)):
            e = a.segment[i]
            if b.segment[j] == e and a.own_m[i] + graph.length[e] + b.own_m[j] >= -back_m:
                seconds = max(a.own_s[i] + graph.cost[e] + b.own_s[j], a.extra_s[i] + b.extra_s[j])
                if seconds < best_s:
                    best_s, best_m = seconds, max(a.own_m[i] + graph.length[e] + b.own_m[j], 0.0)
    return best_s, best_m


@njit(cache=True, nogil=True)
def _write(
    graph: Graph,
    scratch: Scratch,
    marks: tuple[int, int, int],
    a: Ends,
    b: Ends,
    n: int,
    whole: bool,
    rules: Rules,
    out: Out,
    size: int,
) -> int:  # pragma: no cover  (compiled)
    """Write the best of ``n`` found segments behind the first ``size``, and return how many there are then."""
    keys, items = scratch.forward.keys, scratch.forward.items
    waiting = 0
    for k in range(n):
        waiting = push(keys, items, waiting, scratch.total[k], scratch.found[k])
    for _ in range(min(n, rules.most)):
        e = items[0]
        waiting = pop(keys, items, waiting)
        if whole:
            way = _way(graph, scratch, marks, a, b, e, rules.back_m)
        else:
            way = _half_way(graph, scratch, marks, a, b, e)
        out.segment[size] = e
        out.before_s[size], out.before_m[size] = way.before_s, way.before_m
        out.after_s[size], out.after_m[size] = way.after_s, way.after_m
        out.from_a[size], out.from_b[size] = way.a, way.b
        out.reached[size] = way.reached
        size += 1
    return size


@njit(cache=True, nogil=True)
def _go_both_ways(
    graph: Graph, scratch: Scratch, a: Ends, b: Ends, stamp: int, seconds: float, rules: Rules
) -> tuple[int, int]:  # pragma: no cover  (compiled)
    """Find what can be reached from either side; return how many segments, and the stamp of the searches."""
    scratch.stamp[0] += 1
    number = scratch.stamp[0]
    foci = a.x.mean(), a.y.mean(), b.x.mean(), b.y.mean()
    limit = rules.reach_share * seconds
    succ, pred = (graph.succ_offset, graph.succ), (graph.pred_offset, graph.pred)
    n = _spread(graph, scratch, succ, scratch.forward, a, number, limit + a.extra_s.min(), foci, 0)
    n = _spread(graph, scratch, pred, scratch.backward, b, number, limit + b.extra_s.min(), foci, n)
    marks = stamp, 2 * number + 1, 2 * number + 1
    for k in range(n):
        scratch.total[k] = _half_way(graph, scratch, marks, a, b, scratch.found[k]).total
    return n, number


@njit(cache=True, nogil=True)
def _search_gap(
    graph: Graph, scratch: Scratch, a: Ends, b: Ends, seconds: float, rules: Rules, out: Out, size: int
) -> tuple[int, float]:  # pragma: no cover  (compiled)
    """Write the segments of a gap behind the first ``size``; return how many there are then, and the least total."""
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    scratch.is_a[a.segment] = stamp
    scratch.is_b[b.segment] = stamp
    top_m = rules.top_mps * seconds + rules.slack_m
    horizon = rules.horizon_share * seconds + rules.horizon_s + a.extra_s.min() + b.extra_s.min()
    base = _base(graph, a)
    best_s, best_m = _standing(graph, a, b, rules.back_m)
    waiting = _start_backward(graph, scratch, base, b, 2 * stamp, horizon)
    quota = FIRST * rules.most
    while True:
        limits = horizon, rules.band_s, rules.band_share
        waiting, best_s, best_m, level = _go_backward(
            graph, scratch, base, a, stamp, waiting, quota, (best_s, best_m), limits
        )
        if best_s == np.inf or best_m > top_m:
            n, number = _go_both_ways(graph, scratch, a, b, stamp, seconds, rules)
            marks = stamp, 2 * number + 1, 2 * number + 1
            return _write(graph, scratch, marks, a, b, n, False, rules, out, size), np.inf
        n, number = _go_forward(graph, scratch, a, b, stamp, level, top_m, rules)
        if n >= rules.most or waiting == 0:
            marks = stamp, 2 * number + 1, 2 * stamp + 1
            return _write(graph, scratch, marks, a, b, n, True, rules, out, size), best_s
        quota *= 2


@njit(cache=True, nogil=True)
def search_gaps(
    graph: Graph,
    scratch: Scratch,
    a_offset: Ints,
    a: Ends,
    b_offset: Ints,
    b: Ends,
    seconds: Floats,
    rules: Rules,
    out: Out,
    count: Ints,
    best_s: Floats,
) -> int:  # pragma: no cover  (compiled)
    """Write the segments of all gaps one after another, the number of each and its least total; return how many."""
    size = 0
    for g in range(len(seconds)):
        before = size
        best_s[g] = np.inf
        i, j = slice(a_offset[g], a_offset[g + 1]), slice(b_offset[g], b_offset[g + 1])
        if i.start < i.stop and j.start < j.stop:
            size, best_s[g] = _search_gap(graph, scratch, _part(a, i), _part(b, j), seconds[g], rules, out, size)
        count[g] = size - before
    return size


@njit(cache=True, nogil=True)
def _part(ends: Ends, part: slice) -> Ends:  # pragma: no cover  (compiled)
    return Ends(ends.segment[part], ends.own_s[part], ends.own_m[part], ends.extra_s[part], ends.x[part], ends.y[part])
