"""The stretch of a segment that lies within some metres of a point."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Stretches(NamedTuple):
    """One stretch for each pair of a segment and a point; where it is out of reach, its nearest place alone."""

    lowest: Floats  # [N] ratio where it begins
    highest: Floats  # [N] ratio where it ends
    distance_m: Floats  # [N] from the point to the segment


def stretches(network: RoadNetwork, segment: ArrayLike, x: ArrayLike, y: ArrayLike, radius_m: float) -> Stretches:
    """Return how far one can go along segments, either way from the place nearest to a point, and stay near it.

    A road that leaves the circle and comes back has further stretches; these do not count.

    Parameters
    ----------
    network
        The road network.
    segment
        Segments [N].
    x, y
        Points on the network's plane [N].
    radius_m
        How far from the point a place on the stretch may be.
    """
    geometry = network.geom_offset, *network.geom_xy, network.geom_along
    which = np.asarray(segment).astype(np.int64, copy=False)
    points = np.asarray(x, np.float64), np.asarray(y, np.float64)
    return Stretches(*_stretches(*geometry, which, *points, radius_m))


@njit(cache=True, nogil=True)
def _stretches(
    offset: Ints, geom_x: Floats, geom_y: Floats, along: Floats, segment: Ints, x: Floats, y: Floats, radius: float
) -> tuple[Floats, Floats, Floats]:  # pragma: no cover  (compiled)
    n = len(segment)
    lowest, highest, distance = np.empty(n), np.empty(n), np.empty(n)
    for i in range(n):
        first, last = offset[segment[i]], offset[segment[i] + 1] - 1
        piece, share, least = first, 0.0, np.inf
        for v in range(first, last):
            dx, dy = geom_x[v + 1] - geom_x[v], geom_y[v + 1] - geom_y[v]
            to_x, to_y = x[i] - geom_x[v], y[i] - geom_y[v]
            size = dx * dx + dy * dy
            t = min(max((to_x * dx + to_y * dy) / size, 0.0), 1.0) if size > 0 else 0.0
            away = math.hypot(to_x - t * dx, to_y - t * dy)
            if away < least:
                piece, share, least = v, t, away
        distance[i] = least
        begin = end = along[piece] + share * (along[piece + 1] - along[piece])
        if least <= radius:
            for v in range(piece, last):
                _, leaves = _inside(geom_x, geom_y, v, x[i], y[i], radius)
                end = max(end, along[v] + leaves * (along[v + 1] - along[v]))
                if leaves < 1.0:
                    break
            for v in range(piece, first - 1, -1):
                enters, _ = _inside(geom_x, geom_y, v, x[i], y[i], radius)
                begin = min(begin, along[v] + enters * (along[v + 1] - along[v]))
                if enters > 0.0:
                    break
        size = along[last]
        lowest[i] = begin / size if size > 0 else 0.0
        highest[i] = end / size if size > 0 else 1.0
    return lowest, highest, distance


@njit(cache=True, nogil=True)
def _inside(
    geom_x: Floats, geom_y: Floats, v: int, x: float, y: float, radius: float
) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Return between which shares of a piece, some of which is in the circle, its line is in the circle."""
    dx, dy = geom_x[v + 1] - geom_x[v], geom_y[v + 1] - geom_y[v]
    to_x, to_y = x - geom_x[v], y - geom_y[v]
    size = dx * dx + dy * dy
    if size == 0.0:
        return 0.0, 1.0
    middle = (to_x * dx + to_y * dy) / size
    across2 = to_x * to_x + to_y * to_y - middle * middle * size
    half = math.sqrt(max(radius * radius - across2, 0.0) / size)
    return max(middle - half, 0.0), min(middle + half, 1.0)
