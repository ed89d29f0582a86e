"""Compiled searches over a grid of pieces of road; :mod:`tedtrajrec.network.candidates` is their front."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.network.grid import PieceGrid

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Places = tuple[Ints, Floats, Floats]  # the piece, the share of it before the place, squared distance from the point
Described = tuple[Ints, Floats, Floats, Floats, Floats]  # segment, distance, ratio, lon, lat


@njit(cache=True, nogil=True)
def _cell(metres: float, cell_m: float, end: int) -> int:  # pragma: no cover  (compiled)
    """Return the row or column at a distance from the edge of the grid; the nearest one, outside it."""
    return int(min(max(metres / cell_m, 0.0), end - 1.0))


@njit(cache=True, nogil=True)
def _project(ends: Floats, k: int, x: float, y: float) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return the squared distance of a point from a piece and the share of the piece before the nearest place.

    At an end the coordinates of the end itself are used: pieces that meet there are equally far to the last bit.
    """
    dx = ends[k, 2] - ends[k, 0]
    dy = ends[k, 3] - ends[k, 1]
    share = ((x - ends[k, 0]) * dx + (y - ends[k, 1]) * dy) * ends[k, 4]
    if share <= 0.0:
        share = 0.0
        to_x = x - ends[k, 0]
        to_y = y - ends[k, 1]
    elif share >= 1.0:
        share = 1.0
        to_x = x - ends[k, 2]
        to_y = y - ends[k, 3]
    else:
        to_x = x - (ends[k, 0] + share * dx)
        to_y = y - (ends[k, 1] + share * dy)
    return to_x * to_x + to_y * to_y, share


@njit(cache=True, nogil=True)
def _pieces_around(
    grid: PieceGrid, x: float, radius: float, south: int, north: int
) -> int:  # pragma: no cover  (compiled)
    """Return how many pieces lie in the cells of some rows within a distance to the west and east."""
    west = _cell(x - radius - grid.x0, grid.cell_m, grid.n_columns)
    east = _cell(x + radius - grid.x0, grid.cell_m, grid.n_columns)
    count = 0
    for row in range(south, north + 1):
        first = row * grid.n_columns
        count += grid.cell_offset[first + east + 1] - grid.cell_offset[first + west]
    return count


class GridSearch:
    """Searches of a grid around points, by any number of threads.

    Parameters
    ----------
    grid
        The grid.
    """

    def __init__(self, grid: PieceGrid) -> None:
        self.grid = grid
        # Tables of the searches, kept from one to the next: made anew, those of a large network would be its cost.
        self._slots: list[NDArray[np.uint32]] = []

    def within(self, x: Floats, y: Floats, radius: Floats, most: int) -> tuple[NDArray[np.int64], Places]:
        """Return the number of candidates of each point within its radius (at most ``most``) and their places."""
        try:
            slot = self._slots.pop()
        except IndexError:
            slot = np.empty(len(self.grid.length_m), np.uint32)
        found: tuple[NDArray[np.int64], Places] = _search_within(self.grid, slot, x, y, radius, most)
        self._slots.append(slot)
        return found


