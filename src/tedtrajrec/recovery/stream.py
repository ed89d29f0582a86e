"""From a file of sparse trips to a file of recovered ones; ``docs/recovering.md`` describes it.

The input is read in chunks. What is recovered of each is kept as a part in a folder beside the output; when all parts
are there, they are streamed into it. Every part depends on its chunk alone, so work that was interrupted goes on where
it was, and ends with the same bytes. Memory is that of one chunk, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from tqdm import tqdm

from tedtrajrec import __version__
from tedtrajrec.config import to_dict
from tedtrajrec.errors import ConfigError, InputError, OutputError, TedtrajrecError
from tedtrajrec.files import existing_file
from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.parts import RecoveryParts
from tedtrajrec.recovery.privacy import trim_ends, with_hashed_ids
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips
from tedtrajrec.recovery.rejects import default_place, write_rejects
from tedtrajrec.recovery.summary import RecoverySummary, check_ending, confident_share, summarise_trips, write_trip_rows
from tedtrajrec.threads import Over, labelled
from tedtrajrec.trips.files.porto import is_porto
from tedtrajrec.trips.readers import RejectedRows, iter_trips, open_source
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import TripWriter
from tedtrajrec.work import only_run

if TYPE_CHECKING:
    from tedtrajrec.recovery.recoverer import Recoverer

CHUNK_FIXES = 10_000
"""Fixes of a part: some 2,000 sparse trips, a minute or two of a model's work on two cores."""

_LOOKED_AT = 1 << 20  # bytes at both ends of the input that tell it from another of its size


def recover_file(
    source: str | Path,
    output: str | Path,
    recoverer: Recoverer,
    *,
    step_s: int | None = None,
    alternatives: int = 0,
    rejects: str | Path | None = None,
    summary: str | Path | None = None,
    trim_ends_m: float = 0.0,
    hash_key: str | None = None,
    extras: Sequence[str] | None = None,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    tell: Callable[[str], None] | None = None,
    over: Over = map,
    show_progress: bool = False,
) -> RecoverySummary:
    """Recover the trips of a file.

    Interrupted work is taken up again by the same call: parts that are finished are kept in ``<output>.parts``.

    Parameters
    ----------
    source
        A file of trips; see :func:`tedtrajrec.read_trips`.
    output
        The file to be made; its ending chooses the format.
    recoverer
        A trained model, or a method on a network.
    step_s
        Seconds between the rows of the output; those of the recoverer if not given.
    alternatives
        How many next best trips to add to each.
    rejects
        A CSV that lists every fix, trip and row that was not used. If not given, ``<output without its
        ending>.rejects.csv``, which is only there if anything was rejected.
    summary
        A CSV or Parquet file with a row for each trip.
    trim_ends_m
        Cut what is nearer than this to the ends of each trip; see :func:`tedtrajrec.recovery.privacy.trim_ends`.
    hash_key
        Hash the ids of trips with this key; see :func:`tedtrajrec.recovery.privacy.hash_ids`.
    extras
        Names of the extra columns to keep. All if not given, but none where ids are hashed: they could tell what the
        ids no longer do.
    columns, timezone
        As for :func:`tedtrajrec.read_trips`.
    tell
        Called with what the user should know at once, such as that the input is unlike what the model was trained on.
    over
        How chunks are gone through; the result does not depend on it.
    show_progress
        Whether to show a bar.

    Raises
    ------
    OutputError
        If another run is working on ``output``, or a place cannot be written to.
    InputError
        If the input cannot be used, or nothing of it can be recovered; what was rejected is listed all the same.
    """
    source, output = existing_file(source, "a file of trips"), Path(output)
    listing = default_place(output) if rejects is None else Path(rejects)
    _check_places(source, output, listing, None if summary is None else Path(summary))
    if not (trim_ends_m >= 0 and np.isfinite(trim_ends_m)):
        raise ConfigError(f"Ends of {trim_ends_m} m cannot be trimmed; give a distance of 0 m or more.")
    if hash_key is not None and extras is None:
        extras = ()
    say = tell or (lambda _: None)
    settings = {
        "step_s": step_s,
        "alternatives": alternatives,
        "trim_ends_m": trim_ends_m,
        "hash_key": None if hash_key is None else hashlib.blake2b(hash_key.encode()).hexdigest(),
        "extras": None if extras is None else list(extras),
        "columns": None if columns is None else dict(columns),
        "timezone": timezone,
        "chunk_fixes": CHUNK_FIXES,
    }
    attribution = recoverer.network.meta.get("attribution")
    with only_run(output):
        recipe = {
            "tedtrajrec": __version__,
            "input": describe_input(source),
            "model": describe_model(recoverer),
            "settings": settings,
        }
        parts = RecoveryParts(output.parent / f"{output.name}.parts", recipe)
        if parts.was_other:
            say(f"{parts.folder} was of another input, model or other settings; started over")
        elif len(parts):
            say(f"went on from {len(parts)} parts in {parts.folder}")
        if parts.all_read is None:
            recover = _ChunkRecoverer(recoverer, step_s, alternatives, trim_ends_m, hash_key)
            unreadable = RejectedRows()
            chunks = iter_trips(
                source, chunk_fixes=CHUNK_FIXES, columns=columns, timezone=timezone, extras=extras, rejects=unreadable
            )
            try:
                with (
                    _bar(source, show_progress) as done,
                    contextlib.closing(_with_check(chunks, recoverer, say)) as trips,
                ):
                    for (number, chunk), found in labelled(over, recover, _missing(trips, parts, done)):
                        parts.save(number, chunk, *found)
                        done(chunk)
            except TedtrajrecError:
                if not len(parts):
                    parts.remove()
                raise
            rows = unreadable.to_frame().rows()
            if trim_ends_m > 0 or hash_key is not None:  # a value may be a place or a name
                rows = [(number, column, "", reason) for number, column, _, reason in rows]
            parts.note_all_read({"unreadable": rows})
        result = _put_together(parts, output, listing, summary, attribution, always_list=rejects is not None)
        parts.remove()
    if result.trips == 0:
        raise InputError(f"none of the trips can be recovered:\n{result}", file=source)
    return result


