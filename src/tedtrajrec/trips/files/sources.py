"""Files of fixes as blocks of raw columns, each row with its number: what CSV, Parquet and GPX have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from tedtrajrec.trips.files.checking import RejectedRows

GZIP = b"\x1f\x8b"


class Block(NamedTuple):
    """Some rows of a file."""

    frame: pl.DataFrame
    rows: NDArray[np.int64]  # 1-based numbers of data rows


class FixSource(ABC):
    """A file with one row per fix that can be read any number of times."""

    path: Path
    names: list[str]  # of all columns
    untyped: bool  # all columns are text and their kinds must be inferred
    geometry: str | None = None  # the column of points, where there is one
    crs: Any = None  # of that column, None for lon and lat
    per_trip: Sequence[str] = ()  # extra columns with one value per trip

    @abstractmethod
    def blocks(self, names: Sequence[str], rejects: RejectedRows | None = None) -> Iterator[Block]:
        """Yield the given columns block by block; rows that cannot be divided into columns are faults."""


def frame_of(table: pa.RecordBatch | pa.Table) -> pl.DataFrame:
    """Return an arrow table as a frame with the same names and plain types."""
    return pl.DataFrame({name: _plain(table.column(i)) for i, name in enumerate(table.schema.names)})


def _plain(column: Any) -> pl.Series:  # noqa: ANN401  (an untyped library)
    if isinstance(column.type, pa.ExtensionType):
        column = column.cast(column.type.storage_type)
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_timestamp(column.type) and column.type.tz is not None:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))  # polars knows no fixed offsets
    return pl.Series(pl.from_arrow(column))
