"""GPX as devices write it, checked against gpxpy, and as attackers do."""

from __future__ import annotations

import gzip
from pathlib import Path

import gpxpy
import numpy as np
import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.trips.readers import RejectedRows, iter_trips, read_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips
from tests.trips.trip_files import START, assert_same_trips

GARMIN = """<?xml version="1.0" encoding="UTF-8"?>
<gpx version="1.1" creator="a watch" xmlns="http://www.topografix.com/GPX/1/1"
     xmlns:gpxtpx="http://www.garmin.com/xmlschemas/TrackPointExtension/v1">
 <metadata><time>2020-01-01T00:00:00Z</time></metadata>
 <wpt lat="1" lon="2"><name>home</name></wpt>
 <rte><rtept lat="1" lon="2"/></rte>
 <trk><name>Commute &amp; back</name><type>cycling</type>
  <trkseg>
   <trkpt lat="41.1" lon="-8.6"><ele>12.5</ele><time>2017-07-14T02:40:00Z</time>
    <extensions><gpxtpx:TrackPointExtension><gpxtpx:hr>101</gpxtpx:hr></gpxtpx:TrackPointExtension></extensions></trkpt>
   <trkpt lat="41.2" lon="-8.7"><time>2017-07-14T03:40:15.400+01:00</time></trkpt>
  </trkseg>
  <trkseg/>
  <trkseg><trkpt lat="41.3" lon="-8.8"><time>2017-07-14T02:50:00</time></trkpt></trkseg>
 </trk>
 <trk><trkseg><trkpt lat="41.4" lon="-8.9"><time>2017-07-14T02:51:00Z</time></trkpt></trkseg></trk>
</gpx>
"""


def file_of(folder: Path, text: str) -> Path:
    path = folder / "t.gpx"
    path.write_text(text, encoding="utf-8")
    return path


def points(inside: str) -> str:
    return f'<gpx version="1.1"><trk><trkseg>{inside}</trkseg></trk></gpx>'


def test_tracks_of_a_device(tmp_path: Path) -> None:
    trips = read_trips(file_of(tmp_path, GARMIN))
    assert trips.traj_id.tolist() == ["Commute & back", "Commute & back/2", "track 2"]
    assert trips.lengths.tolist() == [2, 1, 1]
    assert trips.time.tolist() == [START, START + 15, START + 600, START + 660]  # no zone means UTC in GPX
    assert trips.lon.tolist() == [-8.6, -8.7, -8.8, -8.9]
    assert trips.extra["ele"].tolist() == [12.5, None, None, None]
    assert trips.extra["hr"].tolist() == [101, None, None, None]
    assert trips.trip_extra["type"].tolist() == ["cycling", "cycling", None]


def test_gpxpy_reads_the_same(tmp_path: Path) -> None:
    trips = read_trips(file_of(tmp_path, GARMIN))
    segments = [segment for track in gpxpy.parse(GARMIN).tracks for segment in track.segments if segment.points]
    assert trips.lengths.tolist() == [len(segment.points) for segment in segments]
    assert trips.lat.tolist() == [point.latitude for segment in segments for point in segment.points]


def test_gpxpy_reads_what_we_write(tmp_path: Path) -> None:
    made = Trips.from_columns(
        ["a<b", "a<b", "c"], [START, START + 15, START], [1e-7, 2.5, -179.999999], [-1e-9, 41.123456789, 90],
        segment=[1, -1, 2], ratio=[0.25, np.nan, 1],
    )  # fmt: skip
    write_trips(made, tmp_path / "t.gpx")
    parsed = gpxpy.parse((tmp_path / "t.gpx").read_text())
    assert [track.name for track in parsed.tracks] == ["a<b", "c"]
    found = [point for track in parsed.tracks for segment in track.segments for point in segment.points]
    assert [(point.longitude, point.latitude) for point in found] == list(zip(made.lon, made.lat, strict=True))
    assert [point.time.timestamp() for point in found] == made.time.tolist()
    assert "e-" not in (tmp_path / "t.gpx").read_text()  # GPX numbers have no exponents
    assert_same_trips(read_trips(tmp_path / "t.gpx"), made)


def test_blocks_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = read_trips(file_of(tmp_path, GARMIN))
    for read_bytes in (1, 7, 100):
        monkeypatch.setattr("tedtrajrec.trips.files.gpx._READ_BYTES", read_bytes)
        monkeypatch.setattr("tedtrajrec.trips.files.gpx._BLOCK_POINTS", 1)
        assert_same_trips(read_trips(tmp_path / "t.gpx"), whole)
    assert [chunk.n_fixes for chunk in iter_trips(tmp_path / "t.gpx", chunk_fixes=2)] == [2, 2]


def test_gpx_is_recognised_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "download").write_text(GARMIN)
    assert read_trips(tmp_path / "download").n_fixes == 4
    (tmp_path / "t.gpx.gz").write_bytes(gzip.compress(GARMIN.encode()))
    assert read_trips(tmp_path / "t.gpx.gz").n_fixes == 4


def test_undeclared_prefixes_are_forgiven(tmp_path: Path) -> None:
    point = (
        '<trkpt lat="1" lon="2"><time>2020-01-01T00:00:00Z</time><extensions><ns3:hr>3</ns3:hr></extensions></trkpt>'
    )
    assert read_trips(file_of(tmp_path, points(point))).extra["hr"].tolist() == [3]


BOMB = '<!DOCTYPE gpx [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">]>'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (points("") + "rest", "the XML is broken"),
        ("<gpx><trk>", "the XML is broken"),
        ("no xml at all", "the XML is broken"),
        ("<gpx/>", "there are no track points"),
        ("<gpx><wpt lat='1' lon='2'/></gpx>", "waypoints and routes are not"),
        (points(""), "there are no track points"),
        ("<html><body/></html>", "this is XML, but not GPX (it starts with <html>)"),
        (BOMB + points("&b;"), "a document type declaration is not allowed"),
        ('<!DOCTYPE gpx SYSTEM "file:///etc/passwd">' + points(""), "a document type declaration is not allowed"),
        (points('<trkpt lat="1" lon="2"/>'), "row 1, column 'timestamp': there is no time"),
        (points('<trkpt lat="1" lon="2"><time>noon</time></trkpt>'), "column 'timestamp': 'noon' is not a time"),
        (
            points('<trkpt lat="x" lon="2"><time>2020-01-01T00:00:00Z</time></trkpt>'),
            "'lat': 'x' is not a number",
        ),
        (points('<trkpt lon="2"><time>2020-01-01T00:00:00Z</time></trkpt>'), "column 'lat': there is no value"),
    ],
)
def test_broken_gpx(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        read_trips(file_of(tmp_path, text))
    assert message in str(error.value)


def test_cut_off_gzip(tmp_path: Path) -> None:
    (tmp_path / "t.gpx.gz").write_bytes(gzip.compress(GARMIN.encode())[:-20])
    with pytest.raises(InputError, match="damaged or cut off"):
        read_trips(tmp_path / "t.gpx.gz")


def test_points_without_time_can_be_set_aside(tmp_path: Path) -> None:
    good = '<trkpt lat="1" lon="2"><time>2020-01-01T00:00:00Z</time></trkpt>'
    rejects = RejectedRows()
    assert read_trips(file_of(tmp_path, points(good + '<trkpt lat="1" lon="2"/>' + good)), rejects=rejects).n_fixes == 2
    assert rejects.to_frame()["row"].to_list() == [2]
