"""Votes of past trips: which segments are likely at each step, given the fixes around it.

The states of a fix are its candidates. Past sub-trips lead from a candidate a of one fix to a candidate b of the next;
each weighs exp(-|its time - elapsed time| / scale). Their sum over sqrt(passes of a x passes of b) is the weight of the
transition, so that busy roads do not win by being busy, and a chain over the fixes of the trip (forward-backward)
gives every sub-trip its probability. With it the sub-trip votes for where it was at the proportional time. The route
that the matcher found takes part as one more, light sub-trip.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.methods.past.history import History, Passes, find_passes, position_at

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

CUT = 4.0  # a sub-trip whose time differs by more scales than this does not vote
JUMP = 1e-9  # weight of a transition that nobody made
PRIOR = 1.0  # passes that every candidate is taken to have had besides
LIGHT = 1e-5  # a sub-trip whose probability among all between two fixes is less does not vote


class Fixes(NamedTuple):
    """F fixes of T trips with at least one candidate each."""

    offset: Ints  # [T+1] trip i has the fixes offset[i]:offset[i + 1]
    time: Floats  # [F] seconds from the start of the trip, rising
    candidate_offset: Ints  # [F+1]
    segment: Segments  # [C]
    ratio: Floats  # [C]
    likelihood: Floats  # [C] of the fix given the candidate; at least one of a fix is positive
    chosen: Ints  # [F] candidate that the matcher chose, counted from the first of the fix; -1 for none
    left_out: Ints  # [T] past trip that is this one, and so has no vote; -1 for none


class Steps(NamedTuple):
    """N steps of T trips, and where the route that the matcher found is at each."""

    offset: Ints  # [T+1]
    time: Floats  # [N] seconds from the start of the trip, rising
    segment: Segments  # [N] -1 where the route is nowhere
    ratio: Floats  # [N]


class Weights(NamedTuple):
    """How much each kind of evidence weighs."""

    scale_s: float  # a sub-trip whose time differs by this weighs 1/e
    near_m: float  # see find_passes
    route: float  # of the route that the matcher found, in sub-trips


class Votes(NamedTuple):
    """The segments voted for at N steps, ragged; the shares of a step add up to 1."""

    offset: Ints  # [N+1] a step without any vote has none
    segment: Segments  # [M]
    share: Floats  # [M]
    ratio: Floats  # [M] weighted mean of those who voted for the segment


class SubTrips(NamedTuple):
    """K past sub-trips between consecutive fixes of a trip; passes are numbered through all its fixes."""

    offset: Ints  # [number of fixes] those between fix i and the next are offset[i]:offset[i + 1]
    first: Ints  # [K] pass at the first fix
    last: Ints  # [K] and at the second
    weight: Floats  # [K]


class Voters(NamedTuple):
    """K past sub-trips between two fixes that vote."""

    piece: Ints  # [K] where the sub-trip is; it goes on from step to step
    start: Floats  # [K] when it was at the first fix, in seconds from the start of the past trip
    seconds: Floats  # [K] from there to the second fix
    chance: Floats  # [K] its probability, up to a constant


@njit(cache=True, nogil=True)
def collect_votes(
    history: History, length: Floats, fixes: Fixes, steps: Steps, weights: Weights
) -> Votes:  # pragma: no cover  (compiled)
    """Return the votes at all steps.

    A step at the time of a fix has the probabilities of its candidates; so have steps before the first fix and after
    the last one.

    Parameters
    ----------
    history
        The past trips.
    length
        Metres of all segments [S].
    fixes, steps
        The trips.
    weights
        How much each kind of evidence weighs.
    """
    offset = np.zeros(steps.offset[-1] + 1, np.int64)
    segment = np.empty(8 * len(offset), np.int32)
    share, ratio = np.empty(len(segment)), np.empty(len(segment))
    slot = np.full(len(length), -1, np.int64)
    head = np.full(len(history.offset) - 1, -1, np.int64)
    for trip in range(len(fixes.offset) - 1):
        k, end = steps.offset[trip], steps.offset[trip + 1]
        first, stop = fixes.offset[trip], fixes.offset[trip + 1]
        if first == stop:
            offset[k + 1 : end + 1] = offset[k]
            continue
        own = fixes_of(fixes, trip)
        passes = find_passes(history, own.segment, own.ratio, length, weights.near_m, own.left_out[0])
        found = join(history.trip, head, own, passes, weights.scale_s)
        rarity = _rarity(own, passes, weights.route)
        forward, backward = _chain(own, passes, found, rarity, weights.route)
        for f in range(stop - first):
            low, high = own.candidate_offset[f], own.candidate_offset[f + 1]
            is_last = f == stop - first - 1
            while k < end and (steps.time[k] <= own.time[f] or is_last):
                room = high - low
                if offset[k] + room > len(segment):
                    segment, share, ratio = (
                        resized(segment, len(segment), 2 * len(segment) + room),
                        resized(share, len(share), 2 * len(share) + room),
                        resized(ratio, len(ratio), 2 * len(ratio) + room),
                    )
                offset[k + 1] = _vote_at_fix(own, low, high, forward, backward, offset[k], segment, share, ratio)
                k += 1
            if is_last:
                break
            voters = _voters(own, f, passes, found, rarity, forward, backward, weights.route)
            while k < end and steps.time[k] < own.time[f + 1]:
                room = len(voters.chance)
                if offset[k] + room > len(segment):
                    segment, share, ratio = (
                        resized(segment, len(segment), 2 * len(segment) + room),
                        resized(share, len(share), 2 * len(share) + room),
                        resized(ratio, len(ratio), 2 * len(ratio) + room),
                    )
                part = (steps.time[k] - own.time[f]) / (own.time[f + 1] - own.time[f])
                route = int(steps.segment[k]), float(steps.ratio[k])
                offset[k + 1] = _vote(history, voters, part, route, slot, offset[k], segment, share, ratio)
                k += 1
    return Votes(offset, segment[: offset[-1]].copy(), share[: offset[-1]].copy(), ratio[: offset[-1]].copy())


@njit(cache=True, nogil=True)
def fixes_of(fixes: Fixes, trip: int) -> Fixes:  # pragma: no cover  (compiled)
    """Return the fixes of one trip."""
    first, stop = fixes.offset[trip], fixes.offset[trip + 1]
    low, high = fixes.candidate_offset[first], fixes.candidate_offset[stop]
    return Fixes(
        np.array([0, stop - first]),
        fixes.time[first:stop],
        fixes.candidate_offset[first : stop + 1] - low,
        fixes.segment[low:high],
        fixes.ratio[low:high],
        fixes.likelihood[low:high],
        fixes.chosen[first:stop],
        fixes.left_out[trip : trip + 1],
    )


@njit(cache=True, nogil=True)
def join(trip: Segments, head: Ints, fixes: Fixes, passes: Passes, scale: float) -> SubTrips:  # pragma: no cover
    """Return the past sub-trips between consecutive fixes of a trip.

    ``trip`` is the trip of each piece; ``head`` holds -1 for every past trip, before and after.
    """
    room = len(passes.piece) + 16
    first, last, weight = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room)
    following = np.empty(len(passes.piece), np.int64)
    offset = np.zeros(len(fixes.time), np.int64)
    n = 0
    for f in range(len(fixes.time) - 1):
        elapsed = fixes.time[f + 1] - fixes.time[f]
        a = passes.offset[fixes.candidate_offset[f]]
        b = passes.offset[fixes.candidate_offset[f + 1]]
        stop = passes.offset[fixes.candidate_offset[f + 2]]
        for j in range(stop - 1, b - 1, -1):
            who = trip[passes.piece[j]]
            following[j] = head[who]
            head[who] = j
        for i in range(a, b):
            j = head[trip[passes.piece[i]]]
            while j >= 0:
                took = passes.time[j] - passes.time[i]
                away = abs(took - elapsed) / scale
                if took > 0.0 and away <= CUT:
                    if n == len(first):
                        first, last, weight = (
                            resized(first, len(first), 2 * len(first)),
                            resized(last, len(last), 2 * len(last)),
                            resized(weight, len(weight), 2 * len(weight)),
                        )
                    first[n], last[n] = i, j
                    weight[n] = passes.weight[i] * passes.weight[j] * np.exp(-away)
                    n += 1
                j = following[j]
        for j in range(b, stop):
            head[trip[passes.piece[j]]] = -1
        offset[f + 1] = n
    return SubTrips(offset, first[:n], last[:n], weight[:n])


@njit(cache=True, nogil=True)
def _rarity(fixes: Fixes, passes: Passes, route: float) -> Floats:  # pragma: no cover  (compiled)
    """Return 1 / sqrt(passes) of each candidate of a trip; the route of the matcher counts as one."""
    count = np.full(len(fixes.segment), PRIOR)
    for i in range(len(passes.place)):
        count[passes.place[i]] += passes.weight[i]
    for f in range(len(fixes.chosen)):
        if fixes.chosen[f] >= 0:
            count[fixes.candidate_offset[f] + fixes.chosen[f]] += route
    rarity: Floats = 1.0 / np.sqrt(count)
    return rarity


@njit(cache=True, nogil=True)
def _chain(
    fixes: Fixes, passes: Passes, found: SubTrips, rarity: Floats, route: float
) -> tuple[Floats, Floats]:  # pragma: no cover  (compiled)
    """Return forward and backward values of all candidates of a trip; those of one fix add up to 1."""
    bound, n = fixes.candidate_offset, len(fixes.time)
    forward, backward = np.zeros(len(rarity)), np.zeros(len(rarity))
    forward[: bound[1]] = fixes.likelihood[: bound[1]] / fixes.likelihood[: bound[1]].sum()
    for f in range(n - 1):
        flow = 0.0
        for c in range(bound[f], bound[f + 1]):
            flow += forward[c] * rarity[c]
        forward[bound[f + 1] : bound[f + 2]] = JUMP * flow
        for q in range(found.offset[f], found.offset[f + 1]):
            c, d = passes.place[found.first[q]], passes.place[found.last[q]]
            forward[d] += forward[c] * rarity[c] * found.weight[q]
        if fixes.chosen[f] >= 0 and fixes.chosen[f + 1] >= 0:
            c, d = bound[f] + fixes.chosen[f], bound[f + 1] + fixes.chosen[f + 1]
            forward[d] += forward[c] * rarity[c] * route
        total = 0.0
        for c in range(bound[f + 1], bound[f + 2]):
            forward[c] *= rarity[c] * fixes.likelihood[c]
            total += forward[c]
        forward[bound[f + 1] : bound[f + 2]] /= total
    backward[bound[n - 1] :] = 1.0
    for f in range(n - 2, -1, -1):
        # What a candidate of the next fix is worth, seen from this one.
        worth = fixes.likelihood[bound[f + 1] : bound[f + 2]] * backward[bound[f + 1] : bound[f + 2]]
        worth *= rarity[bound[f + 1] : bound[f + 2]]
        backward[bound[f] : bound[f + 1]] = JUMP * worth.sum()
        for q in range(found.offset[f], found.offset[f + 1]):
            c, d = passes.place[found.first[q]], passes.place[found.last[q]]
            backward[c] += worth[d - bound[f + 1]] * found.weight[q]
        if fixes.chosen[f] >= 0 and fixes.chosen[f + 1] >= 0:
            backward[bound[f] + fixes.chosen[f]] += worth[fixes.chosen[f + 1]] * route
        total = 0.0
        for c in range(bound[f], bound[f + 1]):
            backward[c] *= rarity[c]
            total += backward[c]
        backward[bound[f] : bound[f + 1]] /= total
    return forward, backward


@njit(cache=True, nogil=True)
def _voters(
    fixes: Fixes,
    f: int,
    passes: Passes,
    found: SubTrips,
    rarity: Floats,
    forward: Floats,
    backward: Floats,
    route: float,
) -> Voters:  # pragma: no cover  (compiled)
    """Return the sub-trips from fix ``f`` to the next whose probability matters; the last is the matcher's route."""
    low, high = found.offset[f], found.offset[f + 1]
    chance = np.zeros(high - low + 1)
    total = 0.0
    for q in range(low, high):
        c, d = passes.place[found.first[q]], passes.place[found.last[q]]
        chance[q - low] = forward[c] * rarity[c] * found.weight[q] * rarity[d] * fixes.likelihood[d] * backward[d]
        total += chance[q - low]
    if fixes.chosen[f] >= 0 and fixes.chosen[f + 1] >= 0:
        c = fixes.candidate_offset[f] + fixes.chosen[f]
        d = fixes.candidate_offset[f + 1] + fixes.chosen[f + 1]
        chance[-1] = forward[c] * rarity[c] * route * rarity[d] * fixes.likelihood[d] * backward[d]
    piece, start, seconds = np.empty(len(chance) - 1, np.int64), np.empty(len(chance) - 1), np.empty(len(chance) - 1)
    n = 0
    for q in range(low, high):
        if chance[q - low] > LIGHT * total:
            i, j = found.first[q], found.last[q]
            piece[n], start[n], seconds[n] = passes.piece[i], passes.time[i], passes.time[j] - passes.time[i]
            chance[n] = chance[q - low]
            n += 1
    chance[n] = chance[-1]
    return Voters(piece[:n], start[:n], seconds[:n], chance[: n + 1])


