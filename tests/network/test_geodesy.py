import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Geod

from tedtrajrec.network.geodesy import LocalPlane, metres_per_degree, short_distance_m

GEOD = Geod(ellps="WGS84")
latitudes = st.floats(-75, 75)
longitudes = st.floats(-179, 179)


@given(longitudes, latitudes, st.floats(-0.1, 0.1), st.floats(-0.1, 0.1))
def test_short_distances_agree_with_geodesics(lon, lat, dlon, dlat):
    expected = GEOD.inv(lon, lat, lon + dlon, lat + dlat)[2]
    assert short_distance_m(lon, lat, lon + dlon, lat + dlat) == pytest.approx(expected, rel=2e-4, abs=1e-6)


@given(longitudes, latitudes, st.floats(-10_000, 10_000), st.floats(-10_000, 10_000))
def test_plane_round_trip(lon, lat, x, y):
    plane = LocalPlane(lon, lat)
    back = plane.to_xy(*plane.to_lonlat(x, y))
    np.testing.assert_allclose(back, (x, y), atol=1e-6)


def test_plane_error_in_a_city_is_as_stated():
    plane = LocalPlane(-8.62, 41.15)
    angles = np.linspace(0, 2 * np.pi, 73)
    lon, lat = plane.to_lonlat(10_000 * np.cos(angles), 10_000 * np.sin(angles))
    true = GEOD.inv(np.full(73, plane.lon0), np.full(73, plane.lat0), lon, lat)[2]
    assert np.abs(true / 10_000 - 1).max() < 0.0014


def test_degrees_shrink_towards_the_pole():
    east, north = metres_per_degree([0.0, 60.0])
    assert east[0] == pytest.approx(111_319.5, abs=1)
    assert east[1] == pytest.approx(55_800, abs=5)
    assert north[1] > north[0]
