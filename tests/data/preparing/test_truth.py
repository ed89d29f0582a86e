"""True positions at steps: given, matched and filled."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.preparing.chunk import ChunkPreparer
from tedtrajrec.data.preparing.config import PrepareConfig, TruthConfig
from tedtrajrec.data.preparing.grid import step_grid
from tedtrajrec.data.preparing.truth import (
    Truth,
    distances_m,
    filled_truth,
    given_truth,
    make_truth,
    matched_truth,
)
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import Matcher
from tedtrajrec.trips.table import Trips, concat_trips

LON0, LAT0 = -8.62, 41.15
PER_LON, PER_LAT = 83_956.0, 111_074.0
EAST = [0, 2, 4, 6, 8]  # the segments of the lowest street, eastwards


def drive(*points: tuple[float, float, float], name: str = "a") -> Trips:
    """Return one trip of (seconds, metres east, metres north) of the grid's first node."""
    time, x, y = np.array(points, float).T
    return Trips.from_columns(
        np.full(len(time), name), 1_700_000_000 + time.astype(np.int64), LON0 + x / PER_LON, LAT0 + y / PER_LAT
    )


def with_truth(trips: Trips, segment: list[int], ratio: list[float]) -> Trips:
    return trips.replace(segment=np.array(segment, np.int32), ratio=np.array(ratio))


def test_given_positions_count_where_a_fix_lies_on_the_step() -> None:
    trips = with_truth(
        drive((0, 0, 0), (10, 50, 0), (19, 90, 0), (30, 150, 0)), [0, -1, 0, 2], [0.1, np.nan, 0.9, np.nan]
    )
    truth = given_truth(trips, step_grid(trips, 10))
    assert truth.segment.tolist() == [0, -1, -1, -1]
    np.testing.assert_array_equal(truth.ratio, [0.1, np.nan, np.nan, np.nan])
    assert not truth.broken.any()


def test_matched_positions_between_fixes(tiny_city: RoadNetwork) -> None:
    trips = drive((0, 20, 2), (20, 220, -2), (40, 420, 1))
    truth = matched_truth(trips, step_grid(trips, 10), Matcher(tiny_city), TruthConfig())
    assert truth.segment.tolist() == [EAST[0], EAST[1], EAST[2], EAST[3], EAST[4]]
    np.testing.assert_allclose(truth.ratio, 0.2, atol=0.01)


def test_no_truth_is_made_up_in_long_gaps(tiny_city: RoadNetwork) -> None:
    trips = drive((0, 20, 2), (20, 220, -2), (80, 420, 1))
    grid = step_grid(trips, 20)
    assert matched_truth(trips, grid, Matcher(tiny_city), TruthConfig()).segment.min() >= 0
    assert matched_truth(trips, grid, Matcher(tiny_city), TruthConfig(max_gap_s=59)).segment.tolist() == [
        EAST[0],
        EAST[2],
        -1,
        -1,
        EAST[4],
    ]


def test_what_lies_beside_a_fix_far_from_the_road_is_unknown(tiny_city: RoadNetwork) -> None:
    trips = drive(*((10 * i, 20 + 60 * i, -90 if i == 4 else 0) for i in range(8)))
    grid = step_grid(trips, 5)
    found = [matched_truth(trips, grid, Matcher(tiny_city), TruthConfig(max_distance_m=m)).segment for m in (100, 80)]
    assert found[0].min() >= 0
    assert np.flatnonzero(found[1] < 0).tolist() == [7, 8, 9]


def test_a_broken_route_is_said_to_be(tiny_city: RoadNetwork) -> None:
    whole = drive((0, 20, 0), (10, 120, 0))
    broken = drive((0, 20, 0), (1000, 120, 0), (3000, 220, 0), (3010, 320, 0), name="b")
    trips = concat_trips([whole, broken])
    truth = matched_truth(trips, step_grid(trips, 1000), Matcher(tiny_city), TruthConfig(max_gap_s=9999))
    assert truth.broken.tolist() == [False, True]
    assert truth.segment.tolist() == [EAST[0], EAST[0], EAST[1], -1, EAST[2]]


def test_only_what_is_not_given_is_filled(tiny_city: RoadNetwork) -> None:
    whole = with_truth(drive((0, 20, 0), (10, 120, 0), name="w"), [9, 9], [0.5, 0.5])
    lacking = with_truth(drive((0, 20, 0), (10, 120, 0), (20, 220, 0)), [9, -1, 9], [0.5, np.nan, 0.5])
    trips = concat_trips([whole, lacking])
    grid = step_grid(trips, 10)
    matcher = Matcher(tiny_city)
    truth = filled_truth(given_truth(trips, grid), trips, grid, matcher, TruthConfig())
    assert truth.segment.tolist() == [9, 9, 9, EAST[1], 9]
    assert given_truth(trips, grid).segment.tolist() == [9, 9, 9, -1, 9]
    for source, rematch, expected in (("given", True, EAST[1]), ("auto", False, -1), ("match", False, EAST[1])):
        found = make_truth(trips, grid, matcher, TruthConfig(source=source, rematch=rematch))  # type: ignore[arg-type]
        assert found.segment[3] == expected
    assert make_truth(trips, grid, None, TruthConfig(source="given")).segment[3] == -1


def test_a_matcher_is_made_ready_only_where_it_may_be_asked(
    tiny_city: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[RoadNetwork] = []
    monkeypatch.setattr("tedtrajrec.data.preparing.chunk.Matcher", lambda network, _: made.append(network))
    for source, rematch, count in (("given", False, 0), ("given", True, 1), ("auto", False, 1), ("match", False, 1)):
        made.clear()
        truth = TruthConfig(source=source, rematch=rematch)  # type: ignore[arg-type]
        ChunkPreparer(tiny_city, PrepareConfig(step_s=10, truth=truth), Path("trips.csv"))
        assert len(made) == count


def test_distances(tiny_city: RoadNetwork) -> None:
    trips = drive((0, 50, 7), (10, 150, 120), (20, 250, 0))
    truth = Truth(np.array([0, 2, -1], np.int32), np.array([0.5, 0.5, np.nan]), np.zeros(1, bool))
    distance = distances_m(tiny_city, trips.lon, trips.lat, truth)
    np.testing.assert_allclose(distance, [7, 120, np.nan], atol=0.1)
