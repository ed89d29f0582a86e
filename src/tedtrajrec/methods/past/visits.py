"""Visits: the segments that past trips drove, with the times of entering and of leaving each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Seconds = NDArray[np.float32]


class Visits(NamedTuple):
    """V visits of segments by T trips, in the order of driving; 12 bytes a visit.

    Where a trip was not seen to enter or to leave the segment, it is taken to have done so at the usual pace.
    """

    offset: Ints  # [T+1] trip i has the visits offset[i]:offset[i + 1]
    segment: Segments  # [V] that of the next visit is another one
    enter: Seconds  # [V] seconds from the start of the trip; does not fall along a trip
    leave: Seconds  # [V] likewise; may be later than the next entering where the trip leapt

    def select(self, trips: Ints) -> Visits:
        """Return the visits of some trips, given by number, in that order."""
        count = np.diff(self.offset)[trips]
        which = ranges(self.offset[trips], count)
        return Visits(
            np.concatenate([[0], np.cumsum(count)]), self.segment[which], self.enter[which], self.leave[which]
        )


def visits_of(network: RoadNetwork, trips: Trips, cost_s: Floats, *, workers: int | None = None) -> Visits:
    """Return the segments that trips visited, those included that they drove between two steps.

    From one step to the next a trip drives the shortest route at the usual pace, but all faster or slower so that the
    time is right. Without a route that can be driven in the time it leaps: it leaves the one segment and enters the
    other as the usual pace has it. Steps of unknown position (segment -1) are passed over.

    Parameters
    ----------
    network
        The network of the positions.
    trips
        Trips with segment and ratio.
    cost_s
        Seconds to drive each segment whole [S].
    workers
        Number of threads; all processors if not given.
    """
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no positions")
    segment, ratio = trips.segment, np.nan_to_num(trips.ratio).clip(0.0, 1.0)
    elapsed = (trips.time - np.repeat(trips.time[trips.offsets[:-1]], trips.lengths)).astype(np.float64)
    last = np.zeros(trips.n_fixes, bool)
    last[trips.offsets[1:][trips.lengths > 0] - 1] = True
    follower = np.roll(segment, -1)
    step = np.flatnonzero(~last & (segment >= 0) & (follower >= 0) & (segment != follower))
    limit_m = TOP_SPEED_MPS * (elapsed[step + 1] - elapsed[step])
    routes = Router(network).routes(
        segment[step], ratio[step], segment[step + 1], ratio[step + 1], limit_m=limit_m, workers=workers
    )
    length = np.zeros(trips.n_fixes + 1, np.int64)
    length[step + 1] = np.diff(routes.offsets)
    return _visits(trips.offsets, segment, ratio, elapsed, np.cumsum(length), routes.segment, cost_s)


@njit(cache=True, nogil=True)
def _visits(
    offsets: Ints, segment: Segments, ratio: Floats, time: Floats, bound: Ints, route: Segments, cost: Floats
) -> Visits:  # pragma: no cover  (compiled)
    """Return the visits of trips; the route from step k to the next has the segments route[bound[k]:bound[k + 1]]."""
    room = len(segment) + len(route)
    where, enter, leave = np.empty(room, np.int32), np.empty(room, np.float32), np.empty(room, np.float32)
    offset = np.zeros(len(offsets), np.int64)
    v = 0
    for trip in range(len(offsets) - 1):
        first = v
        seen = -np.inf  # when the trip was last known to be somewhere
        for k in range(offsets[trip], offsets[trip + 1]):
            s = segment[k]
            if s < 0:
                continue
            if v == first or where[v - 1] != s:
                if v > first:
                    leave[v - 1] = min(leave[v - 1], time[k])
                where[v] = s
                enter[v] = max(time[k] - ratio[k] * cost[s], seen)
                v += 1
            leave[v - 1] = time[k] + (1.0 - ratio[k]) * cost[s]
            seen = time[k]
            low, high = bound[k], bound[k + 1]
            if high - low < 2:
                continue
            total = (1.0 - ratio[k]) * cost[s] + ratio[k + 1] * cost[route[high - 1]]
            for i in range(low + 1, high - 1):
                total += cost[route[i]]
            stretch = (time[k + 1] - time[k]) / total if total > 0.0 else 0.0
            now = time[k] + stretch * (1.0 - ratio[k]) * cost[s]
            for i in range(low + 1, high):
                leave[v - 1] = now
                where[v], enter[v] = route[i], now
                now += stretch * cost[route[i]]
                v += 1
        offset[trip + 1] = v
    return Visits(offset, where[:v].copy(), enter[:v].copy(), leave[:v].copy())
