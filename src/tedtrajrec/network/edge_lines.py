"""The lines of an edge table or graph: from shapely to flat arrays, checked, and tied to their nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.geodesy import short_distance_m

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

SNAP_M = 1.0
"""Ends of lines that are at most this far from their node are moved onto it."""

LINE_STRING, MULTI_LINE_STRING = 1, 5  # shapely's type ids


class Lines(NamedTuple):
    """R lines with G vertices in all."""

    offset: Ints  # [R+1]
    lon: Floats  # [G] degrees
    lat: Floats  # [G]


def refuse(
    bad: Mask, problem: str, *, file: str | Path | None, field: str | None = None, remedy: str | None = None
) -> None:
    """Raise :class:`InputError` on the first row of the mask ``bad``, if any; the message counts the others."""
    count = int(np.count_nonzero(bad))
    if count:
        others = f" (as in {count - 1} other row{'s' if count > 2 else ''})" if count > 1 else ""
        raise InputError(f"{problem}{others}", file=file, row=int(bad.argmax()) + 1, field=field, remedy=remedy)


def flatten_lines(geometry: NDArray[Any], *, file: str | Path | None = None, field: str | None = None) -> Lines:
    """Return the vertices of LineStrings as flat arrays; whatever is no line in degrees is refused.

    A MultiLineString of one part is taken as that part. A third coordinate is left out.
    """

    def refuse_rows(bad: Mask, problem: str, remedy: str) -> None:
        refuse(bad, problem, file=file, field=field, remedy=remedy)

    refuse_rows(
        ~shapely.is_geometry(geometry),
        "the geometry is missing or cannot be read",
        "Give each row a LineString of at least two points.",
    )
    kind, parts = shapely.get_type_id(geometry), shapely.get_num_geometries(geometry)
    refuse_rows(
        (kind == MULTI_LINE_STRING) & (parts > 1),
        "the geometry is a MultiLineString of several parts",
        "Split it into one row per part, each with its own u and v (geopandas: frame.explode()).",
    )
    refuse_rows(
        (kind != LINE_STRING) & (kind != MULTI_LINE_STRING),
        "the geometry is not a LineString",
        "Give the edges (lines), not the nodes or areas.",
    )
    refuse_rows(shapely.is_empty(geometry), "the geometry is empty", "Remove the row or draw its line.")
    coordinates, row = shapely.get_coordinates(geometry, return_index=True)
    offset = np.searchsorted(row, np.arange(len(geometry) + 1)).astype(np.int64)
    lon, lat = np.ascontiguousarray(coordinates[:, 0]), np.ascontiguousarray(coordinates[:, 1])

    def rows_with(bad_vertex: Mask) -> Mask:
        return np.bincount(row[bad_vertex], minlength=len(geometry)) > 0

    bad = ~np.asarray(np.isfinite(coordinates).all(axis=1))
    refuse_rows(rows_with(bad), "a coordinate is not a number", "Correct the row.")
    refuse_rows(
        rows_with((abs(lon) > 180) | (abs(lat) > 180)),
        "the coordinates are no degrees; the table looks projected",
        "Reproject it to EPSG:4326 (lon, lat in degrees).",
    )
    refuse_rows(rows_with(abs(lat) > 90), "a latitude is beyond 90 degrees; lon and lat look swapped", "Put lon first.")
    return Lines(offset, lon, lat)


def distance_to_nodes(lines: Lines, nodes: NDArray[np.int32], node_lon: Floats, node_lat: Floats) -> Floats:
    """Return how far the first and the last vertex of each line are from its ``nodes`` [R, 2], in metres [R, 2]."""
    vertex = end_vertices(lines)
    return short_distance_m(lines.lon[vertex], lines.lat[vertex], node_lon[nodes], node_lat[nodes])


def end_vertices(lines: Lines) -> Ints:
    """Return the first and the last vertex of each line [R, 2]."""
    return np.column_stack([lines.offset[:-1], lines.offset[1:] - 1])


def tied_to_nodes(lines: Lines, nodes: NDArray[np.int32], node_lon: Floats, node_lat: Floats) -> Lines:
    """Return the lines with first and last vertices moved onto their ``nodes`` [R, 2]."""
    vertex, lon, lat = end_vertices(lines), lines.lon.copy(), lines.lat.copy()
    lon[vertex], lat[vertex] = node_lon[nodes], node_lat[nodes]
    return Lines(lines.offset, lon, lat)


def reversed_vertices(lines: Lines, which: Ints) -> Ints:
    """Return the vertices of the lines ``which``, each from its end to its start, one line after another."""
    count = np.diff(lines.offset)[which]
    within = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count)
    vertices: Ints = np.repeat(lines.offset[which + 1] - 1, count) - within
    return vertices
