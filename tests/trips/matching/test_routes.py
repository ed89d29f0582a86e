"""Fixes on their route."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from tedtrajrec.trips.matching.routes import _straighten


@settings(max_examples=100)
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=30))
def test_straightening_is_isotonic_regression(values: list[float]) -> None:
    straight = np.array(values)
    _straighten(straight)
    assert (np.diff(straight) >= -1e-9).all()
    np.testing.assert_allclose(straight, isotonic_regression(values).x, atol=1e-6)
