"""Frames of polars, pandas and geopandas go in unchanged and come out as they went in."""

from __future__ import annotations

import datetime as dt
import importlib
from typing import Any

import geopandas
import numpy as np
import pandas as pd
import polars as pl
import pytest
import shapely
from hypothesis import HealthCheck, given, settings

from tedtrajrec.errors import InputError, TedtrajrecError
from tedtrajrec.trips.files.checking import RejectedRows
from tedtrajrec.trips.frames import trips_from_frame, trips_to_frame
from tedtrajrec.trips.table import NULLABLE_TEXT, Trips
from tests.trips.trip_files import START, assert_same_trips, trips

TIMES = pd.to_datetime([START, START + 15, START + 30], unit="s", utc=True)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(made=trips())
def test_polars_frames_give_the_same_trips(made: Trips) -> None:
    made = made.replace(trip_extra={})
    frame = trips_to_frame(made)
    before = frame.clone()
    assert_same_trips(trips_from_frame(frame), made)
    assert frame.equals(before)


@pytest.mark.parametrize("kind", ["pandas", "geopandas"])
@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(made=trips())
def test_pandas_frames_give_the_same_trips(kind: Any, made: Trips) -> None:
    made = made.replace(trip_extra={})
    frame = trips_to_frame(made, kind)
    before = frame.copy(deep=True)
    assert_same_trips(trips_from_frame(frame), made)
    pd.testing.assert_frame_equal(pd.DataFrame(frame), pd.DataFrame(before))


def test_frames_are_ready_for_movingpandas() -> None:
    made = Trips.from_columns(["a", "a", "b"], [START, START + 15, START], [1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    frame = trips_to_frame(made, "geopandas")
    assert isinstance(frame, geopandas.GeoDataFrame)
    assert str(frame.index.tz) == "UTC"
    assert frame.crs == "EPSG:4326"
    assert frame.geometry.x.tolist() == [1.0, 2.0, 3.0]
    assert frame["traj_id"].tolist() == ["a", "a", "b"]


def test_pandas_keeps_whole_numbers_with_gaps() -> None:
    made = Trips.from_columns(
        ["a", "a"], [START, START + 15], [1, 2], [3, 4], segment=[7, -1],
        extra={"n": np.ma.MaskedArray([1, 2], [False, True]), "on": np.ma.MaskedArray([True, True], [False, True])},
    )  # fmt: skip
    frame = trips_to_frame(made, "pandas")
    assert frame.dtypes.astype(str).to_dict() | {"traj_id": ""} == {
        "traj_id": "", "timestamp": "datetime64[us, UTC]", "lon": "float64", "lat": "float64", "segment": "Int32",
        "n": "Int64", "on": "boolean",
    }  # fmt: skip


def geo(columns: dict[str, Any], **options: Any) -> geopandas.GeoDataFrame:
    points = geopandas.points_from_xy([-8.6, -8.61, -8.62], [41.1, 41.2, 41.3])
    return geopandas.GeoDataFrame(columns, geometry=points, crs="EPSG:4326", **options)


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"traj_id": list("aab"), "t": TIMES, "x": [-8.6, -8.61, -8.62], "y": [41.1, 41.2, 41.3]}),
        pd.DataFrame({"uid": list("aab"), "datetime": TIMES, "lat": [41.1, 41.2, 41.3], "lng": [-8.6, -8.61, -8.62]}),
        geo({"traj_id": list("aab")}, index=TIMES.rename("t")),  # movingpandas
        geo({"trajectory_id": list("aab")}, index=TIMES),
        geo({"user_id": list("aab"), "tracked_at": TIMES}),  # trackintel
        geo({"user_id": list("aab"), "tracked_at": TIMES.tz_convert("Asia/Tokyo")}).rename_geometry("geom"),
        geo({"user_id": list("aab"), "tracked_at": TIMES}).to_crs("EPSG:3763"),
        pd.DataFrame({"lon": [-8.6, -8.61, -8.62], "lat": [41.1, 41.2, 41.3]},
                     index=pd.MultiIndex.from_arrays([list("aab"), TIMES], names=["trip_id", "time"])),
        pl.LazyFrame({"traj_id": list("aab"), "timestamp": [START, START + 15, START + 30], "lon": [-8.6, -8.61, -8.62],
                      "lat": [41.1, 41.2, 41.3]}),
    ],
    ids=["movingpandas-table", "skmob", "movingpandas-geo", "unnamed-index", "trackintel", "zoned", "projected",
         "multi-index", "lazy"],
)  # fmt: skip
def test_frames_of_the_ecosystem(frame: Any) -> None:
    read = trips_from_frame(frame)
    assert read.traj_id.tolist() == ["a", "b"]
    assert read.time.tolist() == [START, START + 15, START + 30]
    np.testing.assert_allclose(read.lon, [-8.6, -8.61, -8.62], atol=1e-9)
    np.testing.assert_allclose(read.lat, [41.1, 41.2, 41.3], atol=1e-9)


