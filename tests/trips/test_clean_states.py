"""Cleaning by ignition, occupancy or the number of a ride."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.table import NULLABLE_TEXT, as_text
from tests.trips.driven import LOOSE, drive, make, rows


def active(column, **settings):
    n = len(column)
    config = replace(LOOSE, active_column="on", **settings)
    return clean_trips(make(drive(n), on=column), config)


@pytest.mark.parametrize(
    "column",
    [
        np.array([False, True, True, False, False, True, True]),
        np.array([0, 1, 1, 0, 0, 1, 1]),
        np.array([0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]),
        as_text(["off", "on", "ON", "off", "Off", " on ", "on"]),
        as_text(["0", "1", "1.0", "0.0", "0", "1", "1"]),
        np.array(["no", "yes", "yes", "no", "no", "yes", "yes"]),
        np.array(["false", "true", "true", "false", "false", "true", "true"], dtype=object),
    ],
)
def test_inactive_fixes_belong_to_no_trip(column):
    cleaned = active(column)
    assert rows(cleaned) == {"a#1": [1, 2], "a#2": [5, 6]}
    assert cleaned.summary.fixes_dropped == {"inactive": 3}
    assert cleaned.summary.cuts == {"inactive": 1}


@pytest.mark.parametrize(
    "column",
    [
        np.ma.array([9, 0, 9, 1, 9, 9, 0, 9], mask=[1, 0, 1, 0, 1, 1, 0, 1]),
        np.array([np.nan, 0, np.nan, 1, np.nan, np.nan, 0, np.nan]),
        np.array([None, "off", None, "on", None, None, "off", None], dtype=NULLABLE_TEXT),
        as_text(["", "off", "", "on", "", "", "off", ""]),
    ],
)
def test_a_missing_state_repeats_the_last_one_and_the_start_counts_as_active(column):
    assert rows(active(column)) == {"a#1": [0], "a#2": [3, 4, 5]}


def test_the_first_known_state_does_not_cut():
    assert rows(active(np.array([np.nan, np.nan, 1, 1]))) == {"a": [0, 1, 2, 3]}


def test_a_missing_state_does_not_repeat_that_of_the_trip_before():
    config = replace(LOOSE, active_column="on")
    column = np.ma.array([1, 0, 9, 9], mask=[0, 0, 1, 1])
    assert rows(clean_trips(make(drive(2), drive(2), on=column), config)) == {"a": [0], "b": [2, 3]}


def test_a_column_without_any_value_changes_nothing():
    assert rows(active(np.full(4, np.nan))) == {"a": [0, 1, 2, 3]}


def test_a_change_from_one_ride_to_the_next_cuts():
    cleaned = active(np.array([17, 17, 18, 18, 0, 19, 19]))
    assert rows(cleaned) == {"a#1": [0, 1], "a#2": [2, 3], "a#3": [5, 6]}
    assert cleaned.summary.cuts == {"activity_change": 1, "inactive": 1}


def test_long_numbers_of_rides_are_told_apart():
    ride = 2**60
    for column in (np.array([ride, ride, ride + 1]), as_text([str(ride), str(ride), str(ride + 1)])):
        assert rows(active(column)) == {"a#1": [0, 1], "a#2": [2]}


def test_words_of_ones_own():
    column = as_text(["free", "hired", "hired", "call", "hired", "free", "free"])
    assert rows(active(column, active_values=("Hired",))) == {"a#1": [1, 2], "a#2": [4]}
    with pytest.raises(InputError, match=r"column 'on': the value 'call' .* active_values"):
        active(column)


def test_a_missing_column_is_an_error_that_lists_the_others():
    with pytest.raises(InputError, match=r"column 'ignition'.*row"):
        clean_trips(make(drive(3)), CleanConfig(active_column="ignition"))
