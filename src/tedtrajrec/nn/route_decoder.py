"""The decoder of TRMMA: the steps of a gap along one route, one after the other.

h_t = GRU([X(e_{t-1}) || r_{t-1} || X(e_end) || r_end], h_{t-1})
P_t(j) = softmax_j(v . tanh(W h_t + U R_j))                       over the segments of the route, and nothing else
r_t = sigmoid(MLP [h_t || sum_j P_t(j) R_j])
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from tedtrajrec.nn.sequences import start_recurrent
from tedtrajrec.nn.time_attention import padding_bias


class Gaps(NamedTuple):
    """G gaps with a route each; X is what is told of a segment."""

    states: Tensor  # [G, R, d] encoded route
    told: Tensor  # [G, R, w] X of its segments
    exists: Tensor  # [G, R] bool
    start: Tensor  # [G, d] first state
    start_ratio: Tensor  # [G] on the first segment
    end_ratio: Tensor  # [G] on the last one


class Along(NamedTuple):
    """The steps of gaps on their routes."""

    log_share: Tensor  # [G, L, R] log P
    ratio: Tensor  # [G, L]


class Truth(NamedTuple):
    """Where gaps were at their steps, fed in place of predictions where ``use`` is set."""

    place: Tensor  # [G, L] int64, on the route
    ratio: Tensor  # [G, L]
    use: Tensor  # [G, L] bool


class RouteDecoder(nn.Module):
    """Decodes gaps.

    Parameters
    ----------
    d, told
        Width of states and of X.
    """

    def __init__(self, d: int, told: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(2 * told + 2, d)
        start_recurrent(self.cell)
        self.of_state, self.of_route = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.attention = nn.Linear(d, 1, bias=False)
        self.to_ratio = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))

    def forward(self, gaps: Gaps, steps: int, truth: Truth | None = None, *, forwards: bool = False) -> Along:
        """Return the steps of gaps.

        Parameters
        ----------
        gaps
            The gaps; those without a route have answers without meaning.
        steps
            L, of the longest gap.
        truth
            In training, what may be fed.
        forwards
            Whether a step may not be before the last one on the route.
        """
        row = torch.arange(len(gaps.states), device=gaps.states.device)
        count = gaps.exists.sum(1)
        keys = self.of_route(gaps.states)
        bias = padding_bias(gaps.exists, keys)
        end = torch.cat([gaps.told[row, (count - 1).clamp_min(0)], gaps.end_ratio[:, None]], dim=-1)
        place, ratio, state = torch.zeros_like(count), gaps.start_ratio, gaps.start
        order = torch.arange(gaps.exists.shape[1], device=row.device)
        shares, ratios = [], []
        for t in range(steps):
            fed = torch.cat([gaps.told[row, place], ratio[:, None], end], dim=-1)
            state = self.cell(fed, state)
            logits = self.attention(torch.tanh(self.of_state(state)[:, None] + keys)).squeeze(-1) + bias
            if forwards:
                logits = logits + padding_bias(order >= place[:, None], logits)
            share = torch.log_softmax(logits, dim=-1)
            read = (share.exp()[..., None] * gaps.states).sum(1)
            along = torch.sigmoid(self.to_ratio(torch.cat([state, read], dim=-1)).squeeze(-1))
            shares.append(share)
            ratios.append(along)
            place, ratio = share.argmax(-1), along.detach()
            if truth is not None:
                place = torch.where(truth.use[:, t], truth.place[:, t].clamp_min(0), place)
                ratio = torch.where(truth.use[:, t], truth.ratio[:, t], ratio)
        return Along(torch.stack(shares, dim=1), torch.stack(ratios, dim=1))
