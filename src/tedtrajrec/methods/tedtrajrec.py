"""TedTrajRec: PD-GNN, STTExtractor, TedFormer and the constrained step-by-step decoder of the paper.

    X(e, t) = t2v(t; Omega_e) + S_hat_e                          PD-GNN, nn/road_gnn
    x_i = sum_j w_ij X(e_j, t_i) / sum_j w_ij                    STTExtractor, nn/point_features
    w_ij = exp(-dist_ij^2 / gamma^2)                             over the segments within eta of fix i
    k_j(t) = g * xi2(K_j) + (1 - g) * xi3(K_j)                   TedAttn, nn/time_attention
    g = sigmoid(-xi1(K_j) (t - t_j)),  xi(x) = act(W x + b)
    H = M layers of softmax_j(Q_i . k_j(t_i) / sqrt(d)) V_j      TedFormer, nn/tedformer;  h_0 = mean of H
    h_i = N such layers from W [X(e_{i-1}, t_{i-1}) || r_{i-1} || h_{i-1}] to H, at time t_i;  nn/decoder
    P(e_i = e) ~ exp(w_e . h_i) C[i, e]                          C: near the fix at observed steps, 1 at others
    r_i = sigmoid(R([h_i || X(e_i, t_i)]))
    loss = -log P(true segment) + lambda (r_i - true ratio)^2

What differs from the paper, or is left open by it, is in the settings and in docs/methods.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.learned import Inputs, LearnedConfig
from tedtrajrec.methods.reachable import ReachableInputs, ReachableSearch, touching, with_truth
from tedtrajrec.methods.stepwise import StepwiseMethod, plain
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.between import Between
from tedtrajrec.nn.decoder import Encoded, StepDecoder, TedFormerCore
from tedtrajrec.nn.point_features import point_features
from tedtrajrec.nn.road_gnn import Gnn, Rhythm, RoadGnn
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.segment_loss import Chosen
from tedtrajrec.nn.tedformer import TedFormerEncoder, masked_mean, positions
from tedtrajrec.nn.time_attention import Activation, Kind
from tedtrajrec.nn.touched import no_part
from tedtrajrec.nn.waves import Waves

BLOCK_M, STILL_M = 150.0, 30.0  # the shortest wave; a way this long says half of its direction

Scored = Literal["all", "reachable"]
"""Which segments have a score: all of the network, as in the paper, or those that a trip may have used
(:mod:`tedtrajrec.methods.reachable`), so that cost does not depend on the size of the network."""


@dataclass(frozen=True)
class TedTrajRecConfig(LearnedConfig):
    """Settings of TedTrajRec; what the paper calls M, N and P are the layers of encoder, decoder and road network."""

    heads: int = 8
    width: int = 512  # of the feed-forward networks
    encoder_layers: int = 2
    decoder_layers: int = 1
    road_layers: int = 2
    gnn: Gnn = "gatv2"
    rhythm: Rhythm = "dynamic"
    attention: Kind = "ted"
    activation: Activation = "lecun"
    gamma_m: float = 30.0
    coordinates: bool = True  # whether a fix is also told by its coordinates and time, as in the authors' code
    scored: Scored = "all"
    most_reached: int = 384  # for "reachable", segments of a gap between two fixes
    guided: bool = False  # whether segments start from the map and steps know their place between fixes; ours

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("heads", "width", "gamma_m", "most_reached")
        self.check_heads(self.heads)
        if self.guided and self.d % 2:
            raise ValueError("guided needs an even width d")
        if min(self.encoder_layers, self.decoder_layers, self.road_layers) < 0:
            raise ValueError("there cannot be fewer than 0 layers")


class TedTrajRec(StepwiseMethod[TedTrajRecConfig, Inputs | ReachableInputs]):
    """The paper's model: a time-aware Transformer over dynamic road representations, decoded step by step."""

    name: ClassVar[str] = "tedtrajrec"
    Config: ClassVar[type[TedTrajRecConfig]] = TedTrajRecConfig
    PRESETS: ClassVar[dict[str, TedTrajRecConfig]] = {
        "default": TedTrajRecConfig(),
        "paper": TedTrajRecConfig(coordinates=False),
    }

    def __init__(self, network: RoadNetwork, config: TedTrajRecConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.road_gnn = RoadGnn(network, c.d, layers=c.road_layers, heads=c.heads, gnn=c.gnn, rhythm=c.rhythm)
        if c.coordinates:
            self.point = nn.Linear(c.d + 3, c.d)
        self.encoder = TedFormerEncoder(
            c.d, c.heads, c.width, c.encoder_layers, kind=c.attention, activation=c.activation, dropout=c.dropout
        )
        between = None
        if c.guided:
            waves = Waves(c.d, min(BLOCK_M / self._extent, 4.0), 4.0)
            between = Between(c.d, waves, STILL_M / self._extent)
        core = TedFormerCore(
            c.d,
            c.heads,
            c.width,
            c.decoder_layers,
            kind=c.attention,
            activation=c.activation,
            dropout=c.dropout,
            between=between,
        )
        self.decoder = StepDecoder(core, network.n_segments, c.d, dropout=c.dropout)
        if between is not None:
            self._start_from_map(between.waves)
        self.dropout = nn.Dropout(c.dropout)

    @torch.no_grad()
    def _start_from_map(self, waves: Waves) -> None:
        """Give the vectors of segments and their scores the same waves; scores keep the size that they had."""
        xy = (np.stack(self.network.geom_xy, axis=-1) - self._middle.numpy()) / self._extent
        first, last = xy[self.network.geom_offset[:-1]], xy[self.network.geom_offset[1:] - 1]
        way = last - first
        direction = way / np.maximum(np.hypot(*way.T), 1e-9)[:, None]
        start = waves(*(torch.from_numpy(part).float() for part in ((first + last) / 2, direction)))
        self.road_gnn.table.copy_(start)
        self.decoder.score.weight.copy_(start / math.sqrt(3 * self.config.d))

    def roads(self) -> Roads:
        """Return X_road of the network."""
        roads: Roads = self.road_gnn()
        return roads

    @cached_property
    def reachable(self) -> ReachableSearch:
        """The search of the segments that a trip may have used."""
        return ReachableSearch(self.network, self.config.most_reached)

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> Inputs | ReachableInputs:
        """Return a batch as this method sees it."""
        seen = self.plain_inputs(batch, forced)
        if self.config.scored == "all":
            return seen
        choice = self.reachable.choices(batch, seen)
        if forced is None:
            return ReachableInputs(*seen, choice, *no_part())
        return touching(seen, with_truth(choice, seen.segment, self.network.n_segments), self.road_gnn)

    def chosen(self, inputs: Inputs | ReachableInputs) -> Chosen | None:
        """Return the segments that each trip may use, where not all are scored."""
        if isinstance(inputs, Inputs):
            return None
        return Chosen.of(inputs.choice, self.decoder.score, inputs.part)

    def roads_for(self, inputs: Inputs | ReachableInputs) -> Roads:
        """Return X_road of the network, or of the part that a batch touches."""
        roads: Roads = self.road_gnn(part=None if isinstance(inputs, Inputs) else inputs.part)
        return roads

    def encode(self, inputs: Inputs | ReachableInputs, roads: Roads) -> Encoded:
        """Return the encoded fixes; the decoder starts from their mean."""
        c, inputs = self.config, plain(inputs)
        x = point_features(roads, inputs.nearby, inputs.fix_minute, eta_m=c.eta_m, gamma_m=c.gamma_m)
        if c.coordinates:
            place = torch.cat([inputs.fix_xy, inputs.fix_time[..., None] / 64], dim=-1)
            x = self.point(torch.cat([x, place.to(x.dtype)], dim=-1))
        x = self.dropout(x + positions(x.shape[1], c.d, x))
        states = self.encoder(x, inputs.fix_time, inputs.fix_mask)
        start = masked_mean(states, inputs.fix_mask)
        return Encoded(states, start, inputs.fix_time, inputs.fix_mask, inputs.fix_xy)
