"""Rows of raw columns become checked fixes; a bad row is an error that names it, or is set aside with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.trips.files.columns import Columns
from tedtrajrec.trips.files.extras import Kind, check_type, convert_text
from tedtrajrec.trips.files.geometry import point_coordinates
from tedtrajrec.trips.files.times import SET_ASIDE, NaiveTimesError, TimeReader

_LONGEST_VALUE = 60  # signs shown of a value, such as a polyline
_ROW_REMEDY = f"Correct or remove the row{SET_ASIDE}."


class RejectedRows:
    """Rows that a reader set aside instead of stopping at the first: number, column, value and reason of each."""

    def __init__(self) -> None:
        self._parts: list[pl.DataFrame] = []

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def add(self, rows: NDArray[np.int64], column: str, values: list[str], reason: str) -> None:
        """Add rows (1-based data rows) with the values found in ``column``."""
        part = {"row": rows, "column": [column] * len(rows), "value": values, "reason": [reason] * len(rows)}
        self._parts.append(pl.DataFrame(part, schema=_REJECT_SCHEMA))

    def to_frame(self) -> pl.DataFrame:
        """Return all of them in order of their rows, with columns row, column, value and reason."""
        return pl.concat([pl.DataFrame(schema=_REJECT_SCHEMA), *self._parts]).sort("row", maintain_order=True)


_REJECT_SCHEMA = {"row": pl.Int64, "column": pl.String, "value": pl.String, "reason": pl.String}


class RowFaults:
    """The faults of one block: raises at the first one, or marks the rows and adds them to the rejects."""

    def __init__(self, rows: NDArray[np.int64], file: str | Path | None, rejects: RejectedRows | None) -> None:
        self.rows = rows
        self.file = file
        self.rejects = rejects
        self.bad = np.zeros(len(rows), bool)

    def report(self, fault: NDArray[np.bool_], column: pl.Series, reason: str, remedy: str = _ROW_REMEDY) -> None:
        """Take note of a fault of the rows of a mask; ``reason`` follows the value in the message."""
        fault = fault & ~self.bad
        if not fault.any():
            return
        if self.rejects is None:
            first = int(np.argmax(fault))
            value = _showable(column)[first]
            shown = repr(_shortened(value) if isinstance(value, str) else value)
            problem = reason if value is None or value == "" else f"{shown} {reason}"
            raise InputError(problem, file=self.file, row=int(self.rows[first]), field=column.name, remedy=remedy)
        shown_values = _showable(column).filter(pl.Series(fault))
        values = ["" if value is None else _shortened(str(value)) for value in shown_values]
        self.rejects.add(self.rows[fault], column.name, values, reason)
        self.bad |= fault


class FixChecker:
    """Checks blocks of raw columns and returns tables of fixes (see :mod:`tedtrajrec.trips.files.fixes`).

    Parameters
    ----------
    columns
        Which column holds what.
    kinds
        The kinds of extra columns that come as text without types (CSV, GPX), by their name in the table.
    crs
        Reference system of a geometry column; longitude and latitude by default.
    """

    def __init__(
        self,
        columns: Columns,
        *,
        file: str | Path | None = None,
        timezone: str | None = None,
        rejects: RejectedRows | None = None,
        kinds: Mapping[str, Kind] | None = None,
        crs: Any = None,  # noqa: ANN401  (whatever pyproj takes)
    ) -> None:
        self.columns = columns
        self.file = file
        self.rejects = rejects
        self.kinds = kinds or {}
        self.crs = crs
        self.times = TimeReader(timezone)

    def check(self, raw: pl.DataFrame, rows: NDArray[np.int64]) -> pl.DataFrame:
        """Return the checked fixes of a block whose rows have the given numbers (1-based data rows)."""
        faults = RowFaults(rows, self.file, self.rejects)
        table = {"traj_id": self._ids(raw, faults), "timestamp": self._times(raw[self.columns.timestamp], faults)}
        table["lon"], table["lat"] = self._positions(raw, faults)
        if self.columns.segment is not None:
            table["segment"] = self._segments(raw[self.columns.segment], faults)
        if self.columns.ratio is not None:
            table["ratio"] = self._ratios(raw[self.columns.ratio], faults)
        for name, source in self.columns.extras.items():
            table[name] = self._extra(raw[source], faults)
        fixes = pl.DataFrame(table)
        return fixes.filter(pl.Series(~faults.bad)) if faults.bad.any() else fixes

    def _ids(self, raw: pl.DataFrame, faults: RowFaults) -> pl.Series:
        parts = []
        for name in self.columns.traj_id:
            part = raw[name]
            if part.dtype.is_float():
                part = _numbered(part)
            elif not (part.dtype.is_integer() or part.dtype == pl.String):
                part = check_type(part, file=self.file).cast(pl.String)
            missing = part.is_null()
            if part.dtype == pl.String:
                missing = missing | (part == "").fill_null(value=True)
            faults.report(missing.to_numpy(), part, "there is no trip id")
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return pl.DataFrame(parts).select(pl.concat_str(pl.all(), separator="/")).to_series()

    def _times(self, raw: pl.Series, faults: RowFaults) -> NDArray[np.int64]:
        try:
            seconds, problems = self.times.read(raw)
        except NaiveTimesError as error:
            raise InputError(
                f"{str(raw[error.row])!r} has no time zone",
                file=self.file,
                row=int(faults.rows[error.row]),
                field=raw.name,
                remedy="Give the zone of such times with --timezone, for example Europe/Lisbon.",
            ) from None
        for problem in problems:
            faults.report(problem.rows, raw, problem.reason, problem.remedy)
        return seconds

    def _positions(self, raw: pl.DataFrame, faults: RowFaults) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self.columns.lon is None or self.columns.lat is None:
            geometry = raw[self.columns.geometry or ""]
            lon, lat = point_coordinates(geometry, self.crs, file=self.file, rows=faults.rows)
            columns = {"lon": pl.Series(geometry.name, lon), "lat": pl.Series(geometry.name, lat)}
            faults.report(~np.isfinite(lon + lat), geometry.clear(len(geometry)), "there is no point")
        else:
            columns = {"lon": raw[self.columns.lon], "lat": raw[self.columns.lat]}
            lon, lat = (self._numbers(column, faults) for column in columns.values())
        check_positions(lon, lat, faults, columns)
        return lon, lat

    def _numbers(self, column: pl.Series, faults: RowFaults) -> NDArray[np.float64]:
        """Return finite numbers; rows without one are reported."""
        numbers = to_numbers(column)
        values = numbers.fill_null(np.nan).to_numpy()
        bad = ~np.isfinite(values)
        if bad.any():
            faults.report(_is_empty(column), column, "there is no value")
            comma = numbers.is_null().to_numpy() & _contains(column, r"^\s*-?\d+,\d+\s*$")
            faults.report(
                comma, column, "has a decimal comma", "Write numbers with a decimal point, for example 41.15."
            )
            faults.report(numbers.is_null().to_numpy(), column, "is not a number")
            faults.report(bad, column, "is not a finite number")
        return values

    def _segments(self, column: pl.Series, faults: RowFaults) -> pl.Series:
        numbers = to_numbers(column)
        missing = _is_empty(column)
        values = numbers.fill_null(-1).fill_nan(-1).to_numpy()
        remedy = "A segment is a whole number from 0, or empty; --columns segment= keeps the column as an extra."
        bad = ~np.isfinite(values) | (np.trunc(values) != values) | (values < -1) | (values >= 2**31)
        bad |= numbers.is_null().to_numpy() & ~missing
        faults.report(bad, column, "is not a segment number", remedy)
        segment = pl.Series(np.where(bad, -1, values).astype(np.int32))
        return segment.set(segment < 0, None)

    def _ratios(self, column: pl.Series, faults: RowFaults) -> pl.Series:
        numbers = to_numbers(column)
        values = numbers.fill_null(np.nan).to_numpy()
        bad = (values < 0) | (values > 1) | (numbers.is_null().to_numpy() & ~_is_empty(column))
        remedy = "A ratio is a number from 0 to 1, or empty; --columns ratio= keeps the column as an extra."
        faults.report(bad, column, "is not a ratio", remedy)
        return numbers.fill_nan(None)

    def _extra(self, column: pl.Series, faults: RowFaults) -> pl.Series:
        if column.name in self.kinds:
            return convert_text(column, self.kinds[column.name])
        if isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is None and self.times.timezone is not None:
            zoned = column.dt.replace_time_zone(self.times.timezone, ambiguous="null", non_existent="null")
            unclear = (zoned.is_null() & column.is_not_null()).to_numpy()
            faults.report(unclear, column, f"is skipped or repeated by a clock change in {self.times.timezone}")
            column = zoned
        return check_type(column, file=self.file)


def check_positions(
    lon: NDArray[np.float64], lat: NDArray[np.float64], faults: RowFaults, columns: Mapping[str, pl.Series]
) -> None:
    """Report positions off the globe; most of them beyond 90 degrees of latitude are two columns swapped."""
    usable = ~faults.bad & np.isfinite(lon) & np.isfinite(lat)
    beyond = usable & (np.abs(lat) > 90)
    swapped = beyond & (np.abs(lon) <= 90) & (np.abs(lat) <= 180)
    if 2 * np.count_nonzero(swapped) > np.count_nonzero(usable):
        names = {role: column.name for role, column in columns.items()}
        raise InputError(
            f"lon and lat look swapped: column '{names['lat']}' has {lat[swapped][0]:g}",
            file=faults.file,
            row=int(faults.rows[swapped][0]),
            remedy="Latitude is between -90 and 90."
            if names["lon"] == names["lat"]
            else f"Read them with --columns lon={names['lat']} --columns lat={names['lon']}.",
        )
    remedy = "Positions are degrees in EPSG:4326; convert projected coordinates first."
    faults.report(beyond, columns["lat"], "is not a latitude between -90 and 90", remedy)
    faults.report(usable & (np.abs(lon) > 180), columns["lon"], "is not a longitude between -180 and 180", remedy)


def to_numbers(column: pl.Series) -> pl.Series:
    """Return a column as floats, null where the value is missing or no number."""
    if column.dtype == pl.String:
        numbers = column.cast(pl.Float64, strict=False)
        if numbers.null_count() > column.null_count():
            numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
        return numbers
    if column.dtype.is_numeric():
        return column.cast(pl.Float64)
    return pl.Series(column.name, [None] * len(column), dtype=pl.Float64)


def _numbered(ids: pl.Series) -> pl.Series:
    """Return ids that are floats as text, whole numbers without a point: pandas keeps integers so beside a gap."""
    ids = ids.fill_nan(None)
    whole = ids.cast(pl.Int64, strict=False)
    return whole.cast(pl.String).zip_with((whole == ids).fill_null(value=False), ids.cast(pl.String))


def _showable(column: pl.Series) -> pl.Series:
    """Return a column without the times that Python cannot hold; polars panics over them."""
    if not isinstance(column.dtype, pl.Datetime):
        return column
    second = {"ms": 10**3, "us": 10**6, "ns": 10**9}[column.dtype.time_unit]
    return column.set((column.to_physical() // second).abs() > 60_000_000_000, None)  # beyond the year 3871


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else f"{value[:_LONGEST_VALUE]}..."


def _is_empty(column: pl.Series) -> NDArray[np.bool_]:
    empty = column.is_null()
    if column.dtype == pl.String:
        empty = empty | (column.str.strip_chars() == "").fill_null(value=True)
    return empty.to_numpy()


def _contains(column: pl.Series, pattern: str) -> NDArray[np.bool_]:
    if column.dtype != pl.String:
        return np.zeros(len(column), bool)
    return column.str.contains(pattern).fill_null(value=False).to_numpy()
