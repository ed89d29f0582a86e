"""The lattice of a batch: which segments each step may be on, and what the map and past trips say of them.

A trip of m fixes has 2m - 1 lists of candidates: fix 0, gap 0, fix 1, ..., fix m - 1. An observed step has the list of
its fix, the segments around it; the steps between two fixes share that of their gap, the segments on ways between the
two that are not much slower than the best one. Nothing here depends on the size of the network.

Features are plain numbers that any network has, so they carry over to another city; where past trips say nothing
(nobody drove there, or the city is new), counts are 0 and times those of the map.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.past.links import Links, with_links
from tedtrajrec.methods.past.pairs import OwnPairs, Pairs, own_pairs, pair_without, visits_without
from tedtrajrec.methods.past.passing import MORE, Asked, Ends, Passing, vote
from tedtrajrec.methods.past.visits import Visits
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.near import NearTable, near_table
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.reach import Gaps, GapSearch, Reached
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

STATIC = 34  # features of a candidate that are the same at all steps of its list
CLOCK = 8  # before, whole, after (seconds), arrive, its sd, leave, its sd (seconds), ratio where the list is a fix's
FACTS = 12  # of a step

NOISE_M = 10.0  # of fixes, across the road
EXTRA_S = 3.0  # that an end pays for each nat it is less likely than the nearest
FARTHEST = 8.0  # nats
WITHIN_S = 900.0  # of the pairs of past trips
PRIOR_TRIPS = 2.0  # with the usual spread, added to those of a pair
SCALE_S = 30.0  # a past drive whose time differs by this weighs 1/e
PART = 256  # gaps done together
TRIPS = 16  # trips done together
HASH = 256  # places for the candidates of a list, a power of two above twice their number


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
    static: Reals  # [B, J, C, STATIC]
    clock: Reals  # [B, J, C, CLOCK]
    way: NDArray[
        np.int16
    ]  # [B, 3m, C, C] hundredths of a second from the end of one candidate to the start of another:
    # for each gap inside it, into it (to the next fix where it has no steps) and out of it; -1: not within a step
    slot: Ints  # [B, n] list of each step
    previous: Ints  # [B, n] fix at or before it
    following: Ints  # [B, n] fix at or after it
    since: Reals  # [B, n] seconds since the previous fix
    gap: Reals  # [B, n] seconds between the two; 0 at observed steps
    facts: Reals  # [B, n, FACTS]
    votes: Reals  # [B, n, C] share of past drives that were on the candidate at the step; 0 at observed steps


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
        self.network, self.past, self.most, self.most_near, self.radius_m = network, past, most, most_near, radius_m
        n = network.n_segments
        linked = with_links(network, past.links)
        self._cost = np.concatenate([past.pace * network.length_m, np.full(len(past.links.source), 0.1)])
        self._finder = CandidateFinder(network)
        self._search = GapSearch(linked, self._cost, n_roads=n)
        self.near: NearTable = near_table(linked, top_speed_mps * step_s, self._cost, n_roads=n)
        x, y = network.plane.to_xy(network.node_lon, network.node_lat)
        way = np.stack([x[network.seg_to] - x[network.seg_from], y[network.seg_to] - y[network.seg_from]], axis=1)
        self._direction = way / np.maximum(np.hypot(*way.T), 1e-6)[:, None]

    def build(self, batch: Batch, visits: Visits | None = None, *, workers: int | None = None) -> Lattice:
        """Return the lattice of a batch.

        Parameters
        ----------
        batch
            The trips; their truth is not looked at.
        visits
            The visits of the trips, where they took part in what was learned: their own part is taken out.
        workers
            Number of threads; all processors if not given.
        """
        fixes = batch.fixes(self.network)
        ends = self._ends(fixes, workers)
        own = own_pairs(NO_VISITS if visits is None else visits, WITHIN_S)
        trip = np.full(len(fixes), -1) if visits is None else np.arange(len(fixes))
        first = np.flatnonzero(np.diff(fixes.trip_of_fix) == 0)  # the fix at which each gap begins
        gaps = _gaps(fixes, ends, first)
        reached = self._search.search(gaps, most=self.most - MORE, workers=workers)
        ends = self._with_routes(ends, first, gaps, reached)
        votes = self._votes(fixes, ends, own, trip, first, reached, workers)
        number = np.full(len(fixes), -1) if visits is None or batch.number is None else batch.number.numpy()
        asked = _asked(batch, fixes, first, gaps, reached, number)
        passed = self._passed(ends, asked, workers)
        return self._padded(batch, fixes, ends, first, gaps, reached, votes, asked, passed, workers)

    def _ends(self, fixes: Trips, workers: int | None) -> Ends:
        """Return the candidates of the fixes, the nearest first."""
        found = self._finder.within(fixes.lon, fixes.lat, self.radius_m, most=self.most_near, workers=workers)
        offset, segment, ratio, distance = found.offsets, found.segment, found.ratio, found.distance_m
        lost = np.flatnonzero(np.diff(offset) == 0)
        if len(lost):
            near = self._finder.nearest(fixes.lon[lost], fixes.lat[lost], workers=workers)
            at = offset[lost]
            segment = np.insert(segment, at, near.segment)
            ratio, distance = np.insert(ratio, at, near.ratio), np.insert(distance, at, near.distance_m)
            offset = offset + np.concatenate([[0], np.cumsum(np.diff(offset) == 0)])
        fix = np.repeat(np.arange(fixes.n_fixes), np.diff(offset))
        nats = (distance**2 - distance[offset[:-1]][fix] ** 2) / (2 * NOISE_M**2)
        weight = np.exp(-nats)
        weight /= np.bincount(fix, weight, fixes.n_fixes)[fix]
        none, poor = np.full(len(segment), -1), np.zeros(len(segment))
        return Ends(offset, segment.astype(np.int32), ratio.astype(np.float64), distance, nats, weight, none, poor)

    def _with_routes(self, ends: Ends, first: Ints, gaps: Gaps, reached: Reached) -> Ends:
        """Return the candidates with the map's best route to each from the fix before."""
        gap = np.repeat(np.arange(len(first)), np.diff(reached.offset))
        n = self.network.n_segments
        there = reached.reached & 1 > 0
        key = (gap * np.int64(n) + reached.segment)[there]
        order = np.argsort(key)
        fix = np.repeat(np.arange(len(ends.offset) - 1), np.diff(ends.offset))
        gap_of = np.full(len(ends.offset) - 1, -1)
        gap_of[first + 1] = np.arange(len(first))
        rows = np.flatnonzero(gap_of[fix] >= 0)
        if not len(key) or not len(rows):
            return ends
        want = gap_of[fix[rows]] * np.int64(n) + ends.segment[rows]
        place = np.searchsorted(key, want, sorter=order).clip(max=len(key) - 1)
        found = key[order[place]] == want
        rows, hit = rows[found], np.flatnonzero(there)[order[place[found]]]
        g = gap[hit]
        likely = np.flatnonzero(ends.nats <= FARTHEST)  # what the search was given
        start = np.searchsorted(fix[likely], first[g])
        route, fit = ends.route.copy(), ends.fit.copy()
        a = gaps.a_offset[g] + reached.from_a[hit]
        route[rows] = likely[start + reached.from_a[hit]]
        seconds = reached.before_s[hit] - gaps.a_extra_s[a] + ends.ratio[rows] * self._cost[ends.segment[rows]]
        fit[rows] = np.exp(-0.5 * (np.log(np.maximum(seconds, 5) / gaps.seconds[g]) / 0.5) ** 2)
        return ends._replace(route=route, fit=fit)

    def _votes(
        self,
        fixes: Trips,
        ends: Ends,
        own: OwnPairs,
        trip: Ints,
        first: Ints,
        reached: Reached,
        workers: int | None,
    ) -> Votes:
        """Return what past trips say of the candidates."""
        gap, near = np.zeros((len(reached.segment), 7), np.float32), np.zeros((len(ends.segment), 5), np.float32)
        pairs, cost = self.past.pairs, self._cost
        whose = trip[fixes.trip_of_fix]

        def fill(part: slice) -> None:
            _gap_votes(
                pairs, own, whose, ends, cost, first, reached.offset, reached.segment, gap, part.start, part.stop
            )

        def fill_near(part: slice) -> None:
            _fix_votes(pairs, own, whose, fixes.trip_of_fix, fixes.time, ends, cost, near, part.start, part.stop)

        map_parts(fill, _parts(len(first)), workers)
        map_parts(fill_near, _parts(fixes.n_fixes), workers)
        return Votes(gap, near)

    def _passed(self, ends: Ends, asked: Asked, workers: int | None) -> Passed:
        """Return the votes of past drives."""
        out = Passed(
            np.zeros((len(asked.share), self.most), np.float32),
            np.zeros(len(asked.first), np.float32),
            np.zeros(len(ends.segment), np.float32),
            np.full((len(asked.first), MORE), -1, np.int32),
            np.zeros((len(asked.first), MORE, 3), np.float32),
        )

        def fill(part: slice) -> None:
            vote(self.past.passing, ends, asked, SCALE_S, part.start, part.stop, *out)

        trips = len(asked.trip) - 1
        map_parts(fill, [slice(first, min(first + TRIPS, trips)) for first in range(0, trips, TRIPS)], workers)
        return out

    def _padded(
        self,
        batch: Batch,
        fixes: Trips,
        ends: Ends,
        first: Ints,
        gaps: Gaps,
        reached: Reached,
        votes: Votes,
        asked: Asked,
        passed: Passed,
        workers: int | None,
    ) -> Lattice:
        b, m = batch.fix_mask.shape
        lists, c = max(2 * m - 1, 1), self.most
        number = np.arange(fixes.n_fixes) - np.repeat(fixes.offsets[:-1], fixes.lengths)  # of a fix in its trip
        fix_list = fixes.trip_of_fix * lists + 2 * number
        gap_list = fix_list[first] + 1

        def place(rows: Ints, offset: Ints) -> Ints:
            count = np.diff(offset)
            return np.repeat(rows * c, count) + ranges(np.zeros(len(count), np.int64), count)

        at_fix, at_gap = place(fix_list, ends.offset), place(gap_list, reached.offset)
        segment = np.zeros(b * lists * c, np.int64)
        segment[at_fix], segment[at_gap] = ends.segment, reached.segment
        exists = np.zeros(b * lists * c, np.bool_)
        exists[at_fix] = exists[at_gap] = True
        static = np.zeros((b * lists * c, STATIC), np.float32)
        clock = np.zeros((b * lists * c, CLOCK), np.float32)
        static[at_gap], clock[at_gap] = self._gap_features(gaps, reached, votes.gap, passed.evidence)
        static[at_fix], clock[at_fix] = self._fix_features(fixes, ends, votes.fix, passed.posterior)
        # Segments that only past drives know stand behind the others.
        gap, place_more = np.nonzero(passed.more >= 0)
        at_more = gap_list[gap] * c + np.diff(reached.offset)[gap] + place_more
        segment[at_more], exists[at_more] = passed.more[gap, place_more], True
        static[at_more], clock[at_more] = self._more_features(gaps, gap, passed, place_more)
        shape = (b, lists, c)
        way = np.full((b, 3 * m, c, c), -1, np.int16)
        count = np.zeros(b * lists, np.int64)
        count[fix_list] = np.diff(ends.offset)
        count[gap_list] = np.diff(reached.offset) + (passed.more >= 0).sum(axis=1)
        step = batch.fix_step.cpu().numpy()
        empty = np.diff(step, axis=1, append=step[:, -1:]) <= 1
        near = self.near

        def fill(part: slice) -> None:
            _fill_ways(
                near.offsets,
                near.target,
                near.seconds,
                segment.reshape(shape)[part],
                count.reshape(b, lists)[part],
                empty[part],
                way[part],
            )

        map_parts(fill, [slice(first, first + TRIPS) for first in range(0, b, TRIPS)], workers)
        cast = np.zeros((b, batch.step_mask.shape[1], c), np.float32)
        sums = passed.votes.sum(axis=1, keepdims=True)
        trip = np.repeat(fixes.trip_of_fix[first], asked.steps)
        at = ranges(batch.fix_step.cpu().numpy()[batch.fix_mask.cpu().numpy()][first] + 1, asked.steps)
        cast[trip, at] = passed.votes / np.maximum(sums, 1e-9)
        return Lattice(
            segment.reshape(shape),
            exists.reshape(shape),
            static.reshape(*shape, STATIC),
            clock.reshape(*shape, CLOCK),
            way,
            *self._steps(batch),
            cast,
        )

    def _gap_features(self, gaps: Gaps, reached: Reached, votes: Reals, evidence: Reals) -> tuple[Reals, Reals]:
        gap = np.repeat(np.arange(len(gaps.seconds)), np.diff(reached.offset))
        seconds = gaps.seconds[gap]
        whole = self._cost[reached.segment]
        before, after = reached.before_s.astype(np.float64), reached.after_s.astype(np.float64)
        total = np.maximum(before + whole + after, 1.0)
        best = np.maximum(np.minimum.reduceat(total, reached.offset[:-1][np.diff(reached.offset) > 0]), 1.0)
        best = np.repeat(best, np.diff(reached.offset)[np.diff(reached.offset) > 0])
        length = self.network.length_m[reached.segment]
        columns = [
            np.ones(len(gap)),
            (before / seconds).clip(-1, 3),
            (after / seconds).clip(-1, 3),
            (whole / seconds).clip(0, 2),
            ((total - best) / 60).clip(0, 5),
            ((total - best) / best).clip(0, 5),
            (best / seconds).clip(0, 4),
            np.log(seconds / 60),
            np.log(length / 100 + 0.05),
            reached.before_m / 1000,
            reached.after_m / 1000,
            (reached.reached & 1) > 0,
            (reached.reached & 2) > 0,
            np.log1p(votes[:, 0]),
            np.log1p(votes[:, 3]),
            np.log1p(votes[:, 6]),
            votes[:, 2] / 60,
            votes[:, 5] / 60,
            before < 0,
            after < 0,
            self.network.speed_mps[reached.segment] / 20,
            np.log(evidence + 1e-4)[gap] / 4,
        ]
        static = np.zeros((len(gap), STATIC), np.float32)
        static[:, : len(columns)] = np.stack(columns, axis=1)
        arrive = np.where(votes[:, 0] > 0, votes[:, 1], before)
        leave = np.where(votes[:, 3] > 0, votes[:, 4], after)
        usual = 15 + 0.3 * np.abs(np.stack([before, after], axis=1))
        arrive_sd = np.where(votes[:, 0] > 0, votes[:, 2], usual[:, 0])
        leave_sd = np.where(votes[:, 3] > 0, votes[:, 5], usual[:, 1])
        clock = np.stack([before, whole, after, arrive, arrive_sd, leave, leave_sd, np.zeros(len(gap))], axis=1)
        return static, clock.astype(np.float32)

    def _more_features(self, gaps: Gaps, gap: Ints, passed: Passed, place: Ints) -> tuple[Reals, Reals]:
        """Return the features of segments that only past drives know, with the times of these."""
        seconds = gaps.seconds[gap]
        weight, enter, leave = passed.stay[gap, place].T
        before, whole = enter / weight * seconds, np.maximum((leave - enter) / weight, 0.01) * seconds
        after = seconds - before - whole
        segment = passed.more[gap, place]
        static = np.zeros((len(gap), STATIC), np.float32)
        static[:, 0] = 1
        static[:, 1], static[:, 2], static[:, 3] = before / seconds, after / seconds, whole / seconds
        static[:, 6], static[:, 7] = 1, np.log(seconds / 60)
        static[:, 8] = np.log(self.network.length_m[segment] / 100 + 0.05)
        static[:, 20] = self.network.speed_mps[segment] / 20
        static[:, 21] = np.log(passed.evidence[gap] + 1e-4) / 4
        sd = np.full(len(gap), 30.0)
        clock = np.stack([before, whole, after, before, sd, after, sd, np.zeros(len(gap))], axis=1)
        return static, clock.astype(np.float32)

    def _fix_features(self, fixes: Trips, ends: Ends, votes: Reals, posterior: Reals) -> tuple[Reals, Reals]:
        fix = np.repeat(np.arange(fixes.n_fixes), np.diff(ends.offset))
        x, y = self.network.plane.to_xy(fixes.lon, fixes.lat)
        step_x, step_y = np.diff(x, append=x[-1:]), np.diff(y, append=y[-1:])
        last = np.append(np.diff(fixes.trip_of_fix) != 0, True)
        step_x[last] = step_y[last] = 0
        back_x, back_y = np.roll(step_x, 1), np.roll(step_y, 1)
        direction = self._direction[ends.segment]

        def cosine(dx: Floats, dy: Floats) -> Floats:
            away = np.maximum(np.hypot(dx, dy), 1.0)
            out: Floats = direction[:, 0] * (dx / away)[fix] + direction[:, 1] * (dy / away)[fix]
            return out

        rank = np.arange(len(fix)) - ends.offset[:-1][fix]
        known = np.where(np.bincount(fix, posterior, fixes.n_fixes)[fix] > 0, posterior, ends.weight)
        columns = [
            ends.distance_m / 30,
            np.exp(-((ends.distance_m / 15) ** 2)),
            ends.weight,
            cosine(step_x, step_y),
            cosine(back_x, back_y),
            rank / 8,
            np.log1p(votes[:, 0]),
            np.log1p(votes[:, 1]),
            np.log1p(votes[:, 2]),
            known,
            np.log(known + 1e-4) / 4,
        ]
        static = np.zeros((len(fix), STATIC), np.float32)
        static[:, 8] = np.log(self.network.length_m[ends.segment] / 100 + 0.05)
        static[:, 13], static[:, 14], static[:, 15] = (
            np.log1p(votes[:, 3]),
            np.log1p(votes[:, 4]),
            np.log1p(votes[:, 2]),
        )
        static[:, 20] = self.network.speed_mps[ends.segment] / 20
        static[:, 21 : 21 + len(columns)] = np.stack(columns, axis=1)
        clock = np.zeros((len(fix), CLOCK), np.float32)
        clock[:, 7] = ends.ratio
        return static, clock

    def _steps(self, batch: Batch) -> tuple[Ints, Ints, Ints, Reals, Reals, Reals]:
        """Return list, fixes around and facts of the steps."""
        mask, observed = batch.step_mask.cpu().numpy(), batch.observed.cpu().numpy()
        fix_mask, time = batch.fix_mask.cpu().numpy(), batch.fix_time.cpu().numpy()
        xy = batch.fix_xy.cpu().numpy()
        n = mask.shape[1]
        count = fix_mask.sum(axis=1)[:, None]
        previous = (np.cumsum(observed, axis=1) - 1).clip(0, np.maximum(count - 1, 0))
        following = (previous + ~observed).clip(0, np.maximum(count - 1, 0))
        row = np.arange(len(mask))[:, None]
        clock = np.arange(n) * np.float32(batch.step_s)
        start, end = time[row, previous], time[row, following]
        gap, since = end - start, clock - start
        inside = gap > 0
        metres = np.hypot(*(xy[row, following] - xy[row, previous]).transpose(2, 0, 1))
        share = np.where(inside, since / np.where(inside, gap, 1), 0)
        speed = np.where(inside, metres / np.where(inside, gap, 1), 0)
        angle = batch.step_minute.cpu().numpy() * (2 * np.pi / 1440)
        moved = np.hypot(*np.diff(xy, axis=1, prepend=xy[:, :1]).transpose(2, 0, 1))
        lag = np.maximum(np.diff(time, axis=1, prepend=time[:, :1]), 1)
        pace = np.where(fix_mask, moved / lag, 0)  # straight, from the fix before to each
        after = np.minimum(following + 1, np.maximum(count - 1, 0))
        facts = [
            share,
            1 - share,
            np.log1p(gap / 60),
            metres / 1000,
            speed / 10,
            pace[row, previous] / 10,
            pace[row, after] / 10,
            observed,
            np.log1p(np.maximum(since, 0) / 60),
            np.log1p(np.maximum(end - clock, 0) / 60),
            np.sin(angle),
            np.cos(angle),
        ]
        slot = 2 * previous + (inside & ~observed)
        # At steps that are none, or behind the last fix, the numbers mean nothing but must stay small.
        tame = np.stack(facts, axis=-1).astype(np.float32).clip(-5, 5) * mask[..., None]
        return slot, previous, following, (since * mask).astype(np.float32), gap.astype(np.float32), tame


