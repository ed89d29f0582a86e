"""Cleaning: what is off the network, and trips that are too short or too long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.cleaning.rejects import WHOLE_TRIP, CleanSummary
from tests.trips.driven import LOOSE, drive, listed, make, rows


def test_fixes_off_the_network_cut_the_trip(tiny_city):
    """The streets cover 0..500 m east and north of the plane's origin."""
    inside = [(i * 15, 100.0 * i, 0.0) for i in range(6)]
    out = [(90, 700, 0.0), (105, 800, 0.0)]
    back = [(120 + i * 15, 500 - 100.0 * i, 100.0) for i in range(6)]
    config = replace(LOOSE, crop_distance_m=60)
    cleaned = clean_trips(make(inside + out + back), config, tiny_city)
    assert rows(cleaned) == {"a#1": [0, 1, 2, 3, 4, 5], "a#2": list(range(8, 14))}
    assert cleaned.summary.fixes_dropped == {"outside": 2}
    assert cleaned.summary.cuts == {"outside": 1}
    again = clean_trips(make(inside + out + back), config, CandidateFinder(tiny_city))
    assert rows(again) == rows(cleaned)
    assert len(clean_trips(make(inside + out + back), LOOSE, tiny_city).rejects) == 0


def test_a_trip_all_outside_is_lost(tiny_city):
    cleaned = clean_trips(make([(i * 60, 5000 + 100 * i) for i in range(5)]), network=tiny_city)
    assert len(cleaned.trips) == 0
    assert cleaned.summary.trips_dropped == {"nothing_left": 1}


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"min_fixes": 5}, "below_min_fixes"),
        ({"min_duration_s": 46}, "below_min_duration"),
        ({"max_duration_s": 44}, "above_max_duration"),
        ({"min_length_m": 451}, "below_min_length"),
    ],
)
def test_trips_of_the_wrong_size_are_dropped_with_their_fixes(setting, reason):
    cleaned = clean_trips(make(drive(4)), replace(LOOSE, **setting))
    assert len(cleaned.trips) == 0
    assert cleaned.summary.trips_dropped == {reason: 1}
    assert cleaned.summary.fixes_dropped == {reason: 4}
    assert listed(cleaned) == [("a", WHOLE_TRIP, reason), *(("a", i, reason) for i in range(4))]


def test_sizes_at_the_limit_are_kept():
    config = replace(LOOSE, min_fixes=4, min_duration_s=45, max_duration_s=45, min_length_m=449.99)
    assert len(clean_trips(make(drive(4)), config).trips) == 1


def test_a_trip_without_fixes_is_listed_as_empty():
    cleaned = clean_trips(make([], drive(6)))
    assert rows(cleaned) == {"b": list(range(6))}
    assert listed(cleaned) == [("a", WHOLE_TRIP, "empty")]
    assert np.isnan(cleaned.rejects.lon).all()


def test_no_trips_at_all_are_clean(tiny_city):
    cleaned = clean_trips(make(), CleanConfig(active_column="row"), tiny_city)
    assert len(cleaned.trips) == 0
    assert cleaned.summary == CleanSummary()
    cleaned = clean_trips(make([], []), CleanConfig(active_column="row"), tiny_city)
    assert cleaned.summary.trips_dropped == {"empty": 2}
