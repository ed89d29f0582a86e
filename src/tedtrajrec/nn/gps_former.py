"""GPSFormer of RNTrajRec: attention among the fixes, then a graph network on the roads around each.

    t_i   = Transformer layer over the fixes, of h
    z     = sigmoid(W Z_e + V t_i)                       for each segment e around fix i
    Y_e   = GraphNorm(Z_e + z t_i + (1 - z) Z_e)         gated fusion, and what it was
    Z'_e  = GraphNorm(Y_e + GAT(Y)_e)                    over the road network among these segments
    h'_i  = mean over e of Z'_e

GraphNorm is in :mod:`tedtrajrec.nn.masked_norm`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_geometric.nn import DenseGATConv

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.masked_norm import MaskedNorm
from tedtrajrec.nn.tedformer import TedFormerLayer


class Around(NamedTuple):
    """The graph of the segments around each fix."""

    real: Tensor  # [B, m, K] bool
    links: Tensor  # [B, m, K, K] bool, where a segment (the row) may follow another one (the column) or is the same


class GpsFormerLayer(nn.Module):
    """One layer; see the module."""

    def __init__(self, d: int, heads: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.attend = TedFormerLayer(d, heads, width, kind="full", dropout=dropout)
        self.gate_road = nn.Linear(d, d)
        self.gate_fix = nn.Linear(d, d, bias=False)
        self.norm1, self.norm2 = MaskedNorm(d), MaskedNorm(d)
        self.graph = DenseGATConv(d, d // heads, heads)

    def forward(self, x: Tensor, mask: Tensor, road: Tensor, around: Around) -> tuple[Tensor, Tensor]:
        """Return h' [B, m, d] and Z' [B, m, K, d].

        Parameters
        ----------
        x, mask
            h of the fixes [B, m, d], and whether they are any [B, m].
        road, around
            Z of the segments around them [B, m, K, d], and their graph.
        """
        time = torch.zeros_like(mask, dtype=x.dtype)  # this attention does not ask for it
        evolved = self.attend.attention.evolve(x, time, time, mask)
        fix = self.attend(x.transpose(0, 1), evolved).transpose(0, 1)
        real = around.real & mask[..., None]
        count = real.sum(-1, keepdim=True)
        share = real / count.clamp_min(1)

        gate = torch.sigmoid(self.gate_road(road) + self.gate_fix(fix)[..., None, :])
        fused = gate * fix[..., None, :] + (1 - gate) * road
        fused = self.norm1(road + fused, real, share)
        spread = self.graph(fused.flatten(0, 1), around.links.flatten(0, 1), add_loop=False).view_as(fused)
        road = self.norm2(fused + spread, real, share)
        mean = (road * share[..., None]).sum(-2)
        return torch.where(count > 0, mean, fix), road  # a fix without a road speaks for itself


def followers(network: RoadNetwork) -> Tensor:
    """Return the segments that may follow each, padded with -1 [S, D]."""
    count = np.diff(network.succ_offset)
    table = np.full((network.n_segments, max(1, int(count.max(initial=0)))), -1, np.int64)
    table[np.arange(table.shape[1]) < count[:, None]] = network.succ
    return torch.from_numpy(table)


def graphs_around(segment: Tensor, real: Tensor, follows: Tensor) -> Around:
    """Return the graphs of segments around fixes.

    Parameters
    ----------
    segment, real
        The segments [B, m, K], and whether they are any.
    follows
        The segments that may follow each [S, D]; see :func:`followers`.
    """
    after = follows[segment]  # [B, m, K, D]
    links = torch.zeros(*segment.shape, segment.shape[-1], dtype=torch.bool, device=segment.device)
    for k in range(after.shape[-1]):
        links |= segment[..., :, None] == after[..., None, :, k]
    links &= real[..., :, None] & real[..., None, :]
    return Around(real, links | torch.eye(links.shape[-1], dtype=torch.bool, device=links.device))
