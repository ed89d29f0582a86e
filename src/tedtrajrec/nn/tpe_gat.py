"""TPE-GAT of START: a graph attention network over roads that knows how often each turn is taken.

    s_ij = LeakyReLU(a_s . W x_i + a_t . W x_j + a_p . w p_ij)      for each turn from i to j, and from j to itself
    x'_j = sum_i softmax_i(s_ij) W x_i + V x_j                      for each head; ELU between layers

p_ij is the share of past drives; see :func:`turn_shares`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

from tedtrajrec.network.roadnet import RoadNetwork

HEAD_WIDTH = 16  # of the heads of all layers but the last


class TpeGat(nn.Module):
    """Vectors of segments from what is said of them, the network, and the turns of past drives.

    Parameters
    ----------
    network
        The road network.
    width, d
        Of what is said of a segment, and of what comes out.
    heads
        Of each layer. The last one averages its heads, the others have them side by side.
    dropout
        Of attention weights.
    """

    edges: Tensor
    share: Tensor

    def __init__(self, network: RoadNetwork, width: int, d: int, heads: Sequence[int], *, dropout: float = 0.0) -> None:
        super().__init__()
        widths = [width, *(HEAD_WIDTH * count for count in heads[:-1])]
        last = len(heads) - 1
        self.layers = nn.ModuleList(
            GATConv(
                widths[k],
                d if k == last else HEAD_WIDTH,
                count,
                concat=k < last,
                dropout=dropout,
                add_self_loops=False,  # the edges have them: arrays whose size depends on data cannot be recorded
                edge_dim=1,
                residual=True,
            )
            for k, count in enumerate(heads)
        )
        edges = np.concatenate([turns(network), np.tile(np.arange(network.n_segments), (2, 1))], axis=1)
        self.register_buffer("edges", torch.from_numpy(edges), persistent=False)
        self.register_buffer("share", torch.zeros(len(network.succ)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the vectors [S, d] of segments of which x [S, width] is said."""
        share = functional.pad(self.share, (0, len(x)))[:, None].to(x.dtype)  # to itself none drives
        for k, layer in enumerate(self.layers):
            x = layer(functional.elu(x) if k else x, self.edges, share)
        return x


def turns(network: RoadNetwork) -> NDArray[np.int64]:
    """Return the turns of a network, from segment to segment [2, E], in the order of ``network.succ``."""
    source = np.repeat(np.arange(network.n_segments), np.diff(network.succ_offset))
    return np.stack([source, network.succ]).astype(np.int64)


def turn_shares(network: RoadNetwork, count: NDArray[np.int64], *, by_source: bool = False) -> NDArray[np.float32]:
    """Return p of the turns [E]: their share of all drives onto the segment they lead to, or off that they come from.

    Parameters
    ----------
    network
        The road network.
    count
        How often each turn was taken [E].
    by_source
        Whether the shares of the turns off a segment add up to 1, or those of the turns onto it. They are 0 where
        nobody drove.
    """
    end = turns(network)[0 if by_source else 1]
    total = np.bincount(end, count, network.n_segments)[end]
    share: NDArray[np.float32] = (count / np.maximum(total, 1)).astype(np.float32)
    return share
