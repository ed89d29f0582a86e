"""Climbs: searches that lead from segments up the hierarchy to segments whose labels reach far enough.

Most ways are within the radius of the labels at their ends, where a climb is its first step alone. For farther ones it
goes on until the labels of all segments reached have, with the way there, all hubs within the cost that is asked for.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.network.heap import pop, push
from tedtrajrec.trips.matching.hierarchy import Hierarchy
from tedtrajrec.trips.matching.labels import Labels

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]
Records = NDArray[Any]

FEW_STEPS = 64  # there is room for beforehand
LEAVING, ENTERING = range(2)  # direction: along the way, or against it

STEP = np.dtype(
    [
        ("place", np.int32),
        ("before", np.int32),  # the step before and the arc from there; -1 for the first of a climb
        ("arc", np.int32),
        ("entries", np.int32),  # of its label that count: all, or only the segment itself where the climb goes on
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
def new_climbs(n: int, steps: int) -> Climbs:  # pragma: no cover  (compiled)
    """Return room for ``n`` climbs of so many steps in all."""
    return Climbs(np.zeros(n + 1, np.int64), np.empty(steps, STEP_TYPE))


@njit(cache=True, nogil=True, inline="always")
def begin(labels: Labels, climbs: Climbs, j: int, place: int, direction: int) -> None:  # pragma: no cover  (compiled)
    """Make climb ``j`` a single step, behind the climb before."""
    size = climbs.offset[j]
    climbs.offset[j + 1] = size + 1
    first = climbs.step[size]
    first.place, first.before, first.arc = place, -1, -1
    first.entries = labels.offset[2 * place + direction + 1] - labels.offset[2 * place + direction]
    first.cost, first.metres, first.seconds = 0.0, 0.0, 0.0


@njit(cache=True, nogil=True)
def climb(
    hierarchy: Hierarchy, labels: Labels, search: Search, place: int, direction: int, limit: float
) -> Climbs:  # pragma: no cover  (compiled)
    """Return the climb from the start of a segment that leads to all its hubs of at most ``limit``.

    Segments are left in order of importance, so the cost of what is left can no longer become less.
    """
    seen, keys, items = search.seen, search.keys, search.items
    search.number[0] += 1
    number = search.number[0]
    climbs = new_climbs(1, FEW_STEPS)
    begin(labels, climbs, 0, place, direction)
    seen[place].step = 0
    size = 1
    waiting = push(keys, items, 0, -float(hierarchy.rank[place]), place)
    while waiting > 0:
        p = items[0]
        waiting = pop(keys, items, waiting)
        here = seen[p].step
        label = 2 * p + direction
        if climbs.step[here].cost + labels.radius[label] > limit:
            climbs.step[here].entries = labels.offset[label + 1] - labels.offset[label]
            continue
        climbs.step[here].entries = 1
        for a in range(hierarchy.offset[label], hierarchy.offset[label + 1]):
            arc = hierarchy.arc[a]
            q = arc.upper
            cost = climbs.step[here].cost + arc.cost
            if cost > limit:
                continue
            if seen[q].climb != number:
                if size == len(climbs.step):
                    climbs = Climbs(climbs.offset, resized(climbs.step, size, 2 * size))
                seen[q].climb, seen[q].step = number, size
                size += 1
                waiting = push(keys, items, waiting, -float(hierarchy.rank[q]), q)
            elif cost >= climbs.step[seen[q].step].cost:
                continue
            step = climbs.step[seen[q].step]
            step.place, step.before, step.arc, step.cost = q, here, a, cost
            step.metres = climbs.step[here].metres + arc.metres
            step.seconds = climbs.step[here].seconds + arc.seconds
    climbs.offset[1] = size
    return climbs
