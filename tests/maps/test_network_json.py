"""The network as the page draws it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tedtrajrec.maps.network_json import CELL_M, network_json, segments_near
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid


def test_every_segment_is_a_line_with_what_is_known_of_it(tiny_city: RoadNetwork) -> None:
    chosen = np.array([3, 40, 7])
    collection = network_json(tiny_city, chosen)
    assert json.loads(json.dumps(collection, allow_nan=False)) == collection
    for segment, feature in zip(chosen.tolist(), collection["features"], strict=True):
        properties = feature["properties"]
        assert properties["segment"] == segment
        assert properties["class"] == "residential"
        assert properties["speed_kmh"] == 36
        assert properties["length_m"] == pytest.approx(100, abs=0.5)
        assert properties["successors"] == tiny_city.successors(segment).tolist()
        nodes = [tiny_city.seg_from[segment], tiny_city.seg_to[segment]]
        ends = np.column_stack([tiny_city.node_lon[nodes], tiny_city.node_lat[nodes]])
        np.testing.assert_allclose(feature["geometry"]["coordinates"], ends, atol=1e-6)


def test_ends_of_segments_that_meet_are_written_alike(tiny_city: RoadNetwork) -> None:
    lines = [one["geometry"]["coordinates"] for one in network_json(tiny_city, np.arange(len(tiny_city)))["features"]]
    for segment in range(len(tiny_city)):
        for after in tiny_city.successors(segment).tolist():
            assert lines[segment][-1] == lines[after][0]


def test_roads_near_a_point_are_found_and_far_ones_left_out() -> None:
    city = make_grid(30, 30, spacing_m=200.0)
    lon, lat = city.node_lon[0], city.node_lat[0]
    near = segments_near(city, np.array([lon]), np.array([lat]))
    x, y = city.plane.to_xy(city.geom_lon, city.geom_lat)
    x0, y0 = city.plane.to_xy(np.array([lon]), np.array([lat]))
    away = np.minimum.reduceat(np.maximum(np.abs(x - x0), np.abs(y - y0)), city.geom_offset[:-1])
    within = np.flatnonzero(away <= CELL_M)
    assert np.isin(within, near).all()
    assert (away[near] <= 2 * CELL_M).all()
    assert len(near) < len(city) / 2
