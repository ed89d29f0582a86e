"""The segments around points: what counts, in which order, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.network import candidates as module
from tedtrajrec.network.candidates import CandidateFinder, Candidates
from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.network.grid import ENTRIES_PER_PIECE, build_grid
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid

PLANE = LocalPlane(-8.62, 41.15)


def make_lines(*lines: list[tuple[float, float]]) -> RoadNetwork:
    """Return a network with one segment for each list of (x, y) in metres from a place in Porto."""
    offset = np.cumsum([0] + [len(line) for line in lines])
    xy = np.array([vertex for line in lines for vertex in line], float)
    lon, lat = PLANE.to_lonlat(xy[:, 0], xy[:, 1])
    ends = np.column_stack([offset[:-1], offset[1:] - 1]).ravel()
    nodes, number = np.unique(xy[ends], axis=0, return_inverse=True)
    node_lon, node_lat = PLANE.to_lonlat(nodes[:, 0], nodes[:, 1])
    start, end = number.reshape(-1, 2).T
    return RoadNetwork.build(
        node_lon=node_lon,
        node_lat=node_lat,
        node_id=np.arange(len(nodes)),
        seg_from=start,
        seg_to=end,
        road_class=np.full(len(lines), 11),
        speed_mps=np.full(len(lines), 10.0),
        geom_offset=offset,
        geom_lon=lon,
        geom_lat=lat,
    )


def at(*xy: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """Return lon and lat of points given as (x, y) in the metres of :func:`make_lines`."""
    x, y = np.array(xy, float).reshape(-1, 2).T
    return PLANE.to_lonlat(x, y)


def of(found: Candidates, point: int) -> list[int]:
    return found.segment[found.offsets[point] : found.offsets[point + 1]].tolist()


def same(a: Candidates, b: Candidates) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in Candidates.__dataclass_fields__)


def test_distance_ratio_and_point_on_a_bent_road() -> None:
    network = make_lines([(0, 0), (100, 0), (100, 300)])
    found = CandidateFinder(network).within(*at((50, 20), (130, 200), (-30, -40)), 60)
    assert found.segment.tolist() == [0, 0, 0]
    assert found.distance_m == pytest.approx([20, 30, 50], rel=1e-3)
    assert found.ratio == pytest.approx([50 / 400, 300 / 400, 0], abs=1e-3)
    x, y = PLANE.to_xy(found.lon, found.lat)
    np.testing.assert_allclose(x, [50, 100, 0], atol=0.01)
    np.testing.assert_allclose(y, [0, 200, 0], atol=0.01)


def test_candidates_come_by_distance_then_by_segment() -> None:
    network = make_lines([(0, 30), (100, 30)], [(100, 0), (0, 0)], [(0, 0), (100, 0)], [(0, -10), (100, -10)])
    found = CandidateFinder(network).within(*at((40, 1)), 100)
    assert of(found, 0) == [1, 2, 3, 0]
    assert found.distance_m[0] == found.distance_m[1]


def test_both_directions_of_a_road_are_equally_far_to_the_last_bit(tiny_city: RoadNetwork) -> None:
    rng = np.random.default_rng(3)
    west, south, east, north = tiny_city.bbox
    found = CandidateFinder(tiny_city).within(rng.uniform(west, east, 500), rng.uniform(south, north, 500), 150)
    point = np.repeat(np.arange(500), np.diff(found.offsets))
    distance = {(p, s): d for p, s, d in zip(point, found.segment.tolist(), found.distance_m, strict=True)}
    pairs = [(d, distance[p, tiny_city.twin[s]]) for (p, s), d in distance.items() if tiny_city.twin[s] >= 0]
    assert len(pairs) > 1000
    assert all(there == back for there, back in pairs)


def test_many_candidates_are_sorted_too() -> None:
    # Two clusters far apart defeat the buckets of the sort; equal distances are then ordered by segment as well.
    near = [[(0, 10.0 + i % 7), (1, 10.0 + i % 7)] for i in range(300)]
    network = make_lines(*near, [(0, 90_000), (1, 90_000)])
    found = CandidateFinder(network).within(*at((0.5, 0)), np.inf)
    order = np.lexsort([found.segment, found.distance_m])
    assert len(found.segment) == 301
    assert order.tolist() == list(range(301))
    assert len(np.unique(found.distance_m)) == 8


def test_most_keeps_the_nearest(tiny_city: RoadNetwork) -> None:
    finder = CandidateFinder(tiny_city)
    lon, lat = tiny_city.node_lon[:20] + 2e-4, tiny_city.node_lat[:20] + 3e-4
    everything, few = finder.within(lon, lat, 200), finder.within(lon, lat, 200, most=3)
    assert np.diff(few.offsets).tolist() == [3] * 20
    assert all(of(few, i) == of(everything, i)[:3] for i in range(20))
    assert same(finder.within(lon, lat, 200, most=10_000), everything)


def test_a_radius_for_each_point(tiny_city: RoadNetwork) -> None:
    finder = CandidateFinder(tiny_city)
    lon, lat = np.full(4, tiny_city.node_lon[7]), np.full(4, tiny_city.node_lat[7])
    radius = [250.0, 0.0, 30.0, 120.0]
    found = finder.within(lon, lat, radius)
    assert [of(found, i) for i in range(4)] == [of(finder.within(lon[:1], lat[:1], r), 0) for r in radius]


def test_points_on_nodes_find_every_segment_there_even_with_radius_zero(tiny_city: RoadNetwork) -> None:
    found = CandidateFinder(tiny_city).within(tiny_city.node_lon, tiny_city.node_lat, 0.0)
    for node in range(tiny_city.n_nodes):
        touching = np.flatnonzero((tiny_city.seg_from == node) | (tiny_city.seg_to == node))
        assert of(found, node) == touching.tolist()
    assert (found.distance_m == 0).all()
    assert set(found.ratio.tolist()) == {0.0, 1.0}


def test_a_huge_radius_covers_everything(tiny_city: RoadNetwork) -> None:
    finder = CandidateFinder(tiny_city)
    for radius in (1e5, 1e300, np.inf):
        found = finder.within([-8.62, -8.0], [41.15, 41.5], radius)
        assert [sorted(of(found, i)) for i in range(2)] == [list(range(len(tiny_city)))] * 2


def test_points_outside_the_grid() -> None:
    network = make_lines([(0, 0), (1000, 0)], [(0, 500), (1000, 500)])
    finder = CandidateFinder(network)
    outside = at((-30, 0), (1030, 500), (500, -30), (500, 530), (-30, -30), (-1e6, 250))
    assert np.diff(finder.within(*outside, 40).offsets).tolist() == [1, 1, 1, 1, 0, 0]
    nearest = finder.nearest(*outside)
    assert nearest.segment.tolist() == [0, 1, 0, 1, 0, 0]
    assert nearest.ratio == pytest.approx([0, 1, 0.5, 0.5, 0, 0], abs=1e-6)


def test_parallel_roads_between_the_same_nodes_are_both_found() -> None:
    network = make_lines([(0, 0), (50, 20), (100, 0)], [(0, 0), (50, -20), (100, 0)], [(0, 0), (100, 0)])
    found = CandidateFinder(network).within(*at((50, 5)), 50)
    assert of(found, 0) == [2, 0, 1]
    assert found.ratio == pytest.approx([0.5, 0.5, 0.5], abs=0.1)


def test_a_loop_is_found_once_and_its_node_at_its_start() -> None:
    network = make_lines([(0, 0), (100, 0), (100, 100), (0, 100), (0, 0)])
    found = CandidateFinder(network).within(*at((0, 0), (-5, -5), (50, 104)), 1000)
    assert found.segment.tolist() == [0, 0, 0]
    assert found.ratio[:2].tolist() == [0.0, 0.0]
    assert found.ratio[2] == pytest.approx(0.625, abs=1e-3)


def test_a_road_that_crosses_itself_is_met_at_its_first_passage() -> None:
    network = make_lines([(-100, 0), (0, 0), (100, 0), (100, 100), (0, 100), (0, 0), (0, -100)])
    lon, lat = at((0, 0))
    finder = CandidateFinder(network)
    assert finder.within(lon, lat, 1).ratio == pytest.approx([1 / 6], abs=1e-3)
    assert finder.nearest(lon, lat).ratio == pytest.approx([1 / 6], abs=1e-3)


def test_zero_length_segments_and_repeated_vertices() -> None:
    network = make_lines([(0, 0), (0, 0)], [(10, 0), (10, 0), (60, 0), (60, 0), (60, 0), (110, 0), (110, 0)])
    found = CandidateFinder(network).within(*at((0, 3), (60, 4), (35, 0)), 200)
    assert [of(found, i) for i in range(3)] == [[0, 1], [1, 0], [1, 0]]
    assert found.ratio == pytest.approx([0, 0, 0.5, 0, 0.25, 0], abs=1e-3)
    assert found.distance_m[0] == pytest.approx(3, rel=1e-3)


def test_a_network_of_one_point() -> None:
    network = make_lines([(0, 0), (0, 0)])
    nearest = CandidateFinder(network).nearest(*at((30, 40)))
    assert nearest.distance_m == pytest.approx([50], rel=1e-3)
    assert nearest.ratio.tolist() == [0.0]


def test_point_at_reproduces_the_projected_points(tiny_city: RoadNetwork) -> None:
    rng = np.random.default_rng(1)
    bent = make_lines(*[[tuple(v) for v in rng.normal(0, 200, (n, 2)).cumsum(axis=0)] for n in (2, 3, 5, 9, 40)])
    for network in (tiny_city, bent):
        west, south, east, north = network.bbox
        lon, lat = rng.uniform(west, east, 300), rng.uniform(south, north, 300)
        finder = CandidateFinder(network)
        for found in (finder.within(lon, lat, 400), finder.nearest(lon, lat)):
            there = network.point_at(found.segment, found.ratio)
            np.testing.assert_allclose(there, (found.lon, found.lat), rtol=0, atol=1e-12)


def test_nearest_is_the_first_candidate_and_respects_its_limit() -> None:
    network = make_grid(9, 9, spacing_m=700)
    rng = np.random.default_rng(5)
    west, south, east, north = network.bbox
    lon, lat = rng.uniform(west - 0.05, east + 0.05, 400), rng.uniform(south - 0.05, north + 0.05, 400)
    finder = CandidateFinder(network)
    first = finder.within(lon, lat, np.inf, most=1)
    nearest = finder.nearest(lon, lat)
    assert np.array_equal(nearest.segment, first.segment)
    assert np.array_equal(nearest.distance_m, first.distance_m)
    assert np.array_equal(nearest.ratio, first.ratio)
    limited = finder.nearest(lon, lat, limit_m=150.0)
    near = first.distance_m <= 150
    assert 0 < near.sum() < 400
    assert np.array_equal(limited.segment, np.where(near, first.segment, -1))
    assert np.array_equal(limited.distance_m, np.where(near, first.distance_m, np.inf))
    assert np.isnan(limited.ratio[~near]).all()
    assert np.isnan(limited.lon[~near]).all()


def test_the_limit_of_nearest_is_inclusive(tiny_city: RoadNetwork) -> None:
    finder = CandidateFinder(tiny_city)
    nearest = finder.nearest([-8.6213], [41.1503])
    assert finder.nearest([-8.6213], [41.1503], limit_m=float(nearest.distance_m[0])).segment == nearest.segment


def test_any_number_of_workers_gives_the_same(tiny_city: RoadNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 7)
    rng = np.random.default_rng(2)
    west, south, east, north = tiny_city.bbox
    lon, lat = rng.uniform(west, east, 200), rng.uniform(south, north, 200)
    radius = rng.uniform(0, 300, 200)
    finder = CandidateFinder(tiny_city)
    assert same(finder.within(lon, lat, radius, workers=1), finder.within(lon, lat, radius, workers=3))
    one, three = finder.nearest(lon, lat, workers=1), finder.nearest(lon, lat, workers=3)
    assert all(np.array_equal(a, b) for a, b in zip(one, three, strict=True))


def test_no_points(tiny_city: RoadNetwork) -> None:
    finder = CandidateFinder(tiny_city)
    found = finder.within([], [], 50)
    assert found.offsets.tolist() == [0]
    assert len(found.segment) == len(found.lon) == 0
    assert len(finder.nearest([], []).segment) == 0


def test_no_candidates(tiny_city: RoadNetwork) -> None:
    found = CandidateFinder(tiny_city).within([0.0, 1.0], [0.0, 1.0], 50)
    assert found.offsets.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("lon", "lat", "radius", "message"),
    [
        ([-8.6, np.nan], [41.1, 41.1], 50, "row 2, column 'lon': nan is not"),
        ([-8.6, -8.6], [41.1, -np.inf], 50, "row 2, column 'lat': -inf is not"),
        ([41.1], [-98.6], 50, "row 1, column 'lat': -98.6 is not a coordinate in degrees"),
        ([-8.6, -8.6], [41.1], 50, "equally long"),
        ([[-8.6]], [[41.1]], 50, "equally long"),
        ([-8.6], [41.1], -1, "column 'radius_m': -1.0 is not a radius"),
        ([-8.6, -8.6], [41.1, 41.1], [5, np.nan], "row 2, column 'radius_m': nan is not a radius"),
        ([-8.6], [41.1], [50, 50], "one for each of 1 points"),
    ],
)
def test_bad_input_is_named(tiny_city: RoadNetwork, lon: list, lat: list, radius: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        CandidateFinder(tiny_city).within(lon, lat, radius)


def test_nearest_refuses_bad_input_too(tiny_city: RoadNetwork) -> None:
    finder = CandidateFinder(tiny_city)
    with pytest.raises(InputError, match="row 3, column 'lat'"):
        finder.nearest([0, 0, 0], [0, 0, np.nan])
    with pytest.raises(InputError, match="not a radius"):
        finder.nearest([0], [0], limit_m=-5)
    with pytest.raises(InputError, match="most is 0"):
        finder.within([0], [0], 50, most=0)


def test_long_and_scattered_pieces_do_not_fill_the_memory() -> None:
    rng = np.random.default_rng(4)
    long = make_lines(*[[tuple(a), tuple(b)] for a, b in rng.uniform(-40_000, 40_000, (300, 2, 2))])
    grid = build_grid(long)
    assert grid.cell_m > 100
    assert len(grid.entry) < 2 * ENTRIES_PER_PIECE * 300
    scattered = make_lines([(0, 0), (10, 0)], [(60_000, 60_000), (60_010, 60_000)])
    assert build_grid(scattered).cell_m > 100
    assert len(build_grid(scattered).cell_offset) < 70_000


def test_every_place_on_a_road_lies_in_a_cell_that_lists_it() -> None:
    rng = np.random.default_rng(6)
    network = make_lines(*[[tuple(a), tuple(a + d)] for a, d in rng.normal(0, 300, (200, 2, 2))], [(0, 0), (500, 0)])
    grid = build_grid(network)
    share = rng.uniform(0, 1, 50)
    for k, (x0, y0, x1, y1, _) in enumerate(grid.ends):
        column = ((x0 + share * (x1 - x0) - grid.x0) // grid.cell_m).astype(int)
        row = ((y0 + share * (y1 - y0) - grid.y0) // grid.cell_m).astype(int)
        for cell in set((row * grid.n_columns + column).tolist()):
            assert k in grid.entry[grid.cell_offset[cell] : grid.cell_offset[cell + 1]]