class Passed(NamedTuple):
    """What past drives say; see :func:`~tedtrajrec.methods.past.passing.vote`."""

    votes: Reals
    evidence: Reals
    posterior: Reals
    more: Segments
    stay: Reals


class Votes(NamedTuple):
    """What past trips say."""

    gap: (
        Reals  # [N, 7] trips that came from the earlier fix, when, its sd; that went to the later one, when, sd; visits
    )
    fix: Reals  # [E, 5] trips that came from the fix before and to the one after in the time, visits, in any time


NO_VISITS = Visits(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.float32))


def _gaps(fixes: Trips, ends: Ends, first: Ints) -> Gaps:
    """Return the gaps that begin at some fixes, with the likely candidates of both."""
    fix = np.repeat(np.arange(fixes.n_fixes), np.diff(ends.offset))
    kept = np.flatnonzero(ends.nats <= FARTHEST)
    offset = np.concatenate([[0], np.cumsum(np.bincount(fix[kept], minlength=fixes.n_fixes))])

    def side(which: Ints) -> tuple[Ints, Segments, Floats, Floats]:
        count = np.diff(offset)[which]
        rows = kept[ranges(offset[which], count)]
        return np.concatenate([[0], np.cumsum(count)]), ends.segment[rows], ends.ratio[rows], EXTRA_S * ends.nats[rows]

    seconds = np.maximum(fixes.time[first + 1] - fixes.time[first], 1).astype(np.float64)
    return Gaps(seconds, *side(first), *side(first + 1))


