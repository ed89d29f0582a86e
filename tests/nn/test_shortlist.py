"""The best segment from coarse weights against the largest of all scores."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.nn.shortlist import Shortlist


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    segments=st.integers(1, 300),
    d=st.integers(1, 70),
    kind=st.sampled_from([torch.float32, torch.float64]),
    spread=st.sampled_from([0.0, 1.0, 4.0]),  # of the sizes of rows and of the vector, as powers of ten
    alike=st.sampled_from([0.0, 1e-4, 1.0]),  # how much rows differ
)
def test_finds_the_largest_score(
    seed: int, segments: int, d: int, kind: torch.dtype, spread: float, alike: float
) -> None:
    random = np.random.default_rng(seed)

    def made(*shape: int) -> torch.Tensor:
        size = 10 ** (spread * random.normal(size=(*shape[:-1], 1)))
        return torch.from_numpy(size * random.normal(size=shape)).to(kind)

    weight, bias, state = made(1, d) + alike * made(segments, d), alike * made(segments), made(d)
    near = torch.from_numpy(random.integers(0, segments, 5))
    bonus = torch.from_numpy(random.choice([0.0, 1e-3, 13.8], 5)).to(kind)
    score = weight.double() @ state.double() + bias.double()
    size = float(weight.double().norm(dim=1).max() * state.double().norm() + score.abs().max())
    score.scatter_add_(0, near, bonus.double())
    found = Shortlist(weight, bias).best(state, near, bonus)
    assert float(score[found]) >= float(score.max()) - 1e-13 * size  # the rounding of a sum in double precision


def test_the_first_of_equal_scores() -> None:
    weight = torch.tensor([[0.5, 1.0], [1.0, 0.5], [1.0, 0.5]])
    none = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    assert Shortlist(weight, torch.zeros(3)).best(torch.tensor([2.0, 1.0]), *none) == 1
    assert Shortlist(weight * 0, torch.zeros(3)).best(torch.tensor([2.0, 1.0]), *none) == 0
    assert Shortlist(weight, torch.zeros(3)).best(torch.zeros(2), *none) == 0


def test_bonuses_of_one_segment_add_up() -> None:
    near, bonus = torch.tensor([2, 0, 2]), torch.tensor([0.6, 1.0, 0.6])
    assert Shortlist(torch.ones(3, 4), torch.zeros(3)).best(torch.ones(4), near, bonus) == 2


@pytest.mark.parametrize("d", [256, 4096])
def test_wide_vectors_do_not_overflow(d: int) -> None:
    weight = torch.ones(2, d)
    weight[0, 0] = 0.5
    none = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    assert Shortlist(weight, torch.zeros(2)).best(torch.ones(d), *none) == 1
    assert Shortlist(-weight, torch.zeros(2)).best(torch.ones(d), *none) == 0


def test_what_is_not_a_number_is_no_error() -> None:
    none = torch.zeros(0, dtype=torch.int64), torch.zeros(0)
    assert Shortlist(torch.ones(2, 3), torch.zeros(2)).best(torch.full((3,), torch.nan), *none) == 0
