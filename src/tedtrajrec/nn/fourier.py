"""Learnable Fourier features (Li et al., 2021): numbers as vectors whose products depend on their differences.

v(x) = W2 GELU(W1 [cos(K x) || sin(K x)] / sqrt(D)),   K is learned
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class FourierFeatures(nn.Module):
    """Maps a few numbers to a vector.

    Parameters
    ----------
    numbers
        How many.
    d
        Width of the vector, of the network before it, and of the waves; even, since these come in pairs.
    wavelength
        About the length of the first waves, in the unit of the numbers.
    """

    def __init__(self, numbers: int, d: int, *, wavelength: float = 1.0) -> None:
        super().__init__()
        if d % 2:
            raise ValueError(f"waves come in pairs; the width d is {d}")
        self.waves = nn.Linear(numbers, d // 2, bias=False)
        nn.init.normal_(self.waves.weight, std=2 * math.pi / wavelength)
        self.map = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Linear(d, d))

    def forward(self, x: Tensor) -> Tensor:
        """Return vectors [..., d] of x [..., numbers]."""
        angle = self.waves(x)
        out: Tensor = self.map(torch.cat([angle.cos(), angle.sin()], dim=-1) / math.sqrt(2 * angle.shape[-1]))
        return out
