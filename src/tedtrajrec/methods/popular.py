"""Popular routes: those that past trips make likely, also where the map lacks a road that they drove.

A route costs -log p(next | current) for every turn and 1 for every ``metres`` driven. The probabilities come from
counts of past drives, smoothed so that every turn of the map stays possible. Where at least two past trips leapt from
one segment to another without any route that could be driven in the time, there is a *link* between the two: the map
lacks a road there. A route over a link is one that the map does not have, and costs the straight way besides.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.methods.drives import Drives
from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Routes
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

PAIRS_PER_PART = 64
U_TURN = 0.1  # of the prior weight of another turn


class Turns(NamedTuple):
    """How often past trips went from one segment to another: all turns of the map, and links that it lacks."""

    offset: Ints  # [S+1]
    target: Segments  # [E] those of one segment in rising order
    count: Floats  # [E]
    is_link: NDArray[np.bool_]  # [E]


def count_turns(network: RoadNetwork, drives: Drives, *, least_trips: int = 2) -> Turns:
    """Return how often each turn of the network was taken.

    Parameters
    ----------
    network
        The road network.
    drives
        Of training trips, see :func:`~tedtrajrec.methods.drives.drives_of`.
    least_trips
        A leap makes a link when so many trips made it.
    """
    n = network.n_segments
    source = np.repeat(np.arange(n), np.diff(network.succ_offset))
    mapped = source * n + network.succ
    goes_on = np.diff(drives.drive_of) == 0
    taken = drives.segment[:-1][goes_on] * np.int64(n) + drives.segment[1:][goes_on]
    leaps = np.unique(np.column_stack([drives.leap_from * np.int64(n) + drives.leap_to, drives.leap_trip]), axis=0)
    linked, trips = np.unique(leaps[:, 0], return_counts=True)
    linked = np.setdiff1d(linked[trips >= least_trips], mapped)

    turn = np.unique(np.concatenate([mapped, linked]))
    driven, times = np.unique(
        np.concatenate([taken, drives.leap_from * np.int64(n) + drives.leap_to]), return_counts=True
    )
    place = np.searchsorted(turn, driven).clip(max=len(turn) - 1)
    count = np.zeros(len(turn))
    known = turn[place] == driven
    count[place[known]] = times[known]
    return Turns(
        offset=np.searchsorted(turn, np.arange(n + 1) * n).astype(np.int64),
        target=(turn % n).astype(np.int32),
        count=count,
        is_link=np.isin(turn, linked),
    )


class PopularRouter:
    """Finds the most popular routes between positions; may be used from several threads at once.

    Parameters
    ----------
    network
        The road network.
    turns
        What past trips did, see :func:`count_turns`.
    metres
        How many metres cost as much as a turn of probability 1/e.
    prior
        How many drives the even choice among the turns of the map counts for; U-turns have a tenth of the others.
    """

    def __init__(self, network: RoadNetwork, turns: Turns, *, metres: float = 300.0, prior: float = 2.0) -> None:
        self.network = network
        self.turns = turns
        source = np.repeat(np.arange(network.n_segments), np.diff(turns.offset))
        weight = np.where(turns.is_link, 0.0, np.where(turns.target == network.twin[source], U_TURN, 1.0))
        even = weight / np.maximum(np.bincount(source, weight, network.n_segments), 1.0)[source]
        total = np.bincount(source, turns.count, network.n_segments)
        likely = (turns.count + prior * even) / (total + prior)[source]
        x, y = network.plane.to_xy(network.node_lon, network.node_lat)
        start = np.column_stack([x[network.seg_from], y[network.seg_from]])
        end = np.column_stack([x[network.seg_to], y[network.seg_to]])
        jump = np.where(turns.is_link, np.hypot(*(end[source] - start[turns.target]).T), 0.0)
        straight = np.hypot(*(end - start).T)
        detour = np.divide(network.length_m, straight, out=np.full(len(straight), np.inf), where=straight > 0).min()
        self._graph = _Graph(
            turns.offset,
            turns.target,
            -np.log(likely) + jump / metres,
            network.length_m / metres,
            np.ascontiguousarray(start[:, 0]),
            np.ascontiguousarray(start[:, 1]),
            float(min(detour, 1.0)) * (1 - 1e-9) / metres,
        )
        self._scratch: list[_Scratch] = []

    def routes(
        self,
        seg_a: ArrayLike,
        ratio_a: ArrayLike,
        seg_b: ArrayLike,
        ratio_b: ArrayLike,
        *,
        workers: int | None = None,
    ) -> Routes:
        """Return the most popular route from each position a to its position b.

        As with :class:`~tedtrajrec.network.routing.Router`, forwards on one segment the route is that segment, and
        backwards it comes round to it again. The distance is that on segments; the jump of a link is not driven.

        Parameters
        ----------
        seg_a, ratio_a, seg_b, ratio_b
            Positions [K].
        workers
            Number of threads; all processors if not given.
        """
        a, b = np.asarray(seg_a, np.int64), np.asarray(seg_b, np.int64)
        from_a, to_b = np.asarray(ratio_a, np.float64), np.asarray(ratio_b, np.float64)
        n = self.network.n_segments
        asked = np.flatnonzero((a != b) | (to_b < from_a))
        pair, which = np.unique(a[asked] * n + b[asked], return_inverse=True)
        parts = [pair[first : first + PAIRS_PER_PART] for first in range(0, len(pair), PAIRS_PER_PART)]
        found = map_parts(self._search, parts, workers)
        chain = np.concatenate([np.zeros(0, np.int32), *(segments for segments, _, _ in found)])
        length = np.concatenate([np.zeros(0, np.int64), *(lengths for _, lengths, _ in found)])
        gap = np.concatenate([np.zeros(0), *(costs for _, _, costs in found)])

        count = np.ones(len(a), np.int64)
        count[asked] = length[which]
        offsets = np.concatenate([[0], np.cumsum(count)])
        segment = np.repeat(a.astype(np.int32), count)
        into = ranges(offsets[asked], count[asked])
        segment[into] = chain[ranges((np.cumsum(length) - length)[which], count[asked])]

        def ends(whole: Floats) -> Floats:
            direct = (to_b - from_a) * whole[a]
            apart = (1 - from_a) * whole[a] + to_b * whole[b]
            is_apart = np.zeros(len(a), bool)
            is_apart[asked] = True
            return np.where(is_apart, apart, direct)

        between = np.zeros(len(a))
        between[asked] = gap[which]
        length_m = self.network.length_m
        inner = np.bincount(np.repeat(np.arange(len(a)), count), length_m[segment], len(a))
        inner[asked] -= (length_m[a] + length_m[b])[asked]
        inner[np.setdiff1d(np.arange(len(a)), asked)] = 0.0
        exists = count > 0
        return Routes(
            offsets=offsets,
            segment=segment,
            distance_m=np.where(exists, ends(length_m) + inner, np.inf),
            cost=ends(self._graph.cost) + between,
            ratio_a=from_a,
            ratio_b=to_b,
        )

    def _search(self, pairs: Ints) -> tuple[Segments, Ints, Floats]:
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = _new_scratch(self.network.n_segments, len(self.turns.target))
        n = self.network.n_segments
        found = _chains(self._graph, scratch, pairs // n, pairs % n)
        self._scratch.append(scratch)
        return found


class _Graph(NamedTuple):
    offset: Ints  # [S+1]
    target: Segments  # [E]
    turn_cost: Floats  # [E]
    cost: Floats  # [S] of driving it whole
    x: Floats  # [S] its start on the network's plane
    y: Floats  # [S]
    per_metre: float  # no route costs less for a straight metre


class _Scratch(NamedTuple):
    label: Floats  # [S] cost from the end of the source to the start of the segment
    parent: Segments  # [S]
    mark: Ints  # [S] 2 x stamp: has a label; 2 x stamp + 1: settled
    keys: Floats  # [E + S] heap
    items: Segments
    stamp: Ints  # [1]


def _new_scratch(n_segments: int, n_turns: int) -> _Scratch:
    return _Scratch(
        np.empty(n_segments),
        np.empty(n_segments, np.int32),
        np.zeros(n_segments, np.int64),
        np.empty(n_turns + n_segments + 1),
        np.empty(n_turns + n_segments + 1, np.int32),
        np.zeros(1, np.int64),
    )


@njit(cache=True, nogil=True)
def _settle(graph: _Graph, scratch: _Scratch, source: int, target: int) -> bool:  # pragma: no cover  (compiled)
    """Search from the end of ``source`` to the start of ``target`` (A*); return whether there is a way."""
    label, parent, mark, keys, items, stamp = scratch
    stamp[0] += 1
    reached, settled = 2 * stamp[0], 2 * stamp[0] + 1
    size = 0
    segment = source
    cost = 0.0
    while True:
        for i in range(graph.offset[segment], graph.offset[segment + 1]):
            follower = graph.target[i]
            total = cost + graph.turn_cost[i]
            if mark[follower] < reached or (mark[follower] == reached and total < label[follower]):
                mark[follower] = reached
                label[follower] = total
                parent[follower] = segment
                away = np.hypot(graph.x[follower] - graph.x[target], graph.y[follower] - graph.y[target])
                size = push(keys, items, size, total + away * graph.per_metre, follower)
        while size > 0 and mark[items[0]] == settled:
            size = pop(keys, items, size)
        if size == 0:
            return False
        segment = items[0]
        size = pop(keys, items, size)
        mark[segment] = settled
        if segment == target:
            return True
        cost = label[segment] + graph.cost[segment]


@njit(cache=True, nogil=True)
def _chains(
    graph: _Graph, scratch: _Scratch, source: Ints, target: Ints
) -> tuple[Segments, Ints, Floats]:  # pragma: no cover  (compiled)
    """Return the routes of all pairs one after another, source and target included, their lengths and gap costs."""
    out = np.empty(32 * len(source), np.int32)
    length = np.zeros(len(source), np.int64)
    gap = np.full(len(source), np.inf)
    size = 0
    for i in range(len(source)):
        if not _settle(graph, scratch, source[i], target[i]):
            continue
        gap[i] = scratch.label[target[i]]
        count = 2
        segment = scratch.parent[target[i]]
        while segment != source[i]:
            segment = scratch.parent[segment]
            count += 1
        if size + count > len(out):
            longer = np.empty(2 * (size + count), np.int32)
            longer[:size] = out[:size]
            out = longer
        segment = target[i]
        for k in range(size + count - 1, size, -1):
            out[k] = segment
            segment = scratch.parent[segment]
        out[size] = source[i]
        size += count
        length[i] = count
    return out[:size].copy(), length, gap
