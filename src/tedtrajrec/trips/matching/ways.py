"""Ways between segments: the cheapest from the end of one segment to the start of another.

A way costs metres, more on slow roads and for U-turns; its metres and seconds are kept beside its cost. Nothing is
searched twice: the network is prepared once (:mod:`tedtrajrec.trips.matching.hierarchy`), and then the cost between any
two segments is read from their labels (:mod:`tedtrajrec.trips.matching.labels`). Where there was no room for the label
of a segment, a search climbs from it to those that have one, and their labels are read with what it costs to get there.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit
from numpy.typing import NDArray

from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.splitmix import mixed, unit
from tedtrajrec.trips.matching.hierarchy import Hierarchy, build_hierarchy
from tedtrajrec.trips.matching.labels import ROOM, Labels, build_labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Records = NDArray[Any]

UNIQUE = 1e-6  # share by which costs are varied, so that of equally long ways one is the cheapest
GRAIN = 2.0**-30  # costs are multiples of this: sums of up to 8,000 km are exact, in whatever order they are made
LEAVING, ENTERING = range(2)  # direction of a climb: along the way, or against it
FEW = 64  # targets there is room for beforehand

STEP = np.dtype(
    [
        ("place", np.int32),
        ("before", np.int32),  # the step before and the arc from there; -1 for the first of a climb
        ("arc", np.int32),
        ("cost", np.float64),  # from the start of the climb
        ("metres", np.float64),
        ("seconds", np.float64),
    ],
    align=True,
)
STEP_TYPE: Any = from_dtype(STEP)
HUB = np.dtype(
    [
        ("cost", np.float64),  # from the start of the source; inf for what is no hub of it
        ("entry", np.int64),  # what says so: an entry of the label
        ("step", np.int32),  # of a step of the climb
    ],
    align=True,
)
SEEN = np.dtype([("climb", np.int64), ("step", np.int32)], align=True)  # the last climb there, and its step


class Roads(NamedTuple):
    """The segment graph, prepared for finding ways."""

    succ_offset: Ints  # [S+1]
    succ: Segments
    turn_cost: Floats  # of each successor
    length: Floats  # [S] metres
    cost: Floats  # [S] of driving it whole
    seconds: Floats  # [S] at free flow
    hierarchy: Hierarchy
    labels: Labels


class Climbs(NamedTuple):
    """Climbs from the starts of segments to segments with labels; a segment that has one is a climb of one step."""

    offset: Ints  # climb j has the steps offset[j]:offset[j + 1]
    step: Records  # STEP


class Scratch(NamedTuple):
    """Working memory of one thread."""

    hub: Records  # [S] HUB, by place
    seen: Records  # [S] SEEN, by place
    n_climbs: Ints  # [1] number of the last climb
    keys: Floats  # [S] heap
    items: Segments  # [S]
    arcs: Segments  # [S + 1] of a way that is traced
    source: Climbs  # room for the climbs of one question, as long as they are few
    targets: Climbs


def new_roads(network: RoadNetwork, u_turn_m: float, speed_power: float, room: int = ROOM) -> Roads:
    """Return the graph of a network.

    Parameters
    ----------
    u_turn_m
        What a U-turn costs; there are U-turns only where the network has them.
    speed_power
        The cost of a metre falls with this power of the speed; on average over the network it is 1.
    room
        For how many entries of labels there is room.
    """
    segment = np.arange(network.n_segments)
    source = np.repeat(segment, np.diff(network.succ_offset))
    speed = network.speed_mps.astype(np.float64)
    cost = network.length_m * speed**-speed_power * (1 + UNIQUE * _chance(segment))
    cost *= network.length_m.sum() / cost.sum()
    cost = np.round(cost / GRAIN) * GRAIN
    seconds = network.length_m / speed
    turn_cost = np.where(network.succ == network.twin[source], np.round(u_turn_m / GRAIN) * GRAIN, 0.0)
    arcs = cost[source] + turn_cost, network.length_m[source] + turn_cost, seconds[source]
    hierarchy = build_hierarchy(network.succ_offset, network.succ, arcs)
    return Roads(
        network.succ_offset,
        network.succ,
        turn_cost,
        network.length_m,
        cost,
        seconds,
        hierarchy,
        build_labels(hierarchy, room),
    )


def new_scratch(n_segments: int) -> Scratch:
    """Return working memory for one thread."""
    hub = np.zeros(n_segments, HUB)
    hub["cost"] = np.inf
    return Scratch(
        hub=hub,
        seen=np.zeros(n_segments, SEEN),
        n_climbs=np.zeros(1, np.int64),
        keys=np.empty(n_segments),
        items=np.empty(n_segments, np.int32),
        arcs=np.empty(n_segments + 1, np.int32),
        source=_new_climbs(FEW),
        targets=_new_climbs(FEW),
    )


@njit(cache=True, nogil=True)
def _new_climbs(n: int) -> Climbs:  # pragma: no cover  (compiled)
    """Return room for ``n`` climbs of a few steps each."""
    return Climbs(np.zeros(n + 1, np.int64), np.empty(4 * n, STEP_TYPE))


@njit(cache=True, nogil=True)
def _chance(numbers: Ints) -> Floats:  # pragma: no cover  (compiled)
    """Return numbers of 0 to 1 that look random and depend on the given ones alone."""
    out = np.empty(len(numbers))
    for i in range(len(numbers)):
        out[i] = unit(mixed(np.uint64(numbers[i])))
    return out


@njit(cache=True, nogil=True, inline="always")
def _begin(climbs: Climbs, j: int, place: int) -> None:  # pragma: no cover  (compiled)
    """Start climb ``j`` at the start of a segment; the one before must be done."""
    size = climbs.offset[j]
    climbs.offset[j + 1] = size + 1
    first = climbs.step[size]
    first.place, first.before, first.arc = place, -1, -1
    first.cost, first.metres, first.seconds = 0.0, 0.0, 0.0


@njit(cache=True, nogil=True)
def _longer(climbs: Climbs) -> Climbs:  # pragma: no cover  (compiled)
    size = len(climbs.step)
    step = np.empty(2 * size, STEP_TYPE)
    step[:size] = climbs.step
    return Climbs(climbs.offset, step)


@njit(cache=True, nogil=True)
def _climb_on(
    roads: Roads, scratch: Scratch, climbs: Climbs, j: int, direction: int
) -> Climbs:  # pragma: no cover  (compiled)
    """Continue climb ``j``, the last one, from its first step until all segments reached have labels.

    Places are left in order of importance, so what is left can no longer become cheaper.
    """
    up, n_complete = roads.hierarchy, roads.labels.n_complete
    seen, keys, items = scratch.seen, scratch.keys, scratch.items
    number = scratch.n_climbs[0] + 1
    scratch.n_climbs[0] = number
    size = climbs.offset[j + 1]
    p = climbs.step[size - 1].place
    seen[p].step = size - 1
    waiting = push(keys, items, 0, -float(p), p)
    while waiting > 0:
        p = items[0]
        waiting = pop(keys, items, waiting)
        here = seen[p].step
        for a in range(up.offset[2 * p + direction], up.offset[2 * p + direction + 1]):
            arc = up.arc[a]
            q = arc.upper
            cost = climbs.step[here].cost + arc.cost
            if seen[q].climb != number:
                if size + len(climbs.offset) > len(climbs.step):
                    climbs = _longer(climbs)  # there is always room for the first steps of the climbs to come
                seen[q].climb, seen[q].step = number, size
                size += 1
                if q >= n_complete:
                    waiting = push(keys, items, waiting, -float(q), q)
            elif cost >= climbs.step[seen[q].step].cost:
                continue
            step = climbs.step[seen[q].step]
            step.place, step.before, step.arc, step.cost = q, here, a, cost
            step.metres = climbs.step[here].metres + arc.metres
            step.seconds = climbs.step[here].seconds + arc.seconds
    climbs.offset[j + 1] = size
    return climbs


@njit(cache=True, nogil=True, inline="always")
def _spread(labels: Labels, hub: Records, source: Climbs, limit: float) -> None:  # pragma: no cover  (compiled)
    """Note what each hub within ``limit`` costs from the start of the source."""
    for k in range(source.offset[1]):
        label = 2 * source.step[k].place + LEAVING
        for e in range(labels.offset[label], labels.offset[label + 1]):
            cost = source.step[k].cost + labels.entry[e].cost
            if cost > limit:
                break  # entries are sorted by cost
            at = hub[labels.entry[e].hub]
            if cost < at.cost:
                at.cost, at.entry, at.step = cost, e, k


@njit(cache=True, nogil=True, inline="always")
def _forget(labels: Labels, hub: Records, source: Climbs, limit: float) -> None:  # pragma: no cover  (compiled)
    """Undo :func:`_spread`."""
    for k in range(source.offset[1]):
        label = 2 * source.step[k].place + LEAVING
        for e in range(labels.offset[label], labels.offset[label + 1]):
            if source.step[k].cost + labels.entry[e].cost > limit:
                break
            hub[labels.entry[e].hub].cost = np.inf


@njit(cache=True, nogil=True, inline="always")
def _meet(
    labels: Labels, hub: Records, targets: Climbs, j: int, limit: float
) -> tuple[int, int]:  # pragma: no cover  (compiled)
    """Return over which entry of which step the cheapest way to target ``j`` leads; -1 for none within ``limit``."""
    best, best_entry, best_step = limit, -1, -1
    for k in range(targets.offset[j], targets.offset[j + 1]):
        label = 2 * targets.step[k].place + ENTERING
        for e in range(labels.offset[label], labels.offset[label + 1]):
            cost = targets.step[k].cost + labels.entry[e].cost
            if cost > best:
                break
            cost += hub[labels.entry[e].hub].cost
            if cost <= best:
                best, best_entry, best_step = cost, e, k
    return best_entry, best_step


@njit(cache=True, nogil=True, inline="always")
def _driven(
    labels: Labels, hub: Records, source: Climbs, targets: Climbs, e: int, k: int
) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return metres and seconds from the start of the source over an entry of step ``k`` to the target."""
    at = hub[labels.entry[e].hub]
    up, down = source.step[at.step], targets.step[k]
    metres = up.metres + labels.driven[at.entry, 0] + (labels.driven[e, 0] + down.metres)
    seconds = up.seconds + labels.driven[at.entry, 1] + (labels.driven[e, 1] + down.seconds)
    return metres, seconds


