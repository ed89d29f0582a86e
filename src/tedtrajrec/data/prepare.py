"""From a file of trips to a prepared dataset; ``docs/datasets.md`` describes the steps.

The input is read in chunks. Each is cleaned, put on the step grid with its true positions, and kept as a part in a
folder beside the output. When all parts are there, trips are divided into splits and the dataset is written. Every
part depends on its chunk alone, so work that was interrupted goes on where it was, and ends with the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tedtrajrec.config import to_dict
from tedtrajrec.data.clock import load_zone
from tedtrajrec.data.dataset import Dataset, SplitInfo
from tedtrajrec.data.preparing import listing
from tedtrajrec.data.preparing.assemble import assemble
from tedtrajrec.data.preparing.chunk import ChunkPreparer
from tedtrajrec.data.preparing.config import PrepareConfig, TruthConfig
from tedtrajrec.data.preparing.drops import DENSE_ENOUGH, TOO_SPARSE
from tedtrajrec.data.preparing.parts import OURS, Work
from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.files import replacing
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.progress import progress
from tedtrajrec.threads import Over, labelled
from tedtrajrec.trips.cleaning.rejects import CleanSummary
from tedtrajrec.trips.files.folders import iter_files, trip_files
from tedtrajrec.trips.readers import RejectedRows, iter_trips
from tedtrajrec.trips.table import Trips
from tedtrajrec.work import only_run, remove_work

__all__ = ["PrepareConfig", "PrepareSummary", "TruthConfig", "prepare_dataset"]

CHUNK_FIXES = 300_000
"""Fixes of a part: some 6,000 trips of 12 minutes at 15 s."""


@dataclass(frozen=True)
class PrepareSummary:
    """What became of the trips of a file."""

    output: str
    splits: Mapping[str, SplitInfo]
    dropped: Mapping[str, int]  # trips by reason
    cleaned: CleanSummary = field(default_factory=CleanSummary)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        kept = sum(split.trips for split in self.splits.values())
        sizes = ", ".join(f"{split.trips:,} {name}" for name, split in self.splits.items())
        lines = [*self.notes, f"{kept:,} trips ({sizes}), {sum(s.steps for s in self.splits.values()):,} steps"]
        if self.dropped:
            lines.append(f"{sum(self.dropped.values()):,} trips dropped")
            lines += [f"  {reason.replace('_', ' '):<26}{count:>12,}" for reason, count in self.dropped.items()]
        if self.dropped.get(TOO_SPARSE, 0) > kept:
            lines.append(f"Most trips are too sparse to know where they were at every step. {DENSE_ENOUGH}")
        return "\n".join(lines)


def prepare_dataset(
    source: str | Path,
    network: RoadNetwork | str | Path,
    output: str | Path,
    config: PrepareConfig,
    *,
    rejects: str | Path | None = None,
    workers: int | None = None,
    over: Over = map,
    show_progress: bool = False,
) -> PrepareSummary:
    """Prepare a dataset from a file of trips.

    Interrupted work is taken up again by the same call: parts that are finished are kept in ``<output>.work``.

    Parameters
    ----------
    source
        A file of trips (see :func:`tedtrajrec.read_trips`), or a folder of Parquet parts, with every trip in one.
    network
        The road network, or its file.
    output
        The folder to be made.
    config
        The settings.
    rejects
        A CSV that lists every dropped fix and trip; ``rejects.csv`` in the dataset if not given. With it, rows of the
        source that cannot be read are listed too; without it, the first such row is an error.
    workers
        Number of threads; all processors if not given. The result does not depend on it.
    over
        How chunks are gone through; the result does not depend on it either.
    show_progress
        Whether to show a bar.

    Raises
    ------
    OutputError
        If ``output`` is there already and is not what this call would make, or another run is making it.
    """
    if not config.time_zone:
        raise ConfigError("The time zone of the trips is not given; name it with --timezone, such as Europe/Lisbon.")
    load_zone(config.time_zone)
    files, source, output = trip_files(source), Path(source), Path(output)
    if rejects is not None and Path(rejects).resolve() == source.resolve():
        raise OutputError(f"{rejects} is also the file of trips; give the rejects a file of their own.")
    if rejects is not None and Path(rejects).resolve().is_relative_to(output.resolve()):
        raise OutputError(f"{rejects} is in the dataset, which gets a rejects.csv by itself; leave the option out.")
    if not isinstance(network, RoadNetwork):
        network = RoadNetwork.load(network)
    described = json.loads(json.dumps({**to_dict(config), "source_sha256": _digest(files)}))
    folder = output.parent / f"{output.name}.work"
    with only_run(output):
        if output.exists() and not (output.is_dir() and not any(output.iterdir())):
            return _finished(output, folder, network, described)

        recipe = {"config": described, "network": network.hash, "rows_set_aside": rejects is not None}
        work = Work(folder, recipe)
        notes = []
        if work.was_other:
            notes.append(f"{folder} was of another input or other settings; started over")
        elif not work.is_new and work.files():
            notes.append(f"went on from {len(work.files())} parts in {folder}")
        if not work.dataset.exists():
            if work.all_read is None:
                set_aside = None if rejects is None else RejectedRows()
                _read_parts(work, ChunkPreparer(network, config, source, workers), set_aside, over, show_progress)
            assemble(work, network, config, described, source.name)
        cleaned = work.account().cleaned
        _put_in_place(work, output, rejects)
        info = Dataset(output).info
        work.remove()
        return PrepareSummary(str(output), info.splits, info.dropped, cleaned, tuple(notes))


def _digest(files: list[Path]) -> str:
    """Return a hash of the contents of a file, or of all parts."""
    digests = []
    for path in files:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _read_parts(
    work: Work, preparer: ChunkPreparer, set_aside: RejectedRows | None, over: Over, show_progress: bool
) -> None:
    """Read the whole input and make the parts that are not there yet."""
    read = partial(
        iter_trips,
        chunk_fixes=CHUNK_FIXES,
        columns=preparer.config.columns,
        timezone=preparer.config.time_zone,
        extras=preparer.extras,
        rejects=set_aside,
    )
    chunks: Iterable[Trips] = iter_files(trip_files(preparer.source), read)
    numbered = enumerate(progress(chunks, "prepare", unit="part") if show_progress else chunks)
    missing = ((number, chunk) for number, chunk in numbered if not work.part_file(number).exists())
    for number, part in labelled(over, preparer.prepare, missing):
        work.save(number, part)
    rows = "" if set_aside is None else listing.unreadable_rows(set_aside.to_frame())
    work.note_all_read({"unreadable": rows})


def _put_in_place(work: Work, output: Path, rejects: str | Path | None) -> None:
    """Move the list of what was dropped and then the dataset to their places; what is gone was moved before."""
    place = work.dataset / "rejects.csv" if rejects is None else Path(rejects)
    if work.rejects.exists():
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            work.rejects.replace(place)
        except OSError:  # on another disk, or not to be written at all, which replacing says
            with replacing(place) as beside:
                shutil.copyfile(work.rejects, beside)
            work.rejects.unlink()
    try:
        work.dataset.rename(output)
    except OSError as error:
        raise OutputError(f"{output} cannot be written: {error.strerror or error}.") from error


def _finished(output: Path, folder: Path, network: RoadNetwork, described: Mapping[str, Any]) -> PrepareSummary:
    """Return the summary of a dataset that is there already, if it is the one that was asked for."""
    try:
        info = Dataset(output).info
    except InputError:
        raise OutputError(f"{output} exists already and is no dataset; give another name.") from None
    if info.config != described or info.network_hash != network.hash:
        raise OutputError(f"{output} is a dataset of another input or other settings; remove it or give another name.")
    remove_work(folder, ours=OURS)
    return PrepareSummary(str(output), info.splits, info.dropped, notes=(f"{output} is there already",))
