"""What was recovered in figures: a row for each trip, and all of them together."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import OutputError
from tedtrajrec.files import replacing
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.recovered import RecoveredTrips

CONFIDENT = 0.8
"""Least probability of a confident step."""

TRIP_SCHEMA = pl.Schema(
    {
        "traj_id": pl.String(),
        "start": pl.Datetime("ms", "UTC"),
        "end": pl.Datetime("ms", "UTC"),
        "km": pl.Float64(),
        "minutes": pl.Float64(),  # without those of breaks, as the kilometres
        "mean_kmh": pl.Float64(),
        "steps": pl.Int64(),
        "observed": pl.Int64(),
        "confident": pl.Float64(),  # see :func:`confident_share`
        "breaks": pl.Int64(),
        "break_minutes": pl.Float64(),
    }
)
"""Columns of a file with a row for each trip."""

_ROW_SCHEMA = pl.Schema({**TRIP_SCHEMA, "rated": pl.Int64(), "sure": pl.Int64()})
_REASONS = 10  # shown; few inputs have more, and the file lists all
_TOLERANCE_M = 1.0  # rounded ratios


def summarise_trips(recovered: RecoveredTrips, router: Router) -> pl.DataFrame:
    """Return a row for each recovered trip, alternatives aside, without the kilometres and minutes of breaks.

    Behind the columns of a file are those that totals need: ``rated``, how many steps have a probability, and ``sure``,
    how many are confident.
    """
    best = recovered.select(recovered.rank == 0)
    trip, n = best.trip_of_row, len(best)
    first, last = best.offsets[:-1], best.offsets[1:] - 1
    km = np.bincount(trip[1:], _driven_m(best, router), n) / 1000 if best.n_rows else np.zeros(n)
    lost = np.flatnonzero(best.broken[1:] & (np.diff(trip) == 0))
    break_s = np.bincount(trip[lost], np.diff(best.time)[lost], n)
    seconds = best.time[last] - best.time[first] - break_s
    rated = np.bincount(trip[np.isfinite(best.probability)], minlength=n)
    sure = np.bincount(trip[best.probability >= np.float32(CONFIDENT)], minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        speed = km / (seconds / 3600)
    columns = {
        "traj_id": best.traj_id.tolist(),
        "start": best.time[first] * 1000,
        "end": best.time[last] * 1000,
        "km": km.round(3),
        "minutes": (seconds / 60).round(2),
        "mean_kmh": np.where(seconds > 0, speed, np.nan).round(1),
        "steps": best.lengths,
        "observed": np.bincount(trip[best.observed], minlength=n),
        "confident": confident_share(sure, rated, best.lengths).round(4),
        "breaks": np.bincount(trip[best.broken], minlength=n),
        "break_minutes": (break_s / 60).round(2),
        "rated": rated,
        "sure": sure,
    }
    frame = pl.DataFrame(columns, schema_overrides={"traj_id": pl.String}).cast(_ROW_SCHEMA)
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def confident_share(sure: ArrayLike, rated: ArrayLike, steps: ArrayLike) -> NDArray[np.float64]:
    """Return the share of confident steps among all; NaN where half of them or more have no probability."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(2 * np.asarray(rated) > steps, np.divide(sure, steps), np.nan)


def _driven_m(best: RecoveredTrips, router: Router) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the metres from each row to the next [N - 1]: none between trips, at a break and for a small step back."""
    network = router.network
    seg, along = best.segment.astype(np.int64), best.ratio
    stays = seg[1:] == seg[:-1]
    metres = np.where(stays, np.maximum((along[1:] - along[:-1]) * network.length_m[seg[:-1]], 0.0), 0.0)
    within = (np.diff(best.trip_of_row) == 0) & ~best.broken[1:]
    metres[~within] = 0.0
    move = np.flatnonzero(within & ~stays)
    reach = TOP_SPEED_MPS * np.diff(best.time)[move] + _TOLERANCE_M
    way = router.distances(seg[move], along[move], seg[move + 1], along[move + 1], limit_m=reach)
    metres[move] = np.where(np.isfinite(way), way, 0.0)
    return metres


def write_trip_rows(parts: Iterable[pl.DataFrame], path: str | Path) -> None:
    """Write rows of :func:`summarise_trips` to one file, a part at a time.

    Parameters
    ----------
    path
        Ends in .csv or .parquet; see :func:`check_ending`.
    """
    check_ending(path)
    empty = pl.DataFrame(schema=TRIP_SCHEMA)
    with replacing(path) as beside, contextlib.ExitStack() as stack:
        if Path(path).suffix.lower() == ".csv":
            file = stack.enter_context(beside.open("w", encoding="utf-8", newline=""))
            file.write(empty.write_csv())
            for part in parts:
                times = pl.col("start", "end").dt.strftime("%Y-%m-%dT%H:%M:%SZ")
                file.write(part.select(TRIP_SCHEMA.names()).with_columns(times).write_csv(include_header=False))
        else:
            schema = empty.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
            writer = stack.enter_context(pa.parquet.ParquetWriter(beside, schema, compression="zstd"))
            for part in parts:
                table = part.select(TRIP_SCHEMA.names()).to_arrow(compat_level=pl.CompatLevel.oldest())
                writer.write_table(table.cast(schema))


def check_ending(path: str | Path) -> None:
    """Raise :class:`OutputError` unless a summary can be written under this name."""
    if Path(path).suffix.lower() not in (".csv", ".parquet"):
        raise OutputError(f"{path} has no known ending for a summary; use .csv or .parquet.")


@dataclass(frozen=True)
class RecoverySummary:
    """What became of a file of trips."""

    trips_in: int
    trips: int  # recovered, or in part
    fixes_in: int
    fixes_used: int
    rows_unreadable: int  # rows that never became fixes
    rejects: Mapping[str, int]  # such rows, fixes and whole trips by reason, the most frequent first
    steps: int
    km: float
    hours: float  # without those of breaks
    confident: float | None  # see :func:`confident_share`
    breaks: int
    rejects_file: str | None = None
    notes: tuple[str, ...] = ()
    break_hours: float = 0.0

    def __str__(self) -> str:
        speed = f", {self.km / self.hours:.1f} km/h on average" if self.hours else ""
        fixes = f"{self.fixes_used:,} of {self.fixes_in:,} fixes"
        lines = [
            f"{self.trips:,} of {self.trips_in:,} trips recovered from {fixes}: {self.steps:,} steps",
            f"{self.km:,.1f} km in {self.hours:,.1f} h{speed}; {self.breaks:,} breaks",
        ]
        if self.break_hours >= 0.05:  # less would be shown as none
            lines[1] += f", whose {self.break_hours:,.1f} h are left out"
        if self.confident is not None:
            lines[1] += f"; {self.confident:.1%} of the steps are confident (probability {CONFIDENT} or more)"
        if self.rejects:
            lines.append(f"Not used, listed in {self.rejects_file}:")
            counts = list(self.rejects.items())
            lines += [f"{count:>12,}  {reason}" for reason, count in counts[:_REASONS]]
            if others := sum(count for _, count in counts[_REASONS:]):
                lines.append(f"{others:>12,}  for other reasons")
        return "\n".join(lines)
