"""Learnable Fourier features against their equation."""

from __future__ import annotations

import math

import pytest
import torch

from tedtrajrec.nn.fourier import FourierFeatures


def test_follows_the_equation() -> None:
    torch.manual_seed(0)
    module = FourierFeatures(2, 6, wavelength=0.5).double()
    x = torch.randn(4, 3, 2, dtype=torch.float64)
    found = module(x)
    first, last = module.map[0], module.map[2]
    for i, j in torch.cartesian_prod(torch.arange(4), torch.arange(3)).tolist():
        angle = [sum(k * v for k, v in zip(wave, x[i, j], strict=True)) for wave in module.waves.weight]
        waves = torch.stack([*map(torch.cos, angle), *map(torch.sin, angle)]) / math.sqrt(6)
        hidden = first.weight @ waves + first.bias
        hidden = hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2
        torch.testing.assert_close(found[i, j], last.weight @ hidden + last.bias)


def test_first_waves_have_the_length_asked_for() -> None:
    torch.manual_seed(1)
    module = FourierFeatures(2, 2000, wavelength=0.5)
    assert 2 * math.pi / module.waves.weight.std().item() == pytest.approx(0.5, rel=0.1)


def test_waves_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="pairs"):
        FourierFeatures(2, 5)
