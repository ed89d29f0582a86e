"""Cleaning: order, duplicates, jumps, gaps and stays; and its settings."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.errors import ConfigError
from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.cleaning.rejects import WHOLE_TRIP
from tests.trips.driven import LOOSE, drive, listed, make, rows


def test_fixes_are_put_in_order_of_time_and_late_ones_counted():
    trips = make([(0, 0), (30, 300), (15, 150), (45, 450)], drive(3, 60))
    cleaned = clean_trips(trips, LOOSE)
    assert rows(cleaned) == {"a": [0, 2, 1, 3], "b": [4, 5, 6]}
    assert cleaned.summary.fixes_reordered == 1
    assert len(cleaned.rejects) == 0
    assert (np.diff(cleaned.trips.time)[[0, 1, 2]] > 0).all()


def test_late_fixes_can_be_dropped_instead():
    trips = make([(0, 0), (30, 300), (15, 150), (20, 200), (45, 450)])
    cleaned = clean_trips(trips, replace(LOOSE, out_of_order="drop"))
    assert rows(cleaned) == {"a": [0, 1, 4]}
    assert listed(cleaned) == [("a", 2, "out_of_order"), ("a", 3, "out_of_order")]


def test_duplicates_and_conflicts_are_told_apart_and_the_first_stays():
    trips = make([(0, 0), (15, 150), (0, 0), (15, 700), (15, 150), (30, 300)])
    cleaned = clean_trips(trips, LOOSE)
    assert rows(cleaned) == {"a": [0, 1, 5]}
    assert listed(cleaned) == [("a", 2, "duplicate"), ("a", 3, "same_time"), ("a", 4, "duplicate")]
    assert cleaned.summary.fixes_dropped == {"duplicate": 2, "same_time": 1}
    assert clean_trips(trips, replace(LOOSE, drop_duplicates=False)).trips.n_fixes == 6


def test_equal_times_of_neighbouring_trips_are_no_duplicates():
    assert len(clean_trips(make([(0, 0), (15, 5)], [(15, 5), (30, 5)]), LOOSE).rejects) == 0


def test_standing_still_is_no_duplicate():
    assert clean_trips(make([(0, 0), (15, 0), (30, 0)]), LOOSE).trips.n_fixes == 3


def test_fixes_without_a_position_are_dropped():
    trips = make(drive(5))
    lon, lat = trips.lon.copy(), trips.lat.copy()
    lon[1], lat[2], lon[3] = np.nan, 91.0, np.inf
    cleaned = clean_trips(trips.replace(lon=lon, lat=lat), LOOSE)
    assert rows(cleaned) == {"a": [0, 4]}
    assert cleaned.summary.fixes_dropped == {"no_position": 3}


def test_an_outlier_goes_and_the_trip_stays_whole():
    fixes = drive(20)
    fixes[7] = (7 * 15, 90_000)
    cleaned = clean_trips(make(fixes))
    assert rows(cleaned) == {"a": [*range(7), *range(8, 20)]}
    assert listed(cleaned) == [("a", 7, "jump")]
    assert cleaned.summary.cuts == {}


def test_a_change_of_place_cuts():
    cleaned = clean_trips(make(drive(20) + drive(20, start_s=300, start_m=90_000)))
    assert rows(cleaned) == {"a#1": list(range(20)), "a#2": list(range(20, 40))}
    assert cleaned.summary.cuts == {"jump": 1}
    assert cleaned.summary.fixes_dropped == {}


def test_far_apart_after_a_gap_is_a_gap_not_a_jump():
    cleaned = clean_trips(make(drive(20) + drive(3, start_s=2000, start_m=900_000, step_s=60)))
    assert rows(cleaned) == {"a#1": list(range(20)), "a#2": [20, 21, 22]}
    assert cleaned.summary.cuts == {"gap": 1}


def test_a_gap_that_an_outlier_hid_is_cut_too():
    fixes = [*drive(10), (500, 90_000), *drive(10, start_s=1000, start_m=5000)]
    cleaned = clean_trips(make(fixes), CleanConfig(max_gap_s=600))
    assert rows(cleaned) == {"a#1": list(range(10)), "a#2": list(range(11, 21))}
    assert cleaned.summary.cuts == {"gap": 1}
    assert cleaned.summary.fixes_dropped == {"jump": 1}


def test_a_gap_of_just_the_limit_does_not_cut():
    trips = make([(0, 0), (600, 3000), (1201, 6000), (1300, 7000)])
    assert rows(clean_trips(trips)) == {"a#1": [0, 1], "a#2": [2, 3]}


def test_a_stay_cuts_and_its_fixes_are_standing():
    there = drive(20)
    stay = [(300 + i * 60, 3000 + (i % 2) * 5) for i in range(12)]
    on = drive(20, start_s=1020, start_m=3010)
    cleaned = clean_trips(make(there + stay + on))
    assert rows(cleaned) == {"a#1": list(range(21)), "a#2": [32, *range(33, 52)]}
    assert cleaned.summary.fixes_dropped == {"standing": 11}
    assert cleaned.summary.cuts == {"standing": 1}


def test_a_parked_vehicle_leaves_nothing():
    cleaned = clean_trips(make([(i * 60, i % 3) for i in range(100)], drive(10)))
    assert rows(cleaned) == {"b": list(range(100, 110))}
    assert cleaned.summary.trips_dropped == {"nothing_left": 1}
    assert cleaned.summary.fixes_dropped == {"standing": 100}
    assert listed(cleaned)[0] == ("a", WHOLE_TRIP, "nothing_left")


@pytest.mark.parametrize(
    "setting",
    [
        {"max_gap_s": -1.0},
        {"max_speed_mps": float("nan")},
        {"stop_min_s": float("inf")},
        {"min_fixes": -1},
        {"out_of_order": "ignore"},
        {"max_duration_s": 10.0},
        {"active_values": ("on",)},
    ],
)
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        CleanConfig(**setting)


def test_settings_come_from_plain_values():
    config = CleanConfig(active_column="occupied", active_values=("hired",), max_gap_s=900)
    assert from_dict(CleanConfig, json.loads(json.dumps(to_dict(config)))) == config
    with pytest.raises(ConfigError, match="max_speed_mps is -3"):
        from_dict(CleanConfig, {"max_speed_mps": -3})
