"""Trips along a line, for tests of cleaning: which rows are left, and which are listed."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.trips.clean import CleanConfig
from tedtrajrec.trips.cleaning.rejects import Reason
from tedtrajrec.trips.table import Trips, as_text

PLANE = LocalPlane(-8.62, 41.15)
START = 1_400_000_000
LOOSE = CleanConfig(
    max_gap_s=0, max_speed_mps=0, stop_min_s=0, crop_distance_m=0, min_fixes=0, min_duration_s=0, min_length_m=0
)


def make(*trips, **extra):
    """Return trips from lists of (seconds, metres east[, metres north]); ``extra`` is per fix over all of them."""
    rows = [(t, x, *rest) if rest else (t, x, 0.0) for trip in trips for t, x, *rest in trip]
    time, x, y = np.array(rows, float).reshape(-1, 3).T
    lon, lat = PLANE.to_lonlat(x, y)
    offsets = np.concatenate([[0], np.cumsum([len(trip) for trip in trips])]).astype(np.int64)
    return Trips(
        as_text([chr(ord("a") + i) for i in range(len(trips))]),
        offsets,
        START + time.astype(np.int64),
        lon,
        lat,
        segment=np.arange(len(time), dtype=np.int32),
        ratio=np.linspace(0, 1, len(time)),
        extra={"row": np.arange(len(time)), **extra},
        trip_extra={"taxi": np.arange(len(trips)) * 10},
    )


def drive(n, step_s=15, speed=10.0, start_s=0, start_m=0.0):
    return [(start_s + i * step_s, start_m + i * step_s * speed) for i in range(n)]


def rows(cleaned):
    """Return the input rows of every clean trip."""
    return {
        str(name): part.tolist()
        for name, part in zip(
            cleaned.trips.traj_id,
            np.split(cleaned.trips.extra["row"], cleaned.trips.offsets[1:-1]),
            strict=True,
        )
    }


def listed(cleaned):
    return [
        (str(name), int(position), Reason(int(reason)).text)
        for name, position, reason in zip(
            cleaned.rejects.traj_id, cleaned.rejects.position, cleaned.rejects.reason, strict=True
        )
    ]


def same(left, right):
    """Return whether two sets of trips are equal in everything; as text, so that NaN equals NaN and masked is None."""

    def texts(trips):
        columns = {part.name: getattr(trips, part.name) for part in fields(Trips)}
        columns |= {**columns.pop("extra"), **columns.pop("trip_extra")}
        return {name: None if column is None else repr(column.tolist()) for name, column in columns.items()}

    return texts(left) == texts(right)
