"""Landmarks: what it costs from some far segments to all others and back, which bounds the cost between any two.

From v to t it costs at least what v is farther from a landmark than t, and at least what t is farther behind a landmark
than v. Landmarks at the rim of the network bound best, because then many ways lead past the target towards one of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]

LANDMARKS = 8
NO_WAY = 1e12  # finite, so that the difference of two is 0: such a landmark says nothing


def landmark_costs(network: RoadNetwork, step_cost: Floats) -> Floats:
    """Return costs between starts of segments: from each segment to each landmark, then from each landmark [S, 2 L].

    Parameters
    ----------
    step_cost
        The cost from the start of a segment to the start of its successor, for all successors.
    """
    n = network.n_segments
    graph = csr_array((np.maximum(step_cost, 1e-12), network.succ, network.succ_offset), shape=(n, n))
    chosen = _rim(network, graph)
    from_landmarks = dijkstra(graph, indices=chosen)
    to_landmarks = dijkstra(graph.T.tocsr(), indices=chosen)
    costs = np.concatenate([to_landmarks, from_landmarks]).T
    return np.ascontiguousarray(np.minimum(costs, NO_WAY))


def _rim(network: RoadNetwork, graph: csr_array) -> NDArray[np.int64]:
    """Return the outermost segments of the largest strongly connected part in evenly spread directions."""
    _, part = connected_components(graph, connection="strong")
    main = np.flatnonzero(part == np.bincount(part).argmax())
    x, y = network.plane.to_xy(network.node_lon, network.node_lat)
    start = network.seg_from[main]
    angle = np.arange(LANDMARKS) * (2 * np.pi / LANDMARKS)
    out: NDArray[np.int64] = main[
        np.argmax(np.outer(np.cos(angle), x[start]) + np.outer(np.sin(angle), y[start]), axis=1)
    ]
    return out
