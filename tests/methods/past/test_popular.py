"""Popular routes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.links import find_links, with_links
from tedtrajrec.methods.past.popular import PopularRouter, count_turns
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import concat_trips
from tests.methods.past.test_drives import steps
from tests.methods.past.test_links import ends, island
from tests.trips.test_match import path


def test_turns_are_counted(tiny_city: RoadNetwork) -> None:
    a, b, c = path(tiny_city, (0, 0), (1, 0), (2, 0), (2, 1))
    trips = concat_trips([steps((a, 0.5), (b, 0.5), (c, 0.5)), steps((a, 0.1), (b, 0.2), name="b")])
    count = count_turns(tiny_city, drives_of(tiny_city, trips))
    source = np.repeat(np.arange(tiny_city.n_segments), np.diff(tiny_city.succ_offset))
    taken = {(int(s), int(t)): int(n) for s, t, n in zip(source, tiny_city.succ, count, strict=True) if n}
    assert taken == {(a, b): 2, (b, c): 1}


def test_leaps_count_as_turns_over_their_link() -> None:
    network = island()
    a, b = ends(network)
    drives = drives_of(network, concat_trips([steps((a, 0.5), (b, 0.5), name=n) for n in "abc"]))
    links = find_links(drives)
    linked = with_links(network, links)
    count = count_turns(linked, drives, links)
    source = np.repeat(np.arange(linked.n_segments), np.diff(linked.succ_offset))
    taken = {(int(s), int(t)): int(n) for s, t, n in zip(source, linked.succ, count, strict=True) if n}
    assert taken == {(a, network.n_segments): 3, (network.n_segments, b): 3}


def test_the_way_that_others_take_is_taken(tiny_city: RoadNetwork) -> None:
    start, end = path(tiny_city, (0, 0), (1, 0))[0], path(tiny_city, (2, 2), (2, 3))[0]
    across = path(tiny_city, (0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3))
    up = path(tiny_city, (0, 0), (1, 0), (1, 1), (1, 2), (2, 2), (2, 3))
    for way in (across, up):
        trips = concat_trips([steps(*((s, 0.5) for s in way), name=str(i)) for i in range(20)])
        router = PopularRouter(tiny_city, count_turns(tiny_city, drives_of(tiny_city, trips)))
        assert router.routes([start], [0.2], [end], [0.9])[0].tolist() == way


def test_positions_on_one_segment_and_no_route() -> None:
    network = island()
    a, b = ends(network)
    router = PopularRouter(network, np.zeros(len(network.succ), np.int64))
    routes = router.routes([a, a, a, a], [0.2, 0.8, 0.5, 0.5], [a, a, b, a], [0.7, 0.3, 0.5, 0.5])
    assert routes[0].tolist() == routes[3].tolist() == [a]
    assert routes[1][0] == routes[1][-1] == a
    assert len(routes[1]) > 2
    assert len(routes[2]) == 0
    np.testing.assert_allclose(routes.distance_m[[0, 3]], [50, 0], atol=0.5)
    assert np.isinf(routes.distance_m[2])
    assert np.isinf(routes.cost[2])


def test_agrees_with_dijkstra_on_the_graph_of_turns() -> None:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=50, step_s=15, seed=1)
    count = count_turns(city, drives_of(city, trips))
    assert count.sum() > 500
    metres, prior = 250.0, 3.0
    router = PopularRouter(city, count, metres=metres, prior=prior)

    n = city.n_segments
    source = np.repeat(np.arange(n), np.diff(city.succ_offset))
    weight = np.where(city.succ == city.twin[source], 0.1, 1.0)
    graph = csr_array((n, n))
    rows, columns, values = [], [], []
    for s in range(n):
        out = slice(city.succ_offset[s], city.succ_offset[s + 1])
        even = weight[out] / weight[out].sum()
        likely = (count[out] + prior * even) / (count[out].sum() + prior)
        rows += [s] * len(even)
        columns += city.succ[out].tolist()
        values += (-np.log(likely) + city.length_m[s] / metres).tolist()
    graph = csr_array((values, (rows, columns)), shape=(n, n))

    rng = np.random.default_rng(0)
    a, b = rng.integers(0, n, (2, 300))
    b = np.where(a == b, (b + 1) % n, b)
    ratio_a, ratio_b = rng.random((2, 300))
    routes = router.routes(a, ratio_a, b, ratio_b, workers=2)
    between = dijkstra(graph, indices=a)[np.arange(300), b]  # from the start of a to the start of b
    expected = between - ratio_a * city.length_m[a] / metres + ratio_b * city.length_m[b] / metres
    np.testing.assert_allclose(routes.cost, expected, rtol=1e-9)
    for k in range(300):
        assert (routes[k][0], routes[k][-1]) == (a[k], b[k])
        assert all(y in city.successors(x) for x, y in itertools.pairwise(routes[k]))
        driven = (
            city.length_m[routes[k]].sum() - ratio_a[k] * city.length_m[a[k]] - (1 - ratio_b[k]) * city.length_m[b[k]]
        )
        assert routes.distance_m[k] == pytest.approx(driven)
    alone = router.routes(a[:5], ratio_a[:5], b[:5], ratio_b[:5], workers=1)
    assert alone.segment.tolist() == routes.segment[: routes.offsets[5]].tolist()
