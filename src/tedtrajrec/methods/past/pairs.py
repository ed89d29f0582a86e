"""Ordered pairs of segments: how many past trips drove a and later e, and how long they took in between.

A pair (a, e) of a trip takes the time from leaving a to entering e (:mod:`tedtrajrec.methods.past.visits`). The table
of all pairs holds a few sums for each, so that a trip that took part in it can be taken out again.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.past.visits import Visits
from tedtrajrec.threads import map_parts

Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Sums = NDArray[np.float32]

PARTS = 64


class Pairs(NamedTuple):
    """Q pairs of segments (a, e) that past trips drove one after the other, and S segments; 16 bytes a pair.

    A trip counts once for each pair. The deviations are from the mean because in 32 bits a sum of plain squares would
    not tell a small spread of long times.
    """

    offset: Ints  # [S+1] pairs of source a are offset[a]:offset[a + 1]
    target: Segments  # [Q] e, rising for each source
    trips: Sums  # [Q] how many
    seconds: Sums  # [Q] sum over trips of the time from the end of a to the start of e
    squares: Sums  # [Q] sum of the squared deviations of those times from their mean
    visits: Sums  # [S] trips that drove each segment


class OwnPairs(NamedTuple):
    """The pairs of each of T trips by itself: M pairs of K segments, ragged."""

    offset: Ints  # [T+1] trip i drove the segments offset[i]:offset[i + 1]
    segment: Segments  # [K] rising for each trip, each once
    pair_offset: Ints  # [K+1] pairs of source segment[k] are pair_offset[k]:pair_offset[k + 1]
    target: Segments  # [M] rising for each source
    seconds: Sums  # [M] from the end of the source to the start of the target


def learn_pairs(
    visits: Visits, n_segments: int, *, within_s: float = 900.0, most_targets: int = 512, workers: int | None = None
) -> Pairs:
    """Return the pairs of past trips.

    Where a trip drove a or e several times, the shortest time from one to the other counts.

    Parameters
    ----------
    visits
        Of training trips, see :func:`~tedtrajrec.methods.past.visits.visits_of`.
    n_segments
        Number of segments of the network.
    within_s
        Pairs that are further apart in time are not counted.
    most_targets
        How many pairs of one source are kept: those of most trips, among equals the nearest in time.
    workers
        Number of threads; all processors if not given.
    """
    order = np.argsort(visits.segment, kind="stable")
    start = np.searchsorted(visits.segment[order], np.arange(n_segments + 1)).astype(np.int64)
    trip = np.repeat(np.arange(len(visits.offset) - 1), np.diff(visits.offset))

    def gather(sources: Ints) -> _Gathered:
        return _most_frequent(_gather(visits, trip, start, order, sources, within_s), most_targets)

    found = map_parts(gather, np.array_split(np.arange(n_segments), PARTS), workers)
    source, target, trips, seconds, squares = (np.concatenate(columns) for columns in zip(*found, strict=True))
    segment, by = visits.segment[order], trip[order]
    again = np.zeros(len(order), bool)  # by the same trip
    again[1:] = (segment[1:] == segment[:-1]) & (by[1:] == by[:-1])
    return Pairs(
        offset=np.searchsorted(source, np.arange(n_segments + 1)).astype(np.int64),
        target=target,
        trips=trips,
        seconds=seconds,
        squares=squares,
        visits=np.bincount(segment[~again], minlength=n_segments).astype(np.float32),
    )


def no_pairs(n_segments: int) -> Pairs:
    """Return the pairs of no trips."""
    none = np.zeros(0, np.float32)
    return Pairs(
        np.zeros(n_segments + 1, np.int64), none.astype(np.int32), none, none, none, np.zeros(n_segments, np.float32)
    )


def pairs_state(pairs: Pairs) -> Arrays:
    """Return pairs as plain arrays, for :class:`Pairs` to be made from again: ``Pairs(**state)``."""
    return pairs._asdict()


@njit(cache=True, nogil=True)
def own_pairs(visits: Visits, within_s: float) -> OwnPairs:  # pragma: no cover  (compiled)
    """Return the pairs of each trip by itself, as :func:`learn_pairs` counts them."""
    n_trips = len(visits.offset) - 1
    offset = np.zeros(n_trips + 1, np.int64)
    segment = np.empty(len(visits.segment), np.int32)
    pair_offset = np.zeros(len(visits.segment) + 1, np.int64)
    room = 0
    longest = 0
    for trip in range(n_trips):
        n = visits.offset[trip + 1] - visits.offset[trip]
        room += n * (n - 1)  # more than there are pairs: each two of its segments in both orders
        longest = max(longest, n)
    target, seconds = np.empty(room, np.int32), np.empty(room, np.float32)
    place, best = np.empty(longest, np.int64), np.full(longest, np.inf, np.float32)
    k = 0
    m = 0
    for trip in range(n_trips):
        first, stop = visits.offset[trip], visits.offset[trip + 1]
        begin = k
        by_segment = _order(visits.segment[first:stop])
        for i in by_segment:
            s = visits.segment[first + i]
            if k == begin or segment[k - 1] != s:
                segment[k] = s
                k += 1
            place[i] = k - 1 - begin
        offset[trip + 1] = k
        j = 0
        for source in range(begin, k):
            low, high = k - begin, 0
            while j < stop - first and place[by_segment[j]] == source - begin:
                i = by_segment[j]
                for v in range(first + i + 1, stop):
                    took = _took(visits, first + i, v)
                    # Whatever comes after the next visit of the source is nearer to that one.
                    if took > within_s or visits.segment[v] == segment[source]:
                        break
                    e = place[v - first]
                    best[e] = min(best[e], took)
                    low, high = min(low, e), max(high, e + 1)
                j += 1
            for e in range(low, high):
                if best[e] < np.inf:
                    target[m], seconds[m] = segment[begin + e], best[e]
                    best[e] = np.inf
                    m += 1
            pair_offset[source + 1] = m
    return OwnPairs(offset, segment[:k].copy(), pair_offset[: k + 1].copy(), target[:m].copy(), seconds[:m].copy())


@njit(cache=True, nogil=True)
def pair_of(pairs: Pairs, a: int, e: int) -> int:  # pragma: no cover  (compiled)
    """Return the number of the pair (a, e), or -1 if there is none."""
    return _find(pairs.target, pairs.offset[a], pairs.offset[a + 1], e)


@njit(cache=True, nogil=True)
def own_pair_of(own: OwnPairs, trip: int, a: int, e: int) -> int:  # pragma: no cover  (compiled)
    """Return the number of the pair (a, e) among the own ones of a trip, or -1 if there is none."""
    k = _find(own.segment, own.offset[trip], own.offset[trip + 1], a)
    return _find(own.target, own.pair_offset[k], own.pair_offset[k + 1], e) if k >= 0 else -1


@njit(cache=True, nogil=True)
def pair_without(
    pairs: Pairs, own: OwnPairs, trip: int, a: int, e: int
) -> tuple[float, float, float]:  # pragma: no cover  (compiled)
    """Return what the other trips say of the pair (a, e): their number, mean seconds and sum of squared deviations.

    Without any trip all three are 0.

    Parameters
    ----------
    pairs
        Of all trips.
    own
        The own pairs of trips that took part in them.
    trip
        Number in ``own`` of the trip to leave out; -1 for none.
    a, e
        Two segments.
    """
    q = pair_of(pairs, a, e)
    if q < 0:
        return 0.0, 0.0, 0.0
    count, seconds, squares = float(pairs.trips[q]), float(pairs.seconds[q]), float(pairs.squares[q])
    m = own_pair_of(own, trip, a, e) if trip >= 0 else -1
    if m < 0:
        return count, seconds / count, squares
    if count == 1.0:
        return 0.0, 0.0, 0.0
    took = float(own.seconds[m])
    mean = (seconds - took) / (count - 1.0)
    return count - 1.0, mean, max(squares - (took - mean) * (took - seconds / count), 0.0)


@njit(cache=True, nogil=True)
def visits_without(pairs: Pairs, own: OwnPairs, trip: int, segment: int) -> float:  # pragma: no cover  (compiled)
    """Return how many trips besides ``trip`` (a number in ``own``; -1 for none) drove a segment."""
    visits = float(pairs.visits[segment])
    if trip >= 0 and _find(own.segment, own.offset[trip], own.offset[trip + 1], segment) >= 0:
        visits -= 1.0
    return visits


@njit(cache=True, nogil=True)
def _find(values: Segments, low: int, high: int, value: int) -> int:  # pragma: no cover  (compiled)
    """Return the place of a value in the rising ``values[low:high]``, or -1."""
    stop = high
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and values[low] == value else -1


@njit(cache=True, nogil=True)
def _order(values: Segments) -> Ints:  # pragma: no cover  (compiled)
    """Return the stable order of few values by insertion; numba's own sorting takes long to compile."""
    order = np.empty(len(values), np.int64)
    for i in range(len(values)):
        j = i
        while j > 0 and values[order[j - 1]] > values[i]:
            order[j] = order[j - 1]
            j -= 1
        order[j] = i
    return order


