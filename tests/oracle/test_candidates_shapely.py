"""Candidate search against shapely: the same segments, distances and places."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.network.candidates import CandidateFinder, Candidates
from tedtrajrec.network.roadnet import RoadNetwork
from tests.network.test_candidates import at, make_lines

SLACK_M = 1e-6  # candidates so near to the radius may count or not: both sides round

metres = st.integers(-500, 500) | st.floats(-500, 500, width=32)
lines = st.lists(st.tuples(metres, metres), min_size=2, max_size=6)


def linestrings(network: RoadNetwork) -> np.ndarray:
    owner = np.repeat(np.arange(len(network)), np.diff(network.geom_offset))
    return shapely.linestrings(np.column_stack(network.geom_xy), indices=owner)


def check(network: RoadNetwork, lon: np.ndarray, lat: np.ndarray, radius_m: np.ndarray, found: Candidates) -> None:
    """Compare with shapely on the network's plane: all pairs within the radius, and the place of each."""
    line = linestrings(network)
    points = shapely.points(*network.plane.to_xy(lon, lat))
    point, segment = shapely.STRtree(line).query(points, predicate="dwithin", distance=radius_m + SLACK_M)
    distance = shapely.distance(points[point], line[segment])
    ours_point = np.repeat(np.arange(len(lon)), np.diff(found.offsets))
    ours = dict(zip(zip(ours_point.tolist(), found.segment.tolist(), strict=True), found.distance_m, strict=True))
    theirs = dict(zip(zip(point.tolist(), segment.tolist(), strict=True), distance, strict=True))
    assert len(ours) == len(found.segment), "a segment was found twice"
    assert ours.keys() <= theirs.keys()
    assert all(abs(theirs[key] - radius_m[key[0]]) <= SLACK_M for key in theirs.keys() - ours.keys())
    np.testing.assert_allclose(list(ours.values()), [theirs[key] for key in ours], rtol=0, atol=1e-6)
    # Ordered by distance, then by segment.
    assert np.array_equal(np.lexsort([found.segment, found.distance_m, ours_point]), np.arange(len(ours_point)))
    # The place is on the segment, and as far away as the distance says.
    place = shapely.points(*network.plane.to_xy(found.lon, found.lat))
    assert (shapely.distance(place, line[found.segment]) < 1e-6).all()
    np.testing.assert_allclose(shapely.distance(place, points[ours_point]), found.distance_m, rtol=0, atol=1e-6)
    # And the ratio says so too.
    again = network.point_at(found.segment, found.ratio)
    np.testing.assert_allclose(again, (found.lon, found.lat), rtol=0, atol=1e-11)


@given(st.lists(lines, min_size=1, max_size=12), st.lists(st.tuples(metres, metres, st.floats(0, 400)), min_size=1))
@settings(max_examples=150, deadline=None)
def test_any_network(roads: list[list[tuple[float, float]]], points: list[tuple[float, float, float]]) -> None:
    network = make_lines(*roads)
    lon, lat = at(*[(x, y) for x, y, _ in points])
    radius = np.array([r for _, _, r in points])
    finder = CandidateFinder(network)
    check(network, lon, lat, radius, finder.within(lon, lat, radius))
    line, where = linestrings(network), shapely.points(*network.plane.to_xy(lon, lat))
    least = shapely.distance(where[:, None], line[None, :]).min(axis=1)
    np.testing.assert_allclose(finder.nearest(lon, lat).distance_m, least, rtol=0, atol=1e-6)


@pytest.mark.real
@pytest.mark.parametrize("radius_m", [50.0, 400.0, None])
def test_porto_at_random_points(porto: RoadNetwork, radius_m: float | None) -> None:
    rng = np.random.default_rng(9)
    west, south, east, north = porto.bbox
    n = 1500 if radius_m == 50 else 400
    lon, lat = rng.uniform(west, east, n), rng.uniform(south, north, n)
    lon[:100], lat[:100] = porto.node_lon[:100], porto.node_lat[:100]
    radius = rng.uniform(0, 400, n) if radius_m is None else np.full(n, radius_m)
    found = CandidateFinder(porto).within(lon, lat, radius)
    assert len(found.segment) > 1000
    check(porto, lon, lat, radius, found)


@pytest.mark.real
def test_porto_at_real_fixes(porto: RoadNetwork, data_dir: Path) -> None:
    with gzip.open(data_dir / "porto" / "trips.csv.gz", "rt") as file:
        rows = [next_row["POLYLINE"] for _, next_row in zip(range(100), csv.DictReader(file), strict=False)]
    lon, lat = np.array([fix for row in rows for fix in json.loads(row)]).T
    finder = CandidateFinder(porto)
    check(porto, lon, lat, np.full(len(lon), 50.0), finder.within(lon, lat, 50))
    # Where shapely measures along the segment agrees too, but for places that are equally near.
    nearest = finder.nearest(lon, lat)
    line, points = linestrings(porto), shapely.points(*porto.plane.to_xy(lon, lat))
    _, distance = shapely.STRtree(line).query_nearest(points, return_distance=True, all_matches=False)
    np.testing.assert_allclose(nearest.distance_m, distance, rtol=0, atol=1e-6)
    theirs = shapely.line_locate_point(line[nearest.segment], points, normalized=True)
    assert (np.abs(theirs - nearest.ratio) < 1e-3).mean() > 0.999
