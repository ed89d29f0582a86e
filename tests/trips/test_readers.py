"""Trip files of every form are read whole, and what cannot be read is said in one sentence."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from tedtrajrec.errors import InputError
from tedtrajrec.trips.readers import RejectedRows, iter_trips, read_trips

HEADER = "traj_id,timestamp,lon,lat\n"
GOOD = "a,1500000000,-8.6,41.1\n"
PORTO = "TRIP_ID,CALL_TYPE,TAXI_ID,TIMESTAMP,MISSING_DATA,POLYLINE\n"


def file_of(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.real
def test_porto_trips(data_dir: Path) -> None:
    trips = read_trips(data_dir / "porto" / "trips.csv.gz")
    assert (len(trips), trips.n_fixes) == (1_786, 82_365)
    assert trips.traj_id[0] == "1372636858620000589"
    assert trips.time[:3].tolist() == [1372636858, 1372636873, 1372636888]
    assert (trips.lon[0], trips.lat[0]) == (-8.618643, 41.141412)
    assert trips.trip_extra["MISSING_DATA"].dtype == bool
    assert trips.trip_extra["TAXI_ID"][0] == 20000589
    assert np.ma.getmaskarray(trips.trip_extra["TAXI_ID"]).any()  # rides of the test set have none
    chunks = list(iter_trips(data_dir / "porto" / "trips.csv.gz", chunk_fixes=10_000))
    assert np.concatenate([chunk.lon for chunk in chunks]).tolist() == trips.lon.tolist()
    assert max(chunk.n_fixes for chunk in chunks) <= 10_000


@pytest.mark.real
def test_chengdu_trips(data_dir: Path) -> None:
    file = data_dir / "chengdu" / "trips.csv.gz"
    trips = read_trips(file, columns={"segment": "edge_id"})
    assert (len(trips), trips.n_fixes) == (9_890, 254_122)
    assert trips.segment is not None
    assert trips.ratio is not None
    assert np.count_nonzero(trips.segment == -1) == np.count_nonzero(np.isnan(trips.ratio)) == 12_013
    assert set(trips.extra["split"].tolist()) == {"train", "valid", "test"}
    by_name = read_trips(file)
    assert by_name.segment is None  # an edge id is the key of a table, not a segment
    assert np.ma.getmaskarray(by_name.extra["edge_id"]).sum() == 12_013


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_dialects(tmp_path: Path, delimiter: str, end: str, mark: str) -> None:
    rows = [["traj_id", "timestamp", "lon", "lat", "note"], ["a", "1500000000", " -8.6", "41.1 ", "x"]]
    text = mark + end.join(delimiter.join(row) for row in rows)
    trips = read_trips(file_of(tmp_path, text))
    assert (trips.lon.tolist(), trips.lat.tolist(), trips.extra["note"].tolist()) == ([-8.6], [41.1], ["x"])


def test_types_of_extra_columns_are_inferred_without_loss(tmp_path: Path) -> None:
    columns = {
        "zip": (["007", "123"], "T"), "count": (["7", "-123"], "i"), "speed": (["1.5", "2"], "f"),
        "odd": (["1e3", "NaN"], "f"), "on": (["True", "False"], "b"), "mixed": (["1", "true"], "T"),
        "plus": (["+1", "2"], "T"),
        "long": (["12345678901234567890", "1"], "T"), "gap": (["5", ""], "i"), "void": (["", ""], "T"),
        "phone": (["0049", "1.5"], "T"),
    }  # fmt: skip
    rows = "".join(f"a,{1500000000 + i},1,2,{','.join(v[i] for v, _ in columns.values())}\n" for i in (0, 1))
    extra = read_trips(file_of(tmp_path, HEADER.strip() + "," + ",".join(columns) + "\n" + rows)).extra
    assert {name: values.dtype.kind for name, values in extra.items()} == {n: kind for n, (_, kind) in columns.items()}
    assert extra["zip"].tolist() == ["007", "123"]
    assert np.ma.getmaskarray(extra["gap"]).tolist() == [False, True]
    assert extra["void"].tolist() == [None, None]


def test_trips_of_users_are_told_apart(tmp_path: Path) -> None:
    text = "uid,tid,lat,lng,datetime\n" + "".join(
        f"{user},{trip},41,-8,2020-01-01T00:00:0{i}Z\n"
        for i, (user, trip) in enumerate([(1, 1), (2, 1), (1, 1), (1, 2)])
    )
    trips = read_trips(file_of(tmp_path, text))
    assert trips.traj_id.tolist() == ["1/1", "2/1", "1/2"]
    assert trips.lengths.tolist() == [2, 1, 1]
    assert trips.extra["uid"].tolist() == [1, 1, 2, 1]


def test_chosen_extras(tmp_path: Path) -> None:
    file = file_of(tmp_path, "traj_id,timestamp,lon,lat,a,b\na,1500000000,1,2,3,4\n")
    assert list(read_trips(file, extras=["b"]).extra) == ["b"]
    assert list(next(iter_trips(file, extras=[])).extra) == []


def test_local_times(tmp_path: Path) -> None:
    file = file_of(tmp_path, "traj_id,time,lon,lat\na,2013-07-01 01:00:58,1,2\n")
    assert read_trips(file, timezone="Europe/Lisbon").time.tolist() == [1372636858]


def test_parquet_types(tmp_path: Path) -> None:
    table = pa.table(
        {
            "vehicle": pa.array([7, 7, 8]),
            "time": pa.array([1500000000_000, 1500000015_000, 1500000030_000], pa.timestamp("ms", "+02:00")),
            "longitude": pa.array([1, 2, 3], pa.float32()),
            "latitude": pa.array([1, 2, 3]),
            "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
            "price": pa.array([1, None, 3], pa.decimal128(5, 2)),
            "nothing": pa.nulls(3),
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    trips = read_trips(tmp_path / "t.parquet")
    assert trips.traj_id.tolist() == ["7", "8"]
    assert trips.time.tolist() == [1500000000, 1500000015, 1500000030]
    assert trips.extra["kind"].tolist() == ["x", "y", "x"]
    assert trips.extra["price"].tolist() == [1.0, None, 3.0]
    assert trips.extra["nothing"].tolist() == [None] * 3


# The Porto format


def test_porto_rows(tmp_path: Path) -> None:
    text = (
        PORTO
        + '007,A,1,1500000000,False,"[[-8.6,41.1],[-8.7,41.2]]"\n'
        + '2,B,2,1500000100,False,"[]"\n'
        + '007,A,,1500000200,True," [ [ -8, 41.5 ] ] "\n'
    )
    trips = read_trips(file_of(tmp_path, text))
    assert trips.traj_id.tolist() == ["007", "2", "007/2"]  # the original file has some ids twice
    assert trips.lengths.tolist() == [2, 0, 1]
    assert trips.time.tolist() == [1500000000, 1500000015, 1500000200]
    assert trips.lon.tolist() == [-8.6, -8.7, -8.0]
    assert trips.trip_extra["CALL_TYPE"].tolist() == ["A", "B", "A"]
    assert trips.trip_extra["TAXI_ID"].tolist() == [1, 2, None]
    assert trips.trip_extra["MISSING_DATA"].tolist() == [False, False, True]


@pytest.mark.parametrize(
    "polyline",
    ["[[-8.6,41.1],[-8.6]]", "[[-8.6],[41.1,-8.6,41.1]]", "[[-8.6,41.1]", "[[-8.6,null]]", '[[""a"",41]]', "", "null",
     "[-8.6,41.1]", "{}", "[[NaN,41]]", "[[1e400,41]]", "[[-8.6,41.1,3]]", "[[]]", "[[-190,41.1]]",
     "[[-8.6,95.0],[-8.6,41.1],[-8.6,41.1]]", "[" * 3000],
)  # fmt: skip
def test_odd_polylines_are_named_or_set_aside(tmp_path: Path, polyline: str) -> None:
    good = '1,A,1,1500000000,False,"[[-8.6,41.1]]"\n'
    file = file_of(tmp_path, PORTO + good + f'2,A,1,1500000000,False,"{polyline}"\n' + good.replace("1,A", "3,A", 1))
    with pytest.raises(InputError) as error:
        read_trips(file)
    assert (error.value.row, error.value.field) == (2, "POLYLINE")
    assert len(error.value.problem) < 200
    rejects = RejectedRows()
    assert read_trips(file, rejects=rejects).traj_id.tolist() == ["1", "3"]
    assert rejects.to_frame()["row"].to_list() == [2]


def test_repeated_porto_ids_across_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tedtrajrec.trips.files.delimited._BLOCK_BYTES", 200)
    rows = "".join(f'{i % 3},A,1,150000000{i % 10},False,"[[-8.6,41.1]]"\n' for i in range(12))
    file = file_of(tmp_path, PORTO + rows)
    ids = [name for chunk in iter_trips(file, chunk_fixes=2) for name in chunk.traj_id.tolist()]
    assert ids == read_trips(file).traj_id.tolist()
    assert len(set(ids)) == 12


# What cannot be read


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", "", "the file is empty"),
        ("t.csv", HEADER, "a header but no rows"),
        ("t.csv", HEADER.strip(), "a header but no rows"),
        ("t.csv", "\n\n", "the file is empty"),
        ("t.csv", HEADER + "a,1500000000,-8.6\n", "row 1: this row has 3 fields where the header has 4"),
        ("t.csv", HEADER + GOOD * 5 + "a,1500000000,-8.6,41.1,7\n", "row 6: this row has 5 fields where"),
        ("t.csv", HEADER + GOOD + "a,1500000000,west,41.1\n", "row 2, column 'lon': 'west' is not a number"),
        ("t.csv", HEADER + GOOD + "a,1500000000,,41.1\n", "row 2, column 'lon': there is no value"),
        ("t.csv", HEADER + GOOD + "a,1500000000,NaN,41.1\n", "row 2, column 'lon': 'NaN' is not a finite number"),
        ("t.csv", HEADER + GOOD + "a,1500000000,-8.6,inf\n", "row 2, column 'lat': 'inf' is not a finite number"),
        ("t.csv", HEADER + GOOD + "a,,-8.6,41.1\n", "row 2, column 'timestamp': there is no time"),
        ("t.csv", HEADER + GOOD + ",1500000000,-8.6,41.1\n", "row 2, column 'traj_id': there is no trip id"),
        ("t.csv", HEADER + GOOD * 3 + "a,1500000000,-8.6,91\n", "row 4, column 'lat': '91' is not a latitude"),
        ("t.csv", HEADER + GOOD + "a,1500000000,181,41.1\n", "row 2, column 'lon': '181' is not a longitude"),
        ("t.csv", HEADER + "a,1500000000,30.6,104.07\n", "lon and lat look swapped"),
        ("t.csv", HEADER + "a,1500000000,30.6,104.07\n", "--columns lon=lat --columns lat=lon"),
        ("t.csv", HEADER + "a,1500000000,532345.2,4556000.1\n", "convert projected coordinates first"),
        ("t.csv", HEADER.replace(",", ";") + "a;1500000000;-8,6;41,1\n", "'-8,6' has a decimal comma"),
        ("t.csv", HEADER + "a,0,-8.6,41.1\n", "'0' is outside the years 1990 to 2099"),
        ("t.csv", HEADER + "a,4102444800,-8.6,41.1\n", "outside the years 1990 to 2099"),
        ("t.csv", HEADER + "a,2013-07-01 00:00:58,-8.6,41.1\n", "58' has no time zone. Give the zone"),
        ("t.csv", HEADER + "a,01/07/2013,-8.6,41.1\n", "'01/07/2013' is not a time that can be read"),
        ("t.csv", "traj_id,timestamp,lon,lat,lat\na,1500000000,1,2,2\n", "column name 'lat' twice"),
        ("t.csv", "id,when,where\n1,2,3\n", "no column for timestamp, lon and lat; found: id, when, where"),
        ("t.csv", HEADER.encode() + b"caf\xe9,1500000000,-8.6,41.1\n", "the text is not UTF-8"),
        ("t.csv", HEADER.encode() + GOOD.encode() * 60_000 + b"\xe9,1500000000,-8.6,41.1\n", "the text is not UTF-8"),
        ("t.csv", HEADER.encode("utf-16"), "the text is not UTF-8"),
        ("t.csv", b"a\0b,c\n1,2\n", "this is not a text file"),
        (
            "t.csv.gz",
            gzip.compress((HEADER + GOOD * 900).encode(), mtime=0)[:-12],
            "the gzip data is damaged or cut off",
        ),
        ("t.csv.gz", gzip.compress(HEADER.encode(), mtime=0)[:9] + b"\xff" * 40, "the gzip data is damaged or cut off"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "the file is empty"),
        ("t.csv", HEADER + '"a,1500000000,-8.6,41.1\n' + GOOD * 10, "this row has 1 fields"),
        ("t.parquet", b"PAR1 and no more", "the Parquet file is broken or cut off"),
        ("t.parquet", "traj_id,timestamp\n", "this is not a Parquet file"),
        ("t.csv", b"PK\x03\x04 rest", "a zip archive or an Excel sheet"),
        ("t.geojson", '{"type": "FeatureCollection"}', "this is JSON"),
        ("t.csv", HEADER.strip() + ",segment\na,1500000000,1,2,main street\n", "'main street' is not a segment"),
        ("t.csv", HEADER.strip() + ",segment\na,1500000000,1,2,1.5\n", "'1.5' is not a segment number"),
        ("t.csv", HEADER.strip() + ",ratio\na,1500000000,1,2,1.5\n", "'1.5' is not a ratio"),
        ("t.csv", PORTO + '1,A,1,12,False,"[]"\n', "row 1, column 'TIMESTAMP': '12' is outside the years"),
        ("t.csv", PORTO + ',A,1,1500000000,False,"[]"\n', "row 1, column 'TRIP_ID': there is no trip id"),
        ("t.csv", PORTO, "a header but no rows"),
    ],
)  # fmt: skip
def test_one_clear_sentence(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    file = file_of(tmp_path, content, name)
    with pytest.raises(InputError) as error:
        read_trips(file)
    assert message in str(error.value)
    assert str(file) in str(error.value)
    with pytest.raises(InputError) as streamed:
        list(iter_trips(file))
    assert str(streamed.value) == str(error.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_trips(tmp_path / "t.csv")
    with pytest.raises(InputError, match="this is a folder"):
        read_trips(tmp_path)


def test_a_row_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tedtrajrec.trips.files.delimited._BLOCK_BYTES", 1 << 20)
    file = file_of(tmp_path, HEADER + GOOD + '"a,1500000000,-8.6,41.1\n' + GOOD * 100_000)
    with pytest.raises(InputError, match="a quote that is opened and never closed"):
        read_trips(file)


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([[1], [2]]), "columns of type List"),
        (pa.array([{"a": 1}, {"a": 2}]), "columns of type Struct"),
        (pa.array([b"1", b"2"]), "columns of type Binary"),
        (pa.array([0, 1], pa.timestamp("us")), "times without a time zone"),
    ],
)
def test_columns_that_cannot_be_kept(tmp_path: Path, column: pa.Array, message: str) -> None:
    table = pa.table({"traj_id": ["a", "a"], "timestamp": [1500000000] * 2, "lon": [1.0, 2.0], "lat": [1.0, 2.0]})
    pq.write_table(table.append_column("odd", column), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=message) as error:
        read_trips(tmp_path / "t.parquet")
    assert error.value.field == "odd"
    assert len(read_trips(tmp_path / "t.parquet", extras=[])) == 1


def test_parquet_cut_off_in_the_middle(tmp_path: Path) -> None:
    table = pa.table({"traj_id": ["a"] * 9, "timestamp": [1500000000] * 9, "lon": [1.0] * 9, "lat": [1.0] * 9})
    pq.write_table(table, tmp_path / "t.parquet", compression="none")
    data = bytearray((tmp_path / "t.parquet").read_bytes())
    data[4:60] = b"\xff" * 56
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(InputError, match="the Parquet file is broken"):
        read_trips(tmp_path / "t.parquet")


def test_geometries_must_be_points(tmp_path: Path) -> None:
    geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    line = bytes.fromhex("01020000000200000000000000000000000000000000000000000000000000f03f000000000000f03f")
    for value, message in (
        (line, "other than points"),
        (b"\x01\x01", "a geometry is broken"),
        (None, "there is no point"),
    ):
        table = pa.table(
            {"traj_id": ["a"], "timestamp": [1500000000], "geometry": pa.array([value], pa.binary())},
            metadata={"geo": json.dumps(geo)},
        )
        pq.write_table(table, tmp_path / "t.parquet")
        with pytest.raises(InputError, match=message):
            read_trips(tmp_path / "t.parquet")


def test_float_ids_are_named_alike_in_all_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tedtrajrec.trips.files.parquet._BLOCK_ROWS", 2)
    table = {"traj_id": [7.0, 7.0, 7.0, 8.5], "timestamp": [1500000000] * 4, "lon": [1.0] * 4, "lat": [2.0] * 4}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    chunks = list(iter_trips(tmp_path / "t.parquet", chunk_fixes=3))
    assert [chunk.traj_id.tolist() for chunk in chunks] == [["7"], ["8.5"]]
    assert read_trips(tmp_path / "t.parquet").traj_id.tolist() == ["7", "8.5"]


def test_a_line_late_in_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tedtrajrec.trips.files.parquet._BLOCK_ROWS", 2)
    geo = {"primary_column": "geometry", "columns": {"geometry": {"encoding": "WKB"}}}
    shapes = shapely.to_wkb([*shapely.points([[1, 2]] * 3), shapely.linestrings([[1, 2], [3, 4]])]).tolist()
    table = pa.table(
        {"traj_id": ["a"] * 4, "timestamp": [1500000000] * 4, "geometry": pa.array(shapes, pa.binary())},
        metadata={"geo": json.dumps(geo)},
    )
    pq.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(InputError, match="row 4, column 'geometry': geometries other than points"):
        list(iter_trips(tmp_path / "t.parquet"))


# Setting rows aside


def test_bad_rows_are_set_aside_with_their_reason(tmp_path: Path) -> None:
    text = (
        HEADER + GOOD + "a,1500000015,west,41.1\n" + "a,1500000015,-8.6\n" + GOOD + "b,noon,-8.6,99\n" + ",,,\n" + GOOD
    )
    rejects = RejectedRows()
    trips = read_trips(file_of(tmp_path, text), rejects=rejects)
    assert trips.n_fixes == 3
    assert rejects.to_frame().rows() == [
        (2, "lon", "west", "is not a number"),
        (3, "", "a,1500000015,-8.6", "has 3 fields where the header has 4"),
        (5, "timestamp", "noon", "is not an epoch time like the others in this column"),
        (6, "traj_id", "", "there is no trip id"),
    ]
    assert len(rejects) == 4
    streamed = RejectedRows()
    chunks = list(iter_trips(tmp_path / "t.csv", chunk_fixes=1, rejects=streamed))
    assert sum(chunk.n_fixes for chunk in chunks) == 3
    assert streamed.to_frame().equals(rejects.to_frame())


def test_swapped_columns_are_not_set_aside(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="look swapped"):
        read_trips(file_of(tmp_path, HEADER + "a,1500000000,30.6,104.07\n"), rejects=RejectedRows())


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (
            HEADER + "a,1500000000,west,41\n",
            (1, "lon"),
            "'west' is not a number; none of the rows can be used. Correct",
        ),
        (PORTO + "1,A,1,1500000000,False,[[\n", (1, "POLYLINE"), "is not a polyline; none of the rows can be used. A "),
        (
            HEADER.replace(",", ";") + "a;1500000000;-8,6;41,1\n",
            (1, "lon"),
            "'-8,6' has a decimal comma; none of the rows can be used. Write numbers with a decimal point",
        ),
        (
            HEADER + "a,01.07.2013 00:00,-8.6,41.1\n",
            (1, "timestamp"),
            "'01.07.2013 00:00' is not a time that can be read; none of the rows can be used. Write times as ISO 8601",
        ),
        (HEADER + "a,1500000000,-8,6,41,1\n" * 2, (1, None), "has 6 fields where the header has 4"),
        (HEADER, (None, None), "the file has a header but no rows"),
    ],
)
def test_nothing_left_says_why(tmp_path: Path, text: str, place: tuple[int | None, str | None], words: str) -> None:
    file = file_of(tmp_path, text)
    for read in (read_trips, lambda *args, **kwargs: list(iter_trips(*args, **kwargs))):
        with pytest.raises(InputError) as error:
            read(file, rejects=RejectedRows())
        assert (error.value.row, error.value.field) == place
        assert words in str(error.value)
        assert "none of the rows" not in words or "--rejects" not in str(error.value)  # they are set aside already


def test_no_rejects_is_an_empty_frame() -> None:
    assert RejectedRows().to_frame().schema == {
        "row": pl.Int64, "column": pl.String, "value": pl.String, "reason": pl.String,
    }  # fmt: skip
