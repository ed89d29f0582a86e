"""Each stage from file to file, chunk by chunk, so that files may be larger than memory.

Outputs appear only when the stage ends well.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tedtrajrec.config import load_config
from tedtrajrec.data.sampling import Rule, keep_share, thin_mask, trip_keys
from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import Over, labelled
from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.cleaning.rejects import CleanSummary, Reason, RejectsFile
from tedtrajrec.trips.match import STATUS, MatchConfig, Matched, Matcher
from tedtrajrec.trips.readers import RejectedRows, iter_trips
from tedtrajrec.trips.route_files import RouteWriter
from tedtrajrec.trips.simulate import simulate_chunks
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import TripWriter, Written
from tedtrajrec.work import only_run


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
    with only_run(output), TripWriter(output) as writer:
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
    """Clean the trips of a file; see :func:`tedtrajrec.trips.clean.clean_trips`.

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
        outputs.enter_context(only_run(output, rejects))
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
            raise _all_dropped(summary, source)
    return summary


def _all_dropped(summary: CleanSummary, source: str | Path) -> InputError:
    """Return the error of a cleaning that left nothing: its largest cause, what to do, and all the counts."""
    counts, what = (summary.fixes_dropped, "fixes") if summary.fixes_in else (summary.trips_dropped, "trips")
    cause = max(counts, key=lambda reason: counts[reason])
    remedy = "Loosen the settings, see docs/cleaning.md."
    if cause == Reason.OUTSIDE.text:
        remedy = "Is this the network of their city, and are lon and lat in the right columns?"
    return InputError(
        f"nothing is left after cleaning, most of all for '{cause.replace('_', ' ')}' ({counts[cause]:,} {what})",
        file=source,
        remedy=f"{remedy}\n{summary}",
    )


@dataclass(frozen=True)
class MatchSummary:
    """How the fixes of a file were matched."""

    trips: int
    status: Mapping[str, int]  # fixes by status, see STATUS of the matcher
    breaks: int  # places where the chain of a trip broke

    def __str__(self) -> str:
        fixes = ", ".join(f"{count:,} {status.replace('_', ' ')}" for status, count in self.status.items() if count)
        return f"{self.trips:,} trips; fixes: {fixes}; {self.breaks:,} breaks"


def match_file(
    source: str | Path,
    output: str | Path,
    *,
    network: str | Path,
    routes: str | Path | None = None,
    preset: str = "default",
    noise_m: float | None = None,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    over: Over = map,
) -> MatchSummary:
    """Match the trips of a file to a network and write them with what was found for each fix.

    Beside the columns of the input, which a column of the same name would replace, every fix gets segment, ratio,
    matched_lon, matched_lat, distance_m, osm_way_id, probability and match_status.

    Parameters
    ----------
    source, output
        Files of trips.
    network
        The road network.
    routes
        A file for the routes driven, one row for each piece of a trip; see :class:`RouteWriter`.
    preset
        Settings of the matcher; see :meth:`MatchConfig.preset`.
    noise_m
        Standard deviation of a fix across the road; estimated for each trip if not given.
    columns, timezone
        As for :func:`tedtrajrec.read_trips`.
    over
        How chunks are gone through; the result does not depend on it.
    """
    return match_with(
        make_matcher(network, preset, noise_m),
        source,
        output,
        routes=routes,
        columns=columns,
        timezone=timezone,
        over=over,
        show_progress=over is map,
    )


def make_matcher(network: str | Path, preset: str = "default", noise_m: float | None = None) -> Matcher:
    """Return a matcher; parameters as for :func:`match_file`."""
    settings = MatchConfig.preset(preset)
    if noise_m is not None:
        try:
            settings = dataclasses.replace(settings, noise_m=noise_m)
        except ValueError as error:
            raise ConfigError(f"The noise is {noise_m} m: {error}.") from error
    return Matcher(RoadNetwork.load(network), settings)


def match_with(
    matcher: Matcher,
    source: str | Path,
    output: str | Path,
    *,
    routes: str | Path | None = None,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
    over: Over = map,
    show_progress: bool = False,
) -> MatchSummary:
    """Match the trips of a file with a matcher that is there; see :func:`match_file`."""
    status: Counter[str] = Counter()
    breaks = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(only_run(output, routes))
        writer = stack.enter_context(TripWriter(output))
        route_writer = None if routes is None else stack.enter_context(RouteWriter(routes, matcher.network))
        chunks = iter_trips(source, columns=columns, timezone=timezone)
        match = partial(matcher.match, show_progress=show_progress)
        for chunk, found in labelled(over, match, ((chunk, chunk) for chunk in chunks)):
            writer.write(_with_match(chunk, found, matcher.network))
            if route_writer is not None:
                route_writer.write(chunk, found)
            status.update({name: int((found.status == i).sum()) for i, name in enumerate(STATUS)})
            breaks += int(np.maximum(np.diff(found.piece_offsets) - 1, 0).sum())
    return MatchSummary(writer.written.trips, dict(status), breaks)


def _with_match(trips: Trips, found: Matched, network: RoadNetwork) -> Trips:
    matched = found.segment >= 0
    way = np.zeros(trips.n_fixes, np.int64)
    way[matched] = network.way_at(found.segment[matched], found.ratio[matched])
    columns = {
        "matched_lon": np.ma.MaskedArray(found.lon, ~matched),
        "matched_lat": np.ma.MaskedArray(found.lat, ~matched),
        "distance_m": np.ma.MaskedArray(found.distance_m, ~matched),
        "osm_way_id": np.ma.MaskedArray(way, ~matched),
        "probability": found.probability,
        "match_status": np.array(STATUS)[found.status],
    }
    kept = {name: values for name, values in trips.trip_extra.items() if name not in columns}
    return trips.replace(segment=found.segment, ratio=found.ratio, extra={**trips.extra, **columns}, trip_extra=kept)


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
    """Thin the trips of a file (:func:`tedtrajrec.data.sampling.thin_trips`); a trip comes out the same in any file."""
    keep_share(keep)
    fixes_in = 0
    with only_run(output), TripWriter(output) as writer:
        for chunk in iter_trips(source, columns=columns, timezone=timezone):
            mask = thin_mask(chunk.offsets, keep, seed=seed, trip_key=trip_keys(chunk.traj_id), rule=rule)
            writer.write(chunk.keep_fixes(mask))
            fixes_in += chunk.n_fixes
    return Thinned(writer.written.trips, fixes_in, writer.written.fixes)