@njit(cache=True, nogil=True)
def _vote(
    history: History,
    voters: Voters,
    part: float,
    route: tuple[int, float],
    slot: Ints,
    size: int,
    segment: Segments,
    share: Floats,
    ratio: Floats,
) -> int:  # pragma: no cover  (compiled)
    """Write the votes at a step from place ``size`` on and return where they end.

    ``part`` is the share of the gap that lies behind; ``route`` is segment and ratio of the matcher's route. ``slot``
    holds -1 for every segment, before and after.
    """
    begin = size
    total = 0.0
    for q in range(len(voters.chance)):
        if q < len(voters.piece):
            time = voters.start[q] + part * voters.seconds[q]
            voters.piece[q], s, r = position_at(history, voters.piece[q], time)
        else:
            s, r = route
        if s < 0 or voters.chance[q] <= 0.0:
            continue
        if slot[s] < 0:
            slot[s] = size
            segment[size] = s
            share[size] = ratio[size] = 0.0
            size += 1
        share[slot[s]] += voters.chance[q]
        ratio[slot[s]] += voters.chance[q] * r
        total += voters.chance[q]
    for i in range(begin, size):
        slot[segment[i]] = -1
        ratio[i] /= share[i]
        share[i] /= total
    return size


@njit(cache=True, nogil=True)
def _vote_at_fix(
    fixes: Fixes,
    first: int,
    stop: int,
    forward: Floats,
    backward: Floats,
    size: int,
    segment: Segments,
    share: Floats,
    ratio: Floats,
) -> int:  # pragma: no cover  (compiled)
    """Write the probabilities of the candidates of a fix from place ``size`` on and return where they end."""
    total = 0.0
    for c in range(first, stop):
        total += forward[c] * backward[c]
    for c in range(first, stop):
        chance = forward[c] * backward[c] / total
        if chance > 0.0:
            segment[size], share[size], ratio[size] = fixes.segment[c], chance, fixes.ratio[c]
            size += 1
    return size
