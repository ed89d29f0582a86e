"""Step grids and fixes on them, against plain loops over fixes."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.data.preparing.grid import bracket, fixes_on_grid, step_grid
from tedtrajrec.trips.table import Trips

START = 1_700_000_000


def trips_at(*times: list[int]) -> Trips:
    """Return trips with fixes at the given seconds; fix i of all lies at lon i / 100, lat -i / 100."""
    offsets = np.cumsum([0, *map(len, times)])
    number = np.arange(offsets[-1])
    return Trips(
        np.array([str(i) for i in range(len(times))]),
        offsets.astype(np.int64),
        START + np.array([t for trip in times for t in trip], np.int64),
        number / 100,
        number / -100,
    )


some_times = st.lists(
    st.lists(st.integers(0, 200), min_size=1, max_size=12, unique=True).map(sorted), min_size=1, max_size=5
)


def test_regular_fixes_are_the_grid() -> None:
    trips = trips_at([0, 15, 30], [7, 22, 37, 52])
    grid = step_grid(trips, 15)
    assert grid.time.tolist() == trips.time.tolist()
    lon, lat = fixes_on_grid(trips, grid, 22.5)
    assert lon.tolist() == trips.lon.tolist()
    assert lat.tolist() == trips.lat.tolist()


def test_most_fixes_decide_the_phase_and_the_first_of_equals() -> None:
    assert (step_grid(trips_at([4, 15, 30, 45]), 15).time - START).tolist() == [15, 30, 45]
    assert (step_grid(trips_at([4, 15, 19, 30]), 15).time - START).tolist() == [4, 19]


@given(some_times, st.integers(1, 40))
def test_the_grid_of_any_trips(times: list[list[int]], step: int) -> None:
    trips = trips_at(*times)
    grid = step_grid(trips, step)
    for i, mine in enumerate(times):
        steps = (grid.time[grid.offsets[i] : grid.offsets[i + 1]] - START).tolist()
        assert steps
        assert np.diff(steps).tolist() == [step] * (len(steps) - 1)
        assert mine[0] <= steps[0] < mine[0] + step
        assert mine[-1] - step < steps[-1] <= mine[-1]
        residues = Counter(t % step for t in mine)
        assert residues[steps[0] % step] == max(residues.values())


@given(some_times, st.integers(1, 40), st.floats(0, 60))
def test_fixes_of_any_trips(times: list[list[int]], step: int, gap: float) -> None:
    trips = trips_at(*times)
    grid = step_grid(trips, step)
    lon, lat = fixes_on_grid(trips, grid, gap)
    before, after = bracket(trips, grid)
    k = 0
    for i, mine in enumerate(times):
        first = int(trips.offsets[i])
        for t in (grid.time[grid.offsets[i] : grid.offsets[i + 1]] - START).tolist():
            b = max(j for j, s in enumerate(mine) if s <= t)
            a = min(j for j, s in enumerate(mine) if s >= t)
            assert (before[k], after[k]) == (first + b, first + a)
            expected = np.nan
            if a == b:
                expected = (first + b) / 100
            elif mine[a] - mine[b] <= gap:
                expected = (first + b + (t - mine[b]) / (mine[a] - mine[b])) / 100
            assert lon[k] == pytest.approx(expected, nan_ok=True)
            assert lat[k] == pytest.approx(-expected, nan_ok=True)
            k += 1
    assert k == len(grid.time)


@given(some_times, st.data())
@settings(max_examples=50)
def test_only_usable_fixes_are_found(times: list[list[int]], data: st.DataObject) -> None:
    trips = trips_at(*times)
    usable = np.array(data.draw(st.lists(st.booleans(), min_size=trips.n_fixes, max_size=trips.n_fixes)))
    grid = step_grid(trips, 10)
    before, after = bracket(trips, grid, usable)
    fixes = np.arange(trips.n_fixes)
    for k, (trip, time) in enumerate(zip(grid.trip, grid.time, strict=True)):
        mine = usable & (trips.trip_of_fix == trip)
        assert before[k] == max(fixes[mine & (trips.time <= time)], default=-1)
        assert after[k] == min(fixes[mine & (trips.time >= time)], default=-1)


def test_of_two_fixes_at_one_time_no_mixture_is_made() -> None:
    trips = trips_at([0, 15, 15, 30])
    lon, _ = fixes_on_grid(trips, step_grid(trips, 15), 22.5)
    assert lon[1] in (0.01, 0.02)
