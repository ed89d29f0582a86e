"""Pictures of trips."""

from __future__ import annotations

import matplotlib.image
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from tedtrajrec.errors import InputError
from tedtrajrec.trips.plot import SPARSE, TRUTH, plot_trips
from tedtrajrec.trips.table import Trips


def make_trips(network, n_trips: int = 5, *, matched: bool = True) -> Trips:
    """Return trips of ten fixes, each along the street from node (0, row) to node (5, row), 40 m beside it."""
    row = np.repeat(np.arange(n_trips), 10)
    x, y = np.tile(np.linspace(0, 500, 10), n_trips), 100.0 * row + 40
    left, bottom = network.plane.to_xy(network.node_lon[0], network.node_lat[0])
    lon, lat = network.plane.to_lonlat(left + x, bottom + y)
    segment = np.array([next(i for i in range(network.n_segments) if network.seg_from[i] == 6 * r) for r in row])
    return Trips.from_columns(
        [f"trip-{r}" for r in row],
        1_700_000_000 + 15 * np.tile(np.arange(10), n_trips),
        lon,
        lat,
        segment=segment if matched else None,
        ratio=np.tile(np.linspace(0, 1, 10), n_trips) if matched else None,
    )


def texts(path) -> str:
    return path.read_text(encoding="utf-8")


def count(path, colour: str) -> int:
    """Return how many pixels of a picture have a colour."""
    picture = matplotlib.image.imread(path)[..., :3]
    return int((np.abs(picture - to_rgb(colour)).max(axis=-1) < 0.02).sum())


def test_truth_and_sparse_fixes_are_there_and_named(tmp_path, tiny_city):
    trips = make_trips(tiny_city)
    sparse = trips.keep_fixes(np.arange(trips.n_fixes) % 3 == 0)
    plot_trips(tiny_city, trips, tmp_path / "t.png", sparse=sparse)
    plot_trips(tiny_city, trips, tmp_path / "dense.png")
    assert count(tmp_path / "t.png", TRUTH) > 300
    assert count(tmp_path / "t.png", SPARSE) > 100
    assert count(tmp_path / "dense.png", SPARSE) == 0
    plot_trips(tiny_city, trips, tmp_path / "t.svg", sparse=sparse)
    for part in ("5 trips, 50 fixes", "Trip trip-3", "position on the road every 15 s (10)", "sparse fix (4)", "start"):
        assert f"<!-- {part}" in texts(tmp_path / "t.svg"), part


def test_unmatched_trips_are_drawn_at_their_fixes(tmp_path, tiny_city):
    plot_trips(tiny_city, make_trips(tiny_city, matched=False), tmp_path / "t.svg")
    assert "<!-- fix every 15 s (10) -->" in texts(tmp_path / "t.svg")


def test_partly_matched_trips_are_drawn(tmp_path, tiny_city):
    trips = make_trips(tiny_city)
    segment, ratio = trips.segment.copy(), trips.ratio.copy()
    segment[::2], ratio[::2] = -1, np.nan
    plot_trips(tiny_city, trips.replace(segment=segment, ratio=ratio), tmp_path / "t.png")
    assert count(tmp_path / "t.png", TRUTH) > 300


def test_at_most_so_many_are_drawn(tmp_path, tiny_city):
    plot_trips(tiny_city, make_trips(tiny_city), tmp_path / "t.svg", most=2)
    assert "<!-- 2 of them drawn -->" in texts(tmp_path / "t.svg")


def test_a_sparse_trip_may_be_missing_and_in_another_order(tmp_path, tiny_city):
    trips = make_trips(tiny_city)
    plot_trips(tiny_city, trips, tmp_path / "t.svg", sparse=trips.select([4, 0]))
    text = texts(tmp_path / "t.svg")
    assert "Trip trip-4" in text, "shown from close by: one with sparse fixes"
    assert "sparse fix (10)" in text


def test_nothing_to_draw_is_said(tmp_path, tiny_city):
    trips = make_trips(tiny_city)
    with pytest.raises(InputError, match="no trip of at least two fixes"):
        plot_trips(tiny_city, trips.keep_fixes(np.arange(trips.n_fixes) % 10 == 0), tmp_path / "t.png")
    strangers = trips.replace(traj_id=np.array(["a", "b", "c", "d", "e"]))
    with pytest.raises(InputError, match="none of the ids of the trips"):
        plot_trips(tiny_city, trips, tmp_path / "t.png", sparse=strangers)
    assert not list(tmp_path.iterdir())


def test_trips_of_another_network_are_refused(tmp_path, tiny_city):
    trips = make_trips(tiny_city)
    with pytest.raises(InputError, match="segment 115 is not in this network of 115 segments"):
        plot_trips(tiny_city, trips.replace(segment=trips.segment * 0 + 115), tmp_path / "t.png")


def test_trips_of_another_city_are_an_error(tiny_city, tmp_path):
    trips = make_trips(tiny_city, matched=False)
    with pytest.raises(InputError, match="no trip comes near"):
        plot_trips(tiny_city, trips.replace(lon=trips.lon + 100), tmp_path / "far.png")
    assert not (tmp_path / "far.png").exists()
