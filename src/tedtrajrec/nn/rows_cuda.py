"""Rows of a table that an optimizer moves on CUDA: read, moved and written in place, one program a row.

The formulas are those of :mod:`tedtrajrec.training.rows`. Tensor operations make arrays of as many rows a dozen
times and move these rows there and back.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@torch.no_grad()
def coast(table: Tensor, first: Tensor, second: Tensor, rows: Tensor, which: Tensor, factors: Tensor) -> None:
    """Bring rows up to date with the steps for which they had no gradient.

    Parameters
    ----------
    table, first, second
        The table and its two running means [S, d].
    rows
        [N] int64, each once.
    which
        Column of the factors for each row [N] int64.
    factors
        What they keep, of themselves and of both means, and the weights and floors of the two nodes [7, K].
    """
    _coast[(len(rows),)](table, first, second, rows, which, factors.contiguous(), factors.shape[1], **_width(table))


@torch.no_grad()
def adam(
    table: Tensor,
    first: Tensor,
    second: Tensor,
    rows: Tensor,
    gradient: Tensor,
    *,
    step: int,
    rate: float,
    betas: tuple[float, float],
    eps: float,
    decay: float,
) -> None:
    """Make a step of Adam with rows that have a gradient.

    Parameters
    ----------
    table, first, second, rows
        As for :func:`coast`.
    gradient
        [N, d].
    step
        Its number; the first is 1.
    rate, betas, eps, decay
        Of the optimizer; its decay is that of AdamW.
    """
    keep_m, keep_v = betas
    moved, root = rate / (1 - keep_m**step), math.sqrt(1 - keep_v**step)
    scalars = moved, 1 / root, eps, rate * decay, 1 - keep_m, 1 - keep_v
    _adam[(len(rows),)](table, first, second, rows, gradient.contiguous(), *scalars, **_width(table))


def _width(table: Tensor) -> dict[str, int]:
    d = table.shape[1]
    padded = triton.next_power_of_2(d)
    return {"D": d, "DP": padded, "num_warps": max(1, min(8, padded // 128))}


@triton.jit
def _coast(
    table: tl.tensor, first: tl.tensor, second: tl.tensor, rows: tl.tensor, which: tl.tensor, factors: tl.tensor,
    k: tl.tensor, D: tl.constexpr, DP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, DP)
    real = channel < D
    cell = tl.load(rows + n) * D + channel
    factor = factors + tl.load(which + n)
    p = tl.load(table + cell, mask=real, other=0.0)
    m = tl.load(first + cell, mask=real, other=0.0)
    v = tl.load(second + cell, mask=real, other=0.0)
    keep, keep_m, keep_v = tl.load(factor), tl.load(factor + k), tl.load(factor + 2 * k)
    low, high = tl.load(factor + 3 * k), tl.load(factor + 4 * k)
    low_floor, high_floor = tl.load(factor + 5 * k), tl.load(factor + 6 * k)
    root = tl.sqrt(v)
    move = low / (root + low_floor) + high / (root + high_floor)
    tl.store(table + cell, p * keep - m * move, mask=real)
    tl.store(first + cell, m * keep_m, mask=real)
    tl.store(second + cell, v * keep_v, mask=real)


@triton.jit
def _adam(
    table: tl.tensor, first: tl.tensor, second: tl.tensor, rows: tl.tensor, gradient: tl.tensor,
    moved: tl.tensor, root: tl.tensor, eps: tl.tensor, decay: tl.tensor, new_m: tl.tensor, new_v: tl.tensor,
    D: tl.constexpr, DP: tl.constexpr,
) -> None:  # fmt: skip
    n = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, DP)
    real = channel < D
    cell = tl.load(rows + n) * D + channel
    p = tl.load(table + cell, mask=real, other=0.0)
    m = tl.load(first + cell, mask=real, other=0.0)
    v = tl.load(second + cell, mask=real, other=0.0)
    g = tl.load(gradient + n * D + channel, mask=real, other=0.0)
    p -= decay * p
    m += new_m * (g - m)
    v += new_v * (g * g - v)
    tl.store(table + cell, p - moved * m / (tl.sqrt(v) * root + eps), mask=real)
    tl.store(first + cell, m, mask=real)
    tl.store(second + cell, v, mask=real)