@njit(cache=True, nogil=True)
def aim(roads: Roads, scratch: Scratch, targets: Segments) -> Climbs:  # pragma: no cover  (compiled)
    """Return the targets of :func:`find_ways`, which hold until the next are aimed at."""
    climbs = scratch.targets
    if len(targets) >= len(climbs.offset):
        climbs = _new_climbs(len(targets))
    for j in range(len(targets)):
        p = roads.hierarchy.place[targets[j]]
        _begin(climbs, j, p)
        if p >= roads.labels.n_complete:
            climbs = _climb_on(roads, scratch, climbs, j, ENTERING)
    return climbs


@njit(cache=True, nogil=True, inline="always")
def _leave(roads: Roads, scratch: Scratch, source: int) -> Climbs:  # pragma: no cover  (compiled)
    """Return the climb from the start of a source."""
    climbs = scratch.source
    p = roads.hierarchy.place[source]
    _begin(climbs, 0, p)
    if p >= roads.labels.n_complete:
        climbs = _climb_on(roads, scratch, climbs, 0, LEAVING)
    return climbs


@njit(cache=True, nogil=True)
def find_ways(
    roads: Roads, scratch: Scratch, source: int, targets: Climbs, room: Floats, metres: Floats, seconds: Floats
) -> None:  # pragma: no cover  (compiled)
    """Fill in metres and seconds of the way from ``source`` to each target; inf where none costs at most its room.

    A target whose room is negative is left as it is.
    """
    most = -1.0
    for j in range(len(room)):
        most = max(most, room[j])
    if most < 0.0:
        return
    labels, hub = roads.labels, scratch.hub
    before = roads.cost[source]  # labels say what it costs from the start of the source
    start = _leave(roads, scratch, source)
    _spread(labels, hub, start, before + most)
    loop = -1
    for j in range(len(room)):
        if room[j] < 0.0:
            continue
        if targets.step[targets.offset[j]].place == start.step[0].place:
            loop = j
            continue
        e, k = _meet(labels, hub, targets, j, before + room[j])
        if k >= 0:
            metres[j], seconds[j] = _driven(labels, hub, start, targets, e, k)
            metres[j] -= roads.length[source]
            seconds[j] -= roads.seconds[source]
        else:
            metres[j] = seconds[j] = np.inf
    _forget(labels, hub, start, before + most)
    if loop >= 0:
        _, metres[loop], seconds[loop] = _find_loop(roads, scratch, source, targets, loop, room[loop])


