"""The crowd: in which directions past trips moved near a place, without asking for roads.

Points of past trips are counted in small cells by their direction, which is that from the trip's point before. Only
cells that were visited are kept, row by row, so the size goes with the trips and not with the area.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_MOVE_M = 1.0  # what moved less tells no direction


class Crowd(NamedTuple):
    """K cells that past trips visited, and the directions of their points there in N sectors of the compass."""

    west: float  # metres on the plane of the network, where the first column begins
    south: float  # and the first row
    cell_m: float
    row_offset: Ints  # [R+1] row r has the cells row_offset[r]:row_offset[r + 1]
    column: NDArray[np.int32]  # [K] rising in a row
    points: NDArray[np.float32]  # [K, N] how many moved into each sector, which begin with north and go clockwise
    east: NDArray[np.float32]  # [K, N] sum of their directions, as unit vectors
    north: NDArray[np.float32]  # [K, N]


def learn_crowd(trips: Trips, plane: LocalPlane, *, cell_m: float = 10.0, sectors: int = 6) -> Crowd:
    """Return the crowd of past trips.

    Parameters
    ----------
    trips
        Past trips; points without coordinates are passed over.
    plane
        The plane to measure on.
    cell_m, sectors
        Size of the cells, and how many sectors of the compass are told apart.
    """
    trips = trips.keep_fixes(np.isfinite(trips.lon))
    x, y = plane.to_xy(trips.lon, trips.lat)
    trip = trips.trip_of_fix
    east, north = np.diff(x, prepend=np.nan), np.diff(y, prepend=np.nan)
    first = np.flatnonzero(np.diff(trip, prepend=-1))
    follows = first[first + 1 < len(x)]
    follows = follows[trip[follows + 1] == trip[follows]]
    east[first], north[first] = np.nan, np.nan
    east[follows], north[follows] = east[follows + 1], north[follows + 1]  # the first moves as the second does
    size = np.hypot(east, north)
    moves = np.flatnonzero(size >= LEAST_MOVE_M)
    x, y, east, north = x[moves], y[moves], east[moves] / size[moves], north[moves] / size[moves]
    west, south = x.min(initial=np.inf), y.min(initial=np.inf)
    if not len(x):
        west = south = 0.0
    column, row = ((x - west) // cell_m).astype(np.int64), ((y - south) // cell_m).astype(np.int64)
    rows = int(row.max(initial=-1)) + 1
    wide = int(column.max(initial=-1)) + 1
    key, cell = np.unique(row * wide + column, return_inverse=True)
    sector = np.minimum(np.arctan2(east, north) % (2 * math.pi) // (2 * math.pi / sectors), sectors - 1)
    place = cell * sectors + sector.astype(np.int64)

    def sums(values: Floats | None) -> NDArray[np.float32]:
        total = np.bincount(place, values, len(key) * sectors)
        return total.astype(np.float32).reshape(len(key), sectors)

    return Crowd(
        float(west),
        float(south),
        cell_m,
        np.searchsorted(key, np.arange(rows + 1) * wide),
        (key % max(wide, 1)).astype(np.int32),
        sums(None),
        sums(east),
        sums(north),
    )


@njit(cache=True, nogil=True)
def add_around(crowd: Crowd, x: float, y: float, radius_m: float, sums: Floats) -> None:  # pragma: no cover  (compiled)
    """Add up count, east and north of the cells whose middles are within a radius: sums [3, N]."""
    middle_y = (y - crowd.south) / crowd.cell_m - 0.5
    middle_x = (x - crowd.west) / crowd.cell_m - 0.5
    reach = radius_m / crowd.cell_m
    low = max(0, math.ceil(middle_y - reach))
    high = min(len(crowd.row_offset) - 2, math.floor(middle_y + reach))
    for row in range(low, high + 1):
        half = math.sqrt(max(reach * reach - (row - middle_y) ** 2, 0.0))
        begin, end = crowd.row_offset[row], crowd.row_offset[row + 1]
        k = begin + np.searchsorted(crowd.column[begin:end], math.ceil(middle_x - half))
        while k < end and crowd.column[k] <= middle_x + half:
            for n in range(sums.shape[1]):
                sums[0, n] += crowd.points[k, n]
                sums[1, n] += crowd.east[k, n]
                sums[2, n] += crowd.north[k, n]
            k += 1
