"""Lower bounds on the cost of a way from the costs to and from a few landmarks (triangle inequality).

A straight line over the fastest speed says little where traffic is four times slower, and nothing at all where links
of next to no cost are about. The cost to a landmark beyond the target minus the cost from the target to it is close
to the truth for most ways, whatever the costs are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

LANDMARKS = 8

UNIT = 1 / 64
"""Costs are rounded down to this, so that sums of them are exact in 32 bits and no bound is too high by rounding."""

FAR = 2.0**17
"""Costs from here on, and those of ways that do not exist, count as this, which only lowers a bound."""


def pick_landmarks(network: RoadNetwork, count: int = LANDMARKS) -> Ints:
    """Return the outermost segments in so many directions, from all of which one can drive to all others."""
    whole = np.flatnonzero(strong_components(network) == 0)
    x, y = network.plane.to_xy(network.node_lon, network.node_lat)
    start = network.seg_from[whole]
    angle = 2 * np.pi * np.arange(count) / count
    return whole[(np.cos(angle) * x[start, None] + np.sin(angle) * y[start, None]).argmax(axis=0)]


def landmark_heights(network: RoadNetwork, cost: Floats, landmarks: Ints) -> Reals:
    """Return 2L heights of the start of each segment [S, 2L], whose differences bound the cost of a way.

    A way from the start of segment s to that of t costs at least ``height[t] - height[s]``, for each of the heights:
    the cost from a landmark, and the cost to it with a minus.
    """
    rounded = np.floor(cost / UNIT) * UNIT
    n = network.n_segments
    source = np.repeat(np.arange(n), np.diff(network.succ_offset))
    graph = csr_array((rounded[source], network.succ, network.succ_offset), shape=(n, n))
    away, home = dijkstra(graph, indices=landmarks), dijkstra(graph.T.tocsr(), indices=landmarks)
    height = np.vstack([np.minimum(away, FAR), -np.minimum(home, FAR)]).T
    return np.ascontiguousarray(height, np.float32)
