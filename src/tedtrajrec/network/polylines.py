"""Many polylines as one flat array with offsets: lengths, positions along them, points at positions.

Polyline ``i`` has the vertices ``offsets[i]:offsets[i + 1]``. No function here loops over polylines in Python.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.geodesy import short_distance_m

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def measure(offsets: Ints, lon: Floats, lat: Floats) -> Floats:
    """Return for every vertex its distance in metres from the start of its polyline, along it."""
    along = np.zeros(len(lon))
    if len(lon) > 1:
        piece = short_distance_m(lon[:-1], lat[:-1], lon[1:], lat[1:])
        starts = offsets[1:-1]
        piece[starts[(starts > 0) & (starts < len(lon))] - 1] = 0.0  # the jump from one polyline to the next
        along[1:] = np.cumsum(piece)
        along -= np.repeat(along[offsets[:-1]], np.diff(offsets))
    return along


def lengths(offsets: Ints, along: Floats) -> Floats:
    """Return the length of every polyline from the measures of its vertices."""
    return along[offsets[1:] - 1]


def ranges(starts: Ints, counts: Ints) -> Ints:
    """Return ``start, start + 1, ...`` of every range, one after another."""
    total = int(counts.sum())
    if total == 0:
        return np.zeros(0, np.int64)
    first = np.cumsum(counts) - counts
    return np.repeat(starts - first, counts) + np.arange(total)


@njit(cache=True, nogil=True)
def locate(
    offsets: NDArray[np.int64],
    along: NDArray[np.float64],
    which: NDArray[np.int64],
    ratio: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:  # pragma: no cover  (compiled)
    """Return the vertex before each position (polyline, ratio) and the share of its piece that lies behind."""
    vertex = np.empty(len(which), np.int64)
    share = np.empty(len(which), np.float64)
    for i in range(len(which)):
        low = offsets[which[i]]
        high = offsets[which[i] + 1] - 1
        target = min(max(ratio[i], 0.0), 1.0) * along[high]
        last = high - 1
        while low < last:  # the last piece that starts at or before the target
            middle = (low + last + 1) // 2
            if along[middle] <= target:
                low = middle
            else:
                last = middle - 1
        piece = along[low + 1] - along[low]
        vertex[i] = low
        share[i] = min((target - along[low]) / piece, 1.0) if piece > 0 else 0.0
    return vertex, share
