"""Edge tables that cannot be read: the file, the row, the field and the remedy are named."""

from __future__ import annotations

import gzip
import json

import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.network.edge_table import read_edge_table
from tests.network.edge_rows import GOOD, A, B, C, feature, read_features


def with_geometry(geometry: object) -> dict:
    return {**feature(2, 3, []), "geometry": geometry}


BAD_ROWS = {
    "no u": (feature(None, 3, [B, C]), "column 'u': the node is missing"),
    "blank v": (feature(2, " ", [B, C]), "column 'v': the node is missing"),
    "no geometry": (with_geometry(None), "the geometry is missing or cannot be read"),
    "one point": (with_geometry({"type": "LineString", "coordinates": [B]}), "at least two points"),
    "empty": (with_geometry({"type": "LineString", "coordinates": []}), "the geometry is empty"),
    "a point": (with_geometry({"type": "Point", "coordinates": B}), "the geometry is not a LineString"),
    "parts": (
        with_geometry({"type": "MultiLineString", "coordinates": [[A, B], [B, C]]}),
        "MultiLineString of several parts. Split it",
    ),
    "nan": (feature(2, 3, [B, (float("nan"), 41.1)]), "cannot be read"),
    "projected": (feature(2, 3, [(531000.0, 4556000.0), (531100.0, 4556000.0)]), "looks projected. Reproject it"),
    "swapped": (feature(2, 3, [(30.6, 104.0), (30.7, 104.0)]), "look swapped. Put lon first"),
    "torn": (feature(2, 3, [C, (-8.6, 41.1)]), "starts 111.1 m away from where row 1 has node 2. Lines that share"),
    "backwards": (feature(2, 1, [A, B]), "away from where row 1 has node 2. The line runs from v to u"),
    "negative speed": (feature(2, 3, [B, C], maxspeed=-5), "column 'maxspeed': this is not the speed of a car"),
    "impossible speed": (feature(2, 3, [B, C], speed_mps=120), "column 'speed_mps': this is not the speed of a car"),
    "speed of words": (feature(2, 3, [B, C], speed_mps="fast"), "column 'speed_mps': this is not a number"),
    "way of words": (feature(2, 3, [B, C], osmid="Rua Nova"), "column 'osmid': this is not an OSM way id"),
    "no id": (feature(2, 3, [B, C]), "column 'edge_id': the id is missing"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_is_named(tmp_path, case):
    row, message = BAD_ROWS[case]
    good = feature(1, 2, [A, B], **({"edge_id": 1} if case == "no id" else {}))
    with pytest.raises(InputError) as caught:
        read_features(tmp_path, [good, row])
    assert caught.value.row == 2
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'edges.geojson'}, row 2")


def test_a_bad_row_is_named_with_the_count_of_others(tmp_path):
    rows = [GOOD, *(feature(None, 3, [B, C]) for _ in range(3))]
    with pytest.raises(InputError, match=r"row 2, column 'u': the node is missing \(as in 2 other rows\)"):
        read_features(tmp_path, rows)


def test_one_way_against_the_line_is_refused_in_a_table_of_roads(tmp_path):
    rows = [feature(1, 2, [A, B], oneway="no"), feature(2, 3, [B, C], oneway="-1")]
    with pytest.raises(InputError, match=r"row 2, column 'oneway': .* Reverse the line and swap u and v"):
        read_features(tmp_path, rows)


BAD_FILES = {
    "not json": ("e.geojson", b"u,v\n1,2\n", "this is not valid JSON"),
    "binary": ("e.json", b"\x80\x81\xff\x00", "this is not valid JSON"),
    "a list": ("e.geojson", b"[1, 2]", "not a GeoJSON FeatureCollection"),
    "a feature": ("e.geojson", json.dumps(GOOD).encode(), "not a GeoJSON FeatureCollection"),
    "deep": ("e.geojson", b"[" * 100_000, "this is not valid JSON"),
    "empty collection": ("e.geojson", b'{"type": "FeatureCollection", "features": []}', "the edge table has no rows"),
    "no features": ("e.geojson", b'{"type": "FeatureCollection", "features": [3]}', "row 1: this is not a GeoJSON"),
    "no nodes": (
        "e.geojson",
        json.dumps({"type": "FeatureCollection", "features": [{**GOOD, "properties": {"name": "x"}}]}).encode(),
        "no columns u and v with the nodes of each segment; the columns are name",
    ),
    "only u": (
        "e.geojson",
        json.dumps({"type": "FeatureCollection", "features": [{**GOOD, "properties": {"u": 1, "to": 2}}]}).encode(),
        "no columns u and v",
    ),
    "crs": (
        "e.geojson",
        json.dumps(
            {"type": "FeatureCollection", "features": [GOOD], "crs": {"properties": {"name": "EPSG:32629"}}}
        ).encode(),
        "the coordinates are in 'WGS 84 / UTM zone 29N', not in EPSG:4326. Reproject",
    ),
    "odd crs": (
        "e.geojson",
        json.dumps({"type": "FeatureCollection", "features": [GOOD], "crs": {"properties": {"name": "mars"}}}).encode(),
        "the coordinate reference system 'mars' is not known",
    ),
    "truncated gzip": ("e.geojson.gz", gzip.compress(b"x" * 9999)[:-9], "the gzip file is truncated or damaged"),
    "damaged gzip": ("e.csv.gz", b"\x1f\x8b\x08\x00" + b"\xff" * 50, "the gzip file is truncated or damaged"),
    "empty": ("e.csv", b"", "the file is empty"),
    "only a header": ("e.csv", b"u,v,wkt\n", "the edge table has no rows"),
    "no geometry": ("e.csv", b"u,v,name\n1,2,x\n", "there is no geometry column; the columns are u, v, name"),
    "bare wkt": ("e.csv", b"u,v,wkt\n1,2,LINESTRING (1 2, 3 4)\n", "Put geometries in quotes"),
    "bad wkt": ("e.csv", b'u,v,wkt\n1,2,"LINE (1 2, 3 4)"\n', "row 1, column 'wkt': the geometry is missing or cannot"),
    "nan in wkt": ("e.csv", b'u,v,wkt\n1,2,"LINESTRING (nan 2, 3 4)"\n', "column 'wkt': a coordinate is not a number"),
    "srid": ("e.csv", b'u,v,wkt\n1,2,"SRID=32629;LINESTRING (1 2, 3 4)"\n', "SRID 32629 is not 4326"),
    "not utf-8": ("e.csv", 'u,v,wkt\né,2,"LINESTRING (1 2, 3 4)"\n'.encode("latin-1"), "this is not a table"),
    "not parquet": ("e.parquet", b"PAR1 and no more", "this is not a readable Parquet file"),
    "other": ("e.shp", b"....", "the format of this edge table is not known"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_file_is_refused(tmp_path, case):
    name, content, message = BAD_FILES[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_edge_table(tmp_path / name)
    assert message in str(caught.value)
    assert caught.value.file == str(tmp_path / name)


def test_parquet_in_another_crs_or_encoding_is_refused(tmp_path, tiny_city):
    frame = tiny_city.to_geodataframe()
    frame.to_crs(32629).to_parquet(tmp_path / "utm.parquet")
    with pytest.raises(InputError, match="UTM zone 29N"):
        read_edge_table(tmp_path / "utm.parquet")
    frame.to_parquet(tmp_path / "arrow.parquet", geometry_encoding="geoarrow")
    with pytest.raises(InputError, match="stored as linestring, not as WKB"):
        read_edge_table(tmp_path / "arrow.parquet")


def test_a_missing_file_and_a_folder(tmp_path):
    with pytest.raises(InputError, match="there is no such file"):
        read_edge_table(tmp_path / "none.csv")
    with pytest.raises(InputError, match="this is a folder"):
        read_edge_table(tmp_path)