def test_fixed_offsets_and_categories() -> None:
    offset = dt.timezone(dt.timedelta(hours=2))
    frame = pd.DataFrame(
        {"id": pd.Categorical(["a"]), "time": pd.Series([TIMES[0].tz_convert(offset)]), "lon": [1], "lat": [2.5]}
    )
    read = trips_from_frame(frame)
    assert (read.traj_id.tolist(), read.time.tolist(), read.lon.tolist()) == (["a"], [START], [1.0])


def test_whole_numbers_that_pandas_keeps_as_floats() -> None:
    frame = pd.DataFrame({"vehicle_id": [7.0, 8.0], "time": [START, START], "lon": [1.0, 2.0], "lat": [1.0, 2.0]})
    assert trips_from_frame(frame).traj_id.tolist() == ["7", "8"]
    without = pl.DataFrame({"id": [7.0, float("nan")], "time": [START, START], "lon": [1.0, 2.0], "lat": [1.0, 2.0]})
    with pytest.raises(InputError, match=r"row 2, column 'id': there is no trip id"):
        trips_from_frame(without)


def test_local_times_need_a_zone() -> None:
    frame = pd.DataFrame({"id": ["a"], "time": [dt.datetime(2013, 7, 1, 1, 0, 58)], "lon": [1.0], "lat": [2.0]})  # noqa: DTZ001
    assert trips_from_frame(frame, timezone="Europe/Lisbon").time.tolist() == [1372636858]
    with pytest.raises(InputError, match=r"row 1, column 'time': .* has no time zone"):
        trips_from_frame(frame)


def test_columns_can_be_named() -> None:
    frame = pl.DataFrame({"car": ["a"], "when": [START], "east": [1.0], "north": [2.0]})
    read = trips_from_frame(frame, {"traj_id": "car", "timestamp": "when", "lon": "east", "lat": "north"})
    assert (read.lon.tolist(), read.lat.tolist()) == ([1.0], [2.0])


def test_rows_can_be_set_aside() -> None:
    frame = pd.DataFrame({"id": ["a", "a"], "time": [START, START], "lon": [1.0, np.nan], "lat": [2.0, 2.0]})
    rejects = RejectedRows()
    assert trips_from_frame(frame, rejects=rejects).n_fixes == 1
    assert rejects.to_frame().rows() == [(2, "lon", "", "there is no value")]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"traj_id": ["a"]}, "a frame of type dict cannot be read"),
        (pd.DataFrame({"traj_id": ["a"], "timestamp": [START], "lon": [1.0]}), "no column for lat"),
        (pd.DataFrame({"traj_id": ["a", "b"], "timestamp": [START] * 2, "lon": [1.0] * 2, "lat": [1, "x"]}), "'lat'"),
        (pd.DataFrame({"traj_id": ["a"], "timestamp": [START], "lon": [1.0], "lat": [1], "e": [[1]]}), "type List"),
        (pd.DataFrame([["a", START, 1.0, 2.0, 3.0]], columns=["id", "time", "lon", "lat", "lat"]), "two columns"),
    ],
)  # fmt: skip
def test_frames_that_cannot_be_read(frame: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        trips_from_frame(frame)


def test_lines_are_no_fixes() -> None:
    line = shapely.LineString([(0, 0), (1, 1)])
    frame = geopandas.GeoDataFrame({"id": ["a"], "time": TIMES[:1]}, geometry=[line], crs="EPSG:4326")
    with pytest.raises(InputError, match="other than points"):
        trips_from_frame(frame)


def test_missing_points_are_named() -> None:
    frame = geo({"id": list("aab"), "time": TIMES})
    frame.loc[1, "geometry"] = None
    with pytest.raises(InputError, match="row 2, column 'geometry': there is no point"):
        trips_from_frame(frame)


def test_missing_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    made = Trips.from_columns(["a"], [START], [1.0], [2.0], extra={"s": np.array(["x"], NULLABLE_TEXT)})
    with pytest.raises(TedtrajrecError, match=r"tedtrajrec\[interop\]"):
        trips_to_frame(made, "pandas")


def test_unknown_kind() -> None:
    with pytest.raises(InputError, match="no frames of kind 'spark'"):
        trips_to_frame(Trips.from_columns(["a"], [START], [1.0], [2.0]), "spark")  # type: ignore[arg-type]
