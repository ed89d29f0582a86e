"""Trips from files: CSV, Parquet, GeoParquet, GPX and the Porto format, whole or chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import existing_file
from tedtrajrec.trips.files.checking import FixChecker, RejectedRows
from tedtrajrec.trips.files.columns import find_columns
from tedtrajrec.trips.files.delimited import DelimitedFile
from tedtrajrec.trips.files.extras import Kind, infer_kind, wider_kind
from tedtrajrec.trips.files.fixes import gather
from tedtrajrec.trips.files.gpx import GpxFile
from tedtrajrec.trips.files.parquet import ParquetFile
from tedtrajrec.trips.files.porto import PortoReader, is_porto, porto_extras
from tedtrajrec.trips.files.sources import Block, FixSource
from tedtrajrec.trips.files.streaming import chunks_by_spilling, chunks_in_order, split, survey
from tedtrajrec.trips.files.times import SET_ASIDE
from tedtrajrec.trips.table import Trips, concat_trips

__all__ = ["RejectedRows", "iter_trips", "read_trips"]

_FOREIGN = {
    b"PK\x03\x04": "a zip archive or an Excel sheet",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"SQLite": "an SQLite database",
    b"{": "JSON",
}


def read_trips(
    path: str | Path,
    *,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    extras: Sequence[str] | None = None,
    rejects: RejectedRows | None = None,
) -> Trips:
    """Read all trips of a file into memory.

    Parameters
    ----------
    path
        A CSV (also .tsv, with semicolons, and .gz), Parquet, GeoParquet or GPX file; recognised by its content.
    columns
        Our name -> name in the file, where the file's names are not recognised; see ``docs/data-formats.md``.
    timezone
        IANA name of the zone of times that come without one.
    extras
        Names of the extra columns to keep; all by default.
    rejects
        Rows that cannot be used are added here, with their reason, instead of stopping at the first.

    Raises
    ------
    InputError
        If the file or a row cannot be used; the message names the row, the column and what to do.
    """
    source = open_source(path)
    if isinstance(source, DelimitedFile) and is_porto(source.names) and not columns:
        kept = porto_extras(source.names, extras, source.path)
        block = _whole(source, source.names, rejects)
        kinds = {name: infer_kind(block.frame[name]) for name in kept}
        trips = PortoReader(kept, kinds, file=source.path, rejects=rejects).read(block)
        if len(trips) == 0:
            raise _nothing_left(source.path, columns, timezone, extras, rejects)
        return trips
    chosen = find_columns(source.names, columns, file=source.path, geometry=source.geometry, keep=extras)
    block = _whole(source, chosen.needed, rejects)
    inferred = {name: infer_kind(block.frame[name]) for name in chosen.extras.values()} if source.untyped else {}
    zone = _zone_of(source, timezone)
    checker = FixChecker(chosen, file=source.path, timezone=zone, rejects=rejects, kinds=inferred, crs=source.crs)
    fixes = checker.check(block.frame, block.rows)
    if len(fixes) == 0:
        raise _nothing_left(source.path, columns, timezone, extras, rejects)
    return gather(fixes, source.per_trip)


def iter_trips(
    path: str | Path,
    *,
    chunk_fixes: int = 1_000_000,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    extras: Sequence[str] | None = None,
    rejects: RejectedRows | None = None,
) -> Iterator[Trips]:
    """Read the trips of a file of any size in chunks, with memory for about one chunk.

    Every trip is whole in exactly one chunk. The file is read twice; where the rows of different trips are mixed,
    it is grouped in temporary files on disk, and trips come in another order than in the file.

    Parameters
    ----------
    chunk_fixes
        Most fixes of a chunk; a single longer trip makes a longer chunk.
    path, columns, timezone, extras, rejects
        As for :func:`read_trips`.
    """
    if chunk_fixes < 1:
        raise ConfigError(f"A chunk of {chunk_fixes} fixes is impossible; give at least 1.")
    source = open_source(path)
    if isinstance(source, DelimitedFile) and is_porto(source.names) and not columns:
        chunks = _iter_porto(source, chunk_fixes, extras, rejects)
    else:
        chunks = _iter_fixes(source, chunk_fixes, columns, timezone, extras, rejects)
    empty = True
    for chunk in chunks:
        empty = False
        yield chunk
    if empty:
        raise _nothing_left(source.path, columns, timezone, extras, rejects)


def open_source(path: str | Path) -> FixSource:
    """Return a file of trips, opened as what its content says it is."""
    path = existing_file(path, "a file of trips")
    with path.open("rb") as file:
        head = file.read(64)
    if head.startswith(b"PAR1"):
        return ParquetFile(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if ".gpx" in suffixes or head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b"<?xml", b"<gpx")):
        return GpxFile(path)
    if ".parquet" in suffixes or ".geoparquet" in suffixes:
        raise InputError("this is not a Parquet file", file=path, remedy="Check that it was written to the end.")
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            raise InputError(
                f"this is {what}", file=path, remedy="Trips are read from CSV (also .gz), Parquet, GeoParquet or GPX."
            )
    return DelimitedFile(path)


def _iter_fixes(
    source: FixSource,
    chunk_fixes: int,
    columns: Mapping[str, str] | None,
    timezone: str | None,
    extras: Sequence[str] | None,
    rejects: RejectedRows | None,
) -> Iterator[Trips]:
    chosen = find_columns(source.names, columns, file=source.path, geometry=source.geometry, keep=extras)
    zone = _zone_of(source, timezone)
    checker = FixChecker(chosen, file=source.path, timezone=zone, rejects=rejects, crs=source.crs)
    found = survey(source, chosen, rejects)
    if found.rows == 0:
        raise _no_rows(source, chosen.needed)
    checker.kinds = found.kinds
    if found.together:
        return chunks_in_order(source, checker, chunk_fixes)
    return chunks_by_spilling(source, checker, chunk_fixes, found.rows)


def _iter_porto(
    source: DelimitedFile, chunk_fixes: int, extras: Sequence[str] | None, rejects: RejectedRows | None
) -> Iterator[Trips]:
    kept = porto_extras(source.names, extras, source.path)
    kinds: dict[str, Kind] = dict.fromkeys(kept, "empty")
    rows = 0
    for block in source.blocks([*kept, "TRIP_ID"], None if rejects is None else RejectedRows()):
        rows += len(block.frame)
        kinds |= {name: wider_kind(kind, infer_kind(block.frame[name])) for name, kind in kinds.items()}
    if rows == 0:
        raise _no_rows(source, source.names)
    reader = PortoReader(kept, kinds, file=source.path, rejects=rejects)
    held: list[Trips] = []
    for block in source.blocks(source.names, rejects):
        held.append(reader.read(block))
        if sum(trips.n_fixes for trips in held) >= chunk_fixes:
            yield from split(concat_trips(held), chunk_fixes)
            held = []
    if held:
        yield from split(concat_trips(held), chunk_fixes)


def _whole(source: FixSource, names: Sequence[str], rejects: RejectedRows | None) -> Block:
    blocks = list(source.blocks(names, rejects))
    if not any(len(block.frame) for block in blocks):
        raise _no_rows(source, names)
    return Block(pl.concat([block.frame for block in blocks]), np.concatenate([block.rows for block in blocks]))


def _zone_of(source: FixSource, timezone: str | None) -> str | None:
    # GPX times are UTC by definition, written with Z or not.
    return "UTC" if isinstance(source, GpxFile) else timezone


def _no_rows(source: FixSource, names: Sequence[str]) -> InputError:
    for _ in source.blocks(names):  # raises where there are rows, but all were set aside as they do not fit the header
        pass
    return InputError("the file has a header but no rows", file=source.path)


def _nothing_left(
    path: Path,
    columns: Mapping[str, str] | None,
    timezone: str | None,
    extras: Sequence[str] | None,
    rejects: RejectedRows | None,
) -> InputError:
    """Return why no row can be used: the first fault, as it is told where rows are not set aside."""
    if rejects is not None:
        try:
            next(iter_trips(path, columns=columns, timezone=timezone, extras=extras), None)
        except InputError as fault:
            return InputError(
                f"{fault.problem}; none of the rows can be used",
                file=path,
                row=fault.row,
                field=fault.field,
                remedy=None if fault.remedy is None else fault.remedy.replace(SET_ASIDE, ""),
            )
    return InputError("none of the rows can be used", file=path)
