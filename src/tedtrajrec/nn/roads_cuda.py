"""X(e, t) on CUDA: looked up, turned and added in one pass over the answer.

The formula is that of :class:`~tedtrajrec.nn.roads.Roads`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 4  # of one program
BACKWARD_ROWS = 128


def at(static: Tensor, omega: Tensor, phase: Tensor, segment: Tensor, angle: Tensor) -> Tensor:
    """Return X [..., d], with gradients for the first three.

    Parameters
    ----------
    static, omega
        [S, d].
    phase
        [d].
    segment
        [...] int64.
    angle
        The time of day that belongs to it [...], one turn a day.
    """
    x: Tensor = _At.apply(static, omega, phase, segment, angle)  # type: ignore[no-untyped-call]
    return x


class _At(torch.autograd.Function):
    """The lookup; gradients of the tables are summed up as those of any embedding."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        static: Tensor,
        omega: Tensor,
        phase: Tensor,
        segment: Tensor,
        angle: Tensor,
    ) -> Tensor:
        """Return X."""
        static, omega, segment, angle = (part.contiguous() for part in (static, omega, segment, angle))
        ctx.save_for_backward(omega, phase, segment, angle)
        d, n = static.shape[1], segment.numel()
        x = static.new_empty(*segment.shape, d)
        _forward[(triton.cdiv(n, ROWS),)](
            static, omega, phase, segment, angle, x, n, d, R=ROWS, DP=triton.next_power_of_2(d)
        )
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:  # noqa: ANN401
        """Return the gradients of the tables and of the phase."""
        omega, phase, segment, angle = ctx.saved_tensors
        grad = grad.contiguous()
        (s, d), n = omega.shape, segment.numel()
        programs = triton.cdiv(n, BACKWARD_ROWS)
        turned, shift = torch.empty_like(grad), grad.new_empty(programs, d)
        _backward[(programs,)](
            omega, phase, segment, angle, grad, turned, shift, n, d, R=BACKWARD_ROWS, DP=triton.next_power_of_2(d)
        )
        of_static, of_omega = (
            torch.ops.aten.embedding_dense_backward(part.view(n, d), segment.view(n), s, -1, False)
            for part in (grad, turned)
        )
        return of_static, of_omega, shift.sum(0), None, None


@triton.jit
def _forward(
    static: tl.tensor, omega: tl.tensor, phase: tl.tensor, segment: tl.tensor, angle: tl.tensor, x: tl.tensor,
    n: tl.tensor, d: tl.tensor, R: tl.constexpr, DP: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    channel = tl.arange(0, DP)[None, :]
    real = (row < n)[:, None] & (channel < d)
    place = tl.load(segment + row, mask=row < n, other=0)[:, None] * d + channel
    time = tl.load(angle + row, mask=row < n, other=0.0)[:, None]
    turn = tl.load(phase + channel, mask=channel < d, other=0.0) + time * tl.load(omega + place, mask=real, other=0.0)
    value = tl.load(static + place, mask=real, other=0.0) + tl.where(channel == 0, turn, tl.sin(turn))
    tl.store(x + row[:, None] * d + channel, value, mask=real)


@triton.jit
def _backward(
    omega: tl.tensor, phase: tl.tensor, segment: tl.tensor, angle: tl.tensor, grad: tl.tensor, turned: tl.tensor,
    shift: tl.tensor, n: tl.tensor, d: tl.tensor, R: tl.constexpr, DP: tl.constexpr,
) -> None:  # fmt: skip
    channel = tl.arange(0, DP)
    real = channel < d
    start = tl.load(phase + channel, mask=real, other=0.0)
    total = tl.zeros([DP], tl.float32)
    first = tl.program_id(0).to(tl.int64) * R
    for k in range(tl.minimum(n - first, R)):
        row = first + k
        time = tl.load(angle + row)
        turn = start + time * tl.load(omega + tl.load(segment + row) * d + channel, mask=real, other=0.0)
        slope = tl.load(grad + row * d + channel, mask=real, other=0.0) * tl.where(channel == 0, 1.0, tl.cos(turn))
        tl.store(turned + row * d + channel, slope * time, mask=real)
        total += slope
    tl.store(shift + tl.program_id(0).to(tl.int64) * d + channel, total, mask=real)
