"""Lower bounds on the cost of a way from the costs to and from a few landmarks (triangle inequality).

A straight line over the fastest speed says little where traffic is four times slower, and nothing at all where there
are links of next to no cost. The cost to a landmark beyond the target less the cost from the target to it is close to
the truth for most ways, whatever the costs are.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.heap import pop, push
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]

LANDMARKS = 32

UNIT = 1 / 64
"""Heights are multiples of this, so that sums and differences of them are exact in 32 bits."""

FAR = 2.0**17
"""Costs from here on, and those of ways that do not exist, count as this, which only lowers a bound."""


def landmark_heights(network: RoadNetwork, cost: Floats, count: int = LANDMARKS) -> Reals:
    """Return 2L heights of the start of each segment [S, 2L], whose differences bound the cost of a way.

    A way from the start of segment s to that of t costs at least ``height[t] - height[s]``, for each of the heights:
    the cost from a landmark, and the cost to it with a minus. A landmark is the segment farthest from those before it,
    among those from which one can drive to most others and back.

    Parameters
    ----------
    network
        The road network.
    cost
        Of each segment [S]; rounded down to :data:`UNIT`.
    count
        How many landmarks to take.
    """
    whole = np.flatnonzero(strong_components(network) == 0)
    rounded = np.floor(cost / UNIT) * UNIT
    pred_offset, pred = network.pred_csr
    height = np.empty((network.n_segments, 2 * count), np.float32)
    landmark, nearest = whole[0], np.full(network.n_segments, np.inf)
    for k in range(-1, count):  # the first is only farthest from any one
        away = _costs(network.succ_offset, network.succ, rounded, landmark, 0)
        home = _costs(pred_offset, pred, rounded, landmark, 1)
        if k >= 0:
            height[:, k], height[:, count + k] = np.minimum(away, FAR), -np.minimum(home, FAR)
            nearest = np.minimum(nearest, away + home)
        landmark = whole[(nearest if k >= 0 else away + home)[whole].argmax()]
    return height


@njit(cache=True, nogil=True)
def _costs(
    offset: Ints, turn: Segments, cost: Floats, landmark: int, back: int
) -> Floats:  # pragma: no cover  (compiled)
    """Return the cost between the starts of a landmark and of all segments (Dijkstra), there or back."""
    best = np.full(len(cost), np.inf)
    keys, items = np.empty(len(turn) + 1), np.empty(len(turn) + 1, np.int32)
    best[landmark] = 0.0
    size = push(keys, items, 0, 0.0, landmark)
    while size > 0:
        key, e = keys[0], items[0]
        size = pop(keys, items, size)
        if key > best[e]:
            continue
        for k in range(offset[e], offset[e + 1]):
            # There, one drives the segment one comes from; back, the one that is found.
            f = turn[k]
            total = key + (cost[f] if back else cost[e])
            if total < best[f]:
                best[f] = total
                size = push(keys, items, size, total, f)
    return best
