"""Time-aware attention on CUDA: one program follows the keys of a head of a trip through the times of all queries.

The formulas are those of :class:`~tedtrajrec.nn.time_attention.TimeAttention`. There the moved keys of all queries,
[q, B, heads, k, c], are stored and read several times; here they live in registers, forwards and backwards.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable


def attend(
    query: Tensor,
    cell: Tensor,
    value: Tensor,
    memory_time: Tensor,
    query_time: Tensor,
    bias: Tensor,
    keep: Tensor | None,
) -> Tensor:
    """Return what queries read [q, B, heads, c], with gradients for the first three.

    Parameters
    ----------
    query
        [q, B, heads, c].
    cell
        Rate, early and late key of each element of the memory side by side [B, heads, k, 3c]; keys are scaled already.
    value
        [B, heads, k, c].
    memory_time, query_time
        [B, k] and [B, q], in steps.
    bias
        Added to the logits [B, k].
    keep
        What weights are multiplied with [q, B, heads, k]: dropout; None for 1.
    """
    read: Tensor = _Attend.apply(query, cell, value, memory_time, query_time, bias, keep)  # type: ignore[no-untyped-call]
    return read


class _Attend(torch.autograd.Function):
    """The attention, whose backward pass makes keys and weights again."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, cell: Tensor, value: Tensor, *more: Tensor | None) -> Tensor:  # noqa: ANN401
        """Return what queries read."""
        query, cell, value = query.contiguous(), cell.contiguous(), value.contiguous()
        parts = [query, cell, value, *(None if part is None else part.float().contiguous() for part in more)]
        ctx.save_for_backward(*parts)
        out = torch.empty_like(query)
        grid, sizes, constants = _shape(parts, 512)
        _forward[grid](*_pointers(parts), out, *sizes, **constants)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        """Return the gradients of queries, cell and values."""
        parts = list(ctx.saved_tensors)
        out = [torch.empty_like(part) for part in parts[:3]]
        grid, sizes, constants = _shape(parts, 256)
        _backward[grid](*_pointers(parts), grad.contiguous(), *out, *sizes, **constants)
        return (*out, None, None, None, None)


