"""What is known of fixes before the chain."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.network.grid import build_grid
from tedtrajrec.network.grid_search import GridSearch
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.matching.config import MatchConfig
from tedtrajrec.trips.matching.fixes import choose_fixes, evidence, find_noise


def test_fixes_of_one_place_are_one_fix_at_their_mean() -> None:
    x = np.array([0.0, 4.0, 8.0, 100.0, 300.0, 303.0])
    y = np.array([0.0, 3.0, 0.0, 0.0, 5.0, 1.0])
    used, at_x, at_y = choose_fixes(x, y, np.arange(6) * 10, np.array([0, 4, 6]), np.full(6, 5.0), 3.0)
    assert used.tolist() == [True, False, False, True, True, False]
    np.testing.assert_allclose(at_x[used], [4.0, 100.0, 301.5])
    np.testing.assert_allclose(at_y[used], [1.0, 0.0, 3.0])


def test_a_second_fix_of_one_second_is_not_used_and_does_not_count_from_afar() -> None:
    used, at_x, _ = choose_fixes(
        np.array([0.0, 500.0]), np.zeros(2), np.zeros(2, np.int64), np.array([0, 2]), np.full(2, 5.0), 3.0
    )
    assert used.tolist() == [True, False]
    assert at_x[0] == 0.0


def test_fixes_close_in_time_tell_less() -> None:
    time = np.array([0, 1, 5, 65, 0, 600])
    used = np.array([True, True, False, True, True, True])
    weight = evidence(time, np.array([0, 4, 6]), used, 10.0)
    np.testing.assert_allclose(weight, [1.0, np.tanh(0.05), 0.0, np.tanh(3.2), 1.0, 1.0], atol=1e-9)
    np.testing.assert_array_equal(evidence(time, np.array([0, 4, 6]), used, 0.0), used)


def test_weights_are_those_of_a_drifting_error() -> None:
    # Variance of the mean of n values whose correlation decays: 1 / (n tanh(interval / 2 drift)), for large n.
    n, interval, drift = 4000, 3.0, 10.0
    lag = np.arange(1, n)
    variance = (n + 2 * np.sum((n - lag) * np.exp(-lag * interval / drift))) / n**2
    assert n * np.tanh(interval / (2 * drift)) * variance == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("noise_m", [5.0, 10.0])
def test_noise_is_estimated(tiny_city: RoadNetwork, noise_m: float) -> None:
    rng = np.random.default_rng(1)
    corner = tiny_city.plane.to_xy(tiny_city.node_lon[0], tiny_city.node_lat[0])
    x = corner[0] + rng.uniform(20, 480, 300) + rng.normal(0, noise_m, 300)
    y = corner[1] + 300 + rng.normal(0, noise_m, 300)
    search = GridSearch(build_grid(tiny_city))
    found = find_noise(search, x, y, np.array([0, 300]), MatchConfig())
    assert found[0] == pytest.approx(noise_m, rel=0.25)
    assert (found == found[0]).all()
    assert (find_noise(search, x, y, np.array([0, 300]), MatchConfig(noise_m=7.0)) == 7.0).all()
