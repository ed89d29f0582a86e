"""Pairs of segments that past trips drove one after the other, all of them and without one trip."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.past.pairs import (
    OwnPairs,
    Pairs,
    learn_pairs,
    no_pairs,
    own_pair_of,
    own_pairs,
    pair_of,
    pair_without,
    pairs_state,
    visits_without,
)
from tedtrajrec.methods.past.visits import Visits, visits_of
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips

MANY = 10**6
CITY = synthetic_city(size="small")
N_SEGMENTS = 6


def made(*trips: list[tuple[int, float, float]]) -> Visits:
    """Return the visits of trips, each given by segment, time of entering and time of leaving."""
    rows = np.array(list(itertools.chain(*trips))).reshape(-1, 3)
    return Visits(
        np.cumsum([0, *map(len, trips)]),
        rows[:, 0].astype(np.int32),
        rows[:, 1].astype(np.float32),
        rows[:, 2].astype(np.float32),
    )


def naive_times(visits: Visits, trip: int, within_s: float) -> dict[tuple[int, int], float]:
    """Return the shortest time between any two visits of each pair of segments of a trip."""
    times: dict[tuple[int, int], float] = {}
    for i, j in itertools.combinations(range(visits.offset[trip], visits.offset[trip + 1]), 2):
        pair = int(visits.segment[i]), int(visits.segment[j])
        took = max(float(visits.enter[j] - visits.leave[i]), 0.0)
        if pair[0] != pair[1] and took <= within_s:
            times[pair] = min(times.get(pair, np.inf), took)
    return times


def as_dict(pairs: Pairs) -> dict[tuple[int, int], tuple[float, float, float]]:
    source = np.repeat(np.arange(len(pairs.offset) - 1), np.diff(pairs.offset))
    names = zip(source.tolist(), pairs.target.tolist(), strict=True)
    return dict(zip(names, zip(pairs.trips, pairs.seconds, pairs.squares, strict=True), strict=True))


@st.composite
def some_visits(draw: st.DrawFn) -> Visits:
    trips = []
    for _ in range(draw(st.integers(1, 6))):
        now, left, last, trip = 0.0, 0.0, -1, []
        for _ in range(draw(st.integers(0, 12))):
            segment = draw(st.integers(0, N_SEGMENTS - 1).filter(lambda s, last=last: s != last))  # type: ignore[misc]
            stays, overlap = draw(st.integers(0, 60)), draw(st.integers(-20, 20))
            left = max(left, now + stays)
            trip.append((segment, now, left))
            now, last = now + max(stays + overlap, 0), segment
        trips.append(trip)
    return made(*trips)


@settings(max_examples=40)
@given(visits=some_visits(), within_s=st.sampled_from([30.0, 100.0, 900.0]))
def test_the_table_against_all_combinations(visits: Visits, within_s: float) -> None:
    times: dict[tuple[int, int], list[float]] = {}
    for trip in range(len(visits.offset) - 1):
        for pair, took in naive_times(visits, trip, within_s).items():
            times.setdefault(pair, []).append(took)
    pairs = learn_pairs(visits, N_SEGMENTS, within_s=within_s, most_targets=MANY)
    found = as_dict(pairs)
    assert list(found) == sorted(times)
    for pair, (count, seconds, squares) in found.items():
        assert count == len(times[pair])
        assert seconds == pytest.approx(sum(times[pair]), rel=1e-6)
        assert squares == pytest.approx(np.var(times[pair]) * count, rel=1e-5, abs=1e-3)
    for a, e in itertools.product(range(N_SEGMENTS), repeat=2):
        q = pair_of(pairs, a, e)
        assert (q >= 0) == ((a, e) in times)
        assert q < 0 or (pairs.offset[a] <= q < pairs.offset[a + 1] and pairs.target[q] == e)


@settings(max_examples=40)
@given(visits=some_visits(), within_s=st.sampled_from([30.0, 900.0]))
def test_own_pairs_against_all_combinations(visits: Visits, within_s: float) -> None:
    own = own_pairs(visits, within_s)
    for trip in range(len(visits.offset) - 1):
        times = naive_times(visits, trip, within_s)
        driven = visits.segment[visits.offset[trip] : visits.offset[trip + 1]]
        assert own.segment[own.offset[trip] : own.offset[trip + 1]].tolist() == np.unique(driven).tolist()
        for a, e in itertools.product(range(N_SEGMENTS), repeat=2):
            m = own_pair_of(own, trip, a, e)
            assert (m >= 0) == ((a, e) in times)
            assert m < 0 or own.seconds[m] == times[a, e]


def check_left_out(visits: Visits, n_segments: int, trips: list[int]) -> None:
    """Compare the table less each trip with the table of the other trips."""
    pairs = learn_pairs(visits, n_segments, most_targets=MANY)
    own = own_pairs(visits.select(np.array(trips)), 900.0)
    for k, trip in enumerate(trips):
        others = np.delete(np.arange(len(visits.offset) - 1), trip)
        without = learn_pairs(visits.select(others), n_segments, most_targets=MANY)
        wanted = as_dict(without)
        for a, e in as_dict(pairs):
            count, mean, squares = pair_without(pairs, own, k, a, e)
            n, seconds, deviations = wanted.get((a, e), (0.0, 0.0, 0.0))
            assert count == n
            assert mean == pytest.approx(seconds / max(n, 1), rel=1e-5, abs=1e-3)
            assert squares == pytest.approx(deviations, rel=1e-4, abs=1e-2)
        assert [visits_without(pairs, own, k, s) for s in range(n_segments)] == without.visits.tolist()


@settings(max_examples=20)
@given(visits=some_visits())
def test_a_trip_left_out_is_as_if_it_had_never_been(visits: Visits) -> None:
    check_left_out(visits, N_SEGMENTS, list(range(len(visits.offset) - 1)))


def test_a_simulated_trip_left_out() -> None:
    trips = simulate_trips(CITY, trips=200, step_s=15, seed=1)
    visits = visits_of(CITY, trips, CITY.length_m / CITY.speed_mps)
    check_left_out(visits, CITY.n_segments, [0, 7, 199])


def test_long_times_with_a_small_spread_survive_32_bits() -> None:
    rng = np.random.default_rng(0)
    took = (880 + rng.normal(0, 0.5, 2000)).astype(np.float32)
    visits = made(*([(0, 0.0, 0.0), (1, float(t), float(t))] for t in took))
    pairs = learn_pairs(visits, 2)
    assert pairs.squares[0] == pytest.approx(np.var(took.astype(float)) * 2000, rel=1e-5)
    own = own_pairs(visits.select(np.array([5])), 900.0)
    count, mean, squares = pair_without(pairs, own, 0, 0, 1)
    rest = np.delete(took.astype(float), 5)
    assert count == 1999
    assert mean == pytest.approx(rest.mean(), abs=1e-3)
    assert squares / count == pytest.approx(rest.var(), rel=1e-3)


def test_without_a_trip_to_leave_out_the_table_speaks() -> None:
    visits = made([(3, 0, 10), (4, 15, 20)], [(3, 0, 10), (4, 25, 30)])
    pairs, own = learn_pairs(visits, N_SEGMENTS), own_pairs(visits, 900.0)
    assert pair_without(pairs, own, -1, 3, 4) == (2, 10, 50)
    assert pair_without(pairs, own, 1, 3, 4) == (1, 5, 0)
    assert pair_without(pairs, own, 1, 4, 3) == (0, 0, 0)
    assert (visits_without(pairs, own, -1, 3), visits_without(pairs, own, 1, 3)) == (2, 1)
    assert visits_without(pairs, own, 1, 5) == 0


def test_the_most_frequent_targets_are_kept_and_among_equals_the_nearest() -> None:
    visits = made(
        [(0, 0, 0), (5, 30, 30), (4, 40, 40), (1, 50, 50)],
        [(0, 0, 0), (1, 50, 50), (2, 60, 60)],
        [(0, 0, 0), (3, 10, 10)],
    )
    assert learn_pairs(visits, N_SEGMENTS).target[:5].tolist() == [1, 2, 3, 4, 5]
    pairs = learn_pairs(visits, N_SEGMENTS, most_targets=3)
    assert pairs.target[: pairs.offset[1]].tolist() == [1, 3, 5]
    assert pairs.trips[: pairs.offset[1]].tolist() == [2, 1, 1]
    assert pairs.visits[0] == 3


@pytest.mark.parametrize("workers", [2, 5])
def test_the_number_of_threads_changes_nothing(workers: int) -> None:
    trips = simulate_trips(CITY, trips=100, step_s=15, seed=2)
    visits = visits_of(CITY, trips, CITY.length_m / CITY.speed_mps)
    once, again = (learn_pairs(visits, CITY.n_segments, most_targets=20, workers=n) for n in (1, workers))
    for one, other in zip(once, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_pairs_as_arrays_and_back() -> None:
    pairs = learn_pairs(made([(3, 0, 10), (4, 15, 20)]), N_SEGMENTS)
    again = Pairs(**pairs_state(pairs))
    assert pair_of(again, 3, 4) == 0
    for one, other in zip(pairs, again, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


def test_no_trips() -> None:
    none = Visits(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.float32))
    for one, other in zip(no_pairs(4), learn_pairs(none, 4), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    own: OwnPairs = own_pairs(none, 900.0)
    assert pair_of(no_pairs(4), 3, 0) == -1
    assert own.offset.tolist() == [0]
