"""Which past trips drove each segment."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.past.passing import index_passing, no_passing, passing_state, restored_passing
from tedtrajrec.methods.past.visits import Visits
from tests.methods.past.test_pairs import N_SEGMENTS, made, some_visits


@settings(max_examples=40)
@given(visits=some_visits(), most=st.sampled_from([1, 2, 300]), seed=st.integers(0, 100))
def test_visits_of_each_segment_against_a_plain_search(visits: Visits, most: int, seed: int) -> None:
    n_trips = len(visits.offset) - 1
    rank = np.random.default_rng(seed).permutation(n_trips)
    passing = index_passing(visits, rank, N_SEGMENTS, most=most)
    trip = np.repeat(np.arange(n_trips), np.diff(visits.offset))
    assert passing.n_trips == n_trips
    assert passing.trip.tolist() == trip.tolist()
    for segment in range(N_SEGMENTS):
        found = passing.seen[passing.offset[segment] : passing.offset[segment + 1]]
        drove = np.flatnonzero(visits.segment == segment)
        kept = sorted(sorted(drove, key=lambda v: rank[trip[v]])[:most])  # sorted is stable
        assert found["visit"].tolist() == kept
        assert found["trip"].tolist() == trip[kept].tolist()
        assert found["enter"].tolist() == visits.enter[kept].tolist()
        assert found["leave"].tolist() == visits.leave[kept].tolist()


def test_the_same_trips_are_left_on_all_busy_segments() -> None:
    visits = made(*([(0, 0, 10), (1, 10, 20)] for _ in range(5)))
    passing = index_passing(visits, np.array([4, 0, 3, 1, 2]), 2, most=2)
    assert passing.seen["trip"].reshape(2, 2).tolist() == [[1, 3], [1, 3]]


@pytest.mark.parametrize("empty", [False, True])
def test_the_state_gives_the_same_again(empty: bool) -> None:
    visits = made([(3, 0, 10), (4, 15, 20)], [(3, 0, 10), (4, 25, 30)])
    passing = no_passing(N_SEGMENTS) if empty else index_passing(visits, np.arange(2), N_SEGMENTS, most=1)
    state = passing_state(passing)
    assert all(type(array) is np.ndarray and array.dtype.names is None for array in state.values())
    again = restored_passing(state)
    assert again.n_trips == passing.n_trips
    for one, other in zip(passing[:-1], again[:-1], strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
