"""Popular routes: those that past trips make likely.

A route costs -log p(next | current) for every turn and 1 for every ``metres`` driven. The probabilities come from
counts of past drives, smoothed so that every turn of the map stays possible.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.methods.past.drives import Drives
from tedtrajrec.methods.past.links import Links
from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Routes
from tedtrajrec.network.search import append_chain
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

PAIRS_PER_PART = 64
U_TURN = 0.1  # of the prior weight of another turn


def count_turns(network: RoadNetwork, drives: Drives, links: Links | None = None) -> Ints:
    """Return how often each turn of the network was taken, in the order of ``network.succ`` [E].

    Parameters
    ----------
    network
        The road network, with the links if there are any (:func:`~tedtrajrec.methods.past.links.with_links`).
    drives
        Of training trips, see :func:`~tedtrajrec.methods.past.drives.drives_of`.
    links
        Where the network has links: a leap that has one took the turns onto it and off it.
    """
    n = network.n_segments
    turn = np.repeat(np.arange(n), np.diff(network.succ_offset)) * n + network.succ
    order = np.argsort(turn)
    goes_on = np.diff(drives.drive_of) == 0
    taken = [drives.segment[:-1][goes_on] * np.int64(n) + drives.segment[1:][goes_on]]
    if links is not None and len(links.source):
        pair = links.source * np.int64(n) + links.target
        leap = drives.leap_from * np.int64(n) + drives.leap_to
        place = np.searchsorted(pair, leap).clip(max=len(pair) - 1)
        known = pair[place] == leap
        link = n - len(pair) + place[known]
        taken += [drives.leap_from[known] * np.int64(n) + link, link * n + drives.leap_to[known]]
    return np.bincount(order[np.searchsorted(turn, np.concatenate(taken), sorter=order)], minlength=len(turn))


class PopularRouter:
    """Finds the most popular routes between positions; may be used from several threads at once.

    Parameters
    ----------
    network
        The road network.
    turn_count
        How often each turn was taken [E], see :func:`count_turns`.
    metres
        How many metres cost as much as a turn of probability 1/e.
    prior
        How many drives the even choice among the turns counts for; U-turns have a tenth of the others.
    """

    def __init__(self, network: RoadNetwork, turn_count: Ints, *, metres: float = 300.0, prior: float = 8.0) -> None:
        self.network = network
        n = network.n_segments
        source = np.repeat(np.arange(n), np.diff(network.succ_offset))
        weight = np.where(network.succ == network.twin[source], U_TURN, 1.0)
        even = weight / np.bincount(source, weight, n)[source]
        likely = (turn_count + prior * even) / (np.bincount(source, turn_count, n) + prior)[source]
        x, y = network.plane.to_xy(network.node_lon, network.node_lat)
        start_x, start_y = x[network.seg_from], y[network.seg_from]
        straight = np.hypot(x[network.seg_to] - start_x, y[network.seg_to] - start_y)
        detour = np.divide(network.length_m, straight, out=np.full(n, np.inf), where=straight > 0).min()
        self._graph = _Graph(
            network.succ_offset,
            network.succ,
            -np.log(likely),
            network.length_m / metres,
            start_x,
            start_y,
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
        backwards it comes round to it again.

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

        count = np.ones(len(a), np.int64)  # forwards on one segment the route is that segment
        count[asked] = length[which]
        offsets = np.concatenate([[0], np.cumsum(count)])
        segment = np.repeat(a.astype(np.int32), count)
        into = ranges(offsets[asked], count[asked])
        segment[into] = chain[ranges((np.cumsum(length) - length)[which], count[asked])]

        metres, whole = self.network.length_m, self._graph.cost
        route = np.repeat(np.arange(len(a)), count)
        driven = np.bincount(route, metres[segment], len(a)) - from_a * metres[a] - (1 - to_b) * metres[b]
        cost = (to_b - from_a) * whole[a]
        cost[asked] = ((1 - from_a) * whole[a] + to_b * whole[b])[asked] + gap[which]
        return Routes(offsets, segment, np.where(count > 0, driven.clip(min=0.0), np.inf), cost, from_a, to_b)

    def _search(self, pairs: Ints) -> tuple[Segments, Ints, Floats]:
        try:
            scratch = self._scratch.pop()
        except IndexError:
            scratch = _new_scratch(self.network.n_segments, len(self.network.succ))
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
        before = size
        out, size = append_chain(scratch.parent, source[i], target[i], out, size)
        length[i] = size - before
    return out[:size].copy(), length, gap
