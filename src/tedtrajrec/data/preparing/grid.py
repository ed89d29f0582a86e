"""The step grid of each trip, and raw fixes put on it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TRIP = np.int64(1) << 33  # more seconds than any trip lasts


class StepGrid(NamedTuple):
    """The K steps of T trips; trip i has the steps ``offsets[i]:offsets[i + 1]``."""

    offsets: Ints  # [T+1]
    time: Ints  # [K] epoch seconds

    @property
    def trip(self) -> Ints:
        """Number of the trip of each step [K]."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class Bracket(NamedTuple):
    """For each step the last fix that is not after it and the first that is not before it; -1 where there is none."""

    before: Ints  # [K]
    after: Ints  # [K]


def step_grid(trips: Trips, step_s: int) -> StepGrid:
    """Return steps from the first to the last fix of each trip, in the phase in which most of its fixes lie.

    Of two phases with equally many fixes the one that occurs first counts, so fixes that are regular, or that are never
    ``step_s`` apart, give a grid that starts at the first fix.

    Parameters
    ----------
    trips
        Trips in order of time, each with at least one fix.
    step_s
        Seconds between steps.
    """
    first, last = trips.time[trips.offsets[:-1]], trips.time[trips.offsets[1:] - 1]
    trip = trips.trip_of_fix
    phase = (trips.time - first[trip]) % step_s
    found, at, count = np.unique(trip * step_s + phase, return_index=True, return_counts=True)
    owner = found // step_s
    order = np.lexsort((at, -count, owner))
    best = found[order[np.searchsorted(owner[order], np.arange(len(trips)))]] % step_s
    start = first + best
    steps = (last - start) // step_s + 1
    offsets = np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    number = np.arange(offsets[-1]) - np.repeat(offsets[:-1], steps)
    return StepGrid(offsets, np.repeat(start, steps) + number * step_s)


def bracket(trips: Trips, grid: StepGrid, usable: NDArray[np.bool_] | None = None) -> Bracket:
    """Return the fixes around each step, of all or of the usable ones [F]."""
    fix = np.arange(trips.n_fixes) if usable is None else np.flatnonzero(usable)
    # One sorted key for (trip, time) makes a single search of all trips.
    trip, at_trip = trips.trip_of_fix[fix], grid.trip
    origin = trips.time[trips.offsets[:-1]]
    key = trip * _TRIP + (trips.time[fix] - origin[trip])
    at_key = at_trip * _TRIP + (grid.time - origin[at_trip])
    before = np.searchsorted(key, at_key, side="right") - 1
    after = np.searchsorted(key, at_key, side="left")
    return Bracket(_of_trip(fix, trip, before, at_trip), _of_trip(fix, trip, after, at_trip))


def fixes_on_grid(trips: Trips, grid: StepGrid, max_gap_s: float) -> tuple[Floats, Floats]:
    """Return lon and lat of the fix at each step.

    It is the fix itself where one lies on the step; else the point on the line between the two around it if they are at
    most ``max_gap_s`` apart; else NaN.
    """
    before, after = bracket(trips, grid)
    usable = (before >= 0) & (after >= 0)
    i, j = before[usable], after[usable]
    gap = (trips.time[j] - trips.time[i]).astype(np.float64)
    gap[trips.time[i] == grid.time[usable]] = 0.0  # on the step, where the two searches may name two fixes of one time
    share = np.divide(grid.time[usable] - trips.time[i], gap, out=np.zeros(len(gap)), where=gap > 0)
    near = gap <= max_gap_s
    lon, lat = np.full(len(grid.time), np.nan), np.full(len(grid.time), np.nan)
    place = np.flatnonzero(usable)[near]
    i, j, share = i[near], j[near], share[near]
    lon[place] = trips.lon[i] + share * (trips.lon[j] - trips.lon[i])
    lat[place] = trips.lat[i] + share * (trips.lat[j] - trips.lat[i])
    return lon, lat


def _of_trip(fix: Ints, trip: Ints, found: Ints, wanted: Ints) -> Ints:
    """Return the fixes with the numbers ``found``, -1 where that is none or one of another trip."""
    if len(fix) == 0:
        return np.full(len(found), -1)
    inside = np.clip(found, 0, len(fix) - 1)
    return np.where((found == inside) & (trip[inside] == wanted), fix[inside], -1)
