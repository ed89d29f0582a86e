"""A city as square cells: how methods tell a place that do not ask for roads."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

STEPS = 64.0  # how many count as 1 where numbers are scaled


class Cells(NamedTuple):
    """A grid over a box, in the unit of the places it is asked for; those outside count to the cells at its edge."""

    x: float  # where it begins
    y: float
    size: float  # of a cell
    columns: int
    rows: int

    def at(self, xy: Tensor) -> tuple[Tensor, Tensor]:
        """Return column and row [...] int64 of places [..., 2], counted from 0."""
        column = ((xy[..., 0] - self.x) / self.size).floor().clamp(0, self.columns - 1)
        row = ((xy[..., 1] - self.y) / self.size).floor().clamp(0, self.rows - 1)
        return column.long(), row.long()

    def number(self, xy: Tensor) -> Tensor:
        """Return the number of the cell [...] int64 of places [..., 2], counted row by row."""
        column, row = self.at(xy)
        return row * self.columns + column

    def in_unit(self, unit: float, x: float, y: float) -> Cells:
        """Return the same cells for places in another unit: where 1 of this one is ``unit``, and its origin at x, y."""
        return Cells(self.x * unit + x, self.y * unit + y, self.size * unit, self.columns, self.rows)

    def told(self, xy: Tensor, step: Tensor, *, raw: bool = False) -> Tensor:
        """Return column, row and step of fixes [..., 3], as MTrajRec and its kin see them.

        Parameters
        ----------
        xy, step
            Places [..., 2] and steps [...] of the fixes.
        raw
            Whether as counts from 1, as the authors of these methods do; else the grid is -1 to 1 and 64 steps are 1.
        """
        column, row = self.at(xy)
        if raw:
            return torch.stack([column, row, step], dim=-1).to(xy.dtype) + 1
        places = [(2 * at.to(xy.dtype) + 1) / count - 1 for at, count in ((column, self.columns), (row, self.rows))]
        return torch.stack([*places, step.to(xy.dtype) / STEPS], dim=-1)


def cells_over(xy: NDArray[np.float64], size: float) -> Cells:
    """Return cells of a size over all of these places [N, 2]."""
    (west, south), (east, north) = xy.min(axis=0).tolist(), xy.max(axis=0).tolist()
    return Cells(west, south, size, *(max(1, math.ceil(way / size)) for way in (east - west, north - south)))