@njit(cache=True, nogil=True)
def _took(visits: Visits, a: int, e: int) -> np.float32:  # pragma: no cover  (compiled)
    """Return the seconds from the end of visit ``a`` to the start of visit ``e``; around a leap they may overlap."""
    return max(visits.enter[e] - visits.leave[a], np.float32(0.0))


class _Gathered(NamedTuple):
    source: Segments  # [Q] rising
    target: Segments  # [Q]
    trips: Sums  # [Q]
    seconds: Sums  # [Q]
    squares: Sums  # [Q]


def _most_frequent(found: _Gathered, most: int) -> _Gathered:
    """Return at most so many pairs of each source, in order of source and target."""
    n = np.bincount(found.source)
    if (n > most).any():
        mean = found.seconds / found.trips.astype(np.float64)
        order = _order_by_source(found.source, mean / (mean.max() + 1) - found.trips)
        rank = np.arange(len(order)) - (np.cumsum(n) - n)[found.source]
        found = _rows(found, order[rank < most])
    return _rows(found, _order_by_source(found.source, found.target))


def _order_by_source(source: Segments, value: NDArray[Any]) -> Ints:
    """Return the order by source and then value; quicker than a sort by two keys where the sources fit 16 bits."""
    order = np.argsort(value, kind="stable")
    row = source - source.min(initial=np.iinfo(np.int32).max)
    row = row.astype(np.min_scalar_type(row.max(initial=0)))
    return order[np.argsort(row[order], kind="stable")]


