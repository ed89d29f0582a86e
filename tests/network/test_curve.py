"""The order of segments along a curve."""

from __future__ import annotations

import numpy as np

from tedtrajrec.network.curve import along_curve
from tests.conftest import make_grid


def test_neighbours_in_the_order_are_near_on_the_map() -> None:
    network = make_grid(16, 16)
    order = along_curve(network)
    assert np.array_equal(np.sort(order), np.arange(network.n_segments))
    x, y = network.plane.to_xy(network.node_lon, network.node_lat)

    def step_m(segments: np.ndarray[tuple[int], np.dtype[np.int32]]) -> float:
        start = network.seg_from[segments]
        return float(np.hypot(np.diff(x[start]), np.diff(y[start])).mean())

    shuffled = np.random.default_rng(1).permutation(order)
    assert step_m(order) < 0.1 * step_m(shuffled)


def test_segments_that_start_together_stay_in_order() -> None:
    network = make_grid(4, 4)
    order = along_curve(network)
    start = network.seg_from[order]
    together = np.diff(start) == 0
    assert together.any()
    assert (np.diff(order)[together] > 0).all()
