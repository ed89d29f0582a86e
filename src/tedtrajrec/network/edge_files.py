"""Edge tables as files: GeoJSON, GeoParquet and CSV or TSV with WKT become rows of attributes beside geometries.

What the columns mean is decided in :mod:`tedtrajrec.network.edge_table`; here a file is only opened and parsed.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow
import pyarrow.parquet
import pyproj
import shapely
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.files import existing_file

GEOMETRY_NAMES = ("geometry", "wkt", "geom", "the_geom", "wkt_geom", "wkb_geometry", "wkb", "linestring")
"""Names under which the geometry column goes, best first."""

REPROJECT = "Reproject it to EPSG:4326 (lon, lat in degrees), for example with geopandas: frame.to_crs(4326)."


@dataclass(frozen=True)
class EdgeRows:
    """R rows of an edge table."""

    attributes: pl.DataFrame  # all other columns as they came; lists inside GeoJSON are text
    geometry: NDArray[Any]  # [R] shapely geometries; None where missing or unreadable
    geometry_name: str  # the column it came from


def read_edge_rows(path: str | Path) -> EdgeRows:
    """Read the rows of an edge table; the format is told by the name, gzip by the content.

    Raises
    ------
    InputError
        If the file cannot be opened or parsed as what its name says, is in another CRS, or has no rows.
    """
    path = existing_file(path, "an edge table")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith((".geojson", ".json")):
        rows = _read_geojson(path)
    elif name.endswith((".csv", ".tsv")):
        rows = _read_csv(path)
    elif name.endswith((".parquet", ".geoparquet")):
        rows = _read_parquet(path)
    else:
        raise InputError(
            "the format of this edge table is not known",
            file=path,
            remedy="Give a .geojson, .json, .csv, .tsv or .parquet file (text files may be gzipped: .gz).",
        )
    if not len(rows.geometry):
        raise InputError("the edge table has no rows", file=path)
    return rows


def require_lonlat(crs: Any, *, file: str | Path | None, remedy: str) -> None:  # noqa: ANN401  (what pyproj takes)
    """Raise :class:`InputError` unless ``crs`` is WGS 84 in degrees (EPSG:4326, OGC:CRS84)."""
    try:
        found = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise InputError(f"the coordinate reference system {crs!r} is not known", file=file, remedy=remedy) from error
    if not found.to_2d().equals(pyproj.CRS.from_epsg(4326), ignore_axis_order=True):
        raise InputError(f"the coordinates are in '{found.name}', not in EPSG:4326", file=file, remedy=remedy)


def _read_bytes(path: Path) -> bytes:
    content = path.read_bytes()
    if not content.startswith(b"\x1f\x8b"):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise InputError(
            "the gzip file is truncated or damaged", file=path, remedy="Copy or download it again."
        ) from error


# ---------------------------------------------------------------------- GeoJSON


def _read_geojson(path: Path) -> EdgeRows:
    try:
        document = json.loads(_read_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"this is not valid JSON ({error})", file=path) from error
    features = document.get("features") if isinstance(document, dict) else None
    if not isinstance(features, list) or document.get("type") != "FeatureCollection":
        raise InputError(
            "this JSON is not a GeoJSON FeatureCollection",
            file=path,
            remedy="Give one Feature per directed segment, with properties u and v and a LineString.",
        )
    crs = document.get("crs")
    if crs is not None:  # a member of the older standard that GDAL still writes
        name = crs.get("properties", {}).get("name") if isinstance(crs, dict) else crs
        require_lonlat(name, file=path, remedy=REPROJECT)
    for row, feature in enumerate(features, start=1):
        if not (isinstance(feature, dict) and isinstance(feature.get("properties") or {}, dict)):
            raise InputError("this is not a GeoJSON Feature with properties", file=path, row=row)
    properties: list[dict[str, Any]] = [feature.get("properties") or {} for feature in features]
    names = dict.fromkeys(name for values in properties for name in values)
    try:
        columns = [_column(name, [values.get(name) for values in properties]) for name in names]
        if "id" not in names and any("id" in feature for feature in features):
            columns.append(_column("id", [feature.get("id") for feature in features]))
    except UnicodeEncodeError as error:  # JSON can write half of a sign
        raise InputError("a property holds text that is no Unicode", file=path) from error
    with np.errstate(all="ignore"):  # infinite coordinates are reported by row later
        geometry = shapely.from_geojson([json.dumps(f.get("geometry")) for f in features], on_invalid="ignore")
    return EdgeRows(pl.DataFrame(columns), np.asarray(geometry, object), "geometry")


def _column(name: str, values: Sequence[Any]) -> pl.Series:
    """Return JSON values as one column of one type; lists and objects become text, as in a CSV."""
    plain = [str(v) if isinstance(v, list | dict) or (isinstance(v, int) and abs(v) >> 63) else v for v in values]
    column = pl.Series(name, plain, strict=False)
    if column.dtype == pl.Object:  # types that no other one holds all of
        return pl.Series(name, [None if v is None else str(v) for v in plain])
    return column


# ---------------------------------------------------------------------- CSV and TSV with WKT


def _read_csv(path: Path) -> EdgeRows:
    content = _read_bytes(path)
    header = content.split(b"\n", 1)[0]
    separator = max("\t;|,", key=lambda sign: (header.count(sign.encode()), sign == ","))
    try:
        frame = pl.read_csv(content, separator=separator, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(
            f"this is not a table separated by {separator!r} ({reason})",
            file=path,
            remedy='Put geometries in quotes ("LINESTRING (...)") where the separator is a comma.',
        ) from error
    name = _geometry_name(frame.columns, path)
    while len(frame) and all(value is None for value in frame.row(-1)):  # blank lines at the end
        frame = frame.head(-1)
    return EdgeRows(frame.drop(name), _from_wkt(frame[name], name, path), name)


def _from_wkt(column: pl.Series, name: str, path: Path) -> NDArray[Any]:
    """Parse WKT or EWKT; an SRID other than 4326 is an error."""
    srid = column.str.extract(r"^\s*SRID\s*=\s*(\d+)\s*;")
    foreign = srid.is_not_null() & (srid != "4326")
    if foreign.any():
        row = int(foreign.arg_max() or 0)
        raise InputError(f"SRID {srid[row]} is not 4326", file=path, row=row + 1, field=name, remedy=REPROJECT)
    text = column.str.replace(r"^\s*SRID\s*=\s*\d+\s*;", "").to_numpy()
    with np.errstate(all="ignore"):  # NaN and infinite coordinates are reported by row later
        return np.asarray(shapely.from_wkt(text, on_invalid="ignore"), object)


# ---------------------------------------------------------------------- GeoParquet


def _read_parquet(path: Path) -> EdgeRows:
    try:
        table = pyarrow.parquet.read_table(path)
        table.validate(full=True)  # text that is not UTF-8
        described = json.loads((table.schema.metadata or {}).get(b"geo", b"{}"))
        # polars ends in a panic over metadata that is not UTF-8
        plain = pyarrow.schema([field.remove_metadata() for field in table.schema])
        table = pyarrow.Table.from_arrays(table.columns, schema=plain)
        names = table.column_names
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputError(
            "this is not a readable Parquet file", file=path, remedy="Write or download it again."
        ) from error
    name = described.get("primary_column")
    if name not in names:
        name = _geometry_name(names, path)
    about = described.get("columns", {}).get(name, {})
    if about.get("crs") is not None:  # without one, GeoParquet means OGC:CRS84
        require_lonlat(json.dumps(about["crs"]), file=path, remedy=REPROJECT)
    column = table.column(name).combine_chunks()
    if isinstance(column, pyarrow.ExtensionArray):
        column = column.storage
    kind = column.type
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        geometry = _from_wkt(pl.Series(column), name, path)
    elif pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind):
        with np.errstate(invalid="ignore"):
            geometry = shapely.from_wkb(column.to_numpy(zero_copy_only=False), on_invalid="ignore")
    else:
        raise InputError(
            f"the geometry is stored as {about.get('encoding', kind)}, not as WKB",
            file=path,
            field=name,
            remedy="Write it with WKB encoding, the default of geopandas.",
        )
    attributes = pl.from_arrow(table.drop_columns([name]))
    if not isinstance(attributes, pl.DataFrame):  # pragma: no cover  (a table always becomes a frame)
        raise TypeError(type(attributes))
    return EdgeRows(_flat(attributes), np.asarray(geometry, object), name)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame with lists as text, as in a CSV."""
    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List) and not kind.inner.is_nested()]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(",") for name in lists)


def _geometry_name(names: Sequence[str], path: Path) -> str:
    by_lower: Mapping[str, str] = {name.strip().lower(): name for name in names}
    for alias in GEOMETRY_NAMES:
        if alias in by_lower:
            return by_lower[alias]
    raise InputError(
        f"there is no geometry column; the columns are {', '.join(names)}",
        file=path,
        remedy="Name it 'geometry' (WKT such as LINESTRING (lon lat, lon lat) in text files).",
    )
