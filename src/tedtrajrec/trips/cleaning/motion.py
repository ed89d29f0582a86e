"""Compiled looks at how a vehicle moves: fixes it cannot have been at, and places where it stood."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Track(NamedTuple):
    """Runs of fixes in order of time; run ``i`` is ``offsets[i]:offsets[i + 1]``."""

    offsets: Ints
    time: Ints
    lon: Floats
    lat: Floats
    east: Floats  # metres that a degree spans at each fix, so that no trigonometry is left for the loops
    north: Floats


@njit(cache=True, nogil=True, inline="always")
def _distance_m(track: Track, i: int, j: int) -> float:  # pragma: no cover  (compiled)
    dx = (track.lon[j] - track.lon[i]) * 0.5 * (track.east[i] + track.east[j])
    dy = (track.lat[j] - track.lat[i]) * 0.5 * (track.north[i] + track.north[j])
    return float(np.sqrt(dx * dx + dy * dy))


@njit(cache=True, nogil=True, inline="always")
def _too_far(track: Track, i: int, j: int, max_speed_mps: float) -> bool:  # pragma: no cover  (compiled)
    return bool(_distance_m(track, i, j) > max_speed_mps * (track.time[j] - track.time[i]))


@njit(cache=True, nogil=True)
def find_late(offsets: Ints, time: Ints) -> Mask:  # pragma: no cover  (compiled)
    """Return which fixes are older than one before them in the run."""
    late = np.zeros(len(time), np.bool_)
    for run in range(len(offsets) - 1):
        if offsets[run] < offsets[run + 1]:
            newest = time[offsets[run]]
            for j in range(offsets[run], offsets[run + 1]):
                late[j] = time[j] < newest
                newest = max(newest, time[j])
    return late


@njit(cache=True, nogil=True)
def steps_m(track: Track) -> Floats:  # pragma: no cover  (compiled)
    """Return the metres from the fix before to each fix; 0 for the first of a run."""
    steps = np.zeros(len(track.time))
    for run in range(len(track.offsets) - 1):
        for j in range(track.offsets[run] + 1, track.offsets[run + 1]):
            steps[j] = _distance_m(track, j - 1, j)
    return steps


@njit(cache=True, nogil=True)
def find_jumps(
    track: Track, max_speed_mps: float, max_outliers: int
) -> tuple[Mask, Mask]:  # pragma: no cover  (compiled)
    """Return which fixes to keep, and which of them begin a new trip, so that none is reached too fast.

    In every run the cheapest chain of fixes is kept: a dropped fix costs 1, and a cut, that is two neighbours of the
    chain that would need more than ``max_speed_mps``, costs ``max_outliers + 1``. At most ``max_outliers`` fixes in a
    row are dropped. So up to that many strays are dropped, wherever they are, and a longer stretch elsewhere is a real
    change of place, where the trip is cut. Of equally cheap chains the shortest in metres is taken: it leaves out the
    fix that is most astray. Dynamic programming over the last fix of the chain finds it.
    """
    keep = np.ones(len(track.time), np.bool_)
    cut = np.zeros(len(track.time), np.bool_)
    cost = np.empty(len(track.time), np.int64)  # of the best chain that ends at the fix
    metres = np.empty(len(track.time), np.float64)
    before = np.empty(len(track.time), np.int64)  # fix before it in that chain, -1 for none
    for run in range(len(track.offsets) - 1):
        start, end = track.offsets[run], track.offsets[run + 1]
        plausible = True
        for j in range(start + 1, end):
            if _too_far(track, j - 1, j, max_speed_mps):
                plausible = False
                break
        if plausible:  # nearly always; the chain of all fixes costs nothing
            continue

        for j in range(start, end):
            cost[j] = j - start if j - start <= max_outliers else np.iinfo(np.int64).max
            metres[j] = 0.0
            before[j] = -1
            for i in range(j - 1, max(start, j - 1 - max_outliers) - 1, -1):
                new_cost = cost[i] + j - 1 - i
                new_metres = metres[i]
                if _too_far(track, i, j, max_speed_mps):
                    new_cost += max_outliers + 1
                else:
                    new_metres += _distance_m(track, i, j)
                if new_cost < cost[j] or (new_cost == cost[j] and new_metres < metres[j]):
                    cost[j] = new_cost
                    metres[j] = new_metres
                    before[j] = i

        last = end - 1
        for j in range(end - 2, max(start, end - 1 - max_outliers) - 1, -1):
            total, best = cost[j] + end - 1 - j, cost[last] + end - 1 - last
            if total < best or (total == best and metres[j] < metres[last]):
                last = j
        keep[start:end] = False
        while last >= 0:
            keep[last] = True
            i = before[last]
            if i >= 0 and _too_far(track, i, last, max_speed_mps):
                cut[last] = True
            last = i
    return keep, cut


@njit(cache=True, nogil=True)
def find_stays(track: Track, radius_m: float, min_s: float) -> tuple[Mask, Mask]:  # pragma: no cover  (compiled)
    """Return which fixes to keep, and which of them begin a new trip, so that no trip contains a stay.

    A stay begins at the first fix that all fixes of the next ``min_s`` seconds or more are within ``radius_m`` of, and
    ends at the last fix before one that is not. Its first fix ends the trip before it and its last one begins the trip
    after it, where there is such a trip; all others are dropped.
    """
    keep = np.ones(len(track.time), np.bool_)
    cut = np.zeros(len(track.time), np.bool_)
    for run in range(len(track.offsets) - 1):
        start, end = track.offsets[run], track.offsets[run + 1]
        stay_end = -1  # last fix of the stay before
        i = start
        while i < end:
            j = i
            while j + 1 < end and _distance_m(track, i, j + 1) <= radius_m:
                j += 1
            if j == i or track.time[j] - track.time[i] < min_s:
                i += 1
                continue
            keep[i + 1 : j] = False
            if i in (start, stay_end):
                keep[i] = False
            if j == end - 1:
                keep[j] = False
            else:
                cut[j] = True
            stay_end = j
            i = j
            if j == end - 1:
                break
    return keep, cut
