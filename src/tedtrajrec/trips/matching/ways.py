"""Ways between segments: the cheapest from the end of one segment to the start of another.

A way costs metres, more on slow roads and for U-turns; its metres and seconds are kept beside its cost. The network is
prepared once (:mod:`tedtrajrec.trips.matching.hierarchy`), and then the cost between any two segments is read from
their labels (:mod:`tedtrajrec.trips.matching.labels`). Labels know what is near. Where a way may be longer, searches
climb from both ends to segments whose labels reach the middle (:mod:`tedtrajrec.trips.matching.climbs`), and theirs are
read with what it costs to get there. Nothing found is kept, so results do not depend on what was asked before.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.network.curve import along_curve
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.splitmix import mixed, unit
from tedtrajrec.trips.matching.climbs import ENTERING, LEAVING, Climbs, Search, begin, climb, new_climbs, new_search
from tedtrajrec.trips.matching.hierarchy import Hierarchy, build_hierarchy
from tedtrajrec.trips.matching.labels import MOST, Labels, build_labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Records = NDArray[Any]

UNIQUE = 1e-6  # share by which costs are varied, so that of equally long ways one is the cheapest
GRAIN = 2.0**-30  # costs are multiples of this: sums of up to 8,000 km are exact, in whatever order they are made
FAR = 1e18  # farther than any way
FARTHER = 8  # radii that are looked at first for a way of any length
FEW = 64  # targets there is room for beforehand

HUB = np.dtype(
    [
        ("cost", np.float64),  # from the start of the source; inf for what is no hub of it
        ("entry", np.int64),  # where that is said: an entry of the label
        ("step", np.int32),  # of a step of the climb
    ],
    align=True,
)


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


class Scratch(NamedTuple):
    """Working memory of one thread."""

    hub: Records  # [S] HUB, by place
    arcs: Segments  # [S + 1] of a way that is traced
    search: Search
    source: Climbs  # room for the first steps of one question
    targets: Climbs


class Way(NamedTuple):
    """The cheapest way from the start of a source to a target."""

    cost: float  # at most; exact where there is a way
    metres: float  # inf where there is none
    seconds: float
    hub: int  # its place; -1 where there is no way
    up: int  # step of the source's climb whose label has it
    down: int  # step of the target's climb


_prepared: WeakKeyDictionary[RoadNetwork, dict[tuple[float, float], Roads]] = WeakKeyDictionary()


def roads_of(network: RoadNetwork, u_turn_m: float, speed_power: float) -> Roads:
    """Return the graph of a network as :func:`new_roads` does; it is prepared once and kept as long as the network."""
    known = _prepared.setdefault(network, {})
    key = u_turn_m, speed_power
    if key not in known:
        known[key] = new_roads(network, u_turn_m, speed_power)
    return known[key]


def new_roads(network: RoadNetwork, u_turn_m: float, speed_power: float, most: int = MOST) -> Roads:
    """Return the graph of a network.

    Parameters
    ----------
    u_turn_m
        What a U-turn costs; there are U-turns only where the network has them.
    speed_power
        The cost of a metre falls with this power of the speed; on average over the network it is 1.
    most
        Entries of a label.
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
    hierarchy = build_hierarchy(network.succ_offset, network.succ, arcs, along_curve(network))
    labels = build_labels(hierarchy, most)
    return Roads(network.succ_offset, network.succ, turn_cost, network.length_m, cost, seconds, hierarchy, labels)


def new_scratch(n_segments: int) -> Scratch:
    """Return working memory for one thread."""
    hub = np.zeros(n_segments, HUB)
    hub["cost"] = np.inf
    arcs = np.empty(n_segments + 1, np.int32)
    return Scratch(hub, arcs, new_search(n_segments), new_climbs(1, 1), new_climbs(FEW, FEW))


@njit(cache=True, nogil=True)
def _chance(numbers: Ints) -> Floats:  # pragma: no cover  (compiled)
    """Return numbers of 0 to 1 that look random and depend on the given ones alone."""
    out = np.empty(len(numbers))
    for i in range(len(numbers)):
        out[i] = unit(mixed(np.uint64(numbers[i])))
    return out


@njit(cache=True, nogil=True)
def aim(roads: Roads, scratch: Scratch, targets: Segments) -> Climbs:  # pragma: no cover  (compiled)
    """Return the targets of :func:`find_ways`, which hold until others are aimed at."""
    climbs = scratch.targets
    if len(targets) >= len(climbs.offset):
        climbs = new_climbs(len(targets), len(targets))
    for j in range(len(targets)):
        begin(roads.labels, climbs, j, roads.hierarchy.place[targets[j]], ENTERING)
    return climbs


