"""The list of all that was dropped, as CSV: fixes and trips of cleaning, trips of prepare, rows that cannot be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.data.preparing.drops import Drop
from tedtrajrec.trips.cleaning.rejects import COLUMNS, NO_TIME, WHOLE_TRIP, Reason, Rejects

HEADER = ",".join(COLUMNS) + "\n"
_TYPES = (pl.String, pl.Int64, pl.Int64, pl.Float64, pl.Float64, pl.String, pl.Int64, pl.String, pl.String)
_SCHEMA = dict(zip(COLUMNS, _TYPES, strict=True))


def cleaning_rows(rejects: Rejects) -> str:
    """Return rows for what cleaning dropped."""
    names = np.array(["", *(reason.text for reason in Reason)])
    return _rows(
        rejects.traj_id, rejects.position, rejects.time, rejects.lon, rejects.lat, names[rejects.reason].tolist()
    )


def trip_rows(
    traj_id: NDArray[Any],
    time: NDArray[np.int64],
    lon: NDArray[np.float64],
    lat: NDArray[np.float64],
    why: NDArray[np.uint8],
) -> str:
    """Return rows for trips dropped by prepare, with time and place of their first fix and the code of the reason."""
    names = np.array(["", *(drop.text for drop in Drop)])
    return _rows(traj_id, np.full(len(traj_id), WHOLE_TRIP), time, lon, lat, names[why].tolist())


def unreadable_rows(frame: pl.DataFrame) -> str:
    """Return rows for rows of the input that could not be read; see :class:`tedtrajrec.trips.readers.RejectedRows`."""
    return _csv(frame)


def _rows(
    traj_id: NDArray[Any],
    position: NDArray[np.int64],
    time: NDArray[np.int64],
    lon: NDArray[np.float64],
    lat: NDArray[np.float64],
    reason: list[str],
) -> str:
    columns = (traj_id.tolist(), position, time, lon, lat, reason)
    frame = pl.DataFrame(dict(zip(COLUMNS, columns, strict=False)), schema_overrides=dict(list(_SCHEMA.items())[:6]))
    known = pl.when(pl.col("timestamp") != NO_TIME).then(pl.col("timestamp"))
    return _csv(frame.with_columns(known.alias("timestamp"), pl.col("lon", "lat").fill_nan(None)))


def _csv(frame: pl.DataFrame) -> str:
    whole = pl.concat([pl.DataFrame(schema=_SCHEMA), frame], how="diagonal")
    return whole.write_csv(include_header=False, null_value="")
