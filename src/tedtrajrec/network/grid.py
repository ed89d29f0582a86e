"""The straight pieces of all segments, sorted into the square cells of a uniform grid.

Both candidate searches (numba and torch) walk over this index; it is built with numpy alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network import polylines

if TYPE_CHECKING:
    from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

CELL_M = 100.0  # measured on Porto: best at a radius of 50 and 100 m, 10 % behind cells of 200 m at 400 m
MARGIN = 1e-6  # share of a cell by which pieces are widened, so that rounding never loses one at the border of a cell
CELLS_PER_PIECE = 16  # bounds on memory: past them the cells are doubled
ENTRIES_PER_PIECE = 8
LEAST_CELLS = 1 << 16  # allowed however few the pieces are


class PieceGrid(NamedTuple):
    """The K straight pieces of a network, and for each cell of a grid the pieces that cross it.

    A piece has its ends in a fixed order, whatever the direction of travel, so that both directions of a road lie at
    exactly the same distance from a point. A named tuple, because compiled code takes it as it is.

    Memory: 53 bytes a piece, 8 a segment and 4 a cell, and 4 for each piece in each cell. There are at most 16 cells a
    piece (or 65,536), and a piece lies in about 8 of them at most on average, however long pieces are and however far
    apart.
    """

    ends: Floats  # [K, 5] x0, y0, x1, y1 in metres on the network's plane, (x0, y0) <= (x1, y1); 1 / length², or 0
    segment: Ints  # [K] segment the piece belongs to, ascending
    vertex: Ints  # [K] geometry vertex the piece starts at when one drives along the segment, ascending
    backward: NDArray[np.bool_]  # [K] whether one drives from (x1, y1) to (x0, y0)
    length_m: Floats  # [S] measure of the last vertex of each segment
    x0: float  # west edge of the grid
    y0: float  # south edge
    cell_m: float
    n_columns: int
    n_rows: int
    cell_offset: Ints  # [n_rows * n_columns + 1] row by row, from the south-west
    entry: Ints  # pieces that cross each cell, ascending


def build_grid(network: RoadNetwork, cell_m: float = CELL_M) -> PieceGrid:
    """Cut the segments into pieces and sort them into cells of ``cell_m`` metres, or larger where memory demands it."""
    x, y = network.geom_xy
    vertex = np.delete(np.arange(len(x)), network.geom_offset[1:] - 1)
    backward = (x[vertex + 1] < x[vertex]) | ((x[vertex + 1] == x[vertex]) & (y[vertex + 1] < y[vertex]))
    a, b = vertex + backward, vertex + ~backward
    length2 = (x[b] - x[a]) ** 2 + (y[b] - y[a]) ** 2
    inverse = np.divide(1.0, length2, out=np.zeros(len(vertex)), where=length2 > 1e-18)  # below: as good as a point
    ends = np.column_stack([x[a], y[a], x[b], y[b], inverse])

    west, south = float(x.min()), float(y.min())
    width, height = float(np.ptp(x)), float(np.ptp(y))
    spanned = float(np.abs(ends[:, 2:4] - ends[:, :2]).sum())
    while True:
        n_columns, n_rows = int(width / cell_m) + 1, int(height / cell_m) + 1
        entries = len(vertex) + spanned / cell_m
        if n_columns * n_rows <= max(CELLS_PER_PIECE * len(vertex), LEAST_CELLS) and (
            entries <= ENTRIES_PER_PIECE * len(vertex)
        ):
            break
        cell_m *= 2
    piece, row, first, last = _runs((ends[:, :4] - [west, south, west, south]) / cell_m, n_columns, n_rows)
    count = last - first + 1
    cell = polylines.ranges(row * n_columns + first, count)
    in_cell = np.bincount(cell, minlength=n_columns * n_rows)
    return PieceGrid(
        ends=ends,
        segment=np.repeat(np.arange(network.n_segments, dtype=np.int32), np.diff(network.geom_offset) - 1),
        vertex=vertex.astype(np.int32),
        backward=backward,
        length_m=polylines.lengths(network.geom_offset, network.geom_along),
        x0=west,
        y0=south,
        cell_m=cell_m,
        n_columns=n_columns,
        n_rows=n_rows,
        cell_offset=np.concatenate([[0], np.cumsum(in_cell)]).astype(np.int32),
        entry=np.repeat(piece, count)[np.argsort(cell, kind="stable")].astype(np.int32),
    )


def _runs(ends: Floats, n_columns: int, n_rows: int) -> tuple[Longs, Longs, Longs, Longs]:
    """Return the cells that pieces cross as runs along rows: piece, row, first and last column; ``ends`` in cells."""
    x0, y0, x1, y1 = ends.T
    low = _index(np.minimum(y0, y1) - MARGIN, n_rows)
    rows = _index(np.maximum(y0, y1) + MARGIN, n_rows) - low + 1
    piece = np.repeat(np.arange(len(ends)), rows)
    row = polylines.ranges(low, rows)
    x0, y0, x1, y1 = ends[piece].T
    # Where the piece crosses the row's two borders, as shares of its length; a level piece is in the row throughout.
    rise = y1 - y0
    level = rise == 0
    rise[level] = 1.0
    south, north = (row - MARGIN - y0) / rise, (row + 1 + MARGIN - y0) / rise
    enters = np.where(level, 0.0, np.minimum(south, north).clip(0, 1))
    leaves = np.where(level, 1.0, np.maximum(south, north).clip(0, 1))
    first = _index(x0 + enters * (x1 - x0) - MARGIN, n_columns)  # x0 <= x1
    last = _index(x0 + leaves * (x1 - x0) + MARGIN, n_columns)
    return piece, row, first, last


def _index(cells: Floats, end: int) -> Longs:
    """Return whole cell numbers; what lies on or past the edge of the grid belongs to the cells along it."""
    return np.floor(cells).astype(np.int64).clip(0, end - 1)
