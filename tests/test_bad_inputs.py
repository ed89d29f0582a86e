"""Bad inputs, each with its message: one clear sentence, exit code 2, no traceback, no output left behind."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.cli import main
from tests.conftest import make_grid

HEADER = "traj_id,timestamp,lon,lat\n"
GOOD = HEADER + "a,1372636858,-8.6186,41.1414\na,1372636873,-8.6185,41.1413\na,1372636888,-8.6203,41.1425\n"
EDGES = "u,v,geometry\n"
LINE = '"LINESTRING (104.06 30.65, 104.07 30.66)"'
GPX = '<?xml version="1.0"?><gpx version="1.1" creator="t" xmlns="http://www.topografix.com/GPX/1/1">{}</gpx>'
OSM = '<?xml version="1.0"?><osm version="0.6">{}</osm>'
NODES = '<node id="1" lat="41.1" lon="-8.6"/><node id="2" lat="41.2" lon="-8.6"/>'


def feature(geometry: object, **properties: object) -> dict[str, object]:
    return {"type": "Feature", "properties": properties, "geometry": geometry}


def collection(*features: object) -> str:
    return json.dumps({"type": "FeatureCollection", "features": features})


def truncated_gzip(text: str) -> bytes:
    return gzip.compress((text * 200).encode())[:-20]


def pickled_npz(path: Path) -> None:
    np.savez(path, allow_pickle=True, header=np.array([{"a": 1}], dtype=object))


def half_npz(path: Path) -> None:
    make_grid().save(path)
    path.write_bytes(path.read_bytes()[:2000])


def foreign_npz(path: Path) -> None:
    np.savez(path, x=np.zeros(3))


def half_parquet(path: Path) -> None:
    pl.read_csv(GOOD.encode()).write_parquet(path)
    path.write_bytes(path.read_bytes()[:-40])


def typed_parquet(path: Path) -> None:
    pl.read_csv(GOOD.encode()).with_columns(lon=pl.lit("west")).write_parquet(path)


def islands(path: Path) -> None:
    make_grid(columns=2, rows=1, one_way_row=0).save(path)


BUILD = "network build {0} -o {out}/network.npz"
CLEAN = "clean {0} -o {out}/clean.csv"
CASES = {
    # road networks from OpenStreetMap
    "osm: no such file": ("gone.osm.pbf", None, BUILD, "there is no such file"),
    "osm: a folder": ("roads.osm", "folder", BUILD, "this is a folder"),
    "osm: empty file": ("empty.osm.pbf", "", BUILD, "the file is empty"),
    "osm: unknown kind": ("roads.shp", "x", BUILD, "not known as a road network"),
    "osm: text for pbf": ("text.osm.pbf", "this is not a map", BUILD, "cannot be read as OpenStreetMap"),
    "osm: broken XML": ("broken.osm", OSM.format("<node id="), BUILD, "cannot be read as OpenStreetMap"),
    "osm: truncated gzip": ("cut.osm.gz", truncated_gzip(OSM.format(NODES)), BUILD, "cannot be read as OpenStreetMap"),
    "osm: no ways": ("nodes.osm", OSM.format(NODES), BUILD, "no roads for cars"),
    "osm: footpaths only": (
        "paths.osm",
        OSM.format(NODES + '<way id="9"><nd ref="1"/><nd ref="2"/><tag k="highway" v="footway"/></way>'),
        BUILD,
        "no roads for cars",
    ),
    "osm: nodes missing": (
        "bare.osm",
        OSM.format('<way id="9"><nd ref="1"/><nd ref="2"/><tag k="highway" v="primary"/></way>'),
        BUILD,
        "no road for cars lies in",
    ),
    "osm: box elsewhere": (
        "road.osm",
        OSM.format(NODES + '<way id="9"><nd ref="1"/><nd ref="2"/><tag k="highway" v="primary"/></way>'),
        BUILD + " --bbox 10,50,11,51",
        "no road for cars lies in the bounding box",
    ),
    "osm: box not a box": ("road.osm", OSM.format(NODES), BUILD + " --bbox 10,50,11", "is not a bounding box"),
    "osm: box swapped": ("road.osm", OSM.format(NODES), BUILD + " --bbox 11,50,10,51", "is empty or not in degrees"),
    "osm: unknown country": ("road.osm", OSM.format(NODES), BUILD + " --country XX", "country 'XX'"),
    # road networks from edge tables
    "edges: not JSON": ("n.geojson", "roads", BUILD, "JSON"),
    "edges: truncated gzip": ("n.geojson.gz", truncated_gzip(collection()), BUILD, "gzip"),
    "edges: no features": ("n.geojson", collection(), BUILD, "no "),
    "edges: no u": (
        "n.geojson",
        collection(feature({"type": "LineString", "coordinates": [[1, 2], [1, 3]]}, v=1)),
        BUILD,
        "u",
    ),
    "edges: points": (
        "n.geojson",
        collection(feature({"type": "Point", "coordinates": [1, 2]}, u=1, v=2)),
        BUILD,
        "LineString",
    ),
    "edges: bad WKT": ("n.csv", EDGES + "1,2,LINE(1 2)\n", BUILD, "row 1, column 'geometry'"),
    "edges: empty u": ("n.csv", EDGES + f",2,{LINE}\n", BUILD, "row 1, column 'u'"),
    "edges: swapped": ("n.csv", EDGES + '1,2,"LINESTRING (30.65 104.06, 30.66 104.07)"\n', BUILD, "swapped"),
    "edges: projected": ("n.csv", EDGES + '1,2,"LINESTRING (500000 3400000, 500100 3400100)"\n', BUILD, "EPSG:4326"),
    "edges: NaN": ("n.csv", EDGES + '1,2,"LINESTRING (nan 30.6, 104.07 30.66)"\n', BUILD, "row 1, column 'geometry'"),
    "edges: ends disagree": (
        "n.csv",
        EDGES + f'1,2,{LINE}\n2,3,"LINESTRING (104.2 30.7, 104.3 30.7)"\n',
        BUILD,
        "row",
    ),
    "edges: broken parquet": ("n.parquet", b"PAR1 nothing PAR1", BUILD, "Parquet"),
    # saved road networks
    "network: half-written": ("n.npz", half_npz, "network info {0}", "damaged"),
    "network: another npz": ("n.npz", foreign_npz, "network info {0}", "not a road network of tedtrajrec"),
    "network: text": ("n.npz", "hello", "network info {0}", "damaged or is not a road network"),
    "network: pickle": ("n.npz", pickled_npz, "network info {0}", "damaged or is not a road network"),
    "network: output not npz": ("c.csv", EDGES + f"1,2,{LINE}\n", "network build {0} -o {out}/n.txt", "ends in .npz"),
    # trips
    "trips: no such file": ("gone.csv", None, CLEAN, "there is no such file"),
    "trips: empty file": ("t.csv", "", CLEAN, "the file is empty"),
    "trips: header only": ("t.csv", HEADER, CLEAN, "no "),
    "trips: unknown columns": ("t.csv", "a,b,c\n1,2,3\n", CLEAN, "--columns"),
    "trips: named column absent": ("t.csv", GOOD, CLEAN + " --columns lon=east", "east"),
    "trips: ambiguous columns": (
        "t.csv",
        "traj_id,timestamp,longitude,lng,lat\na,1372636858,1,2,3\n",
        CLEAN,
        "longitude",
    ),
    "trips: repeated column": ("t.csv", "traj_id,timestamp,lon,lon,lat\na,1372636858,1,2,3\n", CLEAN, "lon"),
    "trips: bad mapping": ("t.csv", GOOD, CLEAN + " --columns lon", "NAME=COLUMN"),
    "trips: swapped": ("t.csv", HEADER + "a,1540704502,30.68,104.07\na,1540704517,30.69,104.08\n", CLEAN, "swapped"),
    "trips: NaN": ("t.csv", HEADER + "a,1372636858,-8.6,41.1\na,1372636873,nan,41.1\n", CLEAN, "row 2, column 'lon'"),
    "trips: empty value": ("t.csv", HEADER + "a,1372636858,-8.6,\n", CLEAN, "row 1, column 'lat'"),
    "trips: text for a number": ("t.csv", HEADER + "a,1372636858,west,41.1\n", CLEAN, "row 1, column 'lon'"),
    "trips: latitude 95": (
        "t.csv",
        HEADER + "a,1372636858,-8.6,41.1\na,1372636873,-98.6,95\n",
        CLEAN,
        "row 2, column 'lat'",
    ),
    "trips: no id": ("t.csv", HEADER + ",1372636858,-8.6,41.1\n", CLEAN, "row 1, column 'traj_id'"),
    "trips: year 1970": ("t.csv", HEADER + "a,1372636,-8.6,41.1\n", CLEAN, "row 1, column 'timestamp'"),
    "trips: year 2100": ("t.csv", HEADER + "a,4291747200,-8.6,41.1\n", CLEAN, "row 1, column 'timestamp'"),
    "trips: naive times": ("t.csv", HEADER + "a,2013-07-01 00:00:58,-8.6,41.1\n", CLEAN, "--timezone"),
    "trips: unknown time zone": (
        "t.csv",
        HEADER + "a,2013-07-01 00:00:58,-8.6,41.1\n",
        CLEAN + " --timezone Porto",
        "Porto",
    ),
    "trips: not a time": ("t.csv", HEADER + "a,yesterday,-8.6,41.1\n", CLEAN, "row 1, column 'timestamp'"),
    "trips: too many fields": ("t.csv", HEADER + "a,1372636858,-8.6,41.1,7,8\n", CLEAN, "row 1"),
    "trips: decimal comma": ("t.csv", HEADER.replace(",", ";") + "a;1372636858;-8,6;41,1\n", CLEAN, "decimal comma"),
    "trips: truncated gzip": ("t.csv.gz", truncated_gzip(GOOD), CLEAN, "gzip"),
    "trips: not UTF-8": ("t.csv", GOOD.encode() + b"\xff\xfe,1372636858,1,1\n", CLEAN, "UTF-8"),
    "trips: broken parquet": ("t.parquet", half_parquet, CLEAN, "Parquet"),
    "trips: text in parquet": ("t.parquet", typed_parquet, CLEAN, "row 1, column 'lon'"),
    "trips: a zip archive": ("t.csv", b"PK\x03\x04" + bytes(60), CLEAN, "zip"),
    "trips: GPX not XML": ("t.gpx", GPX.format("<trk><trkseg>"), CLEAN, "the XML is broken"),
    "trips: GPX without points": ("t.gpx", GPX.format("<trk><trkseg></trkseg></trk>"), CLEAN, "no "),
    "trips: GPX without times": (
        "t.gpx",
        GPX.format('<trk><trkseg><trkpt lat="41.1" lon="-8.6"/></trkseg></trk>'),
        CLEAN,
        "time",
    ),
    "trips: broken polyline": (
        "t.csv",
        'TRIP_ID,TIMESTAMP,POLYLINE\n1,1372636858,"[[-8.6,41.1],[-8.6"\n',
        CLEAN,
        "row 1, column 'POLYLINE'",
    ),
    "trips: nothing left": (
        "t.csv",
        GOOD,
        CLEAN + " --set min_length_m=100000",
        "most of all for 'below min duration' (3 fixes). Loosen the settings, see docs/cleaning.md.\ntrips  ",
    ),
    "trips: no row left": (
        "t.csv",
        HEADER + "a,01.07.2013 00:00,-8.6,41.1\n",
        CLEAN + " --rejects {out}/r.csv",
        "row 1, column 'timestamp': '01.07.2013 00:00' is not a time that can be read; none of the rows can be used",
    ),
    # settings and options
    "settings: unknown name": ("t.csv", GOOD, CLEAN + " --set max_gap=3", "Unknown setting 'max_gap'"),
    "settings: wrong type": ("t.csv", GOOD, CLEAN + " --set max_gap_s=long", "must be of type float"),
    "settings: impossible": ("t.csv", GOOD, CLEAN + " --set max_gap_s=-1", "max_gap_s"),
    "settings: no ignition column": ("t.csv", GOOD, CLEAN + " --set active_column=ignition", "ignition"),
    "settings: broken TOML": ("c.toml", "a = = 1", "clean t.csv -o {out}/c.csv --config {0}", "not valid TOML"),
    "thin: share of 0": ("t.csv", GOOD, "thin {0} --keep 0 -o {out}/s.csv", "0"),
    "thin: share of 2": ("t.csv", GOOD, "thin {0} --keep 2 -o {out}/s.csv", "2"),
    "thin: not a share": ("t.csv", GOOD, "thin {0} --keep few -o {out}/s.csv", "few"),
    "output: unknown format": ("t.csv", GOOD, "thin {0} -o {out}/s.xlsx", "s.xlsx"),
    "output: a folder": ("t.csv", GOOD, "thin {0} -o {tmp}", "{tmp}"),
    "simulate: nowhere to drive": ("n.npz", islands, "simulate --network {0} --trips 5 -o {out}/t.csv", "network"),
    "simulate: wrong network file": ("t.csv", GOOD, "simulate --network {0} --trips 5 -o {out}/t.csv", "road network"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_sentence(case, tmp_path, capsys, monkeypatch):
    name, content, command, message = CASES[case]
    path = tmp_path / name
    if callable(content):
        content(path)
    elif content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.write_text(content)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    words = [word.format(path, out=tmp_path / "out", tmp=tmp_path) for word in command.split()]
    with pytest.raises(SystemExit) as stop:
        main(words)
    said = capsys.readouterr()
    print(said.err)  # shown by pytest -rP, as a list of all messages
    assert stop.value.code == 2
    assert said.err.startswith("Error: ")
    assert message.format(tmp=tmp_path) in said.err
    assert "Traceback" not in said.err
    assert said.out == ""
    if name in said.err:
        assert name in said.err.split(": ")[1]  # the file comes first
    left = [p for p in sorted(tmp_path.rglob("*")) if p not in before and p != tmp_path / "out"]
    assert left == []
