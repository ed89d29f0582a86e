"""Trips to files: CSV, Parquet, GeoParquet, GPX and GeoJSON, whole or chunk by chunk.

A file appears under its name only when it is complete.
"""

from __future__ import annotations

import contextlib
import gzip
import json
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self
from xml.sax.saxutils import escape

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet

from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.files import replacing
from tedtrajrec.trips.files.columns import CANONICAL
from tedtrajrec.trips.files.extras import to_column, to_text
from tedtrajrec.trips.files.fixes import scatter
from tedtrajrec.trips.files.geometry import to_wkb
from tedtrajrec.trips.files.gpx import FOOTER, HEADER, to_gpx
from tedtrajrec.trips.files.parquet import METADATA_KEY
from tedtrajrec.trips.table import TEXT, Trips

_ROW_GROUP = 1 << 20


@dataclass(frozen=True)
class Written:
    """What went into a file."""

    trips: int = 0
    fixes: int = 0
    left_out: int = 0  # trips without fixes, which files of fixes cannot hold


def write_trips(trips: Trips, path: str | Path) -> Written:
    """Write trips to one file; the format follows from the name.

    Parameters
    ----------
    path
        Ends in .csv, .tsv, .parquet, .geoparquet, .gpx or .geojson; all but the Parquet ones also with .gz.

    Returns
    -------
    The numbers of trips and fixes written. Trips without fixes are counted and left out.
    """
    with TripWriter(path) as writer:
        writer.write(trips)
    return writer.written


class TripWriter:
    """Writes trips chunk by chunk: ``with TripWriter(path) as writer: writer.write(chunk)``.

    All chunks have the columns and types of the first. The file appears when the block ends without an error.

    Parameters
    ----------
    path
        As for :func:`write_trips`.
    attribution
        Whose data the trips are made from, for the formats that have a place for it: the metadata of Parquet, a member
        of GeoJSON, the description of GPX. CSV has none.
    """

    def __init__(self, path: str | Path, *, attribution: str | None = None) -> None:
        self.path = Path(path)
        self._attribution = attribution
        self._make_sink = _sink_for(self.path)
        self._stack = contextlib.ExitStack()
        self._sink: _Sink | None = None
        self._schema: dict[str, pl.DataType] | None = None
        self.written = Written()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            beside = stack.enter_context(replacing(self.path))
            self._sink = stack.enter_context(self._make_sink(beside, self._attribution))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and self._schema is None and self._sink is not None:
            self.write(_NO_TRIPS)  # a header, so that the file can be read as what it is
        self._stack.__exit__(kind, error, traceback)

    def write(self, trips: Trips) -> None:
        """Write some trips, after those written before."""
        if self._sink is None:
            raise OutputError("Trips can be written only inside the with block of the writer.")
        schema = _schema_of(trips)
        if self._schema is None:
            self._schema = schema
        elif schema != self._schema:
            raise InputError(
                f"this chunk of trips has columns {_described(schema)}, the first had {_described(self._schema)}",
                file=self.path,
            )
        self._sink.write(trips)
        empty = int(np.count_nonzero(trips.lengths == 0))
        self.written = Written(
            self.written.trips + len(trips) - empty, self.written.fixes + trips.n_fixes, self.written.left_out + empty
        )


class _Sink(Protocol):
    def write(self, trips: Trips) -> None: ...


_NO_TRIPS = Trips(
    traj_id=np.empty(0, TEXT),
    offsets=np.zeros(1, np.int64),
    time=np.empty(0, np.int64),
    lon=np.empty(0),
    lat=np.empty(0),
)


class _TextSink(contextlib.AbstractContextManager["_TextSink"]):
    """A text file, perhaps compressed; the time of writing is not stored, so equal trips give equal files."""

    footer = ""

    def __init__(self, path: Path, attribution: str | None) -> None:
        self._stack = contextlib.ExitStack()
        self.file: BufferedIOBase = self._stack.enter_context(path.open("wb"))
        if path.suffix.lower() == ".gz":
            compressed = gzip.GzipFile(filename="", fileobj=self.file, mode="wb", compresslevel=6, mtime=0)
            self.file = self._stack.enter_context(compressed)
        self.file.write(self._header(attribution).encode())

    def _header(self, attribution: str | None) -> str:  # noqa: ARG002  (formats with a place for it use it)
        return ""

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if kind is None:
            self.file.write(self.footer.encode())
        self._stack.close()


class _CsvSink(_TextSink):
    def __init__(self, path: Path, attribution: str | None) -> None:
        super().__init__(path, attribution)
        self._delimiter = "\t" if ".tsv" in [suffix.lower() for suffix in path.suffixes] else ","
        self._first = True

    def write(self, trips: Trips) -> None:
        fixes = scatter(trips)
        dates = [to_text(column).alias(column.name) for column in fixes if isinstance(column.dtype, pl.Datetime)]
        text = fixes.with_columns(dates).write_csv(include_header=self._first, separator=self._delimiter)
        self.file.write(text.encode())
        self._first = False


class _GpxSink(_TextSink):
    footer = FOOTER

    def _header(self, attribution: str | None) -> str:
        return HEADER if attribution is None else f"{HEADER}<metadata><desc>{escape(attribution)}</desc></metadata>\n"

    def write(self, trips: Trips) -> None:
        self.file.write(to_gpx(trips).encode())


