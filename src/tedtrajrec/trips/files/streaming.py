"""Trips of files larger than memory: chunk by chunk, every trip whole in exactly one chunk.

A first pass looks through the file: how many rows there are, whether the rows of each trip are together, and what the
columns of a file without types hold. Where trips are together, a second pass cuts the rows at the ends of trips. Where
they are interleaved, as in a vehicle stream sorted by time, the second pass spreads the checked rows over temporary
Parquet files by a hash of the trip id, and these are then grouped one at a time.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from tedtrajrec.errors import OutputError
from tedtrajrec.trips.files.checking import FixChecker, RejectedRows
from tedtrajrec.trips.files.columns import Columns
from tedtrajrec.trips.files.extras import Kind, infer_kind, wider_kind
from tedtrajrec.trips.files.fixes import gather, run_starts
from tedtrajrec.trips.files.seen import SeenHashes
from tedtrajrec.trips.files.sources import FixSource, frame_of
from tedtrajrec.trips.table import Trips

_MOST_PARTS = 512  # open files at once


@dataclass(frozen=True)
class Survey:
    """What the first pass over a file found."""

    rows: int
    together: bool  # the rows of each trip follow one another
    kinds: dict[str, Kind]  # of the extra columns of a file without types


def survey(source: FixSource, columns: Columns, rejects: RejectedRows | None) -> Survey:
    """Look through a file; takes 8 bytes per trip. Faults are told in the second pass where they are not raised."""
    extras = [*columns.extras.values()] if source.untyped else []
    kinds: dict[str, Kind] = dict.fromkeys(extras, "empty")
    names = list(dict.fromkeys([*columns.traj_id, *extras]))
    rows, together, last = 0, True, None
    seen = SeenHashes()
    for block in source.blocks(names, None if rejects is None else RejectedRows()):
        rows += len(block.frame)
        for name in extras:
            if kinds[name] != "text":
                kinds[name] = wider_kind(kinds[name], infer_kind(block.frame[name]))
        if together:
            # Two ids with one hash would only mean that the file is grouped without need.
            hashes = block.frame.select(columns.traj_id).hash_rows()
            runs = hashes.gather(run_starts(hashes)).to_numpy()
            runs = runs[1:] if last is not None and runs[0] == last else runs
            last = hashes[-1]
            together = not seen.add(runs).any() and len(np.unique(runs)) == len(runs)
    return Survey(rows, together, kinds)


def chunks_in_order(source: FixSource, checker: FixChecker, chunk_fixes: int) -> Iterator[Trips]:
    """Yield the trips of a file in which the rows of each trip follow one another."""
    waiting: list[pl.DataFrame] = []
    held = 0
    for block in source.blocks(checker.columns.needed, checker.rejects):
        fixes = checker.check(block.frame, block.rows)
        waiting.append(fixes)
        held += len(fixes)
        if held > chunk_fixes:
            fixes = pl.concat(waiting)
            starts = run_starts(fixes["traj_id"])  # the last run may go on in the next block
            first = 0
            while (end := _cut(starts, first, chunk_fixes)) is not None and len(fixes) - first > chunk_fixes:
                yield gather(fixes[first:end], source.per_trip)
                first = end
            waiting = [fixes[first:]]
            held = len(fixes) - first
    if held:
        yield from split(gather(pl.concat(waiting), source.per_trip), chunk_fixes)


def chunks_by_spilling(source: FixSource, checker: FixChecker, chunk_fixes: int, rows: int) -> Iterator[Trips]:
    """Yield the trips of a file in which rows of different trips are mixed."""
    parts = min(_MOST_PARTS, -(-rows // chunk_fixes))
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-") as folder:
        files = [Path(folder) / f"{part}.parquet" for part in range(parts)]
        try:
            _spill(source, checker, files)
        except OSError as error:
            raise OutputError(
                f"Temporary files for grouping {source.path} cannot be written to {folder}: {error}. "
                "Set TMPDIR to a folder with enough room."
            ) from error
        for file in files:
            if file.exists():
                fixes = frame_of(pa.parquet.read_table(file))
                file.unlink()
                yield from split(gather(fixes, source.per_trip), chunk_fixes)


def _spill(source: FixSource, checker: FixChecker, files: list[Path]) -> None:
    with contextlib.ExitStack() as stack:
        writers: dict[int, pa.parquet.ParquetWriter] = {}
        for block in source.blocks(checker.columns.needed, checker.rejects):
            fixes = checker.check(block.frame, block.rows)
            if len(fixes) == 0:
                continue
            part_of_row = (fixes["traj_id"].hash() % len(files)).to_numpy()
            order = np.argsort(part_of_row, kind="stable")
            table = fixes[order].to_arrow(compat_level=pl.CompatLevel.oldest())
            bounds = np.searchsorted(part_of_row[order], np.arange(len(files) + 1))
            for part in np.flatnonzero(np.diff(bounds)).tolist():
                if part not in writers:
                    writer = pa.parquet.ParquetWriter(files[part], table.schema, compression="lz4")
                    writers[part] = stack.enter_context(writer)
                writers[part].write_table(table.slice(bounds[part], bounds[part + 1] - bounds[part]))


def split(trips: Trips, chunk_fixes: int) -> Iterator[Trips]:
    """Yield trips in chunks of at most ``chunk_fixes`` fixes, or of one longer trip."""
    first = 0
    while first < len(trips):
        end = int(np.searchsorted(trips.offsets, trips.offsets[first] + chunk_fixes, side="right")) - 1
        end = max(end, first + 1)
        yield trips if (first, end) == (0, len(trips)) else trips.select(np.arange(first, end))
        first = end


def _cut(starts: NDArray[np.int64], first: int, chunk_fixes: int) -> int | None:
    """Return the last start of a run up to ``chunk_fixes`` after ``first``, or the next one; None without any."""
    later = starts[starts > first]
    if len(later) == 0:
        return None
    within = later[later <= first + chunk_fixes]
    return int(within[-1] if len(within) else later[0])
