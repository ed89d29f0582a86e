"""Visits of segments by past trips."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.methods.past.visits import Visits, visits_of
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, concat_trips
from tests.conftest import make_grid
from tests.methods.past.test_drives import steps
from tests.trips.test_match import path

GRID = make_grid()
COST = np.full(GRID.n_segments, 10.0)
CITY = synthetic_city(size="small")
A, B, C = path(GRID, (0, 0), (1, 0), (2, 0), (2, 1))
FAR = path(GRID, (4, 5), (5, 5))[0]


def of(*trips: Trips, cost: np.ndarray = COST) -> Visits:
    return visits_of(GRID, concat_trips(list(trips)), cost)


def test_segments_between_the_steps_are_visited_too() -> None:
    cost = COST.copy()
    cost[B] = 30.0
    visits = of(steps((A, 0.5), (C, 0.5), (C, 0.9), step_s=20), cost=cost)
    assert visits.segment.tolist() == [A, B, C]
    # 5 + 30 + 5 s at the usual pace took 20.
    assert visits.enter.tolist() == [-5, 2.5, 17.5]
    assert visits.leave.tolist() == [2.5, 17.5, 41]


def test_standing_and_steps_backwards_are_one_visit() -> None:
    visits = of(steps((A, 0.5), (A, 0.5), (A, 0.2), (B, 0.5)))
    assert visits.segment.tolist() == [A, B]
    # 8 + 5 s at the usual pace took 10.
    np.testing.assert_allclose(visits.leave, [20 + 80 / 13, 35], rtol=1e-6)
    assert visits.enter[1] == visits.leave[0]


def test_a_leap_leaves_and_enters_at_the_usual_pace() -> None:
    visits = of(steps((A, 0.8), (FAR, 0.1)))
    assert visits.segment.tolist() == [A, FAR]
    assert (visits.leave[0], visits.enter[1]) == (2, 9)


def test_a_leap_is_over_when_the_trip_is_seen_elsewhere() -> None:
    cost = np.full(GRID.n_segments, 100.0)
    visits = of(steps((A, 0.2), (FAR, 0.9)), cost=cost)
    assert (visits.leave[0], visits.enter[1]) == (10, 0)


def test_unknown_steps_are_passed_over() -> None:
    visits = of(steps((-1, np.nan), (A, 0.2), (-1, np.nan), (A, 0.9), (-1, np.nan), (C, 0.5), (-1, np.nan)))
    assert visits.segment.tolist() == [A, C]
    assert visits.enter.tolist() == [8, 45]
    assert visits.leave.tolist() == [31, 55]
    assert of(steps((-1, np.nan))).offset.tolist() == [0, 0]


def test_without_any_way_to_go_the_time_is_spent_on_the_next_segment() -> None:
    visits = of(steps((A, 1.0), (B, 0.0)))
    assert (visits.leave[0], visits.enter[1]) == (0, 0)


def test_some_of_the_trips() -> None:
    trips = [steps((A, 0.5), (B, 0.5)), steps((FAR, 0.1), name="b"), steps((B, 0.5), (C, 0.5), name="c")]
    whole = of(*trips)
    for one, other in zip(whole.select(np.array([2, 0])), of(trips[2], trips[0]), strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.select(np.zeros(0, np.int64)).offset.tolist() == [0]


@pytest.mark.parametrize("workers", [1, 3])
def test_simulated_trips_are_on_their_segments_at_their_steps(workers: int) -> None:
    trips = simulate_trips(CITY, trips=50, step_s=15, seed=3)
    visits = visits_of(CITY, trips, CITY.length_m / CITY.speed_mps, workers=workers)
    assert trips.segment is not None
    trip = np.repeat(np.arange(len(trips)), np.diff(visits.offset))
    same = trip[1:] == trip[:-1]
    assert (visits.segment[1:] != visits.segment[:-1])[same].all()
    assert (np.diff(visits.enter)[same] >= 0).all()
    assert (np.diff(visits.leave)[same] >= 0).all()
    for k in range(len(trips)):
        rows, mine = slice(*trips.offsets[k : k + 2]), slice(*visits.offset[k : k + 2])
        at = (trips.time[rows] - trips.time[rows][0])[:, None]
        inside = (visits.enter[mine] - 1e-3 <= at) & (at <= visits.leave[mine] + 1e-3)
        assert (inside & (visits.segment[mine] == trips.segment[rows][:, None])).any(axis=1).all()


def test_trips_without_positions() -> None:
    with pytest.raises(ValueError, match="no positions"):
        visits_of(GRID, Trips.from_columns(["a"], [0], [0.0], [0.0]), COST)