@njit(cache=True, nogil=True, inline="always")
def _leave(roads: Roads, scratch: Scratch, source: int) -> Climbs:  # pragma: no cover  (compiled)
    """Return the first step from the start of a source."""
    begin(roads.labels, scratch.source, 0, roads.hierarchy.place[source], LEAVING)
    return scratch.source


@njit(cache=True, nogil=True, inline="always")
def _sure(labels: Labels, source: Climbs, targets: Climbs, j: int) -> float:  # pragma: no cover  (compiled)
    """Return below which cost the labels of a source and of target ``j`` know all ways."""
    leaving = labels.radius[2 * source.step[0].place + LEAVING]
    entering = labels.radius[2 * targets.step[targets.offset[j]].place + ENTERING]
    return float(min(leaving, entering))


@njit(cache=True, nogil=True, inline="always")
def _spread(labels: Labels, hub: Records, source: Climbs, limit: float) -> None:  # pragma: no cover  (compiled)
    """Note what each hub within ``limit`` costs from the start of the source."""
    for k in range(source.offset[1]):
        first = labels.offset[2 * source.step[k].place + LEAVING]
        for e in range(first, first + source.step[k].entries):
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
        first = labels.offset[2 * source.step[k].place + LEAVING]
        for e in range(first, first + source.step[k].entries):
            if source.step[k].cost + labels.entry[e].cost > limit:
                break
            hub[labels.entry[e].hub].cost = np.inf


@njit(cache=True, nogil=True, inline="always")
def _meet(
    labels: Labels, hub: Records, source: Climbs, targets: Climbs, j: int, limit: float
) -> Way:  # pragma: no cover  (compiled)
    """Return the way to target ``j`` within ``limit``, once the hubs of the source are noted."""
    best, last, down = limit, -1, -1
    for k in range(targets.offset[j], targets.offset[j + 1]):
        first = labels.offset[2 * targets.step[k].place + ENTERING]
        for e in range(first, first + targets.step[k].entries):
            cost = targets.step[k].cost + labels.entry[e].cost
            if cost > best:
                break
            cost += hub[labels.entry[e].hub].cost
            if cost <= best:
                best, last, down = cost, e, k
    metres = seconds = np.inf
    h = up = -1
    if down >= 0:
        h = labels.entry[last].hub
        there, up = hub[h].entry, hub[h].step
        behind, ahead = source.step[up], targets.step[down]
        metres = behind.metres + labels.driven[there, 0] + (labels.driven[last, 0] + ahead.metres)
        seconds = behind.seconds + labels.driven[there, 1] + (labels.driven[last, 1] + ahead.seconds)
    return Way(best, metres, seconds, h, up, down)


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
    loop, farthest = -1, -1.0
    for j in range(len(room)):
        if room[j] < 0.0:
            continue
        if targets.step[j].place == start.step[0].place:
            loop = j
            continue
        way = _meet(labels, hub, start, targets, j, before + min(room[j], FAR))
        metres[j] = way.metres - roads.length[source]
        seconds[j] = way.seconds - roads.seconds[source]
        if way.cost >= _sure(labels, start, targets, j):  # not a number until then, and the cost that is to be beaten
            metres[j], seconds[j] = np.nan, way.cost
            farthest = max(farthest, way.cost)
    _forget(labels, hub, start, before + most)
    if farthest >= 0.0:
        _find_far(roads, scratch, source, targets, farthest, room, metres, seconds)
    if loop >= 0:
        _, way = _find_loop(roads, scratch, source, targets, loop, min(room[loop], FAR))
        metres[loop], seconds[loop] = way.metres, way.seconds


@njit(cache=True, nogil=True)
def _find_far(
    roads: Roads,
    scratch: Scratch,
    source: int,
    targets: Climbs,
    farthest: float,
    room: Floats,
    metres: Floats,
    seconds: Floats,
) -> None:  # pragma: no cover  (compiled)
    """Fill in the ways of :func:`find_ways` that labels alone do not tell; none costs more than ``farthest``."""
    hierarchy, labels, hub = roads.hierarchy, roads.labels, scratch.hub
    start = climb(hierarchy, labels, scratch.search, hierarchy.place[source], LEAVING, farthest)
    _spread(labels, hub, start, farthest)
    for j in range(len(room)):
        if room[j] >= 0.0 and np.isnan(metres[j]):
            goal = climb(hierarchy, labels, scratch.search, targets.step[j].place, ENTERING, seconds[j])
            way = _meet(labels, hub, start, goal, 0, seconds[j])
            metres[j] = way.metres - roads.length[source]
            seconds[j] = way.seconds - roads.seconds[source]
    _forget(labels, hub, start, farthest)