class _GeoJsonSink(_TextSink):
    """A feature per trip: a LineString (a Point for one fix), per-fix values under coordinateProperties."""

    footer = "\n]}\n"

    def __init__(self, path: Path, attribution: str | None) -> None:
        super().__init__(path, attribution)
        self._first = True

    def _header(self, attribution: str | None) -> str:
        member = "" if attribution is None else f'"attribution": {json.dumps(attribution, ensure_ascii=False)}, '
        return f'{{"type": "FeatureCollection", {member}"features": [\n'

    def write(self, trips: Trips) -> None:
        fixes = scatter(trips.replace(trip_extra={}))
        per_fix = {"times": fixes["timestamp"].to_list()}
        per_fix |= {name: _json_values(fixes[name]) for name in fixes.columns if name not in _NOT_PROPERTIES}
        per_trip = {name: _json_values(to_column(name, values)) for name, values in trips.trip_extra.items()}
        ids = trips.traj_id.tolist()
        positions = np.column_stack([trips.lon, trips.lat]).tolist()
        for i, (start, end) in enumerate(zip(trips.offsets[:-1].tolist(), trips.offsets[1:].tolist(), strict=True)):
            if start == end:
                continue
            line = end - start > 1
            properties = {
                "traj_id": ids[i],
                **{name: values[i] for name, values in per_trip.items()},
                "coordinateProperties": {name: values[start:end] for name, values in per_fix.items()},
            }
            feature = {
                "type": "Feature",
                "geometry": {
                    "type": "LineString" if line else "Point",
                    "coordinates": positions[start:end] if line else positions[start],
                },
                "properties": properties,
            }
            self.file.write(b"" if self._first else b",\n")
            self.file.write(json.dumps(feature, ensure_ascii=False, allow_nan=False).encode())
            self._first = False


_NOT_PROPERTIES = ("traj_id", "timestamp", "lon", "lat")


def _json_values(column: pl.Series) -> list[Any]:
    """Return values as JSON holds them; it has no NaN and no infinity, which become null."""
    if column.dtype.is_float():
        column = column.set(~column.is_finite(), None)
    elif column.dtype.is_temporal():
        column = to_text(column)
    return column.to_list()


class _ParquetSink(contextlib.AbstractContextManager["_ParquetSink"]):
    geo = False

    def __init__(self, path: Path, attribution: str | None) -> None:
        self._path = path
        self._attribution = attribution
        self._writer: pa.parquet.ParquetWriter | None = None

    def write(self, trips: Trips) -> None:
        table = self._table(trips)
        if self._writer is None:
            self._writer = pa.parquet.ParquetWriter(self._path, table.schema, compression="zstd")
        self._writer.write_table(table.cast(self._writer.schema), row_group_size=_ROW_GROUP)

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def _table(self, trips: Trips) -> pa.Table:
        fixes = scatter(trips)
        times = pl.from_epoch("timestamp").cast(pl.Datetime("ms", "UTC"))
        table = fixes.with_columns(times).to_arrow(compat_level=pl.CompatLevel.oldest())
        metadata = {METADATA_KEY: json.dumps({"per_trip": list(trips.trip_extra)}).encode()}
        if self.geo:
            table = table.drop_columns(["lon", "lat"]).append_column("geometry", to_wkb(trips.lon, trips.lat))
            metadata[b"geo"] = json.dumps(_GEO).encode()
        if self._attribution is not None:
            metadata[b"attribution"] = self._attribution.encode()
        return table.replace_schema_metadata(metadata)


class _GeoParquetSink(_ParquetSink):
    geo = True


# GeoParquet 1.1; without a "crs" it is OGC:CRS84, longitude and latitude.
_GEO = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["Point"]}},
}

_SINKS: dict[str, type[_TextSink | _ParquetSink]] = {
    ".csv": _CsvSink,
    ".tsv": _CsvSink,
    ".gpx": _GpxSink,
    ".geojson": _GeoJsonSink,
    ".parquet": _ParquetSink,
    ".pq": _ParquetSink,
    ".geoparquet": _GeoParquetSink,
}


def _sink_for(path: Path) -> Any:  # noqa: ANN401  (one of the classes above)
    suffix = path.suffix.lower()
    gzipped = suffix == ".gz"
    suffix = Path(path.stem).suffix.lower() if gzipped else suffix
    sink = _SINKS.get(suffix)
    if sink is None or (gzipped and not issubclass(sink, _TextSink)):
        raise OutputError(
            f"{path} has no known ending for trips; use {', '.join(_SINKS)}, the text ones also with .gz."
        )
    return sink


def _schema_of(trips: Trips) -> dict[str, pl.DataType]:
    """Return the types of all columns of trips, whether or not values are missing."""
    none = trips.select(np.zeros(0, np.int64))
    fixes = scatter(none)
    return dict(fixes.schema) | {f"{name} per trip": fixes.schema[name] for name in trips.trip_extra}


def _described(schema: dict[str, pl.DataType]) -> str:
    return ", ".join(f"{name} ({dtype})" for name, dtype in schema.items() if name not in CANONICAL[:4]) or "no others"
