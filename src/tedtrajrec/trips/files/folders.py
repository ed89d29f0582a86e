"""Folders of Parquet parts as one input; every trip is whole in one part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl

from tedtrajrec.errors import InputError
from tedtrajrec.files import existing_file
from tedtrajrec.trips.files.seen import SeenHashes
from tedtrajrec.trips.table import Trips


def trip_files(source: str | Path) -> list[Path]:
    """Return the files of an input: that file, or of a folder its Parquet parts by name.

    Raises
    ------
    InputError
        If there is no such file or folder, or no part in it.
    """
    source = Path(source)
    if not source.is_dir():
        return [existing_file(source, "a file of trips, or a folder of Parquet parts")]
    parts = sorted(path for path in source.iterdir() if path.suffix == ".parquet" and not path.name.startswith("."))
    if not parts:
        raise InputError("there is no Parquet file in this folder", file=source, remedy="Parts end in .parquet.")
    return [existing_file(path, "a part of the trips") for path in parts]


def iter_files(files: list[Path], read: Callable[[Path], Iterator[Trips]]) -> Iterator[Trips]:
    """Yield the chunks of files one after another.

    Raises
    ------
    InputError
        If a trip is in several files.
    """
    seen = SeenHashes()
    for file in files:
        for chunk in read(file):
            again = seen.add(pl.Series(chunk.traj_id.tolist(), dtype=pl.String).hash().to_numpy())
            if len(files) > 1 and again.any():
                raise InputError(
                    f"trip {chunk.traj_id[again.argmax()]} is in another part too",
                    file=file,
                    remedy="Write every trip into one part.",
                )
            yield chunk
