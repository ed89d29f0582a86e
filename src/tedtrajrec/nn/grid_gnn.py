"""GridGNN of RNTrajRec: a segment as the cells it crosses and the segments around it.

g_e = GRU(C(c_1), .., C(c_k))        over the cells that the segment crosses, in driving order; C is learned
x_e = LeakyReLU(id_e + g_e)          id: a learned vector of each segment
X   = P layers of GAT over the road network, from x
"""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import cells_over
from tedtrajrec.nn.road_gnn import neighbours
from tedtrajrec.nn.sequences import start_recurrent

SAMPLES = 10  # of a segment for each cell that it is long


class GridGnn(nn.Module):
    """Vectors of segments from cells and neighbours.

    Parameters
    ----------
    network
        The road network.
    d, layers, heads
        Width, and of the GAT.
    cell_m
        Metres of a cell.
    """

    cell: Tensor
    rank: Tensor
    edges: Tensor

    def __init__(self, network: RoadNetwork, d: int, *, layers: int = 2, heads: int = 8, cell_m: float = 50.0) -> None:
        super().__init__()
        offset, crossed = crossed_cells(network, cell_m)
        # Only cells that a road crosses need a vector.
        known, crossed = np.unique(crossed, return_inverse=True)
        self.table = nn.Parameter(torch.randn(len(known), d) / math.sqrt(d))
        self.along = nn.GRUCell(d, d)
        start_recurrent(self.along)
        self.layers = nn.ModuleList(GATConv(d, d // heads, heads, add_self_loops=False) for _ in range(layers))

        # The longest sequences first, then the first elements of all, the second ones of those that have any, ...
        length = np.diff(offset)
        order = np.argsort(-length, kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        place = np.arange(len(crossed)) - np.repeat(offset[:-1], length)
        packed = np.lexsort((np.repeat(rank, length), place))
        for name, array in (("cell", crossed[packed]), ("rank", rank)):
            self.register_buffer(name, torch.from_numpy(array.astype(np.int64)), persistent=False)
        self.sizes: list[int] = np.bincount(place).tolist()  # sequences that have so many elements
        self.register_buffer("edges", neighbours(network, loops=True), persistent=False)

    def forward(self, ids: Tensor) -> Tensor:
        """Return X [S, d] from the learned vectors of the segments [S, d]."""
        x = functional.leaky_relu(ids + self._crossed())
        for layer in self.layers:
            x = functional.leaky_relu(layer(x, self.edges))
        return x

    def _crossed(self) -> Tensor:
        """Return g [S, d]: a loop over places in the sequences, which goes on with those that have more."""
        cells = functional.embedding(self.cell, self.table)
        state = cells.new_zeros(len(self.rank), cells.shape[1])
        ended: list[Tensor] = []
        for now, left in zip(torch.split(cells, self.sizes), [*self.sizes[1:], 0], strict=True):
            state = self.along(now, state)
            ended.append(state[left:])
            state = state[:left]
        return functional.embedding(self.rank, torch.cat(ended[::-1]))


def crossed_cells(network: RoadNetwork, cell_m: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells that segments cross, in driving order: offsets [S+1] and numbers of cells.

    Places are looked at a tenth of a cell apart, so that a corner that is cut by less may be missed.
    """
    cells = cells_over(np.stack(network.geom_xy, axis=-1), cell_m)
    count = np.ceil(network.length_m / cell_m * SAMPLES).astype(np.int64) + 2
    segment = np.repeat(np.arange(network.n_segments), count)
    start = np.cumsum(count) - count
    ratio = (np.arange(len(segment)) - start[segment]) / (count - 1)[segment]
    xy = np.stack(network.plane.to_xy(*network.point_at(segment, ratio)), axis=-1)
    number = cells.number(torch.from_numpy(xy)).numpy()
    new = np.ones(len(number), bool)
    new[1:] = (number[1:] != number[:-1]) | (segment[1:] != segment[:-1])
    offset = np.concatenate([[0], np.cumsum(np.bincount(segment[new], minlength=network.n_segments))])
    return offset.astype(np.int64), number[new]
