"""Places and directions as vectors: those near each other and of like direction are alike.

    v(x, u) = sqrt(2) [cos(phi) || sin(phi)],   phi = x K + u G + c

with x a place, u a direction of at most length 1; the waves K, from the size of the city down to a block, G and c are
random and stay as they are (random Fourier features: the product of two vectors falls with distance and angle).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Waves(nn.Module):
    """Random waves of some lengths.

    Parameters
    ----------
    d
        Width of the vectors; even, since waves come in pairs.
    shortest, longest
        Lengths of the waves, in the unit of places; their logarithms are uniform between these.
    """

    waves: Tensor
    turns: Tensor
    phase: Tensor

    def __init__(self, d: int, shortest: float, longest: float) -> None:
        super().__init__()
        if d % 2:
            raise ValueError(f"waves come in pairs; the width d is {d}")
        number = 2 * math.pi / (shortest * (longest / shortest) ** torch.rand(d // 2))
        towards = 2 * math.pi * torch.rand(d // 2)
        self.register_buffer("waves", number * torch.stack([towards.cos(), towards.sin()]))  # [2, d / 2]
        self.register_buffer("turns", torch.randn(2, d // 2))
        self.register_buffer("phase", 2 * math.pi * torch.rand(d // 2))

    def forward(self, place: Tensor, direction: Tensor) -> Tensor:
        """Return vectors [..., d] of mean square 1 for places [..., 2] and directions [..., 2]."""
        phase = place @ self.waves + direction @ self.turns + self.phase
        return math.sqrt(2) * torch.cat([phase.cos(), phase.sin()], dim=-1)
