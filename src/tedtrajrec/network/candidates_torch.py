"""Candidate search on tensors: the segments around fixes, on a GPU or CPU, for batches that already live there.

The grid and the arithmetic, all in float64, are those of :mod:`tedtrajrec.network.candidates`, and so is the result,
but for the last bit of distances: torch does not always round a square root correctly. On a CPU that one is faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from tedtrajrec.errors import InputError
from tedtrajrec.network.grid import build_grid

if TYPE_CHECKING:
    from tedtrajrec.network.roadnet import RoadNetwork

PAIRS_ON_CPU = 1 << 18  # pairs of point and piece looked at together, at some 150 bytes each
PAIRS_ON_GPU = 1 << 24


@dataclass(frozen=True, eq=False)
class TorchCandidates:
    """The C candidate segments of P points, ragged: those of point ``i`` are ``offsets[i]:offsets[i + 1]``.

    Those of one point are ordered by distance, equal distances by segment.
    """

    offsets: Tensor  # [P+1] int64
    segment: Tensor  # [C] int64
    distance_m: Tensor  # [C] float64
    ratio: Tensor  # [C] float64, 0..1
    lon: Tensor  # [C] float64, the place on the segment, as RoadNetwork.point_at(segment, ratio)
    lat: Tensor  # [C] float64


class TorchCandidateFinder:
    """Finds the segments of a network around points given as tensors.

    A segment counts once for each point, at its nearest place; where several are equally near, at the first along it.
    All geometry is float64: a float32 of degrees is off by metres, and one of metres by centimetres.

    Memory: that of :class:`~tedtrajrec.network.grid.PieceGrid` and 8 bytes a cell on the device; in a search 48 bytes a
    candidate for the result, twice while it is put together, and some 150 for each of about 2^24 pairs of point and
    piece (2^18 on a CPU) that are looked at together.

    Parameters
    ----------
    network
        The network to search.
    device
        Where the index lives and points are taken to.
    """

    def __init__(self, network: RoadNetwork, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self.n_segments = network.n_segments
        self._plane = network.plane
        self._grid = grid = build_grid(network)
        self._pairs = PAIRS_ON_CPU if self.device.type == "cpu" else PAIRS_ON_GPU

        def here(array: np.ndarray) -> Tensor:
            return torch.tensor(array, device=self.device)  # a copy: the network's own arrays are read-only

        self._ends = here(grid.ends)
        self._segment, self._vertex = here(grid.segment.astype(np.int64)), here(grid.vertex.astype(np.int64))
        self._backward = here(grid.backward)
        self._length, self._along = here(grid.length_m), here(network.geom_along)
        self._lon, self._lat = here(network.geom_lon), here(network.geom_lat)
        self._offset, self._entry = here(grid.cell_offset.astype(np.int64)), here(grid.entry)
        count = np.diff(grid.cell_offset).reshape(grid.n_rows, grid.n_columns)
        table = np.zeros((grid.n_rows + 1, grid.n_columns + 1), np.int64)
        table[1:, 1:] = count.cumsum(axis=0).cumsum(axis=1)
        self._table = here(table)  # entries south-west of each corner: any rectangle's number from four of them

    def within(self, lon: Tensor, lat: Tensor, radius_m: Tensor | float) -> TorchCandidates:
        """Return all segments at most ``radius_m`` metres away from each point.

        Parameters
        ----------
        lon, lat
            The points [P] in degrees; one that is not finite or not in degrees is an :class:`InputError`.
        radius_m
            One radius for all points, or one for each [P].
        """
        lon, lat = (t.to(self.device, torch.float64) for t in (lon, lat))
        _require("lon", lon, lon.abs() <= 180, "is not a coordinate in degrees (-180 to 180)")
        _require("lat", lat, lat.abs() <= 90, "is not a coordinate in degrees (-90 to 90)")
        east, north = self._plane.scale
        return self.within_xy((lon - self._plane.lon0) * east, (lat - self._plane.lat0) * north, radius_m)

    def within_xy(self, x: Tensor, y: Tensor, radius_m: Tensor | float) -> TorchCandidates:
        """Return the same for points [P] in metres on the network's plane."""
        x, y = (t.to(self.device, torch.float64) for t in (x, y))
        radius = torch.as_tensor(radius_m, dtype=torch.float64, device=self.device)
        if x.ndim != 1 or x.shape != y.shape or (radius.ndim and radius.shape != x.shape):
            raise InputError(f"the points and radii have shapes {[tuple(t.shape) for t in (x, y, radius)]}, not [P]")
        _require("x", x, x.isfinite(), "is not a number of metres")
        _require("y", y, y.isfinite(), "is not a number of metres")
        _require("radius_m", radius, radius >= 0, "is not a radius in metres")
        radius = radius.expand(x.shape)
        sizes = self._batches(x, y, radius)
        batches = zip(*(torch.split(values, sizes) for values in (x, y, radius)), strict=True)
        parts = [self._search(*batch) for batch in batches]
        count, piece, share, distance2 = (torch.cat(column) for column in zip(*parts, strict=True))
        offsets = torch.zeros(len(x) + 1, dtype=torch.int64, device=self.device)
        offsets[1:] = count.cumsum(0)
        vertex, segment = self._vertex[piece], self._segment[piece]
        share = torch.where(self._backward[piece], 1.0 - share, share)
        metres = self._along[vertex] + share * (self._along[vertex + 1] - self._along[vertex])
        ratio = torch.where(metres > 0, (metres / self._length[segment]).clamp(max=1.0), 0.0)
        lon = self._lon[vertex] + share * (self._lon[vertex + 1] - self._lon[vertex])
        lat = self._lat[vertex] + share * (self._lat[vertex + 1] - self._lat[vertex])
        return TorchCandidates(offsets, segment, distance2.sqrt(), ratio, lon, lat)

    def _cells(self, metres: Tensor, end: int) -> Tensor:
        """Return rows or columns at distances from the edge of the grid; the nearest ones, outside it."""
        return (metres / self._grid.cell_m).clamp(0, end - 1).long()

    def _batches(self, x: Tensor, y: Tensor, radius: Tensor) -> list[int]:
        """Return how many points to take at a time, so that the pairs with pieces around them fit into memory."""
        grid, table = self._grid, self._table
        south, north = (self._cells(y + r - grid.y0, grid.n_rows) for r in (-radius, radius))
        west, east = (self._cells(x + r - grid.x0, grid.n_columns) for r in (-radius, radius))
        pairs = table[north + 1, east + 1] - table[south, east + 1] - table[north + 1, west] + table[south, west]
        batch = (pairs + north - south).cumsum(0) // self._pairs
        sizes: list[int] = torch.unique_consecutive(batch, return_counts=True)[1].tolist()
        return sizes or [0]

    def _search(self, x: Tensor, y: Tensor, radius: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the number of candidates of each point; and of each candidate piece, share and squared distance."""
        grid = self._grid
        reach2 = radius * radius
        # The rows of cells that the circle around each point touches, and in each row the run of entries inside it.
        south = self._cells(y - radius - grid.y0, grid.n_rows)
        north = self._cells(y + radius - grid.y0, grid.n_rows)
        point, row = _expand(south, north - south + 1)
        edge = grid.y0 + row * grid.cell_m
        away = torch.maximum(edge - y[point], y[point] - edge - grid.cell_m).clamp(min=0)
        half = (reach2[point] - away * away).clamp(min=0).sqrt()
        west = row * grid.n_columns + self._cells(x[point] - half - grid.x0, grid.n_columns)
        east = row * grid.n_columns + self._cells(x[point] + half - grid.x0, grid.n_columns)
        start = self._offset[west]
        run, entry = _expand(start, self._offset[east + 1] - start)
        point, piece = point[run], self._entry[entry].long()
        distance2, _ = self._project(x[point], y[point], piece)
        inside = (distance2 <= reach2[point]).nonzero().squeeze(1)
        point, piece, distance2 = point[inside], piece[inside], distance2[inside]
        # A segment once for each point: at the least distance, there at the first piece.
        key, pair = torch.unique(point * self.n_segments + self._segment[piece], return_inverse=True)
        least = distance2.new_full(key.shape, torch.inf).scatter_reduce(0, pair, distance2, "amin")
        piece = torch.where(distance2 == least[pair], piece, len(self._segment))
        first = torch.full_like(key, len(self._segment)).scatter_reduce(0, pair, piece, "amin")
        # The keys ascend by point, then by segment; stable sorts bring the distance in between.
        point = key // self.n_segments
        order = least.argsort(stable=True)
        order = order[point[order].argsort(stable=True)]
        point, piece = point[order], first[order]
        distance2, share = self._project(x[point], y[point], piece)
        return torch.bincount(point, minlength=len(x)), piece, share, distance2

    def _project(self, x: Tensor, y: Tensor, piece: Tensor) -> tuple[Tensor, Tensor]:
        """Return the squared distance of points from pieces and the share of the piece before the nearest place.

        At an end the coordinates of the end itself are used: pieces that meet there are equally far to the last bit.
        """
        x0, y0, x1, y1, inverse = self._ends[piece].unbind(1)
        dx, dy = x1 - x0, y1 - y0
        share = (((x - x0) * dx + (y - y0) * dy) * inverse).clamp(0, 1)
        to_x = x - torch.where(share < 1, x0 + share * dx, x1)
        to_y = y - torch.where(share < 1, y0 + share * dy, y1)
        return to_x * to_x + to_y * to_y, share


def _expand(starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of its range, and the member, for all members of ranges that start at ``starts``."""
    which = torch.repeat_interleave(counts)
    first = counts.cumsum(0) - counts
    return which, torch.arange(len(which), device=counts.device) + (starts - first)[which]


def _require(name: str, values: Tensor, good: Tensor, problem: str) -> None:
    if not bool(good.all()):
        row = int((~good).to(torch.uint8).argmax())
        value = values.reshape(-1)[row].item()
        raise InputError(f"{value} {problem}", row=row + 1 if values.ndim else None, field=name)
