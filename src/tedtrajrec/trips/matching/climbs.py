"""Climbs: searches that lead from segments up the hierarchy to segments with labels.

A segment that has a label of its own is a climb of one step, so on networks up to some 40,000 segments nothing is
searched at all; on a network of a million segments a climb has some 25 steps.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.network.heap import pop, push
from tedtrajrec.trips.matching.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]
Records = NDArray[Any]

LEAVING, ENTERING = range(2)  # direction: along the way, or against it

STEP = np.dtype(
    [
        ("place", np.int32),
        ("before", np.int32),  # the step before and the arc from there; -1 for the first of a climb
        ("arc", np.int32),
        ("cost", np.float64),  # from the start of the climb
        ("metres", np.float64),
        ("seconds", np.float64),
    ],
    align=True,
)
STEP_TYPE: Any = from_dtype(STEP)
SEEN = np.dtype([("climb", np.int64), ("step", np.int32)], align=True)  # the last climb there, and its step


class Climbs(NamedTuple):
    """Climbs from the starts of segments, one after another."""

    offset: Ints  # climb j has the steps offset[j]:offset[j + 1]
    step: Records  # STEP


class Search(NamedTuple):
    """Working memory of climbs."""

    seen: Records  # [S] SEEN, by place
    number: Ints  # [1] of the last climb
    keys: Floats  # [S] heap
    items: Numbers  # [S]


def new_search(n_segments: int) -> Search:
    """Return working memory."""
    return Search(
        np.zeros(n_segments, SEEN), np.zeros(1, np.int64), np.empty(n_segments), np.empty(n_segments, np.int32)
    )


@njit(cache=True, nogil=True)
def new_climbs(n: int) -> Climbs:  # pragma: no cover  (compiled)
    """Return room for ``n`` climbs of a few steps each."""
    return Climbs(np.zeros(n + 1, np.int64), np.empty(4 * n, STEP_TYPE))


@njit(cache=True, nogil=True, inline="always")
def begin(climbs: Climbs, j: int, place: int) -> None:  # pragma: no cover  (compiled)
    """Put the first step of climb ``j`` behind the climb before."""
    size = climbs.offset[j]
    climbs.offset[j + 1] = size + 1
    first = climbs.step[size]
    first.place, first.before, first.arc = place, -1, -1
    first.cost, first.metres, first.seconds = 0.0, 0.0, 0.0


@njit(cache=True, nogil=True)
def climb(
    hierarchy: Hierarchy, n_complete: int, search: Search, climbs: Climbs, j: int, direction: int
) -> Climbs:  # pragma: no cover  (compiled)
    """Continue climb ``j``, the last one, from its first step until all segments reached are complete.

    Return the climbs, in more room where they need it. Segments are left in order of importance, so the cost of what
    is left can no longer become less.
    """
    seen, keys, items = search.seen, search.keys, search.items
    search.number[0] += 1
    number = search.number[0]
    size = climbs.offset[j + 1]
    p = climbs.step[size - 1].place
    seen[p].step = size - 1
    waiting = push(keys, items, 0, -float(p), p)
    while waiting > 0:
        p = items[0]
        waiting = pop(keys, items, waiting)
        here = seen[p].step
        for a in range(hierarchy.offset[2 * p + direction], hierarchy.offset[2 * p + direction + 1]):
            arc = hierarchy.arc[a]
            q = arc.upper
            cost = climbs.step[here].cost + arc.cost
            if seen[q].climb != number:
                if size + len(climbs.offset) > len(climbs.step):  # the climbs to come will have room for a first step
                    climbs = Climbs(climbs.offset, resized(climbs.step, size, 2 * len(climbs.step)))
                seen[q].climb, seen[q].step = number, size
                size += 1
                if q >= n_complete:
                    waiting = push(keys, items, waiting, -float(q), q)
            elif cost >= climbs.step[seen[q].step].cost:
                continue
            step = climbs.step[seen[q].step]
            step.place, step.before, step.arc, step.cost = q, here, a, cost
            step.metres = climbs.step[here].metres + arc.metres
            step.seconds = climbs.step[here].seconds + arc.seconds
    climbs.offset[j + 1] = size
    return climbs
