"""Rows between knots: exact at knots, at constant speed between them, and breaks where nobody can have driven."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.rows import Knots, around, find_breaks, row_times, rows_from
from tests.conftest import make_grid
from tests.evaluation.drive_checker import NetworkxGaps, check_trip

CITY = make_grid()
ROUTER = Router(CITY)
GAPS = NetworkxGaps(CITY)


def knots(times: list[float], segment: list[int], ratio: list[float]) -> Knots:
    """Return the knots of one stretch, all certain."""
    n = len(times)
    return Knots(np.array([0, n]), np.array(times, float), np.array(segment, np.int32), np.array(ratio), np.ones(n))


def test_rows_are_a_step_apart_and_the_end_is_one() -> None:
    offsets, time = row_times(np.array([100, 7, 50]), np.array([130, 40, 51]), 15)
    assert offsets.tolist() == [0, 3, 7, 9]
    assert time.tolist() == [100, 115, 130, 7, 22, 37, 40, 50, 51]


times = st.lists(st.floats(0, 50), min_size=1, max_size=6, unique=True).map(sorted)


@given(st.lists(st.tuples(times, st.lists(st.integers(-5, 55), max_size=6).map(sorted)), min_size=1, max_size=4))
@settings(max_examples=150)
def test_the_knots_around(stretches: list[tuple[list[float], list[int]]]) -> None:
    knot_offsets = np.cumsum([0, *(len(k) for k, _ in stretches)])
    offsets = np.cumsum([0, *(len(t) for _, t in stretches)])
    knot_time = np.array([t for k, _ in stretches for t in k], float)
    time = np.array([t for _, asked in stretches for t in asked], np.int64)
    before, after = around(knot_offsets, knot_time, offsets, time)
    place = 0
    for first, (mine, asked) in zip(knot_offsets, stretches, strict=False):
        for t in asked:
            low = max([i for i, k in enumerate(mine) if k <= t], default=0)
            high = min([i for i, k in enumerate(mine) if k >= t], default=len(mine) - 1)
            assert (before[place] - first, after[place] - first) == (low, high)
            place += 1


def test_at_knots_rows_are_theirs() -> None:
    made = knots([0, 15, 30], [0, 2, 3], [0.123456789, 0.5, 0.25])._replace(probability=np.array([0.5, np.nan, 1]))
    rows = rows_from(ROUTER, made, np.array([0, 3]), np.array([0, 15, 30]))
    np.testing.assert_array_equal(rows.segment, made.segment)
    np.testing.assert_array_equal(rows.ratio, made.ratio)
    np.testing.assert_array_equal(rows.probability, made.probability)


@given(st.integers(0, len(CITY) - 1), st.integers(0, 4), st.floats(0, 1), st.floats(0, 1), st.integers(8, 100))
@settings(max_examples=100)
def test_between_knots_the_speed_is_constant(segment: int, moves: int, start: float, end: float, seconds: int) -> None:
    there = segment
    for _ in range(moves):
        there = int(CITY.successors(there)[-1])
    way = ROUTER.distances(segment, start, there, end)[0]
    assume(way <= 40 * seconds)
    assume(segment != there or start <= end)
    made = knots([0, seconds], [segment, there], [start, end])
    asked = np.arange(seconds + 1)
    rows = rows_from(ROUTER, made, np.array([0, len(asked)]), asked)
    driven = ROUTER.distances(segment, start, rows.segment, rows.ratio)
    np.testing.assert_allclose(driven, way * asked / seconds, atol=1e-6)


def test_a_row_is_as_sure_as_the_less_sure_of_its_knots() -> None:
    made = knots([0, 10, 20], [0, 0, 0], [0.1, 0.2, 0.3])._replace(probability=np.array([0.9, 0.4, np.nan]))
    rows = rows_from(ROUTER, made, np.array([0, 4]), np.array([0, 5, 10, 15]))
    np.testing.assert_array_equal(rows.probability, [0.9, 0.4, 0.4, np.nan])


def test_in_a_break_the_nearest_knot_counts() -> None:
    far = int(np.argmax(ROUTER.distances(0, 0.5, np.arange(len(CITY)), 0.5)))
    made = knots([0, 10], [0, far], [0.5, 0.5])  # some 900 m in 10 s
    rows = rows_from(ROUTER, made, np.array([0, 5]), np.array([0, 4, 5, 6, 10]))
    assert rows.segment.tolist() == [0, 0, 0, far, far]
    assert (rows.ratio == 0.5).all()


def test_a_little_back_is_standing_and_more_is_a_break() -> None:
    made = knots([0, 10, 20], [0, 0, 0], [0.5, 0.495, 0.3])  # 0.5 m, then 20 m
    rows = rows_from(ROUTER, made, np.array([0, 5]), np.array([0, 5, 10, 15, 20]))
    assert rows.ratio[:3].tolist() == pytest.approx([0.5, 0.4975, 0.495])
    starts = np.arange(5) == 0
    assert find_breaks(ROUTER, starts, rows.time, rows.segment, rows.ratio).tolist() == [False] * 4 + [True]


def test_outside_the_knots_the_first_and_the_last_count() -> None:
    made = knots([15, 30], [0, 0], [0.2, 0.4])
    rows = rows_from(ROUTER, made, np.array([0, 4]), np.array([0, 15, 30, 45]))
    assert rows.ratio.tolist() == [0.2, 0.2, 0.4, 0.4]


@given(st.lists(st.tuples(st.integers(0, len(CITY) - 1), st.floats(0, 1)), min_size=1, max_size=8))
@settings(max_examples=100)
def test_breaks_are_those_of_the_checker(positions: list[tuple[int, float]]) -> None:
    segment, ratio = np.array([s for s, _ in positions]), np.array([r for _, r in positions])
    n = len(segment)
    broken = find_breaks(ROUTER, np.arange(n) == 0, np.arange(n) * 15, segment.astype(np.int32), ratio)
    verdict = check_trip(CITY, GAPS, segment, ratio, [None] * n, step_s=15, top_speed_mps=40.0)
    assert broken.sum() == verdict.breaks + verdict.backward
