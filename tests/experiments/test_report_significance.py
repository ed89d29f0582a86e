"""Paired tests over trips, against scipy and against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tedtrajrec.experiments.reporting.significance import bootstrap_interval, holm, sign_flip_test


def paired(n: int, shift: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    return base + shift + rng.normal(scale=0.5, size=n), base


@pytest.mark.parametrize("shift", [0.0, 0.2, 0.6])
def test_few_trips_are_tested_exactly_as_scipy_does(shift: float) -> None:
    one, other = paired(10, shift)
    theirs = stats.permutation_test(
        (one, other), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", n_resamples=np.inf,
        vectorized=True,
    )  # fmt: skip
    ours = sign_flip_test((one - other)[:, None])
    assert ours[0] == pytest.approx(theirs.pvalue, abs=1e-12)


def test_drawn_signs_come_near_the_exact_test_and_to_the_t_test() -> None:
    one, other = paired(12, 0.3, seed=5)
    exact = sign_flip_test((one - other)[:, None], flips=2**12)
    drawn = sign_flip_test((one - other)[:, None], flips=4000)
    assert drawn[0] != exact[0]
    assert drawn[0] == pytest.approx(exact[0], abs=0.02)
    one, other = paired(400, 0.05, seed=2)
    assert sign_flip_test((one - other)[:, None])[0] == pytest.approx(stats.ttest_rel(one, other).pvalue, abs=0.02)


def test_the_same_seed_gives_the_same_figures() -> None:
    difference = np.random.default_rng(0).normal(0.1, 1, (80, 3))
    assert np.array_equal(sign_flip_test(difference), sign_flip_test(difference))
    assert not np.array_equal(sign_flip_test(difference), sign_flip_test(difference, seed=1))
    assert np.array_equal(bootstrap_interval(difference).low, bootstrap_interval(difference).low)


def test_no_p_value_is_zero_and_equal_methods_have_one() -> None:
    assert sign_flip_test(np.full((300, 1), 0.2), flips=999)[0] == pytest.approx(1 / 1000)
    assert sign_flip_test(np.zeros((300, 1)), flips=999)[0] == 1


def test_trips_without_a_value_are_left_out() -> None:
    one, other = paired(9, 0.4)
    difference = np.insert(one - other, [3, 5], np.nan)[:, None]
    assert sign_flip_test(difference)[0] == pytest.approx(sign_flip_test((one - other)[:, None])[0])
    assert bootstrap_interval(difference).mean[0] == pytest.approx((one - other).mean())
    nothing = np.full((5, 1), np.nan)
    assert np.isnan(sign_flip_test(nothing)[0])
    assert np.isnan(bootstrap_interval(nothing).low[0])


def test_the_bootstrap_interval_is_that_of_scipy() -> None:
    one, other = paired(200, 0.1)
    difference = one - other
    theirs = stats.bootstrap(
        (difference,), np.mean, method="percentile", n_resamples=4000, rng=np.random.default_rng(3)
    ).confidence_interval
    mean, low, high = bootstrap_interval(difference[:, None], resamples=4000)
    assert mean[0] == pytest.approx(difference.mean())
    assert low[0] == pytest.approx(theirs.low, abs=0.006)
    assert high[0] == pytest.approx(theirs.high, abs=0.006)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_its_definition_rejects(p: list[float]) -> None:
    corrected = holm(p)
    for alpha in (0.01, 0.05, 0.2):
        rejected = set()
        for k, i in enumerate(sorted(range(len(p)), key=lambda i: p[i])):  # step down until one is kept
            if p[i] > alpha / (len(p) - k):
                break
            rejected.add(i)
        close = {i for i in range(len(p)) if abs(corrected[i] - alpha) < 1e-12}  # rounding decides
        assert {i for i in range(len(p)) if corrected[i] <= alpha} - close == rejected - close


def test_holm_leaves_out_what_was_not_tested() -> None:
    assert np.array_equal(holm([0.01, np.nan, 0.03]), [0.02, np.nan, 0.03], equal_nan=True)
