"""Trips as ragged arrays: never one Python object per fix."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.polylines import ranges

TEXT = np.dtypes.StringDType()
"""Text columns; variable width, so one long value does not widen all others."""

NULLABLE_TEXT = np.dtypes.StringDType(na_object=None)
"""Text columns with missing values."""


@dataclass(frozen=True, eq=False)
class Trips:
    """T trips with F fixes in all; trip ``i`` has the fixes ``offsets[i]:offsets[i + 1]``.

    Columns that tedtrajrec does not use travel along: ``extra`` holds one value per fix, ``trip_extra`` one per trip.
    Missing values are masked (:class:`numpy.ma.MaskedArray`) in numbers and None in text.
    """

    traj_id: NDArray[Any]  # [T] text
    offsets: NDArray[np.int64]  # [T+1]
    time: NDArray[np.int64]  # [F] epoch seconds, UTC
    lon: NDArray[np.float64]  # [F] degrees, EPSG:4326
    lat: NDArray[np.float64]  # [F]
    segment: NDArray[np.int32] | None = None  # [F] road segment, -1 where unmatched
    ratio: NDArray[np.float64] | None = None  # [F] 0..1 along it, NaN where unmatched
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # per fix
    trip_extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # per trip

    def __post_init__(self) -> None:
        fixes, trips = len(self.time), len(self.traj_id)
        divided = len(self.offsets) == trips + 1 and self.offsets[0] == 0 and self.offsets[-1] == fixes
        if not divided or (np.diff(self.offsets) < 0).any():
            raise InputError(f"the offsets do not divide {fixes} fixes among {trips} trips")
        per_fix = {"lon": self.lon, "lat": self.lat, "segment": self.segment, "ratio": self.ratio, **self.extra}
        for name, column in per_fix.items():
            if column is not None and len(column) != fixes:
                raise InputError(f"it has {len(column)} values for {fixes} fixes", field=name)
        for name, column in self.trip_extra.items():
            if len(column) != trips:
                raise InputError(f"it has {len(column)} values for {trips} trips", field=name)

    @classmethod
    def from_columns(
        cls,
        traj_id: ArrayLike,
        time: ArrayLike,
        lon: ArrayLike,
        lat: ArrayLike,
        *,
        segment: ArrayLike | None = None,
        ratio: ArrayLike | None = None,
        extra: Mapping[str, NDArray[Any]] | None = None,
    ) -> Trips:
        """Make trips from one row per fix; rows of one trip need not be together, and keep their order.

        Parameters
        ----------
        traj_id
            The trip of each row, as text or integers. Trips come in the order of their first rows.
        """
        ids = np.asarray(traj_id)
        order, offsets, first = group_rows(ids)
        return cls(
            traj_id=as_text(ids[first]),
            offsets=offsets,
            time=np.asarray(time, np.int64)[order],
            lon=np.asarray(lon, np.float64)[order],
            lat=np.asarray(lat, np.float64)[order],
            segment=None if segment is None else np.asarray(segment, np.int32)[order],
            ratio=None if ratio is None else np.asarray(ratio, np.float64)[order],
            extra={name: column[order] for name, column in (extra or {}).items()},
        )

    def __len__(self) -> int:
        return len(self.traj_id)

    def __repr__(self) -> str:
        return f"Trips({len(self)} trips, {self.n_fixes} fixes)"

    @property
    def n_fixes(self) -> int:
        """Number of fixes F of all trips together."""
        return len(self.time)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Number of fixes of each trip [T]."""
        return np.diff(self.offsets)

    @property
    def trip_of_fix(self) -> NDArray[np.int64]:
        """Number of the trip of each fix [F]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def select(self, trips: ArrayLike) -> Trips:
        """Return the given trips (numbers, in that order, or a mask)."""
        chosen = np.asarray(trips)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        fixes = ranges(self.offsets[:-1][chosen], self.lengths[chosen])
        offsets = np.concatenate([[0], np.cumsum(self.lengths[chosen])]).astype(np.int64)
        return self._take(fixes, offsets, chosen)

    def keep_fixes(self, keep: NDArray[np.bool_]) -> Trips:
        """Return all trips with only the fixes of the mask ``keep`` [F]; a trip may end up without any."""
        before = np.concatenate([[0], np.cumsum(keep)])
        return self._take(np.flatnonzero(keep), before[self.offsets].astype(np.int64), np.arange(len(self)))

    def _take(self, fixes: NDArray[np.int64], offsets: NDArray[np.int64], trips: NDArray[np.int64]) -> Trips:
        return Trips(
            traj_id=self.traj_id[trips],
            offsets=offsets,
            time=self.time[fixes],
            lon=self.lon[fixes],
            lat=self.lat[fixes],
            segment=None if self.segment is None else self.segment[fixes],
            ratio=None if self.ratio is None else self.ratio[fixes],
            extra={name: column[fixes] for name, column in self.extra.items()},
            trip_extra={name: column[trips] for name, column in self.trip_extra.items()},
        )

    def replace(self, **columns: Any) -> Trips:  # noqa: ANN401  (any field)
        """Return a copy with the given fields replaced."""
        return dataclasses.replace(self, **columns)


def concat_trips(parts: Sequence[Trips]) -> Trips:
    """Return the trips of all parts one after another; columns must agree."""
    if not parts:
        raise InputError("there are no trips to join")
    head = parts[0]
    for part in parts[1:]:
        same = (
            (part.segment is None) == (head.segment is None)
            and (part.ratio is None) == (head.ratio is None)
            and part.extra.keys() == head.extra.keys()
            and part.trip_extra.keys() == head.trip_extra.keys()
        )
        if not same:
            raise InputError("trips with different columns cannot be joined")
    starts = np.cumsum([0] + [part.n_fixes for part in parts])
    return Trips(
        traj_id=np.concatenate([p.traj_id for p in parts]),
        offsets=np.concatenate([[0], *(p.offsets[1:] + start for p, start in zip(parts, starts, strict=False))]).astype(
            np.int64
        ),
        time=np.concatenate([p.time for p in parts]),
        lon=np.concatenate([p.lon for p in parts]),
        lat=np.concatenate([p.lat for p in parts]),
        segment=None if head.segment is None else np.concatenate([p.segment for p in parts if p.segment is not None]),
        ratio=None if head.ratio is None else np.concatenate([p.ratio for p in parts if p.ratio is not None]),
        extra={name: join_columns([p.extra[name] for p in parts]) for name in head.extra},
        trip_extra={name: join_columns([p.trip_extra[name] for p in parts]) for name in head.trip_extra},
    )


def join_columns(columns: list[NDArray[Any]]) -> NDArray[Any]:
    """Return columns one after another, with their missing values."""
    if any(isinstance(column, np.ma.MaskedArray) for column in columns):
        values = np.concatenate([np.ma.getdata(column) for column in columns])
        return np.ma.MaskedArray(values, np.concatenate([np.ma.getmaskarray(column) for column in columns]))
    return np.concatenate(columns)


def group_rows(ids: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the order that brings rows of one id together, the offsets of the groups and the first row of each.

    Groups come in the order of their first rows, rows within a group in their own order.
    """
    n = len(ids)
    if n == 0:
        return np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.int64)
    starts = np.concatenate([[0], np.flatnonzero(ids[1:] != ids[:-1]) + 1])
    run_ids = ids[starts]
    _, first_run, group_of_run = np.unique(run_ids, return_index=True, return_inverse=True)
    if len(first_run) == len(starts):  # the usual case: each trip is one run of rows
        return np.arange(n), np.concatenate([starts, [n]]).astype(np.int64), starts
    rank = np.empty(len(first_run), np.int64)
    rank[np.argsort(first_run)] = np.arange(len(first_run))  # by first appearance
    group = rank[group_of_run.ravel()]
    group_of_row = np.repeat(group, np.diff(np.concatenate([starts, [n]])))
    order = np.argsort(group_of_row, kind="stable")
    offsets = np.searchsorted(group_of_row[order], np.arange(len(first_run) + 1))
    return order, offsets.astype(np.int64), order[offsets[:-1]]


def as_text(values: ArrayLike) -> NDArray[Any]:
    """Return values as a text column."""
    if isinstance(values, np.ndarray):
        return values.astype(TEXT)
    return np.array(values, TEXT)  # not through an array of fixed width, which would lose NULs at the end
