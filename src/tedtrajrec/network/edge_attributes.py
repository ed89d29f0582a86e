"""Ids, road classes and speeds as edge tables and osmnx graphs write them: whole, as text, or as lists."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.network.classes import CLASS_NUMBER
from tedtrajrec.network.edge_lines import Mask, refuse
from tedtrajrec.network.osm_tags import FASTEST_KMH, parse_maxspeed

Floats = NDArray[np.float64]

_WHOLE = r"^(?:0|-?[1-9]\d{0,17})(?:\.0+)?$"  # fits int64; 007 is a text, as 7 would be another id
_SILENT_SPEEDS = frozenset({"", "0", "signals", "variable", "nan", "null"})  # a limit that is not known


def list_parts(text: str) -> list[str]:
    """Return the parts of a list written as text, such as ``['primary', 'trunk']`` or ``primary;trunk``."""
    return [part.strip(" \t'\"") for part in re.split(r"[,;|]", text.strip(" []{}()"))]


def tidy(column: pl.Series) -> pl.Series:
    """Return a column with NaN and blank text as null, and numbers without fraction as integers."""
    if column.dtype == pl.Null:
        return column.cast(pl.String)
    if column.dtype.is_float():
        column = column.fill_nan(None)
        whole = column.drop_nulls()
        return column.cast(pl.Int64) if bool(((whole == whole.round()) & (whole.abs() < 2**53)).all()) else column
    if column.dtype == pl.String:
        text = column.str.strip_chars()
        return text.set(text == "", None)
    return column


def ids(*columns: pl.Series) -> tuple[NDArray[Any], ...]:
    """Return columns of ids without nulls, all as int64 where all are whole numbers, else all as text."""
    texts = [tidy(column).cast(pl.String) for column in columns]
    if all(bool(text.str.contains(_WHOLE).all()) for text in texts):
        return tuple(text.str.replace(r"\.0+$", "").cast(pl.Int64).to_numpy().copy() for text in texts)
    return tuple(np.asarray(text.to_list(), dtype=np.str_) for text in texts)


def way_ids(column: pl.Series, *, file: str | Path | None) -> NDArray[np.int64]:
    """Return OSM way ids, the first of a list, 0 where there is none; what holds no number is refused."""
    text = tidy(column).cast(pl.String)
    number = text.str.extract(r"(-?\d{1,18})").cast(pl.Int64)
    refuse(
        (text.is_not_null() & number.is_null()).to_numpy(),
        "this is not an OSM way id",
        file=file,
        field=column.name,
        remedy="Give a whole number, or leave it empty where the way is not known.",
    )
    return number.fill_null(0).to_numpy().copy()


def road_classes(values: pl.Series) -> tuple[NDArray[np.uint8], dict[str, int]]:
    """Return class numbers for highway values, and how often each unknown value occurs.

    Of a list the most important class counts, as osmnx lists the classes of merged ways in no order; what is unknown
    becomes ``road``.
    """
    text, where, count = _distinct(values)
    numbers, unknown = [], {}
    for value, n in zip(text, count, strict=True):
        known = [CLASS_NUMBER[part] for part in list_parts(value.lower()) if part in CLASS_NUMBER]
        numbers.append(min(known, default=CLASS_NUMBER["road"]))
        if value and not known:
            unknown[value] = int(n)
    return np.array(numbers, np.uint8)[where], unknown


def speeds_kmh(values: pl.Series) -> tuple[Floats, Mask, int]:
    """Return speeds in km/h from numbers and ``maxspeed`` texts (``50``, ``30 mph``, ``PT:urban``).

    Returns
    -------
    kmh
        The speed, of a list the mean as in osmnx; NaN where the value is missing, 0 or cannot be read.
    impossible
        Where a plain number is negative or above 200 km/h, and so in another unit.
    unread
        How many values say something that cannot be read.
    """
    text, where, count = _distinct(values)
    kmh, impossible, unread = np.full(len(text), np.nan), np.zeros(len(text), bool), 0
    for i, value in enumerate(text):
        limits = [limit for limit in map(parse_maxspeed, list_parts(value)) if limit is not None]
        if limits:
            kmh[i] = math.fsum(limits) / len(limits)
        elif value.lower() not in _SILENT_SPEEDS:
            impossible[i] = _is_number(value) and not 0 <= float(value) <= FASTEST_KMH
            unread += int(count[i])
    return kmh[where], impossible[where], unread


def _distinct(values: pl.Series) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct values as text ('' for none), which of them each row has, and how many rows have each."""
    text = tidy(values).cast(pl.String).fill_null("")
    distinct = text.unique(maintain_order=True)
    where = text.replace_strict(distinct, np.arange(len(distinct)), return_dtype=pl.Int64).to_numpy()
    return distinct.to_list(), where, np.bincount(where)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
