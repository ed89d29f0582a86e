"""Scores of transitions on processors: from the lists of candidates to whole matrices in one pass.

The formula is that of :class:`~tedtrajrec.nn.transitions.TransitionScorer`. Candidates that do not exist, often most of
a list, are not looked at: their transitions are breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from tedtrajrec.threads import map_parts

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

BREAK = 10  # where the score of a break is among the weights
TRIPS = 8  # done together


def transitions(weights: Tensor, moves: Sequence[Tensor], unit: float, count: Tensor) -> Tensor:
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
    count
        Candidates of each list, which come first in it [B, J].
    """
    pair: Tensor = _Transitions.apply(weights, float(unit), count, *moves)  # type: ignore[no-untyped-call]
    return pair


class _Transitions(torch.autograd.Function):
    """The scores, linear in their weights."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, unit: float, *moves: Tensor) -> Tensor:  # noqa: ANN401
        """Return the scores."""
        parts = [part.contiguous() for part in moves]
        ctx.unit, ctx.kinds = unit, len(weights)
        ctx.save_for_backward(*parts)
        pair = torch.full_like(parts[-1], float(weights[0, BREAK]), dtype=torch.float32)
        _by_trips(_forward, weights, parts, pair, unit)
        return pair

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradient of the weights: of each, the sum of what it is multiplied with."""
        b, p = grad.shape[:2]
        sums = torch.zeros(b, p, BREAK + 1, dtype=torch.float64)
        _by_trips(_backward, sums, ctx.saved_tensors, grad.contiguous(), ctx.unit)
        of_weights = sums.view(b, p // ctx.kinds, ctx.kinds, -1).sum((0, 1)).float()
        return (of_weights, None, *[None] * len(ctx.saved_tensors))


def _by_trips(kernel: Callable[..., None], weights: Tensor, moves: Sequence[Tensor], pair: Tensor, unit: float) -> None:
    arrays = [part.detach().numpy() for part in (weights, *moves, pair)]

    def some(low: int) -> None:
        kernel(*arrays, np.float32(unit), low, min(low + TRIPS, len(pair)))

    map_parts(some, range(0, len(pair), TRIPS), torch.get_num_threads())


@njit(cache=True, nogil=True)
def _forward(
    weights: Reals, count: Ints, source: Ints, target: Ints, segment: Ints, rest: Reals, enter: Reals,
    way: NDArray[np.int16], pair: Reals, unit: np.float32, low: int, high: int,
) -> None:  # pragma: no cover  (compiled)  # fmt: skip
    one, half, none = np.float32(1), np.float32(0.5), np.float32(0)
    for b in range(low, high):
        for p in range(source.shape[1]):
            s, t, w = source[b, p], target[b, p], weights[p % len(weights)]
            for c in range(count[b, s]):
                here, left = segment[b, s, c], rest[b, s, c]
                for d in range(count[b, t]):
                    driven, between = enter[b, t, d], np.float32(way[b, p, c, d]) / unit
                    if here == segment[b, t, d]:
                        whole = min(left, driven)
                        stayed = w[5] + w[8] * max(one - whole, none) + w[9] * max(one + one - whole, none)
                        pair[b, p, c, d] = stayed
                    elif between >= 0:
                        whole = left + driven + between
                        moved = w[0] + w[1] * max(between - half, none) + w[2] * max(between - one, none)
                        moved += w[3] * max(one - whole, none) + w[4] * max(one + one - whole, none)
                        pair[b, p, c, d] = moved


@njit(cache=True, nogil=True)
def _backward(
    sums: NDArray[np.float64], count: Ints, source: Ints, target: Ints, segment: Ints, rest: Reals, enter: Reals,
    way: NDArray[np.int16], grad: Reals, unit: np.float32, low: int, high: int,
) -> None:  # pragma: no cover  (compiled)  # fmt: skip
    one, half, none = np.float32(1), np.float32(0.5), np.float32(0)
    for b in range(low, high):
        for p in range(source.shape[1]):
            s, t, own = source[b, p], target[b, p], sums[b, p]
            for c in range(count[b, s]):
                here, left = segment[b, s, c], rest[b, s, c]
                for d in range(count[b, t]):
                    wanted = grad[b, p, c, d]
                    driven, between = enter[b, t, d], np.float32(way[b, p, c, d]) / unit
                    if here == segment[b, t, d]:
                        whole = min(left, driven)
                        own[5] += wanted
                        own[8] += wanted * max(one - whole, none)
                        own[9] += wanted * max(one + one - whole, none)
                    elif between >= 0:
                        whole = left + driven + between
                        own[0] += wanted
                        own[1] += wanted * max(between - half, none)
                        own[2] += wanted * max(between - one, none)
                        own[3] += wanted * max(one - whole, none)
                        own[4] += wanted * max(one + one - whole, none)
                    else:
                        own[BREAK] += wanted
