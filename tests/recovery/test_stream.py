"""From file to file: chunks, formats, rejects, columns, and what becomes of interrupted work."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import gpxpy
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery import stream
from tedtrajrec.recovery.privacy import hash_ids
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.recovery.stream import recover_file
from tedtrajrec.recovery.summary import TRIP_SCHEMA
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips, as_text, concat_trips
from tedtrajrec.trips.writers import write_trips
from tedtrajrec.work import only_run
from tests.recovery.made import QuickRecoverer, sparse_trips
from tests.trips.trip_files import assert_same_trips

COLUMNS = ["traj_id", "timestamp", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "break"]
OSM = "(c) OpenStreetMap contributors, ODbL"


@pytest.fixture
def city(tiny_city: RoadNetwork) -> RoadNetwork:
    return RoadNetwork(**tiny_city.arrays(), meta={"attribution": OSM})


@pytest.fixture
def source(city: RoadNetwork, tmp_path: Path) -> Path:
    write_trips(sparse_trips(city, 50), tmp_path / "in" / "trips.parquet")
    return tmp_path / "in" / "trips.parquet"


def recover(source: Path, output: Path, city: RoadNetwork, **options: Any) -> Any:
    return recover_file(source, output, QuickRecoverer(city), **options)  # type: ignore[arg-type]


def expected(city: RoadNetwork, source: Path, **options: Any) -> Trips:
    return QuickRecoverer(city).recover_trips(read_trips(source), **options).to_trips()


# ---------------------------------------------------------------------- formats


@pytest.mark.parametrize("ending", ["parquet", "geoparquet", "csv", "csv.gz", "gpx", "geojson"])
@pytest.mark.parametrize("chunk", [60, 10**6])
def test_every_format_holds_what_was_recovered(
    ending: str, chunk: int, source: Path, city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK_FIXES", chunk)
    output = tmp_path / f"recovered.{ending}"
    done = recover(source, output, city)
    made = expected(city, source)
    assert (done.trips, done.steps, done.fixes_used) == (50, made.n_fixes, 200)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", output.name]  # no rejects, no parts, no lock
    if ending == "geojson":
        features = json.loads(output.read_text())["features"]
        assert [feature["properties"]["traj_id"] for feature in features] == made.traj_id.tolist()
        per_step = features[3]["properties"]["coordinateProperties"]
        assert list(per_step) == ["times", *COLUMNS[4:]]
        rows = slice(made.offsets[3], made.offsets[4])
        assert per_step["segment"] == made.segment[rows].tolist()
        assert features[3]["geometry"]["coordinates"] == np.column_stack([made.lon, made.lat])[rows].tolist()
        assert features[3]["properties"]["driver"] == "driver 3"
        return
    read = read_trips(output)
    if ending in ("parquet", "geoparquet"):
        assert_same_trips(read, made)
    again = RecoveredTrips.from_trips(read).to_trips()  # CSV has one value a row for what we keep by trip
    assert_same_trips(again.replace(extra={}, trip_extra={}), made.replace(extra={}, trip_extra={}))
    for name in COLUMNS[6:]:
        np.testing.assert_array_equal(again.extra[name], made.extra[name])
    assert again.trip_extra["driver"].tolist() == made.trip_extra["driver"].tolist()
    assert np.ma.asarray(again.trip_extra["speed"]).tolist() == np.ma.asarray(made.trip_extra["speed"]).tolist()


def test_columns_have_their_order_and_extra_ones_come_behind(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    recover(source, tmp_path / "r.csv", city)
    header = (tmp_path / "r.csv").read_text().partition("\n")[0].split(",")
    assert header[: len(COLUMNS)] == COLUMNS
    assert sorted(header[len(COLUMNS) :]) == ["driver", "speed"]
    recover(source, tmp_path / "a.parquet", city, alternatives=2)
    names = pq.read_schema(tmp_path / "a.parquet").names
    assert names[: len(COLUMNS) + 2] == [*COLUMNS, "alternative", "alternative_share"]


def test_alternatives_are_trips_of_their_own(
    source: Path, city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK_FIXES", 30)
    done = recover(source, tmp_path / "r.geojson", city, alternatives=2)
    features = json.loads((tmp_path / "r.geojson").read_text())["features"]
    assert len(features) == 150
    assert [f["properties"]["coordinateProperties"]["alternative"][0] for f in features[:4]] == [0, 1, 2, 0]
    assert done.trips == 50  # figures are those of the trips themselves
    recover(source, tmp_path / "r.parquet", city, alternatives=2)
    read = RecoveredTrips.from_trips(read_trips(tmp_path / "r.parquet"))
    assert_same_trips(read.to_trips(), expected(city, source, alternatives=2))


def test_the_map_is_attributed_where_the_format_has_a_place(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    for name in ("r.parquet", "r.geoparquet", "r.geojson", "r.gpx"):
        recover(source, tmp_path / name, city)
    for name in ("r.parquet", "r.geoparquet"):
        assert pq.read_schema(tmp_path / name).metadata[b"attribution"].decode() == OSM
    assert json.loads((tmp_path / "r.geojson").read_text())["attribution"] == OSM
    assert gpxpy.parse((tmp_path / "r.gpx").read_text()).description == OSM
    nobody = RoadNetwork(**city.arrays(), meta={})
    recover(source, tmp_path / "n.parquet", nobody)
    recover(source, tmp_path / "n.geojson", nobody)
    assert b"attribution" not in pq.read_schema(tmp_path / "n.parquet").metadata
    assert "attribution" not in json.loads((tmp_path / "n.geojson").read_text())


# ---------------------------------------------------------------------- rejects


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_rows_in_are_rows_used_and_rejects(city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK_FIXES", 9)
    single = sparse_trips(city, 3, seed=4, fixes=1).replace(traj_id=as_text(["x", "y", "z"]))
    write_trips(concat_trips([sparse_trips(city, 10), single]), tmp_path / "good.csv")
    lines = (tmp_path / "good.csv").read_text().splitlines()
    bad = ["q,yesterday,-8.6,41.1,5,d", "q,1500000000,-8.6,north,5,d", ",1500000000,-8.6,41.1,5,d", "q,1500000000"]
    lines[4:4] = bad[:2]
    (tmp_path / "in.csv").write_text("\n".join([*lines, *bad[2:]]) + "\n")
    done = recover(tmp_path / "in.csv", tmp_path / "r.csv", city)
    listed = rows_of(tmp_path / "r.rejects.csv")
    fixes = [row for row in listed if row["timestamp"]]
    unreadable = [row for row in listed if row["row"]]
    whole = [row for row in listed if not row["timestamp"] and not row["row"]]
    rows_in = len(lines) - 1 + 2
    assert rows_in == done.fixes_used + len(fixes) + len(unreadable)
    assert done.fixes_in == done.fixes_used + len(fixes) == 43
    assert [row["traj_id"] for row in fixes] == [row["traj_id"] for row in whole] == ["x", "y", "z"]
    assert [(row["row"], row["column"], row["value"]) for row in unreadable[:2]] == [
        ("4", "timestamp", "yesterday"),
        ("5", "lat", "north"),
    ]
    assert done.rows_unreadable == 4
    assert dict(done.rejects) == {
        "too few": 3,
        "alone": 3,
        "row, column 'timestamp': is not an epoch time like the others in this column": 1,
        "row, column 'lat': is not a number": 1,
        "row, column 'traj_id': there is no trip id": 1,
        "row: has 2 fields where the header has 6": 1,
    }
    assert done.trips_in == done.trips + len(whole) == 13
    told = str(done)
    assert "10 of 13 trips recovered from 40 of 43 fixes" in told
    assert f"listed in {tmp_path / 'r.rejects.csv'}" in told
    assert "1  row, column 'traj_id': there is no trip id" in told


def test_where_rejects_go(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    (tmp_path / "r.rejects.csv").write_text("of an earlier run")
    recover(source, tmp_path / "r.csv.gz", city)
    assert not (tmp_path / "r.rejects.csv").exists()
    recover(source, tmp_path / "r.csv.gz", city, rejects=tmp_path / "asked" / "for.csv")
    assert rows_of(tmp_path / "asked" / "for.csv") == []


def test_nothing_recovered_is_an_error_and_the_reasons_are_listed(city: RoadNetwork, tmp_path: Path) -> None:
    write_trips(sparse_trips(city, 4, fixes=1), tmp_path / "in.csv")
    with pytest.raises(InputError, match=r"none of the trips can be recovered:\n0 of 4 trips(.|\n)*4  too few"):
        recover(tmp_path / "in.csv", tmp_path / "r.parquet", city)
    assert len(rows_of(tmp_path / "r.rejects.csv")) == 8
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.csv", "r.rejects.csv"]


def test_places_must_differ(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    for options in (
        {"rejects": tmp_path / "r.csv"},
        {"summary": tmp_path / "r.csv"},
        {"rejects": source},
        {"summary": tmp_path / "s.csv", "rejects": tmp_path / "s.csv"},
    ):
        with pytest.raises(OutputError, match="give each a file of its own"):
            recover(source, tmp_path / "r.csv", city, **options)
    with pytest.raises(OutputError, match="as the input and as the output"):
        recover(source, source, city)
    with pytest.raises(OutputError, match="no known ending for trips"):
        recover(source, tmp_path / "r.xlsx", city)
    with pytest.raises(OutputError, match="no known ending for a summary"):
        recover(source, tmp_path / "r.csv", city, summary=tmp_path / "s.xlsx")
    with pytest.raises(ConfigError, match="cannot be trimmed"):
        recover(source, tmp_path / "r.csv", city, trim_ends_m=float("nan"))


# ---------------------------------------------------------------------- summary, privacy


def test_the_summary_of_trips(source: Path, city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CHUNK_FIXES", 40)
    done = recover(source, tmp_path / "r.parquet", city, summary=tmp_path / "s.parquet")
    recover(source, tmp_path / "r.parquet", city, summary=tmp_path / "s.csv")
    rows = pl.read_parquet(tmp_path / "s.parquet")
    assert dict(rows.schema) == dict(TRIP_SCHEMA)
    made = expected(city, source)
    assert rows["traj_id"].to_list() == made.traj_id.tolist()
    assert rows["steps"].to_list() == made.lengths.tolist()
    assert rows["start"].dt.epoch("s").to_list() == made.time[made.offsets[:-1]].tolist()
    assert done.km == pytest.approx(rows["km"].sum())
    assert done.hours * 60 == pytest.approx(rows["minutes"].sum())
    assert done.break_hours * 60 == pytest.approx(rows["break_minutes"].sum())
    assert done.hours + done.break_hours == pytest.approx((rows["end"] - rows["start"]).sum().total_seconds() / 3600)
    assert done.confident == pytest.approx((made.extra["probability"] >= np.float32(0.8)).mean())
    text = pl.read_csv(tmp_path / "s.csv", try_parse_dates=True)
    assert text["end"].dt.epoch("s").to_list() == rows["end"].dt.epoch("s").to_list()
    assert text.drop("start", "end").equals(rows.drop("start", "end"))


def test_the_total_is_of_all_steps(city: RoadNetwork, source: Path, tmp_path: Path) -> None:
    class KnowsFew(QuickRecoverer):
        """Knows the probability of the first trips of the file only."""

        def recover_trips(self, trips: Trips, step_s: int | None = None, *, alternatives: int = 0) -> RecoveredTrips:
            found = super().recover_trips(trips, step_s, alternatives=alternatives)
            sure = found.trip_of_row < self.rated
            return dataclasses.replace(found, probability=np.where(sure, 1, np.nan).astype(np.float32))

    recoverer: Any = KnowsFew(city)
    lengths = expected(city, source).lengths
    recoverer.rated = 10
    assert recover_file(source, tmp_path / "r.csv", recoverer).confident is None
    recoverer.rated = 45
    done = recover_file(source, tmp_path / "r.csv", recoverer)
    assert done.confident == pytest.approx(lengths[:45].sum() / lengths.sum())


def test_trimmed_and_hashed(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    key = "0123456789abcdef"
    done = recover(
        source, tmp_path / "r.csv", city, trim_ends_m=100.0, hash_key=key, summary=tmp_path / "s.csv", alternatives=1
    )
    plain = read_trips(source)
    hashed = hash_ids(plain.traj_id, key).tolist()
    rows = pl.read_csv(tmp_path / "r.csv")
    assert "driver" not in rows.columns  # extra columns may tell what the ids no longer do
    assert set(rows["traj_id"]) <= set(hashed)
    assert set(pl.read_csv(tmp_path / "s.csv")["traj_id"]) == set(rows["traj_id"])
    lost = {row["traj_id"] for row in rows_of(tmp_path / "r.rejects.csv")}
    assert lost | set(rows["traj_id"]) == set(hashed)
    assert done.trips == 50 - len(lost)
    for file in tmp_path.rglob("*.csv"):
        assert "trip " not in file.read_text()
    recover(source, tmp_path / "k.csv", city, hash_key=key, extras=["driver"])
    assert pl.read_csv(tmp_path / "k.csv").columns[-1] == "driver"


def test_rows_that_cannot_be_read_tell_nothing_either(city: RoadNetwork, tmp_path: Path) -> None:
    write_trips(sparse_trips(city, 10), tmp_path / "in.csv")
    with (tmp_path / "in.csv").open("a") as file:
        file.write("trip 4,soon,-8.62,41.15,5,driver 1\n")
    recover(tmp_path / "in.csv", tmp_path / "r.csv", city, hash_key="k" * 32)
    (row,) = rows_of(tmp_path / "r.rejects.csv")
    assert (row["row"], row["column"], row["value"]) == ("41", "timestamp", "")


# ---------------------------------------------------------------------- interrupted work


class Stopped(Exception):  # noqa: N818
    """Stands for whatever ends a run."""


def test_interrupted_work_goes_on_from_its_parts(
    source: Path, city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK_FIXES", 20)
    recover(source, tmp_path / "whole.parquet", city)
    recoverer: Any = QuickRecoverer(city)
    whole, told = recoverer.recover_trips, []

    def stops(*args: Any, **options: Any) -> RecoveredTrips:
        if recoverer.calls == 4:
            raise Stopped
        return whole(*args, **options)

    recoverer.recover_trips = stops
    with pytest.raises(Stopped):
        recover_file(source, tmp_path / "r.parquet", recoverer)
    assert not (tmp_path / "r.parquet").exists()
    recoverer.recover_trips = whole
    recover_file(source, tmp_path / "r.parquet", recoverer, tell=told.append)
    assert recoverer.calls == 10  # four parts were there
    assert told[0] == f"went on from 4 parts in {tmp_path / 'r.parquet.parts'}"
    assert (tmp_path / "r.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not (tmp_path / "r.parquet.parts").exists()

    # Parts of other settings or another input are of no use.
    for change in ({"step_s": 30}, {"trim_ends_m": 5.0}, {"hash_key": "k" * 16}, {"extras": ["driver"]}):
        recoverer.recover_trips, recoverer.calls = stops, 0
        with pytest.raises(Stopped):
            recover_file(source, tmp_path / "r.parquet", recoverer)
        recoverer.recover_trips = whole
        told.clear()
        recover_file(source, tmp_path / "r.parquet", recoverer, tell=told.append, **change)
        assert recoverer.calls == 14, change
        assert "was of another input, model or other settings; started over" in told[0]


def test_the_model_is_told_at_once_what_the_input_is_like(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    told: list[str] = []
    recover(source, tmp_path / "r.csv", city, tell=told.append)
    assert told == ["The first of 50 trips is looked at."]


def test_a_terminal_sees_how_far_it_is(
    source: Path, city: RoadNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    recover(source, tmp_path / "r.csv", city, show_progress=True)
    assert re.search(r"recover: .* 0/200 .*fixes", sys.stderr.getvalue())  # type: ignore[attr-defined]
    polyline = "[[-8.62,41.15],[-8.61,41.15]]"
    (tmp_path / "p.csv").write_text(f'TRIP_ID,TIMESTAMP,POLYLINE\na,1400000000,"{polyline}"\nb,1400000000,"[]"\n')
    recover(tmp_path / "p.csv", tmp_path / "r.csv", city, show_progress=True)
    assert re.search(r"recover: .* 0/2 .*trips", sys.stderr.getvalue())  # type: ignore[attr-defined]


def test_one_run_at_a_time(source: Path, city: RoadNetwork, tmp_path: Path) -> None:
    with only_run(tmp_path / "r.csv"), pytest.raises(OutputError, match="is being made by another run"):
        recover(source, tmp_path / "r.csv", city)
    recover(source, tmp_path / "r.csv", city)
