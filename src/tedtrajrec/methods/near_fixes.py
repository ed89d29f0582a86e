"""Positions of fixes chosen anew, so that as few gaps as possible between them have no way in the time.

A fix may be anywhere on the stretches of road around it, whether a method thought of them or not. Of all positions the
likeliest ones with the shortest ways between them are taken. A gap without a way has a price. With one of 40 nats
single fixes are moved to other roads, but a vehicle that was seen again and again is not put on the road beside that;
with an infinite one, no other positions leave fewer gaps without a way. It is the search for a path that can be driven
(:mod:`tedtrajrec.methods.drivable_paths`) with fixes in place of steps.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.drivable_paths import BREAK, Lattice, drivable_paths, driven_metres
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.routing import Router
from tedtrajrec.network.stretches import stretches

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRICE = 40.0  # nats that a gap without a way costs
FAR = 1e4  # more than ways of a trip cost, and less than such a gap where that must not be
STAY = 5.0  # nats that a fix is worth where it is
DETOUR_M = 100.0  # so much more of a way costs a nat
LEAST_LIKELY = -40.0
HARDLY = -21.0  # nats of a choice that hardly can be
UNTHOUGHT = -25.0  # of a road near a fix that is no choice, and 1 less for each 10 m
TOLERANCE_M = 0.25


class Fixes(NamedTuple):
    """The M observed steps of some trips, in order."""

    row: Ints  # [M] among all steps
    trip: Ints  # [M]


class Around(NamedTuple):
    """Where fixes may be: a stretch of each of up to K segments, each segment once."""

    segment: Ints  # [M, K] -1 where there is none
    ratio: Floats  # [M, K] the best place
    lowest: Floats  # [M, K] where the stretch begins, as a ratio
    highest: Floats  # [M, K]
    likely: Floats  # [M, K] nats, above LEAST_LIKELY
    far: Bools  # [M, K] too far from the fix, and better than a break only


class Known(NamedTuple):
    """The choices that a method has for some fixes."""

    segment: Ints  # [M, K] -1 where there is none
    ratio: Floats  # [M, K]
    log_prob: Floats  # [M, K]
    far: Bools  # [M, K]


class Chosen(NamedTuple):
    """A position of each fix, and the stretch it is on."""

    segment: Ints  # [M] -1 for a fix without any
    ratio: Floats  # [M]
    lowest: Floats  # [M]
    highest: Floats  # [M]
    broken: Bools  # [M] whether there is no way to it from the fix before


def roads_around(finder: CandidateFinder, lon: Floats, lat: Floats, far_m: float, known: Known) -> Around:
    """Return where fixes may be: on all roads near them, and on choices that are too far.

    Parameters
    ----------
    finder
        Of the network.
    lon, lat
        The fixes [M].
    far_m
        What is farther is too far.
    known
        Their choices.
    """
    found = finder.within(lon, lat, far_m)
    row = np.repeat(np.arange(len(lon)), np.diff(found.offsets))
    x, y = (part[row] for part in finder.network.plane.to_xy(lon, lat))
    stretch = stretches(finder.network, found.segment, x, y, far_m)
    likely = np.maximum(known.log_prob, HARDLY)
    is_choice = known.segment[row] == found.segment[:, None]
    of_choice = np.where(is_choice, likely[row], LEAST_LIKELY).max(axis=1, initial=LEAST_LIKELY)
    value = np.where(is_choice.any(axis=1), of_choice, UNTHOUGHT - found.distance_m / 10)

    shape = len(lon), int(np.diff(found.offsets).max(initial=1))
    at = row, np.arange(len(row)) - found.offsets[row]
    far = known.far & (known.segment >= 0)

    def beside(near: NDArray[Any], beyond: NDArray[Any], empty: float) -> NDArray[Any]:
        """Return columns for what is near, and then those for what is beyond."""
        column = np.full(shape, empty, beyond.dtype)
        column[at] = near
        return np.concatenate([column, beyond], axis=1)

    return Around(
        segment=beside(found.segment, np.where(far, known.segment, -1).astype(np.int64), -1),
        ratio=beside(found.ratio, known.ratio, 0.0),
        lowest=beside(stretch.lowest, np.zeros(far.shape), 0.0),
        highest=beside(stretch.highest, np.ones(far.shape), 1.0),
        likely=beside(value, likely, 0.0),
        far=beside(np.zeros(len(row), np.bool_), far, 0),
    )


def choose_fixes(
    router: Router, fixes: Fixes, around: Around, segment: Ints, ratio: Floats, reach_m: float, price: float = PRICE
) -> Chosen:
    """Return positions of fixes; what need not be moved stays as it is.

    Parameters
    ----------
    router
        Over the metres of the network.
    fixes
        All fixes of some trips.
    around
        Where they may be.
    segment, ratio
        Where they are [M].
    reach_m
        Metres that can be driven in a step.
    price
        Nats that a gap without a way costs; infinite, there are as few of them as there can be.
    """
    exists = around.segment >= 0
    stays = exists & (around.segment == segment[:, None])
    proposed = np.where(stays, ratio[:, None], around.ratio)
    starts = np.diff(fixes.trip, prepend=-1) != 0
    offsets = np.append(np.flatnonzero(starts), len(starts))
    score = around.likely + STAY * stays - FAR * around.far
    score[~exists] = -np.inf
    score[~exists.any(axis=1), 0] = 0.0  # a fix without any road: its moves are broken whatever is chosen
    length = np.where(exists, router.network.length_m[around.segment], 0.0)
    steps = np.diff(fixes.row, prepend=0)
    reach = reach_m * steps + TOLERANCE_M
    gap = _gaps(router, around.segment, starts, reach, steps)
    scale = BREAK / price if np.isfinite(price) else 1.0
    lattice = Lattice(
        score=scale * score,
        segment=around.segment,
        length_m=length,
        lowest_m=around.lowest * length,
        highest_m=around.highest * length,
        reach_m=reach,
        gap_m=gap,
        move=-driven_metres(around.segment, proposed * length, length, gap) * np.float32(scale / DETOUR_M),
    )
    choice, broken = drivable_paths(offsets, lattice)
    at = np.arange(len(choice)), choice
    taken, size, along = around.segment[at], length[at], proposed[at]
    way = np.full(len(choice), np.inf)
    way[1:] = gap[np.arange(1, len(choice)), choice[:-1], choice[1:]]
    bounds = _Bounds(taken, size, lattice.lowest_m[at], lattice.highest_m[at], reach, way)
    for first, last in itertools.pairwise([*np.flatnonzero(starts | broken).tolist(), len(choice)]):
        part = slice(first, last)
        metres = _placed(bounds, along[part] * size[part], first, last)
        if (metres != along[part] * size[part]).any():  # then all, so that what is equal stays so
            np.divide(metres, size[part], out=along[part], where=size[part] > 0)
    return Chosen(taken, along, around.lowest[at], around.highest[at], broken)


class _Bounds(NamedTuple):
    """Where on their segments fixes may be, and how they are joined with those before."""

    segment: Ints  # [M]
    length: Floats  # [M]
    lowest: Floats  # [M] metres
    highest: Floats  # [M]
    reach: Floats  # [M]
    gap: Floats  # [M] from the end of the segment before to the start of this one; around, where they are the same


def _gaps(router: Router, segment: Ints, starts: Bools, reach: Floats, steps: Ints) -> NDArray[np.float32]:
    """Return the metres from the end of each segment of a fix to the start of each of the next [M, K, K].

    From a segment around to itself only where there are steps in between, which are elsewhere.
    """
    m, k = segment.shape
    gap = np.full((m, k, k), np.inf, np.float32)
    later = np.flatnonzero(~starts)
    pair = (segment[later - 1] >= 0)[:, :, None] & (segment[later] >= 0)[:, None, :]
    pair &= (steps[later] > 1)[:, None, None] | (segment[later - 1][:, :, None] != segment[later][:, None, :])
    which, a, b = np.nonzero(pair)
    i = later[which]
    gap[i, a, b] = router.distances(segment[i - 1, a], 1.0, segment[i, b], 0.0, limit_m=reach[i])
    return gap


def _placed(bounds: _Bounds, proposed: Floats, first: int, last: int) -> Floats:
    """Return metres along the segments of fixes that are joined, such that they can be driven, near to those proposed.

    Forth, the stretches that can be reached at each fix, by staying on a segment and by driving around to it; back, the
    place on one of them that is nearest to the proposed one and from which the next can be reached.
    """
    ways = [[_Way(bounds.lowest[first], bounds.highest[first], -np.inf, np.inf, -1)]]
    for i in range(first + 1, last):
        stays = bounds.segment[i] == bounds.segment[i - 1]
        moves = [(0.0, bounds.reach[i])] if stays else []
        moves.append((-np.inf, bounds.reach[i] - bounds.gap[i] - bounds.length[i - 1]))
        reached = [
            _Way(max(bounds.lowest[i], way.low + least), min(bounds.highest[i], way.high + most), least, most, k)
            for k, way in enumerate(ways[-1])
            for least, most in moves
        ]
        reached.sort(key=lambda way: (-way.high, way.low))
        best: list[_Way] = []  # those that no other one holds
        for way in reached:
            if way.low <= way.high and (not best or way.low < best[-1].low):
                best.append(way)
        ways.append(best)
    x = np.empty(last - first)
    low, high, k = -np.inf, np.inf, 0
    for i in range(last - first - 1, -1, -1):
        way = ways[i][k]
        x[i] = min(max(proposed[i], low, way.low), high, way.high)
        low, high, k = x[i] - way.most, x[i] - way.least, way.before
    return x


class _Way(NamedTuple):
    """A stretch that can be reached, by how much a place on it is ahead of that before, and which way led there."""

    low: float
    high: float
    least: float
    most: float
    before: int
