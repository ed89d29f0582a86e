"""What a prepared dataset holds, in figures: the answer of ``tedtrajrec data info``."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.clock import load_zone, local_seconds
from tedtrajrec.data.dataset import SPLITS, Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.network.bbox import BBox
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.progress import progress
from tedtrajrec.trips.table import Trips

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

KEEPS = ("1/8", "1/16")
HOURS_OF_WEEK = 7 * 24


@dataclass(frozen=True)
class SplitFigures:
    """The trips of one split, or of all; means are over trips, and NaN where there are none."""

    trips: int
    steps: int
    mean_steps: float
    mean_duration_s: float  # from the first step to the last
    mean_length_km: float  # in straight lines from step to step
    mean_speed_kmh: float  # of all trips together, halts included
    without_fix: float  # share of steps
    without_truth: float  # share of steps
    observed_share: Mapping[str, float]  # effective share of steps that are observed, by keep
    observed_fixes: Mapping[str, float]  # observed fixes a trip, by keep


@dataclass(frozen=True)
class DatasetFigures:
    """A prepared dataset in figures; ``str()`` of it is the text of ``data info``."""

    source: str
    step_s: int
    time_zone: str
    network_hash: str
    n_segments: int
    n_visited: int  # segments that some trip is on
    bbox: BBox  # of the network
    width_km: float
    height_km: float
    first: datetime.datetime | None  # local time of the first step of all, and of the last
    last: datetime.datetime | None
    dropped: Mapping[str, int]  # trips by reason
    splits: Mapping[str, SplitFigures]  # train, valid, test and all

    def __str__(self) -> str:
        west, south, east, north = self.bbox
        period = "no trips" if self.first is None else f"{self.first:%Y-%m-%d %H:%M} to {self.last:%Y-%m-%d %H:%M}"
        lines = {
            "source": self.source or "not given",
            "period": f"{period}, {self.time_zone}",
            "step": f"{self.step_s} s",
            "network": f"{self.network_hash}, {self.n_segments:,} segments, trips are on {self.n_visited:,} of them",
            "area": f"{self.width_km:.1f} x {self.height_km:.1f} km ({west:.5f},{south:.5f},{east:.5f},{north:.5f})",
            "dropped": f"{sum(self.dropped.values()):,} trips",
        }
        text = [f"{name:<12} {value}" for name, value in lines.items()]
        text += [
            f"{'':<12} {count:,} {reason.replace('_', ' ')}"
            for reason, count in sorted(self.dropped.items(), key=lambda item: (-item[1], item[0]))
        ]
        rows = {
            "trips": [f"{s.trips:,}" for s in self.splits.values()],
            "steps": [f"{s.steps:,}" for s in self.splits.values()],
            "steps a trip": [f"{s.mean_steps:.1f}" for s in self.splits.values()],
            "duration (s)": [f"{s.mean_duration_s:.1f}" for s in self.splits.values()],
            "length (km)": [f"{s.mean_length_km:.2f}" for s in self.splits.values()],
            "speed (km/h)": [f"{s.mean_speed_kmh:.1f}" for s in self.splits.values()],
            "steps without fix": [f"{s.without_fix:.2%}" for s in self.splits.values()],
            "steps without truth": [f"{s.without_truth:.2%}" for s in self.splits.values()],
        }
        for keep in KEEPS:
            rows[f"observed at {keep}"] = [f"{s.observed_share[keep]:.1%}" for s in self.splits.values()]
            rows[f"fixes at {keep}"] = [f"{s.observed_fixes[keep]:.2f}" for s in self.splits.values()]
        text += ["", f"{'':<20}" + "".join(f"{name:>12}" for name in self.splits)]
        text += [
            f"{name:<20}" + "".join(f"{value.replace('nan%', '-').replace('nan', '-'):>12}" for value in values)
            for name, values in rows.items()
        ]
        return "\n".join(text)


@dataclass(frozen=True, eq=False)
class Tally:
    """What one pass over a dataset counts, for the table and for the pictures."""

    steps: Ints  # [T] of each trip
    metres: Floats  # [T] in straight lines from step to step
    fixes: Ints  # [T] steps with a fix
    known: Ints  # [T] steps with truth
    observed: Mapping[str, Ints]  # [T] observed fixes by keep
    on_segment: Ints  # [S] steps on each segment
    gaps: Ints  # [G] how often a fix comes so many steps after the one before
    hours: Ints  # [168] steps in each local hour of the week, from Monday 0:00
    first: int | None  # epoch seconds of the first step of all
    last: int | None

    @classmethod
    def of(cls, trips: Trips, network: RoadNetwork, time_zone: str) -> Tally:
        """Return what is counted in some trips."""
        assert trips.segment is not None  # noqa: S101  (prepared trips have them)
        assert trips.ratio is not None  # noqa: S101
        known, seen = trips.segment >= 0, ~np.isnan(trips.lon)
        lon, lat = trips.lon.copy(), trips.lat.copy()
        lon[known], lat[known] = network.point_at(trips.segment[known], trips.ratio[known])
        trip = trips.trip_of_fix
        placed = np.flatnonzero(known | seen)
        a, b = _within_trips(placed, trip)
        step_m = short_distance_m(lon[a], lat[a], lon[b], lat[b])
        fixes_a, fixes_b = _within_trips(np.flatnonzero(seen), trip)
        hours = local_seconds(trips.time, time_zone) // 3600 + 3 * 24  # 1970-01-01 was a Thursday
        return cls(
            steps=trips.lengths,
            metres=np.asarray(np.bincount(trip[a], weights=step_m, minlength=len(trips)), np.float64),
            fixes=np.bincount(trip[seen], minlength=len(trips)),
            known=np.bincount(trip[known], minlength=len(trips)),
            observed={keep: np.bincount(trip[draw_observed(trips, keep)], minlength=len(trips)) for keep in KEEPS},
            on_segment=np.bincount(trips.segment[known], minlength=network.n_segments),
            gaps=np.bincount(fixes_b - fixes_a),
            hours=np.bincount(hours % HOURS_OF_WEEK, minlength=HOURS_OF_WEEK),
            first=int(trips.time.min()) if len(trips) else None,
            last=int(trips.time.max()) if len(trips) else None,
        )


def tally_splits(dataset: Dataset) -> dict[str, Tally]:
    """Count each split of a dataset, one shard at a time in memory."""
    shards = sum(size.shards for size in dataset.info.splits.values())
    stream = ((name, trips) for name in SPLITS for trips in dataset.split(name).shards())
    parts: dict[str, list[Tally]] = {name: [] for name in SPLITS}
    for name, trips in progress(stream, "counting", total=shards, unit="shard"):
        parts[name].append(Tally.of(trips, dataset.network, dataset.info.time_zone))
    return {name: join_tallies(found, dataset.network.n_segments) for name, found in parts.items()}


def join_tallies(parts: list[Tally], n_segments: int) -> Tally:
    """Return the counts of several parts together."""
    gaps = np.zeros(max((len(part.gaps) for part in parts), default=0), np.int64)
    for part in parts:
        gaps[: len(part.gaps)] += part.gaps
    none = np.zeros(0, np.int64)
    return Tally(
        steps=np.concatenate([none, *(part.steps for part in parts)]),
        metres=np.concatenate([np.zeros(0), *(part.metres for part in parts)]),
        fixes=np.concatenate([none, *(part.fixes for part in parts)]),
        known=np.concatenate([none, *(part.known for part in parts)]),
        observed={keep: np.concatenate([none, *(part.observed[keep] for part in parts)]) for keep in KEEPS},
        on_segment=np.sum([np.zeros(n_segments, np.int64), *(part.on_segment for part in parts)], axis=0),
        gaps=gaps,
        hours=np.sum([np.zeros(HOURS_OF_WEEK, np.int64), *(part.hours for part in parts)], axis=0),
        first=min((part.first for part in parts if part.first is not None), default=None),
        last=max((part.last for part in parts if part.last is not None), default=None),
    )


def describe_dataset(dataset: Dataset, tallies: Mapping[str, Tally] | None = None) -> DatasetFigures:
    """Return the figures of a dataset.

    Parameters
    ----------
    dataset
        What to describe.
    tallies
        What :func:`tally_splits` counted, if it is at hand.
    """
    info, network = dataset.info, dataset.network
    counted = dict(tally_splits(dataset) if tallies is None else tallies)
    every = join_tallies(list(counted.values()), network.n_segments)
    west, south, east, north = network.bbox
    x, y = network.plane.to_xy(np.array([west, east]), np.array([south, north]))
    zone = load_zone(info.time_zone)
    first, last = (None if t is None else datetime.datetime.fromtimestamp(t, zone) for t in (every.first, every.last))
    return DatasetFigures(
        source=info.source,
        step_s=info.step_s,
        time_zone=info.time_zone,
        network_hash=info.network_hash,
        n_segments=network.n_segments,
        n_visited=int((every.on_segment > 0).sum()),
        bbox=network.bbox,
        width_km=float(x[1] - x[0]) / 1000,
        height_km=float(y[1] - y[0]) / 1000,
        first=first,
        last=last,
        dropped=dict(info.dropped),
        splits={name: _figures(tally, info.step_s) for name, tally in {**counted, "all": every}.items()},
    )


def _figures(tally: Tally, step_s: int) -> SplitFigures:
    trips, steps = len(tally.steps), int(tally.steps.sum())
    seconds = float((tally.steps - 1).sum()) * step_s
    return SplitFigures(
        trips=trips,
        steps=steps,
        mean_steps=_ratio(steps, trips),
        mean_duration_s=_ratio(seconds, trips),
        mean_length_km=_ratio(float(tally.metres.sum()) / 1000, trips),
        mean_speed_kmh=_ratio(3.6 * float(tally.metres.sum()), seconds),
        without_fix=1 - _ratio(int(tally.fixes.sum()), steps),
        without_truth=1 - _ratio(int(tally.known.sum()), steps),
        observed_share={keep: _ratio(float((n / tally.steps).sum()), trips) for keep, n in tally.observed.items()},
        observed_fixes={keep: _ratio(float(n.sum()), trips) for keep, n in tally.observed.items()},
    )


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")


def _within_trips(steps: Ints, trip: Ints) -> tuple[Ints, Ints]:
    """Return each of the given steps that is followed by another one of its trip, and that one."""
    a, b = steps[:-1], steps[1:]
    same = trip[a] == trip[b]
    return a[same], b[same]