@njit(cache=True, nogil=True)
def _find_loop(
    roads: Roads, scratch: Scratch, segment: int, targets: Climbs, j: int, room: float
) -> tuple[int, float, float]:  # pragma: no cover  (compiled)
    """Return the first segment, metres and seconds of the way from the end of a segment round to its start.

    Its start is target ``j``.
    """
    labels, hub = roads.labels, scratch.hub
    first, metres, seconds = -1, np.inf, np.inf
    for i in range(roads.succ_offset[segment], roads.succ_offset[segment + 1]):
        turn = roads.turn_cost[i]
        start = _leave(roads, scratch, roads.succ[i])
        _spread(labels, hub, start, np.inf)
        e, k = _meet(labels, hub, targets, j, room - turn)
        if k >= 0:
            first = roads.succ[i]
            room = turn + hub[labels.entry[e].hub].cost + (labels.entry[e].cost + targets.step[k].cost)
            metres, seconds = _driven(labels, hub, start, targets, e, k)
            metres += turn
        _forget(labels, hub, start, np.inf)
    return first, metres, seconds


@njit(cache=True, nogil=True, inline="always")
def trace_way(
    roads: Roads, scratch: Scratch, source: int, target: int, out: Segments, size: int
) -> tuple[Segments, int]:  # pragma: no cover  (compiled)
    """Append the segments of the way after ``source``, ``target`` included, to ``out[:size]``; there must be one.

    Return the list, longer where it had to grow, and its new size.
    """
    if _follows(roads.succ_offset, roads.succ, roads.turn_cost, source, target):
        out = _with_room(out, size)
        out[size] = target
        size += 1
    else:
        out, size = _trace(roads, scratch, source, target, out, size)
    return out, size


