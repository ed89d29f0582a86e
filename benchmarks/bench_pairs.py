"""Pairs of segments: time and memory of their table, and how much they know of the steps between two true fixes.

    python benchmarks/bench_pairs.py DATASET [--keep 1/8] [--trips 2000]

The table is learned from the training trips. In validation trips, thinned, the true positions of the observed steps are
given; the pairs rank the segments of every other step. Beside them: the shortest route at constant speed, the most
popular one at learned pace, and the votes of past sub-trips with the same ends, all between the same true fixes.
"""

from __future__ import annotations

import argparse
import math
import time
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.history import History, make_history
from tedtrajrec.methods.past.links import LINK_MPS, find_links, off_links, with_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.methods.past.pairs import Pairs, learn_pairs, own_pairs, pair_of
from tedtrajrec.methods.past.popular import PopularRouter, count_turns
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.past.voting import Fixes, Steps, Votes, Weights, collect_votes
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.resample import positions_on_tracks, tracks_along
from tedtrajrec.trips.table import Trips
from timing import median_s

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Flags = NDArray[np.bool_]

WITHIN_S = 900.0
OWN_TRIPS = 1000
RANKS = (1, 3, 5, 10)


class Sought(NamedTuple):
    """Trips to recover with the true positions of their F fixes."""

    trips: Trips
    segment: Segments  # [N] true
    ratio: Floats  # [N]
    elapsed: Floats  # [N] seconds from the start of the trip
    fix: Ints  # [F] step
    fix_offset: Ints  # [T+1]

    @property
    def missing(self) -> Flags:
        """Steps without a fix [N]."""
        missing = np.ones(len(self.segment), bool)
        missing[self.fix] = False
        return missing


class Taste(NamedTuple):
    """The constants of the score, chosen by hand on Chengdu's validation trips."""

    least_s: float = 2.0  # standard deviation of any time
    share: float = 0.2  # standard deviation of a time as a share of it, before trips are seen
    prior: float = 3.0  # trips that this counts for
    narrow: float = 0.5  # of the standard deviation of the time at a segment, given both ends
    pace: float = 0.35  # standard deviation of log(usual time / time between the fixes)
    unseen: float = 0.5  # trips between two ends that nobody drove


class Ranked(NamedTuple):
    """What the pairs say of N steps."""

    best: Segments  # [N] -1 at observed steps
    rank: Ints  # [N] of the truth, from 0; -1 where it is no candidate
    after: Flags  # [N] some trip drove the true segment after that of the fix before
    before: Flags  # [N] or before that of the fix after it
    candidates: Ints  # [N]


