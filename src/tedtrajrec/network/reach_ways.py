"""What the searches of :mod:`tedtrajrec.network.reach` read and write, and the best way over one segment.

A label is the cost of the best way from an end of the gap: forwards to the start of a segment, backwards from its end.
Labels belong to segments one *comes* to. An end's own segment, where the way begins in the middle, has a cost of its
own (its start lies behind), so that a way round the block back to it is another one than staying on it.

What is read together lies together, as records: searches wait for memory more than for anything else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.heap import pop, push

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]
Records = NDArray[Any]

FORWARD, BACKWARD = 1, 2  # bits of ``reached``
DETOUR = 1.3  # of a way that the map lacks, over the straight line

ROAD = np.dtype(
    [
        ("cost", np.float64),  # seconds
        ("length", np.float64),  # metres
        ("succ", np.int32),  # its first turn among all; the next segment has the end
        ("pred", np.int32),
        ("x", np.float32),  # start on the network's plane
        ("y", np.float32),
        ("end_x", np.float32),
        ("end_y", np.float32),
    ]
)
LABEL = np.dtype(
    [
        ("mark", np.int64),  # 2 x stamp: has a label; 2 x stamp + 1: settled; stamps tell searches from each other
        ("seconds", np.float64),
        ("bound", np.float64),  # cost of the segment and least cost of what is left beyond it
        ("metres", np.float32),
        ("end", np.int32),  # number of the end, within the gap, that the way comes from
    ]
)
ROLE = np.dtype(
    [
        ("a", np.int64),  # stamp of the gap whose earlier fix may be on the segment
        ("b", np.int64),  # the same of the later fix
        ("found", np.int64),  # stamp of the search without a way that found it
    ]
)


class Graph(NamedTuple):
    """The segment graph as the searches read it."""

    road: Records  # [S+1] ROAD
    succ: Segments
    pred: Segments
    height: Reals  # [S, 2L] see landmarks.landmark_heights
    n_roads: int  # segments from here on are links
    per_metre: float  # typical seconds of a metre


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


class Ends(NamedTuple):
    """E positions where one fix may be: of one gap, or of all together."""

    segment: Segments  # [E]
    own_s: Floats  # [E] cost from the position back to the start of its segment (b: on to its end), with a minus
    own_m: Floats  # [E] the same in metres
    extra_s: Floats  # [E] what an unlikely position pays; part of own_s
    x: Floats  # [E] on the network's plane
    y: Floats  # [E]


class Scratch(NamedTuple):
    """Working memory of one thread."""

    forward: Records  # [S] LABEL
    backward: Records  # [S] LABEL
    role: Records  # [S] ROLE
    keys: Floats  # [E + S + 1] heap of the backward search, which rests while the forward search is on
    items: Segments
    other_keys: Floats  # [E + S + 1] heap of the forward search
    other_items: Segments
    found: Segments  # [S]
    total: Floats  # [S] of the found segments
    stamp: Ints  # [1] number of the last search


class Marks(NamedTuple):
    """Marks of one gap."""

    role: int
    came: int  # settled by the forward search
    goes: int  # settled by the backward search


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


def new_scratch(n_segments: int, n_turns: int) -> Scratch:
    """Return working memory; a heap has room for every turn and for those out of the ends."""
    room = n_turns + n_segments + 1
    return Scratch(
        forward=np.zeros(n_segments, LABEL),
        backward=np.zeros(n_segments, LABEL),
        role=np.zeros(n_segments, ROLE),
        keys=np.empty(room),
        items=np.empty(room, np.int32),
        other_keys=np.empty(room),
        other_items=np.empty(room, np.int32),
        found=np.empty(n_segments, np.int32),
        total=np.empty(n_segments),
        stamp=np.zeros(1, np.int64),
    )


def new_out(size: int) -> Out:
    """Return empty room for so many segments."""
    return Out(
        segment=np.empty(size, np.int32),
        before_s=np.empty(size, np.float32),
        before_m=np.empty(size, np.float32),
        after_s=np.empty(size, np.float32),
        after_m=np.empty(size, np.float32),
        from_a=np.empty(size, np.int16),
        from_b=np.empty(size, np.int16),
        reached=np.empty(size, np.uint8),
    )


@njit(cache=True, nogil=True)
def way_over(
    graph: Graph, scratch: Scratch, marks: Marks, a: Ends, b: Ends, e: int, back_m: float
) -> Way:  # pragma: no cover  (compiled)
    """Return the best way over segment ``e``; backwards on it by at most ``back_m`` is standing still."""
    came, goes, role = scratch.forward[e], scratch.backward[e], scratch.role[e]
    cost, length = graph.road[e]["cost"], graph.road[e]["length"]
    best = Way(np.inf, 0.0, 0.0, 0.0, 0.0, 0, 0, FORWARD | BACKWARD)
    n_a = len(a.segment) if role["a"] == marks.role else 0
    n_b = len(b.segment) if role["b"] == marks.role else 0
    for i in range(-1, n_a):  # -1: the way comes from elsewhere
        if i < 0:
            if came["mark"] != marks.came:
                continue
            before_s, before_m, end_a = came["seconds"], float(came["metres"]), int(came["end"])
        else:
            if a.segment[i] != e:
                continue
            before_s, before_m, end_a = a.own_s[i], a.own_m[i], i
        for j in range(-1, n_b):
            if j < 0:
                if goes["mark"] != marks.goes:
                    continue
                after_s, after_m, end_b = goes["seconds"], float(goes["metres"]), int(goes["end"])
            else:
                if b.segment[j] != e:
                    continue
                after_s, after_m, end_b = b.own_s[j], b.own_m[j], j
            total = before_s + cost + after_s
            if i >= 0 and j >= 0:
                if before_m + length + after_m < -back_m:
                    continue  # nobody reverses: such a way leads round to the segment again
                total = max(total, a.extra_s[i] + b.extra_s[j])
            if total < best.total:
                best = Way(total, before_s, before_m, after_s, after_m, end_a, end_b, FORWARD | BACKWARD)
    return best


@njit(cache=True, nogil=True)
def half_way_over(
    graph: Graph, scratch: Scratch, marks: Marks, a: Ends, b: Ends, e: int
) -> Way:  # pragma: no cover  (compiled)
    """Return the best way over segment ``e`` where one side of it is a road that the map lacks."""
    came, goes, role, road = scratch.forward[e], scratch.backward[e], scratch.role[e], graph.road[e]
    best = Way(np.inf, 0.0, 0.0, 0.0, 0.0, 0, 0, 0)

    known_s, known_m, end = np.inf, 0.0, 0
    if came["mark"] == marks.came:
        known_s, known_m, end = came["seconds"], float(came["metres"]), int(came["end"])
    if role["a"] == marks.role:
        for i in range(len(a.segment)):
            if a.segment[i] == e and a.own_s[i] < known_s:
                known_s, known_m, end = a.own_s[i], a.own_m[i], i
    if known_s < np.inf:
        for j in range(len(b.segment)):
            metres = DETOUR * np.hypot(b.x[j] - road["end_x"], b.y[j] - road["end_y"])
            seconds = metres * graph.per_metre + b.extra_s[j]
            if known_s + road["cost"] + seconds < best.total:
                best = Way(known_s + road["cost"] + seconds, known_s, known_m, seconds, metres, end, j, FORWARD)

    known_s, known_m, end = np.inf, 0.0, 0
    if goes["mark"] == marks.goes:
        known_s, known_m, end = goes["seconds"], float(goes["metres"]), int(goes["end"])
    if role["b"] == marks.role:
        for j in range(len(b.segment)):
            if b.segment[j] == e and b.own_s[j] < known_s:
                known_s, known_m, end = b.own_s[j], b.own_m[j], j
    if known_s < np.inf:
        for i in range(len(a.segment)):
            metres = DETOUR * np.hypot(a.x[i] - road["x"], a.y[i] - road["y"])
            seconds = metres * graph.per_metre + a.extra_s[i]
            if known_s + road["cost"] + seconds < best.total:
                best = Way(known_s + road["cost"] + seconds, seconds, metres, known_s, known_m, i, end, BACKWARD)
    return best


@njit(cache=True, nogil=True)
def way_on_one(graph: Graph, a: Ends, b: Ends, back_m: float) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return seconds and metres of the best way that stays on one segment; inf where there is none."""
    best_s, best_m = np.inf, 0.0
    for i in range(len(a.segment)):
        for j in range(len(b.segment)):
            if a.segment[i] == b.segment[j]:
                road = graph.road[a.segment[i]]
                metres = a.own_m[i] + road["length"] + b.own_m[j]
                seconds = max(a.own_s[i] + road["cost"] + b.own_s[j], a.extra_s[i] + b.extra_s[j])
                if metres >= -back_m and seconds < best_s:
                    best_s, best_m = seconds, max(metres, 0.0)
    return best_s, best_m


@njit(cache=True, nogil=True)
def write_best(
    graph: Graph,
    scratch: Scratch,
    marks: Marks,
    a: Ends,
    b: Ends,
    n: int,
    whole: bool,
    rules: Rules,
    out: Out,
    size: int,
) -> int:  # pragma: no cover  (compiled)
    """Write the best of ``n`` found segments behind the first ``size``, and return how many there are then."""
    keys, items = scratch.keys, scratch.items
    waiting = 0
    for k in range(n):
        waiting = push(keys, items, waiting, scratch.total[k], scratch.found[k])
    for _ in range(min(n, rules.most)):
        e = items[0]
        waiting = pop(keys, items, waiting)
        if whole:
            way = way_over(graph, scratch, marks, a, b, e, rules.back_m)
        else:
            way = half_way_over(graph, scratch, marks, a, b, e)
        out.segment[size] = e
        out.before_s[size], out.before_m[size] = way.before_s, way.before_m
        out.after_s[size], out.after_m[size] = way.after_s, way.after_m
        out.from_a[size], out.from_b[size] = way.a, way.b
        out.reached[size] = way.reached
        size += 1
    return size
