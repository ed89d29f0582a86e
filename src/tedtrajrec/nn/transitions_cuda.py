"""Scores of transitions on CUDA: from the lists of candidates to whole matrices in one pass.

The formula is that of :class:`~tedtrajrec.nn.transitions.TransitionScorer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


def transitions(weights: Tensor, moves: Sequence[Tensor], unit: float) -> Tensor:
    """Return the scores [B, P, C, C], with gradients for the weights.

    Parameters
    ----------
    weights
        Those of going, of staying and the score of a break side by side [kinds, 11]; matrix p is of kind p % kinds.
    moves
        The lists that matrices lead from and to [B, P], the segments of lists and what remains of them and has been
        driven of them [B, J, C], and the ways between candidates [B, P, C, C] int16, negative where there is none.
    unit
        How many of the units of ways make one of the others.
    """
    pair: Tensor = _Transitions.apply(weights, float(unit), *moves)  # type: ignore[no-untyped-call]
    return pair


class _Transitions(torch.autograd.Function):
    """The scores, linear in their weights."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, unit: float, *moves: Tensor) -> Tensor:  # noqa: ANN401
        """Return the scores."""
        parts = [part.contiguous() for part in (weights, *moves)]
        ctx.unit = unit
        ctx.save_for_backward(*parts)
        pair = weights.new_empty(parts[-1].shape)
        grid, sizes, constants = _shape(parts)
        _forward[grid](*parts, pair, unit, *sizes, len(weights), **constants)
        return pair

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradient of the weights: of each, the sum of what it is multiplied with."""
        parts = list(ctx.saved_tensors)
        b, p = parts[-1].shape[:2]
        kinds = len(parts[0])
        sums = grad.new_zeros(b, p, 16)
        grid, sizes, constants = _shape(parts)
        _backward[grid](*parts[1:], grad.contiguous(), sums, ctx.unit, *sizes, **constants)
        of_weights = sums.view(b, p // kinds, kinds, 16).sum((0, 1))[:, :11]
        return (of_weights, None, *[None] * (len(parts) - 1))


def _shape(parts: list[Tensor]) -> tuple[tuple[int, int], tuple[int, ...], dict[str, Any]]:
    b, p, c, _ = parts[-1].shape
    padded = max(16, triton.next_power_of_2(c))
    constants = {"CP": padded, "num_warps": max(1, min(8, padded**2 // 512))}
    return (b, p), (p, c, parts[3].shape[1]), constants


@triton.jit
def _moves(
    source: tl.tensor, target: tl.tensor, segment: tl.tensor, rest: tl.tensor, enter: tl.tensor, way: tl.tensor,
    unit: tl.tensor, p: tl.tensor, c: tl.tensor, lists: tl.tensor, CP: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Return u, v, whether both are the same segment, and where cells are in the answer and which are real."""
    trip = tl.program_id(0).to(tl.int64)
    matrix = trip * p + tl.program_id(1)
    place = tl.arange(0, CP)
    leave = (trip * lists + tl.load(source + matrix)) * c + place
    reach = (trip * lists + tl.load(target + matrix)) * c + place
    real = place < c
    here, there = tl.load(segment + leave, mask=real, other=-1), tl.load(segment + reach, mask=real, other=-1)
    left = tl.load(rest + leave, mask=real, other=0.0)[:, None]
    driven = tl.load(enter + reach, mask=real, other=0.0)[None, :]
    same = here[:, None] == there[None, :]
    cell = matrix * c * c + place[:, None] * c + place[None, :]
    inside = real[:, None] & real[None, :]
    between = tl.load(way + cell, mask=inside, other=0).to(tl.float32) / unit
    whole = tl.where(same, tl.minimum(left, driven), left + driven + between)
    return between, whole, same, cell, inside


@triton.jit
def _forward(
    weights: tl.tensor, source: tl.tensor, target: tl.tensor, segment: tl.tensor, rest: tl.tensor, enter: tl.tensor,
    way: tl.tensor, pair: tl.tensor, unit: tl.tensor, p: tl.tensor, c: tl.tensor, lists: tl.tensor,
    kinds: tl.tensor, CP: tl.constexpr,
) -> None:  # fmt: skip
    between, whole, same, cell, inside = _moves(source, target, segment, rest, enter, way, unit, p, c, lists, CP)
    own = weights + tl.program_id(1) % kinds * 11
    near, nearer = tl.maximum(1 - whole, 0.0), tl.maximum(2 - whole, 0.0)
    far, farther = tl.maximum(between - 0.5, 0.0), tl.maximum(between - 1, 0.0)
    moved = tl.load(own) + tl.load(own + 1) * far + tl.load(own + 2) * farther
    moved += tl.load(own + 3) * near + tl.load(own + 4) * nearer
    stayed = tl.load(own + 5) + tl.load(own + 8) * near + tl.load(own + 9) * nearer
    score = tl.where(same, stayed, tl.where(between >= 0, moved, tl.load(own + 10)))
    tl.store(pair + cell, score, mask=inside)


@triton.jit
def _backward(
    source: tl.tensor, target: tl.tensor, segment: tl.tensor, rest: tl.tensor, enter: tl.tensor, way: tl.tensor,
    grad: tl.tensor, sums: tl.tensor, unit: tl.tensor, p: tl.tensor, c: tl.tensor, lists: tl.tensor,
    CP: tl.constexpr,
) -> None:  # fmt: skip
    between, whole, same, cell, inside = _moves(source, target, segment, rest, enter, way, unit, p, c, lists, CP)
    wanted = tl.load(grad + cell, mask=inside, other=0.0)
    stay = tl.where(same, wanted, 0.0)
    go = tl.where(same | (between < 0), 0.0, wanted)
    near, nearer = tl.maximum(1 - whole, 0.0), tl.maximum(2 - whole, 0.0)
    own = sums + (tl.program_id(0).to(tl.int64) * p + tl.program_id(1)) * 16
    tl.store(own, tl.sum(go))
    tl.store(own + 1, tl.sum(go * tl.maximum(between - 0.5, 0.0)))
    tl.store(own + 2, tl.sum(go * tl.maximum(between - 1, 0.0)))
    tl.store(own + 3, tl.sum(go * near))
    tl.store(own + 4, tl.sum(go * nearer))
    tl.store(own + 5, tl.sum(stay))
    tl.store(own + 8, tl.sum(stay * near))
    tl.store(own + 9, tl.sum(stay * nearer))
    tl.store(own + 10, tl.sum(tl.where(same | (between >= 0), 0.0, wanted)))
