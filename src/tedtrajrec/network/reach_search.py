"""Compiled searches of :mod:`tedtrajrec.network.reach`.

The backward search comes first. It is A* with landmark bounds on what is left to the earlier fix, so it settles
segments by a lower bound of their total. The forward search then knows what is left, so it settles segments by their
very total and stops after as many as are wanted. If the backward search stopped too early for that, it goes on, and the
forward search is done again.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.landmarks import UNIT
from tedtrajrec.network.reach_ways import (
    Ends,
    Floats,
    Graph,
    Ints,
    Marks,
    Out,
    Reals,
    Records,
    Rules,
    Scratch,
    Segments,
    half_way_over,
    way_on_one,
    way_over,
    write_best,
)

ELLIPSE, ELLIPSE_M = 1.3, 800.0  # where there is no way: how far about the straight line to look, times and plus metres
SLACK = 1e-9  # rounding must not reject a way of exactly the limit
FIRST = 3  # segments that the backward search settles before the forward search tries, times those wanted


# ---------------------------------------------------------------------- labels and bounds


@njit(cache=True, nogil=True)
def _set(label: Records, mark: int, seconds: float, metres: float, end: int) -> None:  # pragma: no cover  (compiled)
    label["mark"] = mark
    label["seconds"] = seconds
    label["metres"] = metres
    label["end"] = end


@njit(cache=True, nogil=True)
def _leave_ends(
    road: Records, first: Segments, turn: Segments, labels: Records, ends: Ends, reached: int
) -> None:  # pragma: no cover  (compiled)
    """Label all segments next to those of the ends; ``first`` and ``turn`` are those of the direction."""
    for i in range(len(ends.segment)):
        e = ends.segment[i]
        seconds, metres = ends.own_s[i] + road[e]["cost"], ends.own_m[i] + road[e]["length"]
        for k in range(first[e], first[e + 1]):
            label = labels[turn[k]]
            if label["mark"] < reached or seconds < label["seconds"]:
                _set(label, reached, seconds, metres, i)


@njit(cache=True, nogil=True)
def _base(graph: Graph, a: Ends) -> tuple[Reals, float]:  # pragma: no cover  (compiled)
    """Return what to take from the heights of a segment to bound the cost of a way to it from any of the ends.

    Beside it, return what a way costs at least where the heights say nothing.
    """
    base = np.full(graph.height.shape[1], -np.inf)
    for i in range(len(a.segment)):
        for k in range(len(base)):
            base[k] = max(base[k], graph.height[a.segment[i], k] - a.own_s[i])
    exact = np.empty(len(base), np.float32)
    for k in range(len(base)):
        exact[k] = np.ceil(base[k] / UNIT) * UNIT
    return exact, np.floor(a.own_s.min() / UNIT) * UNIT


@njit(cache=True, nogil=True, fastmath=True)  # the order of comparisons does not matter, so they may run side by side
def _bound(height: Reals, base: Reals, least: float) -> float:  # pragma: no cover  (compiled)
    """Return the least cost of a way to a segment of these heights."""
    most = np.float32(least)
    for k in range(len(base)):
        most = max(most, height[k] - base[k])
    return float(most)


# ---------------------------------------------------------------------- searches


@njit(cache=True, nogil=True)
def _start_backward(
    graph: Graph, scratch: Scratch, base: tuple[Reals, float], b: Ends, reached: int, limit: float
) -> int:  # pragma: no cover  (compiled)
    """Label what leads to the later fix; return the size of the heap."""
    road, labels = graph.road, scratch.backward
    _leave_ends(road, road["pred"], graph.pred, labels, b, reached)
    size = 0
    for j in range(len(b.segment)):
        for k in range(road[b.segment[j]]["pred"], road[b.segment[j] + 1]["pred"]):
            p = graph.pred[k]
            label = labels[p]
            if label["end"] == j:
                label["bound"] = _bound(graph.height[p], *base) + road[p]["cost"]
                key = label["seconds"] + label["bound"]
                if key <= limit:
                    size = push(scratch.keys, scratch.items, size, key, p)
    return size


@njit(cache=True, nogil=True)
def _go_backward(
    graph: Graph,
    scratch: Scratch,
    base: tuple[Reals, float],
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
    road, labels, keys, items = graph.road, scratch.backward, scratch.keys, scratch.items
    reached, settled = 2 * stamp, 2 * stamp + 1
    best_s, best_m = best
    horizon, band_s, band_share = limits
    limit = min(horizon, best_s + max(band_s, band_share * best_s)) * (1 + SLACK)
    while True:
        while size > 0 and labels[items[0]]["mark"] == settled:
            size = pop(keys, items, size)
        if size == 0 or keys[0] > limit:
            return 0, best_s, best_m, limit
        if quota <= 0 and keys[0] > best_s:
            return size, best_s, best_m, np.nextafter(keys[0], 0.0)
        e = items[0]
        size = pop(keys, items, size)
        quota -= 1
        label = labels[e]
        label["mark"] = settled
        end = label["end"]
        seconds, metres = label["seconds"] + road[e]["cost"], label["metres"] + road[e]["length"]
        if scratch.role[e]["a"] == stamp:
            for i in range(len(a.segment)):
                if a.segment[i] == e and a.own_s[i] + seconds < best_s:
                    best_s, best_m = a.own_s[i] + seconds, a.own_m[i] + metres
            limit = min(horizon, best_s + max(band_s, band_share * best_s)) * (1 + SLACK)
        for k in range(road[e]["pred"], road[e + 1]["pred"]):
            p = graph.pred[k]
            label = labels[p]
            if label["mark"] < reached:
                label["bound"] = _bound(graph.height[p], *base) + road[p]["cost"]
            elif label["mark"] == settled or seconds >= label["seconds"]:
                continue
            _set(label, reached, seconds, metres, end)
            if seconds + label["bound"] <= limit:
                size = push(keys, items, size, seconds + label["bound"], p)


@njit(cache=True, nogil=True)
def _left(graph: Graph, scratch: Scratch, b: Ends, stamp: int, e: int) -> float:  # pragma: no cover  (compiled)
    """Return the cost of a segment and of what is left behind it; inf where the backward search did not settle it."""
    label = scratch.backward[e]
    left = label["seconds"] if label["mark"] == 2 * stamp + 1 else np.inf
    if scratch.role[e]["b"] == stamp:
        for j in range(len(b.segment)):
            if b.segment[j] == e:
                left = min(left, b.own_s[j])
    return float(left + graph.road[e]["cost"])


@njit(cache=True, nogil=True)
def _go_forward(
    graph: Graph, scratch: Scratch, a: Ends, b: Ends, stamp: int, level: float, top_m: float, rules: Rules
) -> tuple[int, int]:  # pragma: no cover  (compiled)
    """Find the segments with the least totals up to ``level``; return how many, and the mark of settled labels."""
    road, labels, keys, items = graph.road, scratch.forward, scratch.other_keys, scratch.other_items
    scratch.stamp[0] += 1
    reached, settled = 2 * scratch.stamp[0], 2 * scratch.stamp[0] + 1
    marks = Marks(stamp, settled, 2 * stamp + 1)
    _leave_ends(road, road["succ"], graph.succ, labels, a, reached)
    size = n = 0
    for i in range(len(a.segment)):
        for k in range(road[a.segment[i]]["succ"], road[a.segment[i] + 1]["succ"]):
            f = graph.succ[k]
            if labels[f]["end"] == i:
                key = labels[f]["seconds"] + _left(graph, scratch, b, stamp, f)
                if key <= level:
                    size = push(keys, items, size, key, f)
    while n < rules.most:
        while size > 0 and labels[items[0]]["mark"] == settled:
            size = pop(keys, items, size)
        if size == 0:
            break
        e, total = items[0], keys[0]
        size = pop(keys, items, size)
        label, role = labels[e], scratch.role[e]
        label["mark"] = settled
        end = label["end"]
        seconds, metres = label["seconds"] + road[e]["cost"], label["metres"] + road[e]["length"]
        if e < graph.n_roads:
            if role["a"] == stamp or role["b"] == stamp:
                n = _note(graph, scratch, marks, a, b, e, n, level, top_m, rules.back_m)
            elif metres + scratch.backward[e]["metres"] <= top_m:
                scratch.found[n] = e
                scratch.total[n] = total
                n += 1
        for k in range(road[e]["succ"], road[e + 1]["succ"]):
            f = graph.succ[k]
            label = labels[f]
            if label["mark"] == settled or (label["mark"] == reached and seconds >= label["seconds"]):
                continue
            key = seconds + _left(graph, scratch, b, stamp, f)
            if key <= level:
                _set(label, reached, seconds, metres, end)
                size = push(keys, items, size, key, f)
    for i in range(len(a.segment)):  # one need not come to where one is
        e = a.segment[i]
        if labels[e]["mark"] != settled and (a.segment[:i] != e).all():
            n = _note(graph, scratch, marks, a, b, e, n, level, top_m, rules.back_m)
    return n, settled


@njit(cache=True, nogil=True)
def _note(
    graph: Graph,
    scratch: Scratch,
    marks: Marks,
    a: Ends,
    b: Ends,
    e: int,
    n: int,
    level: float,
    top_m: float,
    back_m: float,
) -> int:  # pragma: no cover  (compiled)
    """Note a segment as found if its best way is within the limits; return how many there are now."""
    way = way_over(graph, scratch, marks, a, b, e, back_m)
    if way.total <= level and way.before_m + graph.road[e]["length"] + way.after_m <= top_m:
        scratch.found[n] = e
        scratch.total[n] = way.total
        n += 1
    return n


@njit(cache=True, nogil=True)
def _spread(
    graph: Graph,
    scratch: Scratch,
    direction: tuple[Segments, Segments, Records],
    ends: Ends,
    stamp: int,
    limit: float,
    foci: tuple[float, float, float, float],
    n: int,
) -> int:  # pragma: no cover  (compiled)
    """Find all within ``limit`` seconds of the ends and inside the ellipse about two points (Dijkstra).

    ``direction`` are the first turn of each segment, all turns, and the labels. Return how many are found now.
    """
    first, turn, labels = direction
    road, keys, items = graph.road, scratch.keys, scratch.items
    ax, ay, bx, by = foci
    widest = ELLIPSE * np.hypot(bx - ax, by - ay) + ELLIPSE_M
    reached, settled = 2 * stamp, 2 * stamp + 1
    _leave_ends(road, first, turn, labels, ends, reached)
    size = 0
    for i in range(len(ends.segment)):
        n = _note_half(graph, scratch, stamp, ends.segment[i], n)
        for k in range(first[ends.segment[i]], first[ends.segment[i] + 1]):
            if labels[turn[k]]["end"] == i:
                size = push(keys, items, size, labels[turn[k]]["seconds"], turn[k])
    while size > 0 and keys[0] <= limit:
        e = items[0]
        size = pop(keys, items, size)
        x, y = (road[e]["x"] + road[e]["end_x"]) / 2, (road[e]["y"] + road[e]["end_y"]) / 2
        label = labels[e]
        if label["mark"] == settled or np.hypot(x - ax, y - ay) + np.hypot(x - bx, y - by) > widest:
            continue
        label["mark"] = settled
        n = _note_half(graph, scratch, stamp, e, n)
        seconds, metres, end = label["seconds"] + road[e]["cost"], label["metres"] + road[e]["length"], label["end"]
        for k in range(first[e], first[e + 1]):
            label = labels[turn[k]]
            if label["mark"] < reached or (label["mark"] == reached and seconds < label["seconds"]):
                _set(label, reached, seconds, metres, end)
                size = push(keys, items, size, seconds, turn[k])
    return n


@njit(cache=True, nogil=True)
def _note_half(graph: Graph, scratch: Scratch, stamp: int, e: int, n: int) -> int:  # pragma: no cover  (compiled)
    """Note a segment as found from one side; return how many there are now."""
    if e < graph.n_roads and scratch.role[e]["found"] != stamp:
        scratch.role[e]["found"] = stamp
        scratch.found[n] = e
        n += 1
    return n


@njit(cache=True, nogil=True)
def _go_both_ways(
    graph: Graph, scratch: Scratch, a: Ends, b: Ends, role: int, limit: float
) -> tuple[int, Marks]:  # pragma: no cover  (compiled)
    """Find what can be reached from either side within ``limit`` seconds; return how many segments, and the marks."""
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    foci = a.x.mean(), a.y.mean(), b.x.mean(), b.y.mean()
    succ = graph.road["succ"], graph.succ, scratch.forward
    pred = graph.road["pred"], graph.pred, scratch.backward
    n = _spread(graph, scratch, succ, a, stamp, limit + a.extra_s.min(), foci, 0)
    n = _spread(graph, scratch, pred, b, stamp, limit + b.extra_s.min(), foci, n)
    marks = Marks(role, 2 * stamp + 1, 2 * stamp + 1)
    for k in range(n):
        scratch.total[k] = half_way_over(graph, scratch, marks, a, b, scratch.found[k]).total
    return n, marks


# ---------------------------------------------------------------------- one gap, many gaps


@njit(cache=True, nogil=True)
def _search_gap(
    graph: Graph, scratch: Scratch, a: Ends, b: Ends, seconds: float, rules: Rules, out: Out, size: int
) -> tuple[int, float]:  # pragma: no cover  (compiled)
    """Write the segments of a gap behind the first ``size``; return how many there are then, and the least total."""
    scratch.stamp[0] += 1
    stamp = scratch.stamp[0]
    for e in a.segment:
        scratch.role[e]["a"] = stamp
    for e in b.segment:
        scratch.role[e]["b"] = stamp
    top_m = rules.top_mps * seconds + rules.slack_m
    horizon = rules.horizon_share * seconds + rules.horizon_s + a.extra_s.min() + b.extra_s.min()
    limits = horizon, rules.band_s, rules.band_share
    base = _base(graph, a)
    best_s, best_m = way_on_one(graph, a, b, rules.back_m)
    waiting = _start_backward(graph, scratch, base, b, 2 * stamp, horizon)
    quota = FIRST * rules.most
    while True:
        waiting, best_s, best_m, level = _go_backward(
            graph, scratch, base, a, stamp, waiting, quota, (best_s, best_m), limits
        )
        if best_s > horizon or best_m > top_m:
            n, marks = _go_both_ways(graph, scratch, a, b, stamp, rules.reach_share * seconds)
            return write_best(graph, scratch, marks, a, b, n, False, rules, out, size), np.inf
        n, settled = _go_forward(graph, scratch, a, b, stamp, level, top_m, rules)
        if n >= rules.most or waiting == 0:
            marks = Marks(stamp, settled, 2 * stamp + 1)
            return write_best(graph, scratch, marks, a, b, n, True, rules, out, size), best_s
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
        if a_offset[g] < a_offset[g + 1] and b_offset[g] < b_offset[g + 1]:
            here_a, here_b = _part(a, a_offset[g], a_offset[g + 1]), _part(b, b_offset[g], b_offset[g + 1])
            size, best_s[g] = _search_gap(graph, scratch, here_a, here_b, seconds[g], rules, out, size)
        count[g] = size - before
    return size


@njit(cache=True, nogil=True)
def _part(ends: Ends, i: int, j: int) -> Ends:  # pragma: no cover  (compiled)
    return Ends(ends.segment[i:j], ends.own_s[i:j], ends.own_m[i:j], ends.extra_s[i:j], ends.x[i:j], ends.y[i:j])
