"""RNTrajRec (Chen et al., ICDE 2023): fixes as the roads around them, refined by attention and graph networks in turn.

    X     = GridGNN of the road network                                      nn/grid_gnn
    p_i   = sum_e w_ie X_e / sum_e w_ie,   w_ie = exp(-dist_ie^2 / gamma^2)  over the segments e around fix i
    h_i   = sqrt(d) W [p_i || column || row || step] + PE(i),   Z_ie = X_e
    h, Z  = GPSFormer layers of h and Z                                      nn/gps_former
    H = h, h_0 = mean of H;  MTrajRec's decoder, which hears X of segments   nn/gru_decoder
    loss  = segments + lambda ratios + .1 fixes
    fixes = -log P(true segment of a fix),  P(e) ~ exp(w . Z_ie) w_ie        over the segments around it

Differences: segments around a fix are the nearest ones (``most_candidates``) within 400 m, not all of these and their
successors, since their weights fall with exp(-d^2/30^2); the true segment is not put among them where it is missing
(the authors do that, in tests too), and such a fix has no part in the loss of fixes. The GAT of GridGNN runs on the
whole network, over neighbours in both directions, in place of a mean over a sub-graph for each segment; only cells that
a road crosses have a vector. Norms do not count padding, and keep their statistics with the weights. Gate and fusion
are those of the paper's text (the authors' code has a LeakyReLU in the gate, and swaps what it opens for). Layers are
post-norm, as the text says; cells and steps are scaled unless ``raw_cells``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedMethod
from tedtrajrec.methods.learned import Inputs, Losses
from tedtrajrec.methods.mtrajrec import MTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.gps_former import GpsFormerLayer, followers, graphs_around
from tedtrajrec.nn.grid_gnn import GridGnn
from tedtrajrec.nn.point_features import point_features
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.tedformer import masked_mean, positions


@dataclass(frozen=True)
class RNTrajRecConfig(MTrajRecConfig):
    """Settings of RNTrajRec."""

    heads: int = 8
    width: int = 512  # of the feed-forward networks
    encoder_layers: int = 2
    road_layers: int = 2
    gamma_m: float = 30.0
    fix_weight: float = 0.1  # of the loss of fixes

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("heads", "width", "gamma_m")
        self.check_heads(self.heads)
        if self.road_width != self.d:
            raise ValueError("road_d must be d")
        if min(self.encoder_layers, self.road_layers, self.fix_weight) < 0:
            raise ValueError("there cannot be fewer than 0 layers, nor a fix_weight below 0")


class RNTrajRec(GruDecodedMethod[RNTrajRecConfig, Inputs]):
    """A Transformer with graph networks over the roads around fixes, before MTrajRec's decoder (RNTrajRec)."""

    name: ClassVar[str] = "rntrajrec"
    Config: ClassVar[type[RNTrajRecConfig]] = RNTrajRecConfig
    PRESETS: ClassVar[dict[str, RNTrajRecConfig]] = {
        "default": RNTrajRecConfig(),
        "paper": RNTrajRecConfig(raw_cells=True),
        "authors": RNTrajRecConfig(d=512, raw_cells=True, ratio_weight=10.0, most_candidates=128),
    }

    follows: Tensor

    def __init__(self, network: RoadNetwork, config: RNTrajRecConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.grid = self.cells(c.cell_m)
        self.grid_gnn = GridGnn(network, c.d, layers=c.road_layers, heads=c.heads, cell_m=c.cell_m)
        self.point = nn.Linear(c.d + 3, c.d)
        self.layers = nn.ModuleList(
            GpsFormerLayer(c.d, c.heads, c.width, dropout=c.dropout) for _ in range(c.encoder_layers)
        )
        self.dropout = nn.Dropout(c.dropout)
        self.score_near = nn.Linear(c.d, 1, bias=False)
        self.register_buffer("follows", followers(network), persistent=False)

    def vectors(self) -> Tensor:
        """Return X of GridGNN."""
        out: Tensor = self.grid_gnn(self.table)
        return out

    def fixes(self, inputs: Inputs, roads: Roads) -> FixStates:
        """Return the states of the fixes; the decoder starts from their mean."""
        return self._refined(inputs, roads)[0]

    def _refined(self, inputs: Inputs, roads: Roads) -> tuple[FixStates, Tensor]:
        """Return the states of the fixes, and Z of the segments around them [B, m, K, d]."""
        c, near = self.config, inputs.nearby
        x = Roads(roads.static[:, : c.d], None, None)
        point = point_features(x, near, inputs.fix_minute, eta_m=c.eta_m, gamma_m=c.gamma_m)
        told = self.grid.told(inputs.fix_xy, inputs.fix_step, raw=c.raw_cells)
        state = math.sqrt(c.d) * self.point(torch.cat([point, told.to(point.dtype)], dim=-1))
        state = self.dropout(state + positions(state.shape[1], c.d, state))
        road = nn.functional.embedding(near.segment, x.static)
        around = graphs_around(near.segment, near.distance_m <= c.eta_m, self.follows)
        for layer in self.layers:
            state, road = layer(state, inputs.fix_mask, road, around)
        return FixStates(state, masked_mean(state, inputs.fix_mask)), road

    def loss(self, inputs: Inputs) -> Losses:
        """Return the losses of a batch; that of the fixes is part of the total."""
        roads = self.roads()
        fixes, road = self._refined(inputs, roads)
        losses = self.loss_of(inputs, roads, self.encoded(inputs, fixes))
        return losses._replace(total=losses.total + self.config.fix_weight * self._fix_loss(inputs, road))

    def _fix_loss(self, inputs: Inputs, road: Tensor) -> Tensor:
        """Return the mean of -log P of the true segments of fixes, where these are among the segments around."""
        c, near = self.config, inputs.nearby
        real = near.distance_m <= c.eta_m
        weight = -((near.distance_m / c.gamma_m) ** 2)
        logit = (self.score_near(road).squeeze(-1) + weight).masked_fill(~real, -torch.inf)
        true = inputs.segment.gather(1, inputs.fix_step)[..., None]
        hit = (near.segment == true) & real & inputs.fix_mask[..., None]
        found = hit.any(-1)
        logit = torch.where(found[..., None], logit, 0)  # so that no row is nothing but infinite
        miss = -torch.log_softmax(logit, dim=-1).masked_fill(~hit, 0).sum(-1)
        return miss.sum() / found.sum().clamp_min(1)
