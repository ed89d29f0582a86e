"""TrImpute: the crowd against a KD-tree of its points, and the search against the rule written out."""

from __future__ import annotations

import heapq
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial import KDTree

from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.past.crowd import LEAST_MOVE_M, Crowd, add_around, learn_crowd
from tedtrajrec.methods.past.straight import straight_steps
from tedtrajrec.methods.registry import make_method
from tedtrajrec.methods.trimpute_hmm import SAME_M, TrImputeConfig, TrImputeHmm, find_ways
from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips
from tests.methods.past.test_straight import as_batch
from tests.trips.test_match import trip

PLANE = LocalPlane(-8.62, 41.15)
CELL = 10.0


def trips_at(points: list[list[tuple[float, float]]]) -> Trips:
    """Return trips through places in metres."""
    flat = np.array([place for one in points for place in one])
    lon, lat = PLANE.to_lonlat(*flat.T)
    number = np.repeat(np.arange(len(points)), [len(one) for one in points])
    return Trips.from_columns(number, np.arange(len(flat)) * 15, lon, lat)


def wandering(seed: int, trips: int = 40, steps: int = 25) -> list[list[tuple[float, float]]]:
    """Return trips, some of which stand still for a while."""
    random = np.random.default_rng(seed)
    moves = random.uniform(-30, 60, (trips, steps, 2)) * (random.random((trips, steps, 1)) < 0.9)
    places = np.cumsum(moves, axis=1) + random.uniform(0, 400, (trips, 1, 2))
    return [[(x, y) for x, y in one] for one in places.tolist()]


