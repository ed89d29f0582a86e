"""Chunks hold every trip exactly once and whole, whatever the order of the rows."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.trips.files import streaming
from tedtrajrec.trips.files.columns import find_columns
from tedtrajrec.trips.files.delimited import DelimitedFile
from tedtrajrec.trips.files.parquet import ParquetFile
from tedtrajrec.trips.files.streaming import split, survey
from tedtrajrec.trips.readers import iter_trips, read_trips
from tedtrajrec.trips.table import Trips, concat_trips
from tests.trips.trip_files import START, assert_same_trips, trips


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read some rows at a time, so that small files have many blocks."""
    monkeypatch.setattr("tedtrajrec.trips.files.delimited._BLOCK_BYTES", 512)
    monkeypatch.setattr("tedtrajrec.trips.files.parquet._BLOCK_ROWS", 7)
    monkeypatch.setattr("tedtrajrec.trips.files.gpx._READ_BYTES", 100)
    monkeypatch.setattr("tedtrajrec.trips.files.gpx._BLOCK_POINTS", 5)


def rows_of(trip_of_row: list[int]) -> pl.DataFrame:
    n = len(trip_of_row)
    return pl.DataFrame(
        {
            "traj_id": [f"trip {i}" for i in trip_of_row],
            "timestamp": START + np.arange(n),
            "lon": np.arange(n) / 100,
            "lat": np.arange(n) / 200,
            "speed": [None if i % 5 == 0 else i / 2 for i in range(n)],
            "note": [f"note, {i}" for i in range(n)],
        }
    )


def write(rows: pl.DataFrame, path: Path) -> Path:
    if path.suffix == ".parquet":
        rows.write_parquet(path)
    elif path.suffix == ".gz":
        path.write_bytes(gzip.compress(rows.write_csv().encode()))
    else:
        rows.write_csv(path)
    return path


def by_id(trips: Trips) -> Trips:
    return trips.select(np.argsort(trips.traj_id.tolist()))


@settings(deadline=None, max_examples=40)
@given(
    trip_of_row=st.lists(st.integers(0, 8), min_size=1, max_size=80),
    together=st.booleans(),
    chunk_fixes=st.integers(1, 100),
    ending=st.sampled_from(["csv", "csv.gz", "parquet"]),
)
def test_chunks_together_are_the_whole(trip_of_row: list[int], together: bool, chunk_fixes: int, ending: str) -> None:
    rows = rows_of(sorted(trip_of_row) if together else trip_of_row)
    with tempfile.TemporaryDirectory() as folder:
        file = write(rows, Path(folder) / f"t.{ending}")
        whole = read_trips(file)
        chunks = list(iter_trips(file, chunk_fixes=chunk_fixes))
    ids = [name for chunk in chunks for name in chunk.traj_id.tolist()]
    assert len(ids) == len(set(ids))
    assert all(chunk.n_fixes <= chunk_fixes or len(chunk) == 1 for chunk in chunks)
    joined = concat_trips(chunks)
    assert_same_trips(by_id(joined), by_id(whole))
    if together:
        assert ids == whole.traj_id.tolist()


def test_neighbouring_chunks_are_filled(tmp_path: Path) -> None:
    file = write(rows_of(np.repeat(np.arange(30), 3).tolist()), tmp_path / "t.csv")
    assert [chunk.n_fixes for chunk in iter_trips(file, chunk_fixes=20)] == [18, 18, 18, 18, 18]


def test_types_come_from_the_whole_file(tmp_path: Path) -> None:
    rows = rows_of(np.repeat(np.arange(40), 3).tolist()).with_columns(late=pl.Series(["1"] * 119 + ["007"]))
    file = write(rows, tmp_path / "t.csv")
    chunks = list(iter_trips(file, chunk_fixes=6))
    assert {chunk.extra["late"].dtype.kind for chunk in chunks} == {"T"}
    assert_same_trips(concat_trips(chunks), read_trips(file))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_survey(tmp_path: Path, ending: str) -> None:
    for trip_of_row, together in (([0] * 50 + [1] * 50, True), ([0] * 50 + [1] * 49 + [0], False)):
        file = write(rows_of(trip_of_row), tmp_path / f"t.{ending}")
        source = DelimitedFile(file) if ending == "csv" else ParquetFile(file)
        found = survey(source, find_columns(source.names), None)
        assert (found.rows, found.together) == (100, together)


def test_temporary_files_go_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    file = write(rows_of([0, 1, 2] * 30), tmp_path / "t.csv")
    chunks = iter_trips(file, chunk_fixes=30)
    next(chunks)
    assert list((tmp_path / "temporary").iterdir())
    chunks.close()  # type: ignore[attr-defined]
    assert not list((tmp_path / "temporary").iterdir())


def test_no_room_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(streaming, "_spill", full)
    with pytest.raises(OutputError, match=r"No space left on device.*TMPDIR"):
        list(iter_trips(write(rows_of([0, 1, 0]), tmp_path / "t.csv")))


@pytest.mark.parametrize("trip_of_row", [[0] * 60, [0, 1] * 30])
def test_bad_rows_late_in_the_file_are_named(tmp_path: Path, trip_of_row: list[int]) -> None:
    lon = ["1.5"] * 60
    lon[55] = "east"
    file = write(rows_of(trip_of_row).with_columns(lon=pl.Series(lon)), tmp_path / "t.csv")
    with pytest.raises(InputError, match="row 56, column 'lon': 'east' is not a number"):
        list(iter_trips(file, chunk_fixes=10))


@settings(deadline=None, max_examples=30)
@given(made=trips(empty=True), chunk_fixes=st.integers(1, 12))
def test_split(made: Trips, chunk_fixes: int) -> None:
    parts = list(split(made, chunk_fixes))
    assert_same_trips(concat_trips(parts), made)
    assert all(part.n_fixes <= chunk_fixes or len(part) == 1 for part in parts)


def test_impossible_chunks(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        next(iter_trips(tmp_path / "t.csv", chunk_fixes=0))
