"""The loss of the segments, without the logits of all steps at once.

    loss = sum over steps i of known truth e_i of  -(1 - s) log P_i(e_i) - s mean over e of log P_i(e)
    P_i(e) ~ exp(w_e . h_i + b_e) C[i, e]

The logits of all steps are the largest thing in training by far: 2 GB for 512 trips of 48 steps on 21,397 segments, and
a plain cross entropy holds several copies of them. Here steps are taken a chunk at a time. The gradients of a chunk are
made at once, while its logits are there, in the same memory; what is kept for the backward pass has the size of h, W
and b. Chunks depend on shapes alone, so a result can be had again bit for bit, and the loop can be recorded.

Where each trip has a few segments that it may use (:class:`Chosen`), P is over those, and so are sums and means. Then
logits are small, and nothing here depends on the size of the network.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tedtrajrec.nn.constraint import Constraint, Mask, RowMask
from tedtrajrec.nn.segment_table import SegmentScores
from tedtrajrec.nn.touched import Part

CHUNK_BYTES = {"cpu": 16 << 20, "cuda": 256 << 20}
"""Of the logits of a chunk; on the CPU they should stay in its cache."""


class Gradients(NamedTuple):
    """Of the loss."""

    state: Tensor  # [R, d]
    weight: Tensor  # [S, d]
    bias: Tensor  # [S]


class Chosen(NamedTuple):
    """The C segments that each trip of a batch may use, with the weights of their scores."""

    segment: Tensor  # [B, C] int64, as the roads are numbered
    exists: Tensor  # [B, C] False for padding
    weight: Tensor  # [B, C, d]
    bias: Tensor  # [B, C]

    @classmethod
    def of(cls, segment: Tensor, score: SegmentScores, part: Part | None = None) -> Chosen:
        """Return the choices of trips [B, C], with larger numbers than there are segments as padding.

        Parameters
        ----------
        segment
            The choices.
        score
            The map to all segments of the network.
        part
            The part of the network that they are numbered in: they are among those that it is asked for.
        """
        n = len(score.weight) if part is None else len(part.asked)
        named = segment.clamp(max=n - 1)
        return cls(named, segment < n, *score.chosen(named, part))

    def logits(self, state: Tensor) -> Tensor:
        """Return the scores [B, n, C] of states [B, n, d]."""
        scores = torch.baddbmm(self.bias[:, None], state, self.weight.mT)
        return scores.masked_fill(~self.exists[:, None], -torch.inf)

    def names(self, place: Tensor) -> Tensor:
        """Return the segments at places among the choices of each trip [B, ...]."""
        return self.segment.gather(1, place.flatten(1)).view_as(place)

    def places(self, segment: Tensor) -> Tensor:
        """Return where segments [B, ...] are among the choices of their trips, which must rise, or -1."""
        flat, last = segment.flatten(1).contiguous(), self.segment.shape[1] - 1
        rising = torch.where(self.exists, self.segment, torch.iinfo(torch.int64).max)
        place = torch.searchsorted(rising, flat).clamp(max=last)
        return torch.where(rising.gather(1, place) == flat, place, -1).view_as(segment)

    def within(self, constraint: Constraint) -> Constraint:
        """Return a constraint of segments [B, n, K] as one of their places."""
        place = self.places(constraint.segment)
        return Constraint(place.clamp_min(0), constraint.bonus.masked_fill(place < 0, 0))


def chosen_loss(
    state: Tensor, chosen: Chosen, constraint: Constraint, target: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Return the sum of the cross entropy over the choices of each trip, of the steps whose truth is one of them.

    Parameters
    ----------
    state
        h [B, n, d].
    chosen
        The choices.
    constraint
        The constraint mask, of segments.
    target
        True segments [B, n]; -1 where unknown.
    smoothing
        Share of the probability spread over all choices.
    """
    place = chosen.places(target)
    logits = chosen.within(constraint).add_to(chosen.logits(state))
    log_prob = torch.log_softmax(logits, dim=-1)
    loss = -(1 - smoothing) * log_prob.gather(-1, place.clamp_min(0)[..., None]).squeeze(-1)
    if smoothing:
        exists = chosen.exists[:, None]
        loss = loss - smoothing * log_prob.masked_fill(~exists, 0).sum(-1) / exists.sum(-1)
    return loss.masked_fill(place < 0, 0).sum()


