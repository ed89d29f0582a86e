"""MTrajRec's decoder, which most of the compared methods share: what the step-by-step decoder does not have of it.

    r_i = sigmoid(w . [ReLU(W [X(e_i) || h_i]) || f(e_i)])          f: what the map says of a segment
    h_0 = tanh(W [tanh(V hour) || h])                               h: from the encoder; hour: of most of the fixes

The vector of a segment that roads are asked for is [X || f]; only X is learned.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.decoder import GruCore, StepDecoder
from tedtrajrec.nn.sequences import start_recurrent

FACTS = len(ROAD_CLASSES) + 3  # numbers that the map has of a segment
HOURS, HOUR_WIDTH = 24, 8


def road_facts(network: RoadNetwork) -> Tensor:
    """Return what the map says of each segment: f [S, FACTS].

    The logarithm of its length as a share of the largest, its class (one of all is 1), and how many segments may come
    before and after it.
    """
    length = np.log10(np.maximum(network.length_m, 1)) / np.log10(max(network.length_m.max(initial=1), 10))
    kind = np.eye(len(ROAD_CLASSES))[network.road_class]
    before, after = np.diff(network.pred_csr[0]), np.diff(network.succ_offset)
    facts = np.concatenate([length[:, None], kind, before[:, None], after[:, None]], axis=1)
    return torch.from_numpy(facts.astype(np.float32))


class GruDecoder(StepDecoder):
    """The step-by-step decoder with a GRU, whose ratio also hears what the map says of the segment.

    Parameters
    ----------
    n_segments, d
        As for :class:`StepDecoder`.
    road
        Width of X.
    dropout
        Of X where it is fed.
    core
        Another recurrence in place of :class:`GruCore`.
    """

    def __init__(
        self, n_segments: int, d: int, road: int, *, dropout: float = 0.0, core: GruCore | None = None
    ) -> None:
        made = GruCore(d, road, dropout=dropout) if core is None else core
        super().__init__(made, n_segments, d)
        start_recurrent(made.cell)
        self.road = road
        self.along = nn.Sequential(nn.Linear(road + d, d), nn.ReLU())
        self.to_ratio = nn.Linear(d + FACTS, 1)

    def ratio(self, state: Tensor, road: Tensor) -> Tensor:
        """Return r [...] from h [..., d] and [X || f] of the segment."""
        x, facts = road[..., : self.road], road[..., self.road : self.road + FACTS]
        hidden = self.along(torch.cat([x, state], dim=-1))
        return torch.sigmoid(self.to_ratio(torch.cat([hidden, facts], dim=-1)).squeeze(-1))


class HourStart(nn.Module):
    """The first state of the decoder, which knows the hour of the day."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.hour = nn.Linear(HOURS, HOUR_WIDTH)
        self.mix = nn.Linear(HOUR_WIDTH + d, d)

    def forward(self, start: Tensor, minute: Tensor, mask: Tensor) -> Tensor:
        """Return h_0 [B, d] from h [B, d], the minutes of day of the fixes [B, m] and whether they are any [B, m]."""
        each = torch.arange(HOURS, device=minute.device)
        fixes = ((minute / 60).long()[..., None] == each) & mask[..., None]
        most = (fixes.sum(1).argmax(-1, keepdim=True) == each).to(start.dtype)
        out: Tensor = torch.tanh(self.mix(torch.cat([torch.tanh(self.hour(most)), start], dim=-1)))
        return out
