import itertools

import numpy as np
import pytest

from tedtrajrec.network import polylines, search
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import PAIRS_PER_PART, Router
from tests.conftest import make_grid


def make_roads(points_m, lines, *, two_way=False, **rules):
    """Return a network of the given points (metres, near the equator) and lines (numbers of points).

    The ends of the lines are the nodes. Lines are one-way in the order given unless ``two_way``.
    """
    points = np.asarray(points_m, float) / 111_319.49
    lines = [*lines, *(line[::-1] for line in lines if two_way)]
    flat = np.concatenate(lines)
    nodes, ends = np.unique([[line[0], line[-1]] for line in lines], return_inverse=True)
    ends = ends.reshape(-1, 2)
    return RoadNetwork.build(
        node_lon=points[nodes, 0],
        node_lat=points[nodes, 1],
        node_id=nodes,
        seg_from=ends[:, 0],
        seg_to=ends[:, 1],
        road_class=np.full(len(lines), 11),
        speed_mps=np.full(len(lines), 10.0),
        geom_offset=np.concatenate([[0], np.cumsum([len(line) for line in lines])]),
        geom_lon=points[flat, 0],
        geom_lat=points[flat, 1],
        **rules,
    )


def random_positions(network, n, seed):
    rng = np.random.default_rng(seed)
    seg_a, seg_b = rng.integers(0, len(network), (2, n))
    ratio_a, ratio_b = rng.random((2, n))
    return seg_a, ratio_a, seg_b, ratio_b


def assert_valid(routes, network, seg_a, seg_b):
    """Check that routes drive along successors and that their lengths add up."""
    for k in range(len(routes)):
        route = routes[k]
        if np.isinf(routes.distance_m[k]):
            assert len(route) == 0
            continue
        assert (route[0], route[-1]) == (seg_a[k], seg_b[k])
        assert all(after in network.successors(before) for before, after in itertools.pairwise(route))
        length = network.length_m[route]
        ends = routes.ratio_a[k] * length[0] + (1 - routes.ratio_b[k]) * length[-1]
        assert routes.distance_m[k] == pytest.approx(length.sum() - ends, abs=1e-6)


# A square driven one way round, with a way in and a way out:   0 -> 1 -> 2
#                                                                   ^    |
#                                                                   4 <- 3 -> 5
SQUARE = make_roads(
    [(0, 100), (100, 100), (200, 100), (200, 0), (100, 0), (300, 0)],
    [(0, 1), (1, 2), (2, 3), (3, 4), (4, 1), (3, 5)],
)


def one(router, a, b, **options):
    return float(router.distances(*a, *b, **options)[0])


def test_forwards_on_one_segment_is_the_difference():
    routes = Router(SQUARE).routes(1, 0.25, 1, 0.75)
    assert routes.distance_m[0] == pytest.approx(50, abs=0.5)
    assert list(routes[0]) == [1]


def test_a_position_is_at_no_distance_from_itself():
    routes = Router(SQUARE).routes(1, 0.3, 1, 0.3)
    assert routes.distance_m[0] == 0
    assert list(routes[0]) == [1]


def test_backwards_on_one_segment_goes_round_and_names_it_twice():
    routes = Router(SQUARE).routes(1, 0.75, 1, 0.25)
    assert routes.distance_m[0] == pytest.approx(350, rel=0.01)
    assert list(routes[0]) == [1, 2, 3, 4, 1]


def test_backwards_without_a_loop_there_is_no_route():
    router = Router(SQUARE)
    assert one(router, (0, 0.75), (0, 0.25)) == np.inf
    assert len(router.routes(0, 0.75, 0, 0.25)[0]) == 0


def test_backwards_on_a_two_way_road_turns_at_the_dead_end():
    network = make_roads([(0, 0), (100, 0), (200, 0)], [(0, 1), (1, 2)], two_way=True)
    routes = Router(network).routes(0, 0.75, 0, 0.25)
    assert list(routes[0]) == [0, 1, 3, 2, 0]
    assert routes.distance_m[0] == pytest.approx(350, rel=0.01)


def test_the_end_of_a_segment_and_the_start_of_its_successor_are_together():
    routes = Router(SQUARE).routes(0, 1.0, 1, 0.0, limit_m=0)
    assert routes.distance_m[0] == 0
    assert list(routes[0]) == [0, 1]


def test_nothing_leads_against_one_way_streets():
    router = Router(SQUARE)
    np.testing.assert_array_equal(router.distances(1, 0.5, 0, 0.5), [np.inf])
    np.testing.assert_array_equal(router.distances(5, 0.5, [0, 1, 2, 3, 4], 0.5), [np.inf] * 5)


