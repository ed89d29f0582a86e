"""Files of fixes as blocks of raw columns, each row with its number: what CSV, Parquet and GPX have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.trips.checking import RejectedRows

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
