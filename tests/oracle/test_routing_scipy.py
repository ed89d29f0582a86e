"""Routing against scipy and networkx, on graphs in which every position is a node of its own.

The oracles' graph has two nodes for each segment, its start and its end, and one for each position on it, joined in
driving order; the end of a segment joins the starts of its successors at no cost. So it knows nothing of the rules by
which the router puts distances together.
"""

import dataclasses

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tedtrajrec.network import turns
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.network.test_routing import assert_valid, forbidden, make_roads, random_positions


def position_graph(network, segment, ratio, cost):
    """Return edges (from, to, cost) of the graph; position i is node i, then come the starts, then the ends."""
    n, s = len(segment), len(network)
    start, end = n + np.arange(s), n + s + np.arange(s)
    owner = np.concatenate([segment, np.arange(s), np.arange(s)])
    where = np.concatenate([ratio, np.zeros(s), np.ones(s)])
    kind = np.concatenate([np.ones(n), np.zeros(s), np.full(s, 2)])  # a position at ratio 0 lies behind the start
    order = np.lexsort([kind, where, owner])
    before, after = order[:-1], order[1:]
    same = owner[before] == owner[after]
    before, after = before[same], after[same]
    piece = (where[after] - where[before]) * cost[owner[before]]
    turn_from = np.repeat(end, np.diff(network.succ_offset))
    turn_to = start[network.succ]
    return (
        np.concatenate([before, turn_from]),
        np.concatenate([after, turn_to]),
        np.concatenate([piece, np.zeros(len(turn_from))]),
    )


def scipy_distances(network, seg_a, ratio_a, seg_b, ratio_b, *, limit=np.inf, cost=None):
    k = len(seg_a)
    segment, ratio = np.concatenate([seg_a, seg_b]), np.concatenate([ratio_a, ratio_b])
    before, after, weight = position_graph(network, segment, ratio, network.length_m if cost is None else cost)
    n = 2 * k + 2 * len(network)
    graph = csr_array((weight, (before, after)), shape=(n, n))
    rows = [dijkstra(graph, indices=np.arange(i, min(i + 100, k)), limit=limit)[:, k : 2 * k] for i in range(0, k, 100)]
    return np.diagonal(np.concatenate(rows))


def near_pairs(network, n, seed, radius_m=2500):
    """Return random pairs of positions whose segments start within ``radius_m`` of each other."""
    seg_a, ratio_a, seg_b, ratio_b = random_positions(network, n, seed)
    x, y = network.plane.to_xy(network.node_lon[network.seg_from], network.node_lat[network.seg_from])
    rng = np.random.default_rng(seed)
    for k, a in enumerate(seg_a):
        seg_b[k] = rng.choice(np.flatnonzero(np.hypot(x - x[a], y - y[a]) < radius_m))
    return seg_a, ratio_a, seg_b, ratio_b


def assert_equal_to_scipy(network, positions, *, limit=np.inf, cost=None):
    router = Router(network, cost=cost)
    expected = scipy_distances(network, *positions, limit=limit, cost=cost)
    # The oracle adds up in another order: it may differ by rounding, and at the very limit in its verdict.
    np.testing.assert_allclose(router.distances(*positions, limit_m=limit), expected, rtol=1e-9, atol=1e-6)
    routes = router.routes(*positions, limit_m=limit)
    np.testing.assert_allclose(routes.cost, expected, rtol=1e-9, atol=1e-6)
    assert_valid(routes, network, positions[0], positions[2])
    return expected


def test_a_grid_with_many_forbidden_turns():
    network = make_grid(15, 15, forbidden_turns=forbidden(make_grid(15, 15), share=0.3))
    expected = assert_equal_to_scipy(network, random_positions(network, 1000, seed=1))
    free = Router(make_grid(15, 15)).distances(*random_positions(network, 1000, seed=1))
    assert (expected > free + 1).mean() > 0.3  # the restrictions matter


def test_a_grid_by_travel_time():
    network = make_grid(15, 15)
    seconds = network.length_m / np.random.default_rng(2).uniform(3, 30, len(network))
    expected = assert_equal_to_scipy(network, random_positions(network, 1000, seed=2), limit=60.0, cost=seconds)
    assert 0.3 < np.isfinite(expected).mean() < 0.95


@pytest.mark.real
def test_porto(porto):
    expected = assert_equal_to_scipy(porto, near_pairs(porto, 1000, seed=3), limit=3000.0)
    assert 0.4 < np.isfinite(expected).mean() < 0.9


@pytest.mark.real
def test_porto_without_limit(porto):
    expected = assert_equal_to_scipy(porto, random_positions(porto, 100, seed=4))
    assert np.nanmax(expected[np.isfinite(expected)]) > 5000


@pytest.mark.real
def test_chengdu_where_many_pairs_have_no_route(chengdu):
    expected = assert_equal_to_scipy(chengdu, random_positions(chengdu, 1000, seed=5))
    assert 0.3 < np.isinf(expected).mean() < 0.7


