"""Recovered trips from files to one self-contained HTML map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.files import replacing
from tedtrajrec.maps.bundle import html_page
from tedtrajrec.maps.network_json import network_json, segments_near
from tedtrajrec.maps.trips_json import fixes_json, recovered_json
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.readers import iter_trips
from tedtrajrec.trips.table import Trips, concat_trips
from tedtrajrec.work import only_run

MOST_AWAY_M = 20.0
"""From steps to where the network has them, beyond which it is another network."""


@dataclass(frozen=True)
class MapSummary:
    """What a map shows."""

    trips: int
    segments: int
    more: bool  # whether the file has further trips
    size: int  # bytes of the file

    def __str__(self) -> str:
        shown = f"the first {self.trips:,} trips of the file" if self.more else f"{self.trips:,} trips"
        roads = f"{self.segments:,} segments around them" if self.segments else "no network"
        return f"{shown}, {roads}, {self.size / 1e6:.1f} MB"


def map_file(
    recovered: str | Path | Sequence[str | Path],
    output: str | Path,
    *,
    network: str | Path | RoadNetwork | None = None,
    sparse: str | Path | None = None,
    truth: str | Path | None = None,
    trips: int = 20,
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
) -> MapSummary:
    """Write recovered trips as an HTML file that shows them on a map, without anything from outside.

    Parameters
    ----------
    recovered
        A file that ``tedtrajrec recover`` wrote, or several of the same trips to compare.
    output
        The HTML file.
    network
        The road network that the trips were recovered on; without it, steps are joined by straight lines.
    sparse
        The fixes the trips were recovered from; without them, the observed steps are drawn in their place.
    truth
        The whole trips where they are known, best with segment and ratio.
    trips
        How many trips to show: the first ones of the (first) file.
    columns
        Of ``sparse`` and ``truth``, as for :func:`tedtrajrec.read_trips`.
    timezone
        IANA time zone of the clock on the map (UTC if not given), and of times in ``sparse`` and ``truth`` that come
        without one.
    """
    if trips < 1:
        raise InputError(f"a map of {trips} trips shows nothing", remedy="Give at least 1.")
    files = [Path(recovered)] if isinstance(recovered, str | Path) else [Path(file) for file in recovered]
    head, more = _first_trips(files[0], trips)
    wanted = head.traj_id
    shown = [head, *(_trips_named(file, wanted) for file in files[1:])]
    roads = RoadNetwork.load(network) if isinstance(network, str | Path) else network
    methods = [
        {"name": name, "notes": [], "trips": recovered_json(_recovered(found, file, roads))}
        for name, found, file in zip(_names(files), shown, files, strict=True)
    ]
    if more:
        methods[0]["notes"] = [f"The first {trips:,} trips of the file."]
    near = np.empty(0, np.int64) if roads is None else _near(roads, shown)
    data = {
        "title": ", ".join(file.name for file in files),
        "time_zone": timezone or "UTC",
        "methods": methods,
        "fixes": [] if sparse is None else fixes_json(_trips_named(sparse, wanted, columns, timezone)),
        "truth": [] if truth is None else fixes_json(_trips_named(truth, wanted, columns, timezone)),
        "network": None if roads is None else network_json(roads, near),
        "attribution": None if roads is None else roads.meta.get("attribution"),
    }
    with only_run(output), replacing(output) as beside:
        beside.write_text(html_page(data), encoding="utf-8")
    return MapSummary(len(wanted), len(near), more, Path(output).stat().st_size)


def _first_trips(file: Path, most: int) -> tuple[Trips, bool]:
    """Return the first trips of a file, and whether there are more."""
    found: list[Trips] = []
    missing = most
    for chunk in iter_trips(file, timezone="UTC"):
        if missing == 0:
            return concat_trips(found), True
        found.append(chunk.select(np.arange(min(missing, len(chunk)))))
        missing -= len(found[-1])
        if len(chunk) > len(found[-1]):
            return concat_trips(found), True
    return concat_trips(found), False


def _trips_named(
    file: str | Path,
    wanted: NDArray[Any],
    columns: Mapping[str, str] | None = None,
    timezone: str | None = None,
) -> Trips:
    """Return those trips of a file that are wanted, in the order of ``wanted``."""
    chunks = iter_trips(file, columns=columns, timezone=timezone)
    found = concat_trips([chunk.select(np.isin(chunk.traj_id, wanted)) for chunk in chunks])
    if len(found) == 0:
        raise InputError(
            f"it has none of the trips shown, such as '{wanted[0]}'",
            file=file,
            field="traj_id",
            remedy="Give a file of the same trips.",
        )
    return found


def _recovered(trips: Trips, file: Path, network: RoadNetwork | None) -> RecoveredTrips:
    try:
        recovered = RecoveredTrips.from_trips(trips)
    except InputError as error:
        raise InputError(error.problem, file=file, field=error.field, remedy=error.remedy) from error
    if network is not None and (fault := _fault(recovered, network)):
        raise InputError(fault, file=file, field="segment", remedy="Give the network that the trips were recovered on.")
    return recovered


def _fault(recovered: RecoveredTrips, network: RoadNetwork) -> str | None:
    """Return why trips are not of a network, if they are not."""
    most = int(recovered.segment.max(initial=-1))
    if most >= network.n_segments:
        return f"segment {most} is not in the network, which has {network.n_segments:,}"
    lon, lat = network.point_at(recovered.segment, recovered.ratio)
    away_m = short_distance_m(lon, lat, recovered.lon, recovered.lat)
    usual_m = float(np.median(away_m)) if len(away_m) else 0.0
    return f"the steps lie {usual_m:.0f} m from their segments in the network" if usual_m > MOST_AWAY_M else None


def _near(network: RoadNetwork, shown: Sequence[Trips]) -> NDArray[np.int64]:
    lon, lat = (np.concatenate([getattr(trips, name) for trips in shown]) for name in ("lon", "lat"))
    driven = np.concatenate([trips.segment for trips in shown if trips.segment is not None]).astype(np.int64)
    return np.union1d(segments_near(network, lon, lat), driven[driven >= 0])


def _names(files: Sequence[Path]) -> list[str]:
    """Return a name for each file: its stem, or its path where stems repeat."""
    stems = [file.name.split(".")[0] for file in files]
    return stems if len(set(stems)) == len(stems) else [str(file) for file in files]
