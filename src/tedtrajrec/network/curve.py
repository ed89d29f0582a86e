"""An order of segments in which what is near on the map is mostly near in memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.roadnet import RoadNetwork

CELL_M = 50.0
BITS = 20  # of a cell's row or column: the curve covers more than the Earth


def along_curve(network: RoadNetwork) -> NDArray[np.int32]:
    """Return all segments in the order of a Z-shaped curve through their starts, then by number [S]."""
    code = np.zeros(network.n_nodes, np.int64)
    for shift, values in enumerate(network.plane.to_xy(network.node_lon, network.node_lat)):
        cell = ((values - values.min()) / CELL_M).astype(np.int64)
        for bit in range(BITS):
            code |= (cell >> bit & 1) << (2 * bit + shift)
    return np.argsort(code[network.seg_from], kind="stable").astype(np.int32)
