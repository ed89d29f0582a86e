"""Ways between segments: bounded searches over the segment graph, and a cache of what they found.

A *way* leads from the end of one segment to the start of another. It costs metres, more on slow roads and for U-turns;
the cheapest is taken, and its metres and seconds are kept beside its cost. A search looks for many targets at once and
visits only segments that can lie on a way to one of them within the bound: A* with landmarks, whose distances from and
to every segment give a lower bound of what is left (see :mod:`tedtrajrec.trips.matching.landmarks`). All it settles
goes into a table of pairs with one place for each hash: of two pairs that meet the later stays. The table never changes
a result, only the time it takes, because what it holds is exact; so results do not depend on which thread matched what
before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.splitmix import mixed, unit
from tedtrajrec.trips.matching.landmarks import LANDMARKS, landmark_costs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

PAIRS = 1 << 17  # places in the table of pairs, 36 bytes each
LAST_STAMP = 2**30 - 1
FAR = 1e9  # farther than any way
UNIQUE = 1e-6  # share by which costs are varied, so that of equally long ways one is the cheapest in any search
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
SHIFT = np.uint64(64 - (PAIRS.bit_length() - 1))


class Roads(NamedTuple):
    """The segment graph as the searches read it."""

    succ_offset: Ints  # [S+1]
    succ: Segments
    turn_cost: Floats  # of each successor
    length: Floats  # [S] metres
    cost: Floats  # [S] of driving it whole
    seconds: Floats  # [S] at free flow
    landmarks: Floats  # [S, 2 L] cost from the start of the segment to each landmark, and from each landmark to it


class Scratch(NamedTuple):
    """Working memory of one thread: labels of a search, told from earlier ones by stamps, and the table of pairs."""

    cost: Floats  # [S] from the end of the source to the start of the segment
    metres: Floats  # [S]
    seconds: Floats  # [S]
    parent: Segments  # [S] segment before this one on the cheapest way
    mark: Segments  # [S] 2 x stamp: has a label; 2 x stamp + 1: settled
    wanted: Segments  # [S] stamp: is a target
    keys: Floats  # [E + S] heap
    items: Segments
    stamp: Segments  # [1] number of the last search
    bounds: Floats  # [2 L] of the targets of a search: largest cost to each landmark, least cost from it
    pair: Ints  # [PAIRS] source and target in one number; -1 for none
    pair_way: Floats  # [PAIRS, 3] cost, metres, seconds; where there is none within some bound: inf, bound, 0
    pair_parent: Segments  # [PAIRS]


def new_roads(network: RoadNetwork, u_turn_m: float, speed_power: float) -> Roads:
    """Return the graph of a network.

    Parameters
    ----------
    u_turn_m
        What a U-turn costs; there are U-turns only where the network has them.
    speed_power
        The cost of a metre falls with this power of the speed; on average over the network it is 1.
    """
    segment = np.arange(network.n_segments)
    source = np.repeat(segment, np.diff(network.succ_offset))
    speed = network.speed_mps.astype(np.float64)
    chance = _chance(segment)
    cost = network.length_m * speed**-speed_power * (1 + UNIQUE * chance)
    cost *= network.length_m.sum() / cost.sum()
    turn_cost = np.where(network.succ == network.twin[source], u_turn_m, 0.0)
    return Roads(
        network.succ_offset,
        network.succ,
        turn_cost,
        network.length_m,
        cost,
        network.length_m / speed,
        landmark_costs(network, cost[source] + turn_cost),
    )


def new_scratch(n_segments: int, n_successors: int) -> Scratch:
    """Return working memory for one thread."""
    return Scratch(
        cost=np.empty(n_segments),
        metres=np.empty(n_segments),
        seconds=np.empty(n_segments),
        parent=np.empty(n_segments, np.int32),
        mark=np.zeros(n_segments, np.int32),
        wanted=np.zeros(n_segments, np.int32),
        keys=np.empty(n_successors + n_segments + 1),
        items=np.empty(n_successors + n_segments + 1, np.int32),
        stamp=np.zeros(1, np.int32),
        bounds=np.empty(2 * LANDMARKS),
        pair=np.full(PAIRS, -1, np.int64),
        pair_way=np.empty((PAIRS, 3)),
        pair_parent=np.empty(PAIRS, np.int32),
    )


@njit(cache=True, nogil=True)
def _chance(numbers: Ints) -> Floats:  # pragma: no cover  (compiled)
    """Return numbers of 0 to 1 that look random and depend on the given ones alone."""
    out = np.empty(len(numbers))
    for i in range(len(numbers)):
        out[i] = unit(mixed(np.uint64(numbers[i])))
    return out


@njit(cache=True, nogil=True, inline="always")
def _place(pair: np.int64) -> np.uint64:  # pragma: no cover  (compiled)
    return (np.uint64(pair) * GOLDEN) >> SHIFT


@njit(cache=True, nogil=True)
def _ahead(here: Floats, bounds: Floats) -> float:  # pragma: no cover  (compiled)
    """Return a lower bound of the cost from a segment to the nearest of the targets that ``bounds`` describes."""
    half = len(bounds) // 2
    most = -np.inf
    for k in range(half):
        most = max(most, here[k] - bounds[k], bounds[half + k] - here[half + k])
    return most


@njit(cache=True, nogil=True)
def _search(
    roads: Roads, scratch: Scratch, source: int, targets: Segments, room: Floats
) -> np.int32:  # pragma: no cover  (compiled)
    """Settle each of the ``targets`` (distinct) that a way of at most its ``room`` leads to.

    Return the mark of settled segments. A segment's key is its cost plus the least, over the targets, of what is left
    to the target minus its room: below 0 where it may lie on a way that is wanted.
    """
    cost, metres, seconds, parent, mark, wanted, keys, items = scratch[:8]
    stamp = scratch.stamp[0] + 1
    if stamp > LAST_STAMP:
        mark[:] = 0
        wanted[:] = 0
        stamp = 1
    scratch.stamp[0] = stamp
    reached, settled = np.int32(2 * stamp), np.int32(2 * stamp + 1)

    bounds = scratch.bounds
    half = len(bounds) // 2
    bounds[:half] = -np.inf
    bounds[half:] = np.inf
    most = 0.0
    for j in range(len(targets)):
        target = targets[j]
        wanted[target] = stamp
        # Rounding must not lose a way of exactly this cost; the caller compares exactly.
        wide = room[j] + 1e-9 * (1.0 + room[j])
        most = max(most, wide)
        for k in range(half):
            bounds[k] = max(bounds[k], roads.landmarks[target, k] + wide)
            bounds[half + k] = min(bounds[half + k], roads.landmarks[target, half + k] - wide)
    left = len(targets)
    size = 0
    segment = source
    at_cost = at_metres = at_seconds = 0.0  # from the end of the source to the end of the segment
    while True:
        for i in range(roads.succ_offset[segment], roads.succ_offset[segment + 1]):
            follower = roads.succ[i]
            total = at_cost + roads.turn_cost[i]
            if mark[follower] < reached or (mark[follower] == reached and total < cost[follower]):
                key = total + max(_ahead(roads.landmarks[follower], bounds), -most)
                if key <= 0.0:
                    mark[follower] = reached
                    cost[follower] = total
                    metres[follower] = at_metres + roads.turn_cost[i]
                    seconds[follower] = at_seconds
                    parent[follower] = segment
                    size = push(keys, items, size, key, follower)
        while size > 0 and mark[items[0]] == settled:
            size = pop(keys, items, size)
        if size == 0:
            return settled
        segment = items[0]
        size = pop(keys, items, size)
        mark[segment] = settled
        pair = (np.int64(source) << 32) | np.int64(segment)
        place = _place(pair)
        scratch.pair[place] = pair
        scratch.pair_way[place, 0] = cost[segment]
        scratch.pair_way[place, 1] = metres[segment]
        scratch.pair_way[place, 2] = seconds[segment]
        scratch.pair_parent[place] = parent[segment]
        if wanted[segment] == stamp:
            left -= 1
            if left == 0:
                return settled
        at_cost = cost[segment] + roads.cost[segment]
        at_metres = metres[segment] + roads.length[segment]
        at_seconds = seconds[segment] + roads.seconds[segment]


@njit(cache=True, nogil=True)
def find_ways(
    roads: Roads,
    scratch: Scratch,
    source: int,
    targets: Segments,
    room: Floats,
    metres: Floats,
    seconds: Floats,
    missing: Segments,
    asked: Segments,
    asked_room: Floats,
) -> None:  # pragma: no cover  (compiled)
    """Fill in metres and seconds of the way from ``source`` to each target; inf where none costs at most its room.

    A target whose room is negative is left as it is. ``missing``, ``asked`` and ``asked_room`` are working memory as
    long as targets.
    """
    n = 0
    for j in range(len(targets)):
        if room[j] < 0.0:
            continue
        pair = (np.int64(source) << 32) | np.int64(targets[j])
        place = _place(pair)
        if scratch.pair[place] == pair:
            found = scratch.pair_way[place, 0]
            if found <= room[j]:
                metres[j] = scratch.pair_way[place, 1]
                seconds[j] = scratch.pair_way[place, 2]
                continue
            if found < np.inf or scratch.pair_way[place, 1] >= room[j]:
                metres[j] = seconds[j] = np.inf
                continue
        if targets[j] != source:
            ahead = _ahead(roads.landmarks[source], roads.landmarks[targets[j]]) - roads.cost[source]
            if ahead > room[j] + 1e-6 * (1.0 + room[j]):
                metres[j] = seconds[j] = np.inf
                continue
        missing[n] = j
        asked[n] = targets[j]
        asked_room[n] = room[j]
        n += 1
    if n == 0:
        return
    settled = _search(roads, scratch, source, asked[:n], asked_room[:n])
    for k in range(n):
        j = missing[k]
        target = targets[j]
        if scratch.mark[target] == settled:
            near = scratch.cost[target] <= room[j]
            metres[j] = scratch.metres[target] if near else np.inf
            seconds[j] = scratch.seconds[target] if near else np.inf
        else:
            metres[j] = seconds[j] = np.inf
            pair = (np.int64(source) << 32) | np.int64(target)
            place = _place(pair)
            scratch.pair[place] = pair
            scratch.pair_way[place, 0] = np.inf
            scratch.pair_way[place, 1] = room[j]
            scratch.pair_way[place, 2] = 0.0


@njit(cache=True, nogil=True)
def trace_way(
    roads: Roads, scratch: Scratch, source: int, target: int, out: Segments, size: int
) -> tuple[Segments, int]:  # pragma: no cover  (compiled)
    """Append the segments of the way after ``source``, ``target`` included, to ``out[:size]``; there must be one.

    Return the list, longer where it had to grow, and its new size.
    """
    first = size
    segment = target
    known = True
    while segment != source or size == first:
        if size == len(out):
            longer = np.empty(2 * size, np.int32)
            longer[:size] = out
            out = longer
        out[size] = segment
        size += 1
        if known:
            pair = (np.int64(source) << 32) | np.int64(segment)
            place = _place(pair)
            if scratch.pair[place] == pair and scratch.pair_way[place, 0] < np.inf:
                segment = scratch.pair_parent[place]
                continue
            wanted = np.empty(1, np.int32)
            wanted[0] = segment
            _search(roads, scratch, source, wanted, np.full(1, FAR))
            known = False  # from here on the labels tell, which are those of the way to this segment
        segment = scratch.parent[segment]
    out[first:size] = out[first:size][::-1].copy()
    return out, size