def _rows(found: _Gathered, which: Ints) -> _Gathered:
    source, target, trips, seconds, squares = found
    return _Gathered(source[which], target[which], trips[which], seconds[which], squares[which])


@njit(cache=True, nogil=True)
def _gather(
    visits: Visits, trip: Ints, start: Ints, order: Ints, sources: Ints, within_s: float
) -> _Gathered:  # pragma: no cover  (compiled)
    """Return the pairs of some sources, the targets in any order.

    ``trip`` is the trip of each visit; those of segment s are order[start[s]:start[s + 1]].
    """
    n_segments = len(start) - 1
    room = 0
    for a in sources:
        reach = 0
        for i in order[start[a] : start[a + 1]]:
            reach += visits.offset[trip[i] + 1] - i - 1
        room += min(reach, n_segments)
    source, target = np.empty(room, np.int32), np.empty(room, np.int32)
    trips, seconds, squares = np.empty(room, np.float32), np.empty(room, np.float32), np.empty(room, np.float32)
    total = np.zeros((n_segments, 3))  # number, sum and sum of squares
    best = np.full(n_segments, np.inf, np.float32)  # of the trip in hand
    touched = np.empty(n_segments, np.int32)
    q = 0
    for a in sources:
        begin = q
        n_touched = 0
        for j in range(start[a], start[a + 1]):
            i = order[j]
            for v in range(i + 1, visits.offset[trip[i] + 1]):
                took = _took(visits, i, v)
                e = visits.segment[v]
                if took > within_s or e == a:  # as in own_pairs
                    break
                if best[e] == np.inf:
                    touched[n_touched] = e
                    n_touched += 1
                best[e] = min(best[e], took)
            if j + 1 < start[a + 1] and trip[order[j + 1]] == trip[i]:
                continue
            for e in touched[:n_touched]:
                if total[e, 0] == 0.0:
                    source[q], target[q] = a, e
                    q += 1
                x = np.float64(best[e])
                total[e, 0] += 1.0
                total[e, 1] += x
                total[e, 2] += x * x
                best[e] = np.inf
            n_touched = 0
        for k in range(begin, q):
            n, x, square = total[target[k], 0], total[target[k], 1], total[target[k], 2]
            trips[k], seconds[k], squares[k] = n, x, max(square - x * x / n, 0.0)
            total[target[k]] = 0.0
    return _Gathered(source[:q].copy(), target[:q].copy(), trips[:q].copy(), seconds[:q].copy(), squares[:q].copy())
