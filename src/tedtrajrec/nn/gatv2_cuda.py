"""A GATv2 layer on CUDA: one program follows the edges that lead to a segment, and what edges make is never stored.

    s_ij = a . LeakyReLU(l_j + r_i)      for each head and each edge from j to i;  l = W_l x + b_l, r = W_r x + b_r
    y_i  = sum_j softmax_j(s_ij) l_j + b

The layer is :class:`torch_geometric.nn.GATv2Conv`, which has the weights and says what must come out. There sums,
scores and messages are arrays of edges times width, written and read several times; here they live in registers,
forwards and backwards. Only sums of the gradients of sources go to memory edge by edge.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch_geometric.nn import GATv2Conv

ROWS = 8  # targets of one program in the backward pass: each program has a row of the sums for the gradient of a
MOST = 2048  # padded width: several rows of it are in the registers of a program


def fits(layer: GATv2Conv) -> bool:
    """Return whether the kernels can do with a layer as wide as that."""
    heads, channels = _padded(layer.heads, layer.out_channels)
    return heads * channels <= MOST


def convolve(layer: GATv2Conv, x: Tensor, edges: Tensor) -> Tensor:
    """Return what a layer gives [U, heads c], with gradients for x and its weights.

    Parameters
    ----------
    layer
        One that adds no loops, drops nothing, has no residual and puts its heads side by side.
    x
        [U, d].
    edges
        Sources and targets [2, E]; targets rise.
    """
    read: Tensor = _Attend.apply(  # type: ignore[no-untyped-call]
        layer.lin_l(x), layer.lin_r(x), layer.att, edges, float(layer.negative_slope)
    )
    out: Tensor = read + layer.bias
    return out


class _Attend(torch.autograd.Function):
    """The weighted sums, whose backward pass makes scores and weights again; targets without an edge get 0."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        left: Tensor,
        right: Tensor,
        att: Tensor,
        edges: Tensor,
        slope: float,
    ) -> Tensor:
        """Return the sums of all targets."""
        u, (_, heads, c) = len(left), att.shape
        source, target = (row.contiguous() for row in edges)
        # Where the edges of each target begin, and where those of the last one end.
        first = torch.searchsorted(target, torch.arange(u + 1, device=left.device))
        parts = [part.contiguous() for part in (left, right, att)] + [source, first]
        out, total = torch.empty_like(parts[0]), left.new_empty(u, heads)
        _forward[(u,)](*parts, out, total, slope, **_constants(heads, c))
        ctx.slope = slope
        ctx.save_for_backward(*parts, out, total)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:  # noqa: ANN401
        """Return the gradients of what is heard, of those who hear, and of a."""
        parts = ctx.saved_tensors
        left, right, att = parts[:3]
        (u, d), (_, heads, c) = left.shape, att.shape
        programs = triton.cdiv(u, ROWS)
        of_left, of_right, of_att = torch.zeros_like(left), torch.empty_like(right), left.new_empty(programs, d)
        _backward[(programs,)](
            *parts, grad.contiguous(), of_left, of_right, of_att, u, ctx.slope, R=ROWS, **_constants(heads, c)
        )
        return of_left, of_right, of_att.sum(0).view_as(att), None, None


def _padded(heads: int, c: int) -> tuple[int, int]:
    return triton.next_power_of_2(heads), max(16, triton.next_power_of_2(c))


def _constants(heads: int, c: int) -> dict[str, int]:
    hp, cp = _padded(heads, c)
    return {"H": heads, "C": c, "HP": hp, "CP": cp, "num_warps": max(1, min(8, hp * cp // 256))}


@triton.jit
def _cells(H: tl.constexpr, C: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr) -> tl.tuple:
    """Return where the heads and channels of a row are in it [HP, CP], and which are real."""
    head, channel = tl.arange(0, HP)[:, None], tl.arange(0, CP)[None, :]
    return head * C + channel, (head < H) & (channel < C)


@triton.jit
def _forward(
    left: tl.tensor, right: tl.tensor, att: tl.tensor, source: tl.tensor, first: tl.tensor, out: tl.tensor,
    total: tl.tensor, slope: tl.tensor,
    H: tl.constexpr, C: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr,
) -> None:  # fmt: skip
    target = tl.program_id(0).to(tl.int64)
    cell, real = _cells(H, C, HP, CP)
    weight = tl.load(att + cell, mask=real, other=0.0)
    own = tl.load(right + target * H * C + cell, mask=real, other=0.0)
    highest, mass = tl.full([HP], -float("inf"), tl.float32), tl.zeros([HP], tl.float32)
    read = tl.zeros([HP, CP], tl.float32)
    for e in range(tl.load(first + target), tl.load(first + target + 1)):
        heard = tl.load(left + tl.load(source + e) * H * C + cell, mask=real, other=0.0)
        both = own + heard
        score = tl.sum(weight * tl.where(both > 0, both, slope * both), axis=1)
        higher = tl.maximum(highest, score)
        before, here = tl.exp(highest - higher), tl.exp(score - higher)
        read = read * before[:, None] + here[:, None] * heard
        mass = mass * before + here
        highest = higher
    mass = tl.where(mass > 0, mass, 1.0)  # no edge leads to the target
    tl.store(out + target * H * C + cell, read / mass[:, None], mask=real)
    head = tl.arange(0, HP)
    tl.store(total + target * H + head, highest + tl.log(mass), mask=head < H)


@triton.jit
def _backward(
    left: tl.tensor, right: tl.tensor, att: tl.tensor, source: tl.tensor, first: tl.tensor, out: tl.tensor,
    total: tl.tensor, grad: tl.tensor, of_left: tl.tensor, of_right: tl.tensor, of_att: tl.tensor, u: tl.tensor,
    slope: tl.tensor, R: tl.constexpr, H: tl.constexpr, C: tl.constexpr, HP: tl.constexpr, CP: tl.constexpr,
) -> None:  # fmt: skip
    start = tl.program_id(0).to(tl.int64) * R
    cell, real = _cells(H, C, HP, CP)
    head = tl.arange(0, HP)
    weight = tl.load(att + cell, mask=real, other=0.0)
    to_weight = tl.zeros([HP, CP], tl.float32)
    for k in range(tl.minimum(u - start, R)):
        target = start + k
        row = target * H * C + cell
        own = tl.load(right + row, mask=real, other=0.0)
        wanted = tl.load(grad + row, mask=real, other=0.0)
        mean = tl.sum(wanted * tl.load(out + row, mask=real, other=0.0), axis=1)
        mass = tl.load(total + target * H + head, mask=head < H, other=0.0)
        to_own = tl.zeros([HP, CP], tl.float32)
        for e in range(tl.load(first + target), tl.load(first + target + 1)):
            place = tl.load(source + e) * H * C + cell
            heard = tl.load(left + place, mask=real, other=0.0)
            both = own + heard
            steep = tl.where(both > 0, 1.0, slope)
            share = tl.exp(tl.sum(weight * steep * both, axis=1) - mass)
            to_score = (share * (tl.sum(wanted * heard, axis=1) - mean))[:, None]
            to_both = to_score * weight * steep
            to_own += to_both
            to_weight += to_score * steep * both
            # Nothing waits for the sums, so they need no order.
            tl.atomic_add(of_left + place, to_both + share[:, None] * wanted, mask=real, sem="relaxed")
        tl.store(of_right + row, to_own, mask=real)
    tl.store(of_att + tl.program_id(0).to(tl.int64) * H * C + cell, to_weight, mask=real)
