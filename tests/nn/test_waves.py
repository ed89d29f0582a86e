"""Places and directions as vectors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tedtrajrec.nn.waves import Waves


def alike(waves: Waves, a: tuple[list[float], list[float]], b: tuple[list[float], list[float]]) -> float:
    first, second = (waves(*map(torch.tensor, one)) for one in (a, b))
    return float(first @ second) / len(first)


def test_what_is_near_and_of_like_direction_is_alike() -> None:
    torch.manual_seed(0)
    waves = Waves(512, 0.2, 4.0)
    east, west = [1.0, 0.0], [-1.0, 0.0]
    here = ([0.1, 0.2], east)
    assert alike(waves, here, here) == pytest.approx(1, rel=1e-5)
    near, far = alike(waves, here, ([0.15, 0.2], east)), alike(waves, here, ([0.9, -0.6], east))
    assert near > 0.7
    assert far < near - 0.4
    assert alike(waves, here, ([0.1, 0.2], west)) < 0.4


def test_vectors_have_mean_square_one() -> None:
    found: Tensor = Waves(8, 0.2, 4.0)(torch.rand(5, 3, 2), torch.rand(5, 3, 2))
    assert found.shape == (5, 3, 8)
    torch.testing.assert_close((found**2).mean(-1), torch.ones(5, 3))


def test_an_odd_width_is_an_error() -> None:
    with pytest.raises(ValueError, match="pairs"):
        Waves(7, 0.2, 4.0)