@njit(cache=True, nogil=True)
def _find_way(
    roads: Roads, scratch: Scratch, source: int, targets: Climbs, j: int, limit: float
) -> tuple[Way, Climbs, Climbs]:  # pragma: no cover  (compiled)
    """Return the way from the start of ``source`` to target ``j`` within ``limit``, and the climbs it was found by."""
    hierarchy, labels = roads.hierarchy, roads.labels
    start, goal = _leave(roads, scratch, source), targets
    way = _join(labels, scratch.hub, start, goal, j, limit)
    sure = _sure(labels, start, targets, j)
    if way.cost < sure:
        return way, start, goal
    # The climbs of a far way are long, those of an endless one endless: most are not that far.
    for reach in (min(FARTHER * sure, way.cost), way.cost):
        start = climb(hierarchy, labels, scratch.search, start.step[0].place, LEAVING, reach)
        goal = climb(hierarchy, labels, scratch.search, targets.step[j].place, ENTERING, reach)
        way = _join(labels, scratch.hub, start, goal, 0, reach)
        if way.hub >= 0:
            break
    return way, start, goal


@njit(cache=True, nogil=True)
def _join(
    labels: Labels, hub: Records, source: Climbs, targets: Climbs, j: int, limit: float
) -> Way:  # pragma: no cover  (compiled)
    """Return the way from a source to target ``j`` within ``limit``."""
    _spread(labels, hub, source, limit)
    way = _meet(labels, hub, source, targets, j, limit)
    _forget(labels, hub, source, limit)
    return way


@njit(cache=True, nogil=True)
def _find_loop(
    roads: Roads, scratch: Scratch, segment: int, targets: Climbs, j: int, room: float
) -> tuple[int, Way]:  # pragma: no cover  (compiled)
    """Return the way from the end of a segment round to its start, which is target ``j``, and its first segment."""
    first, best = -1, Way(np.inf, np.inf, np.inf, -1, -1, -1)
    for i in range(roads.succ_offset[segment], roads.succ_offset[segment + 1]):
        turn = roads.turn_cost[i]
        way, _, _ = _find_way(roads, scratch, roads.succ[i], targets, j, min(room, best.cost) - turn)
        if way.hub >= 0:
            first = roads.succ[i]
            best = Way(way.cost + turn, way.metres + turn, way.seconds, way.hub, way.up, way.down)
    return first, best


@njit(cache=True, nogil=True)
def trace_way(
    roads: Roads, scratch: Scratch, source: int, target: int, out: Segments, size: int
) -> tuple[Segments, int]:  # pragma: no cover  (compiled)
    """Append the segments of the way after ``source``, ``target`` included, to ``out[:size]``; there must be one.

    Return the list, longer where it had to grow, and its new size.
    """
    for i in range(roads.succ_offset[source], roads.succ_offset[source + 1]):
        if roads.succ[i] == target and roads.turn_cost[i] == 0.0:  # mostly one simply drives on
            return _with(out, size, target), size + 1
    goal = aim(roads, scratch, np.full(1, target, np.int32))
    if source == target:
        source, _ = _find_loop(roads, scratch, source, goal, 0, FAR)
        out = _with(out, size, source)
        size += 1
    way, start, goal = _find_way(roads, scratch, source, goal, 0, FAR)
    # A stack of the arcs that are left to drive, the next on top.
    arcs, arc = scratch.arcs, roads.hierarchy.arc
    n_down = _arcs_up(roads, goal, way.down, way.hub, ENTERING, arcs)
    n = n_down + _arcs_up(roads, start, way.up, way.hub, LEAVING, arcs[n_down:])
    _reverse(arcs[n_down:n])
    while n > 0:
        n -= 1
        a = arcs[n]
        while arc[a].left >= 0:
            arcs[n] = arc[a].right
            n += 1
            a = arc[a].left
        out = _with(out, size, arc[a].right)
        size += 1
    return out, size


@njit(cache=True, nogil=True)
def _with(values: Segments, size: int, more: int) -> Segments:  # pragma: no cover  (compiled)
    """Return the first ``size`` values with one more behind them, in a longer list if need be."""
    if size == len(values):
        values = resized(values, size, 2 * size + 1)
    values[size] = more
    return values


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
