"""What is written is read back: columns, types, missing values, exactly."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import geopandas
import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.trips.readers import iter_trips, read_trips
from tedtrajrec.trips.table import NULLABLE_TEXT, Trips
from tedtrajrec.trips.writers import TripWriter, Written, write_trips
from tests.trips.trip_files import START, assert_same_trips, trips

property_test = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture
def two_trips() -> Trips:
    """Return two matched trips, one of a single fix, with extra columns."""
    return Trips.from_columns(
        ["a", "a", "b"],
        [START, START + 15, START + 100],
        [-8.6, -8.61, -8.62],
        [41.1, 41.2, 41.3],
        segment=[3, -1, 2],
        ratio=[0.5, np.nan, 1.0],
        extra={
            "speed": np.ma.MaskedArray([1, 2, 3], mask=[0, 1, 0]),
            "note": np.array(["007", None, ""], NULLABLE_TEXT),
        },
    ).replace(trip_extra={"taxi": np.array([5, 6])})


@pytest.mark.parametrize("ending", ["parquet", "geoparquet"])
@property_test
@given(made=trips())
def test_parquet_gives_back_exactly_what_was_written(ending: str, made: Trips) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"trips.{ending}"
        write_trips(made, file)
        assert_same_trips(read_trips(file), made)


NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv"])
@property_test
@given(made=trips(typed=False))
def test_csv_keeps_every_value_and_settles(ending: str, made: Trips) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / f"1.{ending}", Path(folder) / f"2.{ending}"
        write_trips(made, first)
        read = read_trips(first)
        # CSV has neither types nor values per trip: the former are inferred, the latter repeated.
        assert_same_trips(read.replace(extra={}), made.replace(extra={}, trip_extra={}))
        assert list(read.extra) == [*made.extra, *made.trip_extra]
        write_trips(read, second)
        if not spells_otherwise(made):
            assert first.read_bytes() == second.read_bytes()
        assert_same_trips(read_trips(second), read)


def spells_otherwise(made: Trips) -> bool:
    """Return whether a column of text may read as truth or number in other letters than are written (0E0)."""
    values = [value for column in (made.extra | made.trip_extra).values() for value in column.tolist()]
    return any(isinstance(v, str) and (v.lower() in ("true", "false") or NUMBER.fullmatch(v)) for v in values)


@property_test
@given(made=trips(typed=False))
def test_gpx_keeps_every_value(made: Trips) -> None:
    with tempfile.TemporaryDirectory() as folder:
        first, second = Path(folder) / "1.gpx", Path(folder) / "2.gpx.gz"
        write_trips(made, first)
        read = read_trips(first)
        assert_same_trips(
            read.replace(extra={}, trip_extra={}, segment=None, ratio=None),
            made.replace(extra={}, trip_extra={}, segment=None, ratio=None),
        )
        write_trips(read, second)
        assert_same_trips(read_trips(second), read)


def test_csv_is_what_people_expect(two_trips: Trips, tmp_path: Path) -> None:
    assert write_trips(two_trips, tmp_path / "t.csv") == Written(trips=2, fixes=3)
    assert (tmp_path / "t.csv").read_text() == (
        "traj_id,timestamp,lon,lat,segment,ratio,speed,note,taxi\n"
        "a,1500000000,-8.6,41.1,3,0.5,1,007,5\n"
        "a,1500000015,-8.61,41.2,,,,,5\n"
        'b,1500000100,-8.62,41.3,2,1.0,3,"",6\n'
    )


def test_compressed_files_do_not_tell_the_hour(two_trips: Trips, tmp_path: Path) -> None:
    write_trips(two_trips, tmp_path / "1.csv.gz")
    write_trips(two_trips, tmp_path / "2.csv.gz")
    assert (tmp_path / "1.csv.gz").read_bytes() == (tmp_path / "2.csv.gz").read_bytes()
    assert (tmp_path / "1.csv.gz").read_bytes()[:2] == b"\x1f\x8b"


def test_parquet_times_are_utc(two_trips: Trips, tmp_path: Path) -> None:
    write_trips(two_trips, tmp_path / "t.parquet")
    times = pq.read_table(tmp_path / "t.parquet")["timestamp"]
    assert str(times.type) == "timestamp[ms, tz=UTC]"
    assert times[0].value == START * 1000


def test_geopandas_reads_our_geoparquet(two_trips: Trips, tmp_path: Path) -> None:
    write_trips(two_trips, tmp_path / "t.geoparquet")
    frame = geopandas.read_parquet(tmp_path / "t.geoparquet")
    assert frame.crs.equals("OGC:CRS84")
    np.testing.assert_array_equal(frame.geometry.x, two_trips.lon)
    np.testing.assert_array_equal(frame.geometry.y, two_trips.lat)
    assert frame["traj_id"].tolist() == ["a", "a", "b"]


def test_we_read_the_geoparquet_of_geopandas_in_any_reference_system(two_trips: Trips, tmp_path: Path) -> None:
    write_trips(two_trips, tmp_path / "t.geoparquet")
    frame = geopandas.read_parquet(tmp_path / "t.geoparquet")
    frame.to_crs("EPSG:3763").to_parquet(tmp_path / "plane.parquet")
    read = read_trips(tmp_path / "plane.parquet")
    np.testing.assert_allclose(read.lon, two_trips.lon, atol=1e-9)
    np.testing.assert_allclose(read.lat, two_trips.lat, atol=1e-9)
    frame.to_parquet(tmp_path / "points.parquet", geometry_encoding="geoarrow", schema_version="1.1.0")
    np.testing.assert_array_equal(read_trips(tmp_path / "points.parquet").lon, two_trips.lon)


def test_geojson_has_a_line_per_trip(two_trips: Trips, tmp_path: Path) -> None:
    write_trips(two_trips, tmp_path / "t.geojson")
    line, point = json.loads((tmp_path / "t.geojson").read_text())["features"]
    assert line["geometry"] == {"type": "LineString", "coordinates": [[-8.6, 41.1], [-8.61, 41.2]]}
    assert point["geometry"] == {"type": "Point", "coordinates": [-8.62, 41.3]}
    assert line["properties"] == {
        "traj_id": "a",
        "taxi": 5,
        "coordinateProperties": {
            "times": [START, START + 15],
            "segment": [3, None],
            "ratio": [0.5, None],
            "speed": [1, None],
            "note": ["007", None],
        },
    }
    assert geopandas.read_file(tmp_path / "t.geojson").geom_type.tolist() == ["LineString", "Point"]


@property_test
@given(made=trips(empty=True))
def test_geojson_is_always_json(made: Trips) -> None:
    with tempfile.TemporaryDirectory() as folder:
        written = write_trips(made, Path(folder) / "t.geojson")
        features = json.loads((Path(folder) / "t.geojson").read_text())["features"]
        assert [feature["properties"]["traj_id"] for feature in features] == made.traj_id[made.lengths > 0].tolist()
        assert (written.trips, written.left_out) == (len(features), np.count_nonzero(made.lengths == 0))


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "geoparquet", "gpx", "geojson"])
def test_chunks_give_the_same_trips_as_one_piece(two_trips: Trips, tmp_path: Path, ending: str) -> None:
    with TripWriter(tmp_path / f"chunks.{ending}") as writer:
        writer.write(two_trips.select([0]))
        assert not (tmp_path / f"chunks.{ending}").exists()
        writer.write(two_trips.select([1]))
    assert writer.written == write_trips(two_trips, tmp_path / f"whole.{ending}") == Written(2, 3)
    if ending == "geojson":
        assert (tmp_path / "chunks.geojson").read_text() == (tmp_path / "whole.geojson").read_text()
    else:
        assert_same_trips(read_trips(tmp_path / f"chunks.{ending}"), read_trips(tmp_path / f"whole.{ending}"))


@pytest.mark.parametrize("ending", ["csv", "parquet", "geoparquet", "gpx", "geojson"])
def test_a_writer_that_fails_leaves_nothing(two_trips: Trips, tmp_path: Path, ending: str) -> None:
    def write_and_fail() -> None:
        with TripWriter(tmp_path / f"t.{ending}") as writer:
            writer.write(two_trips)
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_without_trips_writes_a_header(tmp_path: Path) -> None:
    with TripWriter(tmp_path / "t.csv"):
        pass
    assert (tmp_path / "t.csv").read_text() == "traj_id,timestamp,lon,lat\n"


def test_trips_without_fixes_are_counted(two_trips: Trips, tmp_path: Path) -> None:
    emptied = two_trips.keep_fixes(np.array([False, False, True]))
    assert write_trips(emptied, tmp_path / "t.parquet") == Written(trips=1, fixes=1, left_out=1)
    assert read_trips(tmp_path / "t.parquet").traj_id.tolist() == ["b"]


def test_chunks_must_agree(two_trips: Trips, tmp_path: Path) -> None:
    def write_both() -> None:
        with TripWriter(tmp_path / "t.parquet") as writer:
            writer.write(two_trips.replace(extra={"speed": np.zeros(3)}))
            writer.write(two_trips)

    with pytest.raises(InputError, match=r"columns .*note.*the first had .*speed"):
        write_both()
    assert list(tmp_path.iterdir()) == []


def test_extra_columns_cannot_take_our_names(two_trips: Trips, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="column 'lon': an extra column cannot have the name"):
        write_trips(two_trips.replace(extra={"lon": np.zeros(3)}), tmp_path / "t.csv")


@pytest.mark.parametrize("name", ["t.xlsx", "t", "t.parquet.gz", "t.json"])
def test_unknown_endings(two_trips: Trips, tmp_path: Path, name: str) -> None:
    with pytest.raises(OutputError, match="no known ending"):
        write_trips(two_trips, tmp_path / name)


def test_writing_outside_the_block(two_trips: Trips, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="inside the with block"):
        TripWriter(tmp_path / "t.csv").write(two_trips)


def test_gpx_cannot_hold_control_characters(two_trips: Trips, tmp_path: Path) -> None:
    odd = two_trips.replace(extra={"note": np.array(["a\x01", "b", "c"], NULLABLE_TEXT)})
    with pytest.raises(OutputError, match="Column 'note' holds characters"):
        write_trips(odd, tmp_path / "t.gpx")
    assert list(tmp_path.iterdir()) == []


def test_streams_can_be_copied_from_format_to_format(two_trips: Trips, tmp_path: Path) -> None:
    write_trips(two_trips, tmp_path / "1.csv")
    with TripWriter(tmp_path / "2.parquet") as writer:
        for chunk in iter_trips(tmp_path / "1.csv", chunk_fixes=1):
            writer.write(chunk)
    assert_same_trips(read_trips(tmp_path / "2.parquet"), read_trips(tmp_path / "1.csv"))


def test_whose_data_it_is(two_trips: Trips, tmp_path: Path) -> None:
    owner = 'R&D <"Maps">, ©'
    for ending in ("parquet", "geoparquet", "geojson", "gpx", "csv"):
        with TripWriter(tmp_path / f"t.{ending}", attribution=owner) as writer:
            writer.write(two_trips)
    for ending in ("parquet", "geoparquet"):
        assert pq.read_schema(tmp_path / f"t.{ending}").metadata[b"attribution"].decode() == owner
    assert json.loads((tmp_path / "t.geojson").read_text("utf-8"))["attribution"] == owner
    assert "<metadata><desc>R&amp;D &lt;" in (tmp_path / "t.gpx").read_text("utf-8")
    for ending in ("parquet", "geoparquet", "gpx"):  # and it is in nobody's way
        assert read_trips(tmp_path / f"t.{ending}").traj_id.tolist() == ["a", "b"]
    assert (tmp_path / "t.csv").read_text().startswith("traj_id,")
