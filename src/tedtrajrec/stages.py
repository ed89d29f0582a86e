"""Each stage from file to file, chunk by chunk, so that files may be larger than memory.

Outputs appear only when the stage ends well.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tedtrajrec.config import load_config
from tedtrajrec.data.sampling import Rule, keep_share, thin_mask, trip_keys
from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.cleaning.rejects import CleanSummary, RejectsFile
from tedtrajrec.trips.readers import RejectedRows, iter_trips
from tedtrajrec.trips.simulate import simulate_chunks
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.writers import TripWriter, Written


@dataclass(frozen=True)
class Thinned:
    """What thinning left: the effective share differs from the nominal one because both ends stay."""

    trips: int
    fixes_in: int
    fixes_out: int

    def __str__(self) -> str:
        mean = self.fixes_out / max(self.trips, 1)
        share = self.fixes_out / max(self.fixes_in, 1)
        return f"{self.trips:,} trips, {self.fixes_out:,} of {self.fixes_in:,} fixes ({share:.1%}), {mean:.1f} a trip"


def simulate_file(
    network: str | Path,
    output: str | Path,
    *,
    trips: int,
    step_s: int = 15,
    seed: int = 0,
    config: str | Path | None = None,
    overrides: Iterable[str] = (),
) -> Written:
    """Simulate trips on a network and write them; see :func:`tedtrajrec.simulate_trips`."""
    settings = load_config(SimulationConfig, config, overrides)
    chunks = simulate_chunks(
        RoadNetwork.load(network), trips=trips, step_s=step_s, seed=seed, config=settings, show_progress=True
    )
    with TripWriter(output) as writer:
        for chunk in chunks:
            writer.write(chunk)
    return writer.written


def clean_file(
    source: str | Path,
    output: str | Path,
    *,
    rejects: str | Path | None = None,
    network: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    config: str | Path | None = None,
    overrides: Iterable[str] = (),
) -> CleanSummary:
    """Clean the trips of a file; see :func:`tedtrajrec.clean_trips`.

    Parameters
    ----------
    source, output
        Files of trips.
    rejects
        A CSV that lists every dropped fix and trip. With it, rows that cannot be read are listed there as well; without
        it, the first such row is an error.
    network
        A road network to crop to.
    columns, timezone
        As for :func:`tedtrajrec.read_trips`.
    config, overrides
        Settings of :class:`CleanConfig`.
    """
    settings = load_config(CleanConfig, config, overrides)
    if rejects is not None and Path(rejects).resolve() in (Path(source).resolve(), Path(output).resolve()):
        raise OutputError(f"{rejects} is also the file of trips; give the rejects a file of their own.")
    finder = None if network is None else CandidateFinder(RoadNetwork.load(network))
    unreadable = None if rejects is None else RejectedRows()
    summary = CleanSummary()
    with contextlib.ExitStack() as outputs:
        writer = outputs.enter_context(TripWriter(output))
        listing = None if rejects is None else outputs.enter_context(RejectsFile(rejects))
        for chunk in iter_trips(source, columns=columns, timezone=timezone, rejects=unreadable):
            cleaned = clean_trips(chunk, settings, finder)
            summary += cleaned.summary
            if len(cleaned.trips):
                writer.write(cleaned.trips)
            if listing is not None:
                listing.add(cleaned.rejects)
        if listing is not None and unreadable is not None:
            listing.add_rows(unreadable.to_frame().iter_rows())
            summary += CleanSummary(rows_unreadable=len(unreadable))
        if summary.trips_out == 0:
            raise InputError(f"nothing is left after cleaning:\n{summary}", file=source, remedy="Loosen the settings.")
    return summary


def thin_file(
    source: str | Path,
    output: str | Path,
    *,
    keep: str = "1/8",
    rule: Rule = "exact",
    seed: int = 0,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
) -> Thinned:
    """Thin the trips of a file; see :func:`tedtrajrec.thin_trips`. A trip is thinned the same in any file."""
    keep_share(keep)
    fixes_in = 0
    with TripWriter(output) as writer:
        for chunk in iter_trips(source, columns=columns, timezone=timezone):
            mask = thin_mask(chunk.offsets, keep, seed=seed, trip_key=trip_keys(chunk.traj_id), rule=rule)
            writer.write(chunk.keep_fixes(mask))
            fixes_in += chunk.n_fixes
    return Thinned(writer.written.trips, fixes_in, writer.written.fixes)