def test_parallel_segments_are_different_roads():
    points = [(0, 0), (100, 0), (200, 0), (300, 0), (150, 80)]
    network = make_roads(points, [(0, 1), (1, 2), (1, 4, 2), (2, 3)])
    router = Router(network)
    assert list(router.routes(0, 0.5, 3, 0.5)[0]) == [0, 1, 3]
    assert list(router.routes(0, 0.5, 2, 0.5)[0]) == [0, 2]
    assert one(router, (1, 0.5), (2, 0.5)) == np.inf
    closed = make_roads(points, [(0, 1), (1, 2), (1, 4, 2), (2, 3)], forbidden_turns=[[0, 1]])
    assert list(Router(closed).routes(0, 0.5, 3, 0.5)[0]) == [0, 2, 3]


def test_a_loop_is_a_segment_that_can_be_driven_round():
    network = make_roads([(0, 0), (100, 0), (150, 50), (150, -50), (200, 0)], [(0, 1), (1, 2, 3, 1), (1, 4)])
    router = Router(network)
    loop = network.length_m[1]
    assert list(router.routes(0, 0.5, 2, 0.5)[0]) == [0, 2]
    assert list(router.routes(0, 0.5, 1, 0.5)[0]) == [0, 1]
    backwards = router.routes(1, 0.75, 1, 0.25)
    assert backwards.distance_m[0] == pytest.approx(loop / 2)
    assert list(backwards[0]) == [1, 1]


