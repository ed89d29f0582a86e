"""Times of any usual form become whole epoch seconds (UTC), or a reason why not.

Numbers are epoch seconds, milliseconds, microseconds or nanoseconds, decided for the whole column by the median of
its first block; text is ISO 8601. Times without a zone or offset need a time zone; local times that a clock change
skips or repeats are refused, because guessing would move fixes by an hour. Fractions of a second are rounded,
halves up.
"""

from __future__ import annotations

import zoneinfo
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tedtrajrec.errors import ConfigError

EARLIEST = 631_152_000  # 1990-01-01
LATEST = 4_102_444_800  # 2100-01-01, excluded

_UNITS = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_ISO = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}(:\d{2}(:\d{2}(\.\d{1,9})?)?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
_ZONED = r"[T ][\d:.]+(Z|[+-]\d{2}(:?\d{2})?)$"


@dataclass(frozen=True)
class Problem:
    """Rows with the same fault."""

    rows: NDArray[np.bool_]  # mask over the block
    reason: str
    remedy: str


class NaiveTimesError(Exception):
    """Times without a zone were met and no time zone was given; ``row`` is the first of them in the block."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class TimeReader:
    """Turns one column of times, block by block, into epoch seconds.

    Parameters
    ----------
    timezone
        IANA name of the zone of times without one; times with a zone and epoch times do not need it.
    """

    def __init__(self, timezone: str | None = None) -> None:
        if timezone is not None:
            try:
                zoneinfo.ZoneInfo(timezone)
            except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ConfigError(
                    f"Unknown time zone '{timezone}'. Give an IANA name such as Europe/Lisbon."
                ) from error
        self.timezone = timezone
        self._unit: str | None = None  # of epoch numbers, decided by the first block

    def read(self, times: pl.Series) -> tuple[NDArray[np.int64], list[Problem]]:
        """Return epoch seconds [n] (0 where there is a problem) and the problems.

        Raises
        ------
        NaiveTimesError
            If a time has no zone and the reader has none either.
        """
        if times.dtype == pl.String:
            numbers = _numbers(times)
            if self._unit is not None or numbers.null_count() < len(numbers):
                return self._read_numbers(times, numbers)
            return self._read_instants(times, *_parse_iso(times))
        if times.dtype.is_integer() or times.dtype.is_float() or times.dtype.is_decimal():
            numbers = times if times.dtype.is_integer() else times.cast(pl.Float64)
            return self._read_numbers(times, numbers)
        if isinstance(times.dtype, pl.Datetime):
            naive = np.full(len(times), times.dtype.time_zone is None)
            return self._read_instants(times, times.dt.epoch("us"), naive)  # in ns, the year 9999 would not fit
        reason = f"holds values of type {times.dtype}, not times"
        return np.zeros(len(times), np.int64), [Problem(np.ones(len(times), bool), reason, _ISO_REMEDY)]

    def _read_numbers(self, times: pl.Series, numbers: pl.Series) -> tuple[NDArray[np.int64], list[Problem]]:
        usable = numbers.is_not_null().to_numpy()
        if numbers.dtype.is_float():
            usable = usable & np.isfinite(numbers.fill_null(0).to_numpy())
        problems = _unreadable(times, ~usable, "is not an epoch time like the others in this column")
        values: NDArray[Any] = numbers.fill_null(0).to_numpy()
        if self._unit is None:
            self._unit = _unit_of(values[usable])
        seconds = np.zeros(len(values), np.int64)
        per_second = _UNITS[self._unit]
        if values.dtype.kind == "f":
            quotient = np.floor(values[usable] / per_second + 0.5)
            seconds[usable] = np.clip(quotient, -(2.0**62), 2.0**62).astype(np.int64)
        else:
            whole = values[usable].astype(np.int64)
            seconds[usable] = whole // per_second + (whole % per_second >= (per_second + 1) // 2) * (per_second > 1)
        outside = usable & ((seconds < EARLIEST) | (seconds >= LATEST))
        problems += _problem(
            outside,
            f"is outside the years 1990 to 2099 when read as epoch {self._unit}",
            _hint(float(values[outside][0]), self._unit) if outside.any() else "",
        )
        return np.where(usable & ~outside, seconds, 0), problems

    def _read_instants(
        self, times: pl.Series, instants: pl.Series, naive: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], list[Problem]]:
        known = instants.is_not_null().to_numpy()
        problems = _unreadable(times, ~known, "is not a time that can be read")
        microseconds = instants.fill_null(0).to_numpy().copy()
        local = naive & known
        if local.any():
            if self.timezone is None:
                raise NaiveTimesError(int(np.argmax(local)))
            zoned = (
                pl.Series(microseconds[local])
                .cast(pl.Datetime("us"))
                .dt.replace_time_zone(self.timezone, ambiguous="null", non_existent="null")
            )
            microseconds[local] = zoned.dt.epoch("us").fill_null(0).to_numpy()
            unclear = np.zeros(len(times), bool)
            unclear[local] = zoned.is_null().to_numpy()
            problems += _problem(
                unclear,
                f"is skipped or repeated by a clock change in {self.timezone}",
                "Write times with an offset from UTC, such as 2024-10-27T01:30:00+01:00.",
            )
            known = known & ~unclear
        seconds = (microseconds + 500_000) // 1_000_000
        outside = known & ((seconds < EARLIEST) | (seconds >= LATEST))
        problems += _problem(outside, "is outside the years 1990 to 2099", "Check the clock of the device.")
        return np.where(known & ~outside, seconds, 0), problems


_ISO_REMEDY = "Write times as ISO 8601 with offset (2013-07-01T00:00:58Z) or as epoch seconds."
SET_ASIDE = ", or set such rows aside with 'clean --rejects FILE'"
"""The end of a remedy where some rows of many cannot be used; see :func:`tedtrajrec.trips.readers.read_trips`."""

_EMPTY_REMEDY = f"Fill it in or remove the row{SET_ASIDE}."


def _problem(rows: NDArray[np.bool_], reason: str, remedy: str) -> list[Problem]:
    return [Problem(rows, reason, remedy)] if rows.any() else []


def _unreadable(times: pl.Series, unusable: NDArray[np.bool_], reason: str) -> list[Problem]:
    if not unusable.any():
        return []
    missing = _missing(times)
    missing_problem = _problem(missing, "there is no time", _EMPTY_REMEDY)
    return missing_problem + _problem(unusable & ~missing, reason, _ISO_REMEDY)


def _missing(times: pl.Series) -> NDArray[np.bool_]:
    missing = times.is_null()
    if times.dtype == pl.String:
        missing = missing | (times.str.strip_chars() == "").fill_null(value=True)
    elif times.dtype.is_float():
        missing = missing | times.is_nan().fill_null(value=True)
    return missing.to_numpy()


def _numbers(text: pl.Series) -> pl.Series:
    """Return text as whole numbers if all are, else as floats; null where it is no number."""
    whole = text.cast(pl.Int64, strict=False)
    if whole.null_count() == text.null_count():
        return whole
    text = text.str.strip_chars()
    whole = text.cast(pl.Int64, strict=False)
    numbers = text.cast(pl.Float64, strict=False)
    return whole if whole.null_count() == numbers.null_count() else numbers


def _unit_of(values: NDArray[Any]) -> str:
    """Return the unit in which the median is a time between 1990 and 2099."""
    if len(values) == 0:
        return "seconds"
    middle = float(np.median(values))
    for unit, per_second in _UNITS.items():
        if EARLIEST <= middle / per_second < LATEST:
            return unit
    return "seconds"


def _hint(value: float, unit: str) -> str:
    if 1e13 <= value < 1e14 or 1e11 <= value < 3e11:
        return "If these are dates written as digits, write them as ISO 8601 (2013-07-01T00:00:58Z)."
    for other, per_second in _UNITS.items():
        if other != unit and EARLIEST <= value / per_second < LATEST:
            return f"This one looks like epoch {other}; use one unit in the whole column."
    return "Is this another column, such as lon or a counter? Choose the time with --columns timestamp=X."


def _parse_iso(text: pl.Series) -> tuple[pl.Series, NDArray[np.bool_]]:
    """Return microseconds since 1970 (null where unreadable) and which of them have no zone, read as if in UTC."""
    column = text.to_arrow()
    for zone in ("UTC", None):  # the usual case: all rows alike
        parsed = _cast(column, zone)
        if parsed is not None:
            return parsed, np.full(len(text), zone is None)
    text = text.str.strip_chars().str.to_uppercase()
    shaped = text.str.contains(_ISO).fill_null(value=False)
    naive = (shaped & ~text.str.contains(_ZONED).fill_null(value=False)).to_numpy()
    instants = np.zeros(len(text), np.int64)
    known = np.zeros(len(text), bool)
    for zone, rows in (("UTC", np.flatnonzero(shaped.to_numpy() & ~naive)), (None, np.flatnonzero(naive))):
        pieces = [rows]
        while pieces:  # halve until each piece is readable or one impossible date
            piece = pieces.pop()
            parsed = _cast(text.gather(piece).to_arrow(), zone)
            if parsed is not None:
                instants[piece], known[piece] = parsed.to_numpy(), True
            elif len(piece) > 1:
                pieces += [piece[len(piece) // 2 :], piece[: len(piece) // 2]]
    return pl.Series(instants).zip_with(pl.Series(known), pl.Series([None], dtype=pl.Int64)), naive


def _cast(column: Any, zone: str | None) -> pl.Series | None:  # noqa: ANN401  (an untyped library)
    try:
        nanoseconds = column.cast(pa.timestamp("ns", zone)).cast(pa.int64())  # texts may have nine decimals
        return pl.Series(pl.from_arrow(nanoseconds)) // 1_000
    except pa.ArrowInvalid:
        return None
