"""The network over features of candidates on processors: in pieces that stay in the cache, forth and back.

    x = lists[entry] + states[step] + moving A^T,   y = gelu(x) W^T + b,   answer = dropout(gelu(y)) V^T + c

A batch has half a million candidates of steps. What lies between the layers would be written to fresh memory and read
from it again several times, which takes far longer than the sums and products; so nothing of it is kept, and the way
back computes it anew.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

PIECE = 4096  # candidates of steps; their hidden states of 128 numbers are 2 MiB
LEVELS = 256  # of a byte, so the share that is dropped is a number of these


class Places(NamedTuple):
    """What the Q candidates of steps read: the numbers of lists' candidates and of steps, and features of their own."""

    entry: Tensor  # [Q]
    step: Tensor  # [Q]
    moving: Tensor  # [Q, .]


class Weights(NamedTuple):
    """Those of the three layers."""

    moving: Tensor  # A [h, .]
    inner: Tensor  # W [h, h]
    inner_bias: Tensor  # b [h]
    outer: Tensor  # V [o, h]
    outer_bias: Tensor  # c [o]


def answers(lists: Tensor, states: Tensor, places: Places, weights: Weights, dropout: float = 0.0) -> Tensor:
    """Return the answers [Q, o], with gradients for all but features.

    Parameters
    ----------
    lists
        What the first layer has of candidates of lists [E, h].
    states
        What it has of steps [N, h].
    places
        Which of them belong together.
    weights
        Of the layers.
    dropout
        Share of the last hidden numbers that are dropped, to a 256th, one of them at least.
    """
    seed = int(torch.randint(2**62, ())) if dropout else 0
    found: Tensor = _Answers.apply(lists, states, *weights, places, dropout, seed)  # type: ignore[no-untyped-call]
    return found


class _Answers(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        lists: Tensor,
        states: Tensor,
        *rest: Any,  # noqa: ANN401
    ) -> Tensor:
        """Return the answers."""
        *tensors, places, dropout, seed = rest
        weights = Weights(*tensors)
        ctx.save_for_backward(lists, states, *weights, *places)
        ctx.dropout, ctx.seed = dropout, seed
        found = lists.new_empty(len(places.entry), len(weights.outer))
        for piece in _pieces(places):
            last = functional.gelu(
                _inner(functional.gelu(_first(lists, states, _cut(places, piece), weights)), weights)
            )
            if dropout:
                last *= _kept(last, dropout, seed + piece.start)
            torch.addmm(weights.outer_bias, last, weights.outer.T, out=found[piece])
        return found

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of everything but features."""
        lists, states, *rest = ctx.saved_tensors
        weights, places = Weights(*rest[: len(Weights._fields)]), Places(*rest[len(Weights._fields) :])
        of_lists, of_states, *of_weights = (torch.zeros_like(part) for part in (lists, states, *weights))
        slopes = Weights(*of_weights)
        for piece in _pieces(places):
            given, cut = gradients[0][piece], _cut(places, piece)
            x = _first(lists, states, cut, weights)
            first = functional.gelu(x)
            y = _inner(first, weights)
            last, back = functional.gelu(y), given @ weights.outer
            if ctx.dropout:
                kept = _kept(last, ctx.dropout, ctx.seed + piece.start)
                last *= kept
                back *= kept
            slopes.outer.addmm_(given.T, last)
            slopes.outer_bias.add_(given.sum(0))
            back = torch.ops.aten.gelu_backward(back, y)
            slopes.inner.addmm_(back.T, first)
            slopes.inner_bias.add_(back.sum(0))
            back = torch.ops.aten.gelu_backward(back @ weights.inner, x)
            slopes.moving.addmm_(back.T, cut.moving)
            of_lists.index_add_(0, cut.entry, back)
            of_states.index_add_(0, cut.step, back)
        return of_lists, of_states, *slopes, None, None, None


def _pieces(places: Places) -> list[slice]:
    return [slice(first, first + PIECE) for first in range(0, len(places.entry), PIECE)]


def _cut(places: Places, piece: slice) -> Places:
    return Places(*(part[piece] for part in places))


def _first(lists: Tensor, states: Tensor, places: Places, weights: Weights) -> Tensor:
    x = lists.index_select(0, places.entry)
    x += states.index_select(0, places.step)
    return x.addmm_(places.moving, weights.moving.T)


def _inner(first: Tensor, weights: Weights) -> Tensor:
    return torch.addmm(weights.inner_bias, first, weights.inner.T)


def _kept(like: Tensor, dropout: float, seed: int) -> Tensor:
    """Return what hidden numbers are multiplied by: 0 for those that are dropped, and more than 1 for the others.

    Eight come of one drawn number, as drawing one for each takes longer than a layer.
    """
    dropped = min(max(round(dropout * LEVELS), 1), LEVELS - 1)
    drawn = torch.empty(-(-like.numel() // 8), dtype=torch.int64)
    drawn.random_(-(2**63), None, generator=torch.Generator().manual_seed(seed))
    kept = drawn.view(torch.uint8)[: like.numel()].view(like.shape) >= dropped
    return kept.to(like.dtype).mul_(LEVELS / (LEVELS - dropped))
