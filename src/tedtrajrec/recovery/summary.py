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
        "minutes": pl.Float64(),
        "mean_kmh": pl.Float64(),
        "steps": pl.Int64(),
        "observed": pl.Int64(),
        "confident": pl.Float64(),  # share of the steps; missing where the method gives no probability
        "breaks": pl.Int64(),
    }
)
_TOLERANCE_M = 1.0  # rounded ratios


def summarise_trips(recovered: RecoveredTrips, router: Router) -> pl.DataFrame:
    """Return a row for each recovered trip, alternatives aside; kilometres are driven ones, without those of breaks."""
    best = recovered.select(recovered.rank == 0)
    trip, n = best.trip_of_row, len(best)
    first, last = best.offsets[:-1], best.offsets[1:] - 1
    km = np.bincount(trip[1:], _driven_m(best, router), n) / 1000 if best.n_rows else np.zeros(n)
    seconds = best.time[last] - best.time[first]
    known = np.isfinite(best.probability)
    n_known = np.bincount(trip[known], minlength=n)
    sure = np.bincount(trip[known & (best.probability >= np.float32(CONFIDENT))], minlength=n)
    with np.errstate(invalid="ignore", divide="ignore"):
        speed, confident = km / (seconds / 3600), sure / n_known
    columns = {
        "traj_id": best.traj_id.tolist(),
        "start": best.time[first] * 1000,
        "end": best.time[last] * 1000,
        "km": km.round(3),
        "minutes": (seconds / 60).round(2),
        "mean_kmh": np.where(seconds > 0, speed, np.nan).round(1),
        "steps": best.lengths,
        "observed": np.bincount(trip[best.observed], minlength=n),
        "confident": confident.round(4),
        "breaks": np.bincount(trip[best.broken], minlength=n),
    }
    frame = pl.DataFrame(columns, schema_overrides={"traj_id": pl.String}).cast(TRIP_SCHEMA)
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


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
                file.write(part.with_columns(times).write_csv(include_header=False))
        else:
            schema = empty.to_arrow(compat_level=pl.CompatLevel.oldest()).schema
            writer = stack.enter_context(pa.parquet.ParquetWriter(beside, schema, compression="zstd"))
            for part in parts:
                writer.write_table(part.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(schema))


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
    rows_unreadable: int
    rejects: Mapping[str, int]  # fixes and whole trips by reason
    steps: int
    km: float
    hours: float
    confident: float | None  # share of the steps, where the method gives probabilities
    breaks: int
    rejects_file: str | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        speed = f", {self.km / self.hours:.1f} km/h on average" if self.hours else ""
        fixes = f"{self.fixes_used:,} of {self.fixes_in:,} fixes"
        lines = [
            f"{self.trips:,} of {self.trips_in:,} trips recovered from {fixes}: {self.steps:,} steps",
            f"{self.km:,.1f} km in {self.hours:,.1f} h{speed}; {self.breaks:,} breaks",
        ]
        if self.confident is not None:
            lines[1] += f"; {self.confident:.1%} of the steps are confident (probability {CONFIDENT} or more)"
        if self.rows_unreadable or self.rejects:
            lines.append(f"Not used, listed in {self.rejects_file}:")
            if self.rows_unreadable:
                lines.append(f"{self.rows_unreadable:>12,}  rows that cannot be read")
            lines += [f"{count:>12,}  {reason}" for reason, count in self.rejects.items()]
        return "\n".join(lines)
