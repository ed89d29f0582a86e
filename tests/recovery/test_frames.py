"""Frames of pandas, polars and geopandas in, the same kind out."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import geopandas
import numpy as np
import pandas as pd
import polars as pl
import pytest

from tedtrajrec import Recoverer
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import InputError
from tedtrajrec.recovery.frames import RejectedWarning, frame_kind
from tedtrajrec.trips.frames import trips_to_frame
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.recovery.test_recoverer import assert_same, sparse_trips

COLUMNS = ["traj_id", "timestamp", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "break"]


@pytest.fixture
def sparse(recovery_dataset: Dataset) -> Trips:
    some = sparse_trips(recovery_dataset).select([0, 1, 2])
    return some.replace(trip_extra={"car": np.array([7, 8, 9])})


def test_polars(untrained: Recoverer, sparse: Trips) -> None:
    expected = trips_to_frame(untrained.recover_trips(sparse).to_trips(), "polars")
    frame = trips_to_frame(sparse, "polars")
    found = untrained.recover(frame)
    assert found.columns == [*COLUMNS, "car"]
    assert found.equals(expected)
    assert untrained.recover(frame.lazy()).equals(expected)
    assert found["timestamp"].dtype == pl.Datetime("us", "UTC")


def test_pandas(untrained: Recoverer, sparse: Trips) -> None:
    frame = trips_to_frame(sparse, "pandas")
    before = frame.copy()
    found = untrained.recover(frame)
    assert type(found) is pd.DataFrame
    pd.testing.assert_frame_equal(frame, before)
    pd.testing.assert_frame_equal(found, trips_to_frame(untrained.recover_trips(sparse).to_trips(), "pandas"))
    assert found["observed"].dtype == bool
    assert found["car"].tolist()[0] == 7


def test_geopandas(untrained: Recoverer, sparse: Trips) -> None:
    frame = trips_to_frame(sparse, "geopandas").to_crs("EPSG:3857")
    found = untrained.recover(frame)
    assert type(found) is geopandas.GeoDataFrame
    assert found.crs == "EPSG:4326"
    expected = untrained.recover_trips(sparse)
    np.testing.assert_allclose(found.geometry.x, expected.lon, atol=1e-6)
    assert found["segment"].tolist() == expected.segment.tolist()


def test_other_names_times_and_steps(untrained: Recoverer, sparse: Trips) -> None:
    frame = trips_to_frame(sparse, "pandas").rename(columns={"traj_id": "who", "lon": "east", "lat": "north"})
    frame["timestamp"] = frame["timestamp"].dt.tz_convert("Europe/Lisbon").dt.tz_localize(None)
    names = {"traj_id": "who", "lon": "east", "lat": "north"}
    found = untrained.recover(frame, 5, columns=names, timezone="Europe/Lisbon")
    expected = trips_to_frame(untrained.recover_trips(sparse, 5).to_trips(), "pandas")
    pd.testing.assert_frame_equal(found, expected)
    with pytest.raises(InputError, match="time zone"):
        untrained.recover(frame, columns=names)


def test_trips_and_files(untrained: Recoverer, sparse: Trips, tmp_path: Path) -> None:
    write_trips(sparse, tmp_path / "sparse.csv")
    expected = untrained.recover_trips(sparse)
    for data in (sparse, tmp_path / "sparse.csv", str(tmp_path / "sparse.csv")):
        assert_same(untrained.recover(data), expected)


def test_rejects_are_told_in_a_warning(untrained: Recoverer, sparse: Trips) -> None:
    lat = sparse.lat.copy()
    lat[: sparse.lengths[0]] = 0.0
    frame = trips_to_frame(sparse.replace(lat=lat), "polars")
    with pytest.warns(RejectedWarning, match=r"fixes were not used and 1 trips not recovered") as caught:
        found = untrained.recover(frame)
    assert found["traj_id"].n_unique() == 2
    told = caught[0].message
    assert isinstance(told, RejectedWarning)
    assert len(told.rejects) == 1 + sparse.lengths[0]
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        untrained.recover(trips_to_frame(sparse, "polars"))


@pytest.mark.parametrize("data", [3, {"lon": [1]}, np.zeros(3), None])
def test_what_is_no_frame_is_told(untrained: Recoverer, data: Any) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        untrained.recover(data)


def test_kinds_of_subclasses() -> None:
    class Mine(pd.DataFrame):
        """A frame of somebody else's."""

    assert frame_kind(Mine()) == "pandas"
    assert frame_kind(pl.LazyFrame()) == "polars"
    assert frame_kind(geopandas.GeoDataFrame()) == "geopandas"
