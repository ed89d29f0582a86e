"""Past trips as pieces: where each was at any time, and who passed a position."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.past.history import (
    RATIO,
    History,
    find_passes,
    history_state,
    make_history,
    no_history,
    order_of_past,
    position_at,
    restored_history,
)
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, concat_trips
from tests.conftest import make_grid
from tests.methods.past.test_drives import steps
from tests.trips.test_match import path

MANY = 10**6
GRID = make_grid()
CITY = synthetic_city(size="small")


def history_of(*trips: Trips, network: RoadNetwork = GRID, most_visits: int = MANY) -> tuple[History, Trips]:
    """Return a history and its trips in its own order."""
    whole = concat_trips(list(trips))
    return make_history(network, whole, most_visits=most_visits), whole.select(order_of_past(whole))


def test_a_piece_for_each_step_and_each_segment_entered() -> None:
    a, b, c = path(GRID, (0, 0), (1, 0), (2, 0), (2, 1))
    history, _ = history_of(steps((a, 0.5), (c, 0.5), (c, 0.5), (c, 0.4)))
    assert history.segment.tolist() == [a, b, c, c, c, c]
    np.testing.assert_allclose(history.low / RATIO, [0.5, 0, 0, 0.5, 0.5, 0.4], atol=1e-4)
    np.testing.assert_allclose(history.high / RATIO, [1, 1, 0.5, 0.5, 0.5, 0.4], atol=1e-4)
    np.testing.assert_allclose(history.time, [0, 2.5, 7.5, 10, 20, 30], atol=0.02)
    assert history.offset.tolist() == [0, 6]


def test_unknown_steps_and_leaps_change_half_way() -> None:
    a, far = path(GRID, (0, 0), (1, 0))[0], path(GRID, (4, 5), (5, 5))[0]
    history, _ = history_of(steps((a, 0.2), (-1, np.nan), (a, 0.9), (far, 0.5)))
    where = [position_at(history, 0, t)[1] for t in (0, 4.9, 5.1, 10, 14.9, 15.1, 24.9, 25.1, 30)]
    assert where == [a, a, -1, -1, -1, a, a, far, far]
    assert (np.diff(history.time) >= 0).all()
    assert -1 not in history.segment[history.visit]


@pytest.mark.parametrize("seed", [0, 1])
def test_at_its_steps_a_past_trip_is_where_it_was(seed: int) -> None:
    history, trips = history_of(simulate_trips(CITY, trips=30, step_s=15, seed=seed), network=CITY)
    assert trips.segment is not None
    assert trips.ratio is not None
    for k in range(len(trips)):
        piece = int(history.offset[k])
        for i in range(trips.offsets[k], trips.offsets[k + 1]):
            piece, segment, ratio = position_at(history, piece, float(trips.time[i] - trips.time[trips.offsets[k]]))
            at_end = trips.ratio[i] == 1 and ratio == 0  # the end of a segment and the start of the next are one place
            assert segment == trips.segment[i] or at_end
            assert at_end or abs(ratio - trips.ratio[i]) <= 1 / RATIO


def naive_passes(history: History, segment: int, ratio: float, near_m: float, length: float) -> list[list[float]]:
    """Return trip, seconds and weight of all passes of a position, piece by piece."""
    found = []
    at = ratio * RATIO
    for p in np.flatnonzero(history.segment == segment).tolist():
        trip = int(history.trip[p])
        first, stop = history.offset[trip], history.offset[trip + 1]
        low, high = int(history.low[p]), int(history.high[p])
        ends = history.time[p + 1] if p + 1 < stop else history.time[p]
        came = p > first and history.segment[p - 1] == segment and history.high[p - 1] == low
        went = p + 1 < stop and history.segment[p + 1] == segment and history.low[p + 1] == high
        if low <= at < high:
            found.append([trip, history.time[p] + (ends - history.time[p]) * (at - low) / (high - low), 1.0])
            continue
        if at < low and low > 0 and not came:
            away, when = low - at, history.time[p]
        elif at >= high and high < RATIO and not went:
            away, when = at - high, ends if high > low else history.time[p]
        else:
            continue
        z = away / RATIO * length / near_m
        if z <= 3:
            found.append([trip, when, np.exp(-0.5 * z**2)])
    return found


SIMULATED = history_of(simulate_trips(CITY, trips=60, step_s=15, seed=3), network=CITY)[0]


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(np.unique(SIMULATED.segment).tolist()), st.floats(0, 1)), min_size=1, max_size=4
    ),
    st.sampled_from([5.0, 40.0, 200.0]),
    st.integers(-1, 20),
)
def test_passes_as_counted_one_by_one(places: list[tuple[int, float]], near_m: float, left_out: int) -> None:
    segment, ratio = np.array([s for s, _ in places], np.int32), np.array([r for _, r in places])
    passes = find_passes(SIMULATED, segment, ratio, CITY.length_m, near_m, left_out)
    for c, (s, r) in enumerate(places):
        expected = [row for row in naive_passes(SIMULATED, s, r, near_m, CITY.length_m[s]) if row[0] != left_out]
        here = slice(passes.offset[c], passes.offset[c + 1])
        assert (passes.place[here] == c).all()
        found = np.column_stack([SIMULATED.trip[passes.piece[here]], passes.time[here], passes.weight[here]])
        np.testing.assert_allclose(found, np.array(expected).reshape(-1, 3), atol=1e-4)


def test_the_sample_of_a_busy_segment_is_part_of_every_other() -> None:
    trips = simulate_trips(CITY, trips=300, step_s=15, seed=4)
    whole, capped = (history_of(trips, network=CITY, most_visits=most)[0] for most in (MANY, 20))
    assert np.diff(whole.visit_offset).max() > 40
    assert np.diff(capped.visit_offset).max() == 20
    last = np.full(CITY.n_segments, -1)
    for s in range(CITY.n_segments):
        kept = capped.visit[capped.visit_offset[s] : capped.visit_offset[s + 1]]
        assert kept.tolist() == whole.visit[whole.visit_offset[s] : whole.visit_offset[s + 1]][: len(kept)].tolist()
        if len(kept) == 20:
            last[s] = capped.trip[kept[-1]]
    assert (last[last >= 0] < len(trips) - 1).any()  # trips that come later are forgotten, and others are not


def test_the_order_of_trips_does_not_matter() -> None:
    trips = simulate_trips(CITY, trips=20, step_s=15, seed=5)
    one = make_history(CITY, trips, most_visits=MANY)
    two = make_history(CITY, trips.select(np.arange(20)[::-1]), most_visits=MANY)
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_state_and_back() -> None:
    again = restored_history(history_state(SIMULATED), CITY.n_segments, MANY)
    for a, b in zip(SIMULATED, again, strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_no_trips() -> None:
    history = no_history(GRID.n_segments)
    passes = find_passes(history, np.array([3], np.int32), np.array([0.5]), GRID.length_m, 50.0, -1)
    assert len(passes.piece) == 0
    empty = make_history(GRID, steps((0, 0.5)).select(np.zeros(0, np.int64)), most_visits=MANY)
    assert [a.shape for a in empty] == [a.shape for a in history]


def test_trips_without_positions() -> None:
    with pytest.raises(ValueError, match="no positions"):
        make_history(GRID, Trips.from_columns(["a"], [0], [0.0], [0.0]), most_visits=MANY)
