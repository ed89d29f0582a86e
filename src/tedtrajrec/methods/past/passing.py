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

from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.past.visits import Visits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

FARTHEST = 6.0  # scales; a past drive whose time is farther off has no vote
UNLIKELY = 1e-3  # candidates of less weight take no part
JUMP = 1e-5  # weight of a transition that nobody made
ROUTE = 0.2  # weight of the route of the map, as that of a drive
MORE = 8  # segments of past drives at most that become candidates of a gap besides those asked for
LIGHT = 1e-3  # drives of less probability have no vote
NEW = 0.01  # drives of less probability bring no segment that is not asked for
PRIOR = 1.0  # passes of a segment more than were seen
HASH = 512  # places for the candidates of a gap, a power of two above twice their number


class Passing(NamedTuple):
    """V visits of T past trips, and for each segment those that are remembered; 20 bytes a visit."""

    trip: Segments  # [V]
    segment: Segments  # [V]
    enter: Reals  # [V] seconds from the start of the trip
    leave: Reals  # [V]
    offset: Ints  # [S+1] visits of segment s are visit[offset[s]:offset[s + 1]]
    visit: Segments  # [K] rising for each segment
    n_trips: int


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
    """G gaps of T trips whose candidates and steps are asked for."""

    trip: Ints  # [T+1] trip t has the gaps trip[t]:trip[t + 1], one after another
    first: Ints  # [G] fix at which it begins; the next fix ends it
    seconds: Floats  # [G]
    own: Ints  # [G] past trip that is the asking one and has no vote; -1 for none
    offset: Ints  # [G+1] its candidates
    segment: Segments
    row: Ints  # [G] first row of its steps in the table of votes
    steps: Ints  # [G] how many
    share: Floats  # [R] of each row: the part of the gap that has passed


def index_passing(visits: Visits, rank: Ints, n_segments: int, *, most: int = 300) -> Passing:
    """Return past trips in the order of visits by segment.

    Parameters
    ----------
    visits
        Of all past trips.
    rank
        Of the trips [T]: where a segment has more than ``most`` visits, those of the lowest rank are remembered. The
        same trips are left on all busy segments, so that they can still be joined.
    n_segments
        Number of segments of the network.
    most
        See ``rank``.
    """
    trip = np.repeat(np.arange(len(visits.offset) - 1), np.diff(visits.offset))
    order = np.lexsort((rank[trip], visits.segment))
    start = np.searchsorted(visits.segment[order], np.arange(n_segments + 1))
    place = np.arange(len(order)) - start[visits.segment[order]]
    kept = np.sort(order[place < most])
    kept = kept[np.argsort(visits.segment[kept], kind="stable")]
    return Passing(
        trip.astype(np.int32),
        visits.segment,
        visits.enter,
        visits.leave,
        np.searchsorted(visits.segment[kept], np.arange(n_segments + 1)).astype(np.int64),
        kept.astype(np.int32),
        len(visits.offset) - 1,
    )


def no_passing(n_segments: int) -> Passing:
    """Return no past trips."""
    none, times = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return Passing(none, none, times, times, np.zeros(n_segments + 1, np.int64), none, 0)


def passing_state(passing: Passing) -> Arrays:
    """Return past trips as plain arrays."""
    return {name: np.atleast_1d(value) for name, value in passing._asdict().items()}


def restored_passing(state: Arrays) -> Passing:
    """Return what :func:`passing_state` made arrays of."""
    return Passing(**{**state, "n_trips": int(state["n_trips"][0])})  # type: ignore[arg-type]


