"""Trips as a table with one row per fix and back; readers, writers and frames all pass through it.

The table is a polars frame with our column names (traj_id, timestamp as epoch seconds, lon, lat, perhaps segment and
ratio with nulls where unmatched) followed by the extra columns.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.trips.files.columns import CANONICAL
from tedtrajrec.trips.files.extras import to_array, to_column
from tedtrajrec.trips.table import Trips, group_rows


def gather(fixes: pl.DataFrame, per_trip: Collection[str] = ()) -> Trips:
    """Return trips from a table of fixes; rows of one trip need not be together, and keep their order.

    Parameters
    ----------
    per_trip
        Extra columns with one value per trip, of those that are there.
    """
    per_trip = [name for name in per_trip if name in fixes.columns]
    order, offsets, first = group_rows(trip_codes(fixes["traj_id"]))
    if not np.array_equal(order, np.arange(len(order))):
        fixes = fixes[order]
    starts = fixes[offsets[:-1]]
    trip_of_fix = np.repeat(np.arange(len(first)), np.diff(offsets))
    for name in per_trip:
        if not fixes[name].eq_missing(starts[name].gather(trip_of_fix)).all():
            raise InputError("the file says this column has one value per trip, but it has more", field=name)
    extras = [name for name in fixes.columns if name not in CANONICAL]
    return Trips(
        traj_id=to_array(starts["traj_id"].cast(pl.String)),
        offsets=offsets,
        time=fixes["timestamp"].to_numpy(writable=True),
        lon=fixes["lon"].to_numpy(writable=True),
        lat=fixes["lat"].to_numpy(writable=True),
        segment=fixes["segment"].fill_null(-1).to_numpy(writable=True) if "segment" in fixes.columns else None,
        ratio=fixes["ratio"].fill_null(np.nan).to_numpy(writable=True) if "ratio" in fixes.columns else None,
        extra={name: to_array(fixes[name]) for name in extras if name not in per_trip},
        trip_extra={name: to_array(starts[name]) for name in extras if name in per_trip},
    )


def scatter(trips: Trips) -> pl.DataFrame:
    """Return the table of fixes of trips; values per trip are repeated, trips without fixes do not appear."""
    trip_of_fix = trips.trip_of_fix
    columns = [
        to_column("traj_id", trips.traj_id).gather(trip_of_fix),
        pl.Series("timestamp", trips.time),
        pl.Series("lon", trips.lon),
        pl.Series("lat", trips.lat),
    ]
    if trips.segment is not None:
        segment = pl.Series("segment", trips.segment)
        columns.append(segment.set(segment < 0, None))
    if trips.ratio is not None:
        columns.append(pl.Series("ratio", trips.ratio).fill_nan(None))
    columns += [to_column(name, values) for name, values in trips.extra.items()]
    columns += [to_column(name, values).gather(trip_of_fix) for name, values in trips.trip_extra.items()]
    names = [column.name for column in columns]
    for name in (*trips.trip_extra, *trips.extra):
        if name in CANONICAL or names.count(name) > 1:
            raise InputError("an extra column cannot have the name of another column", field=name)
    return pl.DataFrame({column.name: column for column in columns})  # a list would rename a column without name


def trip_codes(ids: pl.Series) -> NDArray[np.int64]:
    """Return a number for each row that is the same for rows of one trip."""
    starts = run_starts(ids)
    runs = ids.gather(starts).to_arrow().dictionary_encode().indices.to_numpy()
    return np.repeat(runs.astype(np.int64), np.diff(starts, append=len(ids)))


def run_starts(ids: pl.Series) -> NDArray[np.int64]:
    """Return the first row of each run of equal ids."""
    if len(ids) == 0:
        return np.zeros(0, np.int64)
    run = ids.rle_id().to_numpy()
    return np.concatenate([[0], np.flatnonzero(run[1:] != run[:-1]) + 1])
