"""Columns are recognised by their usual names, or the message says how to name them."""

from __future__ import annotations

import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.trips.files.columns import find_columns


@pytest.mark.parametrize(
    ("names", "traj_id", "timestamp", "lon", "lat"),
    [
        ("traj_id timestamp lon lat", ("traj_id",), "timestamp", "lon", "lat"),
        ("trajectory_id t x y", ("trajectory_id",), "t", "x", "y"),  # movingpandas
        ("uid tid lat lng datetime", ("uid", "tid"), "datetime", "lng", "lat"),  # scikit-mobility: tid within uid
        ("uid datetime lng lat", ("uid",), "datetime", "lng", "lat"),  # scikit-mobility before cutting into trips
        ("trip_id timestamp latitude longitude", ("trip_id",), "timestamp", "longitude", "latitude"),  # mappymatch
        ("Vehicle-ID Time Longitude Latitude speed", ("Vehicle-ID",), "Time", "Longitude", "Latitude"),
        ("deviceId fixTime LONG LAT", ("deviceId",), "fixTime", "LONG", "LAT"),
        ("vehicle_id trip_id ts lon lat", ("trip_id",), "ts", "lon", "lat"),  # the trip says more than its vehicle
        ("TRIP_ID tracked_at lng lat x y", ("TRIP_ID",), "tracked_at", "lng", "lat"),  # x, y may be metres
        ("id timestamp time lon longitude lat", ("id",), "timestamp", "lon", "lat"),  # our own name wins
        ("individual-local-identifier traj_id location-long location-lat timestamp", ("traj_id",), "timestamp",
         "location-long", "location-lat"),
    ],
)  # fmt: skip
def test_usual_names(names: str, traj_id: tuple[str, ...], timestamp: str, lon: str, lat: str) -> None:
    columns = find_columns(names.split())
    assert (columns.traj_id, columns.timestamp, columns.lon, columns.lat) == (traj_id, timestamp, lon, lat)
    used = {timestamp, lon, lat, *(traj_id if len(traj_id) == 1 else ())}
    assert set(columns.extras.values()) == set(names.split()) - used


def test_trackintel_has_a_geometry() -> None:
    columns = find_columns(["user_id", "tracked_at", "geom", "elevation"], geometry="geom")
    assert (columns.traj_id, columns.timestamp, columns.geometry) == (("user_id",), "tracked_at", "geom")
    assert columns.lon is None
    assert columns.extras == {"elevation": "elevation"}


def test_degrees_win_over_geometry_but_plane_coordinates_do_not() -> None:
    assert find_columns(["id", "t", "lon", "lat", "geometry"], geometry="geometry").geometry is None
    plane = find_columns(["id", "t", "x", "y", "geometry"], geometry="geometry")
    assert plane.geometry == "geometry"
    assert plane.extras == {"x": "x", "y": "y"}


def test_mapping_wins_and_colliding_names_are_kept_apart() -> None:
    columns = find_columns(
        ["plate", "when", "lon", "lat", "wgs_x", "wgs_y"],
        {"traj_id": "plate", "timestamp": "when", "lon": "wgs_x", "lat": "wgs_y"},
    )
    assert (columns.lon, columns.lat) == ("wgs_x", "wgs_y")
    assert columns.extras == {"lon_in_file": "lon", "lat_in_file": "lat"}


def test_several_columns_make_a_trip_id() -> None:
    columns = find_columns(["car", "day", "time", "lon", "lat"], {"traj_id": "car+day"})
    assert columns.traj_id == ("car", "day")
    assert set(columns.extras) == {"car", "day"}


def test_segment_is_ours_and_an_edge_id_is_not() -> None:
    columns = find_columns(["traj_id", "timestamp", "lon", "lat", "segment", "ratio", "edge_id"])
    assert (columns.segment, columns.ratio) == ("segment", "ratio")
    assert list(columns.extras) == ["edge_id"]
    unread = find_columns(["traj_id", "timestamp", "lon", "lat", "segment"], {"segment": ""})
    assert unread.segment is None
    assert unread.extras == {"segment_in_file": "segment"}


def test_chosen_extras_only() -> None:
    assert find_columns(["traj_id", "timestamp", "lon", "lat", "a", "b"], keep=["b"]).extras == {"b": "b"}


@pytest.mark.parametrize(
    ("names", "mapping", "message"),
    [
        ("traj_id timestamp lat", None, "no column for lon; found: traj_id, timestamp, lat"),
        ("traj_id timestamp lat", None, "--columns lon=X"),
        ("a b c", None, "no column for traj_id, timestamp, lon and lat; found: a, b, c. Name them with"),
        ("a timestamp lon lat", None, "For a single vehicle, add a column with one value."),
        ("a timestamp b lat", None, "no column for traj_id and lon"),
        (
            "a timestamp b lat",
            None,
            "--columns traj_id=X --columns lon=X (in Python columns={'traj_id': 'X', 'lon': 'X'})",
        ),
        ("uid user_id timestamp lon lat", None, "'uid' and 'user_id' could each be traj_id"),
        ("traj_id timestamp lng longitude lat", None, "--columns lon=lng"),
        ("traj_id timestamp lon lat lat", None, "column name 'lat' twice"),
        ("traj_id timestamp lon lat", {"lon": "X"}, "no column 'X'"),
        ("traj_id timestamp lon lat", {"speed": "X"}, "'speed' is none of our column names"),
        ("traj_id timestamp lon lat", {"lon": "lat"}, "column 'lat': one column cannot hold two things"),
        ("a timestamp lon lat", {"traj_id": "a+b"}, "no column 'b'"),
    ],
)
def test_what_is_not_clear_is_said(names: str, mapping: dict[str, str] | None, message: str) -> None:
    with pytest.raises(InputError) as error:
        find_columns(names.split(), mapping)
    assert message in str(error.value)


def test_unknown_extra() -> None:
    with pytest.raises(InputError, match="no extra column 'speed'"):
        find_columns(["traj_id", "timestamp", "lon", "lat"], keep=["speed"])
