"""Lengths beside pyproj's geodesics, over the ways of the map as read by a few lines of their own."""

import numpy as np
import osmium
import pyproj
import pytest

from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.geodesy import short_distance_m

GEOD = pyproj.Geod(ellps="WGS84")


def test_short_distances_are_geodesics():
    rng = np.random.default_rng(3)
    lon, lat = rng.uniform(-180, 180, 2000), rng.uniform(-70, 70, 2000)
    bearing, metres = rng.uniform(0, 360, 2000), 10 ** rng.uniform(0, 4, 2000)
    lon1, lat1, _ = GEOD.fwd(lon, lat, bearing, metres)
    near = abs(np.asarray(lon1) - lon) < 1  # not across the date line
    ours = short_distance_m(lon, lat, lon1, lat1)
    np.testing.assert_allclose(ours[near], metres[near], rtol=1e-4)


@pytest.mark.real
def test_porto_is_as_long_as_its_ways(porto, data_dir):
    total, one_way = 0.0, 0.0
    for way in osmium.FileProcessor(str(data_dir / "porto" / "porto.osm.pbf")).with_locations():
        if not way.is_way() or way.tags["highway"] not in ROAD_CLASSES or way.tags["highway"] == "service":
            continue
        tags = dict(way.tags)
        rule = next((tags[key] for key in ("motorcar", "motor_vehicle", "vehicle", "access") if key in tags), "yes")
        if rule in ("no", "private", "psv", "emergency"):
            continue
        length = GEOD.line_length([node.lon for node in way.nodes], [node.lat for node in way.nodes])
        single = tags.get("oneway") in ("yes", "-1") or (
            "oneway" not in tags
            and (tags.get("junction") in ("roundabout", "circular") or tags["highway"] == "motorway")
        )
        single = single or tags.get("motor_vehicle:backward") == "no"
        total += length if single else 2 * length
        one_way += length if single else 0.0
    assert porto.length_m.sum() == pytest.approx(total, rel=1e-5)
    assert porto.length_m[porto.twin < 0].sum() == pytest.approx(one_way, rel=1e-3)