@njit(cache=True, nogil=True)
def vote(
    passing: Passing,
    ends: Ends,
    asked: Asked,
    scale_s: float,
    low: int,
    high: int,
    votes: Reals,
    evidence: Reals,
    posterior: Reals,
    more: Segments,
    stay: Reals,
) -> None:  # pragma: no cover  (compiled)
    """Fill in what past drives say of trips ``low`` to ``high``.

    Parameters
    ----------
    passing, ends, asked
        Past trips, candidates of the fixes, and what is asked for.
    scale_s
        See the module.
    low, high
        Which trips.
    votes
        For each row the probability of the candidates of its gap, in their order [R, C].
    evidence
        The weight of all drives of each gap [G].
    posterior
        The probability of each candidate of a fix, by distance and past drives [E].
    more
        Segments besides the candidates that drives were on [G, MORE], -1 before; they have the columns of ``votes``
        behind the candidates.
    stay
        For these the weight of the drives, and summed with it the shares of the gap when they entered and left
        [G, MORE, 3].
    """
    head = np.full(passing.n_trips, -1, np.int64)
    place, key, used = np.empty(HASH, np.int64), np.full(HASH, -1, np.int64), np.empty(HASH, np.int64)
    waiting, row, following = np.empty(1024, np.int64), np.empty(1024, np.int64), np.empty(1024, np.int64)
    # Drives of a trip, those of one gap after another.
    source, target = np.empty(1024, np.int64), np.empty(1024, np.int64)
    from_row, to_row = np.empty(1024, np.int64), np.empty(1024, np.int64)
    start, took, weight = np.empty(1024), np.empty(1024), np.empty(1024)
    for trip in range(low, high):
        first_gap, stop_gap = asked.trip[trip], asked.trip[trip + 1]
        if first_gap == stop_gap:
            continue
        bound = np.zeros(stop_gap - first_gap + 1, np.int64)
        n = 0
        for g in range(first_gap, stop_gap):
            f = asked.first[g]
            m = 0
            for k in range(ends.offset[f], ends.offset[f + 1]):
                if ends.weight[k] < UNLIKELY:
                    continue
                s = ends.segment[k]
                for i in range(passing.offset[s], passing.offset[s + 1]):
                    v = passing.visit[i]
                    t = passing.trip[v]
                    if t == asked.own[g]:
                        continue
                    if m == len(waiting):
                        waiting, row, following = _longer(waiting), _longer(row), _longer(following)
                    waiting[m], row[m], following[m] = v, k, head[t]
                    head[t] = m
                    m += 1
            for k in range(ends.offset[f + 1], ends.offset[f + 2]):
                if ends.weight[k] < UNLIKELY or m == 0:
                    continue
                s = ends.segment[k]
                passes = PRIOR + passing.offset[s + 1] - passing.offset[s]
                for i in range(passing.offset[s], passing.offset[s + 1]):
                    u = passing.visit[i]
                    j = head[passing.trip[u]]
                    if j < 0:
                        continue
                    end = passing.enter[u] + ends.ratio[k] * (passing.leave[u] - passing.enter[u])
                    while j >= 0:
                        v, a = waiting[j], row[j]
                        j = following[j]
                        begin = passing.enter[v] + ends.ratio[a] * (passing.leave[v] - passing.enter[v])
                        away = abs(end - begin - asked.seconds[g]) / scale_s
                        if v > u or end < begin or away > FARTHEST:
                            continue
                        if n == len(source):
                            source, target = _longer(source), _longer(target)
                            from_row, to_row = _longer(from_row), _longer(to_row)
                            start, took, weight = _longer(start), _longer(took), _longer(weight)
                        s_a = ends.segment[a]
                        passes_a = PRIOR + passing.offset[s_a + 1] - passing.offset[s_a]
                        source[n], target[n], from_row[n], to_row[n] = v, u, a, k
                        start[n], took[n] = begin, end - begin
                        weight[n] = np.exp(-away) / np.sqrt(passes_a * passes)
                        evidence[g] += ends.weight[a] * ends.weight[k] * weight[n]
                        n += 1
            for i in range(m):
                head[passing.trip[waiting[i]]] = -1
            bound[g - first_gap + 1] = n
        _weigh(passing, ends, asked.first[first_gap], bound, from_row, to_row, weight, posterior)
        for g in range(first_gap, stop_gap):
            n_keys = 0
            for c in range(asked.offset[g], asked.offset[g + 1]):
                h = (np.int64(asked.segment[c]) * 2654435761) & (HASH - 1)
                while key[h] >= 0:
                    h = (h + 1) & (HASH - 1)
                key[h], place[h], used[n_keys] = asked.segment[c], c - asked.offset[g], h
                n_keys += 1
            for q in range(bound[g - first_gap], bound[g - first_gap + 1]):
                if weight[q] < LIGHT:
                    continue
                w = source[q]
                last = -1
                for step in range(asked.row[g], asked.row[g] + asked.steps[g]):
                    time = start[q] + asked.share[step] * took[q]
                    while w < target[q] and passing.leave[w] < time:
                        w += 1
                    e = np.int64(passing.segment[w])
                    h = (e * 2654435761) & (HASH - 1)
                    while key[h] >= 0 and key[h] != e:
                        h = (h + 1) & (HASH - 1)
                    asked_for = asked.offset[g + 1] - asked.offset[g]
                    if key[h] < 0 and n_keys < asked_for + MORE and weight[q] >= NEW:
                        key[h], place[h], used[n_keys] = e, n_keys, h
                        more[g, n_keys - asked_for] = e
                        n_keys += 1
                    if key[h] != e:
                        continue
                    votes[step, place[h]] += weight[q]
                    if place[h] >= asked_for and last != w:
                        sums = stay[g, place[h] - asked_for]
                        sums[0] += weight[q]
                        sums[1] += weight[q] * max(passing.enter[w] - start[q], 0.0) / max(took[q], 1.0)
                        sums[2] += weight[q] * min(passing.leave[w] - start[q], took[q]) / max(took[q], 1.0)
                    last = w
            for i in range(n_keys):
                key[used[i]] = -1