class _ChunkRecoverer:
    """Recovers chunks: the recovered trips, a row for each, and how many fixes were not used."""

    def __init__(
        self,
        recoverer: Recoverer,
        step_s: int | None,
        alternatives: int,
        trim_ends_m: float,
        hash_key: str | None,
    ) -> None:
        self.recoverer = recoverer
        self.router = Router(recoverer.network)
        self.step_s = step_s
        self.alternatives = alternatives
        self.trim_ends_m = trim_ends_m
        self.hash_key = hash_key

    def __call__(self, chunk: Trips) -> tuple[RecoveredTrips, pl.DataFrame, int]:
        """Return what has become of a chunk."""
        recovered = self.recoverer.recover_trips(chunk, self.step_s, alternatives=self.alternatives)
        rejected = int((recovered.rejects.time != NO_TIME).sum())
        if self.trim_ends_m > 0:
            step_s = self.step_s or self.recoverer.step_s
            recovered = trim_ends(recovered, chunk, self.trim_ends_m, step_s=step_s)
        if self.hash_key is not None:
            recovered = with_hashed_ids(recovered, self.hash_key)
        return recovered, summarise_trips(recovered, self.router), rejected


def _missing(
    chunks: Iterator[Trips], parts: RecoveryParts, done: Callable[[Trips], None]
) -> Iterator[tuple[tuple[int, Trips], Trips]]:
    """Yield the chunks whose parts are not there yet, with their numbers; of the others tell that they are done."""
    for number, chunk in enumerate(chunks):
        if parts.has(number):
            done(chunk)
        else:
            yield (number, chunk), chunk


def _with_check(chunks: Iterator[Trips], recoverer: Recoverer, say: Callable[[str], None]) -> Generator[Trips]:
    """Yield the chunks; say of the first what in it is unlike what the model was trained on."""
    for number, chunk in enumerate(chunks):
        if number == 0:
            for warning in recoverer.check(chunk):
                say(warning)
        yield chunk


