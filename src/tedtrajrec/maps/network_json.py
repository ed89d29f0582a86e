"""The road network as the page draws it, and which part of it a small map needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CELL_M = 800.0
"""Roads are shown at least this far around a trip, and at most twice as far."""


def network_json(network: RoadNetwork, segments: Ints) -> dict[str, Any]:
    """Return segments as GeoJSON: a line each, with its number, class, OSM way and the segments that may follow."""
    points = np.round(np.column_stack([network.geom_lon, network.geom_lat]), 6).tolist()
    first, last = network.geom_offset[:-1][segments].tolist(), network.geom_offset[1:][segments].tolist()
    features = [
        {
            "type": "Feature",
            "geometry": {"type": "LineString", "coordinates": points[a:b]},
            "properties": {
                "segment": segment,
                "class": ROAD_CLASSES[road_class],
                "osm_way_id": way,
                "length_m": length,
                "speed_kmh": speed,
                "successors": network.successors(segment).tolist(),
            },
        }
        for segment, a, b, road_class, way, length, speed in zip(
            segments.tolist(),
            first,
            last,
            network.road_class[segments].tolist(),
            network.osm_way_id[segments].tolist(),
            np.round(network.length_m[segments], 1).tolist(),
            np.round(network.speed_mps[segments].astype(np.float64) * 3.6).tolist(),
            strict=True,
        )
    ]
    return {"type": "FeatureCollection", "features": features}


def segments_near(network: RoadNetwork, lon: Floats, lat: Floats) -> Ints:
    """Return the segments with a vertex in a cell of :data:`CELL_M` metres that holds a point, or in one beside it."""
    columns, rows = (np.floor(metres / CELL_M).astype(np.int64) for metres in network.plane.to_xy(lon, lat))
    near = np.unique(np.concatenate([_cell(columns + right, rows + up) for right in (-1, 0, 1) for up in (-1, 0, 1)]))
    x, y = (np.floor(metres / CELL_M).astype(np.int64) for metres in network.geom_xy)
    inside = np.isin(_cell(x, y), near)
    return np.flatnonzero(np.add.reduceat(inside, network.geom_offset[:-1]) > 0)


def _cell(column: Ints, row: Ints) -> Ints:
    return (column + (1 << 30)) * (1 << 31) + row + (1 << 30)
