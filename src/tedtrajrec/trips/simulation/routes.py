"""Route choice: the least travel time as one driver sees it at departure, over segments and their successors."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network import heap
from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.simulation.roads import Roads

Floats = NDArray[np.float64]


class Taste(NamedTuple):
    """Lognormal factors by quantile: what drivers err about one segment, an area, a level of road."""

    segment: Floats  # [4096]
    area: Floats
    level: Floats
    turn_s: float
    wait_load: float


class Scratch(NamedTuple):
    """Working memory of the search, one for each thread; an entry counts only if its stamp is that of the search."""

    stamp: NDArray[np.int64]  # [S]
    reached: Floats  # [S] least seconds to the end of the segment
    cost: Floats  # [S] seconds it takes, as the driver sees it
    before: NDArray[np.int32]  # [S]
    done: NDArray[np.bool_]  # [S]
    heap_key: Floats
    heap_item: NDArray[np.int32]
    route: NDArray[np.int32]  # [S]


def build_taste(config: SimulationConfig) -> Taste:
    """Tabulate the lognormal factors."""
    route = config.route
    return Taste(
        segment=np.exp(route.segment_sigma * chance.NORMAL),
        area=np.exp(route.area_sigma * chance.NORMAL),
        level=np.exp(route.level_sigma * chance.NORMAL),
        turn_s=route.turn_s,
        wait_load=config.driving.wait_load,
    )


def new_scratch(roads: Roads) -> Scratch:
    """Return working memory for searches on ``roads``."""
    s = len(roads.length)
    return Scratch(
        stamp=np.zeros(s, np.int64),
        reached=np.empty(s),
        cost=np.empty(s),
        before=np.empty(s, np.int32),
        done=np.empty(s, np.bool_),
        heap_key=np.empty(len(roads.succ) + 2),
        heap_item=np.empty(len(roads.succ) + 2, np.int32),
        route=np.empty(s + 1, np.int32),
    )


@njit(cache=True, nogil=True)
def find_route(
    roads: Roads,
    load: NDArray[np.float32],
    day_load: float,
    taste: Taste,
    key: np.uint64,
    origin: tuple[int, float],
    destination: tuple[int, float],
    scratch: Scratch,
    search: int,
) -> int:  # pragma: no cover  (compiled)
    """Write the segments from origin to destination to ``scratch.route`` and return their number; 0 if there are none.

    A segment costs its travel time under ``load`` and the mean wait at its end, times the driver's error; a turn costs
    by its angle. ``search`` must differ from one search to the next on the same scratch, and not be 0.
    """
    start, start_ratio = origin
    goal, goal_ratio = destination
    if start == goal and goal_ratio >= start_ratio:
        scratch.route[0] = start
        return 1
    size = 0
    first = (1.0 - start_ratio) * _cost(roads, load, day_load, taste, key, start)
    # The origin is left but not marked as reached: a route may come back to it, when the destination lies behind.
    at = -1
    base = first
    segment = start
    while True:
        for k in range(roads.succ_offset[segment], roads.succ_offset[segment + 1]):
            follower = roads.succ[k]
            if scratch.stamp[follower] != search:
                scratch.stamp[follower] = search
                scratch.reached[follower] = np.inf
                scratch.done[follower] = False
                scratch.cost[follower] = _cost(roads, load, day_load, taste, key, follower)
            if scratch.done[follower]:
                continue
            cosine = roads.end_x[segment] * roads.start_x[follower] + roads.end_y[segment] * roads.start_y[follower]
            share = goal_ratio if follower == goal else 1.0
            reached = base + taste.turn_s * 0.5 * (1.0 - cosine) + share * scratch.cost[follower]
            if reached < scratch.reached[follower]:
                scratch.reached[follower] = reached
                scratch.before[follower] = at
                size = heap.push(scratch.heap_key, scratch.heap_item, size, reached, follower)
        while size > 0:
            segment = scratch.heap_item[0]
            size = heap.pop(scratch.heap_key, scratch.heap_item, size)
            if not scratch.done[segment]:
                break
            segment = -1
        else:
            return 0
        if segment == goal:
            break
        scratch.done[segment] = True
        base = scratch.reached[segment]
        at = segment
    return _trace(scratch, start, goal)


@njit(cache=True, nogil=True)
def _trace(scratch: Scratch, start: int, goal: int) -> int:  # pragma: no cover  (compiled)
    n = 1
    segment = goal
    while segment >= 0:
        n += 1
        segment = scratch.before[segment]
    i = n - 1
    segment = goal
    while segment >= 0:
        scratch.route[i] = segment
        i -= 1
        segment = scratch.before[segment]
    scratch.route[0] = start
    return n


@njit(cache=True, nogil=True)
def _cost(
    roads: Roads, load: NDArray[np.float32], day_load: float, taste: Taste, key: np.uint64, segment: int
) -> float:  # pragma: no cover  (compiled)
    jam = day_load * load[segment]
    moving = (1.0 + jam) * roads.length[segment] / roads.speed[segment]
    waiting = (1.0 + taste.wait_load * jam) * roads.stop_share[segment] * roads.wait_s[segment]
    return float(
        (moving + waiting)
        * taste.segment[chance.place(key, segment)]
        * taste.area[chance.place(key ^ np.uint64(1), roads.area[segment])]
        * taste.level[chance.place(key ^ np.uint64(2), roads.level[segment])]
    )
