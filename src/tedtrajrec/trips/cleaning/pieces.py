"""Trips while they are cut: which fixes are still there, in what order, and where pieces begin."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.geodesy import metres_per_degree
from tedtrajrec.trips.cleaning.motion import Track
from tedtrajrec.trips.cleaning.rejects import Reason
from tedtrajrec.trips.table import TEXT, Trips

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Pieces:
    """The surviving fixes of trips, divided into pieces; the trips themselves are not touched.

    A fix that begins a piece says why the trip was cut there; the first of a trip begins one without a cut. Fixes that
    are dropped either leave the piece whole, so that its rest closes up, or cut it, so that no step leads across.
    """

    def __init__(self, trips: Trips) -> None:
        self.trips = trips
        self.fix: Ints = np.arange(trips.n_fixes)  # [n] surviving fixes as numbers of the input
        self.trip: Ints = trips.trip_of_fix  # [n] their trips
        self.cut = np.zeros(trips.n_fixes, np.uint8)  # [n] why a piece begins here, 0 if it does not
        self.reason = np.zeros(trips.n_fixes, np.uint8)  # [F] why a fix of the input was dropped, 0 if it was not
        self._scale: NDArray[np.float64] | None = None  # [2, F] metres that a degree spans at each fix of the input

    def reorder(self, order: Ints) -> None:
        """Put fixes in another order; trips stay together. Only before the first cut."""
        self.fix = self.fix[order]
        self.trip = self.trip[order]

    @property
    def first_of_trip(self) -> Mask:
        """Which fixes are the first of their trip [n]."""
        first = np.ones(len(self.fix), np.bool_)
        first[1:] = self.trip[1:] != self.trip[:-1]
        return first

    @property
    def starts(self) -> Mask:
        """Which fixes begin a piece [n]."""
        return self.first_of_trip | (self.cut > 0)

    @property
    def offsets(self) -> Ints:
        """Where pieces begin, and the number of fixes at the end [P+1]."""
        return np.append(np.flatnonzero(self.starts), len(self.fix)).astype(np.int64)

    def track(self) -> Track:
        """Return what the kernels of :mod:`tedtrajrec.trips.cleaning.motion` look at, with one run for each piece."""
        trips, fix = self.trips, self.fix
        if self._scale is None:  # the costly part; fixes only become fewer, so once is enough
            self._scale = np.full((2, trips.n_fixes), np.nan)
            self._scale[:, fix] = metres_per_degree(trips.lat[fix])
        east, north = self._scale[:, fix]
        return Track(self.offsets, trips.time[fix], trips.lon[fix], trips.lat[fix], east, north)

    def cut_at(self, where: Mask, reason: Reason) -> None:
        """Begin a piece at each fix of the mask; where one begins already, its reason stays."""
        self.cut[where & (self.cut == 0)] = reason

    def drop(self, keep: Mask, reason: Reason | NDArray[np.uint8]) -> None:
        """Drop all fixes but those of the mask, for one reason or one each [n]; the rest of a piece closes up."""
        if keep.all():
            return
        gone = ~keep
        self.reason[self.fix[gone]] = reason[gone] if isinstance(reason, np.ndarray) else reason
        starts = self.starts
        piece = (np.cumsum(starts) - 1)[keep]
        begins = np.ones(len(piece), np.bool_)
        begins[1:] = piece[1:] != piece[:-1]
        self.cut = np.where(begins, self.cut[starts][piece], 0).astype(np.uint8)
        self.fix = self.fix[keep]
        self.trip = self.trip[keep]

    def drop_and_cut(self, keep: Mask, reason: Reason) -> None:
        """Drop all fixes but those of the mask, and cut pieces where fixes are missing."""
        after_hole = keep.copy()
        after_hole[:1] = False
        after_hole[1:] &= ~keep[:-1]
        self.cut_at(after_hole, reason)
        self.drop(keep, reason)

    def to_trips(self) -> Trips:
        """Return the pieces as trips; columns per fix and per trip travel along."""
        trips, offsets = self.trips, self.offsets
        parent = self.trip[offsets[:-1]]
        return Trips(
            traj_id=unique_ids(trips.traj_id[parent]),
            offsets=offsets,
            time=trips.time[self.fix],
            lon=trips.lon[self.fix],
            lat=trips.lat[self.fix],
            segment=None if trips.segment is None else trips.segment[self.fix],
            ratio=None if trips.ratio is None else trips.ratio[self.fix],
            extra={name: column[self.fix] for name, column in trips.extra.items()},
            trip_extra={name: column[parent] for name, column in trips.trip_extra.items()},
        )


def unique_ids(ids: NDArray[Any]) -> NDArray[Any]:
    """Return ids in which those that occur more than once are numbered: ``a, b, b`` gives ``a, b#1, b#2``.

    Should a name be taken (``b#1`` was there already), the numbers of that id follow one more ``#``.
    """
    _, group, count = np.unique(ids, return_inverse=True, return_counts=True)
    group = group.ravel()
    shared = np.flatnonzero(count[group] > 1)
    if len(shared) == 0:
        return ids
    single = ids[count[group] == 1]
    order = shared[np.argsort(group[shared], kind="stable")]
    first = np.searchsorted(group[order], group[order])
    number = (np.arange(len(order)) - first + 1).astype(TEXT)
    stem = ids[order] + "#"
    while True:
        names = stem + number
        # A name may be used once; single ids come first, then those of the first group, and so on.
        _, position = np.unique(np.concatenate([single, names]), return_index=True)
        taken = np.ones(len(names), np.bool_)
        taken[position[position >= len(single)] - len(single)] = False
        if not taken.any():
            break
        stem = np.where(np.isin(group[order], group[order[taken]]), stem + "#", stem)
    result = ids.copy()
    result[order] = names
    return result
