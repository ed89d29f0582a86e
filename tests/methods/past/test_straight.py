"""Straight lines between fixes."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.methods.past.straight import Straight, roads_along, straight_steps
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips, concat_trips
from tests.trips.test_match import path, trip


def as_batch(trips: Trips, observed: list[bool], network: RoadNetwork) -> Batch:
    return make_batch(trips, np.array(observed), network, step_s=10, time_zone="UTC")


def test_steps_lie_on_the_line_between_their_fixes(tiny_city: RoadNetwork) -> None:
    one = trip([(0, 0, 0), (10, 999, 999), (20, 999, 999), (30, 300, 60), (40, 300, 60)], "a")
    two = trip([(5, 100, 100), (15, 200, 100)], "b")
    trips = concat_trips([two, one])
    line = straight_steps(as_batch(trips, [True, True, True, False, False, True, True], tiny_city), tiny_city)
    expected = trip([(0, 100, 100), (1, 200, 100), (2, 0, 0), (3, 100, 20), (4, 200, 40), (5, 300, 60), (6, 300, 60)])
    x, y = tiny_city.plane.to_xy(line.lon, line.lat)
    np.testing.assert_allclose(np.array([x, y]), tiny_city.plane.to_xy(expected.lon, expected.lat), atol=0.05)
    np.testing.assert_allclose(line.east[3:5], 300, atol=1.0)
    np.testing.assert_allclose(line.north[3:5], 60, atol=1.0)


def test_beyond_the_fixes_it_stays(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 50, 0), (10, 100, 0), (20, 200, 0), (30, 250, 0)])
    line = straight_steps(as_batch(trips, [False, True, True, False], tiny_city), tiny_city)
    x, _ = tiny_city.plane.to_xy(line.lon, line.lat)
    np.testing.assert_allclose(np.diff(x), [0, 100, 0], atol=0.5)


def test_a_trip_without_fixes(tiny_city: RoadNetwork) -> None:
    batch = as_batch(trip([(0, 50, 0), (10, 100, 0)]), [False, False], tiny_city)
    with pytest.raises(ValueError, match="no fix"):
        straight_steps(batch, tiny_city)


def test_the_road_along_the_movement(tiny_city: RoadNetwork) -> None:
    # 10 m from a road that runs north and south, 30 m from one that runs east and west.
    at = trip([(0, 110, 30), (1, 110, 30), (2, 110, 30), (3, 110, 30)])
    line = Straight(at.lon, at.lat, np.array([50.0, -50.0, 0.0, 0.0]), np.array([0.0, 0.0, 80.0, 0.0]))
    segment, ratio = roads_along(CandidateFinder(tiny_city), line)
    east, west, north = (path(tiny_city, *way)[0] for way in (((1, 0), (2, 0)), ((2, 0), (1, 0)), ((1, 0), (1, 1))))
    assert segment[:3].tolist() == [east, west, north]
    np.testing.assert_allclose(ratio[:3], [0.1, 0.9, 0.3], atol=0.01)
    south = path(tiny_city, (1, 1), (1, 0))[0]
    assert segment[3] in (north, south)  # nothing is known of the direction


def test_no_points(tiny_city: RoadNetwork) -> None:
    segment, ratio = roads_along(CandidateFinder(tiny_city), Straight(*(np.zeros(0) for _ in range(4))))
    assert len(segment) == len(ratio) == 0
