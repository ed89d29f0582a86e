"""The two ends of the network over features of candidates on CUDA, for use and not for training.

Between them is one plain product. Both formulas are those of :class:`~tedtrajrec.nn.parallel_decoder.CandidateScorer`:
what is as large as steps times candidates times width is written once and read once.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

ROWS = 32  # of one program


def first_layer(lists: Tensor, slot: Tensor, state: Tensor, moving: Tensor, weight: Tensor) -> Tensor:
    """Return gelu(lists at their steps + state + W moving) [B, n, C, h].

    Parameters
    ----------
    lists
        [B, J, C, h].
    slot
        The list of each step [B, n].
    state
        [B, n, h].
    moving
        [B, n, C, K].
    weight
        W [h, K].
    """
    (b, j, c, h), n = lists.shape, slot.shape[1]
    lists, slot, state, weight = (part.contiguous() for part in (lists, slot, state, weight.t()))
    moving = moving.movedim(-1, 0).contiguous()  # which is how it is made
    out = lists.new_empty(b, n, c, h)
    total = b * n * c
    _first[(triton.cdiv(total, ROWS),)](
        lists, slot, state, moving, weight, out, total, n, j, c, h,
        K=moving.shape[0], R=ROWS, HP=triton.next_power_of_2(h),
    )  # fmt: skip
    return out


def last_layer(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return W gelu(x) + b, the first and the second of two numbers for each row [...].

    Parameters
    ----------
    x
        [..., h].
    weight, bias
        [2, h] and [2].
    """
    x, weight = x.contiguous(), weight.contiguous()
    h = x.shape[-1]
    total = x.numel() // h
    out = x.new_empty(2, *x.shape[:-1])
    _last[(triton.cdiv(total, ROWS),)](x, weight, bias, out, total, h, R=ROWS, HP=triton.next_power_of_2(h))
    first, second = out.unbind(0)
    return first, second


@triton.jit
def _gelu(x: tl.tensor) -> tl.tensor:
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def _first(
    lists: tl.tensor, slot: tl.tensor, state: tl.tensor, moving: tl.tensor, weight: tl.tensor, out: tl.tensor,
    total: tl.tensor, n: tl.tensor, j: tl.tensor, c: tl.tensor, h: tl.tensor,
    K: tl.constexpr, R: tl.constexpr, HP: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < total
    step = row // c
    channel = tl.arange(0, HP)[None, :]
    wide = channel < h
    real = there[:, None] & wide
    which = (step // n) * j + tl.load(slot + step, mask=there, other=0)
    place = (which * c + row % c)[:, None] * h + channel
    x = tl.load(lists + place, mask=real, other=0.0) + tl.load(
        state + step[:, None] * h + channel, mask=real, other=0.0
    )
    for k in tl.static_range(K):
        feature = tl.load(moving + k * total + row, mask=there, other=0.0)
        x += feature[:, None] * tl.load(weight + k * h + channel, mask=wide, other=0.0)
    tl.store(out + row[:, None] * h + channel, _gelu(x), mask=real)


@triton.jit
def _last(
    x: tl.tensor, weight: tl.tensor, bias: tl.tensor, out: tl.tensor, total: tl.tensor, h: tl.tensor,
    R: tl.constexpr, HP: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    there = row < total
    channel = tl.arange(0, HP)[None, :]
    wide = channel < h
    value = _gelu(tl.load(x + row[:, None] * h + channel, mask=there[:, None] & wide, other=0.0))
    for k in tl.static_range(2):
        dot = tl.sum(value * tl.load(weight + k * h + channel, mask=wide, other=0.0), axis=1)
        tl.store(out + k * total + row, dot + tl.load(bias + k), mask=there)
