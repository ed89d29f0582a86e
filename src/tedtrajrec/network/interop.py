"""Road networks to and from osmnx graphs, and to geopandas frames.

Both libraries belong to the extra ``interop``; they are loaded when asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import shapely
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.classes import OSM_ATTRIBUTION, ROAD_CLASSES, default_speed_mps
from tedtrajrec.network.edge_attributes import ids, road_classes, speeds_kmh, way_ids
from tedtrajrec.network.edge_files import require_lonlat
from tedtrajrec.network.edge_lines import SNAP_M, distance_to_nodes, flatten_lines, tied_to_nodes
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.optional import load_optional

if TYPE_CHECKING:
    import geopandas
    import networkx

OSMNX = "osmnx"
"""What ``meta["kind"]`` says of a network that came from osmnx: its source ids are the keys of the edges."""

_UNPROJECT = "Unproject it: osmnx.projection.project_graph(G, to_latlong=True)."

# ---------------------------------------------------------------------- osmnx


def from_osmnx(graph: networkx.MultiDiGraph[Any], *, u_turns: bool = False) -> RoadNetwork:
    """Build a network from an osmnx graph: one segment per edge, in the order of the graph.

    Node ids are kept, and the key of each edge as its ``source_id``, so that (u, v, key) finds it again. The speed is
    ``speed_kph`` or ``maxspeed`` (a list: its mean), else the default of the class; of several classes the most
    important one counts, of several ways the first.

    Parameters
    ----------
    graph
        A MultiDiGraph in EPSG:4326 as osmnx makes it: nodes with x and y, edges with osmid, highway and, where they
        are not straight, geometry.
    u_turns
        Whether a segment may be followed by the one that runs back along it everywhere, or at dead ends only.

    Raises
    ------
    InputError
        If the graph is projected, undirected or without edges, or a node or edge cannot be used.
    """
    if not (graph.is_directed() and graph.is_multigraph()):
        raise InputError(
            f"an osmnx graph is a MultiDiGraph, this is a {type(graph).__name__}",
            remedy="Convert it: networkx.MultiDiGraph(G).",
        )
    edges = list(graph.edges(keys=True, data=True))
    if not edges:
        raise InputError("the graph has no edges")
    if graph.graph.get("crs") is not None:
        require_lonlat(graph.graph["crs"], file=None, remedy=_UNPROJECT)
    node_lon, node_lat = _coordinates(graph)
    number = {node: i for i, node in enumerate(graph.nodes)}
    nodes = np.array([(number[u], number[v]) for u, v, _, _ in edges], np.int32)
    geometry = np.asarray(shapely.linestrings(np.stack([node_lon[nodes], node_lat[nodes]], axis=-1)))
    for i, (*_, data) in enumerate(edges):
        if data.get("geometry") is not None:  # the others are straight
            geometry[i] = data["geometry"]
    try:
        lines = flatten_lines(geometry)
        ways = way_ids(_column(data.get("osmid") for *_, data in edges), file=None)
    except InputError as error:
        raise InputError(f"edge {edges[(error.row or 1) - 1][:3]}: {error.problem}", remedy=error.remedy) from error
    gap = distance_to_nodes(lines, nodes, node_lon, node_lat).max(axis=1)
    if (gap > SNAP_M).any():
        worst = int(gap.argmax())
        raise InputError(f"edge {edges[worst][:3]}: its geometry ends {gap[worst]:.1f} m away from its nodes")
    lines = tied_to_nodes(lines, nodes, node_lon, node_lat)
    road_class, unknown_classes = road_classes(_column(data.get("highway") for *_, data in edges))
    kmh, _, unread_speeds = speeds_kmh(_column(data.get("speed_kph", data.get("maxspeed")) for *_, data in edges))
    default = default_speed_mps(road_class)
    return RoadNetwork.build(
        node_lon=node_lon,
        node_lat=node_lat,
        node_id=ids(_column(graph.nodes))[0],
        seg_from=nodes[:, 0],
        seg_to=nodes[:, 1],
        road_class=road_class,
        speed_mps=np.where(np.isnan(kmh), default, kmh / 3.6),
        source_id=ids(_column(key for _, _, key, _ in edges))[0],
        geom_offset=lines.offset,
        geom_lon=lines.lon,
        geom_lat=lines.lat,
        geom_way_id=np.repeat(ways, np.diff(lines.offset)),
        u_turns=u_turns,
        meta={
            "source": str(graph.graph.get("name") or "an osmnx graph"),
            "kind": OSMNX,
            "options": {"u_turns": u_turns},
            "attribution": OSM_ATTRIBUTION,
            "unknown_classes": unknown_classes,
            "unread_speeds": unread_speeds,
        },
    )


def to_osmnx(network: RoadNetwork) -> networkx.MultiDiGraph[Any]:
    """Return the network as a graph that osmnx's functions accept, in EPSG:4326.

    Nodes go by their ids in the source. Keys count the parallel segments from 0, or are those of the graph that the
    network came from. Edges carry osmid (a list where a segment covers several ways), highway, length, oneway,
    reversed, speed_kph, geometry, and ``segment``, the number of the segment here. Which turns are allowed has no place
    in such a graph and is lost.
    """
    networkx = load_optional("networkx", "interop")
    graph = networkx.MultiDiGraph(crs="epsg:4326", name=str(network.meta.get("source", "")), simplified=True)
    node_id = network.node_id.tolist()
    if len(set(node_id)) < len(node_id):
        raise InputError("two nodes of the network have the same id", remedy="Give every node its own id.")
    places = zip(
        node_id, network.node_lon.tolist(), network.node_lat.tolist(), _street_counts(network).tolist(), strict=True
    )
    graph.add_nodes_from((node, {"x": x, "y": y, "street_count": streets}) for node, x, y, streets in places)
    columns = zip(
        network.seg_from.tolist(),
        network.seg_to.tolist(),
        _edge_keys(network).tolist(),
        _ways_along(network),
        network.road_class.tolist(),
        network.length_m.tolist(),
        (network.twin < 0).tolist(),
        _kmh(network).tolist(),
        _line_strings(network),
        strict=True,
    )
    graph.add_edges_from(
        (
            node_id[u],
            node_id[v],
            key,
            {
                "osmid": ways,
                "highway": ROAD_CLASSES[road_class],
                "length": length,
                "oneway": oneway,
                "reversed": False,
                "speed_kph": kmh,
                "geometry": line,
                "segment": segment,
            },
        )
        for segment, (u, v, key, ways, road_class, length, oneway, kmh, line) in enumerate(columns)
    )
    return graph


def _coordinates(graph: networkx.MultiDiGraph[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = np.array([data.get("x", np.nan) for _, data in graph.nodes(data=True)], np.float64)
    y = np.array([data.get("y", np.nan) for _, data in graph.nodes(data=True)], np.float64)
    bad = ~(np.isfinite(x) & np.isfinite(y))
    if bad.any():
        raise InputError(f"node {list(graph.nodes)[int(bad.argmax())]}: it has no x and y")
    if (abs(x) > 180).any() or (abs(y) > 90).any():
        raise InputError("the x and y of the nodes are no lon and lat; the graph looks projected", remedy=_UNPROJECT)
    return x, y


def _column(values: Iterable[Any]) -> pl.Series:
    """Return attributes as a column of text: lists written out, None and NaN as null."""
    return pl.Series([None if v is None or v != v else str(v) for v in values], dtype=pl.String)  # noqa: PLR0124  (NaN)


def _edge_keys(network: RoadNetwork) -> NDArray[Any]:
    """Return keys that tell parallel segments apart [S]."""
    if network.meta.get("kind") == OSMNX:
        return network.source_id
    order = np.lexsort([network.seg_to, network.seg_from])
    u, v = network.seg_from[order], network.seg_to[order]
    starts = np.flatnonzero(np.concatenate([[True], (u[1:] != u[:-1]) | (v[1:] != v[:-1])]))
    key = np.empty(network.n_segments, np.int64)
    key[order] = np.arange(network.n_segments) - np.repeat(starts, np.diff(np.append(starts, network.n_segments)))
    return key


def _street_counts(network: RoadNetwork) -> NDArray[np.int64]:
    """Return the number of street ends at each node, whatever their directions [N]."""
    ends = np.concatenate([network.seg_from[network.is_road], network.seg_to[network.is_road]])
    return np.bincount(ends, minlength=network.n_nodes)


def _ways_along(network: RoadNetwork) -> list[int | list[int]]:
    """Return the OSM ways of each segment in the order in which it runs along them; one alone is no list."""
    ways = []
    for start, end in zip(network.geom_offset[:-1].tolist(), network.geom_offset[1:].tolist(), strict=True):
        distinct = list(dict.fromkeys(network.geom_way_id[start : end - 1].tolist()))
        ways.append(distinct[0] if len(distinct) == 1 else distinct)
    return ways


# ---------------------------------------------------------------------- geopandas


def to_geodataframe(network: RoadNetwork) -> geopandas.GeoDataFrame:
    """Return one row per segment, indexed by segment: u, v, ids, class, speed, length, oneway and the line (EPSG:4326).

    Written to a file, it is an edge table that :func:`~tedtrajrec.network.edge_table.read_edge_table` reads back.
    """
    geopandas = load_optional("geopandas", "interop")
    columns = {
        "u": network.node_id[network.seg_from],
        "v": network.node_id[network.seg_to],
        "edge_id": network.source_id,
        "osm_way_id": network.osm_way_id,
        "highway": np.array(ROAD_CLASSES)[network.road_class],
        "speed_kmh": _kmh(network),
        "length_m": network.length_m,
        "oneway": network.twin < 0,
    }
    frame = geopandas.GeoDataFrame(columns, geometry=_line_strings(network), crs="EPSG:4326")
    frame.index.name = "segment"
    return frame


def _line_strings(network: RoadNetwork) -> NDArray[Any]:
    segment = np.repeat(np.arange(network.n_segments), np.diff(network.geom_offset))
    return np.asarray(shapely.linestrings(network.geom_lon, network.geom_lat, indices=segment))


def _kmh(network: RoadNetwork) -> NDArray[np.float64]:
    """Return speeds in km/h that give the same m/s again."""
    return network.speed_mps.astype(np.float64) * 3.6
