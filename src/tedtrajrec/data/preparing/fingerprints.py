"""Hashes of fixes and trips, to find fixes that occur in two trips and trips that occur twice."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.polylines import ranges
from tedtrajrec.splitmix import STEP, mixed
from tedtrajrec.trips.table import Trips

Hashes = NDArray[np.uint64]
Ints = NDArray[np.int64]


def hash_fixes(trips: Trips) -> Hashes:
    """Return a hash of time, lon and lat of each fix [F]."""
    bits = (np.ascontiguousarray(values, np.float64).view(np.uint64) for values in (trips.lon, trips.lat))
    return _hash_fixes(np.ascontiguousarray(trips.time, np.int64).view(np.uint64), *bits)


def hash_trips(fixes: Hashes, offsets: Ints) -> Hashes:
    """Return a hash of the fixes of each trip, in their order [T]."""
    return _hash_trips(fixes, offsets)


def is_repeated(trips: Hashes, split: NDArray[np.int8]) -> NDArray[np.bool_]:
    """Return which trips have the hash of another one that stays [T]: of the last split, and the first one of that.

    So of a training and a test trip that are the same the test trip stays.
    """
    order = np.lexsort((np.arange(len(trips)), -split))
    repeated = np.ones(len(trips), np.bool_)
    repeated[order[np.unique(trips[order], return_index=True)[1]]] = False
    return repeated


class SharedFixes:
    """Finds trips that share fixes with one of a given set of trips.

    Parameters
    ----------
    fixes, trip
        The hash and the trip of each fix of the given trips.
    """

    def __init__(self, fixes: Hashes, trip: Ints) -> None:
        order = np.argsort(fixes, kind="stable")
        self._fixes, self._trip = fixes[order], trip[order]
        self._trips = int(trip.max(initial=-1)) + 1

    def most(self, fixes: Hashes, offsets: Ints) -> Ints:
        """Return for each trip how many of its fixes it shares with the given trip that it shares most with [T]."""
        first = np.searchsorted(self._fixes, fixes, side="left")
        count = np.searchsorted(self._fixes, fixes, side="right") - first
        trip = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pair, times = np.unique(
            np.repeat(trip, count) * self._trips + self._trip[ranges(first, count)], return_counts=True
        )
        most = np.zeros(len(offsets) - 1, np.int64)
        np.maximum.at(most, pair // max(self._trips, 1), times)
        return most


@njit(cache=True, nogil=True)
def _hash_fixes(time: Hashes, lon: Hashes, lat: Hashes) -> Hashes:  # pragma: no cover  (compiled)
    out = np.empty(len(time), np.uint64)
    for i in range(len(time)):
        out[i] = mixed((mixed((mixed(time[i] + STEP) ^ lon[i]) + STEP) ^ lat[i]) + STEP)
    return out


@njit(cache=True, nogil=True)
def _hash_trips(fixes: Hashes, offsets: Ints) -> Hashes:  # pragma: no cover  (compiled)
    out = np.empty(len(offsets) - 1, np.uint64)
    for trip in range(len(out)):
        state = np.uint64(0)
        for i in range(offsets[trip], offsets[trip + 1]):
            state = mixed((state + STEP) ^ fixes[i])
        out[trip] = state
    return out
