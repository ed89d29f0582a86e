"""The chain over candidates on CUDA: kernels that walk along the steps of a trip by themselves.

Formulas and limits are those of :mod:`tedtrajrec.nn.chain`, which has the same in tensor operations. There each step
is a handful of kernels over the whole batch; here one program takes one trip from end to end, and E is made from T as
it is read, so that it is never stored. Triton comes with the CUDA builds of torch; where it is missing this module
cannot be imported, and the tensor operations do the work.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

MOST = 128
"""Candidates of a step at most: a matrix of transitions has to fit into the registers of one program."""
TRIPS = 32  # whose paths one program follows back


def totals(unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor, reach: float) -> Tensor:
    """Return log Z [B, K] in float64 for several sets of unary scores [B, K, n, C], with gradients.

    Parameters
    ----------
    unary
        [B, K, n, C] float32.
    pair, which, mask
        Of a :class:`~tedtrajrec.nn.chain.Chain`, in float32.
    reach
        A transition counts as at most so much worse than the best one into the same candidate.
    """
    total: Tensor = _LogPartition.apply(unary, pair, which, mask, reach)  # type: ignore[no-untyped-call]
    return total


def marginals(unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor, reach: float) -> Tensor:
    """Return the probability of each candidate of each step [B, n, C], 0 at padding; parameters as above, K = 1."""
    walk = _Walk(unary[:, None], pair, which, mask, reach)
    _, ahead = walk.forward()
    return walk.backward(ahead, None)[0][:, 0]


def best_path(unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the best path of each trip [B, n], 0 at padding, and its score [B], as :func:`best_paths` does.

    Parameters
    ----------
    unary, pair, which, mask
        Of a :class:`~tedtrajrec.nn.chain.Chain`, in float32.
    """
    walk = _Walk(unary[:, None], pair, which, mask, 0.0)
    b, _, n, c = walk.unary.shape
    back = walk.unary.new_empty((b, n, c), dtype=torch.int16)
    last, score = walk.unary.new_empty(b, dtype=torch.int64), walk.unary.new_empty(b)
    path = torch.empty_like(mask, dtype=torch.int64)
    size = {"CP": walk.padded, "num_warps": walk.warps}
    _best[(b,)](walk.unary, walk.pair, walk.which, walk.length, back, last, score, n, c, pair.shape[1], **size)
    _trace[(triton.cdiv(b, TRIPS),)](back, last, walk.length, path, b, n, c, T=TRIPS, num_warps=1)
    return path, score