def as_points(points: list[list[tuple[float, float]]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return places and directions of all points that have one, by the definition."""
    places, directions = [], []
    for one in points:
        for k, here in enumerate(one):
            a, b = (one[0], one[1]) if k == 0 else (one[k - 1], here)
            move = math.hypot(b[0] - a[0], b[1] - a[1])
            if move >= LEAST_MOVE_M:
                places.append(here)
                directions.append(((b[0] - a[0]) / move, (b[1] - a[1]) / move))
    return np.array(places), np.array(directions)


def expected_sums(tree: KDTree, directions: NDArray[np.float64], at: list[float], radius: float) -> list[list[float]]:
    sums = np.zeros((3, 6))
    for k in tree.query_ball_point(at, radius):
        east, north = directions[k]
        sector = int((math.degrees(math.atan2(east, north)) % 360) // 60)
        sums[:, sector] += (1, east, north)
    return sums.tolist()


@pytest.fixture(scope="module")
def crowd() -> Crowd:
    return learn_crowd(trips_at(wandering(3)), PLANE)


def test_the_crowd_around_a_place_is_that_of_a_kd_tree(crowd: Crowd) -> None:
    places, directions = as_points(wandering(3))
    corner = np.array([crowd.west, crowd.south])
    np.testing.assert_allclose(corner, places.min(0), atol=1e-5)
    tree = KDTree(corner + (np.floor((places - corner + 1e-5) / CELL) + 0.5) * CELL)
    random = np.random.default_rng(1)
    for at in random.uniform(places.min(0) - 60, places.max(0) + 60, (200, 2)).tolist():
        sums = np.zeros((3, 6))
        add_around(crowd, at[0], at[1], 50.0, sums)
        np.testing.assert_allclose(sums, expected_sums(tree, directions, at, 50.0), atol=1e-4)


def test_the_search_is_the_rule_written_out(crowd: Crowd) -> None:
    random = np.random.default_rng(7)
    ends = random.uniform(0, 900, (150, 4))
    config = TrImputeConfig(most=60)
    ways = find_ways(crowd, config, ends)
    assert 20 < ways.found.sum() < 150
    for k, (x0, y0, x1, y1) in enumerate(ends.tolist()):
        part = slice(ways.offsets[k], ways.offsets[k + 1])
        expected = literal_search(crowd, config, (x0, y0), (x1, y1))
        assert ways.found[k] == (expected is not None)
        found = np.stack([ways.x[part], ways.y[part]], axis=1)
        np.testing.assert_allclose(found, np.reshape(expected or [], (-1, 2)), atol=1e-6)
    one = find_ways(crowd, config, ends, workers=1)
    for a, b in zip(ways, one, strict=True):
        np.testing.assert_array_equal(a, b)


def literal_search(
    crowd: Crowd, config: TrImputeConfig, start: tuple[float, float], goal: tuple[float, float]
) -> list[tuple[float, float]] | None:
    """Return the inner places of the way, None if there is none."""
    far = math.dist(start, goal)
    if far <= config.step_m:
        return []
    heading = math.degrees(math.atan2(goal[0] - start[0], goal[1] - start[1]))
    waiting = [(far, 0, start, heading, 0.0, [start])]
    seen = {tuple(round(v / SAME_M) for v in start)}
    number, expanded = 1, 0
    while waiting and expanded < config.most:
        _, _, here, heading, length, way = heapq.heappop(waiting)
        if length >= config.longest * far:
            continue
        expanded += 1
        sums = np.zeros((3, config.sectors))
        add_around(crowd, here[0], here[1], config.radius_m, sums)
        for sector in range(config.sectors):
            count, east, north = sums[:, sector]
            middle = (sector + 0.5) * 360 / config.sectors
            turn = abs((middle - heading + 180) % 360 - 180)
            if count <= config.share * sums[0].sum() or turn >= config.turn_deg or (east, north) == (0, 0):
                continue
            to = math.atan2(east, north)
            place = (here[0] + config.step_m * math.sin(to), here[1] + config.step_m * math.cos(to))
            cell = tuple(round(v / SAME_M) for v in place)
            if cell in seen:
                continue
            seen.add(cell)
            left = math.dist(place, goal)
            if left <= config.step_m:
                return [*way, place][1:]
            item = (length + config.step_m + left, number, place, math.degrees(to), length + config.step_m)
            heapq.heappush(waiting, (*item, [*way, place]))
            number += 1
    return None


def test_it_goes_round_the_corner_where_the_crowd_does(tiny_city: RoadNetwork) -> None:
    method = TrImputeHmm(tiny_city)
    # All drive east to (400, 0) and then north.
    corner = [(x, 0.0) for x in range(0, 400, 40)] + [(400.0, y) for y in range(0, 400, 40)]
    trips = trip([(0, 0, 0), (10, 0, 0), (20, 0, 0), (30, 0, 0), (40, 400, 400)])
    batch = as_batch(trips, [True, False, False, False, True], tiny_city)
    x0, y0 = batch.fix_xy[0, 0].tolist()
    lon, lat = tiny_city.plane.to_lonlat(*np.add(corner, [x0, y0]).T)
    known = Trips.from_columns(np.zeros(len(corner)), np.arange(len(corner)), lon, lat)
    method._crowd = learn_crowd(known, tiny_city.plane)
    x, y = tiny_city.plane.to_xy(*method.points(batch))
    np.testing.assert_allclose(np.stack([x - x0, y - y0], 1)[[0, 4]], [[0, 0], [400, 400]], atol=0.1)
    np.testing.assert_allclose(np.stack([x - x0, y - y0], 1)[1:4], [[200, 0], [400, 0], [400, 200]], atol=45)


def test_without_a_crowd_the_line_is_straight(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 20, 2), (10, 0, 0), (20, 0, 0), (30, 320, 150), (40, 320, 150)])
    batch = as_batch(trips, [True, False, False, True, False], tiny_city)
    line = straight_steps(batch, tiny_city)
    lon, lat = TrImputeHmm(tiny_city).points(batch)
    np.testing.assert_allclose(lon, line.lon, atol=1e-9)
    np.testing.assert_allclose(lat, line.lat, atol=1e-9)


@pytest.mark.parametrize("setting", ["step_m=0", "share=1", "most=0"])
def test_settings_that_cannot_be(tiny_city: RoadNetwork, setting: str) -> None:
    with pytest.raises(ConfigError, match=setting.partition("=")[0]):
        make_method("trimpute_hmm", tiny_city, [setting])
