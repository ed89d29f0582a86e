"""Ways between segments against the router, with and without what is remembered."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.matching.ways import Roads, Scratch, find_ways, new_roads, new_scratch, trace_way
from tests.conftest import make_grid

CITY = make_grid()
ROADS = new_roads(CITY, 0.0, 0.0)
WARM = new_scratch(CITY.n_segments, len(CITY.succ))


def ask(roads: Roads, scratch: Scratch, source: int, targets: list[int], room: list[float]) -> np.ndarray:
    n = len(targets)
    metres, seconds = np.full(n, -1.0), np.full(n, -1.0)
    work = np.empty(n, np.int32), np.empty(n, np.int32), np.empty(n)
    find_ways(roads, scratch, source, np.array(targets, np.int32), np.array(room), metres, seconds, *work)
    return metres


segments = st.integers(0, CITY.n_segments - 1)


@given(segments, st.lists(st.tuples(segments, st.floats(0, 1200)), min_size=1, max_size=6, unique_by=lambda t: t[0]))
def test_ways_equal_the_router(source: int, wanted: list[tuple[int, float]]) -> None:
    targets, room = [t for t, _ in wanted], [r + 0.37 for _, r in wanted]  # no way is exactly that long
    exact = Router(CITY).distances(source, 1.0, targets, 0.0)
    expected = np.where(exact <= room, exact, np.inf)
    cold = ask(ROADS, new_scratch(CITY.n_segments, len(CITY.succ)), source, targets, room)
    np.testing.assert_allclose(cold, expected, rtol=1e-5)
    assert np.array_equal(cold, ask(ROADS, WARM, source, targets, room))
    assert np.array_equal(cold, ask(ROADS, WARM, source, targets, room))


@given(segments, segments)
def test_traced_ways_can_be_driven(source: int, target: int) -> None:
    metres = ask(ROADS, WARM, source, [target], [1e6])[0]
    if np.isinf(metres):
        return
    for scratch in (WARM, new_scratch(CITY.n_segments, len(CITY.succ))):
        out, size = trace_way(ROADS, scratch, source, target, np.empty(1, np.int32), 0)
        way = [source, *out[:size].tolist()]
        assert way[-1] == target
        assert all(b in CITY.successors(a) for a, b in itertools.pairwise(way))
        np.testing.assert_allclose(CITY.length_m[way[1:-1]].sum(), metres, rtol=1e-9, atol=1e-9)


def test_a_u_turn_costs() -> None:
    network: RoadNetwork = make_grid(u_turns=True)
    dear = new_roads(network, 70.0, 0.0)
    scratch = new_scratch(network.n_segments, len(network.succ))
    twin = int(network.twin[0])
    assert ask(dear, scratch, 0, [twin], [1000.0])[0] == 70.0
    assert np.isinf(ask(dear, scratch, 0, [twin], [60.0])[0])