def _shape(parts: list[Any], per_warp: int) -> tuple[tuple[int], tuple[int, ...], dict[str, Any]]:
    q, b, heads, c = parts[0].shape
    k = parts[1].shape[2]
    kp, cp = max(2, triton.next_power_of_2(k)), max(16, triton.next_power_of_2(c))
    warps = max(1, min(8, kp * cp // per_warp))
    return (b * heads,), (q, b, heads, k, c), {"DROP": parts[6] is not None, "KP": kp, "CP": cp, "num_warps": warps}


def _pointers(parts: list[Any]) -> list[Any]:
    return [*parts[:6], parts[0] if parts[6] is None else parts[6]]


@triton.jit
def _memory(
    cell: tl.tensor, value: tl.tensor, memory_time: tl.tensor, bias: tl.tensor, row: tl.tensor, heads: tl.tensor,
    k: tl.tensor, c: tl.tensor, KP: tl.constexpr, CP: tl.constexpr,
) -> tl.tuple:  # fmt: skip
    """Return rate, early and late keys and values [KP, CP], times and bias [KP] of the memory of a head of a trip."""
    element, channel = tl.arange(0, KP), tl.arange(0, CP)
    real = (element < k)[:, None] & (channel < c)[None, :]
    first = cell + (row * k + element)[:, None] * 3 * c + channel[None, :]
    rate = tl.load(first, mask=real, other=0.0)
    early = tl.load(first + c, mask=real, other=0.0)
    late = tl.load(first + 2 * c, mask=real, other=0.0)
    values = tl.load(value + (row * k + element)[:, None] * c + channel[None, :], mask=real, other=0.0)
    place = row // heads * k + element
    time = tl.load(memory_time + place, mask=element < k, other=0.0)
    return rate, early, late, values, time, tl.load(bias + place, mask=element < k, other=-float("inf"))


@triton.jit
def _forward(
    query: tl.tensor, cell: tl.tensor, value: tl.tensor, memory_time: tl.tensor, query_time: tl.tensor,
    bias: tl.tensor, keep: tl.tensor, out: tl.tensor, q: tl.tensor, b: tl.tensor, heads: tl.tensor, k: tl.tensor,
    c: tl.tensor, DROP: tl.constexpr, KP: tl.constexpr, CP: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    element, channel = tl.arange(0, KP), tl.arange(0, CP)
    rate, early, late, values, time, added = _memory(cell, value, memory_time, bias, row, heads, k, c, KP, CP)
    for i in range(q):
        at = i * b * heads + row
        ask = tl.load(query + at * c + channel, mask=channel < c, other=0.0)
        lag = tl.load(query_time + row // heads * q + i) - time
        gate = tl.sigmoid(-rate * lag[:, None])
        key = late + gate * (early - late)
        logit = tl.sum(key * ask[None, :], axis=1) + added
        weight = tl.exp(logit - tl.max(logit, axis=0))
        weight = weight / tl.sum(weight, axis=0)
        if DROP:
            weight *= tl.load(keep + at * k + element, mask=element < k, other=0.0)
        tl.store(out + at * c + channel, tl.sum(weight[:, None] * values, axis=0), mask=channel < c)


@triton.jit
def _backward(
    query: tl.tensor, cell: tl.tensor, value: tl.tensor, memory_time: tl.tensor, query_time: tl.tensor,
    bias: tl.tensor, keep: tl.tensor, grad: tl.tensor, of_query: tl.tensor, of_cell: tl.tensor, of_value: tl.tensor,
    q: tl.tensor, b: tl.tensor, heads: tl.tensor, k: tl.tensor, c: tl.tensor,
    DROP: tl.constexpr, KP: tl.constexpr, CP: tl.constexpr,
) -> None:  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    element, channel = tl.arange(0, KP), tl.arange(0, CP)
    rate, early, late, values, time, added = _memory(cell, value, memory_time, bias, row, heads, k, c, KP, CP)
    to_rate, to_early = tl.zeros([KP, CP], tl.float32), tl.zeros([KP, CP], tl.float32)
    to_late, to_value = tl.zeros([KP, CP], tl.float32), tl.zeros([KP, CP], tl.float32)
    for i in range(q):
        at = i * b * heads + row
        ask = tl.load(query + at * c + channel, mask=channel < c, other=0.0)
        wanted = tl.load(grad + at * c + channel, mask=channel < c, other=0.0)
        lag = tl.load(query_time + row // heads * q + i) - time
        gate = tl.sigmoid(-rate * lag[:, None])
        key = late + gate * (early - late)
        logit = tl.sum(key * ask[None, :], axis=1) + added
        weight = tl.exp(logit - tl.max(logit, axis=0))
        weight = weight / tl.sum(weight, axis=0)
        to_weight = tl.sum(values * wanted[None, :], axis=1)
        used = weight
        if DROP:
            kept = tl.load(keep + at * k + element, mask=element < k, other=0.0)
            used = weight * kept
            to_weight = to_weight * kept
        to_value += used[:, None] * wanted[None, :]
        to_logit = weight * (to_weight - tl.sum(weight * to_weight, axis=0))
        tl.store(of_query + at * c + channel, tl.sum(to_logit[:, None] * key, axis=0), mask=channel < c)
        to_key = to_logit[:, None] * ask[None, :]
        to_early += to_key * gate
        to_late += to_key * (1 - gate)
        to_rate -= to_key * (early - late) * gate * (1 - gate) * lag[:, None]
    real = (element < k)[:, None] & (channel < c)[None, :]
    first = of_cell + (row * k + element)[:, None] * 3 * c + channel[None, :]
    tl.store(first, to_rate, mask=real)
    tl.store(first + c, to_early, mask=real)
    tl.store(first + 2 * c, to_late, mask=real)
    tl.store(of_value + (row * k + element)[:, None] * c + channel[None, :], to_value, mask=real)
