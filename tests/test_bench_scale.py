"""The pieces of benchmarks/scale.py: the same trips in every network of tiles, and a peak that is known."""

from __future__ import annotations

import importlib
import json
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


def test_the_latest_rows_are_drawn(tmp_path: Path) -> None:
    plot = importlib.import_module("plot_scale")
    row = {"what": "match", "batch": 1, "segments": 9000, "ms_per_trip": 2.0, "device": "cpu"}
    rows = [row, {**row, "segments": 100}, {**row, "ms_per_trip": 1.0}, {**row, "batch": 16, "ms_per_trip": 9.0}]
    line = next(line for line in plot.uses("ms_per_trip") if line.label == "match, one trip")
    assert plot.latest(rows, line) == {100: 2.0, 9000: 1.0}
    committed = [json.loads(text) for text in (plot.ROOT / "results" / "scale.jsonl").read_text().splitlines()]
    assert all(plot.latest(committed, line) for lines in plot.PANELS.values() for line in lines)
    plot.draw(committed, tmp_path / "scale.png")
    assert (tmp_path / "scale.png").stat().st_size > 10_000


def test_the_peak_of_what_is_allocated() -> None:
    def work() -> None:
        for _ in range(50):
            np.ones(2**22)  # 32 MiB, freed again

    before = scale.allocated()
    assert scale.most_allocated(work) - before == pytest.approx(2**25, rel=0.1)
    assert scale.allocated() - before < 2**22
