"""A recoverer that answers at once, and trips for it: what the tests of files, parts and privacy share."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects, kept_by_trip, no_trips
from tedtrajrec.trips.table import Trips, as_text

START = 1_500_000_000


def sparse_trips(network: RoadNetwork, n: int, *, seed: int = 0, fixes: int = 4, step_s: int = 15) -> Trips:
    """Return trips of some fixes each, one or two minutes apart on random roads, with extra columns."""
    draw = np.random.default_rng(seed)
    total = n * fixes
    lon, lat = network.point_at(draw.integers(0, network.n_segments, total), draw.random(total))
    gaps = step_s * draw.integers(4, 9, total)
    since = np.cumsum(gaps) - np.repeat(np.cumsum(gaps)[::fixes], fixes)
    return Trips(
        traj_id=as_text([f"trip {i}" for i in range(n)]),
        offsets=np.arange(n + 1) * fixes,
        time=START + 100_000 * np.repeat(np.arange(n), fixes) + since,
        lon=lon,
        lat=lat,
        extra={"speed": np.ma.MaskedArray(draw.integers(0, 90, total), draw.random(total) < 0.3)},
        trip_extra={"driver": as_text([f"driver {i % 7}" for i in range(n)])},
    )


@dataclass(frozen=True)
class Settings:
    """Of the quick method; it has none."""


class QuickRecoverer:
    """Puts every step on a road that follows from the trip's id; trips of one fix are rejected."""

    def __init__(self, network: RoadNetwork, *, step_s: int = 15) -> None:
        self.network = network
        self.step_s = step_s
        self.time_zone = "UTC"
        self.notes: list[str] = []
        self.calls = 0
        self.method: Any = SimpleNamespace(name="quick", decoding="own", config=Settings(), state=dict)

    def check(self, trips: Trips) -> list[str]:
        return [f"The first of {len(trips)} trips is looked at."]

    def recover_trips(self, trips: Trips, step_s: int | None = None, *, alternatives: int = 0) -> RecoveredTrips:
        self.calls += 1
        step_s = step_s or self.step_s
        alone = trips.lengths < 2
        rejects = Rejects(
            np.repeat(trips.traj_id[alone], 1 + trips.lengths[alone]),
            np.concatenate([[0][:0], *([NO_TIME, *_times(trips, i)] for i in np.flatnonzero(alone))]).astype(np.int64),
            as_text([word for i in np.flatnonzero(alone) for word in ["too few", *["alone"] * int(trips.lengths[i])]]),
        )
        whole = trips.select(~alone)
        if not len(whole):
            return no_trips(rejects)
        parts = [self._rows(whole, step_s, rank, alternatives > 0) for rank in range(1 + alternatives)]
        ordered = RecoveredTrips.concat([*parts[:-1], parts[-1]])
        number = np.tile(np.arange(len(whole)), 1 + alternatives)
        chosen = ordered.select(np.lexsort([ordered.rank, number]))
        return RecoveredTrips(**{**vars(chosen), "rejects": rejects})

    def _rows(self, trips: Trips, step_s: int, rank: int, shared: bool) -> RecoveredTrips:
        first, last = trips.time[trips.offsets[:-1]], trips.time[trips.offsets[1:] - 1]
        steps = (last - first) // step_s + 1
        row = np.arange(steps.sum()) - np.repeat(np.cumsum(steps) - steps, steps)
        key = np.repeat([sum(name.encode()) + rank for name in trips.traj_id.tolist()], steps)
        segment = ((key * 7 + row // 3) % self.network.n_segments).astype(np.int32)
        ratio = (row % 3) / 4 + 0.1
        lon, lat = self.network.point_at(segment, ratio)
        time = np.repeat(first, steps) + row * step_s
        return RecoveredTrips(
            traj_id=trips.traj_id,
            offsets=np.concatenate([[0], np.cumsum(steps)]).astype(np.int64),
            time=time,
            lon=lon.round(7),
            lat=lat.round(7),
            segment=segment,
            ratio=ratio.round(6),
            osm_way_id=self.network.way_at(segment, ratio),
            observed=np.isin(time, trips.time),
            probability=(0.5 + 0.1 * (row % 6)).astype(np.float32),
            broken=row % 5 == 4,
            trip_extra=kept_by_trip(trips, np.arange(len(trips))),
            rank=np.full(len(trips), rank, np.int16),
            share=np.full(len(trips), 0.25 if shared else np.nan, np.float32),
        )


def _times(trips: Trips, i: int) -> list[int]:
    return [int(t) for t in trips.time[trips.offsets[i] : trips.offsets[i + 1]]]