@njit(cache=True, nogil=True)
def _search_within(
    grid: PieceGrid, slot: NDArray[np.uint32], x: Floats, y: Floats, radius: Floats, most: int
) -> tuple[NDArray[np.int64], Places]:  # pragma: no cover  (compiled)
    """Return the number of candidates of each point, and their places in order; ``slot`` may hold anything [S]."""
    ends, owner, cell_offset, entry = grid.ends, grid.segment, grid.cell_offset, grid.entry
    # What is found around one point. Segment s is among the n found if slot[s] < n and found[slot[s]] == s, so nothing
    # has to be cleared, neither between points nor before.
    wide = 256  # how many can be found; more where more pieces lie around a point
    found, found_piece, order = np.empty(wide, np.int32), np.empty(wide, np.int32), np.empty(wide, np.int32)
    found_share, found_distance2 = np.empty(wide, np.float64), np.empty(wide, np.float64)
    bucket = np.empty(wide + 1, np.int32)

    count = np.empty(len(x), np.int64)
    room = 8 * len(x)
    piece = np.empty(room, np.int32)
    share = np.empty(room, np.float64)
    distance2 = np.empty(room, np.float64)
    total = 0
    for i in range(len(x)):
        reach2 = radius[i] * radius[i]
        n = 0
        south = _cell(y[i] - radius[i] - grid.y0, grid.cell_m, grid.n_rows)
        north = _cell(y[i] + radius[i] - grid.y0, grid.cell_m, grid.n_rows)
        around = _pieces_around(grid, x[i], radius[i], south, north)
        if around > wide:
            wide = 2 * around
            found, found_piece, order = np.empty(wide, np.int32), np.empty(wide, np.int32), np.empty(wide, np.int32)
            found_share, found_distance2 = np.empty(wide, np.float64), np.empty(wide, np.float64)
            bucket = np.empty(wide + 1, np.int32)
        for row in range(south, north + 1):
            edge = grid.y0 + row * grid.cell_m
            away = max(edge - y[i], y[i] - edge - grid.cell_m, 0.0)
            half = math.sqrt(max(reach2 - away * away, 0.0))  # half the width of the circle in this row
            west = row * grid.n_columns + _cell(x[i] - half - grid.x0, grid.cell_m, grid.n_columns)
            east = row * grid.n_columns + _cell(x[i] + half - grid.x0, grid.cell_m, grid.n_columns)
            for e in range(cell_offset[west], cell_offset[east + 1]):
                k = entry[e]
                d2, t = _project(ends, k, x[i], y[i])
                if d2 > reach2:
                    continue
                s = owner[k]
                j = slot[s]
                if j < n and found[j] == s:
                    if d2 > found_distance2[j] or (d2 == found_distance2[j] and k >= found_piece[j]):
                        continue
                else:
                    j = n
                    n += 1
                    slot[s] = j
                    found[j] = s
                found_piece[j] = k
                found_share[j] = t
                found_distance2[j] = d2
        _sort(order, found_distance2, found, n, bucket)
        n = min(n, most)
        count[i] = n
        if total + n > room:
            room = max(2 * room, (total + n) * len(x) // (i + 1))  # at the rate seen so far
            piece = resized(piece, total, room)
            share = resized(share, total, room)
            distance2 = resized(distance2, total, room)
        for j in order[:n]:
            piece[total] = found_piece[j]
            share[total] = found_share[j]
            distance2[total] = found_distance2[j]
            total += 1
    return count, (piece[:total], share[:total], distance2[:total])


@njit(cache=True, nogil=True)
def _sort(order: Ints, key: Floats, tie: Ints, n: int, bucket: Ints) -> None:  # pragma: no cover  (compiled)
    """Fill ``order[:n]`` with 0..n-1 sorted by key, then by tie.

    Roads lie about evenly over a disc, so squared distances spread evenly: one pass into n buckets leaves them almost
    sorted, four times faster than sorting by comparison at n = 150.
    """
    for i in range(n):
        order[i] = i
    if n > 8:
        low = key[:n].min()
        high = key[:n].max()
        scale = (n - 1) / (high - low) if high > low else 0.0
        bucket[: n + 1] = 0
        for i in range(n):
            bucket[int((key[i] - low) * scale) + 1] += 1
        if bucket[: n + 1].max() > 64:  # not evenly at all
            order[:n] = np.argsort(key[:n], kind="mergesort")
        else:
            for i in range(n):
                bucket[i + 1] += bucket[i]
            for i in range(n):
                b = int((key[i] - low) * scale)
                order[bucket[b]] = i
                bucket[b] += 1
    for i in range(1, n):  # insertion
        j = order[i]
        k = i
        while k > 0 and (key[order[k - 1]] > key[j] or (key[order[k - 1]] == key[j] and tie[order[k - 1]] > tie[j])):
            order[k] = order[k - 1]
            k -= 1
        order[k] = j


@njit(cache=True, nogil=True)
def search_nearest(grid: PieceGrid, x: Floats, y: Floats, limit: float) -> Places:  # pragma: no cover  (compiled)
    """Return the nearest place of each point, searched ring by ring of cells outwards; piece -1 where there is none."""
    ends, cell_offset, entry = grid.ends, grid.cell_offset, grid.entry
    cell_m, columns, rows = grid.cell_m, grid.n_columns, grid.n_rows
    piece = np.empty(len(x), np.int32)
    share = np.empty(len(x), np.float64)
    distance2 = np.empty(len(x), np.float64)
    for i in range(len(x)):
        east = x[i] - grid.x0  # of the grid's corner
        north = y[i] - grid.y0
        out_x = max(-east, east - columns * cell_m, 0.0)  # how far outside the grid the point is
        out_y = max(-north, north - rows * cell_m, 0.0)
        column = _cell(east, cell_m, columns)
        row = _cell(north, cell_m, rows)
        best = -1
        best_share = 0.0
        best2 = limit * limit
        unseen2 = out_x * out_x + out_y * out_y  # no piece that is not yet seen can be nearer than this
        ring = 0
        while unseen2 <= best2:
            for r in range(max(row - ring, 0), min(row + ring, rows - 1) + 1):
                # The first and last row of the ring are searched whole, the others at their two ends.
                step = 1 if abs(r - row) == ring else 2 * ring
                for c in range(column - ring, column + ring + 1, step):
                    gap_x = max(c * cell_m - east, east - (c + 1) * cell_m, 0.0)
                    gap_y = max(r * cell_m - north, north - (r + 1) * cell_m, 0.0)
                    if c < 0 or c >= columns or gap_x * gap_x + gap_y * gap_y > best2:
                        continue
                    for e in range(cell_offset[r * columns + c], cell_offset[r * columns + c + 1]):
                        k = entry[e]
                        d2, t = _project(ends, k, x[i], y[i])
                        if d2 < best2 or (d2 == best2 and (best < 0 or k < best)):  # pieces ascend with segments
                            best = k
                            best2 = d2
                            best_share = t
            unseen2 = math.inf
            if column - ring > 0:
                unseen2 = min(unseen2, (east - (column - ring) * cell_m) ** 2 + out_y**2)
            if column + ring < columns - 1:
                unseen2 = min(unseen2, ((column + ring + 1) * cell_m - east) ** 2 + out_y**2)
            if row - ring > 0:
                unseen2 = min(unseen2, (north - (row - ring) * cell_m) ** 2 + out_x**2)
            if row + ring < rows - 1:
                unseen2 = min(unseen2, ((row + ring + 1) * cell_m - north) ** 2 + out_x**2)
            if unseen2 == math.inf:  # also where the limit is infinite and nothing is left
                break
            ring += 1
        piece[i] = best
        share[i] = best_share
        distance2[i] = best2
    return piece, share, distance2


@njit(cache=True, nogil=True)
def describe(
    grid: PieceGrid, geometry: tuple[Floats, Floats, Floats], places: Places, out: Described
) -> None:  # pragma: no cover  (compiled)
    """Fill in what users get of places on pieces; ``geometry`` is measure, lon and lat of the network's vertices."""
    along, geom_lon, geom_lat = geometry
    piece, share, distance2 = places
    segment, distance_m, ratio, lon, lat = out
    for i in range(len(piece)):
        k = piece[i]
        if k < 0:
            segment[i] = -1
            distance_m[i] = math.inf
            ratio[i] = lon[i] = lat[i] = math.nan
            continue
        s = grid.segment[k]
        v = grid.vertex[k]
        t = 1.0 - share[i] if grid.backward[k] else share[i]
        metres = along[v] + t * (along[v + 1] - along[v])
        segment[i] = s
        distance_m[i] = math.sqrt(distance2[i])
        ratio[i] = min(metres / grid.length_m[s], 1.0) if metres > 0.0 else 0.0
        lon[i] = geom_lon[v] + t * (geom_lon[v + 1] - geom_lon[v])
        lat[i] = geom_lat[v] + t * (geom_lat[v + 1] - geom_lat[v])
