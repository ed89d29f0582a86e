"""Trips from and to frames of polars, pandas and geopandas; the caller's frame is never changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl
import pyarrow as pa

from tedtrajrec.errors import InputError
from tedtrajrec.optional import load_optional
from tedtrajrec.trips.files.checking import FixChecker, RejectedRows
from tedtrajrec.trips.files.columns import find_columns
from tedtrajrec.trips.files.fixes import gather, scatter
from tedtrajrec.trips.table import Trips

if TYPE_CHECKING:
    import pandas as pd


def trips_from_frame(
    frame: Any,  # noqa: ANN401  (polars, pandas and geopandas frames, and their subclasses)
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    *,
    rejects: RejectedRows | None = None,
) -> Trips:
    """Make trips from a frame with one row per fix.

    Parameters
    ----------
    frame
        A polars, pandas or geopandas frame. Of pandas, a named index and a time index count as columns; of geopandas,
        point geometries in any reference system hold the position where there are no lon and lat columns.
    columns
        Our name -> name in the frame, where its names are not recognised.
    timezone
        IANA name of the zone of times that come without one.
    rejects
        Rows that cannot be used are added here, with their reason, instead of stopping at the first.
    """
    table, geometry, crs = _as_polars(frame)
    chosen = find_columns(table.columns, columns, geometry=geometry)
    checker = FixChecker(chosen, timezone=timezone, rejects=rejects, crs=crs)
    return gather(checker.check(table, np.arange(1, len(table) + 1)))


def trips_to_frame(trips: Trips, kind: Literal["polars", "pandas", "geopandas"] = "polars") -> Any:  # noqa: ANN401
    """Return trips as a frame with one row per fix and times as UTC.

    Parameters
    ----------
    kind
        ``geopandas`` gives points in EPSG:4326 and the times as index, as movingpandas takes them.
    """
    table = scatter(trips).with_columns(pl.from_epoch("timestamp").cast(pl.Datetime("us", "UTC")))
    if kind == "polars":
        return table
    if kind == "pandas":
        return _to_pandas(table)
    if kind == "geopandas":
        geopandas = load_optional("geopandas", "interop")
        frame = _to_pandas(table.drop("lon", "lat")).set_index("timestamp")
        points = geopandas.points_from_xy(trips.lon, trips.lat)
        return geopandas.GeoDataFrame(frame, geometry=points, crs="EPSG:4326")
    raise InputError(f"there are no frames of kind '{kind}'", remedy="Use polars, pandas or geopandas.")


def _as_polars(frame: Any) -> tuple[pl.DataFrame, str | None, Any]:  # noqa: ANN401
    """Return a frame as one of polars, with the name and the reference system of its geometry."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame, None, None
    modules = {cls.__module__.partition(".")[0] for cls in type(frame).__mro__}
    if "pandas" not in modules:
        raise InputError(
            f"a frame of type {type(frame).__name__} cannot be read", remedy="Give a polars or pandas frame."
        )
    return _from_pandas(frame, has_geometry="geopandas" in modules)


def _from_pandas(frame: pd.DataFrame, *, has_geometry: bool) -> tuple[pl.DataFrame, str | None, Any]:
    columns: dict[str, pl.Series] = {}
    for level in range(frame.index.nlevels):
        values = frame.index.get_level_values(level)
        name = values.name
        if name is None and values.dtype.kind == "M":
            name = "timestamp"
        if name is not None and name not in frame.columns:
            columns[str(name)] = _series(str(name), values)
    geometry, crs = None, None
    if has_geometry and getattr(frame, "_geometry_column_name", None) in frame.columns:
        points: Any = frame
        geometry, crs = str(points.geometry.name), points.crs
    for name in frame.columns:
        if list(frame.columns).count(name) > 1:
            raise InputError("two columns have this name", field=str(name))
        if name == geometry:
            columns[str(name)] = _points(frame[name])
        else:
            columns[str(name)] = _series(str(name), frame[name])
    return pl.DataFrame(columns), geometry, crs


def _points(geometry: Any) -> pl.Series:  # noqa: ANN401  (a GeoSeries)
    present = ~(geometry.isna() | geometry.is_empty)
    if not (geometry[present].geom_type == "Point").all():
        raise InputError("geometries other than points cannot be read as fixes", field=str(geometry.name))
    x, y = np.full(len(geometry), np.nan), np.full(len(geometry), np.nan)
    mask = present.to_numpy()
    x[mask], y[mask] = geometry[present].x, geometry[present].y
    return pl.DataFrame({"x": x, "y": y}).to_struct(str(geometry.name))


def _series(name: str, values: pd.Series[Any] | pd.Index[Any]) -> pl.Series:
    try:
        array = pa.Array.from_pandas(values)
        if pa.types.is_timestamp(array.type) and array.type.tz is not None:
            array = array.cast(pa.timestamp(array.type.unit, "UTC"))  # polars knows no fixed offsets
        return pl.Series(name, pl.from_arrow(array))
    except (pa.ArrowException, pl.exceptions.PolarsError, TypeError) as error:
        raise InputError(
            f"its values cannot be read ({str(error).splitlines()[0]})",
            field=name,
            remedy="Give the column one type.",
        ) from error


def _to_pandas(table: pl.DataFrame) -> pd.DataFrame:
    pandas = load_optional("pandas", "interop")
    columns = {}
    for column in table:
        values = column.to_pandas()
        if column.null_count() and (column.dtype.is_integer() or column.dtype == pl.Boolean):
            # pandas would turn these into floats and objects; its nullable types keep them.
            dtype = "boolean" if column.dtype == pl.Boolean else str(column.dtype)
            values = pandas.Series(pandas.array(column.to_list(), dtype=dtype))
        elif column.dtype == pl.Date:
            values = pandas.Series(column.to_list(), dtype=object)  # pandas has times only
        columns[column.name] = values
    return pandas.DataFrame(columns)  # type: ignore[no-any-return]
