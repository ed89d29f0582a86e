"""Hashes of fixes and trips, and what trips share, against plain sets."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.data.preparing.fingerprints import SharedFixes, hash_fixes, hash_trips, is_repeated
from tedtrajrec.trips.table import Trips

fix_numbers = st.lists(st.lists(st.integers(0, 9), max_size=6, unique=True), min_size=1, max_size=6)


def trips_of(numbers: list[list[int]]) -> Trips:
    flat = np.array([n for trip in numbers for n in trip], np.int64)
    offsets = np.cumsum([0, *map(len, numbers)]).astype(np.int64)
    return Trips(np.array([str(i) for i in range(len(numbers))]), offsets, flat, flat / 7, flat / 3)


def test_each_of_time_lon_and_lat_counts() -> None:
    one = Trips(np.array(["a"]), np.array([0, 4]), np.array([1, 2, 1, 1]), np.array([0.1, 0.1, 0.2, 0.1]), np.zeros(4))
    assert len(set(hash_fixes(one).tolist())) == 3
    assert hash_fixes(one)[0] == hash_fixes(one)[3]
    swapped = one.replace(lon=one.lat, lat=one.lon)
    assert not set(hash_fixes(one).tolist()) & set(hash_fixes(swapped).tolist())


@given(fix_numbers)
def test_repeated_trips(numbers: list[list[int]]) -> None:
    trips = trips_of(numbers)
    hashes = hash_trips(hash_fixes(trips), trips.offsets)
    expected = [trip in numbers[:i] for i, trip in enumerate(numbers)]
    assert is_repeated(hashes, np.zeros(len(numbers), np.int8)).tolist() == expected


def test_of_trips_that_are_the_same_the_one_of_the_last_split_stays() -> None:
    hashes = np.array([5, 5, 5, 6, 6], np.uint64)
    assert is_repeated(hashes, np.array([0, 2, 2, 1, 0], np.int8)).tolist() == [True, False, True, False, True]


@given(fix_numbers, fix_numbers)
def test_shared_fixes(given_numbers: list[list[int]], numbers: list[list[int]]) -> None:
    held, trips = trips_of(given_numbers), trips_of(numbers)
    shared = SharedFixes(hash_fixes(held), held.trip_of_fix)
    expected = [max(len(set(a) & set(b)) for b in given_numbers) for a in numbers]
    assert shared.most(hash_fixes(trips), trips.offsets).tolist() == expected


def test_nothing_is_shared_with_no_trips() -> None:
    trips = trips_of([[1, 2], [3]])
    empty = SharedFixes(np.zeros(0, np.uint64), np.zeros(0, np.int64))
    assert empty.most(hash_fixes(trips), trips.offsets).tolist() == [0, 0]
