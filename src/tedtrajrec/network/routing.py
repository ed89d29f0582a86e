"""Shortest routes and network distances between positions (segment, ratio), bounded and vectorised."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.network import polylines, search
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
R = TypeVar("R")

PAIRS_PER_PART = 128  # some milliseconds of work: threads stay busy to the end, and a small question starts none


@dataclass(frozen=True, eq=False)
class Routes:
    """K routes between positions as one flat list of segments; a route that does not exist has none."""

    offsets: Ints  # [K+1] route k has the segments offsets[k]:offsets[k + 1]
    segment: Segments  # [N] in driving order, from the segment of the start to that of the end
    distance_m: Floats  # [K] metres driven; inf where there is no route
    cost: Floats  # [K] in the unit of the router's cost, which is metres unless it was given another
    ratio_a: Floats  # [K] where the route starts on its first segment
    ratio_b: Floats  # [K] where it ends on its last

    def __len__(self) -> int:
        return len(self.distance_m)

    def __getitem__(self, k: int) -> Segments:
        """Return the segments of route ``k``."""
        return self.segment[self.offsets[k] : self.offsets[k + 1]]

    def geometry(self, network: RoadNetwork) -> tuple[Ints, Floats, Floats]:
        """Return the routes as lines: offsets [K+1], lon and lat of their vertices.

        A line starts and ends exactly at the two positions and has at least two vertices; points that repeat the one
        before are left out. A route that does not exist has no vertices.
        """
        exists = np.diff(self.offsets) > 0
        first, last = self.offsets[:-1][exists], self.offsets[1:][exists] - 1
        start, end = np.zeros(len(self.segment)), np.ones(len(self.segment))
        start[first], end[last] = self.ratio_a[exists], self.ratio_b[exists]
        segment = self.segment.astype(np.int64)
        behind, _ = polylines.locate(network.geom_offset, network.geom_along, segment, start)
        ahead, _ = polylines.locate(network.geom_offset, network.geom_along, segment, end)

        # Each segment brings its vertices between start and end and the point at its end; the first also its start.
        inner = ahead - behind
        is_first = np.zeros(len(segment), np.int64)
        is_first[first] = 1
        count = is_first + inner + 1
        stop = np.cumsum(count)
        lon, lat = np.empty(int(count.sum())), np.empty(int(count.sum()))
        vertex = polylines.ranges(behind + 1, inner)
        place = polylines.ranges(stop - count + is_first, inner)
        lon[place], lat[place] = network.geom_lon[vertex], network.geom_lat[vertex]
        lon[stop - 1], lat[stop - 1] = network.point_at(segment, end)
        begin = (stop - count)[first]
        lon[begin], lat[begin] = network.point_at(segment[first], start[first])

        keep = np.ones(len(lon), bool)
        keep[1:] = (np.diff(lon) != 0) | (np.diff(lat) != 0)
        keep[begin] = keep[stop[last] - 1] = True
        route = np.repeat(np.repeat(np.arange(len(self)), np.diff(self.offsets)), count)[keep]
        return np.searchsorted(route, np.arange(len(self) + 1)).astype(np.int64), lon[keep], lat[keep]


class _Question(NamedTuple):
    """K pairs of positions and the distinct pairs of segments that must be searched to answer them."""

    seg_a: Ints  # [K]
    ratio_a: Floats  # [K]
    seg_b: Ints  # [K]
    ratio_b: Floats  # [K]
    limit: Floats  # [K]
    asked: Ints  # [Q] those of the K pairs that need a search
    which: Ints  # [Q] their pair of segments
    pairs: search.Pairs


class Router:
    """Finds shortest routes over the successors of a network, so that turn rules and missing U-turns hold.

    A position is a segment and a ratio 0..1 along it (outside: the nearer end). Distances are driven, with these rules:

    - forwards on one segment, the difference; from a position to itself, 0 and a route of that one segment;
    - backwards on one segment, one must leave it and come round to it again: the route names the segment twice, and
      there is none where no loop leads back. Nobody reverses;
    - the end of a segment and the start of its successor are 0 m apart, though they are different positions;
    - parallel segments between the same nodes are different roads, and a segment that ends where it starts is one like
      any other;
    - where there is no route, or none within the limit, the distance is inf; a route of exactly the limit counts;
    - of several equally short routes one is found, always the same.

    Results do not depend on the number of workers. Methods of different names agree to rounding (1e-9 of the distance).
    A router may be used from several threads at once.

    Parameters
    ----------
    network
        The road network.
    cost
        What to add up instead of metres, for example seconds: one finite value per segment, not negative. Limits and
        results are then in its unit, also where their names say metres; only ``Routes.distance_m`` stays in metres.
    """

    def __init__(self, network: RoadNetwork, *, cost: ArrayLike | None = None) -> None:
        self.network = network
        self.cost = network.length_m if cost is None else np.array(cost, np.float64)
        self.cost.setflags(write=False)
        if self.cost.shape != (network.n_segments,):
            raise ValueError(f"cost has shape {self.cost.shape}; the network has {network.n_segments} segments")
        if not (np.isfinite(self.cost) & (self.cost >= 0)).all():
            raise ValueError("costs must be finite and not negative")
        x, y = network.plane.to_xy(network.node_lon, network.node_lat)
        start_x, start_y, end_x, end_y = x[network.seg_from], y[network.seg_from], x[network.seg_to], y[network.seg_to]
        # The least cost of a straight metre on this very plane makes the straight line a bound that no route beats.
        straight = np.hypot(end_x - start_x, end_y - start_y)
        per_metre = np.divide(self.cost, straight, out=np.full(len(straight), np.inf), where=straight > 0).min()
        self._graph = search.Graph(
            network.succ_offset,
            network.succ,
            self.cost,
            start_x,
            start_y,
            end_x,
            end_y,
            float(per_metre) * (1 - 1e-9) if np.isfinite(per_metre) else 0.0,
        )
        self._scratch: list[search.Scratch] = []

    # ------------------------------------------------------------------ questions

    def distances(
        self,
        seg_a: ArrayLike,
        ratio_a: ArrayLike,
        seg_b: ArrayLike,
        ratio_b: ArrayLike,
        *,
        limit_m: ArrayLike = np.inf,
        workers: int | None = None,
    ) -> Floats:
        """Return the distance from each position a to its position b [K], inf where there is none within the limit.

        Pairs from the same segment share one search, so it pays to ask many at once.

        Parameters
        ----------
        seg_a, ratio_a, seg_b, ratio_b
            Positions [K]; a single value serves all pairs.
        limit_m
            The longest distance of interest, one for all pairs or one for each.
        workers
            Threads to use; None: all cores.
        """
        question = self._question(seg_a, ratio_a, seg_b, ratio_b, limit_m)
        self._in_threads(search.gaps, question.pairs, workers)
        return self._totals(question)

    def routes(
        self,
        seg_a: ArrayLike,
        ratio_a: ArrayLike,
        seg_b: ArrayLike,
        ratio_b: ArrayLike,
        *,
        limit_m: ArrayLike = np.inf,
        workers: int | None = None,
    ) -> Routes:
        """Return the shortest route from each position a to its position b; parameters as in :meth:`distances`."""
        question = self._question(seg_a, ratio_a, seg_b, ratio_b, limit_m)
        chains = self._in_threads(search.chains, question.pairs, workers)
        chain = np.concatenate([np.zeros(0, np.int32), *chains])
        chain_start = np.cumsum(question.pairs.n_segments) - question.pairs.n_segments
        cost = self._totals(question)

        count = np.ones(len(cost), np.int64)  # forwards on one segment the route is that segment
        count[question.asked] = question.pairs.n_segments[question.which]
        count[np.isinf(cost)] = 0
        offsets = np.concatenate([[0], np.cumsum(count)])
        segment = np.repeat(question.seg_a.astype(np.int32), count)
        searched = count[question.asked]
        into = polylines.ranges(offsets[question.asked], searched)
        segment[into] = chain[polylines.ranges(chain_start[question.which], searched)]

        distance_m = cost
        if self.cost is not self.network.length_m:
            length = self.network.length_m
            route = np.repeat(np.arange(len(cost)), count)
            ends = question.ratio_a * length[question.seg_a] + (1 - question.ratio_b) * length[question.seg_b]
            driven = np.bincount(route, length[segment], len(cost)) - ends
            distance_m = np.where(count > 0, np.maximum(driven, 0.0), np.inf)
        return Routes(offsets, segment, distance_m, cost, question.ratio_a, question.ratio_b)

    def one_to_many(
        self, segment: int, ratio: float, seg_b: ArrayLike, ratio_b: ArrayLike, *, limit_m: float = np.inf
    ) -> Floats:
        """Return the distances from one position to many [B], by a single search."""
        return self.distances(segment, ratio, seg_b, ratio_b, limit_m=limit_m, workers=1)

    def many_to_many(
        self,
        seg_a: ArrayLike,
        ratio_a: ArrayLike,
        seg_b: ArrayLike,
        ratio_b: ArrayLike,
        *,
        limit_m: float = np.inf,
        workers: int | None = None,
    ) -> Floats:
        """Return the distances from all positions a to all positions b as a matrix [A, B].

        There is one search for each distinct segment among a, shared by all positions on it; parameters as in
        :meth:`distances`, which answers many small matrices faster when their pairs are asked in one call.
        """
        seg_a, ratio_a = self._positions(seg_a, ratio_a)
        seg_b, ratio_b = self._positions(seg_b, ratio_b)
        limit = _limits(limit_m)
        (sources, from_a), (targets, to_b) = (np.unique(s, return_inverse=True) for s in (seg_a, seg_b))
        last_a, first_b = np.zeros(len(sources)), np.ones(len(targets))
        np.maximum.at(last_a, from_a, ratio_a)
        np.minimum.at(first_b, to_b, ratio_b)
        rest = ((1 - last_a) * self.cost[sources])[:, None] + first_b * self.cost[targets]
        must_leave = (sources[:, None] != targets) | (last_a[:, None] > first_b)  # forwards on one segment no search
        i, j = np.nonzero(must_leave & (rest <= limit))
        gap = np.full(rest.shape, np.inf)
        pairs = search.new_pairs(sources[i], targets[j], limit - rest[i, j])
        self._in_threads(search.gaps, pairs, workers)
        gap[i, j] = pairs.gap
        return self._join(seg_a[:, None], ratio_a[:, None], seg_b, ratio_b, gap=gap[from_a][:, to_b], limit=limit)

    def both_ways(
        self,
        seg_a: ArrayLike,
        ratio_a: ArrayLike,
        seg_b: ArrayLike,
        ratio_b: ArrayLike,
        *,
        cap_m: float = 4000.0,
        workers: int | None = None,
    ) -> tuple[Floats, NDArray[np.bool_]]:
        """Return how far apart two positions are, whichever way is shorter [K], and where that is only the cap [K].

        This is the distance of the error metrics: the lesser of a to b and b to a, at most ``cap_m``; on one segment
        the difference along it. A pair is capped where no route within the cap leads either way.
        """
        seg_a, ratio_a, seg_b, ratio_b = _broadcast(*self._positions(seg_a, ratio_a), *self._positions(seg_b, ratio_b))
        distance = np.abs(ratio_a - ratio_b) * self.cost[seg_a]
        other = np.flatnonzero(seg_a != seg_b)
        a, b = (seg_a[other], ratio_a[other]), (seg_b[other], ratio_b[other])
        there = self.distances(*a, *b, limit_m=cap_m, workers=workers)
        back = self.distances(*b, *a, limit_m=np.minimum(there, cap_m), workers=workers)  # only a shorter one matters
        distance[other] = np.minimum(there, back)
        capped = distance > cap_m
        distance[capped] = cap_m
        return distance, capped

    # ------------------------------------------------------------------ from positions to searches and back

    def _positions(self, segment: ArrayLike, ratio: ArrayLike) -> tuple[Ints, Floats]:
        """Return checked positions, one-dimensional, with ratios within 0..1."""
        seg, where = np.atleast_1d(np.asarray(segment)), np.atleast_1d(np.asarray(ratio, np.float64))
        if seg.size and not np.issubdtype(seg.dtype, np.integer):
            raise TypeError(f"segments are integers, not {seg.dtype}")
        if seg.size and (seg.min() < 0 or seg.max() >= self.network.n_segments):
            raise IndexError(f"segments go from 0 to {self.network.n_segments - 1}")
        if np.isnan(where).any():
            raise ValueError("a ratio is not a number")
        seg, where = np.broadcast_arrays(seg.astype(np.int64), np.clip(where, 0.0, 1.0))
        if seg.ndim != 1:
            raise ValueError(f"positions are one-dimensional arrays, not of shape {seg.shape}")
        return seg, where

    def _question(
        self, seg_a: ArrayLike, ratio_a: ArrayLike, seg_b: ArrayLike, ratio_b: ArrayLike, limit_m: ArrayLike
    ) -> _Question:
        """Reduce pairs of positions to the distinct pairs of segments that need a search."""
        seg_a, ratio_a, seg_b, ratio_b, limit = _broadcast(
            *self._positions(seg_a, ratio_a), *self._positions(seg_b, ratio_b), _limits(limit_m)
        )
        rest = (1 - ratio_a) * self.cost[seg_a] + ratio_b * self.cost[seg_b]
        asked = np.flatnonzero(((seg_a != seg_b) | (ratio_b < ratio_a)) & (rest <= limit))
        n = self.network.n_segments
        distinct, which = np.unique(seg_a[asked] * n + seg_b[asked], return_inverse=True)
        room = np.zeros(len(distinct))
        np.maximum.at(room, which, (limit - rest)[asked])
        pairs = search.new_pairs(distinct // n, distinct % n, room)
        return _Question(seg_a, ratio_a, seg_b, ratio_b, limit, asked, which, pairs)

    def _totals(self, q: _Question) -> Floats:
        """Return the distances of all pairs of positions [K] once their pairs of segments are searched."""
        gap = np.full(len(q.seg_a), np.inf)
        gap[q.asked] = q.pairs.gap[q.which]
        return self._join(q.seg_a, q.ratio_a, q.seg_b, q.ratio_b, gap=gap, limit=q.limit)

    def _join(
        self, seg_a: Ints, ratio_a: Floats, seg_b: Ints, ratio_b: Floats, *, gap: Floats, limit: Floats
    ) -> Floats:
        """Return distances: rest of a, gap, part of b; forwards on one segment the difference; inf past the limit."""
        total = (1 - ratio_a) * self.cost[seg_a] + gap + ratio_b * self.cost[seg_b]
        direct = (seg_a == seg_b) & (ratio_b >= ratio_a)
        total = np.where(direct, (ratio_b - ratio_a) * self.cost[seg_a], total)
        return np.where(total <= limit, total, np.inf)

    def _in_threads(
        self,
        kernel: Callable[[search.Graph, search.Scratch, search.Pairs], R],
        pairs: search.Pairs,
        workers: int | None,
    ) -> list[R]:
        """Run a kernel over parts of the pairs, each with scratch of its own; no part divides the pairs of a source."""
        starts = np.flatnonzero(np.diff(pairs.source, prepend=-1))
        cuts = starts[np.flatnonzero(np.diff(starts // PAIRS_PER_PART, prepend=-1))]
        parts = [pairs.part(first, last) for first, last in itertools.pairwise([*cuts.tolist(), len(pairs.source)])]

        def run(part: search.Pairs) -> R:
            try:
                scratch = self._scratch.pop()
            except IndexError:
                scratch = search.new_scratch(self.network.n_segments, len(self.network.succ))
            result = kernel(self._graph, scratch, part)
            self._scratch.append(scratch)
            return result

        return map_parts(run, parts, workers)


def _limits(limit_m: ArrayLike) -> Floats:
    limit = np.asarray(limit_m, np.float64)
    if not (limit >= 0).all():
        raise ValueError("a limit is negative or not a number")
    return limit


def _broadcast(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
    return [np.ascontiguousarray(a) for a in np.broadcast_arrays(*arrays)]
