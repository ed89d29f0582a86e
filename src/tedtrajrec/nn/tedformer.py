"""TedFormer: Transformer layers with time-aware attention.

H~ = LayerNorm(Attention(H; t) + H),   H' = LayerNorm(FFN(H~) + H~),   FFN(x) = W2 ReLU(W1 x)
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn

from tedtrajrec.nn.time_attention import Activation, Evolved, Kind, TimeAttention


class TedFormerLayer(nn.Module):
    """One layer, post-norm; its attention goes to whatever memory the keys were made from."""

    def __init__(
        self,
        d: int,
        heads: int,
        width: int,
        *,
        kind: Kind = "ted",
        activation: Activation = "lecun",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.attention = TimeAttention(d, heads, kind=kind, activation=activation, dropout=dropout)
        self.norm1 = nn.LayerNorm(d)
        self.feed = nn.Sequential(nn.Linear(d, width), nn.ReLU(), nn.Dropout(dropout), nn.Linear(width, d))
        self.norm2 = nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, evolved: Evolved) -> Tensor:
        """Return the layer's output for queries [q, B, d], or for one query [B, d]."""
        x = self.norm1(self.dropout(self.attention.attend(x, evolved)) + x)
        out: Tensor = self.norm2(self.dropout(self.feed(x)) + x)
        return out


def each(layers: nn.ModuleList) -> list[TedFormerLayer]:
    """Return the layers of a stack, typed."""
    return cast("list[TedFormerLayer]", list(layers))


class TedFormerEncoder(nn.Module):
    """M layers of time-aware self-attention over the fixes of a trip."""

    def __init__(
        self,
        d: int,
        heads: int,
        width: int,
        layers: int,
        *,
        kind: Kind = "ted",
        activation: Activation = "lecun",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TedFormerLayer(d, heads, width, kind=kind, activation=activation, dropout=dropout) for _ in range(layers)
        )

    def forward(self, x: Tensor, time: Tensor, mask: Tensor) -> Tensor:
        """Return H [B, m, d] of points x [B, m, d] at times [B, m] in steps; mask [B, m] is False for padding."""
        for layer in each(self.layers):
            evolved = layer.attention.evolve(x, time, time, mask)
            x = layer(x.transpose(0, 1), evolved).transpose(0, 1)
        return x * mask[..., None]


def positions(length: int, d: int, like: Tensor) -> Tensor:
    """Return the sinusoidal encoding of positions 0 to length - 1 [length, d]."""
    place = torch.arange(length, device=like.device, dtype=torch.float32)[:, None]
    angle = place * torch.exp(torch.arange(0, d, 2, device=like.device) * (-math.log(10_000.0) / d))
    return torch.stack([torch.sin(angle), torch.cos(angle)], dim=-1).reshape(length, -1)[:, :d].to(like.dtype)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of real elements [B, d] of x [B, m, d]; padding must not change it."""
    weight = mask[..., None].to(x.dtype)
    return (x * weight).sum(1) / weight.sum(1).clamp_min(1)
