"""Ways between segments against scipy's shortest paths, on random networks with turn rules and with few labels."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.matching.ways import (
    FEW,
    GRAIN,
    Roads,
    Scratch,
    aim,
    find_ways,
    new_roads,
    new_scratch,
    roads_of,
    trace_way,
)
from tests.conftest import make_grid

Floats = NDArray[np.float64]

CITY = make_grid()
NO_LABELS, ALL_LABELS = 1, 1 << 20  # entries of a label


def build(
    rng: np.random.Generator, xy: Floats, roads: list[tuple[int, int, bool]], *, u_turns: bool, forbidden: float
) -> RoadNetwork:
    """Return a network of nodes at ``xy`` (0 to 1) and roads, each with a bend; a share of all turns is forbidden."""
    lon, lat = (np.array([-8.63, 41.14]) + 0.02 * xy).T
    ends, lines = [], []
    for a, b, two_way in roads:
        line = np.array([[lon[a], lat[a]], [(lon[a] + lon[b]) / 2, (lat[a] + lat[b]) / 2], [lon[b], lat[b]]])
        line[1] += rng.uniform(-0.002, 0.002, 2)
        ends.append((a, b))
        lines.append(line)
        if two_way and a != b:
            ends.append((b, a))
            lines.append(line[::-1])
    start, end = np.array(ends).T
    turns = np.argwhere(end[:, None] == start)
    vertices = np.concatenate(lines)
    return RoadNetwork.build(
        node_lon=lon,
        node_lat=lat,
        node_id=np.arange(len(lon)),
        seg_from=start,
        seg_to=end,
        road_class=np.full(len(start), 11),
        speed_mps=rng.uniform(3, 30, len(start)),
        geom_offset=3 * np.arange(len(start) + 1),
        geom_lon=vertices[:, 0],
        geom_lat=vertices[:, 1],
        u_turns=u_turns,
        forbidden_turns=turns[rng.random(len(turns)) < forbidden],
    )


@st.composite
def networks(draw: st.DrawFn) -> RoadNetwork:
    """Draw a small network: one-way and two-way roads, parallel ones, loops, forbidden turns, several parts."""
    n_nodes = draw(st.integers(2, 9))
    node = st.integers(0, n_nodes - 1)
    roads = draw(st.lists(st.tuples(node, node, st.booleans()), min_size=2, max_size=16))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    forbidden = draw(st.sampled_from([0.0, 0.2]))
    return build(rng, rng.random((n_nodes, 2)), roads, u_turns=draw(st.booleans()), forbidden=forbidden)


def make_town(seed: int) -> RoadNetwork:
    """Return a network of 120 nodes, each joined to its nearest ones, where many ways compete."""
    rng = np.random.default_rng(seed)
    xy = rng.random((120, 2))
    distance = np.hypot(*(xy[:, None] - xy).T)
    nearest = np.argsort(distance, axis=1)[:, 1:5]
    roads = {(min(a, b), max(a, b)) for a in range(len(xy)) for b in nearest[a].tolist()}
    return build(rng, xy, [(*r, bool(rng.random() < 0.7)) for r in sorted(roads)], u_turns=seed % 2 > 0, forbidden=0.1)


def cheapest(roads: Roads) -> Floats:
    """Return the cost from the end of each segment to the start of each, by scipy."""
    n = len(roads.length)
    source = np.repeat(np.arange(n), np.diff(roads.succ_offset))
    graph = csr_array((roads.cost[source] + roads.turn_cost, roads.succ, roads.succ_offset), shape=(n, n))
    between = dijkstra(graph)
    out = np.full((n, n), np.inf)
    np.minimum.at(out, source, roads.turn_cost[:, None] + between[roads.succ])
    return out


def ask(roads: Roads, scratch: Scratch, source: int, targets: list[int], room: list[float] | Floats) -> Floats:
    """Return metres and seconds of ways [targets, 2]; -1 where they were left as they were."""
    metres, seconds = np.full(len(targets), -1.0), np.full(len(targets), -1.0)
    goal = aim(roads, scratch, np.array(targets, np.int32))
    find_ways(roads, scratch, source, goal, np.array(room), metres, seconds)
    return np.column_stack([metres, seconds])


def drive(roads: Roads, scratch: Scratch, source: int, target: int) -> tuple[list[int], Floats]:
    """Return the segments of a way from source to target, both included, and its cost, metres and seconds."""
    out, size = trace_way(roads, scratch, source, target, np.empty(1, np.int32), 0)
    way = [source, *out[:size].tolist()]
    total = np.zeros(3)
    for a, b in itertools.pairwise(way):
        arc = roads.succ_offset[a] + np.flatnonzero(roads.succ[roads.succ_offset[a] : roads.succ_offset[a + 1]] == b)
        assert len(arc) == 1  # it can be driven
        total += [roads.turn_cost[arc[0]], roads.turn_cost[arc[0]], 0.0]
    for segment in way[1:-1]:
        total += [roads.cost[segment], roads.length[segment], roads.seconds[segment]]
    return way, total


@settings(max_examples=60)
@given(networks(), st.sampled_from([NO_LABELS, 2, 3, 5, ALL_LABELS]), st.sampled_from([0.0, 60.0]))
def test_ways_are_the_cheapest(network: RoadNetwork, most: int, u_turn_m: float) -> None:
    roads = new_roads(network, u_turn_m, 1.0, most)
    scratch = new_scratch(network.n_segments)
    everywhere = list(range(network.n_segments))
    for source, cost in enumerate(cheapest(roads)):
        found = ask(roads, scratch, source, everywhere, np.full(len(cost), np.inf))
        assert np.array_equal(np.isfinite(found).all(axis=1), np.isfinite(cost))
        # A way of exactly its room is found, one that is dearer by the least amount is not.
        exact = np.where(np.isfinite(cost), cost, 1e6)
        np.testing.assert_allclose(ask(roads, scratch, source, everywhere, exact), found, rtol=1e-12, atol=1e-9)
        less = ask(roads, scratch, source, everywhere, exact - GRAIN)
        assert (less[cost > 0] == np.inf).all()
        assert (less[cost == 0] == -1).all()
        for target in np.flatnonzero(np.isfinite(cost)):
            way, driven = drive(roads, scratch, source, int(target))
            assert way[-1] == target
            assert driven[0] == cost[target]
            np.testing.assert_allclose(found[target], driven[1:], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [NO_LABELS, 8, ALL_LABELS])
def test_ways_across_a_town(seed: int, most: int) -> None:
    town = make_town(seed)
    roads = new_roads(town, 40.0, 1.0, most)
    scratch = new_scratch(town.n_segments)
    everywhere = list(range(town.n_segments))
    assert len(everywhere) > FEW
    for source, cost in enumerate(cheapest(roads)):
        found = ask(roads, scratch, source, everywhere, cost.clip(max=1e6))
        assert np.array_equal(np.isfinite(found[:, 0]), np.isfinite(cost))
        less = ask(roads, scratch, source, everywhere, cost.clip(max=1e6) - GRAIN)[:, 0]
        assert (less[cost > 0] == np.inf).all()
        target = (7 * source) % len(everywhere)
        if np.isfinite(cost[target]):
            driven = drive(roads, scratch, source, target)[1]
            assert driven[0] == cost[target]
            np.testing.assert_allclose(found[target], driven[1:], rtol=1e-12, atol=1e-9)


segments = st.integers(0, CITY.n_segments - 1)
ROADS = new_roads(CITY, 0.0, 0.0)


@given(segments, st.lists(st.tuples(segments, st.floats(0, 1200)), min_size=1, max_size=6, unique_by=lambda t: t[0]))
def test_ways_equal_the_router(source: int, wanted: list[tuple[int, float]]) -> None:
    targets, room = [t for t, _ in wanted], [r + 0.37 for _, r in wanted]  # no way is exactly that long
    exact = Router(CITY).distances(source, 1.0, targets, 0.0)
    metres = ask(ROADS, new_scratch(CITY.n_segments), source, targets, room)[:, 0]
    np.testing.assert_allclose(metres, np.where(exact <= room, exact, np.inf), rtol=1e-5, atol=1e-9)


def test_a_u_turn_costs() -> None:
    network = make_grid(u_turns=True)
    dear = new_roads(network, 70.0, 0.0)
    scratch = new_scratch(network.n_segments)
    twin = int(network.twin[0])
    np.testing.assert_allclose(ask(dear, scratch, 0, [twin], [1000.0]), [[70.0, 0.0]], atol=1e-9)
    assert np.isinf(ask(dear, scratch, 0, [twin], [60.0])).all()


def test_a_network_is_prepared_once() -> None:
    network = make_grid(3, 3)
    assert roads_of(network, 0.0, 1.0) is roads_of(network, 0.0, 1.0)
    assert roads_of(network, 0.0, 1.0) is not roads_of(network, 9.0, 1.0)
    assert roads_of(network, 0.0, 1.0) is not roads_of(make_grid(3, 3), 0.0, 1.0)
