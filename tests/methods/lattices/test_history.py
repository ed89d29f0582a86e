"""What pairs of past trips say of candidates."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.methods.lattices.history import (
    ALL,
    FITTING,
    LIKELY,
    MEAN_S,
    SD_S,
    TRIPS,
    History,
    between,
    count_visits,
    joining,
)
from tedtrajrec.methods.past.pairs import learn_pairs, own_pairs
from tedtrajrec.methods.past.passed import Ends
from tedtrajrec.methods.past.visits import Visits
from tests.methods.past.test_pairs import N_SEGMENTS, made

COST = np.full(N_SEGMENTS, 20.0)
PAST = made(
    [(0, 0, 10), (1, 20, 30), (2, 40, 50)],
    [(0, 0, 10), (1, 30, 40), (2, 50, 60)],
    [(4, 0, 10), (1, 15, 30)],
)


def history(left_out: Visits | None = None) -> History:
    nothing = made()
    own = own_pairs(nothing if left_out is None else left_out, 900.0)
    return History(learn_pairs(PAST, N_SEGMENTS), own, left_out is not None)


def two_fixes(weight: float = 0.5) -> Ends:
    """Return a fix on segment 0 or 4, a quarter along, and one on segment 2, in the middle."""
    none = np.zeros(3)
    return Ends(
        np.array([0, 2, 3]),
        np.array([0, 4, 2], np.int32),
        np.array([0.25, 0.25, 0.5]),
        none,
        none,
        np.array([1 - weight, weight, 1.0]),
        np.full(3, -1),
        none,
    )


def spread(took: float, deviations: float, trips: int) -> float:
    return (deviations + 2 * (10 + 0.25 * took) ** 2) / (trips + 2)


def told(past: History, trip: int, ends: Ends, fix: int, later: bool, segments: list[int]) -> np.ndarray:
    out = np.full((len(segments), 4), np.nan)
    between(past, trip, ends, fix, later, COST, np.array(segments, np.int32), out)
    return out[:, [TRIPS, MEAN_S, SD_S]]


def test_trips_from_the_earlier_fix() -> None:
    out = told(history(), 0, two_fixes(), 0, False, [1, 2, 3])
    # From 0 two trips took 10 and 20 s to 1, from 4 one took 5 s; three quarters of 20 s come before.
    assert out[0, TRIPS] == pytest.approx(0.5 * 2 + 0.5 * 1)
    mean = (2 * 30 + 20) / 3
    assert out[0, MEAN_S] == pytest.approx(mean)
    variance = (2 * spread(15, 50, 2) + spread(5, 0, 1)) / 3 + (2 * 30**2 + 20**2) / 3 - mean**2
    assert out[0, SD_S] == pytest.approx(np.sqrt(variance))
    assert out[1, TRIPS] == pytest.approx(1.0)  # nobody drove from 4 to 2
    assert out[2].tolist() == [0, 0, 0]


def test_trips_to_the_later_fix() -> None:
    out = told(history(), 0, two_fixes(), 1, True, [1, 0, 3])
    assert out[0] == pytest.approx([2, 10 + 10, np.sqrt(spread(10, 0, 2))])
    assert out[1, :2] == pytest.approx([2, 35 + 10])
    assert out[2].tolist() == [0, 0, 0]


def test_unlikely_ends_are_not_asked() -> None:
    out = told(history(), 0, two_fixes(0.99 * LIKELY), 0, False, [1])
    assert out[0, :2] == pytest.approx([2 * (1 - 0.99 * LIKELY), 30])


def test_a_trip_left_out_of_the_ways() -> None:
    past = history(PAST.select(np.array([2, 1])))
    out = told(past, 1, two_fixes(), 0, False, [1])
    assert out[0, :2] == pytest.approx([0.5 + 0.5, (25 + 20) / 2])
    out = told(past, 0, two_fixes(), 0, False, [1])
    assert out[0, :2] == pytest.approx([1, 30])
    visits = np.zeros(2)
    count_visits(history(), 0, np.array([1, 2], np.int32), visits)
    assert visits.tolist() == [3, 2]
    count_visits(past, 0, np.array([1, 2], np.int32), visits)
    assert visits.tolist() == [2, 2]


@pytest.mark.parametrize("left_out", [False, True])
def test_trips_that_joined_two_fixes(left_out: bool) -> None:
    past = history(PAST.select(np.array([1])) if left_out else None)
    trips, took = (1, 30.0) if left_out else (2, 35.0)
    out = np.zeros((2, 2))
    joining(past, 0, two_fixes(), 0, 1, 50.0, COST, out)
    off = (50 - took - 15 - 10) / (15 + 0.25 * 50)
    assert out[0, ALL] == pytest.approx(trips)
    assert out[0, FITTING] == pytest.approx(trips * np.exp(-0.5 * off**2))
    assert out[1].tolist() == [0, 0]
    joining(past, 0, two_fixes(), 1, 0, 50.0, COST, out)
    assert out[0] == pytest.approx([trips * 0.5 * np.exp(-0.5 * off**2), trips * 0.5])
