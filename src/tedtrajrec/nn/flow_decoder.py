"""MM-STGED's decoder: MTrajRec's, with the condition of the roads, the way so far, and the flow of past trips.

    h_i = GRU([a_i || X(e_{i-1}) || r_{i-1} || q], h_{i-1})          q: the condition of the roads, one for the trip
    g_i = W [h_i || mean of E(e_1), .., E(e_{i-1})]                  E: fixed vectors of segments, from the flow
    P(e) ~ exp(w_e . g_i) C[i, e],   r_i from g_i
    C[i, e] = 1 where e follows one of the K likeliest segments of step i - 1 in past trips, else a floor

The last for steps without a fix; the others have the constraint mask. The vector of a segment that roads are asked for
is [X || f || E].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tedtrajrec.nn.constraint import Constraint
from tedtrajrec.nn.decoder import GruCore, StepReady
from tedtrajrec.nn.gru_decoder import FACTS, GruDecoder


class FlowCore(GruCore):
    """A GRU whose state is [h || q || sum of E so far || number of these].

    Parameters
    ----------
    d, road
        Widths of h and of X.
    condition, flow
        Widths of q and of E.
    dropout
        Of X where it is fed.
    """

    def __init__(self, d: int, road: int, condition: int, flow: int, *, dropout: float = 0.0) -> None:
        super().__init__(d, road + condition, dropout=dropout)
        self.heard = road
        self.parts = [d, condition, flow, 1]

    def first(self, start: Tensor, condition: Tensor) -> Tensor:
        """Return the first state from h_0 [B, d] and q."""
        return torch.cat([start, condition, start.new_zeros(len(start), sum(self.parts[2:]))], dim=-1)

    def embed(self, road: Tensor, ratio: Tensor) -> Tensor:
        """Return X, ratio and E side by side."""
        heard = self.dropout(road[..., : self.heard])
        return torch.cat([heard, ratio[..., None].to(road.dtype), road[..., self.heard + FACTS :]], dim=-1)

    def step(self, ready: StepReady, fed: Tensor | None, state: Tensor) -> Tensor:
        """Return the next state."""
        h, condition, total, count = torch.split(state, self.parts, dim=-1)
        heard = state.new_zeros(len(state), self.heard + 1)
        if fed is not None:
            heard, flow = torch.split(fed, [self.heard + 1, self.parts[2]], dim=-1)
            total, count = total + flow, count + 1
        h = super().step(ready, torch.cat([heard, condition], dim=-1), h)
        return torch.cat([h, condition, total, count], dim=-1)


class FlowDecoder(GruDecoder):
    """The decoder around :class:`FlowCore`; see the module."""

    def __init__(self, n_segments: int, d: int, road: int, *, condition: int, flow: int, dropout: float = 0.0) -> None:
        core = FlowCore(d, road, condition, flow, dropout=dropout)
        super().__init__(n_segments, d, road, core=core)
        self.parts = core.parts
        self.fuse = nn.Linear(d + flow, d)

    def output(self, state: Tensor) -> Tensor:
        """Return g."""
        h, _, total, count = torch.split(state, self.parts, dim=-1)
        out: Tensor = self.fuse(torch.cat([h, total / count.clamp_min(1)], dim=-1))
        return out


class FlowRows(NamedTuple):
    """What to add to the logits of rows, where the segments are known from which a vehicle may come."""

    near: Constraint  # of the rows
    source: Tensor  # [R, K] int64
    bonus: Tensor  # [R] what is added where a segment follows one of these; 0 at steps with a fix
    following: Tensor  # [S, D] segments that follow each, with repeats

    def part(self, which: slice) -> FlowRows:
        """Return that of some rows."""
        return FlowRows(self.near.part(which), self.source[which], self.bonus[which], self.following)

    def add_to(self, logits: Tensor) -> Tensor:
        """Return logits [R, S] with it, added in place."""
        self.near.add_to(logits)
        after = self.following[self.source].flatten(1).long()  # [R, K * D]
        # Put, not added: a segment that follows several of these is no likelier for that.
        allowed = torch.zeros_like(logits).scatter_(1, after, self.bonus[:, None].to(logits.dtype).expand_as(after))
        return logits.add_(allowed)


class FlowMask:
    """The constraint mask, and the flow where there is no fix; remembers the likeliest segments of each step.

    Parameters
    ----------
    near
        The constraint mask.
    observed
        Steps with a fix [B, n].
    following
        Segments that follow each in past trips, with repeats [S, D].
    k
        How many of the likeliest segments of a step are gone on from.
    floor
        C where no past trip goes.
    """

    def __init__(self, near: Constraint, observed: Tensor, following: Tensor, *, k: int, floor: float) -> None:
        self._near, self._following, self._k = near, following, min(k, len(following))
        bonus = torch.zeros_like(observed, dtype=near.bonus.dtype).masked_fill(~observed, -math.log(floor))
        self._bonus = torch.cat([torch.zeros_like(bonus[:, :1]), bonus[:, 1:]], dim=1)  # nothing goes before the first
        self.best: list[Tensor] = []  # [B, K] of each step

    def each(self) -> Sequence[_FlowStep]:
        """Return the mask of each step, which remembers its likeliest segments for the next."""
        self.best.clear()
        parts = zip(self._near.each(), self._bonus.unbind(1), strict=True)
        return [_FlowStep(self, i, near, bonus) for i, (near, bonus) in enumerate(parts)]

    def rows(self) -> FlowRows:
        """Return the mask of all steps, once each had its turn."""
        return FlowRows(self._near.rows(), self.source.flatten(0, 1), self._bonus.flatten(), self._following)

    @property
    def source(self) -> Tensor:
        """The segments [B, n, K] that each step goes on from; those of the first have no meaning."""
        return torch.stack([self.best[0], *self.best[:-1]], dim=1)

    def step(self, i: int, near: Constraint, bonus: Tensor, logits: Tensor) -> Tensor:
        """Return logits [B, S] with the mask of step i, added in place."""
        if i == 0:
            near.add_to(logits)
        else:
            FlowRows(near, self.best[i - 1], bonus, self._following).add_to(logits)
        self.best.append(logits.topk(self._k, dim=-1).indices)
        return logits


class _FlowStep(NamedTuple):
    """One step of a :class:`FlowMask`."""

    mask: FlowMask
    number: int
    near: Constraint
    bonus: Tensor  # [B]

    def add_to(self, logits: Tensor) -> Tensor:
        """Return logits [B, S] with it, added in place."""
        return self.mask.step(self.number, self.near, self.bonus, logits)
