"""Recovered trips: a position for every step, and what could not be used with the reason.

Struct of arrays, like :class:`~tedtrajrec.trips.table.Trips`, to and from which they go: readers, writers and frames
of trips serve recovered ones as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.polylines import ranges
from tedtrajrec.trips.table import TEXT, Trips, join_columns

Ints = NDArray[np.int64]

NO_TIME = int(np.iinfo(np.int64).min)
"""Time of a reject that stands for a whole trip."""

OWN_COLUMNS = ("osm_way_id", "observed", "probability", "break", "alternative", "alternative_share")
"""Columns of files of recovered trips beside those of all trips; the last two only with alternatives."""


@dataclass(frozen=True, eq=False)
class Rejects:
    """R fixes and trips that were not recovered, each with its reason."""

    traj_id: NDArray[Any] = field(default_factory=lambda: np.empty(0, TEXT))  # [R] text
    time: Ints = field(default_factory=lambda: np.empty(0, np.int64))  # [R] epoch seconds; NO_TIME: the whole trip
    reason: NDArray[Any] = field(default_factory=lambda: np.empty(0, TEXT))  # [R] text

    def __len__(self) -> int:
        return len(self.time)

    def __repr__(self) -> str:
        return f"Rejects({len(self)})"

    @classmethod
    def concat(cls, parts: Sequence[Rejects]) -> Rejects:
        """Return the rejects of all parts one after another."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in (cls(), *parts)]) for f in fields(cls)))


