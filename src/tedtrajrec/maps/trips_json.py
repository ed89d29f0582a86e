"""Trips as the page reads them: the answer of the service, with a list of values for each column."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.table import Trips


def recovered_json(recovered: RecoveredTrips) -> list[dict[str, Any]]:
    """Return recovered trips, in the form of ``trips`` in the answer to ``POST /v1/recover``."""
    columns: dict[str, NDArray[Any]] = {
        "timestamp": recovered.time,
        "lon": recovered.lon,
        "lat": recovered.lat,
        "segment": recovered.segment,
        "ratio": recovered.ratio,
        "osm_way_id": recovered.osm_way_id,
        "observed": recovered.observed,
        "probability": np.round(recovered.probability.astype(np.float64), 4),  # as it was before it was float32
        "break": recovered.broken,
    }
    trips = _by_trip(recovered.traj_id, recovered.offsets, columns)
    shares = np.round(recovered.share.astype(np.float64), 4)
    for trip, rank, share in zip(trips, recovered.rank.tolist(), _plain(shares), strict=True):
        trip |= {"rank": rank, "share": share}
    return trips


def fixes_json(trips: Trips) -> list[dict[str, Any]]:
    """Return trips of fixes, with their positions where they are matched."""
    columns: dict[str, NDArray[Any]] = {"timestamp": trips.time, "lon": trips.lon, "lat": trips.lat}
    if trips.segment is not None and trips.ratio is not None:
        columns |= {"segment": trips.segment, "ratio": trips.ratio}
    return _by_trip(trips.traj_id, trips.offsets, columns)


def _by_trip(
    traj_id: NDArray[Any], offsets: NDArray[np.int64], columns: dict[str, NDArray[Any]]
) -> list[dict[str, Any]]:
    values = {name: _plain(column) for name, column in columns.items()}
    bounds = zip(traj_id.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    return [{"traj_id": name, **{key: all_[a:b] for key, all_ in values.items()}} for name, a, b in bounds]


def _plain(column: NDArray[Any]) -> list[Any]:
    """Return values as JSON holds them; it has no NaN, which becomes null."""
    values: list[Any] = column.tolist()
    return [None if math.isnan(value) else value for value in values] if column.dtype.kind == "f" else values