def _asked(batch: Batch, fixes: Trips, first: Ints, gaps: Gaps, reached: Reached, number: Ints) -> Asked:
    """Return what past trips are asked: the steps inside the gaps."""
    step = batch.fix_step.cpu().numpy()[batch.fix_mask.cpu().numpy()]
    time = batch.fix_time.cpu().numpy()[batch.fix_mask.cpu().numpy()].astype(np.float64)
    count = np.maximum(step[first + 1] - step[first] - 1, 0)
    gap = np.repeat(np.arange(len(first)), count)
    at = ranges(step[first] + 1, count) * float(batch.step_s)
    share = ((at - time[first][gap]) / gaps.seconds[gap]).clip(0, 1)
    row = np.cumsum(count) - count
    own = number[fixes.trip_of_fix[first]]
    trip = np.searchsorted(fixes.trip_of_fix[first], np.arange(len(fixes) + 1)).astype(np.int64)
    return Asked(trip, first, gaps.seconds, own, reached.offset, reached.segment, row, count, share)


def _parts(n: int) -> list[slice]:
    return [slice(first, min(first + PART, n)) for first in range(0, n, PART)]


@njit(cache=True, nogil=True)
def _gap_votes(
    pairs: Pairs,
    own: OwnPairs,
    whose: Ints,
    ends: Ends,
    cost: Floats,
    first: Ints,
    offset: Ints,
    segment: Segments,
    out: Reals,
    low: int,
    high: int,
) -> None:  # pragma: no cover  (compiled)
    """Fill in the votes for the candidates of gaps ``low`` to ``high``."""
    for g in range(low, high):
        trip = whose[first[g]]
        for r in range(offset[g], offset[g + 1]):
            e = segment[r]
            for side in range(2):
                total = mean = spread = square = 0.0
                f = first[g] + side
                for k in range(ends.offset[f], ends.offset[f + 1]):
                    weight = ends.weight[k]
                    if weight < 0.02:
                        continue
                    s = ends.segment[k]
                    rest = (1.0 - ends.ratio[k]) * cost[s] if side == 0 else ends.ratio[k] * cost[s]
                    a, b = (s, e) if side == 0 else (e, s)
                    count, took, squares = pair_without(pairs, own, trip, a, b)
                    if count <= 0.0:
                        continue
                    usual = 10.0 + 0.25 * took
                    variance = (squares + PRIOR_TRIPS * usual * usual) / (count + PRIOR_TRIPS)
                    w = weight * count
                    total += w
                    mean += w * (rest + took)
                    square += w * (rest + took) * (rest + took)
                    spread += w * variance
                if total > 0.0:
                    mean /= total
                    between = max(square / total - mean * mean, 0.0)
                    out[r, 3 * side] = total
                    out[r, 3 * side + 1] = mean
                    out[r, 3 * side + 2] = np.sqrt(spread / total + between)
            out[r, 6] = visits_without(pairs, own, trip, e)


