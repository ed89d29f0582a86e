"""The lattice of a batch: which segments each step may be on, and what the map and past trips say of them.

A trip of m fixes has 2m - 1 lists of candidates: fix 0, gap 0, fix 1, ..., fix m - 1. An observed step has the list of
its fix, the segments around it; the steps between two fixes share that of their gap, the segments on ways between the
two that are not much slower than the best one, and a few more that past drives were on. Nothing here depends on the
size of the network, nor on the number of past trips.

Features (:mod:`tedtrajrec.methods.lattices.features`) come from the map, from past drives that passed both fixes
(:mod:`tedtrajrec.methods.past.passed`) and from pairs of segments (:mod:`tedtrajrec.methods.past.pairs`).
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.lattices.ends import find_ends, gaps_between, with_routes
from tedtrajrec.methods.lattices.features import (
    STATIC,
    Clock,
    Fixes,
    describe_fixes,
    describe_gaps,
    empty_lists,
    roads_of,
)
from tedtrajrec.methods.lattices.history import WITHIN_S, History
from tedtrajrec.methods.lattices.steps import Fact, steps_of
from tedtrajrec.methods.lattices.ways import Near, fill_ways
from tedtrajrec.methods.past.links import Links, with_links
from tedtrajrec.methods.past.pairs import Pairs, own_pairs
from tedtrajrec.methods.past.passed import Asked, Passed, no_heads, vote
from tedtrajrec.methods.past.passing import Passing
from tedtrajrec.methods.past.visits import Visits
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.near import NearTable, near_table
from tedtrajrec.network.reach import Gaps, GapSearch, Reached
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts
from tedtrajrec.trips.table import Trips

__all__ = ["CLOCK", "FACTS", "STATIC", "WITHIN_S", "Lattice", "LatticeBuilder", "Past"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

CLOCK = len(Clock)
FACTS = len(Fact)

MORE = 8  # segments of past drives at most that become candidates of a gap besides those of the map
SCALE_S = 30.0  # a past drive whose time differs by this weighs 1/e
LINK_S = 0.1  # that a link takes
TRIPS = 8  # done together


class Past(NamedTuple):
    """What training trips taught."""

    links: Links
    pace: Floats  # [S] seconds a metre
    pairs: Pairs
    passing: Passing


class Lattice(NamedTuple):
    """Candidates of B trips: J = 2m - 1 lists of C each; what does not exist is 0 everywhere."""

    segment: Ints  # [B, J, C]
    exists: NDArray[np.bool_]  # [B, J, C]
    static: Reals  # [B, J, C, STATIC] see GapColumn and FixColumn
    clock: Reals  # [B, J, C, CLOCK] see Clock
    way: NDArray[np.int16]  # [B, 3m, C, C] hundredths of a second from the end of one candidate to the start of
    # another: for each gap inside it, into it (to the next fix where it has no steps) and out of it; -1: not in a step
    slot: Ints  # [B, n] list of each step
    previous: Ints  # [B, n] fix at or before it
    following: Ints  # [B, n] fix at or after it
    since: Reals  # [B, n] seconds since the previous fix
    gap: Reals  # [B, n] seconds between the two; 0 at observed steps
    facts: Reals  # [B, n, FACTS] see Fact
    votes: Reals  # [B, n, C] share of past drives that were on the candidate at the step; 0 at observed steps

    def holding(self, segment: Ints) -> NDArray[np.bool_]:
        """Return whether a segment given for each step is in its list [B, n]."""
        trip = np.arange(len(self.slot))[:, None]
        found = (self.segment[trip, self.slot] == segment[..., None]) & self.exists[trip, self.slot]
        held: NDArray[np.bool_] = found.any(axis=-1)
        return held


class LatticeBuilder:
    """Makes lattices; may be used from several threads.

    Parameters
    ----------
    network
        The road network.
    past
        What training trips taught.
    most
        C, candidates of a list at most.
    most_near
        Candidates of a fix at most, the nearest ones.
    radius_m
        Within this distance; the nearest one counts however far it is.
    step_s
        Seconds of a step, for the table of what can be reached in one.
    top_speed_mps
        Nothing is faster.
    """

    def __init__(
        self,
        network: RoadNetwork,
        past: Past,
        *,
        most: int = 48,
        most_near: int = 12,
        radius_m: float = 150.0,
        step_s: int = 15,
        top_speed_mps: float = 40.0,
    ) -> None:
        if most < 1 or most_near < 1:
            raise ValueError(f"most is {most} and most_near {most_near}; both must be at least 1")
        self.network, self.past, self.most, self.radius_m = network, past, most, radius_m
        self.most_near = min(most_near, most)
        self.most_more = min(MORE, most // 2)
        n = network.n_segments
        linked = with_links(network, past.links)
        cost = np.concatenate([past.pace * network.length_m, np.full(len(past.links.source), LINK_S)])
        self._finder = CandidateFinder(network)
        self._search = GapSearch(linked, cost, n_roads=n)
        self.near: NearTable = near_table(linked, top_speed_mps * step_s, cost, n_roads=n)
        self._roads = roads_of(network, cost[:n].copy())
        self._heads: list[Segments] = []  # working memory, one for each thread at most

    def with_most(self, most: int) -> LatticeBuilder:
        """Return a builder of longer or shorter lists, which shares all that is large."""
        other = copy.copy(self)
        other.most, other.most_near, other.most_more = most, min(self.most_near, most), min(MORE, most // 2)
        return other

    def build(self, batch: Batch, visits: Visits | None = None, *, workers: int | None = None) -> Lattice:
        """Return the lattice of a batch.

        Parameters
        ----------
        batch
            The trips; their truth is not looked at.
        visits
            The visits of the trips, where they took part in what was learned: their own part is taken out.
        workers
            Number of threads; all processors if not given. The result does not depend on it.
        """
        if visits is not None and batch.number is None:
            raise ValueError("trips can be taken out of the past only where the batch knows their numbers")
        fixes = batch.fixes(self.network)
        ends = find_ends(self._finder, fixes, self.radius_m, self.most_near, workers)
        first, gaps = gaps_between(fixes, ends)
        reached = self._search.search(gaps, most=self.most - self.most_more, workers=workers)
        ends = with_routes(ends, self._roads.cost, first, gaps.seconds, reached)
        asked = _asked(batch, fixes, first, gaps, reached, None if visits is None else batch.number)
        history = History(self.past.pairs, own_pairs(visits or NO_VISITS, WITHIN_S), visits is not None)

        (b, m), n, c = batch.fix_mask.shape, batch.step_mask.shape[1], self.most
        lists = empty_lists(b, max(2 * m - 1, 1), c)
        passed = Passed(
            votes=np.zeros((b * n, c), np.float32),
            evidence=np.zeros(len(first), np.float32),
            posterior=np.zeros(len(ends.segment), np.float32),
            more=np.full((len(first), self.most_more), -1, np.int32),
            stay=np.zeros((len(first), self.most_more, 3), np.float32),
        )
        way = np.empty((b, 3 * m, c, c), np.int16)
        step, passing, near = batch.fix_step.cpu().numpy(), self.past.passing, Near.of(self.near)
        known = Fixes(*self.network.plane.to_xy(fixes.lon, fixes.lat), fixes.time)

        def fill(low: int) -> None:
            high = min(low + TRIPS, b)
            try:
                head = self._heads.pop()
            except IndexError:
                head = no_heads(passing)
            vote(passing, ends, asked, SCALE_S, head, low, high, passed)
            self._heads.append(head)
            describe_gaps(self._roads, ends, asked, reached, passed, history, low, high, lists)
            describe_fixes(self._roads, known, ends, asked, passed.posterior, history, low, high, lists)
            fill_ways(near, lists.segment, lists.size, step, fixes.lengths, low, high, way)

        map_parts(fill, range(0, b, TRIPS), workers)
        slot, previous, following, since, gap, facts = steps_of(batch)
        return Lattice(
            segment=lists.segment,
            exists=lists.exists,
            static=lists.static,
            clock=lists.clock,
            way=way,
            slot=slot,
            previous=previous,
            following=following,
            since=since,
            gap=gap,
            facts=facts,
            votes=passed.votes.reshape(b, n, c),
        )


NO_VISITS = Visits(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.float32))


def _asked(batch: Batch, fixes: Trips, first: Ints, gaps: Gaps, reached: Reached, own: Tensor | None) -> Asked:
    """Return what past trips are asked: the steps inside the gaps; ``own`` are the numbers of the trips among them."""
    mask, step_s = batch.fix_mask.cpu().numpy(), float(batch.step_s)
    step, time = batch.fix_step.cpu().numpy()[mask], batch.fix_time.cpu().numpy()[mask].astype(np.float64)
    trip = fixes.trip_of_fix[first]
    return Asked(
        fix=fixes.offsets,
        gap=np.searchsorted(trip, np.arange(len(fixes) + 1)),
        own=np.full(len(fixes), -1) if own is None else own.cpu().numpy(),
        seconds=gaps.seconds,
        offset=reached.offset,
        segment=reached.segment,
        row=trip * batch.step_mask.shape[1] + step[first] + 1,
        steps=np.maximum(step[first + 1] - step[first] - 1, 0),
        early_s=(step[first] + 1) * step_s - time[first],
        step_s=step_s,
    )
