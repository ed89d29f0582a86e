"""Candidate search: the segments around fixes, with distance, ratio and the nearest point on each.

A uniform grid over the straight pieces of road (:mod:`tedtrajrec.network.grid`) and compiled kernels that run without
the interpreter's lock, on as many threads as asked for; the result does not depend on their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.grid import build_grid
from tedtrajrec.network.grid_search import Described, GridSearch, Places, describe, search_nearest
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int32]

CHUNK = 2048  # points a thread takes at a time


@dataclass(frozen=True, eq=False)
class Candidates:
    """The C candidate segments of P points, ragged: those of point ``i`` are ``offsets[i]:offsets[i + 1]``.

    Those of one point are ordered by distance, equal distances by segment. 36 bytes a candidate.
    """

    offsets: NDArray[np.int64]  # [P+1]
    segment: Ints  # [C]
    distance_m: Floats  # [C] from the point to the segment, on the network's plane
    ratio: Floats  # [C] 0..1, where along the segment it is nearest
    lon: Floats  # [C] the place on the segment, as RoadNetwork.point_at(segment, ratio)
    lat: Floats  # [C]


class Nearest(NamedTuple):
    """The nearest segment of each of P points; segment -1, distance infinite and the rest NaN where there is none."""

    segment: Ints  # [P]
    distance_m: Floats  # [P]
    ratio: Floats  # [P]
    lon: Floats  # [P]
    lat: Floats  # [P]


class CandidateFinder:
    """Finds the segments of a network around points.

    A segment counts once for each point, at its nearest place; where several are equally near, at the first along it.
    Building the index takes some 30 ms for 24,000 segments.

    Memory: about 70 bytes for each vertex of the network (see :class:`~tedtrajrec.network.grid.PieceGrid`), and 4
    bytes for each segment and each thread that ever searched at the same time.

    Parameters
    ----------
    network
        The network to search.
    """

    def __init__(self, network: RoadNetwork) -> None:
        self.network = network
        self._search = GridSearch(build_grid(network))

    def within(
        self,
        lon: ArrayLike,
        lat: ArrayLike,
        radius_m: ArrayLike,
        *,
        most: int | None = None,
        workers: int | None = None,
    ) -> Candidates:
        """Return all segments at most ``radius_m`` metres away from each point.

        Parameters
        ----------
        lon, lat
            The points [P] in degrees; one that is not finite or not in degrees is an :class:`InputError`.
        radius_m
            One radius for all points, or one for each [P]; infinity is allowed.
        most
            Keep only so many segments for each point, the nearest ones.
        workers
            Number of threads; all processors if not given.
        """
        lon, lat = as_points(lon, lat)
        radius = as_radii(radius_m, len(lon))
        if most is not None and most < 1:
            raise InputError(f"most is {most}; it must be at least 1")
        x, y = self.network.plane.to_xy(lon, lat)
        limit = self.network.n_segments if most is None else most

        def search(part: slice) -> tuple[NDArray[np.int64], Places]:
            return self._search.within(x[part], y[part], radius[part], limit)

        found = map_parts(search, _parts(len(x)), workers)
        offsets = np.concatenate([np.zeros(1, np.int64), *(count for count, _ in found)]).cumsum()
        places = [place for _, place in found]
        del found
        return Candidates(offsets, *self._describe(places, workers))

    def nearest(
        self, lon: ArrayLike, lat: ArrayLike, *, limit_m: float | None = None, workers: int | None = None
    ) -> Nearest:
        """Return the nearest segment of each point, however far it is, or none beyond ``limit_m`` metres.

        Parameters
        ----------
        lon, lat
            The points [P] in degrees; one that is not finite or not in degrees is an :class:`InputError`.
        limit_m
            Do not look farther than this.
        workers
            Number of threads; all processors if not given.
        """
        lon, lat = as_points(lon, lat)
        limit = float(as_radii(math.inf if limit_m is None else limit_m, 1)[0])
        x, y = self.network.plane.to_xy(lon, lat)

        def search(part: slice) -> Places:
            return search_nearest(self._search.grid, x[part], y[part], limit)

        return Nearest(*self._describe(map_parts(search, _parts(len(x)), workers), workers))

    def _describe(self, places: list[Places], workers: int | None) -> Described:
        """Return what users get of places on pieces; the list is emptied on the way."""
        ends = np.cumsum([0, *(len(piece) for piece, _, _ in places)])
        waiting = dict(enumerate(places))
        places.clear()  # each part is freed once it is described, so that the result is not held twice
        segment = np.empty(ends[-1], np.int32)
        distance_m, ratio, lon, lat = (np.empty(ends[-1]) for _ in range(4))
        geometry = self.network.geom_along, self.network.geom_lon, self.network.geom_lat

        def fill(number: int) -> None:
            at = slice(ends[number], ends[number + 1])
            out = segment[at], distance_m[at], ratio[at], lon[at], lat[at]
            describe(self._search.grid, geometry, waiting.pop(number), out)

        map_parts(fill, range(len(waiting)), workers)
        return segment, distance_m, ratio, lon, lat


def as_points(lon: ArrayLike, lat: ArrayLike) -> tuple[Floats, Floats]:
    """Return two arrays of degrees [P], or raise :class:`InputError` that names the first bad row."""
    lon, lat = np.atleast_1d(np.asarray(lon, np.float64)), np.atleast_1d(np.asarray(lat, np.float64))
    if lon.shape != lat.shape or lon.ndim != 1:
        raise InputError(f"lon has shape {lon.shape} and lat {lat.shape}; they must be equally long lists of numbers")
    for name, values, end in (("lon", lon, 180), ("lat", lat, 90)):
        bad = ~(np.abs(values) <= end)
        if bad.any():
            row = int(bad.argmax())
            raise InputError(
                f"{values[row]} is not a coordinate in degrees (-{end} to {end})",
                row=row + 1,
                field=name,
                remedy="Remove or repair the fix.",
            )
    return lon, lat


def as_radii(radius_m: ArrayLike, n_points: int) -> Floats:
    """Return one radius for each point [P], or raise :class:`InputError` on one that is negative or not a number."""
    radius = np.asarray(radius_m, np.float64)
    if radius.shape not in ((), (n_points,)):
        raise InputError(f"radius_m has shape {radius.shape}; give one radius, or one for each of {n_points} points")
    bad = ~(radius >= 0)
    if bad.any():
        row = int(bad.argmax())
        raise InputError(
            f"{radius.flat[row]} is not a radius in metres", row=row + 1 if radius.ndim else None, field="radius_m"
        )
    return np.array(np.broadcast_to(radius, n_points))  # contiguous: one compiled form serves both cases


def _parts(n_points: int) -> list[slice]:
    return [slice(start, start + CHUNK) for start in range(0, n_points, CHUNK)]