def test_segments_without_length_are_passed_through():
    network = make_roads([(0, 0), (100, 0), (100, 0), (100, 0), (200, 0)], [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert list(network.length_m[1:3]) == [0, 0]
    routes = Router(network).routes([0, 1, 1, 2], [0.5, 0.5, 0.9, 0.5], [3, 3, 1, 1], [0.5, 0.0, 0.1, 0.5])
    assert list(routes[0]) == [0, 1, 2, 3]
    assert routes.distance_m[0] == pytest.approx(100, rel=0.01)
    np.testing.assert_array_equal(routes.distance_m[1:], [0, np.inf, np.inf])


def test_turn_restrictions_make_the_route_go_round():
    plain = make_grid()
    east = int(np.flatnonzero((plain.seg_from == 7) & (plain.seg_to == 8))[0])
    north = int(np.flatnonzero((plain.seg_from == 8) & (plain.seg_to == 14))[0])
    network = make_grid(forbidden_turns=[[east, north]])
    assert list(Router(plain).routes(east, 0.5, north, 0.5)[0]) == [east, north]
    routes = Router(network).routes(east, 0.5, north, 0.5)
    assert len(routes[0]) > 4
    assert routes.distance_m[0] > 450
    assert_valid(routes, network, [east], [north])


def test_the_limit_is_inclusive(tiny_city):
    router, positions = Router(tiny_city), random_positions(tiny_city, 300, seed=1)
    distance = router.distances(*positions)
    np.testing.assert_array_equal(router.distances(*positions, limit_m=distance), distance)
    below = np.nextafter(distance, 0)
    assert np.isinf(router.distances(*positions, limit_m=below)[distance > 0]).all()
    assert (np.diff(router.routes(*positions, limit_m=below).offsets)[distance > 0] == 0).all()


def test_all_ways_to_ask_agree(tiny_city):
    router, (seg_a, ratio_a, seg_b, ratio_b) = Router(tiny_city), random_positions(tiny_city, 40, seed=2)
    seg_a[:5], seg_b[:5] = seg_a[5:10], seg_a[5:10]  # some on one segment, forwards and backwards
    matrix = router.many_to_many(seg_a, ratio_a, seg_b[:30], ratio_b[:30], limit_m=700)
    assert matrix.shape == (40, 30)
    assert 0.2 < np.isfinite(matrix).mean() < 0.9
    a, b = np.indices(matrix.shape).reshape(2, -1)
    flat = (seg_a[a], ratio_a[a], seg_b[b], ratio_b[b])
    np.testing.assert_allclose(router.distances(*flat, limit_m=700), matrix.ravel(), rtol=1e-9)
    np.testing.assert_allclose(router.routes(*flat, limit_m=700).distance_m, matrix.ravel(), rtol=1e-9)
    for k in (0, 17):
        row = router.one_to_many(int(seg_a[k]), float(ratio_a[k]), seg_b[:30], ratio_b[:30], limit_m=700)
        np.testing.assert_allclose(row, matrix[k], rtol=1e-9)


def test_routes_follow_successors_and_add_up():
    network = make_grid(8, 8, forbidden_turns=forbidden(make_grid(8, 8), share=0.3))
    positions = random_positions(network, 500, seed=3)
    routes = Router(network).routes(*positions, limit_m=1000)
    assert 0.5 < np.isfinite(routes.distance_m).mean() < 1
    assert_valid(routes, network, positions[0], positions[2])


def forbidden(network, share, seed=0):
    source = np.repeat(np.arange(len(network)), np.diff(network.succ_offset))
    pick = np.random.default_rng(seed).random(len(source)) < share
    return np.column_stack([source, network.succ])[pick]


def test_results_do_not_depend_on_the_number_of_workers():
    network = make_grid(12, 12)
    positions = random_positions(network, 4 * PAIRS_PER_PART, seed=4)
    one_worker, three = (Router(network).routes(*positions, limit_m=1500, workers=n) for n in (1, 3))
    for field in ("offsets", "segment", "distance_m"):
        np.testing.assert_array_equal(getattr(one_worker, field), getattr(three, field))
    for ask in (Router.distances, Router.both_ways):
        np.testing.assert_array_equal(*(ask(Router(network), *positions, workers=n) for n in (1, 3)))
    np.testing.assert_array_equal(*(Router(network).many_to_many(*positions, workers=n) for n in (1, 3)))


def test_of_equal_routes_always_the_same_is_found():
    network = make_grid(8, 8)
    router = Router(network, cost=np.ones(len(network)))  # nearly every route of a grid has equals
    seg_a, ratio_a, seg_b, ratio_b = random_positions(network, 200, seed=5)
    together = router.routes(seg_a, ratio_a, seg_b, ratio_b)
    backwards = router.routes(seg_a[::-1], ratio_a[::-1], seg_b[::-1], ratio_b[::-1], limit_m=together.cost[::-1])
    for k in range(200):
        np.testing.assert_array_equal(together[k], backwards[199 - k])
        np.testing.assert_array_equal(together[k], router.routes(seg_a[k], ratio_a[k], seg_b[k], ratio_b[k])[0])


def test_scratch_is_cleared_when_the_stamps_run_out(tiny_city):
    router, positions = Router(tiny_city), random_positions(tiny_city, 100, seed=6)
    expected = router.distances(*positions, workers=1)
    (scratch,) = router._scratch
    scratch.stamp[0] = search.LAST_STAMP - 7
    np.testing.assert_array_equal(router.distances(*positions, workers=1), expected)
    assert scratch.stamp[0] < 200


def test_both_ways_takes_the_shorter_direction_up_to_the_cap(tiny_city):
    router, (seg_a, ratio_a, seg_b, ratio_b) = Router(tiny_city), random_positions(tiny_city, 400, seed=7)
    seg_b[:40] = seg_a[:40]
    distance, capped = router.both_ways(seg_a, ratio_a, seg_b, ratio_b, cap_m=500)
    there = router.distances(seg_a, ratio_a, seg_b, ratio_b)
    back = router.distances(seg_b, ratio_b, seg_a, ratio_a)
    expected = np.minimum(there, back)
    np.testing.assert_allclose(distance, np.minimum(expected, 500), rtol=1e-9)
    np.testing.assert_array_equal(capped, expected > 500)
    assert 0 < capped.mean() < 1
    assert (there < back).any()
    assert (there > back).any()
    np.testing.assert_allclose(distance[:40], np.abs(ratio_a - ratio_b)[:40] * tiny_city.length_m[seg_a[:40]])
    np.testing.assert_array_equal(router.both_ways(seg_b, ratio_b, seg_a, ratio_a, cap_m=500)[0], distance)


def test_both_ways_on_unconnected_segments_is_the_cap():
    network = make_roads([(0, 0), (100, 0), (200, 0), (300, 0)], [(0, 1), (2, 3)])
    distance, capped = Router(network).both_ways([0, 0], [0.5, 0.2], [1, 0], [0.5, 0.9])
    np.testing.assert_allclose(distance, [4000, 70], rtol=0.01)
    assert list(capped) == [True, False]


def test_a_cost_replaces_the_metres():
    # Two ways from west to east: short and slow, long and fast.
    network = make_roads([(0, 0), (100, 0), (200, 0), (300, 0), (150, 80)], [(0, 1), (1, 2), (1, 4, 2), (2, 3)])
    seconds = np.array([10.0, 60.0, 15.0, 10.0])
    routes = Router(network, cost=seconds).routes([0, 0], [0.5, 0.5], [3, 0], [0.5, 0.75], limit_m=25)
    assert list(routes[0]) == [0, 2, 3]
    np.testing.assert_allclose(routes.cost, [25, 2.5])
    np.testing.assert_allclose(routes.distance_m, [network.length_m[2] + 100, 25], rtol=0.01)
    none = Router(network, cost=seconds).routes(0, 0.5, 3, 0.5, limit_m=24.9)
    assert (none.cost[0], none.distance_m[0], len(none[0])) == (np.inf, np.inf, 0)


def test_costs_of_zero_are_allowed(tiny_city):
    free = Router(tiny_city, cost=np.zeros(len(tiny_city)))
    positions = random_positions(tiny_city, 100, seed=8)
    reachable = np.isfinite(Router(tiny_city).distances(*positions))
    np.testing.assert_array_equal(free.distances(*positions), np.where(reachable, 0.0, np.inf))


def test_geometry_runs_from_position_to_position_along_the_route():
    network = make_grid(8, 8)
    seg_a, ratio_a, seg_b, ratio_b = random_positions(network, 300, seed=9)
    seg_b[:20] = seg_a[:20]
    routes = Router(network).routes(seg_a, ratio_a, seg_b, ratio_b, limit_m=900)
    offsets, lon, lat = routes.geometry(network)
    exists = np.isfinite(routes.distance_m)
    assert 0 < exists.mean() < 1
    np.testing.assert_array_equal(np.diff(offsets) > 0, exists)
    first, last = offsets[:-1][exists], offsets[1:][exists] - 1
    np.testing.assert_array_equal((lon[first], lat[first]), network.point_at(seg_a[exists], ratio_a[exists]))
    np.testing.assert_array_equal((lon[last], lat[last]), network.point_at(seg_b[exists], ratio_b[exists]))
    lines = np.append(offsets[:-1][exists], len(lon))
    length = polylines.lengths(lines, polylines.measure(lines, lon, lat))
    np.testing.assert_allclose(length, routes.distance_m[exists], rtol=1e-6, atol=1e-4)


def test_geometry_follows_bends_without_repeating_points():
    network = make_roads([(0, 0), (0, 100), (50, 150), (100, 100), (100, 0)], [(0, 1, 2, 3), (3, 4)])
    routes = Router(network).routes([0, 0, 1], [0.0, 0.5, 0.3], [1, 0, 1], [1.0, 0.5, 0.3])
    offsets, lon, lat = routes.geometry(network)
    bend = slice(offsets[0], offsets[1])
    np.testing.assert_array_equal(lon[bend], network.geom_lon[[0, 1, 2, 3, 5]])
    np.testing.assert_array_equal(lat[bend], network.geom_lat[[0, 1, 2, 3, 5]])
    assert list(np.diff(offsets)) == [5, 2, 2]  # a route from a position to itself is still a line


def test_many_pairs_of_one_value_and_none_at_all(tiny_city):
    router = Router(tiny_city)
    assert router.distances(3, 0.5, np.arange(10), 0.5).shape == (10,)
    assert router.distances([], [], [], []).shape == (0,)
    assert router.many_to_many([], [], [1, 2], [0.5, 0.5]).shape == (0, 2)
    assert [len(a) for a in router.both_ways([], [], [], [])] == [0, 0]
    routes = router.routes([], [], [], [])
    assert len(routes) == 0
    assert [len(a) for a in routes.geometry(tiny_city)] == [1, 0, 0]


def test_ratios_outside_the_segment_are_its_ends(tiny_city):
    router = Router(tiny_city)
    assert one(router, (0, -0.5), (0, 1.5)) == tiny_city.length_m[0]


@pytest.mark.parametrize(
    ("question", "error", "message"),
    [
        (((-1, 0.5), (0, 0.5)), IndexError, "segments go from 0 to"),
        (((0, 0.5), (10_000, 0.5)), IndexError, "segments go from 0 to"),
        (((0, np.nan), (0, 0.5)), ValueError, "ratio"),
        (((0.0, 0.5), (0, 0.5)), TypeError, "segments are integers"),
        (((0, 0.5), ([[0]], 0.5)), ValueError, "one-dimensional"),
    ],
)
def test_impossible_positions_are_refused(tiny_city, question, error, message):
    with pytest.raises(error, match=message):
        one(Router(tiny_city), *question)


@pytest.mark.parametrize("limit", [-1.0, np.nan])
def test_impossible_limits_are_refused(tiny_city, limit):
    for ask in (Router.distances, Router.routes, Router.many_to_many):
        with pytest.raises(ValueError, match="limit"):
            ask(Router(tiny_city), 0, 0.5, 1, 0.5, limit_m=limit)


@pytest.mark.parametrize("cost", [[1.0, 2.0], np.full(115, -1.0), np.full(115, np.nan), np.full(115, np.inf)])
def test_impossible_costs_are_refused(tiny_city, cost):
    assert len(tiny_city) == 115
    with pytest.raises(ValueError, match="cost"):
        Router(tiny_city, cost=cost)