@njit(cache=True, nogil=True)
def _follows(
    succ_offset: Ints, succ: Segments, turn_cost: Floats, source: int, target: int
) -> bool:  # pragma: no cover  (compiled)
    """Return whether one simply drives on from the source to the target."""
    for i in range(succ_offset[source], succ_offset[source + 1]):
        if succ[i] == target:
            return bool(turn_cost[i] == 0.0)
    return False


@njit(cache=True, nogil=True)
def _trace(
    roads: Roads, scratch: Scratch, source: int, target: int, out: Segments, size: int
) -> tuple[Segments, int]:  # pragma: no cover  (compiled)
    labels, hub, arc = roads.labels, scratch.hub, roads.hierarchy.arc
    goal = aim(roads, scratch, np.full(1, target, np.int32))
    if source == target:
        source, _, _ = _find_loop(roads, scratch, source, goal, 0, np.inf)
        out = _with_room(out, size)
        out[size] = source
        size += 1
    start = _leave(roads, scratch, source)
    _spread(labels, hub, start, np.inf)
    e, k = _meet(labels, hub, goal, 0, np.inf)
    h = labels.entry[e].hub
    _forget(labels, hub, start, np.inf)
    # A stack of the arcs that are left to drive, the next on top.
    arcs = scratch.arcs
    n_down = _arcs_up(roads, goal, k, h, ENTERING, arcs)
    n = n_down + _arcs_up(roads, start, hub[h].step, h, LEAVING, arcs[n_down:])
    _reverse(arcs[n_down:n])
    while n > 0:
        n -= 1
        a = arcs[n]
        while arc[a].left >= 0:
            arcs[n] = arc[a].right
            n += 1
            a = arc[a].left
        out = _with_room(out, size)
        out[size] = arc[a].right
        size += 1
    return out, size


@njit(cache=True, nogil=True)
def _with_room(values: Segments, size: int) -> Segments:  # pragma: no cover  (compiled)
    """Return the values with room for one more than ``size``."""
    if size < len(values):
        return values
    longer = np.empty(2 * size + 1, np.int32)
    longer[:size] = values
    return longer


@njit(cache=True, nogil=True)
def _reverse(values: Segments) -> None:  # pragma: no cover  (compiled)
    for i in range(len(values) // 2):
        values[i], values[-1 - i] = values[-1 - i], values[i]


@njit(cache=True, nogil=True)
def _arcs_up(
    roads: Roads, climbs: Climbs, k: int, hub: int, direction: int, out: Segments
) -> int:  # pragma: no cover  (compiled)
    """Write the arcs from the start of a climb over its step ``k`` to a hub into ``out`` and return their number."""
    labels = roads.labels
    n = 0
    p = climbs.step[k].place
    while climbs.step[k].before >= 0:
        out[n] = climbs.step[k].arc
        n += 1
        k = climbs.step[k].before
    _reverse(out[:n])
    while p != hub:
        e = labels.offset[2 * p + direction]
        while labels.entry[e].hub != hub:
            e += 1
        out[n] = labels.entry[e].arc
        n += 1
        p = roads.hierarchy.arc[labels.entry[e].arc].upper
    return n
