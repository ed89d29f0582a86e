"""Past trips that passed both fixes of a gap: where they were in between.

A past trip that was on a candidate segment a of the earlier fix and later on a candidate b of the later one has driven
the gap before. Its drive is cut at the two positions and stretched to the time of the gap. It weighs

    w = exp(-|its time - that of the gap| / scale) / sqrt(passes of a x passes of b),

so that busy roads do not win by being busy. The sum of these weights over all drives from a to b, some for the route of
the map, and a little for the case that nobody drove it, is the transition between two candidates; with the
probabilities of candidates by distance, forward-backward over all fixes of the trip gives each candidate and each drive
its probability. At every step a drive votes for the segment it was on then.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.methods.past.passing import Passing
from tedtrajrec.methods.past.places import room_for, slot_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]
Records = NDArray[Any]

FARTHEST = 6.0  # scales; a past drive whose time is farther off has no vote
UNLIKELY = 1e-3  # candidates of less weight are not joined by drives
JUMP = 1e-5  # weight of a transition that nobody made
ROUTE = 0.2  # weight of the route of the map, as that of a drive
LIGHT = 1e-3  # drives of less probability have no vote
NEW = 0.01  # drives of less probability bring no segment that is not asked for
PRIOR = 1.0  # passes of a segment more than were seen
LEAST = 1e-30  # sums are not below this where they divide

DRIVE = np.dtype(
    [
        ("source", np.int32),  # its visits of the candidates at both ends
        ("target", np.int32),
        ("pair", np.int64),  # which transition it belongs to
        ("start", np.float64),  # seconds from the start of its trip
        ("took", np.float64),  # seconds
        ("weight", np.float64),
    ]
)
WAITING = np.dtype(
    [
        ("time", np.float64),  # at which the trip was at the candidate
        ("trip", np.int32),
        ("visit", np.int32),
        ("candidate", np.int32),
        ("following", np.int32),  # one of the same trip; -1 behind the last
    ]
)


class Ends(NamedTuple):
    """Candidates of F fixes, ragged, the nearest first."""

    offset: Ints  # [F+1]
    segment: Segments
    ratio: Floats
    distance_m: Floats
    nats: Floats  # less likely than the nearest
    weight: Floats  # probability by distance alone
    route: Ints  # candidate of the fix before from which the map's best route comes, by number; -1 for none
    fit: Floats  # how well the time of that route fits, 0 to 1


class Asked(NamedTuple):
    """T trips, whose G gaps have candidates and steps that are asked for."""

    fix: Ints  # [T+1] trip t has the fixes fix[t]:fix[t + 1]
    gap: Ints  # [T+1] and the gaps gap[t]:gap[t + 1], from each of its fixes to the next
    own: Ints  # [T] past trip that is the asking one and has no vote; -1 for none
    seconds: Floats  # [G]
    offset: Ints  # [G+1] its candidates
    segment: Segments
    row: Ints  # [G] first row of its steps in the table of votes
    steps: Ints  # [G] how many
    early_s: Floats  # [G] seconds from the earlier fix to the first of them
    step_s: float


class Passed(NamedTuple):
    """What past drives say."""

    votes: Reals  # [R, C] probability of the candidates of a gap at one step, in their order, then of ``more``
    evidence: Reals  # [G] weight of all drives
    posterior: Reals  # [E] probability of each candidate of a fix, by distance and past drives
    more: Segments  # [G, M] segments besides the candidates that drives were on; -1 where there is none
    stay: Reals  # [G, M, 3] of these, weight of the drives, and summed with it the shares of the gap at which they
    # entered and left


def no_heads(passing: Passing) -> Segments:
    """Return working memory of one thread for :func:`vote`."""
    return np.full(passing.n_trips, -1, np.int32)


@njit(cache=True, nogil=True)
def vote(
    passing: Passing, ends: Ends, asked: Asked, scale_s: float, head: Segments, low: int, high: int, out: Passed
) -> None:  # pragma: no cover  (compiled)
    """Fill in what past drives say of trips ``low`` to ``high``.

    Parameters
    ----------
    passing, ends, asked
        Past trips, candidates of the fixes, and what is asked for.
    scale_s
        See the module.
    head
        Working memory, see :func:`no_heads`; it is left as it was.
    low, high
        Which trips.
    out
        The result: 0 before, and -1 in ``more``.
    """
    drives, waiting = np.empty(1024, DRIVE), np.empty(1024, WAITING)
    table = np.empty(room_for(out.votes.shape[1]), np.int32)
    place = np.empty(len(table), np.int32)
    for trip in range(low, high):
        n_gaps = asked.gap[trip + 1] - asked.gap[trip]
        here = _candidates(passing, ends, asked.fix[trip], asked.fix[trip + 1], asked.own[trip])
        # The transitions from each candidate to each of the next fix, and the drives, those of one gap after another.
        pair, bound = np.zeros(n_gaps + 1, np.int64), np.zeros(n_gaps + 1, np.int64)
        for i in range(n_gaps):
            a, b, end = here.offset[i], here.offset[i + 1], here.offset[i + 2]
            pair[i + 1] = pair[i] + (b - a) * (end - b)
        flow = np.zeros(pair[-1])
        for i in range(n_gaps):
            gap, part = asked.gap[trip] + i, flow[pair[i] : pair[i + 1]]
            waiting, n_waiting = _wait(passing, here, i, asked.own[trip], head, waiting)
            drives, bound[i + 1] = _join(
                passing, here, i + 1, asked.seconds[gap], scale_s, head, waiting, drives, bound[i], part
            )
            for k in range(n_waiting):
                head[waiting[k]["trip"]] = -1
            out.evidence[gap] = _evidence(here, i, part)
        _weigh(here, flow, pair, out.posterior[ends.offset[asked.fix[trip]] : ends.offset[asked.fix[trip + 1]]])
        for i in range(n_gaps):
            gap, some = asked.gap[trip] + i, drives[bound[i] : bound[i + 1]]
            _cast(passing, asked, gap, some, flow[pair[i] : pair[i + 1]], table, place, out)


class _Candidates(NamedTuple):
    """Those of the fixes of one trip, numbered from 0."""

    offset: Ints
    segment: Segments
    ratio: Floats
    weight: Floats
    rare: Floats  # 1 / sqrt(passes)
    route: Ints
    route_weight: Floats


@njit(cache=True, nogil=True)
def _candidates(
    passing: Passing, ends: Ends, first: int, stop: int, own: int
) -> _Candidates:  # pragma: no cover  (compiled)
    """Return the candidates of fixes ``first`` to ``stop``; passes of the trip ``own`` do not count."""
    low, high = ends.offset[first], ends.offset[stop]
    segment = ends.segment[low:high]
    rare, route, route_weight = np.empty(len(segment)), np.empty(len(segment), np.int64), np.zeros(len(segment))
    for k in range(len(segment)):
        passes = 0
        for i in range(passing.offset[segment[k]], passing.offset[segment[k] + 1]):
            passes += passing.seen[i]["trip"] != own
        rare[k] = 1.0 / np.sqrt(PRIOR + passes)
        route[k] = ends.route[low + k] - low
        if route[k] >= 0:
            route_weight[k] = ROUTE * ends.fit[low + k] * rare[route[k]] * rare[k]
    offset = np.empty(stop - first + 1, np.int64)
    for i in range(len(offset)):
        offset[i] = ends.offset[first + i] - low
    return _Candidates(offset, segment, ends.ratio[low:high], ends.weight[low:high], rare, route, route_weight)


@njit(cache=True, nogil=True)
def _wait(
    passing: Passing, here: _Candidates, fix: int, own: int, head: Segments, waiting: Records
) -> tuple[Records, int]:  # pragma: no cover  (compiled)
    """List the visits of the candidates of a fix; ``head`` of a trip points to its last one. Return list and number."""
    n = 0
    for k in range(here.offset[fix], here.offset[fix + 1]):
        if here.weight[k] < UNLIKELY:
            continue
        first, stop = passing.offset[here.segment[k]], passing.offset[here.segment[k] + 1]
        if n + stop - first > len(waiting):
            waiting = resized(waiting, len(waiting), max(2 * len(waiting), n + stop - first))
        for i in range(first, stop):
            visit = passing.seen[i]
            t = visit["trip"]
            if t == own:
                continue
            item = waiting[n]
            item["trip"], item["visit"], item["candidate"], item["following"] = t, visit["visit"], k, head[t]
            item["time"] = visit["enter"] + here.ratio[k] * (visit["leave"] - visit["enter"])
            head[t] = n
            n += 1
    return waiting, n


@njit(cache=True, nogil=True)
def _join(
    passing: Passing,
    here: _Candidates,
    fix: int,
    seconds: float,
    scale_s: float,
    head: Segments,
    waiting: Records,
    drives: Records,
    n: int,
    flow: Floats,
) -> tuple[Records, int]:  # pragma: no cover  (compiled)
    """Put the drives of waiting trips to the candidates of a fix behind the ``n`` others; return all and their number.

    Their weights are added to ``flow``, the transitions from each candidate of the fix before.
    """
    before, low, high = here.offset[fix - 1], here.offset[fix], here.offset[fix + 1]
    for k in range(low, high):
        if here.weight[k] < UNLIKELY:
            continue
        for i in range(passing.offset[here.segment[k]], passing.offset[here.segment[k] + 1]):
            visit = passing.seen[i]
            j = head[visit["trip"]]
            if j < 0:
                continue
            end = visit["enter"] + here.ratio[k] * (visit["leave"] - visit["enter"])
            while j >= 0:
                item = waiting[j]
                j = item["following"]
                a, start = item["candidate"], item["time"]
                away = abs(end - start - seconds) / scale_s
                if item["visit"] > visit["visit"] or end < start or away > FARTHEST:
                    continue
                if n == len(drives):
                    drives = resized(drives, len(drives), max(2 * len(drives), n + 1))
                weight = np.exp(-away) * here.rare[a] * here.rare[k]
                pair = (a - before) * (high - low) + k - low
                flow[pair] += weight
                drive = drives[n]
                drive["source"], drive["target"], drive["pair"] = item["visit"], visit["visit"], pair
                drive["start"], drive["took"], drive["weight"] = start, end - start, weight
                n += 1
    return drives, n


@njit(cache=True, nogil=True)
def _evidence(here: _Candidates, fix: int, flow: Floats) -> float:  # pragma: no cover  (compiled)
    """Return the weight of all drives from a fix to the next, each as likely as its two ends."""
    total, pair = 0.0, 0
    for a in range(here.offset[fix], here.offset[fix + 1]):
        for b in range(here.offset[fix + 1], here.offset[fix + 2]):
            total += here.weight[a] * here.weight[b] * flow[pair]
            pair += 1
    return total


@njit(cache=True, nogil=True)
def _weigh(here: _Candidates, flow: Floats, pair: Ints, posterior: Reals) -> None:  # pragma: no cover  (compiled)
    """Fill in ``posterior``, and turn the weights of the transitions by drives into factors of probability.

    The transitions of gap i are flow[pair[i]:pair[i + 1]]. The weight of a drive times the factor of its transition is
    its share of all drives of the gap.
    """
    n = len(here.offset) - 1  # fixes
    forward, backward = here.weight.copy(), np.ones(len(here.weight))
    for i in range(1, n):
        before, low, high = here.offset[i - 1], here.offset[i], here.offset[i + 1]
        total = 0.0
        for b in range(low, high):
            come = JUMP + (forward[here.route[b]] * here.route_weight[b] if here.route[b] >= 0 else 0.0)
            for a in range(before, low):
                come += forward[a] * flow[pair[i - 1] + (a - before) * (high - low) + b - low]
            forward[b] *= come
            total += forward[b]
        for b in range(low, high):
            forward[b] /= total
    # Below, backward[k] becomes the probability of k itself and of all that comes after it.
    for i in range(n - 1, -1, -1):
        low, high = here.offset[i], here.offset[i + 1]
        if i < n - 1:
            stop = here.offset[i + 2]
            jump = driven = 0.0
            for b in range(high, stop):
                jump += JUMP * backward[b]
            for a in range(low, high):
                backward[a] = jump
            for b in range(high, stop):
                if here.route[b] >= 0:
                    backward[here.route[b]] += here.route_weight[b] * backward[b]
            for a in range(low, high):
                first = pair[i] + (a - low) * (stop - high) - high
                goes = 0.0
                for b in range(high, stop):
                    goes += flow[first + b] * backward[b]
                backward[a] += goes
                driven += forward[a] * goes
            for a in range(low, high):
                first = pair[i] + (a - low) * (stop - high) - high
                for b in range(high, stop):
                    flow[first + b] = forward[a] * backward[b] / max(driven, LEAST)
        total = largest = 0.0
        for a in range(low, high):
            total += forward[a] * backward[a]
            largest = max(largest, backward[a])
        for a in range(low, high):
            posterior[a] = forward[a] * backward[a] / total
            backward[a] *= here.weight[a] / largest


@njit(cache=True, nogil=True)
def _cast(
    passing: Passing,
    asked: Asked,
    gap: int,
    drives: Records,
    factor: Floats,
    table: Segments,
    place: Segments,
    out: Passed,
) -> None:  # pragma: no cover  (compiled)
    """Cast the votes of the drives of a gap, one after another: the first ones bring the segments not asked for."""
    first = asked.offset[gap]
    n_asked = asked.offset[gap + 1] - first
    n = n_asked
    table[:] = -1
    for c in range(n_asked):
        slot = slot_of(table, asked.segment[first + c])
        table[slot], place[slot] = asked.segment[first + c], c
    row, stop = asked.row[gap], asked.row[gap] + asked.steps[gap]
    for drive in drives:
        weight = drive["weight"] * factor[drive["pair"]]
        if weight < LIGHT:
            continue
        w, last, at = drive["source"], -1, -1
        start, took = drive["start"], drive["took"]
        for step in range(row, stop):
            share = (asked.early_s[gap] + (step - row) * asked.step_s) / asked.seconds[gap]
            time = start + min(max(share, 0.0), 1.0) * took
            while w < drive["target"] and passing.leave[w] < time:
                w += 1
            if w != last:
                last = w
                e = passing.segment[w]
                slot = slot_of(table, e)
                if table[slot] < 0 and n < n_asked + out.more.shape[1] and weight >= NEW:
                    table[slot], place[slot] = e, n
                    out.more[gap, n - n_asked] = e
                    n += 1
                at = place[slot] if table[slot] >= 0 else -1
                if at >= n_asked:
                    stay = out.stay[gap, at - n_asked]
                    stay[0] += weight
                    stay[1] += weight * max(passing.enter[w] - start, 0.0) / max(took, 1.0)
                    stay[2] += weight * min(passing.leave[w] - start, took) / max(took, 1.0)
            if at >= 0:
                out.votes[step, at] += weight
    for step in range(row, stop):
        total = 0.0
        for c in range(n):
            total += out.votes[step, c]
        for c in range(n):
            out.votes[step, c] /= max(total, LEAST)