def segment_loss(
    state: Tensor, score: nn.Linear, constraint: Mask, target: Tensor, *, smoothing: float = 0.0
) -> Tensor:
    """Return the sum of the cross entropy over the steps of known truth.

    Parameters
    ----------
    state
        h [B, n, d].
    score
        The map to segments.
    constraint
        The constraint mask.
    target
        True segments [B, n]; -1 where unknown.
    smoothing
        Share of the probability spread over all segments.
    """
    rows, near = state.flatten(0, 1), constraint.rows()
    variables = (rows, score.weight, score.bias)
    if torch.is_grad_enabled() and any(variable.requires_grad for variable in variables):
        loss: Tensor = _SegmentLoss.apply(*variables, near, target.flatten(), smoothing)  # type: ignore[no-untyped-call]
        return loss
    return _by_chunks(*variables, near, target.flatten(), smoothing, None)


class _SegmentLoss(torch.autograd.Function):
    """Makes the gradients with the loss; later they are only scaled."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        state: Tensor,
        weight: Tensor,
        bias: Tensor,
        near: RowMask,
        target: Tensor,
        smoothing: float,
    ) -> Tensor:
        """Return the loss of rows; see :func:`_by_chunks`."""
        gradients = Gradients(torch.empty_like(state), torch.zeros_like(weight), torch.zeros_like(bias))
        loss = _by_chunks(state, weight, bias, near, target, smoothing, gradients)
        ctx.save_for_backward(*gradients)
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients times that of the loss."""
        return *(scale * gradient for gradient in ctx.saved_tensors), None, None, None


def _by_chunks(
    state: Tensor,
    weight: Tensor,
    bias: Tensor,
    near: RowMask,
    target: Tensor,
    smoothing: float,
    gradients: Gradients | None,
) -> Tensor:
    """Return the loss; write its gradients where wanted (that of the state) or add to them (the others)."""
    losses = state.new_empty(len(state))
    size = chunk_rows(len(state), weight)
    buffer = state.new_empty(size, len(weight))
    known = target >= 0
    target = target.clamp_min(0)[:, None]
    for first in range(0, len(state), size):
        part = slice(first, first + size)
        h, true = state[part], target[part]
        logits = torch.addmm(bias, h, weight.t(), out=buffer[: len(h)])
        near.part(part).add_to(logits)
        logits.sub_(logits.amax(1, keepdim=True))
        loss = (smoothing - 1) * logits.gather(1, true)[:, 0]
        if smoothing:
            loss -= smoothing * logits.mean(1)
        total = logits.exp_().sum(1)  # exp(logits) / total is P
        losses[part] = loss + total.log()
        if gradients is None:
            continue
        # The gradient of the logits is P less the smoothed truth, or 0 in unknown rows. Here it is times the total, in
        # all rows: both are put right where a row is d wide, not S.
        if smoothing:
            logits.sub_(total[:, None] * (smoothing / len(weight)))
        logits.scatter_add_(1, true, (smoothing - 1) * total[:, None])
        scale = (known[part] / total)[:, None]
        torch.mm(logits, weight, out=gradients.state[part]).mul_(scale)
        gradients.weight.addmm_(logits.t(), h * scale)
        gradients.bias.addmv_(logits.t(), scale[:, 0])
    return losses.masked_fill_(~known, 0).sum()


def chunk_rows(rows: int, weight: Tensor) -> int:
    """Return how many of the rows make a chunk: as even as can be, so that none is small.

    There are at least d, however many segments: every chunk goes through W and its gradient, which would take longer
    than the logits of fewer.
    """
    segments, d = weight.shape
    room = CHUNK_BYTES["cpu" if weight.device.type == "cpu" else "cuda"] // (segments * weight.element_size())
    chunks = math.ceil(rows / max(d, room))
    return math.ceil(rows / chunks) if rows else 1
