"""Point geometries of GeoParquet and geopandas as lon and lat, and back to well-known binary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyproj
import shapely
from numpy.typing import NDArray

from tedtrajrec.errors import InputError

_WKB_POINT = np.dtype([("order", "u1"), ("type", "<u4"), ("x", "<f8"), ("y", "<f8")])  # little-endian, 21 bytes


def point_coordinates(
    geometry: pl.Series,
    crs: Any = None,  # noqa: ANN401  (whatever pyproj takes)
    *,
    rows: NDArray[np.int64],
    file: str | Path | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lon and lat of points, NaN where there is none.

    Parameters
    ----------
    geometry
        Well-known binary, or records of x and y.
    crs
        Reference system of the points, in any form pyproj takes; longitude and latitude by default.
    rows, file
        Numbers of the rows in the file, for messages.
    """
    if isinstance(geometry.dtype, pl.Struct) and {"x", "y"} <= {field.name for field in geometry.dtype.fields}:
        x, y = (geometry.struct.field(axis).cast(pl.Float64).fill_null(np.nan).to_numpy() for axis in "xy")
    elif geometry.dtype == pl.Binary:
        x, y = _from_wkb(geometry, rows, file)
    else:
        raise InputError(
            f"geometries of type {geometry.dtype} cannot be read",
            file=file,
            field=geometry.name,
            remedy="Write points as WKB.",
        )
    return _to_lon_lat(x, y, crs, geometry.name, file)


def to_wkb(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> pa.Array:
    """Return points as an arrow array of well-known binary."""
    points = np.empty(len(lon), _WKB_POINT)
    points["order"], points["type"], points["x"], points["y"] = 1, 1, lon, lat
    offsets = np.arange(len(lon) + 1, dtype=np.int64) * _WKB_POINT.itemsize
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(points.tobytes())]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(lon), buffers)


def _from_wkb(
    geometry: pl.Series, rows: NDArray[np.int64], file: str | Path | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    known = geometry.is_not_null().to_numpy()
    present = geometry.drop_nulls()
    data = b"".join(present.to_list())
    x, y = np.full(len(geometry), np.nan), np.full(len(geometry), np.nan)
    if len(data) == len(present) * _WKB_POINT.itemsize:
        points = np.frombuffer(data, _WKB_POINT)
        if np.all(points["order"] == 1) and np.all(points["type"] == 1):
            x[known], y[known] = points["x"], points["y"]
            return x, y
    try:
        shapes = shapely.from_wkb(present.to_list())
    except shapely.errors.GEOSException as error:
        raise InputError(f"a geometry is broken ({error})", file=file, field=geometry.name) from error
    points_only = shapely.get_type_id(shapes) == shapely.GeometryType.POINT
    if not points_only.all():
        raise InputError(
            "geometries other than points cannot be read as fixes",
            file=file,
            row=int(rows[known][np.argmin(points_only)]),
            field=geometry.name,
            remedy="Write one point per row.",
        )
    x[known], y[known] = shapely.get_x(shapes), shapely.get_y(shapes)
    return x, y


def _to_lon_lat(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    crs: Any,  # noqa: ANN401
    column: str,
    file: str | Path | None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if crs is None:
        return x, y
    try:
        source = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise InputError(f"its reference system cannot be understood ({error})", file=file, field=column) from error
    if source.equals("OGC:CRS84", ignore_axis_order=True) or source.equals("EPSG:4326", ignore_axis_order=True):
        return x, y
    lon, lat = pyproj.Transformer.from_crs(source, "EPSG:4326", always_xy=True).transform(x, y)
    return np.asarray(lon), np.asarray(lat)
