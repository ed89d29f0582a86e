"""Drives between consecutive steps."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips
from tests.trips.test_match import path


def steps(*positions: tuple[int, float], step_s: int = 10, name: str = "a") -> Trips:
    """Return one trip with given positions; the fixes do not matter."""
    segment, ratio = zip(*positions, strict=True)
    n = len(segment)
    return Trips.from_columns(
        np.full(n, name), 1000 + step_s * np.arange(n), np.zeros(n), np.zeros(n), segment=segment, ratio=ratio
    )


def test_drives_follow_the_shortest_route(tiny_city: RoadNetwork) -> None:
    a, b, c = path(tiny_city, (0, 0), (1, 0), (2, 0), (2, 1))
    drives = drives_of(tiny_city, steps((a, 0.25), (c, 0.5), (c, 0.5), (-1, np.nan), (c, 0.9)))
    assert drives.offsets.tolist() == [0, 3, 4]
    assert drives.segment.tolist() == [a, b, c, c]
    np.testing.assert_allclose(drives.metres, [75, 100, 50, 0], atol=0.5)
    assert drives.seconds.tolist() == [10, 10]
    assert drives.time.tolist() == [1000, 1010]
    assert drives.drive_of.tolist() == [0, 0, 0, 1]
    assert len(drives.leap_from) == 0


def test_a_step_back_is_standing_and_a_leap_is_no_drive(tiny_city: RoadNetwork) -> None:
    (a,) = path(tiny_city, (0, 0), (1, 0))
    far = path(tiny_city, (4, 5), (5, 5))[0]
    drives = drives_of(tiny_city, steps((a, 0.5), (a, 0.4), (far, 0.5)))
    assert drives.segment.tolist() == [a]
    assert drives.metres.tolist() == [0.0]
    assert (drives.leap_from.tolist(), drives.leap_to.tolist(), drives.leap_trip.tolist()) == ([a], [far], [0])


def test_trips_without_positions(tiny_city: RoadNetwork) -> None:
    with pytest.raises(ValueError, match="no positions"):
        drives_of(tiny_city, Trips.from_columns(["a"], [0], [0.0], [0.0]))
