"""The pieces of benchmarks/scale.py: the same trips in every network of tiles, and a peak that is known."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("memory is read from /proc and the GNU C library", allow_module_level=True)
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
scale = importlib.import_module("scale")


def test_the_same_trips_in_every_network() -> None:
    one, three = scale.city_in_tiles(1), scale.city_in_tiles(3)
    network = scale.tiled(three)
    joins = network.n_segments - 3 * one.one.n_segments
    assert joins == 2 * 2  # east of the first tile and north of it, there and back
    small, large = scale.trips_in(one), scale.trips_in(three)
    tile = large.segment // one.one.n_segments
    assert set(tile) == {0, 1, 2}
    np.testing.assert_array_equal(large.segment % one.one.n_segments, small.segment)
    np.testing.assert_array_equal(large.time, small.time)
    x, y = network.plane.to_xy(large.lon, large.lat)
    true_x, true_y = network.plane.to_xy(*network.point_at(large.segment, large.ratio))
    assert np.hypot(x - true_x, y - true_y).max() < 40  # fixes are 5 m off


def test_a_smaller_city() -> None:
    small, one = (scale.tiled(scale.city_in_tiles(tiles)) for tiles in (0, 1))
    assert 5000 < small.n_segments < 0.6 * one.n_segments
    assert len(scale.trips_in(scale.city_in_tiles(0))) == len(scale.trips_in(scale.city_in_tiles(1)))


def test_the_peak_of_what_is_allocated() -> None:
    def work() -> None:
        for _ in range(50):
            np.ones(2**22)  # 32 MiB, freed again

    before = scale.allocated()
    assert scale.most_allocated(work) - before == pytest.approx(2**25, rel=0.1)
    assert scale.allocated() - before < 2**22
