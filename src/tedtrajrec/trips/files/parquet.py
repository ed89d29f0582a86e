"""Parquet and GeoParquet as blocks of typed columns."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet

from tedtrajrec.errors import InputError
from tedtrajrec.files import existing_file
from tedtrajrec.trips.files.checking import RejectedRows
from tedtrajrec.trips.files.sources import Block, FixSource, frame_of

METADATA_KEY = b"tedtrajrec"
"""Our own file metadata: JSON that names the columns with one value per trip."""

_BLOCK_ROWS = 1 << 19


class ParquetFile(FixSource):
    """A Parquet file whose schema has been read; point geometries are recognised by the GeoParquet metadata."""

    untyped = False

    def __init__(self, path: str | Path) -> None:
        self.path = existing_file(path, "a Parquet file of trips")
        try:
            with pa.parquet.ParquetFile(self.path) as file:
                self._schema = file.schema_arrow
                self.names = list(self._schema.names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._broken(error) from error
        metadata = self._schema.metadata or {}
        self.geometry, self.crs = self._geo(metadata)
        self.per_trip = tuple(self._json(metadata, METADATA_KEY).get("per_trip", ()))

    def blocks(self, names: Sequence[str], rejects: RejectedRows | None = None) -> Iterator[Block]:  # noqa: ARG002
        """Yield the given columns; a Parquet file has no uneven rows."""
        first = 1
        try:
            with pa.parquet.ParquetFile(self.path) as file:
                for batch in file.iter_batches(batch_size=_BLOCK_ROWS, columns=list(names)):
                    frame = frame_of(batch)
                    yield Block(frame, np.arange(first, first + len(frame)))
                    first += len(frame)
        except (pa.ArrowException, OSError, pl.exceptions.PolarsError) as error:
            raise self._broken(error) from error

    def _geo(self, metadata: dict[bytes, bytes]) -> tuple[str | None, Any]:
        geo = self._json(metadata, b"geo")
        primary = geo.get("primary_column")
        if primary is None or primary not in self.names:
            return None, None
        described = geo.get("columns", {}).get(primary, {})
        return primary, described.get("crs")

    def _json(self, metadata: dict[bytes, bytes], key: bytes) -> dict[str, Any]:
        try:
            value = json.loads(metadata.get(key, b"{}"))
        except ValueError as error:
            raise InputError(f"the metadata '{key.decode()}' is no JSON ({error})", file=self.path) from error
        return value if isinstance(value, dict) else {}

    def _broken(self, error: Exception) -> InputError:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        return InputError(
            f"the Parquet file is broken or cut off ({first_line})", file=self.path, remedy="Write or copy it again."
        )