def main() -> None:
    """Print sizes, times, and the share of right segments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dataset")
    parser.add_argument("--keep", default="1/8")
    parser.add_argument("--trips", type=int, default=2000, help="validation trips")
    arguments = parser.parse_args()
    dataset = Dataset(arguments.dataset)
    network, training = dataset.network, dataset.split("train").trips()
    drives = drives_of(network, training)
    pace = learn_pace(network, drives)
    cost = pace * network.length_m

    start = time.perf_counter()
    visits = visits_of(network, training, cost)
    middle = time.perf_counter()
    pairs = learn_pairs(visits, network.n_segments, within_s=WITHIN_S)
    end = time.perf_counter()
    size = sum(array.nbytes for array in pairs)
    print(f"{training}: {len(visits.segment):,} visits in {middle - start:.1f} s, pairs in {end - middle:.1f} s")
    print(f"{len(pairs.target):,} pairs, {size / 1e6:.1f} MB, {size / network.n_segments:,.0f} bytes a segment")
    some = visits.select(np.arange(min(OWN_TRIPS, len(training))))
    taken = median_s(lambda: own_pairs(some, WITHIN_S)) / (len(some.offset) - 1)
    print(
        f"own pairs: {len(own_pairs(some, WITHIN_S).target) / (len(some.offset) - 1):.0f}, {taken * 1e6:.0f} us a trip"
    )

    valid = dataset.split("valid")
    sought = known_trips(valid.trips(np.arange(min(arguments.trips, len(valid)))), arguments.keep)
    shortest, _ = on_routes(sought, network, Router(network), np.ones(network.n_segments))
    links = find_links(drives)
    roads = with_links(network, links)
    popular = PopularRouter(roads, count_turns(roads, drives, links))
    metre_cost = np.concatenate([pace, np.full(len(links.source), 1 / LINK_MPS)])
    route = off_links(links, network.n_segments, *on_routes(sought, roads, popular, metre_cost))
    history = make_history(network, training, most_visits=2000)
    voted = most_voted(vote(sought, network, history, route), route[0])
    ranked = rank_steps(pairs, cost, *sought[1:], Taste())

    for name, work in (
        ("votes", lambda: vote(sought, network, history, route)),
        ("pairs", lambda: rank_steps(pairs, cost, *sought[1:], Taste())),
    ):
        print(f"{name}: {median_s(work) / len(sought.trips) * 1e6:.0f} us a trip on one thread")
    missing = sought.missing
    print(
        f"validation: {sought.trips}, {missing.mean():.3f} of the steps missing; right of all (mean of trips), missing"
    )
    for name, found in (
        ("shortest route, constant speed", shortest),
        ("popular route, learned pace, links", route[0]),
        ("votes of past sub-trips", voted),
        ("pairs", ranked.best),
    ):
        right = (found == sought.segment) | ~missing
        by_trip = np.bincount(sought.trips.trip_of_fix, right) / sought.trips.lengths
        print(f"  {name:36} {by_trip.mean():.3f}  {right[missing].mean():.3f}")
    either = (ranked.best == sought.segment) | (voted == sought.segment)
    print(f"  {'pairs or votes, whichever is right':36}        {either[missing].mean():.3f}")
    after, before = ranked.after[missing], ranked.before[missing]
    print(
        f"pairs of the truth with the fix before it {after.mean():.3f}, with that after it {before.mean():.3f},",
        end=" ",
    )
    print(f"with both {(after & before).mean():.3f}")
    rank = ranked.rank[missing]
    shares = ", ".join(f"{k}: {((rank >= 0) & (rank < k)).mean():.3f}" for k in RANKS)
    print(f"truth among the first {shares}; of {ranked.candidates[missing].mean():.0f} candidates")


def known_trips(trips: Trips, keep: str) -> Sought:
    """Return the trips whose true positions are all known."""
    if trips.segment is None:
        raise ValueError("the trips carry no positions")
    trips = trips.select(np.flatnonzero(np.bincount(trips.trip_of_fix, trips.segment < 0, len(trips)) == 0))
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no positions")
    fix = np.flatnonzero(draw_observed(trips, keep))
    elapsed = (trips.time - np.repeat(trips.time[trips.offsets[:-1]], trips.lengths)).astype(np.float64)
    return Sought(trips, trips.segment, trips.ratio, elapsed, fix, np.searchsorted(fix, trips.offsets).astype(np.int64))


def on_routes(
    sought: Sought, network: RoadNetwork, router: Router | PopularRouter, metre_cost: Floats
) -> tuple[Segments, Floats]:
    """Return the positions at all steps along the routes between the fixes; segment -1 where there is none."""
    joined = np.ones(len(sought.fix), bool)
    joined[sought.fix_offset[:-1]] = False
    to = np.flatnonzero(joined)
    segment, ratio = sought.segment[sought.fix], sought.ratio[sought.fix]
    a, b, low, high = segment[to - 1], segment[to], ratio[to - 1], ratio[to]
    routes = router.routes(a, low, b, np.where(a == b, np.maximum(low, high), high))  # backwards is standing still
    trips = sought.trips
    tracks = tracks_along(sought.fix_offset, trips.time[sought.fix].astype(np.float64), segment, ratio, joined, routes)
    return positions_on_tracks(network, tracks, trips.offsets, trips.time, metre_cost=metre_cost)


def vote(sought: Sought, network: RoadNetwork, history: History, route: tuple[Segments, Floats]) -> Votes:
    """Return the votes of past sub-trips between the true fixes; a route counts for a fifth of one."""
    fix = sought.fix
    fixes = Fixes(
        sought.fix_offset,
        sought.elapsed[fix],
        np.arange(len(fix) + 1),
        sought.segment[fix],
        sought.ratio[fix],
        likelihood=np.ones(len(fix)),
        chosen=np.zeros(len(fix), np.int64),
        left_out=np.full(len(sought.trips), -1),
    )
    steps = Steps(sought.trips.offsets, sought.elapsed, route[0], np.nan_to_num(route[1]))
    collected: Votes = collect_votes(history, network.length_m, fixes, steps, Weights(20.0, 100.0, 0.2))
    return collected


def most_voted(votes: Votes, otherwise: Segments) -> Segments:
    """Return the segment with most votes at each step [N]."""
    some = np.diff(votes.offset) > 0
    order = np.lexsort([-votes.share, np.repeat(np.arange(len(some)), np.diff(votes.offset))])
    best = otherwise.copy()
    best[some] = votes.segment[order[votes.offset[:-1][some]]]
    return best


@njit(cache=True, nogil=True)
def rank_steps(
    pairs: Pairs,
    cost: Floats,
    segment: Segments,
    ratio: Floats,
    time: Floats,
    fix: Ints,
    fix_offset: Ints,
    taste: Taste,
) -> Ranked:
    """Rank the segments e that lie after a and before b, the true segments of the fixes around a step.

    The score is log(N(a, e) N(e, b) / N(e)), which would be the log of the number of trips over all three if what is
    behind told nothing of what is to come, plus the log of the probability to be on e at the time of the step, plus a
    little for a usual time in all. Times are scaled so that the way over e takes the time between the fixes.
    """
    n = len(segment)
    best, rank = np.full(n, -1, np.int32), np.full(n, -1, np.int64)
    after, before, candidates = np.zeros(n, np.bool_), np.zeros(n, np.bool_), np.zeros(n, np.int64)
    for trip in range(len(fix_offset) - 1):
        for f in range(fix_offset[trip], fix_offset[trip + 1] - 1):
            i, j = fix[f], fix[f + 1]
            a, b = segment[i], segment[j]
            for k in range(i + 1, j):
                truth = segment[k]
                after[k] = truth == a or pair_of(pairs, a, truth) >= 0
                before[k] = truth == b or pair_of(pairs, truth, b) >= 0
                if a == b:
                    best[k], rank[k], candidates[k] = a, 0 if truth == a else -1, 1
                    continue
                e, score = _scores(pairs, cost, a, b, ratio[i], ratio[j], time[j] - time[i], time[k] - time[i], taste)
                best[k], candidates[k] = e[np.argmax(score)], len(e)
                for c in range(len(e)):
                    if e[c] == truth:
                        rank[k] = (score > score[c]).sum()
    return Ranked(best, rank, after, before, candidates)


@njit(cache=True, nogil=True)
def _scores(
    pairs: Pairs, cost: Floats, a: int, b: int, from_a: float, to_b: float, seconds: float, now: float, taste: Taste
) -> tuple[Segments, Floats]:
    first, stop = pairs.offset[a], pairs.offset[a + 1]
    segment, score = np.empty(stop - first + 2, np.int32), np.empty(stop - first + 2)
    ahead, behind = (1.0 - from_a) * cost[a], to_b * cost[b]
    ab = pair_of(pairs, a, b)
    between, var = max(seconds - ahead - behind, 0.0), (0.3 * seconds) ** 2
    common = math.log(taste.unseen)
    if ab >= 0:
        between, var = _moments(pairs, ab, taste)
        common = math.log(pairs.trips[ab] + taste.unseen)
    at_a, at_b = _variance(ahead, taste), _variance(behind, taste)
    whole = ahead + between + behind
    common += _usual(whole, seconds, taste)
    scale = seconds / max(whole, 1e-3)
    segment[0] = a
    score[0] = common + _log(_normal((ahead * scale - now) / _bridge(at_a, var + at_b, taste)))
    segment[1] = b
    score[1] = common + _log(_normal((now - (ahead + between) * scale) / _bridge(at_a + var, at_b, taste)))
    n = 2
    for q in range(first, stop):
        e = pairs.target[q]
        r = pair_of(pairs, e, b)
        if e == b or r < 0:
            continue
        to_e, var_to = _moments(pairs, q, taste)
        from_e, var_from = _moments(pairs, r, taste)
        whole = ahead + to_e + cost[e] + from_e + behind
        scale = seconds / whole
        sd = _bridge(at_a + var_to, var_from + at_b, taste)
        enter, leave = (ahead + to_e) * scale, (ahead + to_e + cost[e]) * scale
        segment[n] = e
        score[n] = math.log(pairs.trips[q] * pairs.trips[r] / pairs.visits[e]) + _usual(whole, seconds, taste)
        score[n] += _log(_normal((now - enter) / sd) - _normal((now - leave) / sd))
        n += 1
    return segment[:n], score[:n]


@njit(cache=True, nogil=True)
def _moments(pairs: Pairs, q: int, taste: Taste) -> tuple[float, float]:
    """Return mean and variance of the time of a pair; the variance is shrunk towards a share of the mean."""
    count = pairs.trips[q]
    mean = pairs.seconds[q] / count
    usual = taste.least_s + taste.share * mean
    shrunk = (pairs.squares[q] + taste.prior * usual**2) / (count + taste.prior)
    return mean, shrunk * (1.0 + 1.0 / count) + taste.least_s**2


@njit(cache=True, nogil=True)
def _variance(seconds: float, taste: Taste) -> float:
    return taste.least_s**2 + (taste.share * seconds) ** 2


@njit(cache=True, nogil=True)
def _bridge(before: float, after: float, taste: Taste) -> float:
    """Return the standard deviation of a time between two known ones."""
    return taste.narrow * math.sqrt(before * after / (before + after))


@njit(cache=True, nogil=True)
def _usual(whole: float, seconds: float, taste: Taste) -> float:
    z = math.log((whole + 10.0) / (seconds + 10.0)) / taste.pace
    return -0.5 * z * z


@njit(cache=True, nogil=True)
def _normal(z: float) -> float:
    return 0.5 * math.erfc(-z / math.sqrt(2.0))


@njit(cache=True, nogil=True)
def _log(probability: float) -> float:
    return math.log(max(probability, 1e-12))


if __name__ == "__main__":
    main()
