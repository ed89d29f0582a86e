import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.stretches import stretches
from tests.conftest import make_grid

COORDINATE = st.integers(-150, 150).map(float)


def one_road(x, y) -> RoadNetwork:
    """Return a network whose only segment runs through these points, in metres from a place in Porto."""
    lon, lat = LocalPlane(-8.62, 41.15).to_lonlat(np.array(x), np.array(y))
    return RoadNetwork.build(
        node_lon=lon[[0, -1]],
        node_lat=lat[[0, -1]],
        node_id=np.array([1, 2]),
        seg_from=np.array([0]),
        seg_to=np.array([1]),
        road_class=np.array([11]),
        speed_mps=np.array([10.0]),
        geom_offset=np.array([0, len(lon)]),
        geom_lon=lon,
        geom_lat=lat,
        u_turns=False,
        meta={},
    )


@settings(max_examples=100)
@given(
    points=st.lists(st.tuples(COORDINATE, COORDINATE), min_size=2, max_size=6, unique=True),
    at=st.tuples(COORDINATE, COORDINATE),
    radius_m=st.sampled_from([20.0, 60.0, 100.0, 500.0]),
)
def test_equals_a_walk_in_small_steps(points, at, radius_m):
    network = one_road(*zip(*points, strict=True))
    # The network has a plane of its own.
    x, y = network.plane.to_xy(*LocalPlane(-8.62, 41.15).to_lonlat(*at))
    found = stretches(network, [0], [x], [y], radius_m)
    ratio = np.linspace(0, 1, 4001)
    away = np.hypot(
        *(a - b for a, b in zip(network.plane.to_xy(*network.point_at([0] * 4001, ratio)), (x, y), strict=True))
    )
    assert found.distance_m[0] == pytest.approx(away.min(), abs=0.5)
    within = away <= radius_m
    if not within.any():
        assert found.lowest == found.highest
        assert away[round(found.lowest[0] * 4000)] == pytest.approx(found.distance_m[0], abs=0.5)
        return
    # Two stretches may be equally near, so the one that was found is compared with the walk through its middle.
    middle = round((found.lowest[0] + found.highest[0]) * 2000)
    if not within[middle]:
        assert found.highest[0] - found.lowest[0] < 1 / 1000
        return
    low = high = middle
    while low > 0 and within[low - 1]:
        low -= 1
    while high < 4000 and within[high + 1]:
        high += 1
    assert found.lowest[0] == pytest.approx(ratio[low], abs=1 / 3999)
    assert found.highest[0] == pytest.approx(ratio[high], abs=1 / 3999)


def test_many_at_once_and_none():
    city = make_grid()
    x, y = city.plane.to_xy(*city.point_at([3, 3, 10], [0.5, 0.0, 0.5]))
    found = stretches(city, [3, 3, 10], x, y + np.array([0, 0, 80]), 25.0)
    size = city.length_m[3]
    np.testing.assert_allclose(found.lowest[:2], [0.5 - 25 / size, 0], atol=1e-3)
    np.testing.assert_allclose(found.highest[:2], [0.5 + 25 / size, 25 / size], atol=1e-3)
    assert len(stretches(city, np.zeros(0, np.int64), [], [], 10.0).lowest) == 0
