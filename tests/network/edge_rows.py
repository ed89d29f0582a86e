"""Made edge tables in GeoJSON, for tests of their reader."""

from __future__ import annotations

import json
from pathlib import Path

from tedtrajrec.network.edge_table import read_edge_table
from tedtrajrec.network.roadnet import RoadNetwork

WGS84 = "urn:ogc:def:crs:OGC:1.3:CRS84"
A, B, C = (-8.62, 41.15), (-8.619, 41.15), (-8.619, 41.151)


def feature(u: object, v: object, points: list, **properties: object) -> dict:
    geometry = {"type": "LineString", "coordinates": points}
    return {"type": "Feature", "properties": {"u": u, "v": v, **properties}, "geometry": geometry}


def write_geojson(path: Path, features: list, **members: object) -> Path:
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features, **members}), encoding="utf-8")
    return path


def read_features(tmp_path: Path, features: list, **options: object) -> RoadNetwork:
    return read_edge_table(write_geojson(tmp_path / "edges.geojson", features), **options)


GOOD = feature(1, 2, [A, B])
