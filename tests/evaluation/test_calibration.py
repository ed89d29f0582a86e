import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from tedtrajrec.evaluation.calibration import (
    LEAST,
    Sureness,
    brier_score,
    calibration_error,
    negative_log_likelihood,
    reliability,
    risk_coverage,
    summarise_confidence,
    sureness,
)

STEPS = st.integers(1, 200).flatmap(
    lambda n: st.tuples(
        # Quarters and thirds often: they are bounds of bins, and equal to each other.
        hnp.arrays(np.float64, n, elements=st.sampled_from([0, 0.25, 1 / 3, 0.5, 1.0]) | st.floats(0, 1)),
        hnp.arrays(np.bool_, n),
    )
)


def made(n=5000, seed=0):
    """Return probabilities that are as they should be."""
    rng = np.random.default_rng(seed)
    probability = rng.beta(4, 1.5, n)
    return probability, rng.random(n) < probability


@given(steps=STEPS)
def test_bins_of_equal_width_are_those_of_sklearn(steps):
    table = reliability(*steps)
    accuracy, probability = calibration_curve(steps[1], steps[0], n_bins=15, pos_label=True)
    np.testing.assert_allclose(table.accuracy, accuracy, atol=1e-12)
    np.testing.assert_allclose(table.probability, probability, atol=1e-12)
    inside = [
        ((steps[0] > low) | (low == 0)) & (steps[0] <= high) for low, high in zip(table.low, table.high, strict=True)
    ]
    assert table.steps.tolist() == [which.sum() for which in inside]


@given(steps=STEPS)
def test_scores_are_those_of_sklearn(steps):
    probability, right = steps
    assert brier_score(probability, right) == pytest.approx(brier_score_loss(right, probability, pos_label=True))
    clipped = np.clip(probability, LEAST, 1 - LEAST)
    expected = log_loss(right, clipped, labels=[False, True])
    assert negative_log_likelihood(probability, right) == pytest.approx(expected)


@given(steps=STEPS)
def test_the_calibration_error_is_the_usual_sum(steps):
    probability, right = steps
    total = 0.0
    for k in range(15):
        low, high = np.linspace(0, 1, 16)[k : k + 2]
        inside = (probability <= high) & ((probability > low) | (k == 0))
        if inside.any():
            total += inside.mean() * abs(probability[inside].mean() - right[inside].mean())
    assert calibration_error(probability, right) == pytest.approx(total, abs=1e-12)


def test_bins_of_equal_count_hold_as_many():
    probability, right = made(1500)
    table = reliability(probability, right, equal_count=True)
    assert table.steps.tolist() == [100] * 15
    ties = np.repeat([0.2, 0.9], [30, 70])
    assert reliability(ties, ties > 0.5, equal_count=True).steps.tolist() == [30, 70]
    certain = reliability(np.ones(7), np.ones(7, bool), equal_count=True)
    assert (certain.steps.tolist(), certain.error) == ([7], 0)


def test_good_and_bad_probabilities():
    probability, right = made()
    assert calibration_error(probability, right) < 0.03
    assert calibration_error(probability, right, equal_count=True) < 0.03
    assert calibration_error(np.sqrt(probability), right) > 0.08
    assert calibration_error(np.full(4, 0.75), np.array([True, True, True, False])) == 0
    assert calibration_error(np.ones(4), np.zeros(4, bool)) == 1


def test_the_surest_steps_come_first():
    curve = risk_coverage(np.array([0.9, 0.5, 0.7, 0.8]), np.array([True, False, False, True]))
    np.testing.assert_allclose(curve.accuracy, [1, 1, 2 / 3, 1 / 2])
    np.testing.assert_allclose(curve.coverage, [0.25, 0.5, 0.75, 1])
    assert (curve.at(0.5), curve.at(0.51), curve.at(1)) == (1, pytest.approx(2 / 3), 0.5)
    assert curve.area == pytest.approx((1 + 1 + 2 / 3 + 1 / 2) / 4)
    with pytest.raises(ValueError, match="coverage is 0"):
        curve.at(0)


@given(steps=STEPS, seed=st.integers(0, 99))
def test_the_order_of_steps_does_not_matter(steps, seed):
    probability, right = steps
    order = np.random.default_rng(seed).permutation(len(right))
    curve, other = risk_coverage(probability, right), risk_coverage(probability[order], right[order])
    np.testing.assert_allclose(curve.accuracy, other.accuracy)
    assert curve.accuracy[-1] == pytest.approx(right.mean())
    # Where a probability ends, ties are over: the accuracy of all steps at least as sure.
    for value in np.unique(probability):
        sure = probability >= value
        assert curve.accuracy[sure.sum() - 1] == pytest.approx(right[sure].mean())


def test_ties_count_with_their_mean():
    curve = risk_coverage(np.full(4, 0.5), np.array([True, False, False, False]))
    np.testing.assert_allclose(curve.accuracy, 0.25)


def test_only_known_steps_with_a_probability_count():
    nan = np.nan
    seen = [True, True, False, True, True, False]
    got = sureness([-0.1, nan, 0.0, -2.0, -np.inf, -1.0], [3, 3, 4, 5, 6, -1], [3, 3, 9, -1, 7, 2], seen)
    np.testing.assert_allclose(got.probability, [np.exp(-0.1), 1, 0])
    assert got.right.tolist() == [True, False, False]
    assert got.observed.tolist() == [True, False, True]
    assert got.share == pytest.approx(3 / 5)
    assert np.isnan(sureness([-0.1], [3], [-1], [True]).share)


def test_the_summary():
    said, right = made(400)
    observed = said > 0.9
    got = summarise_confidence(Sureness(said, right, observed, 0.8))
    assert got["ece"] == calibration_error(said, right)
    assert got["ece_adaptive"] == calibration_error(said, right, equal_count=True)
    assert got["ece_observed"] == calibration_error(said[observed], right[observed])
    assert got["ece_missing"] == calibration_error(said[~observed], right[~observed])
    assert (got["brier"], got["nll"]) == (brier_score(said, right), negative_log_likelihood(said, right))
    surest = np.argsort(-said)
    for percent in (50, 80, 95):
        assert got[f"accuracy_at_{percent}"] == pytest.approx(right[surest[: percent * 4]].mean())
    assert got["confidence_share"] == 0.8
    assert not any(np.isnan(value) for value in got.values())
    only_missing = summarise_confidence(Sureness(said, right, np.zeros(400, bool), 1.0))
    assert "ece_observed" not in only_missing
    assert summarise_confidence(sureness([np.nan], [3], [3], [True])) == {}


@pytest.mark.parametrize(
    ("probability", "right", "problem"),
    [
        ([0.5, 1.1], [True, False], "between 0 and 1"),
        ([0.5, np.nan], [True, False], "between 0 and 1"),
        ([0.5], [True, False], "do not go with"),
        ([0.5], [1], "booleans"),
    ],
)
def test_what_is_no_probability(probability, right, problem):
    with pytest.raises(ValueError, match=problem):
        reliability(probability, right)
    with pytest.raises(ValueError, match="one bin"):
        reliability([0.5], [True], bins=0)
