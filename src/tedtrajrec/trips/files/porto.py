"""The Kaggle/UCI Porto taxi format: one row per trip, its fixes every 15 s as a JSON list of [lon, lat]."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.trips.files.checking import RejectedRows, RowFaults, check_positions
from tedtrajrec.trips.files.extras import Kind, convert_text, to_array
from tedtrajrec.trips.files.seen import SeenHashes
from tedtrajrec.trips.files.sources import Block
from tedtrajrec.trips.files.times import TimeReader
from tedtrajrec.trips.table import Trips

STEP_S = 15
"""Seconds between the points of a polyline."""

_KNOWN = ("TRIP_ID", "TIMESTAMP", "POLYLINE")
_POLYLINE_REMEDY = "A polyline is a JSON list such as [[-8.61,41.14],[-8.62,41.15]], or [] without fixes."


def is_porto(names: Sequence[str]) -> bool:
    """Tell whether these are the columns of the Porto format."""
    return set(_KNOWN) <= set(names)


def porto_extras(names: Sequence[str], keep: Sequence[str] | None, file: Path) -> list[str]:
    """Return the columns that are kept as values per trip."""
    extras = [name for name in names if name not in _KNOWN]
    if keep is None:
        return extras
    for name in keep:
        if name not in extras:
            raise InputError(f"there is no extra column '{name}' to keep; found: {', '.join(names)}", file=file)
    return [name for name in extras if name in keep]


class PortoReader:
    """Turns blocks of rows of the Porto format into trips; rows with ``[]`` become trips without fixes.

    The original file uses some trip ids twice; the second trip of an id gets ``/2`` appended, and so on.
    """

    def __init__(
        self, extras: Sequence[str], kinds: Mapping[str, Kind], *, file: Path, rejects: RejectedRows | None = None
    ) -> None:
        self.extras = extras
        self.kinds = kinds
        self.file = file
        self.rejects = rejects
        self._times = TimeReader()
        self._seen = SeenHashes()
        self._counts: dict[str, int] = {}  # of ids met more than once

    def read(self, block: Block) -> Trips:
        """Return the trips of one block."""
        faults = RowFaults(block.rows, self.file, self.rejects)
        ids, starts, polylines = (block.frame[name] for name in _KNOWN)
        faults.report((ids.is_null() | (ids == "")).fill_null(value=True).to_numpy(), ids, "there is no trip id")
        start, problems = self._times.read(starts)
        for problem in problems:
            faults.report(problem.rows, starts, problem.reason, problem.remedy)
        points = _decode(polylines, faults)
        lengths = points.list.len().to_numpy().astype(np.int64)
        pairs = points.explode(empty_as_null=False).list.to_array(2) if lengths.any() else None
        lonlat = np.empty((0, 2)) if pairs is None else pairs.to_numpy()
        self._check(lonlat, lengths, polylines, faults)
        good = ~faults.bad
        lonlat = lonlat[np.repeat(good, lengths)]
        start, lengths = start[good], lengths[good]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        kept = block.frame.filter(pl.Series(good))
        step = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths)
        return Trips(
            traj_id=to_array(self._unique(kept["TRIP_ID"])),
            offsets=offsets,
            time=np.repeat(start, lengths) + STEP_S * step,
            lon=np.ascontiguousarray(lonlat[:, 0]),
            lat=np.ascontiguousarray(lonlat[:, 1]),
            trip_extra={name: to_array(convert_text(kept[name], self.kinds[name])) for name in self.extras},
        )

    def _check(
        self, lonlat: NDArray[np.float64], lengths: NDArray[np.int64], polylines: pl.Series, faults: RowFaults
    ) -> None:
        """Report trips with a position off the globe."""
        rows = np.repeat(np.arange(len(lengths)), lengths)
        positions = RowFaults(faults.rows[rows], self.file, None if self.rejects is None else RejectedRows())
        columns = {"lon": pl.Series("POLYLINE", lonlat[:, 0]), "lat": pl.Series("POLYLINE", lonlat[:, 1])}
        check_positions(lonlat[:, 0], lonlat[:, 1], positions, columns)
        off = np.bincount(rows[positions.bad], minlength=len(lengths)) > 0
        faults.report(off, polylines, "has a position off the globe")

    def _unique(self, ids: pl.Series) -> pl.Series:
        """Return ids of which no two are the same in the whole file."""
        earlier = self._seen.add(ids.hash().to_numpy())
        again = earlier | ids.is_duplicated().to_numpy()
        if not again.any():
            return ids
        names = ids.to_list()
        for i in np.flatnonzero(again):
            count = self._counts.get(names[i], int(earlier[i])) + 1
            self._counts[names[i]] = count
            if count > 1:
                names[i] = f"{names[i]}/{count}"
        return pl.Series(ids.name, names)


def _decode(polylines: pl.Series, faults: RowFaults) -> pl.Series:
    """Return the points of each row as a list of [lon, lat]; rows with broken polylines are reported and empty."""
    dtype = pl.List(pl.List(pl.Float64))
    missing = (polylines.is_null() | (polylines == "")).fill_null(value=True).to_numpy()
    faults.report(missing, polylines, "there is no polyline", _POLYLINE_REMEDY)
    text = polylines.set(pl.Series(missing), "[]")
    try:
        points = text.str.json_decode(dtype)
    except pl.exceptions.ComputeError:
        broken = np.array([not _is_polyline(value) for value in text.to_list()])
        faults.report(broken, polylines, "is not a polyline", _POLYLINE_REMEDY)
        text = text.set(pl.Series(broken), "[]")
        points = text.str.json_decode(dtype)
    uneven = points.list.eval(((pl.element().list.len() != 2) | pl.element().list.contains(None)).fill_null(value=True))
    wrong = (uneven.list.any() | points.is_null()).fill_null(value=True).to_numpy()
    faults.report(wrong, polylines, "is not a polyline", _POLYLINE_REMEDY)
    return points.set(pl.Series(wrong), None).fill_null([]) if wrong.any() else points


def _is_polyline(text: str) -> bool:
    try:
        points = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(points, list) and all(
        isinstance(point, list)
        and len(point) == 2
        and all(type(value) in (int, float) and abs(value) <= 360 for value in point)
        for point in points
    )
