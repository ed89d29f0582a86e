"""The pieces of benchmarks/bench_truth.py on a city one can draw by hand."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import match
from tedtrajrec.trips.table import Trips

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
bench_truth = importlib.import_module("bench_truth")


def segment_between(network: RoadNetwork, start: int, end: int) -> int:
    return int(np.flatnonzero((network.seg_from == start) & (network.seg_to == end))[0])


@pytest.fixture
def corner(tiny_city: RoadNetwork) -> tuple[list[int], Trips]:
    """Return the route east along the first row and then north, and a trip on it with true positions."""
    route = [segment_between(tiny_city, a, b) for a, b in ((0, 1), (1, 2), (2, 8), (8, 14))]
    segment, ratio = np.array(route)[[0, 1, 1, 2, 3]], np.array([0.2, 0.1, 0.95, 0.5, 0.4])
    lon, lat = tiny_city.point_at(segment, ratio)
    return route, Trips.from_columns(np.zeros(5, int), 15 * np.arange(5), lon, lat, segment=segment, ratio=ratio)


def test_true_routes(tiny_city: RoadNetwork, corner: tuple[list[int], Trips]) -> None:
    route, trips = corner
    found = bench_truth.true_routes(tiny_city, trips)
    assert found.segment.tolist() == route
    assert found.offsets.tolist() == [0, 4]
    assert found.at.tolist() == [0, 1, 1, 2, 3]
    sparse = bench_truth.true_routes(tiny_city, trips, every=2)
    assert sparse.segment.tolist() == route
    assert sparse.at.tolist() == [0, 1, 3]


def test_fixes_on_the_true_route(tiny_city: RoadNetwork, corner: tuple[list[int], Trips]) -> None:
    route, trips = corner
    routes = bench_truth.true_routes(tiny_city, trips)
    assert bench_truth.on_true_route(tiny_city, trips, routes, 40.0).tolist() == trips.segment.tolist()
    # 20 m north of a place 5 m before the corner: nearer to the street round the corner.
    moved = trips.replace(lat=trips.lat + 20 / 111_074.0 * (np.arange(5) == 2))
    found = bench_truth.on_true_route(tiny_city, moved, routes, 40.0)
    assert found[2] == route[2]
    # ... unless that is farther from the true place than allowed.
    assert bench_truth.on_true_route(tiny_city, moved, routes, 4.0)[2] == route[1]


def test_overlap(tiny_city: RoadNetwork, corner: tuple[list[int], Trips]) -> None:
    _, trips = corner
    routes = bench_truth.true_routes(tiny_city, trips)
    assert bench_truth.route_overlap(tiny_city, routes, match(trips, tiny_city)) == pytest.approx((1.0, 1.0))
    half = trips.keep_fixes(np.arange(5) < 3)
    recall, precision = bench_truth.route_overlap(tiny_city, routes, match(half, tiny_city))
    assert recall == pytest.approx(0.5, abs=0.01)
    assert precision == pytest.approx(1.0)