def all_turns(network):
    source = np.repeat(np.arange(len(network)), np.diff(network.succ_offset))
    return zip(source.tolist(), network.succ.tolist(), strict=True)


@pytest.mark.real
def test_an_extract_with_turn_restrictions(peers_dir):
    network = RoadNetwork.from_osm(peers_dir / "porto500" / "network.osm.pbf")
    expected = assert_equal_to_scipy(network, random_positions(network, 1000, seed=6), limit=3000.0)
    assert np.isfinite(expected).mean() > 0.3

    offset, succ = turns.connect(network.seg_from, network.seg_to, network.twin, u_turns=False)
    unrestricted = dataclasses.replace(network, succ_offset=offset, succ=succ)
    seg_a, seg_b = np.array(sorted(set(all_turns(unrestricted)) - set(all_turns(network)))).T
    assert len(seg_a) >= 20
    assert (Router(unrestricted).distances(seg_a, 1.0, seg_b, 0.0) == 0).all()
    routes = Router(network).routes(seg_a, 1.0, seg_b, 0.0)
    round_about = np.isfinite(routes.distance_m)
    assert round_about.mean() > 0.5
    assert (routes.distance_m[round_about] > 10).all()
    assert (np.diff(routes.offsets)[round_about] > 2).all()
    assert_valid(routes, network, seg_a, seg_b)


@pytest.mark.real
def test_many_to_many_on_porto(porto):
    rng = np.random.default_rng(7)
    x, y = porto.plane.to_xy(porto.node_lon[porto.seg_from], porto.node_lat[porto.seg_from])
    seg_a, ratio_a = rng.choice(np.flatnonzero(np.hypot(x, y) < 1000), 12), rng.random(12)
    seg_b, ratio_b = rng.choice(np.flatnonzero(np.hypot(x - 800, y) < 1000), 90), rng.random(90)
    seg_b[:6] = seg_a[:6]
    a, b = np.indices((12, 90)).reshape(2, -1)
    expected = scipy_distances(porto, seg_a[a], ratio_a[a], seg_b[b], ratio_b[b], limit=2000.0).reshape(12, 90)
    matrix = Router(porto).many_to_many(seg_a, ratio_a, seg_b, ratio_b, limit_m=2000.0)
    np.testing.assert_allclose(matrix, expected, rtol=1e-9, atol=1e-6)
    assert 0.2 < np.isfinite(expected).mean() < 1


@st.composite
def networks(draw):
    """Draw small networks: few points, of which some coincide, so that parallels, loops and zero lengths are common."""
    points = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=6))
    point = st.integers(0, len(points) - 1)
    lines = draw(st.lists(st.lists(point, min_size=2, max_size=4), min_size=1, max_size=12))
    u_turns, two_way, share = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([0.0, 0.2, 0.5]))
    metres = np.array(points) * 100.0
    network = make_roads(metres, lines, two_way=two_way, u_turns=u_turns)
    closed = forbidden(network, share, seed=draw(st.integers(0, 9)))
    return make_roads(metres, lines, two_way=two_way, u_turns=u_turns, forbidden_turns=closed)


RATIOS = st.sampled_from([0.0, 0.25, 0.5, 1.0])
PACES = st.sampled_from([0.0, 0.3, 1.1, 5.0])


@settings(max_examples=300, deadline=None)
@given(networks(), st.data())
def test_any_small_network_agrees_with_networkx(network, data):
    segments = st.integers(0, len(network) - 1)
    pairs = data.draw(st.lists(st.tuples(segments, RATIOS, segments, RATIOS), min_size=1, max_size=6))
    limit = data.draw(st.sampled_from([np.inf, 150.0, 600.0]))
    pace = data.draw(st.one_of(st.none(), st.lists(PACES, min_size=len(network), max_size=len(network))))
    cost = network.length_m if pace is None else network.length_m * pace
    expected = []
    for a, ratio_a, b, ratio_b in pairs:
        edges = position_graph(network, np.array([a, b]), np.array([ratio_a, ratio_b]), cost)
        graph = networkx.DiGraph()
        graph.add_weighted_edges_from(zip(*(column.tolist() for column in edges), strict=True))
        expected.append(networkx.single_source_dijkstra_path_length(graph, 0).get(1, np.inf))
    expected = np.where(np.array(expected) <= limit, expected, np.inf)

    positions = tuple(np.array(column) for column in zip(*pairs, strict=True))
    router = Router(network, cost=None if pace is None else cost)
    np.testing.assert_allclose(router.distances(*positions, limit_m=limit), expected, atol=1e-6)
    np.testing.assert_allclose(np.diagonal(router.many_to_many(*positions, limit_m=limit)), expected, atol=1e-6)
    routes = router.routes(*positions, limit_m=limit)
    np.testing.assert_allclose(routes.cost, expected, atol=1e-6)
    assert_valid(routes, network, positions[0], positions[2])
