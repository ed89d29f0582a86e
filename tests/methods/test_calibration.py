import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save
from sklearn.isotonic import IsotonicRegression

from tedtrajrec.evaluation.calibration import brier_score, calibration_error, reliability
from tedtrajrec.methods.calibration import BINS, Calibration


def made(n, seed=0):
    """Return probabilities that are too sure, and whether steps were right; observed steps are right more often."""
    rng = np.random.default_rng(seed)
    true = rng.beta(2, 1, n)
    observed = rng.random(n) < 0.3
    right = rng.random(n) < np.where(observed, np.sqrt(true), true)
    return true**0.3, right, observed


def test_the_error_on_other_steps_becomes_small():
    calibration = Calibration.fit(*made(20_000))
    said, right, observed = made(20_000, seed=1)
    assert calibration_error(said, right) > 0.08
    mapped = calibration(said, observed)
    for some in (observed, ~observed):
        assert calibration_error(mapped[some], right[some]) < 0.02
    assert brier_score(mapped, right) < brier_score(said, right)


@settings(max_examples=50)
@given(seed=st.integers(0, 1000), n=st.integers(0, 3000), digits=st.integers(0, 3))
def test_maps_are_monotone_and_stay_within_bounds(seed, n, digits):
    said, right, observed = made(n, seed)
    calibration = Calibration.fit(said.round(digits), right, observed)
    at = np.linspace(0, 1, 301)
    for kind in (0, 1):
        mapped = calibration(at, np.full(301, kind))
        assert (np.diff(mapped) >= -1e-12).all()
        assert ((mapped >= 0) & (mapped <= 1)).all()
        np.testing.assert_allclose(mapped, np.interp(at, calibration.said[kind], calibration.right[kind]), atol=1e-12)


def test_bins_are_made_monotone_as_sklearn_does():
    rng = np.random.default_rng(4)
    said, right = rng.random(4000), rng.random(4000) < 0.5  # no order at all: bins must be pooled
    calibration = Calibration.fit(said, right)
    table = reliability(said, right, bins=BINS, equal_count=True)
    np.testing.assert_allclose(calibration.said[0], table.probability)
    share = (table.accuracy * table.steps + 0.5) / (table.steps + 1)
    expected = IsotonicRegression().fit(table.probability, share, sample_weight=table.steps).predict(table.probability)
    np.testing.assert_allclose(calibration.right[0], expected, atol=1e-12)


def test_without_enough_steps_nothing_changes():
    at = np.array([[0.0, 0.3], [np.nan, 1.0]])
    for calibration in (Calibration(), Calibration.fit(*made(99)), Calibration.fit([], [], np.zeros(0, bool))):
        for kind in (None, np.array([[0, 1], [0, 1]])):
            np.testing.assert_allclose(calibration(at, kind), at)
    said, right, _ = made(4000)
    only_missing = Calibration.fit(said, right, np.zeros(4000, bool))
    np.testing.assert_allclose(only_missing(said, np.ones(4000, bool)), said)
    assert not np.allclose(only_missing(said, np.zeros(4000, bool)), said)


def test_one_probability_for_all():
    calibration = Calibration.fit(np.full(1000, 0.9), np.arange(1000) < 700)
    np.testing.assert_allclose(calibration([0.0, 0.9, 1.0]), 0.7, atol=1e-3)


def test_tensors_get_what_arrays_get():
    said, right, observed = made(3000)
    calibration = Calibration.fit(said, right, observed)
    got = calibration.tensor(torch.from_numpy(said).float().view(30, 100), torch.from_numpy(observed).view(30, 100))
    assert (got.dtype, got.shape) == (torch.float32, (30, 100))
    np.testing.assert_allclose(got.numpy().ravel(), calibration(said, observed), atol=1e-6)


def test_it_lives_in_a_file_of_arrays():
    said, right, observed = made(3000)
    calibration = Calibration.fit(said, right, observed)
    again = Calibration.restored(load(save(calibration.state())))
    np.testing.assert_array_equal(again(said, observed), calibration(said, observed))


@pytest.mark.parametrize(
    ("said", "right"),
    [([[0.0, 1.0]], [[0.0]]), ([0.0, 1.0], [0.0, 1.0]), ([[1.0, 0.0]], [[0, 1]]), ([[0, 2]], [[0, 1]])],
)
def test_what_is_no_map(said, right):
    with pytest.raises(ValueError, match="bends"):
        Calibration(said, right)
    with pytest.raises(ValueError, match="between 0 and 1"):
        Calibration.fit([1.2], [True])


def test_nearly_equal_probabilities_are_kept_in_order() -> None:
    rng = np.random.default_rng(0)
    ones = 1 - np.arange(4) * 2.0**-53
    for _ in range(50):
        said = rng.choice(ones, 3000) * rng.choice([1.0, 0.1, 0.3])
        fitted = Calibration.fit(said, rng.random(3000) < 0.9)
        assert (np.diff(fitted.said) >= 0).all()
