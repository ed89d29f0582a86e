"""The most likely path through the choices of a trip that can be driven, exactly.

Whether the next step can be reached depends on where on its segment a vehicle may be, and that on the whole way there:
two moves that are possible each by itself may not be so together. But for one way the places that can be reached on a
segment are one stretch. Metres from its start, with R the top speed times the time of a step,

    stay on it:         from [a, b] to [max(a, l), min(b + R, h)]
    move to another:    from [a, b] to [l, min(b + R - gap - length, h)]     (or around, to the same one again)

where [l, h] is where the next step must be at all. So beside its score a way has a stretch, and of all ways to a choice
those are kept that no other one beats in both: usually one, rarely three.

Any move may be broken instead, at a price, and then it leads anywhere on the next segment. The price is far above what
all scores of a trip can add up to, so a path has as few breaks as there can be, and of those it is the most likely one.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

BREAK = 1e6
"""Scores of a step and of a move are above -1,000 in any use, and trips have less than 1,000 steps."""
STEPS_PER_PART = 4096
SLACK_M = 1e-6  # so that rounding makes nothing impossible later


class Lattice(NamedTuple):
    """The K choices at the N steps of some trips, one trip after another."""

    score: Floats  # [N, K]; minus infinity for a choice that does not exist, of which each step has another
    segment: Ints  # [N, K]
    length_m: Floats  # [N, K]
    lowest_m: Floats  # [N, K] the stretch where the step must be
    highest_m: Floats  # [N, K]
    reach_m: Floats  # [N] that can be driven since the step before
    gap_m: Reals  # [N, K, K] from the end of a choice of the step before to the start of one of this; infinite: no way,
    # and from a segment to itself: it is not driven around to it
    move: Reals  # [N, K, K] scores of moves


def drivable_paths(offsets: Ints, lattice: Lattice, *, workers: int | None = None) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the choice of each step [N], and whether the move to it is broken [N].

    Of equally good paths the one with the lower choices at the last steps is taken.

    Parameters
    ----------
    offsets
        Steps of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1]; each trip has some.
    lattice
        The choices.
    workers
        Threads to use; None: all cores. Results do not depend on it.
    """
    choice, broken = np.zeros(offsets[-1], np.int64), np.zeros(offsets[-1], np.bool_)
    cuts = np.flatnonzero(np.diff(offsets[:-1] // STEPS_PER_PART, prepend=-1)).tolist()

    def search(part: tuple[int, int]) -> None:
        for trip in range(*part):
            rows = slice(offsets[trip], offsets[trip + 1])
            columns: Any = (*(column[rows] for column in lattice), choice[rows], broken[rows])
            _search(*columns)

    map_parts(search, list(itertools.pairwise([*cuts, len(offsets) - 1])), workers)
    return choice, broken


def driven_metres(segment: Ints, at_m: Floats, length: Floats, gap: Reals) -> Reals:
    """Return the metres that are driven from each choice of the step before to each of a step [N, K, K].

    Where there is no way they are 0: nothing is known of them.
    """
    before = np.roll(np.arange(len(segment)), 1)
    here, there = at_m.astype(np.float32), (length - at_m).astype(np.float32)
    metres = there[before][:, :, None] + gap + here[:, None, :]
    ahead = np.maximum(here[:, None, :] - here[before][:, :, None], 0)
    metres = np.where(segment[before][:, :, None] == segment[:, None, :], ahead, metres)
    out: Reals = np.where(np.isfinite(metres), metres, np.float32(0))
    return out


@njit(cache=True, nogil=True)
def _search(
    score: Floats,
    segment: Ints,
    length: Floats,
    lowest: Floats,
    highest: Floats,
    reach: Floats,
    gap: Reals,
    move: Reals,
    choice: Ints,
    broken: NDArray[np.bool_],
) -> None:  # pragma: no cover  (compiled)
    n, k = score.shape
    # Ways to the choices of all steps so far; those to choice c of step i are begin[i, c]:begin[i, c + 1].
    begin = np.zeros((n, k + 1), np.int64)
    total, low, high = np.empty(4 * n * k), np.empty(4 * n * k), np.empty(4 * n * k)
    back, breaks = np.empty(4 * n * k, np.int64), np.empty(4 * n * k, np.bool_)
    size = 0
    for i in range(n):
        ways = 2 * (begin[i - 1, k] - begin[i - 1, 0]) + 1 if i > 0 else 1
        for d in range(k):
            begin[i, d] = size
            if score[i, d] == -np.inf:
                continue
            if size + ways > len(total):
                room = 2 * (size + ways)
                total, low, high = resized(total, size, room), resized(low, size, room), resized(high, size, room)
                back, breaks = resized(back, size, room), resized(breaks, size, room)
            first = size
            if i == 0:
                total[size], low[size], high[size] = score[i, d], lowest[i, d], highest[i, d]
                back[size], breaks[size] = -1, False
                size += 1
                continue
            best = begin[i - 1, 0]
            for c in range(k):
                for way in range(begin[i - 1, c], begin[i - 1, c + 1]):
                    if total[way] > total[best]:
                        best = way
                    value = total[way] + move[i, c, d] + score[i, d]
                    begins, ends = lowest[i, d], highest[i, d]
                    most = min(high[way] + reach[i] - gap[i, c, d] - length[i - 1, c] - SLACK_M, ends)
                    if begins <= most:
                        size = _keep(total, low, high, back, breaks, first, size, value, begins, most, way, False)
                    if segment[i - 1, c] == segment[i, d]:
                        begins, ends = max(low[way], begins), min(high[way] + reach[i], ends)
                        if begins <= ends:
                            size = _keep(total, low, high, back, breaks, first, size, value, begins, ends, way, False)
            value = total[best] - BREAK + score[i, d]
            ends = highest[i, d]
            size = _keep(total, low, high, back, breaks, first, size, value, lowest[i, d], ends, best, True)
        begin[i, k] = size
    way = begin[n - 1, 0]
    for other in range(begin[n - 1, 0], begin[n - 1, k]):
        if total[other] > total[way]:
            way = other
    for i in range(n - 1, -1, -1):
        c = 0
        while begin[i, c + 1] <= way:
            c += 1
        choice[i] = c
        broken[i] = breaks[way]
        way = back[way]


@njit(cache=True, nogil=True)
def _keep(
    total: Floats,
    low: Floats,
    high: Floats,
    back: Ints,
    breaks: NDArray[np.bool_],
    first: int,
    size: int,
    value: float,
    begins: float,
    ends: float,
    way: int,
    is_broken: bool,
) -> int:  # pragma: no cover  (compiled)
    """Add a way to those from ``first`` on if none of them beats it, drop those that it beats, and return the size."""
    for other in range(first, size):
        if total[other] >= value and low[other] <= begins and high[other] >= ends:
            return size
    kept = first
    for other in range(first, size):
        if not (value >= total[other] and begins <= low[other] and ends >= high[other]):
            total[kept], low[kept], high[kept] = total[other], low[other], high[other]
            back[kept], breaks[kept] = back[other], breaks[other]
            kept += 1
    total[kept], low[kept], high[kept], back[kept], breaks[kept] = value, begins, ends, way, is_broken
    return kept + 1
