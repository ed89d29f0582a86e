"""The promises of a road network, checked after every build and load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.classes import ROAD_CLASSES

if TYPE_CHECKING:
    from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]

_DTYPES: dict[str, type[np.generic]] = {
    "node_lon": np.float64,
    "node_lat": np.float64,
    "seg_from": np.int32,
    "seg_to": np.int32,
    "length_m": np.float64,
    "road_class": np.uint8,
    "speed_mps": np.float32,
    "geom_offset": np.int64,
    "geom_lon": np.float64,
    "geom_lat": np.float64,
    "geom_way_id": np.int64,
    "succ_offset": np.int64,
    "succ": np.int32,
}


def check_network(network: RoadNetwork) -> None:
    """Raise :class:`InputError` on the first promise of :class:`RoadNetwork` that does not hold."""
    n, s, g = network.n_nodes, network.n_segments, len(network.geom_lon)
    if s == 0:
        raise InputError("the road network has no segments")
    expected = {
        "node_lon": n, "node_lat": n, "node_id": n, "seg_from": s, "seg_to": s, "length_m": s, "road_class": s,
        "speed_mps": s, "source_id": s, "geom_offset": s + 1, "geom_lon": g, "geom_lat": g, "geom_way_id": g,
        "succ_offset": s + 1, "succ": len(network.succ),
    }  # fmt: skip
    for name, array in network.arrays().items():
        if name in _DTYPES and array.dtype != _DTYPES[name]:
            raise InputError(
                f"the road network is inconsistent: {name} holds {array.dtype}, not {_DTYPES[name].__name__}"
            )
        if name not in _DTYPES and array.dtype.kind not in "iU":
            raise InputError(f"the road network is inconsistent: {name} holds {array.dtype}, not integers or text")
        if array.shape != (expected[name],):
            raise InputError(
                f"the road network is inconsistent: {name} has shape {array.shape}, not ({expected[name]},)"
            )
    _require_offsets("geom_offset", network.geom_offset, g, least=2)
    _require_offsets("succ_offset", network.succ_offset, len(network.succ), least=0)
    checks = {
        "node coordinates are degrees": _are_degrees(network.node_lon, network.node_lat),
        "geometry is in degrees": _are_degrees(network.geom_lon, network.geom_lat),
        "segments join known nodes": _within(network.seg_from, n) and _within(network.seg_to, n),
        "successors are known segments": _within(network.succ, s),
        "lengths are finite and not negative": bool(
            np.isfinite(network.length_m).all() and (network.length_m >= 0).all()
        ),
        "speeds are positive": bool(np.isfinite(network.speed_mps).all() and (network.speed_mps > 0).all()),
        "classes are known": _within(network.road_class, len(ROAD_CLASSES)),
    }
    for promise, holds in checks.items():
        if not holds:
            raise InputError(f"the road network is inconsistent: it is not true that {promise}")
    if np.ptp(network.geom_lon) > 180:
        problem = "the road network lies on both sides of the 180th meridian, where longitudes jump"
        raise InputError(problem, remedy="Take one side, for example with --bbox.")
    source = np.repeat(np.arange(s), np.diff(network.succ_offset))
    if not np.array_equal(network.seg_to[source], network.seg_from[network.succ]):
        raise InputError("the road network is inconsistent: a successor does not start where its segment ends")
    if not np.all((np.diff(network.succ) > 0) | (np.diff(source) > 0)):
        raise InputError("the road network is inconsistent: the successors of a segment are not sorted")
    first, last = network.geom_offset[:-1], network.geom_offset[1:] - 1
    gap = max(
        float(np.abs(network.geom_lon[first] - network.node_lon[network.seg_from]).max()),
        float(np.abs(network.geom_lat[first] - network.node_lat[network.seg_from]).max()),
        float(np.abs(network.geom_lon[last] - network.node_lon[network.seg_to]).max()),
        float(np.abs(network.geom_lat[last] - network.node_lat[network.seg_to]).max()),
    )
    if gap > 1e-6:
        raise InputError(f"the road network is inconsistent: a geometry ends {gap:.6f} degrees away from its node")


def _require_offsets(name: str, offsets: NDArray[np.int64], end: int, least: int) -> None:
    if offsets[0] != 0 or offsets[-1] != end or (len(offsets) > 1 and int(np.diff(offsets).min()) < least):
        raise InputError(f"the road network is inconsistent: {name} does not divide its {end} entries")


def _are_degrees(lon: Floats, lat: Floats) -> bool:
    return bool(
        np.isfinite(lon).all() and np.isfinite(lat).all() and (abs(lon) <= 180).all() and (abs(lat) <= 90).all()
    )


def _within(values: NDArray[Any], end: int) -> bool:
    return not len(values) or (int(values.min()) >= 0 and int(values.max()) < end)