@njit(cache=True, nogil=True)
def _fix_votes(
    pairs: Pairs,
    own: OwnPairs,
    whose: Ints,
    trip_of_fix: Ints,
    time: Ints,
    ends: Ends,
    cost: Floats,
    out: Reals,
    low: int,
    high: int,
) -> None:  # pragma: no cover  (compiled)
    """Fill in the votes for the candidates of fixes ``low`` to ``high``."""
    for f in range(low, high):
        for r in range(ends.offset[f], ends.offset[f + 1]):
            e = ends.segment[r]
            for side in range(2):
                other = f - 1 if side == 0 else f + 1
                if other < 0 or other >= len(trip_of_fix) or trip_of_fix[other] != trip_of_fix[f]:
                    continue
                gap = abs(time[other] - time[f])
                here = ends.ratio[r] * cost[e] if side == 0 else (1.0 - ends.ratio[r]) * cost[e]
                for k in range(ends.offset[other], ends.offset[other + 1]):
                    if ends.weight[k] < 0.02:
                        continue
                    s = ends.segment[k]
                    there = (1.0 - ends.ratio[k]) * cost[s] if side == 0 else ends.ratio[k] * cost[s]
                    a, b = (s, e) if side == 0 else (e, s)
                    count, took, _ = pair_without(pairs, own, whose[f], a, b)
                    out[r, 3 + side] += ends.weight[k] * count
                    off = (gap - took - here - there) / (15.0 + 0.25 * gap)
                    out[r, side] += ends.weight[k] * count * np.exp(-0.5 * off * off)
            out[r, 2] = visits_without(pairs, own, whose[f], e)