def _put_together(
    parts: RecoveryParts,
    output: Path,
    listing: Path,
    summary: str | Path | None,
    attribution: str | None,
    *,
    always_list: bool,
) -> RecoverySummary:
    """Stream the parts into the files that were asked for, the recovered trips last."""
    unreadable = [tuple(row) for row in (parts.all_read or {})["unreadable"]]
    counts = Counter(_row_reason(column, reason) for _, column, _, reason in unreadable)
    trips_in = fixes_in = fixes_rejected = 0
    for account in parts.accounts():
        trips_in += account.trips_in
        fixes_in += account.fixes_in
        fixes_rejected += account.fixes_rejected
        counts.update(reason for _, _, reason in account.rejects)
    trips = steps = breaks = rated = sure = 0
    km = minutes = break_minutes = 0.0
    for rows in parts.trips():
        trips, steps, breaks = trips + len(rows), steps + int(rows["steps"].sum()), breaks + int(rows["breaks"].sum())
        rated, sure = rated + int(rows["rated"].sum()), sure + int(rows["sure"].sum())
        km, minutes = km + float(rows["km"].sum()), minutes + float(rows["minutes"].sum())
        break_minutes += float(rows["break_minutes"].sum())
    confident = float(confident_share(sure, rated, steps))
    if counts or always_list:
        with parts.making(listing, "rejects") as made:
            write_rejects((row for account in parts.accounts() for row in account.rejects), unreadable, made)
    else:
        listing.unlink(missing_ok=True)  # of an earlier run
    if summary is not None:
        with parts.making(Path(summary), "summary") as made:
            write_trip_rows(parts.trips(), made)
    if trips:
        with parts.making(output, "recovered") as made, TripWriter(made, attribution=attribution) as writer:
            for chunk in parts.steps():
                writer.write(chunk)
    return RecoverySummary(
        trips_in=trips_in,
        trips=trips,
        fixes_in=fixes_in,
        fixes_used=fixes_in - fixes_rejected,
        rows_unreadable=len(unreadable),
        rejects=dict(counts.most_common()),
        steps=steps,
        km=round(km, 3),
        hours=minutes / 60,
        confident=None if np.isnan(confident) else confident,
        breaks=breaks,
        break_hours=break_minutes / 60,
        rejects_file=str(listing),
    )


def _row_reason(column: str, reason: str) -> str:
    """Return the reason of a row that never became a fix as errors tell it, but for values and numbers of rows."""
    return f"row, column '{column}': {reason}" if column else f"row: {reason}"


def _check_places(source: Path, output: Path, listing: Path, summary: Path | None) -> None:
    """Raise unless every file to be written has a name of its own."""
    TripWriter(output)  # knows the endings
    if summary is not None:
        check_ending(summary)
    places = {"input": source, "output": output, "list of rejects": listing}
    if summary is not None:
        places["summary"] = summary
    taken: dict[Path, str] = {}
    for what, path in places.items():
        if path.is_dir():
            raise OutputError(f"{path} is a folder; give the name of a file to write.")
        other = taken.setdefault(path.resolve(), what)
        if other != what:
            raise OutputError(f"{path} is given as the {other} and as the {what}; give each a file of its own.")


@contextlib.contextmanager
def _bar(path: Path, show: bool) -> Iterator[Callable[[Trips], None]]:
    """Show how much of a file is done; to count its rows takes seconds, beside the hours that recovering may take."""
    if not (show and sys.stderr.isatty()):
        yield lambda _: None
        return
    source = open_source(path)
    rows = sum(len(block.frame) for block in source.blocks(source.names[:1], RejectedRows()))
    per_trip = is_porto(source.names)
    with tqdm(desc="recover", unit=" trips" if per_trip else " fixes", total=rows, leave=False) as bar:

        def done(chunk: Trips) -> None:
            bar.update(len(chunk) if per_trip else chunk.n_fixes)

        yield done


def describe_input(source: Path) -> dict[str, Any]:
    """Return what tells one input from another without reading all of it."""
    found = source.stat()
    with source.open("rb") as file:
        digest = hashlib.sha256(file.read(_LOOKED_AT))
        file.seek(max(found.st_size - _LOOKED_AT, 0))
        digest.update(file.read(_LOOKED_AT))
    return {"bytes": found.st_size, "modified_ns": found.st_mtime_ns, "ends": digest.hexdigest()}


def describe_model(recoverer: Recoverer) -> dict[str, Any]:
    """Return what tells one recoverer from another: its network, its settings and all that it learned."""
    method = recoverer.method
    digest = hashlib.sha256()
    for name, array in sorted(method.state().items()):
        digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return {
        "method": method.name,
        "decoding": method.decoding,
        "config": to_dict(method.config),
        "network": recoverer.network.hash,
        "step_s": recoverer.step_s,
        "time_zone": recoverer.time_zone,
        "learned": digest.hexdigest(),
    }
