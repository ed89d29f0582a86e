"""Extra columns keep their values and types between files, frames and :class:`Trips`.

CSV has no types. They are inferred without loss: whole numbers only if every value is written as one would print it
(so "007" stays text), then decimal numbers, then true/false, else text. Empty fields are missing values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.trips.table import NULLABLE_TEXT, TEXT

Kind = Literal["empty", "int", "float", "bool", "text"]

_SAMPLE = 1_000  # values looked at before a whole column is tried
_BOOLS = {"true": True, "false": False, "True": True, "False": False, "TRUE": True, "FALSE": False}
_REMEDY = "Leave the column out, or turn it into numbers or text."


def infer_kind(text: pl.Series) -> Kind:
    """Return the narrowest kind that holds all values of a text column."""
    values = text.filter((text != "").fill_null(value=False))
    if len(values) == 0:
        return "empty"
    tests = (("int", _are_ints), ("float", _are_floats), ("bool", _are_bools))
    for kind, holds in tests:
        if holds(values.head(_SAMPLE)) and holds(values):
            return kind  # type: ignore[return-value]  # the literals above
    return "text"


def wider_kind(one: Kind, other: Kind) -> Kind:
    """Return the kind of a column whose parts are of the two kinds."""
    if other in (one, "empty"):
        return one
    if one == "empty":
        return other
    return "float" if {one, other} == {"int", "float"} else "text"


def convert_text(text: pl.Series, kind: Kind) -> pl.Series:
    """Return a text column as its kind; fields that are empty become missing values, except quoted ones in text."""
    if kind == "int":
        return text.cast(pl.Int64, strict=False)
    if kind == "float":
        return text.cast(pl.Float64, strict=False)
    if kind == "bool":
        return text.replace_strict(_BOOLS, default=None, return_dtype=pl.Boolean)
    return text


def _are_ints(values: pl.Series) -> bool:
    numbers = values.cast(pl.Int64, strict=False)
    return numbers.null_count() == 0 and bool((numbers.cast(pl.String) == values).all())


def _are_floats(values: pl.Series) -> bool:
    # Text of leading zeros, and whole numbers too long for a float, are names rather than numbers.
    return values.cast(pl.Float64, strict=False).null_count() == 0 and not bool(
        values.str.contains(r"^[+-]?0\d|^\+|^[+-]?\d{16,}$").any()
    )


def _are_bools(values: pl.Series) -> bool:
    return bool(values.is_in(list(_BOOLS)).all())


def check_type(column: pl.Series, *, file: str | Path | None = None) -> pl.Series:
    """Return a typed column in a form that :func:`to_array` takes, or raise if there is none."""
    dtype = column.dtype
    if isinstance(dtype, pl.Categorical | pl.Enum) or dtype == pl.Null:
        return column.cast(pl.String)
    if dtype.is_integer() or dtype.is_float() or dtype in (pl.Boolean, pl.String, pl.Date):
        return column
    if dtype.is_decimal():
        return column.cast(pl.Float64)
    if isinstance(dtype, pl.Datetime):
        if dtype.time_zone is None:
            raise InputError(
                "this extra column has times without a time zone",
                file=file,
                field=column.name,
                remedy="Give the zone of all such times with --timezone, or leave the column out.",
            )
        return column.dt.convert_time_zone("UTC")
    raise InputError(f"columns of type {dtype} cannot be kept", file=file, field=column.name, remedy=_REMEDY)


def to_array(column: pl.Series) -> NDArray[Any]:
    """Return a column as numpy keeps it in :class:`Trips`: missing numbers masked, missing text None, dates NaT."""
    if column.dtype == pl.String:
        return _text_array(column)
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.replace_time_zone(None).to_numpy(writable=True)
    if column.dtype == pl.Date or column.null_count() == 0:
        return column.to_numpy(writable=True)
    fill = column.fill_null(value=False) if column.dtype == pl.Boolean else column.fill_null(0)
    return np.ma.MaskedArray(fill.to_numpy(writable=True), mask=column.is_null().to_numpy())


def to_column(name: str, values: NDArray[Any]) -> pl.Series:
    """Return an array of :class:`Trips` as a column; the reverse of :func:`to_array`."""
    if np.ma.isMaskedArray(values):
        mask = np.ma.getmaskarray(values)
        return to_column(name, np.ma.getdata(values)).set(pl.Series(mask), None)
    if values.dtype.kind in "TUO":
        return pl.Series(name, values.tolist(), dtype=pl.String)
    if values.dtype.kind == "M":
        if values.dtype == np.dtype("M8[D]"):
            return pl.Series(name, values)
        unit = np.datetime_data(values.dtype)[0]
        known = values if unit in ("ms", "us", "ns") else values.astype("M8[us]")
        return pl.Series(name, known).dt.replace_time_zone("UTC")
    if values.dtype.kind in "biuf":
        return pl.Series(name, np.ascontiguousarray(values))
    raise InputError(f"columns of type {values.dtype} cannot be written", field=name, remedy=_REMEDY)


def _text_array(column: pl.Series) -> NDArray[Any]:
    # One Python object per distinct value, not per row.
    encoded = column.to_arrow().dictionary_encode()
    dtype = NULLABLE_TEXT if column.null_count() else TEXT
    try:
        values = encoded.dictionary.to_pylist()
    except UnicodeDecodeError as error:  # nobody checks the text of Parquet files
        raise InputError("some of the text is not UTF-8", field=column.name, remedy="Write the file again.") from error
    distinct = np.array([*values, *([None] if column.null_count() else [])], dtype=dtype)
    codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
    return distinct[codes] if len(codes) else np.empty(0, dtype)


def to_text(column: pl.Series) -> pl.Series:
    """Return a column as the text that CSV and GPX hold; times are ISO 8601 in UTC."""
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.replace_time_zone(None).dt.to_string("iso:strict") + "Z"
    return column.cast(pl.String)
