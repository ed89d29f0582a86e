"""DHTR + HMM (Wang et al., TKDE 2021): cells of all steps one after the other, and a Kalman filter over what is said.

    S = BiLSTM(x, y of fixes 1..m)                                                    h_0 = S_m
    e_ik = v . tanh(W_H h_{i-1} + W_S s_k + W_P P[|i - tau_k|] + W_Q Q[|c_{i-1} - c_k|])     tau: steps, c: cells
    a_i = sum_k softmax_k(e_ik) s_k                                                   attention in space and time
    r_i = MLP(place of the fix before step i, place of the fix after it)              the sub-sequence
    h_i = LSTM([W [c_{i-1}, r_i] || a_i], h_{i-1}),   P_i = softmax(W' h_i)            over all cells
    z_i = mean, N_i = covariance of the centres of cells under P_i                    what the filter observes
    places = KalmanFilter(z, N); at fixes z is the fix and N is small                 nn/kalman
    loss = -log P_i(true cell) + lambda |place_i - truth_i|^2 over missing steps, through the filter

c_i is the cell of the fix at observed steps, else the likeliest (in training sometimes the true one). Every place is
then matched to the map.

Differences, since no code of the authors was found: M of the filter is learned; what the squares of a cell leave open
(cell^2 / 12) is part of N; all cells count for z and N; the truth is where the vehicle was on the road; cells that no
road touches are left out; places are scaled to about 1 for the LSTM; d is the width of S and of the decoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.methods.cell_stage import CellConfig, CellInputs, CellMethod, Places
from tedtrajrec.methods.learned import Losses
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.kalman import kalman_filter, moments
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import last_real, rows
from tedtrajrec.nn.time_attention import padding_bias
from tedtrajrec.nn.two_way import TwoWayLstm

FARTHEST = 1024  # steps or cells that attention tells apart
START_SPEED = 4.0  # variance of the first speed, in cells and steps
WITHIN = 1 / 12  # variance of a place in its cell


@dataclass(frozen=True)
class DhtrConfig(CellConfig):
    """Settings of DHTR + HMM."""

    layers: int = 2  # of the encoder
    around: int = 64  # width of r
    fix_noise_m: float = 15.0  # of fixes, for the filter
    ratio_weight: float = 1.0  # lambda: of the squared error of the place, in kilometres
    filtered: bool = True  # whether the filter is used; else z is the answer

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.layers, self.around) < 1 or not self.fix_noise_m > 0:
            raise ValueError("layers, around and fix_noise_m must be positive")
        if self.d % 2:
            raise ValueError("d must be even")


class DhtrHmm(CellMethod[DhtrConfig]):
    """A sequence of cells with attention in space and time, a Kalman filter, then the matcher (DHTR + HMM)."""

    name: ClassVar[str] = "dhtr_hmm"
    Config: ClassVar[type[DhtrConfig]] = DhtrConfig
    PRESETS: ClassVar[dict[str, DhtrConfig]] = {
        "default": DhtrConfig(),
        "paper": DhtrConfig(),
        "authors": DhtrConfig(d=512, dropout=0.5),
    }

    def __init__(self, network: RoadNetwork, config: DhtrConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        half = c.d // 2
        self._scale = c.cell_m / self._extent  # cells in half the extent of the network
        self.encoder = TwoWayLstm(2, c.d, c.layers, dropout=c.dropout)
        self.around = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, c.around))
        self.fed = nn.Linear(2 + c.around, c.d)
        self.cell = nn.LSTMCell(2 * c.d, c.d)
        self.in_time = nn.Parameter(torch.randn(FARTHEST, c.d) / math.sqrt(c.d))  # P
        self.in_space = nn.Parameter(torch.randn(FARTHEST, c.d) / math.sqrt(c.d))  # Q
        self.of_state, self.of_fix = nn.Linear(c.d, half), nn.Linear(c.d, half, bias=False)
        self.of_time, self.of_space = nn.Linear(c.d, half, bias=False), nn.Linear(c.d, half, bias=False)
        self.attention = nn.Linear(half, 1, bias=False)
        self.score = nn.Linear(c.d, len(self.centres))
        self.dropout = nn.Dropout(c.dropout)
        self.process = nn.Parameter(torch.tensor([0.3, 0.6]).square().log())  # of place and speed, in cells and steps

    def roads(self) -> Roads:
        """Return nothing of the roads, but how far apart in space is told: W_Q Q [FARTHEST, d / 2]."""
        return Roads(self.centres.new_empty(0, 0), None, None, self.of_space(self.in_space))

    def states(self, inputs: CellInputs, roads: Roads) -> Tensor:
        """Return h of all steps [B, n, d]."""
        mask, in_space = inputs.fix_mask, cast("Tensor", roads.more)
        fixes = self.encoder(inputs.fix_place * self._scale, mask)  # S
        near = torch.cat([rows(inputs.fix_place, inputs.before), rows(inputs.fix_place, inputs.after)], dim=-1)
        around = self.around(near * self._scale)  # r [B, n, .]
        steps = torch.arange(inputs.step_mask.shape[1], device=mask.device)
        lag = (steps[:, None] - inputs.fix_step[:, None]).abs().clamp_max(FARTHEST - 1)  # [B, n, m]
        told = self.of_fix(fixes)[:, None] + functional.embedding(lag, self.of_time(self.in_time))  # [B, n, m, d / 2]
        bias = padding_bias(mask, fixes)
        copied = rows(inputs.fix_cell[..., None], inputs.before).squeeze(-1)  # the cell of the fix at observed steps
        given = torch.where(inputs.observed, copied, inputs.cell.clamp_min(0))
        is_given = inputs.observed | inputs.forced

        centre_of_fix = self.centres[inputs.fix_cell]
        state, memory = last_real(fixes, mask), torch.zeros_like(fixes[:, 0])
        last = centre_of_fix[:, 0]
        out = []
        for i, here in enumerate(told.unbind(1)):
            far = (centre_of_fix - last[:, None]).norm(dim=-1).long().clamp_max(FARTHEST - 1)
            hidden = self.of_state(state)[:, None] + here + functional.embedding(far, in_space)
            weight = torch.softmax(self.attention(torch.tanh(hidden)).squeeze(-1) + bias, dim=-1)
            read = (weight[..., None] * fixes).sum(1)
            fed = self.fed(torch.cat([last * self._scale, around[:, i]], dim=-1))
            state, memory = self.cell(torch.cat([self.dropout(fed), read], dim=-1), (state, memory))
            out.append(state)
            with torch.no_grad():
                likeliest = self.score(state).argmax(-1)
            last = self.centres[torch.where(is_given[:, i], given[:, i], likeliest)]
        return torch.stack(out, dim=1)

    def seen(self, inputs: CellInputs, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the filter observes of a batch: z [B, n, 2] and N [B, n, 2, 2]."""
        mean, spread = moments(torch.softmax(logits, dim=-1), self.centres)
        fixed = inputs.observed[..., None]
        z = torch.where(fixed, rows(inputs.fix_place, inputs.before), mean)
        unit = torch.eye(2, dtype=mean.dtype, device=mean.device)
        exact = (self.config.fix_noise_m / self.config.cell_m) ** 2 * unit
        return z, torch.where(fixed[..., None], exact, spread + WITHIN * unit)

    def filtered(self, inputs: CellInputs, logits: Tensor) -> Tensor:
        """Return the places of all steps [B, n, 2]."""
        z, noise = self.seen(inputs, logits)
        if not self.config.filtered:
            return z
        return kalman_filter(z, noise, self.process.exp().repeat_interleave(2), START_SPEED)

    def loss(self, inputs: CellInputs) -> Losses:
        """Return the losses of a batch: cross entropy of cells, and squared error of places in kilometres."""
        logits = self.score(self.states(inputs, self.roads()))
        missing = (inputs.cell >= 0) & ~inputs.observed
        count = missing.sum().clamp_min(1)
        target = inputs.cell.masked_fill(~missing, -1).flatten()
        cell = functional.cross_entropy(logits.flatten(0, 1), target, ignore_index=-1, reduction="sum") / count
        off = ((self.filtered(inputs, logits) - inputs.place) ** 2).sum(-1)
        place = off.masked_fill(~missing, 0).sum() / count * (self.config.cell_m / 1000) ** 2
        return Losses(cell + self.config.ratio_weight * place, cell.detach(), place.detach(), missing.sum())

    @torch.no_grad()
    def places(self, inputs: CellInputs) -> Places:
        """Return where a batch is at its steps; at observed ones that is the fix."""
        place = self.filtered(inputs, self.score(self.states(inputs, self._kept_roads())))
        return Places(torch.where(inputs.observed[..., None], rows(inputs.fix_place, inputs.before), place))
