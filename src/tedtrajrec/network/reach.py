"""Where a vehicle may have been between two fixes: the segments on ways from one to the other that are not too slow.

Two bounded searches for each gap, one backwards from the later fix and one forwards from the earlier, over all
positions that each may have (:mod:`tedtrajrec.network.reach_search`). The time of a gap does not depend on the size of
the network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.network.curve import along_curve
from tedtrajrec.network.landmarks import landmark_heights
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.reach_search import search_gaps
from tedtrajrec.network.reach_ways import ROAD, Ends, Graph, Out, Rules, Scratch, new_out, new_scratch
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

GAPS_PER_PART = 32  # some milliseconds of work


class Gaps(NamedTuple):
    """G gaps between two fixes of a trip, each fix with the positions where it may have been."""

    seconds: Floats  # [G] between the two fixes
    a_offset: Ints  # [G+1] the earlier fix of gap g may be at the positions a_offset[g]:a_offset[g + 1]
    a_segment: Segments  # [A]
    a_ratio: Floats  # [A]
    a_extra_s: Floats  # [A] seconds that an unlikely position pays, not negative
    b_offset: Ints  # [G+1] the same of the later fix
    b_segment: Segments  # [B]
    b_ratio: Floats  # [B]
    b_extra_s: Floats  # [B]


class Reached(NamedTuple):
    """N segments that belong to G gaps, those of the least total first.

    The total of a segment is ``before_s`` + its own seconds + ``after_s``: those of the best way over it, and what the
    two positions pay. On the segment of a fix the way begins or ends on it, so ``before`` or ``after`` is negative.
    """

    offset: Ints  # [G+1] gap g has the segments offset[g]:offset[g + 1]
    segment: Segments  # [N]
    before_s: Reals  # [N] from the earlier fix to the start of the segment, extra seconds included
    before_m: Reals  # [N] metres of the same way
    after_s: Reals  # [N] from the end of the segment to the later fix, extra seconds included
    after_m: Reals  # [N]
    from_a: NDArray[np.int16]  # [N] which of the positions of the earlier fix the way comes from, from 0 in each gap
    from_b: NDArray[np.int16]  # [N] which of those of the later fix it goes to
    reached: NDArray[np.uint8]  # [N] 1: the map has the way to the segment; 2: the way from it; 3: both
    best_s: Floats  # [G] least total; inf where the map has no way


@dataclass(frozen=True)
class Band:
    """What belongs to a gap; the defaults find 98 % of the missing steps of Chengdu at 1/8 among 64 segments."""

    band_s: float = 150.0  # a total at most so much above the least one,
    band_share: float = 0.5  # or above it by this share of it, whichever is more
    horizon_s: float = 300.0  # a way that takes more seconds at learned pace is none: so many,
    horizon_share: float = 3.0  # and so many times those between the fixes
    top_mps: float = 40.0  # nor one that needs a speed above this,
    slack_m: float = 500.0  # with so many metres for free
    back_m: float = 60.0  # backwards on one segment by less than this is standing still
    reach_share: float = 1.5  # without a way: how far to look from either fix, in those seconds

    def rules(self, most: int) -> Rules:
        """Return the same as compiled code takes it."""
        return Rules(
            most,
            float(self.band_s),
            float(self.band_share),
            self.horizon_s,
            self.horizon_share,
            self.top_mps,
            self.slack_m,
            self.back_m,
            self.reach_share,
        )


class GapSearch:
    """Finds the segments between fixes; may be used from several threads at once.

    It holds 300 bytes a segment beside the network, and some 200 a segment for each thread that searches.

    Parameters
    ----------
    network
        The road network; its turn rules hold.
    cost_s
        Seconds that each segment takes [S].
    n_roads
        Segments from this number on are links: ways lead over them, but they belong to no gap.
    """

    def __init__(self, network: RoadNetwork, cost_s: ArrayLike, *, n_roads: int | None = None) -> None:
        cost = np.array(cost_s, np.float64)
        n = network.n_segments if n_roads is None else n_roads
        if cost.shape != (network.n_segments,):
            raise ValueError(f"cost_s has shape {cost.shape}; the network has {network.n_segments} segments")
        if not (np.isfinite(cost) & (cost >= 0)).all():
            raise ValueError("seconds must be finite and not negative")
        if not 0 <= n <= network.n_segments:
            raise ValueError(f"n_roads is {n}; the network has {network.n_segments} segments")
        self.network = network
        order = along_curve(network)
        self._order = np.concatenate([order[order < n], order[order >= n]])  # links come last
        self._place = np.empty_like(self._order)
        self._place[self._order] = np.arange(len(self._order))
        self._graph = self._sorted_graph(cost, n)
        self._scratch: list[Scratch] = []

    def _sorted_graph(self, cost: Floats, n_roads: int) -> Graph:
        """Return the graph with segments in the order of their places: what is near on the map is near in memory."""
        network, order = self.network, self._order
        road = np.zeros(network.n_segments + 1, ROAD)
        turns = {}
        for name, (offset, turn) in (("succ", (network.succ_offset, network.succ)), ("pred", network.pred_csr)):
            count = np.diff(offset)[order]
            road[name][1:] = np.cumsum(count)
            turns[name] = self._place[turn[ranges(offset[order], count)]]
        x, y = network.plane.to_xy(network.node_lon, network.node_lat)
        start, end = network.seg_from[order], network.seg_to[order]
        here = road[:-1]
        here["cost"], here["length"] = cost[order], network.length_m[order]
        here["x"], here["y"], here["end_x"], here["end_y"] = x[start], y[start], x[end], y[end]
        return Graph(
            road,
            turns["succ"],
            turns["pred"],
            landmark_heights(network, cost)[order],
            n_roads,
            float(cost[:n_roads].sum() / max(network.length_m[:n_roads].sum(), 1.0)),
        )

    def search(self, gaps: Gaps, *, most: int = 64, band: Band | None = None, workers: int | None = None) -> Reached:
        """Return the segments where the vehicle may have been in each gap.

        Where the map has no way between the fixes, these are the segments about the straight line that can be reached
        from one of them in the time; a straight line stands for the other side of their way. A gap whose fix has no
        positions has no segments.

        Parameters
        ----------
        gaps
            The gaps.
        most
            Keep only so many segments of each gap, those of the least total.
        band
            What belongs to a gap.
        workers
            Number of threads; all processors if not given. The result does not depend on it.
        """
        if most < 1:
            raise ValueError(f"most is {most}; it must be at least 1")
        seconds = np.asarray(gaps.seconds, np.float64)
        if not (np.isfinite(seconds) & (seconds >= 0)).all():
            raise ValueError("the seconds of a gap are negative or not a number")
        rules = (band or Band()).rules(most)
        a_offset, a = self._ends(gaps.a_offset, gaps.a_segment, gaps.a_ratio, gaps.a_extra_s, len(seconds), later=False)
        b_offset, b = self._ends(gaps.b_offset, gaps.b_segment, gaps.b_ratio, gaps.b_extra_s, len(seconds), later=True)
        count, best_s = np.zeros(len(seconds), np.int64), np.empty(len(seconds))

        def run(first: int) -> Out:
            try:
                scratch = self._scratch.pop()
            except IndexError:
                scratch = new_scratch(self.network.n_segments, len(self.network.succ))
            part = slice(first, first + GAPS_PER_PART)
            edges = slice(first, first + GAPS_PER_PART + 1)
            out = new_out(len(seconds[part]) * min(most, self.network.n_segments))
            size = search_gaps(
                self._graph,
                scratch,
                a_offset[edges],
                a,
                b_offset[edges],
                b,
                seconds[part],
                rules,
                out,
                count[part],
                best_s[part],
            )
            self._scratch.append(scratch)
            return Out._make(column[:size].copy() for column in out)

        parts = [new_out(0), *map_parts(run, range(0, len(seconds), GAPS_PER_PART), workers)]
        columns = Out._make(np.concatenate(column) for column in zip(*parts, strict=True))
        columns = columns._replace(segment=self._order[columns.segment])
        return Reached(np.concatenate([[0], np.cumsum(count)]), *columns, best_s)

    def _ends(
        self, offset: Ints, segment: Segments, ratio: Floats, extra_s: Floats, n_gaps: int, *, later: bool
    ) -> tuple[Ints, Ends]:
        """Check the positions of one fix of every gap, and return them as the searches read them."""
        offset, segment = np.asarray(offset, np.int64), np.asarray(segment, np.int32)
        ratio, extra_s = np.clip(np.asarray(ratio, np.float64), 0.0, 1.0), np.asarray(extra_s, np.float64)
        if len(offset) != n_gaps + 1 or offset[0] != 0 or (np.diff(offset) < 0).any():
            raise ValueError(f"offsets of {n_gaps} gaps must rise from 0")
        if not len(segment) == len(ratio) == len(extra_s) == offset[-1]:
            raise ValueError(f"{offset[-1]} positions need as many segments, ratios and extra seconds")
        if segment.size and (segment.min() < 0 or segment.max() >= self._graph.n_roads):
            raise IndexError(f"segments go from 0 to {self._graph.n_roads - 1}")
        if not (np.isfinite(ratio) & np.isfinite(extra_s) & (extra_s >= 0)).all():
            raise ValueError("a ratio is not a number, or extra seconds are negative")
        segment = self._place[segment]
        road = self._graph.road[segment]
        behind = 1 - ratio if later else ratio
        return offset, Ends(
            segment,
            extra_s - behind * road["cost"],
            -behind * road["length"],
            extra_s,
            road["x"] + ratio * (road["end_x"] - road["x"]),
            road["y"] + ratio * (road["end_y"] - road["y"]),
        )
