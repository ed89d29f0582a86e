"""What steps without a gradient do to a row, beside one step after another."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.training.drift import BLOCK, Drift, Floats

BETAS, EPS = (0.9, 0.999), 1e-8
SIZES = 10.0 ** np.arange(-16, 2, 0.25)  # of sqrt(v): eps is all, or nothing


def one_cycle(step: int) -> float:
    return 1e-3 * min(1, step / 400) * max(1e-3, 0.5 * (1 + math.cos(math.pi * min(step, 9000) / 9000)))


def walked(since: int, now: int, decay: float) -> tuple[Floats, float]:
    """Return what the mean is multiplied by for each of the sizes of v, and the weight, one step after another."""
    p, moved = 1.0, np.zeros_like(SIZES)
    for q in range(since + 1, now + 1):
        rate, passed = one_cycle(q), q - since
        kept = 1 - rate * decay
        size = SIZES * BETAS[1] ** (passed / 2) / math.sqrt(1 - BETAS[1] ** q) + EPS
        moved = moved * kept + rate / (1 - BETAS[0] ** q) * BETAS[0] ** passed / size
        p *= kept
    return moved, p


@pytest.mark.parametrize(
    ("since", "within"), [(1, 5e-3), (10, 5e-4), (30, 5e-5), (100, 2e-6), (1000, 2e-9), (BLOCK - 3, 1e-9)]
)
@pytest.mark.parametrize("decay", [0.0, 0.01, 10.0])
def test_many_steps_at_once(since: int, within: float, decay: float) -> None:
    drift = Drift(one_cycle, BETAS, EPS, decay)
    for steps in (1, 2, 3, 7, 20, 80, 300, 2000):
        found = drift.between(np.array([since]), since + steps)
        moved, kept = walked(since, since + steps, decay)
        ours = (found.weight[:, 0] / (SIZES[:, None] + found.floor[:, 0])).sum(1)
        np.testing.assert_allclose(ours, moved, rtol=within)
        np.testing.assert_allclose(ours[[0, -1]], moved[[0, -1]], rtol=1e-7)  # without v, and without eps
        np.testing.assert_allclose(found.keep, kept, rtol=1e-10)
        np.testing.assert_allclose(found.first, BETAS[0] ** steps, rtol=1e-12)
        np.testing.assert_allclose(found.second, BETAS[1] ** steps, rtol=1e-12)
        if steps < 3:  # two nodes hold two steps exactly
            np.testing.assert_allclose(ours, moved, rtol=1e-10)


@given(st.integers(50, 6000), st.integers(1, 400), st.integers(1, 400), st.sampled_from([1e-12, 1e-9, 1e-8, 1e-6, 1.0]))
@settings(max_examples=60, deadline=None)
def test_in_two_goes_it_is_the_same(since: int, before: int, after: int, root: float) -> None:
    drift = Drift(one_cycle, BETAS, EPS, 0.01)

    def coasted(p: float, m: float, root: float, since: int, now: int) -> tuple[float, float, float]:
        f = drift.between(np.array([since]), now)
        move = float((f.weight[:, 0] / (root + f.floor[:, 0])).sum())
        return p * float(f.keep[0]) - m * move, m * float(f.first[0]), root * math.sqrt(float(f.second[0]))

    once = coasted(0.3, root, root, since, since + before + after)
    middle = coasted(0.3, root, root, since, since + before)
    twice = coasted(*middle, since + before, since + before + after)
    assert twice == pytest.approx(once, rel=1e-7)


def test_rows_of_several_ages() -> None:
    drift = Drift(one_cycle, BETAS, EPS, 0.01)
    since = np.array([3, 50, 3, 4998, 4999])
    together = drift.between(since, 5000)
    for k, step in enumerate(since):
        alone = drift.between(np.array([step]), 5000)
        for ours, theirs in zip(together, alone, strict=True):
            np.testing.assert_array_equal(ours[..., k], theirs[..., 0])