@njit(cache=True, nogil=True)
def _weigh(
    passing: Passing, ends: Ends, fix: int, bound: Ints, from_row: Ints, to_row: Ints, weight: Floats, posterior: Reals
) -> None:  # pragma: no cover  (compiled)
    """Turn the weights of the drives of a trip, whose first fix is ``fix``, into probabilities; fill in ``posterior``.

    The drives of gap i are bound[i]:bound[i + 1].
    """
    n = len(bound)  # fixes
    low = ends.offset[fix]
    size = ends.offset[fix + n] - low
    forward, backward = np.zeros(size), np.zeros(size)
    for i in range(n):
        a, b = ends.offset[fix + i] - low, ends.offset[fix + i + 1] - low
        if i == 0:
            forward[a:b] = ends.weight[low + a : low + b]
        else:
            for k in range(a, b):
                r = ends.route[low + k] - low
                forward[k] = JUMP + (forward[r] * _route_weight(passing, ends, low + k) if r >= 0 else 0.0)
            for q in range(bound[i - 1], bound[i]):
                forward[to_row[q] - low] += forward[from_row[q] - low] * weight[q]
            for k in range(a, b):
                forward[k] *= ends.weight[low + k]
        total = forward[a:b].sum()
        forward[a:b] /= total
    for i in range(n - 1, -1, -1):
        a, b = ends.offset[fix + i] - low, ends.offset[fix + i + 1] - low
        if i == n - 1:
            backward[a:b] = 1.0
        else:
            flow = 0.0
            for k in range(b, ends.offset[fix + i + 2] - low):
                flow += ends.weight[low + k] * backward[k]
            backward[a:b] = JUMP * flow
            for k in range(b, ends.offset[fix + i + 2] - low):
                r = ends.route[low + k] - low
                if r >= 0:
                    backward[r] += _route_weight(passing, ends, low + k) * ends.weight[low + k] * backward[k]
            for q in range(bound[i], bound[i + 1]):
                k = to_row[q] - low
                backward[from_row[q] - low] += weight[q] * ends.weight[low + k] * backward[k]
        total = 0.0
        for k in range(a, b):
            total += forward[k] * backward[k]
        for k in range(a, b):
            posterior[low + k] = forward[k] * backward[k] / total
        backward[a:b] /= backward[a:b].max()
    for i in range(n - 1):
        total = 0.0
        for q in range(bound[i], bound[i + 1]):
            k = to_row[q] - low
            weight[q] *= forward[from_row[q] - low] * ends.weight[low + k] * backward[k]
            total += weight[q]
        for q in range(bound[i], bound[i + 1]):
            weight[q] /= max(total, 1e-30)


@njit(cache=True, nogil=True)
def _route_weight(passing: Passing, ends: Ends, k: int) -> float:  # pragma: no cover  (compiled)
    """Return the weight of the map's route to candidate ``k`` of a fix."""
    a, b = ends.segment[ends.route[k]], ends.segment[k]
    passes_a = PRIOR + passing.offset[a + 1] - passing.offset[a]
    passes_b = PRIOR + passing.offset[b + 1] - passing.offset[b]
    weight: float = ROUTE * ends.fit[k] / np.sqrt(passes_a * passes_b)
    return weight


@njit(cache=True, nogil=True)
def _longer(values: NDArray[Any]) -> NDArray[Any]:  # pragma: no cover  (compiled)
    grown = np.empty(2 * len(values), values.dtype)
    grown[: len(values)] = values
    return grown