@dataclass(frozen=True, eq=False)
class RecoveredTrips:
    """T recovered trips with N rows in all; trip ``i`` has the rows ``offsets[i]:offsets[i + 1]``.

    With alternatives, several trips have the same ``traj_id``: the trip itself (``rank`` 0) and behind it the next best
    ones (1, 2, ...).
    """

    traj_id: NDArray[Any]  # [T] text
    offsets: Ints  # [T+1]
    time: Ints  # [N] epoch seconds, UTC
    lon: NDArray[np.float64]  # [N] degrees, EPSG:4326, on the road
    lat: NDArray[np.float64]  # [N]
    segment: NDArray[np.int32]  # [N]
    ratio: NDArray[np.float64]  # [N] 0..1
    osm_way_id: Ints  # [N] 0 where unknown
    observed: NDArray[np.bool_]  # [N] whether a fix belongs to the row: the row is the nearest one in time
    probability: NDArray[np.float32]  # [N] of the segment; NaN where the method gives none
    broken: NDArray[np.bool_]  # [N] no drivable way leads here from the row before in time; "break" in files
    trip_extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # [T] columns of the input, kept by trip
    rank: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))  # [T]
    share: NDArray[np.float32] = field(
        default_factory=lambda: np.zeros(0, np.float32)
    )  # [T] of the draws that drive its route; NaN: no alternatives
    rejects: Rejects = field(default_factory=Rejects)

    def __post_init__(self) -> None:
        trips, rows = len(self.traj_id), len(self.time)
        for name, without in (("rank", np.zeros(trips, np.int16)), ("share", np.full(trips, np.nan, np.float32))):
            if not len(getattr(self, name)):
                object.__setattr__(self, name, without)
        if len(self.offsets) != trips + 1 or self.offsets[0] != 0 or self.offsets[-1] != rows:
            raise InputError(f"the offsets do not divide {rows} rows among {trips} trips")
        for names, n in ((_PER_ROW, rows), (_PER_TRIP, trips)):
            for name in names:
                if len(getattr(self, name)) != n:
                    raise InputError(f"it has {len(getattr(self, name))} values instead of {n}", field=name)
        for name, column in self.trip_extra.items():
            if len(column) != trips:
                raise InputError(f"it has {len(column)} values for {trips} trips", field=name)

    def __len__(self) -> int:
        return len(self.traj_id)

    def __repr__(self) -> str:
        return f"RecoveredTrips({len(self)} trips, {self.n_rows} rows, {len(self.rejects)} rejects)"

    @property
    def n_rows(self) -> int:
        """Number of rows N of all trips together."""
        return len(self.time)

    @property
    def lengths(self) -> Ints:
        """Number of rows of each trip [T]."""
        return np.diff(self.offsets)

    @property
    def trip_of_row(self) -> Ints:
        """Number of the trip of each row [N]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def has_alternatives(self) -> bool:
        """Whether alternatives were asked for."""
        return bool(np.isfinite(self.share).any())

    def select(self, trips: ArrayLike) -> RecoveredTrips:
        """Return the given trips (numbers, in that order, or a mask) with all rejects."""
        chosen = np.asarray(trips)
        chosen = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        rows = ranges(self.offsets[:-1][chosen], self.lengths[chosen])
        return RecoveredTrips(
            offsets=np.concatenate([[0], np.cumsum(self.lengths[chosen])]).astype(np.int64),
            trip_extra={name: column[chosen] for name, column in self.trip_extra.items()},
            rejects=self.rejects,
            **{name: getattr(self, name)[rows] for name in _PER_ROW},
            **{name: getattr(self, name)[chosen] for name in _PER_TRIP},
        )

    def keep_rows(self, keep: NDArray[np.bool_]) -> RecoveredTrips:
        """Return all trips with only the rows of the mask ``keep`` [N]; a trip may end up without any."""
        before = np.concatenate([[0], np.cumsum(keep)]).astype(np.int64)
        return RecoveredTrips(
            offsets=before[self.offsets],
            trip_extra=self.trip_extra,
            rejects=self.rejects,
            **{name: getattr(self, name)[keep] for name in _PER_ROW},
            **{name: getattr(self, name) for name in _PER_TRIP},
        )

    @classmethod
    def concat(cls, parts: Sequence[RecoveredTrips]) -> RecoveredTrips:
        """Return the trips and rejects of all parts one after another; kept columns must agree."""
        if not parts:
            raise InputError("there are no trips to join")
        head = parts[0]
        if any(part.trip_extra.keys() != head.trip_extra.keys() for part in parts):
            raise InputError("trips with different columns cannot be joined")
        return cls(
            offsets=np.concatenate([[0], np.cumsum(np.concatenate([part.lengths for part in parts]))]).astype(np.int64),
            trip_extra={name: join_columns([part.trip_extra[name] for part in parts]) for name in head.trip_extra},
            rejects=Rejects.concat([part.rejects for part in parts]),
            **{name: np.concatenate([getattr(part, name) for part in parts]) for name in (*_PER_ROW, *_PER_TRIP)},
        )

    def to_trips(self) -> Trips:
        """Return trips with a fix for each row, whose columns are those of files of recovered trips, in their order.

        The alternatives of a trip have its id, told apart by the columns ``alternative`` and ``alternative_share``.
        """
        unknown = np.isnan(self.probability)
        extra: dict[str, NDArray[Any]] = {
            "osm_way_id": self.osm_way_id,
            "observed": self.observed,
            "probability": np.ma.MaskedArray(np.where(unknown, np.float32(0), self.probability), unknown),
            "break": self.broken,
        }
        if self.has_alternatives:
            share = self.share[self.trip_of_row]
            extra["alternative"] = self.rank[self.trip_of_row]
            extra["alternative_share"] = np.ma.MaskedArray(np.nan_to_num(share), np.isnan(share))
        return Trips(
            traj_id=self.traj_id,
            offsets=self.offsets,
            time=self.time,
            lon=self.lon,
            lat=self.lat,
            segment=self.segment,
            ratio=self.ratio,
            extra=extra,
            trip_extra=self.trip_extra,
        )

    @classmethod
    def from_trips(cls, trips: Trips) -> RecoveredTrips:
        """Return what :meth:`to_trips` was made of, also after a way through a file; there are no rejects.

        Of kept columns the value of a trip's first row counts.
        """
        if trips.segment is None or trips.ratio is None or not {"observed", "break"} <= trips.extra.keys():
            raise InputError(
                "these are not recovered trips: segment, ratio, observed or break is missing",
                remedy="Give a file that 'tedtrajrec recover' wrote.",
            )
        n = trips.n_fixes
        rank = _filled(trips.extra.get("alternative"), n, 0, np.int16)
        starts = np.diff(trips.trip_of_fix, prepend=-1) != 0
        starts[1:] |= rank[1:] != rank[:-1]
        first = np.flatnonzero(starts)
        source = trips.trip_of_fix[first]
        return cls(
            traj_id=trips.traj_id[source],
            offsets=np.append(first, n).astype(np.int64),
            time=trips.time,
            lon=trips.lon,
            lat=trips.lat,
            segment=trips.segment.astype(np.int32),
            ratio=trips.ratio,
            osm_way_id=_filled(trips.extra.get("osm_way_id"), n, 0, np.int64),
            observed=_filled(trips.extra["observed"], n, False, np.bool_),
            probability=_filled(trips.extra.get("probability"), n, np.nan, np.float32),
            broken=_filled(trips.extra["break"], n, False, np.bool_),
            trip_extra=_by_trip(trips, first, source),
            rank=rank[first],
            share=_filled(trips.extra.get("alternative_share"), n, np.nan, np.float32)[first],
        )


_PER_ROW = ("time", "lon", "lat", "segment", "ratio", "osm_way_id", "observed", "probability", "broken")
_PER_TRIP = ("traj_id", "rank", "share")


def no_trips(rejects: Rejects | None = None) -> RecoveredTrips:
    """Return that nothing was recovered."""
    kinds: tuple[type[np.generic], ...] = (
        *(np.int64, np.float64, np.float64, np.int32, np.float64, np.int64, np.bool_, np.float32, np.bool_),
    )
    columns: dict[str, Any] = {name: np.empty(0, kind) for name, kind in zip(_PER_ROW, kinds, strict=True)}
    return RecoveredTrips(
        traj_id=np.empty(0, TEXT), offsets=np.zeros(1, np.int64), rejects=rejects or Rejects(), **columns
    )


def kept_by_trip(trips: Trips, number: Ints) -> dict[str, NDArray[Any]]:
    """Return the extra columns of some trips by trip: of those with a value for each fix, that of the first.

    Columns that recovered trips have themselves make place for these: they get ``_in_file`` behind their names.

    Parameters
    ----------
    number
        Of the trips; each must have a fix.
    """
    columns = {name: values[trips.offsets[number]] for name, values in trips.extra.items()}
    columns |= {name: values[number] for name, values in trips.trip_extra.items()}
    return {f"{name}_in_file" if name in OWN_COLUMNS else name: values for name, values in columns.items()}


def _by_trip(trips: Trips, first: Ints, source: Ints) -> dict[str, NDArray[Any]]:
    """Return the kept columns; files without types have them one value a fix."""
    per_fix = {name: values[first] for name, values in trips.extra.items() if name not in OWN_COLUMNS}
    return {**per_fix, **{name: values[source] for name, values in trips.trip_extra.items()}}


def _filled(values: NDArray[Any] | None, n: int, fill: float, kind: type[np.generic]) -> NDArray[Any]:
    """Return a column of numbers, with a value where it is missing."""
    if values is None:
        return np.full(n, fill, kind)
    if values.dtype.kind in "TUO":  # a column that is empty throughout comes as text
        known = np.array([value not in (None, "") for value in values.tolist()], bool)
        if known.any():
            raise InputError(f"it holds text such as '{values[known.argmax()]}' instead of numbers")
        return np.full(n, fill, kind)
    return np.ma.filled(np.ma.asarray(values).astype(kind), fill)
