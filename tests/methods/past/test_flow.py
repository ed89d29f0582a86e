"""Flow and traffic of past trips against plain loops."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.data.clock import minute_of_day
from tedtrajrec.methods.past.flow import flow_of, no_flow, traffic_of
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.cells import cells_over
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, as_text


def driven(paths: list[list[int]]) -> Trips:
    steps = sum(map(len, paths))
    return Trips(
        traj_id=as_text(np.arange(len(paths))),
        offsets=np.cumsum([0, *map(len, paths)]),
        time=np.arange(steps) * 15,
        lon=np.zeros(steps),
        lat=np.zeros(steps),
        segment=np.array([segment for path in paths for segment in path], np.int32),
        ratio=np.zeros(steps),
    )


@settings(max_examples=50)
@given(st.lists(st.lists(st.integers(-1, 5), min_size=1, max_size=8), min_size=1, max_size=6))
def test_flow_counts_steps_from_segment_to_segment(paths: list[list[int]]) -> None:
    flow = flow_of(driven(paths), 6)
    expected = Counter((a, b) for path in paths for a, b in itertools.pairwise(path) if a >= 0 and b >= 0)
    source = np.repeat(np.arange(6), np.diff(flow.offset))
    pairs = zip(source.tolist(), flow.segment.tolist(), flow.trips.tolist(), strict=True)
    assert {(a, b): count for a, b, count in pairs} == expected
    table = flow.padded()
    for e in range(6):
        assert set(table[e].tolist()) == {e} | {b for a, b in expected if a == e}
    edges = Counter(zip(*flow.edges(16).tolist(), strict=True))
    for (a, b), times in edges.items():
        most = max(count for (c, d), count in expected.items() if c == a and d != a)
        assert times == np.ceil(16 * expected[a, b] / most)
    assert edges.keys() == {(a, b) for a, b in expected if a != b}


def test_no_trips_no_flow() -> None:
    assert no_flow(3).padded().tolist() == [[0], [1], [2]]
    assert no_flow(3).edges(16).shape == (2, 0)


def test_traffic_counts_entries_by_hour_and_cell() -> None:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=30, step_s=60, seed=3)
    assert trips.segment is not None
    assert trips.ratio is not None
    trips.segment.setflags(write=True)
    trips.segment[::17] = -1
    minute = minute_of_day(trips.time, "Europe/Berlin")
    xy = np.stack(city.geom_xy, axis=-1)
    cells = cells_over(xy, np.ptp(xy, axis=0).max() / 8)
    assert max(cells.rows, cells.columns) == 8
    expected = np.zeros((24, cells.rows, cells.columns))
    for first, end in zip(trips.offsets[:-1], trips.offsets[1:], strict=True):
        before = None
        for i in range(first, end):
            if trips.segment[i] < 0:
                continue
            x, y = (float(part) for part in city.plane.to_xy(*city.point_at(trips.segment[i], trips.ratio[i])))
            row, column = (y - cells.y) // cells.size, (x - cells.x) // cells.size
            here = (
                int(minute[i] // 60),
                min(max(int(row), 0), cells.rows - 1),
                min(max(int(column), 0), cells.columns - 1),
            )
            if here != before:
                expected[here] += 1
            before = here
    most = expected.max(axis=(1, 2), keepdims=True)
    assert (most == 0).any()
    np.testing.assert_allclose(traffic_of(trips, minute, city, cells), expected / np.maximum(most, 1), rtol=1e-6)


def test_unmatched_trips_are_refused() -> None:
    trips = Trips(as_text(np.arange(1)), np.array([0, 1]), np.zeros(1, np.int64), np.zeros(1), np.zeros(1))
    with pytest.raises(ValueError, match="segments"):
        flow_of(trips, 3)
