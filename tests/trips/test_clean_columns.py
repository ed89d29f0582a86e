"""Cleaning: ids of pieces, and columns that travel along."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.trips.clean import clean_trips
from tedtrajrec.trips.table import NULLABLE_TEXT, as_text
from tests.trips.driven import LOOSE, drive, make


def test_only_what_is_left_in_several_pieces_is_numbered():
    one_left = [*drive(20), (2000, 0)]
    two_left = drive(20) + drive(20, start_s=2000)
    cleaned = clean_trips(make(one_left, two_left))
    assert cleaned.trips.traj_id.tolist() == ["a", "b#1", "b#2"]
    assert cleaned.summary.trips_dropped == {"below_min_fixes": 1}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["x", "x#1", "x#2"], ["x##1", "x##2", "x#1", "x#2#1", "x#2#2"]),
        (["x", "x#", "x"], ["x#1", "x#2", "x#", "x#3", "x#4"]),
    ],
)
def test_ids_are_unique_whatever_names_were_there(ids, expected):
    cut = drive(20) + drive(20, start_s=2000)
    trips = make(cut, drive(20), cut).replace(traj_id=as_text(ids))
    assert clean_trips(trips).trips.traj_id.tolist() == expected


def test_names_that_collide_with_numbered_ones_of_another_trip_are_told_apart():
    cut = drive(20) + drive(20, start_s=2000)
    trips = make(cut, cut, drive(20)).replace(traj_id=as_text(["x", "x#", "x#1"]))
    names = clean_trips(trips).trips.traj_id.tolist()
    assert names[-1] == "x#1"
    assert len(set(names)) == 5


def test_columns_travel_along():
    trips = make(drive(20) + drive(20, start_s=2000), drive(10))
    cleaned = clean_trips(trips).trips
    row = cleaned.extra["row"]
    assert cleaned.trip_extra["taxi"].tolist() == [0, 0, 10]
    assert cleaned.segment is not None
    assert cleaned.ratio is not None
    for name in ("time", "lon", "lat", "segment", "ratio"):
        assert np.array_equal(getattr(cleaned, name), getattr(trips, name)[row])


def test_masked_and_missing_columns_survive():
    trips = make(
        [(15, 150), (0, 0), (30, 300)],
        speed=np.ma.array([5.0, 6.0, 7.0], mask=[0, 1, 0]),
        note=np.array(["x", None, "z"], dtype=NULLABLE_TEXT),
    )
    cleaned = clean_trips(trips, LOOSE).trips
    assert cleaned.extra["speed"].mask.tolist() == [True, False, False]
    assert cleaned.extra["note"].tolist() == [None, "x", "z"]
