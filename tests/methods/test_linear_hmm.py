"""Linear + HMM."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.linear_hmm import LinearHmm
from tedtrajrec.methods.registry import make_method
from tedtrajrec.network.roadnet import RoadNetwork
from tests.methods.past.test_straight import as_batch
from tests.trips.test_match import path, trip


def test_steps_between_fixes_are_matched_on_the_straight_line(tiny_city: RoadNetwork) -> None:
    method = LinearHmm(tiny_city)
    trips = trip([(0, 20, 2), (10, 0, 0), (20, 0, 0), (30, 320, -2)])
    found = method.recover(as_batch(trips, [True, False, False, True], tiny_city))
    assert found.segment[0].tolist() == path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0))
    np.testing.assert_allclose(found.ratio[0], [0.2, 0.2, 0.2, 0.2], atol=0.01)
    assert (found.log_prob <= 0).all()
    assert method.second.n_unmatched == 0


def test_steps_off_the_map_get_the_nearest_segment(tiny_city: RoadNetwork) -> None:
    method = LinearHmm(tiny_city)
    trips = trip([(0, 50, 2), (10, 50, -200), (20, 50, -400)])
    found = method.recover(as_batch(trips, [True, False, True], tiny_city))
    assert method.second.n_unmatched == 2
    first = {*path(tiny_city, (0, 0), (1, 0)), *path(tiny_city, (1, 0), (0, 0))}
    assert set(found.segment[0].tolist()) <= first
    assert found.log_prob[0, 1:].isnan().all()


def test_presets(tiny_city: RoadNetwork) -> None:
    assert make_method("linear_hmm", tiny_city, ["preset=nk09"]).config.preset == "nk09"
    with pytest.raises(ConfigError, match="must be one of 'default', 'nk09', 'song12'"):
        make_method("linear_hmm", tiny_city, ["preset=best"])
