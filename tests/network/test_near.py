import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from tedtrajrec.methods.past.links import Links, with_links
from tedtrajrec.network.near import ROWS_PER_PART, find_near, near_table
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid


def broken_grid(seed, share=0.75):
    """Return a grid that lacks some segments, with lengths that are all different."""
    rng = np.random.default_rng(seed)
    grid = make_grid(5, 4, u_turns=bool(rng.integers(2)))
    network = grid.subset(rng.random(len(grid)) < share)
    network.length_m.setflags(write=True)
    network.length_m[:] *= rng.uniform(0.5, 1.5, len(network))
    return network


def gap_costs(network, cost):
    """Return the cost from the end of each segment to the start of each other one [S, S], by scipy."""
    n = len(network)
    source = np.repeat(np.arange(n), np.diff(network.succ_offset))
    between = dijkstra(csr_array((cost[source], network.succ, network.succ_offset), shape=(n, n)))
    gap = np.full((n, n), np.inf)
    np.minimum.at(gap, source, between[network.succ])
    return gap


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 90.0, 250.0, 700.0]))
def test_the_table_holds_all_segments_within_the_radius_with_their_distance(seed, radius):
    network = broken_grid(seed)
    gap = gap_costs(network, network.length_m)
    table = near_table(network, radius)
    a, b = np.meshgrid(np.arange(len(network)), np.arange(len(network)), indexing="ij")
    metres, seconds = table.lookup(a, b)
    assert np.isfinite(metres).sum() == len(table)
    np.testing.assert_allclose(metres, np.where(gap <= radius, gap, np.inf), rtol=1e-6)
    np.testing.assert_allclose(seconds, metres / 10, rtol=1e-6)  # all drive at 10 m/s
    for row in np.split(table.target, table.offsets[1:-1]):
        assert (np.diff(row) > 0).all()


def test_seconds_are_those_of_the_shortest_way():
    network = broken_grid(3, share=1.0)
    cost = np.random.default_rng(0).uniform(1, 50, len(network))
    table = near_table(network, 500, cost)
    source = np.repeat(np.arange(len(network)), np.diff(table.offsets))
    routes = Router(network).routes(source, 1.0, table.target, 0.0)
    route = np.repeat(np.arange(len(routes)), np.diff(routes.offsets))
    on_the_way = np.bincount(route, cost[routes.segment]) - cost[source] - cost[table.target]
    np.testing.assert_allclose(table.seconds, on_the_way, rtol=1e-5, atol=1e-4)


def test_a_successor_is_next_door_and_a_segment_is_near_itself_only_round_the_block(tiny_city):
    table = near_table(tiny_city, 350)
    segment = 0  # from node 0 to node 1
    metres, seconds = table.lookup(segment, tiny_city.successors(segment))
    assert not metres.any()
    assert not seconds.any()
    assert table.lookup(segment, segment)[0] == pytest.approx(300, abs=2)  # three sides of the block
    assert np.isinf(near_table(tiny_city, 250).lookup(segment, segment)[0])


def test_links_carry_ways_but_are_not_in_the_table():
    network = make_grid(4, 1, one_way_row=None).subset([0, 4])  # two pieces of road with a gap between them
    links = with_links(network, Links(np.array([0], np.int32), np.array([1], np.int32)))
    table = near_table(links, 100, n_roads=2)
    assert list(table.offsets) == [0, 1, 1]
    assert list(table.target) == [1]
    assert table.metres[0] == pytest.approx(links.length_m[2])
    assert len(near_table(network, 100)) == 0


def test_the_table_does_not_depend_on_the_number_of_workers():
    network = make_grid(20, 20)
    assert len(network) > 2 * ROWS_PER_PART
    one, three = (near_table(network, 400, workers=workers) for workers in (1, 3))
    for name in ("offsets", "target", "metres", "seconds"):
        np.testing.assert_array_equal(getattr(one, name), getattr(three, name))


def test_lookups_take_any_shape_and_compiled_code_can_look_up_too(tiny_city):
    table = near_table(tiny_city, 300)
    metres, seconds = table.lookup(np.arange(4)[:, None], np.arange(7))
    assert metres.shape == seconds.shape == (4, 7)
    assert np.isinf(table.lookup([-1, 0, -1], [0, -1, -1])).all()

    @njit
    def count(offsets, target, n):
        return sum([find_near(offsets, target, a, b) >= 0 for a in range(n) for b in range(n)])

    assert count(table.offsets, table.target, len(tiny_city)) == len(table)


def test_an_empty_table():
    table = near_table(make_grid(2, 2), 100, n_roads=0)
    assert len(table) == 0
    assert list(table.offsets) == [0]


def test_bad_arguments_are_named(tiny_city):
    with pytest.raises(ValueError, match="cost_s has shape"):
        near_table(tiny_city, 100, np.ones(3))
    with pytest.raises(ValueError, match="finite and not negative"):
        near_table(tiny_city, 100, np.full(len(tiny_city), -1.0))
    with pytest.raises(ValueError, match="radius_m is inf"):
        near_table(tiny_city, np.inf)
    with pytest.raises(ValueError, match="n_roads is 9999"):
        near_table(tiny_city, 100, n_roads=9999)
    with pytest.raises(IndexError, match="segments go from 0"):
        near_table(tiny_city, 100).lookup(0, 9999)
