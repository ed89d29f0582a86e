"""Recovered trips as arrays, and through files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects, kept_by_trip, no_trips
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips, as_text
from tedtrajrec.trips.writers import write_trips

START = 1_404_400_000
ROWS = ("time", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "broken")
COLUMNS = ["traj_id", "timestamp", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "break"]


def made(*, alternatives: bool = False) -> RecoveredTrips:
    """Return three trips; with alternatives, the second is one of the first."""
    return RecoveredTrips(
        traj_id=as_text(["a", "a" if alternatives else "c", "b"]),
        offsets=np.array([0, 2, 4, 7]),
        time=START + np.array([0, 15, 0, 15, 100, 115, 130]),
        lon=np.arange(7) / 10 - 8,
        lat=np.arange(7) / 10 + 41,
        segment=np.array([3, 4, 3, 5, 6, 6, 7], np.int32),
        ratio=np.arange(7) / 8,
        osm_way_id=np.array([1, 1, 1, 2, 0, 0, 9]),
        observed=np.array([True, False, True, False, True, False, True]),
        probability=np.array([1, 0.9123, np.nan, np.nan, 0.25, np.nan, 0.5], np.float32),
        broken=np.array([False, False, False, True, False, False, True]),
        trip_extra={"car": as_text(["x", "x", "y"]), "seats": np.ma.MaskedArray([4, 4, 0], [False, False, True])},
        rank=np.array([0, 1, 0], np.int16) if alternatives else np.zeros(3, np.int16),
        share=np.array([0.5, 0.25, 1.0] if alternatives else [np.nan] * 3, np.float32),
    )


def assert_same(one: RecoveredTrips, other: RecoveredTrips) -> None:
    for name in (*ROWS, "offsets", "rank", "share"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
        assert getattr(one, name).dtype == getattr(other, name).dtype, name
    assert one.traj_id.tolist() == other.traj_id.tolist()
    for name, column in one.trip_extra.items():
        assert np.ma.asarray(column).tolist() == np.ma.asarray(other.trip_extra[name]).tolist()


@pytest.mark.parametrize("alternatives", [False, True])
@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "geoparquet"])
def test_files_bring_back_what_they_were_given(tmp_path: Path, ending: str, alternatives: bool) -> None:
    recovered = made(alternatives=alternatives)
    write_trips(recovered.to_trips(), tmp_path / f"some.{ending}")
    assert_same(RecoveredTrips.from_trips(read_trips(tmp_path / f"some.{ending}")), recovered)


def test_files_have_their_columns_in_order(tmp_path: Path) -> None:
    write_trips(made().to_trips(), tmp_path / "plain.csv")
    write_trips(made(alternatives=True).to_trips(), tmp_path / "more.csv")
    assert pl.read_csv(tmp_path / "plain.csv").columns == [*COLUMNS, "car", "seats"]
    more = [*COLUMNS, "alternative", "alternative_share", "car", "seats"]
    assert pl.read_csv(tmp_path / "more.csv").columns == more


def test_parts_and_the_whole() -> None:
    recovered = made(alternatives=True)
    parts = [recovered.select([0, 1]), recovered.select(np.array([False, False, True]))]
    assert_same(RecoveredTrips.concat(parts), recovered)
    assert_same(recovered.select([2, 0, 1]).select([1, 2, 0]), recovered)
    ends = recovered.keep_rows(~recovered.broken)
    assert ends.lengths.tolist() == [2, 1, 2]
    assert not ends.broken.any()
    with pytest.raises(InputError, match="different columns"):
        RecoveredTrips.concat([recovered, no_trips()])


def test_rejects_are_joined() -> None:
    one = Rejects(as_text(["a"]), np.array([NO_TIME]), as_text(["why"]))
    both = RecoveredTrips.concat([no_trips(one), no_trips(), no_trips(one)])
    assert both.rejects.traj_id.tolist() == ["a", "a"]
    assert len(both) == both.n_rows == 0


def test_columns_of_the_wrong_length_are_told() -> None:
    with pytest.raises(InputError, match="6 values instead of 7"):
        RecoveredTrips(**{**vars(made()), "lon": np.zeros(6)})
    with pytest.raises(InputError, match="2 values for 3 trips"):
        RecoveredTrips(**{**vars(made()), "trip_extra": {"car": as_text(["x", "y"])}})
    with pytest.raises(InputError, match="divide 7 rows among 3 trips"):
        RecoveredTrips(**{**vars(made()), "offsets": np.array([0, 2, 4, 6])})


def test_other_trips_are_no_recovered_ones() -> None:
    trips = made().to_trips()
    with pytest.raises(InputError, match="not recovered trips"):
        RecoveredTrips.from_trips(trips.replace(extra={}))
    text = {**trips.extra, "probability": as_text(["high"] * 7)}
    with pytest.raises(InputError, match="'high' instead of numbers"):
        RecoveredTrips.from_trips(trips.replace(extra=text))


def test_kept_columns_are_of_the_first_fix_and_give_way_to_ours() -> None:
    trips = Trips(
        as_text(["a", "b"]),
        np.array([0, 2, 5]),
        np.arange(5),
        np.zeros(5),
        np.zeros(5),
        extra={"speed": np.arange(5.0), "observed": np.arange(5)},
        trip_extra={"car": as_text(["x", "y"])},
    )
    kept = kept_by_trip(trips, np.array([1]))
    assert {name: values.tolist() for name, values in kept.items()} == {
        "speed": [2.0],
        "observed_in_file": [2],
        "car": ["y"],
    }