@njit(cache=True, nogil=True)
def _fill_ways(
    near_offset: Ints,
    near_target: Segments,
    near_seconds: Reals,
    segment: Ints,
    count: Ints,
    empty: NDArray[np.bool_],
    out: NDArray[np.int16],
) -> None:  # pragma: no cover  (compiled)
    """Fill in the ways between the candidates of neighbouring lists."""
    key, value = np.full(HASH, -1, np.int64), np.empty(HASH, np.int64)
    used = np.empty(HASH, np.int64)
    lists = segment.shape[1]
    for b in range(len(segment)):
        for g in range((lists - 1) // 2):
            fix, gap, following = 2 * g, 2 * g + 1, 2 * g + 2
            for kind in range(3):
                source = fix if kind == 1 else gap
                target = gap if kind == 0 else following
                if kind == 1 and not empty[b, g]:
                    target = gap
                if count[b, source] == 0 or count[b, target] == 0 or (kind != 1 and empty[b, g]):
                    continue
                for d in range(count[b, target]):
                    t = segment[b, target, d]
                    h = (t * 2654435761) & (HASH - 1)
                    while key[h] >= 0:
                        h = (h + 1) & (HASH - 1)
                    key[h], value[h], used[d] = t, d, h
                for c in range(count[b, source]):
                    s = segment[b, source, c]
                    for i in range(near_offset[s], near_offset[s + 1]):
                        t = np.int64(near_target[i])
                        h = (t * 2654435761) & (HASH - 1)
                        while key[h] >= 0 and key[h] != t:
                            h = (h + 1) & (HASH - 1)
                        if key[h] == t:
                            out[b, 3 * g + kind, c, value[h]] = min(near_seconds[i] * 100.0, 32767.0)
                for d in range(count[b, target]):
                    key[used[d]] = -1