class _Walk:
    """A batch made ready for the kernels: arrays without gaps, and their sizes."""

    def __init__(self, unary: Tensor, pair: Tensor, which: Tensor, mask: Tensor, reach: float) -> None:
        self.unary, self.pair, self.which = unary.contiguous(), pair.contiguous(), which.contiguous()
        self.length = mask.sum(1, dtype=torch.int32)
        self.reach = reach
        b, k, n, c = unary.shape
        self.rows = b * k
        self.sizes = (n, c, pair.shape[1], k)
        self.padded = max(16, triton.next_power_of_2(c))
        self.warps = max(1, min(8, self.padded**2 // 1024))

    def forward(self) -> tuple[Tensor, Tensor]:
        """Return log Z [B, K] in float64, and a [B, K, n, C], which means nothing at padding."""
        ahead = torch.empty_like(self.unary)
        total = self.unary.new_empty(self.unary.shape[:2], dtype=torch.float64)
        _forward[(self.rows,)](
            self.unary, self.pair, self.which, self.length, ahead, total, *self.sizes, **self._constants()
        )
        return total, ahead

    def backward(self, ahead: Tensor, scale: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the marginals [B, K, n, C], 0 at padding, and with a scale what the counts of transitions need.

        That is where each transition comes from and where it leads to [B, K, n, C], meaningless from the last step on;
        the scale [B, K] is part of the first, and of the marginals.
        """
        marginal = torch.empty_like(ahead)
        source, target = (marginal, marginal) if scale is None else (torch.empty_like(ahead), torch.empty_like(ahead))
        _backward[(self.rows,)](
            self.unary, self.pair, self.which, self.length, ahead, ahead if scale is None else scale,
            marginal, source, target, *self.sizes, COUNT=scale is not None, **self._constants(),
        )  # fmt: skip
        return marginal, source, target

    def counts(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the expected number of times that each transition is taken [B, P, C, C]."""
        count = torch.empty_like(self.pair)
        _count[(len(count), count.shape[1])](
            self.pair, self.which, self.length, source, target, count, *self.sizes, **self._constants()
        )
        return count

    def _constants(self) -> dict[str, Any]:
        return {"CP": self.padded, "REACH": self.reach, "num_warps": self.warps}


class _LogPartition(torch.autograd.Function):
    """The forward pass, with the backward pass as its gradient."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        unary: Tensor,
        pair: Tensor,
        which: Tensor,
        mask: Tensor,
        reach: float,
    ) -> Tensor:
        """Return log Z [B, K] of unary scores [B, K, n, C]."""
        walk = _Walk(unary, pair, which, mask, reach)
        total, ahead = walk.forward()
        ctx.reach = reach
        ctx.save_for_backward(unary, pair, which, mask, ahead)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # noqa: ANN401
        """Return the marginals and the expected numbers of transitions, times the gradient [B, K]."""
        unary, pair, which, mask, ahead = ctx.saved_tensors
        walk = _Walk(unary, pair, which, mask, ctx.reach)
        marginal, source, target = walk.backward(ahead, grad.float().contiguous())
        return marginal, walk.counts(source, target), None, None, None


@triton.jit
def _softmax(x: tl.tensor) -> tl.tensor:
    weight = tl.exp(x - tl.max(x, axis=0))
    return weight / tl.sum(weight, axis=0)


@triton.jit
def _weights(pair: tl.tensor, matrix: tl.tensor, c: tl.tensor, CP: tl.constexpr, REACH: tl.constexpr) -> tl.tuple:
    """Return E and m of a matrix; rows of candidates past the last are 0."""
    source, target = tl.arange(0, CP)[:, None], tl.arange(0, CP)[None, :]
    score = tl.load(pair + matrix * c * c + source * c + target, mask=(source < c) & (target < c), other=0.0)
    highest = tl.max(tl.where(source < c, score, -float("inf")), axis=0)
    weight = tl.exp(tl.maximum(score - highest[None, :], -REACH))
    return tl.where(source < c, weight, 0.0), highest


@triton.jit
def _forward(
    unary: tl.tensor, pair: tl.tensor, which: tl.tensor, length: tl.tensor, ahead: tl.tensor, total: tl.tensor,
    n: tl.tensor, c: tl.tensor, matrices: tl.tensor, sets: tl.tensor, CP: tl.constexpr, REACH: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    trip = row // sets
    place = tl.arange(0, CP)
    real = place < c
    here = row * n * c + place
    a = tl.load(unary + here, mask=real, other=-float("inf"))
    tl.store(ahead + here, a, mask=real)
    high = tl.max(a, axis=0)
    share = tl.exp(a - high)
    amount = tl.sum(share, axis=0)
    sums = (high + tl.log(amount)).to(tl.float64)
    for i in range(1, tl.load(length + trip)):
        matrix = trip * matrices + tl.load(which + trip * (n - 1) + i - 1)
        weight, highest = _weights(pair, matrix, c, CP, REACH)
        came = tl.sum(weight * (share / amount)[:, None], axis=0)
        here = (row * n + i) * c + place
        a = tl.log(came) + highest + tl.load(unary + here, mask=real, other=-float("inf"))
        tl.store(ahead + here, a, mask=real)
        high = tl.max(a, axis=0)
        share = tl.exp(a - high)
        amount = tl.sum(share, axis=0)
        sums += (high + tl.log(amount)).to(tl.float64)
    tl.store(total + row, sums)


@triton.jit
def _backward(
    unary: tl.tensor, pair: tl.tensor, which: tl.tensor, length: tl.tensor, ahead: tl.tensor, scale: tl.tensor,
    marginal: tl.tensor, source: tl.tensor, target: tl.tensor, n: tl.tensor, c: tl.tensor, matrices: tl.tensor,
    sets: tl.tensor, COUNT: tl.constexpr, CP: tl.constexpr, REACH: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    trip = row // sets
    place = tl.arange(0, CP)
    real = place < c
    steps = tl.load(length + trip)
    times = tl.load(scale + row) if COUNT else 1.0
    here = (row * n + steps - 1) * c + place
    tl.store(marginal + here, _softmax(tl.load(ahead + here, mask=real, other=-float("inf"))) * times, mask=real)
    behind = tl.zeros([CP], tl.float32)
    for j in range(1, steps):
        i = steps - 1 - j
        here = (row * n + i) * c + place
        matrix = trip * matrices + tl.load(which + trip * (n - 1) + i)
        weight, highest = _weights(pair, matrix, c, CP, REACH)
        following = _softmax(tl.load(unary + here + c, mask=real, other=-float("inf")) + highest + behind)
        behind = tl.log(tl.sum(weight * following[None, :], axis=1))
        share = _softmax(tl.load(ahead + here, mask=real, other=-float("inf")) + behind) * times
        tl.store(marginal + here, share, mask=real)
        if COUNT:
            tl.store(source + here, share * tl.exp(-behind), mask=real)
            tl.store(target + here, following, mask=real)
    for i in range(steps, n):
        tl.store(marginal + (row * n + i) * c + place, tl.zeros([CP], tl.float32), mask=real)


@triton.jit
def _count(
    pair: tl.tensor, which: tl.tensor, length: tl.tensor, source: tl.tensor, target: tl.tensor,
    count: tl.tensor, n: tl.tensor, c: tl.tensor, matrices: tl.tensor, sets: tl.tensor, CP: tl.constexpr,
    REACH: tl.constexpr,
) -> None:  # fmt: skip
    trip, number = tl.program_id(0).to(tl.int64), tl.program_id(1)
    place = tl.arange(0, CP)
    real = place < c
    taken = tl.zeros([CP, CP], tl.float32)
    for i in range(tl.load(length + trip) - 1):
        if tl.load(which + trip * (n - 1) + i) == number:
            for k in range(sets):
                here = ((trip * sets + k) * n + i) * c + place
                left = tl.load(source + here, mask=real, other=0.0)
                taken += left[:, None] * tl.load(target + here, mask=real, other=0.0)[None, :]
    weight, _ = _weights(pair, trip * matrices + number, c, CP, REACH)
    cell = (trip * matrices + number) * c * c + place[:, None] * c + place[None, :]
    tl.store(count + cell, taken * weight, mask=real[:, None] & real[None, :])


@triton.jit
def _best(
    unary: tl.tensor, pair: tl.tensor, which: tl.tensor, length: tl.tensor, back: tl.tensor, last: tl.tensor,
    score: tl.tensor, n: tl.tensor, c: tl.tensor, matrices: tl.tensor, CP: tl.constexpr,
) -> None:  # fmt: skip
    trip = tl.program_id(0).to(tl.int64)
    place = tl.arange(0, CP)
    real = place < c
    cell = place[:, None] * c + place[None, :]
    ways = tl.load(unary + trip * n * c + place, mask=real, other=-float("inf"))
    for i in range(1, tl.load(length + trip)):
        matrix = trip * matrices + tl.load(which + trip * (n - 1) + i - 1)
        move = tl.load(pair + matrix * c * c + cell, mask=real[:, None] & real[None, :], other=-float("inf"))
        best, source = tl.max(ways[:, None] + move, axis=0, return_indices=True)  # the lowest of equals
        here = (trip * n + i) * c + place
        tl.store(back + here, source.to(tl.int16), mask=real)
        ways = best + tl.load(unary + here, mask=real, other=-float("inf"))
    best, state = tl.max(ways, axis=0, return_indices=True)
    tl.store(score + trip, best)
    tl.store(last + trip, state)


@triton.jit
def _trace(
    back: tl.tensor, last: tl.tensor, length: tl.tensor, path: tl.tensor, b: tl.tensor, n: tl.tensor,
    c: tl.tensor, T: tl.constexpr,
) -> None:  # fmt: skip
    trip = tl.program_id(0).to(tl.int64) * T + tl.arange(0, T)
    real = trip < b
    steps = tl.load(length + trip, mask=real, other=0)
    state = tl.load(last + trip, mask=real, other=0)
    for j in range(n - 1):
        i = n - 1 - j
        inside = real & (i < steps)
        tl.store(path + trip * n + i, tl.where(inside, state, 0), mask=real)
        before = tl.load(back + (trip * n + i) * c + state, mask=inside, other=0).to(tl.int64)
        state = tl.where(inside, before, state)
    tl.store(path + trip * n, state, mask=real)
