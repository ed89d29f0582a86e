"""A road network from an edge table: one row per directed segment with u, v and a line (``docs/edge-tables.md``)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import shapely
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.bbox import BBox, check_bbox
from tedtrajrec.network.classes import OSM_ATTRIBUTION, default_speed_mps
from tedtrajrec.network.edge_attributes import ids, road_classes, speeds_kmh, tidy, way_ids
from tedtrajrec.network.edge_files import read_edge_rows
from tedtrajrec.network.edge_lines import (
    SNAP_M,
    Floats,
    Ints,
    Lines,
    Mask,
    distance_to_nodes,
    end_vertices,
    flatten_lines,
    refuse,
    reversed_vertices,
    tied_to_nodes,
)
from tedtrajrec.network.polylines import lengths, measure, ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.turns import find_twins

NODE_NAMES = (
    ("u", "v"),
    ("from", "to"),
    ("source", "target"),
    ("start_node", "end_node"),
    ("from_node", "to_node"),
    ("source_node", "target_node"),
    ("from_id", "to_id"),
    ("from_node_id", "to_node_id"),
    ("node_from", "node_to"),
    ("node_start", "node_end"),
    ("start", "end"),
)
"""Pairs of names of the node columns, best first."""

ID_NAMES = ("edge_id", "id", "fid", "segment_id", "seg_id", "link_id", "road_id", "key")
WAY_NAMES = ("osm_way_id", "osmid", "way_id", "osm_id")
CLASS_NAMES = ("highway", "road_class", "class", "fclass", "road_type", "type")
SPEED_NAMES = ("speed_mps", "speed_kmh", "speed_kph", "speed_limit", "maxspeed", "max_speed")
ONEWAY_NAMES = ("oneway", "one_way")

TWO_WAY = ("no", "false", "0", "f")
AGAINST = ("-1", "reverse")


def read_edge_table(path: str | Path, *, bbox: BBox | None = None, u_turns: bool = True) -> RoadNetwork:
    """Build a network from an edge table: GeoJSON, GeoParquet, or CSV or TSV with WKT; text formats also gzipped.

    Segments come in the order of the rows. What was dropped, moved or added is counted in ``meta``.

    Parameters
    ----------
    path
        The table. It needs columns u and v and a geometry that runs from u to v; other columns are kept where known.
    bbox
        West, south, east, north in degrees; rows that are not wholly inside are left out.
    u_turns
        Whether a segment may be followed by the one that runs back along it everywhere, or at dead ends only.

    Raises
    ------
    InputError
        If the bounding box is none, or on the first row that cannot be used.
    """
    path = Path(path)
    if bbox is not None:
        check_bbox(bbox)
    rows = read_edge_rows(path)
    table = rows.attributes
    node_id, nodes = _number_nodes(table, path)
    drawn = flatten_lines(rows.geometry, file=path, field=rows.geometry_name)
    node_lon, node_lat, moved_ends = _place_nodes(drawn, nodes, node_id, path)
    lines = tied_to_nodes(drawn, nodes, node_lon, node_lat)
    road_class, unknown_classes = _classes(table)
    speed_mps, unread_speeds = _speeds(table, road_class, path)
    source_id = _source_ids(table, path)
    way_name = _find(table.columns, WAY_NAMES)
    way = np.zeros(len(table), np.int64) if way_name is None else way_ids(table[way_name], file=path)

    first_like_it = _first_rows_alike(lines, nodes)
    repeated = first_like_it != np.arange(len(table))
    still = lengths(lines.offset, measure(*lines)) == 0
    still_loop = still & (nodes[:, 0] == nodes[:, 1])
    outside = _is_outside(lines, bbox)
    keep = np.flatnonzero(~(repeated | still_loop | outside))
    if not len(keep):
        extent = f"{lines.lon.min():.4f},{lines.lat.min():.4f},{lines.lon.max():.4f},{lines.lat.max():.4f}"
        where = "no row lies inside the bounding box" if outside.any() else "no row has a length"
        raise InputError(f"{where}; the table covers {extent}", file=path)
    back = _missing_directions(table, lines, nodes, keep, path)

    row = np.concatenate([keep, back])
    vertices = np.concatenate([ranges(lines.offset[keep], np.diff(lines.offset)[keep]), reversed_vertices(lines, back)])
    count = np.diff(lines.offset)[row]
    used, ends = np.unique(np.concatenate([nodes[keep], nodes[back][:, ::-1]]), return_inverse=True)
    meta = {
        "source": path.name,
        "kind": "edge table",
        "options": {"bbox": bbox and list(bbox), "u_turns": u_turns},
        "rows": len(table),
        "rows_repeated": int(repeated.sum()),
        "repeated_ids": {
            str(source_id[i]): source_id[first_like_it[i]].item()
            for i in np.flatnonzero(repeated & (source_id != source_id[first_like_it]))
        },
        "rows_without_extent": int((still_loop & ~repeated).sum()),
        "rows_outside_bbox": int((outside & ~repeated & ~still_loop).sum()),
        "segments_added_backwards": len(back),
        "segments_of_zero_length": int(still[row].sum()),
        "ends_moved": moved_ends,
        "unknown_classes": unknown_classes,
        "unread_speeds": unread_speeds,
    }
    if way_name is not None:
        meta["attribution"] = OSM_ATTRIBUTION
    return RoadNetwork.build(
        node_lon=node_lon[used],
        node_lat=node_lat[used],
        node_id=node_id[used],
        seg_from=ends.reshape(-1, 2)[:, 0],
        seg_to=ends.reshape(-1, 2)[:, 1],
        road_class=road_class[row],
        speed_mps=speed_mps[row],
        source_id=source_id[row],
        geom_offset=np.concatenate([[0], np.cumsum(count)]),
        geom_lon=lines.lon[vertices],
        geom_lat=lines.lat[vertices],
        geom_way_id=np.repeat(way[row], count),
        u_turns=u_turns,
        meta=meta,
    )


# ---------------------------------------------------------------------- nodes


def _number_nodes(table: pl.DataFrame, path: Path) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """Return the node ids in the order of their first rows, and the numbers of each row's nodes u and v [R, 2]."""
    names = [(_find(table.columns, (u,)), _find(table.columns, (v,))) for u, v in NODE_NAMES]
    u, v = next((pair for pair in names if None not in pair), (None, None))
    if u is None or v is None:
        raise InputError(
            f"there are no columns u and v with the nodes of each segment; the columns are {', '.join(table.columns)}",
            file=path,
            remedy="Name them u and v (or from and to, source and target, ...).",
        )
    for name in (u, v):
        refuse(tidy(table[name]).is_null().to_numpy(), "the node is missing", file=path, field=name)
    both = np.column_stack(ids(table[u], table[v])).ravel()
    distinct, first, where = np.unique(both, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order))
    return distinct[order], number[where.ravel()].reshape(-1, 2)


def _place_nodes(
    lines: Lines, nodes: NDArray[np.int32], node_id: NDArray[Any], path: Path
) -> tuple[Floats, Floats, int]:
    """Return lon and lat of each node where the first row has it, and how many ends of other rows are not quite there.

    An end that is more than a metre away is refused.
    """
    _, first = np.unique(nodes, return_index=True)
    vertex = end_vertices(lines).ravel()[first]
    node_lon, node_lat = lines.lon[vertex], lines.lat[vertex]
    gap = distance_to_nodes(lines, nodes, node_lon, node_lat)
    if (gap > SNAP_M).any():
        row, end = divmod(int((gap > SNAP_M).argmax()), 2)
        node = nodes[row, end]
        turned = distance_to_nodes(lines, nodes[:, ::-1], node_lon, node_lat)[row]
        raise InputError(
            f"its line {('starts', 'ends')[end]} {gap[row, end]:.1f} m away from where row {first[node] // 2 + 1} has"
            f" node {node_id[node]}",
            file=path,
            row=row + 1,
            remedy="The line runs from v to u: swap them or reverse it."
            if turned.max() <= SNAP_M
            else "Lines that share a node must meet there, and run from u to v.",
        )
    return node_lon, node_lat, int((gap > 0).sum())


# ---------------------------------------------------------------------- attributes


def _find(columns: Sequence[str], names: Sequence[str]) -> str | None:
    """Return the column that goes under the first of the given names that occurs, in any case, or None."""
    by_name = {column.strip().lower(): column for column in reversed(columns)}
    return next((by_name[name] for name in names if name in by_name), None)


def _source_ids(table: pl.DataFrame, path: Path) -> NDArray[Any]:
    name = _find(table.columns, ID_NAMES)
    if name is None:
        return np.arange(len(table))
    refuse(
        tidy(table[name]).is_null().to_numpy(),
        "the id is missing",
        file=path,
        field=name,
        remedy="Fill the column, or remove it to use row numbers.",
    )
    return ids(table[name])[0]


def _classes(table: pl.DataFrame) -> tuple[NDArray[np.uint8], dict[str, int]]:
    name = _find(table.columns, CLASS_NAMES)
    return road_classes(table[name] if name else pl.Series([None] * len(table), dtype=pl.String))


def _speeds(table: pl.DataFrame, road_class: NDArray[np.uint8], path: Path) -> tuple[NDArray[np.float32], int]:
    """Return speeds from the first speed column that knows one, else from the class; and how many were unreadable."""
    mps, unread_in_all = np.full(len(table), np.nan), 0
    for alias in SPEED_NAMES:
        name = _find(table.columns, (alias,))
        if name is None:
            continue
        kmh, impossible, unread = speeds_kmh(table[name] if alias != "speed_mps" else _mps_to_kmh(table[name], path))
        refuse(
            impossible,
            "this is not the speed of a car",
            file=path,
            field=name,
            remedy="Speeds are in km/h (speed_mps: in m/s); leave them empty where unknown.",
        )
        unread_in_all += unread
        mps = np.where(np.isnan(mps), kmh / 3.6, mps)
    return np.where(np.isnan(mps), default_speed_mps(road_class), mps).astype(np.float32), unread_in_all


def _mps_to_kmh(column: pl.Series, path: Path) -> pl.Series:
    text = tidy(column)
    mps = text.cast(pl.Float64, strict=False)
    refuse((text.is_not_null() & mps.is_null()).to_numpy(), "this is not a number", file=path, field=column.name)
    return mps * 3.6


# ---------------------------------------------------------------------- rows that are too many or too few


def _first_rows_alike(lines: Lines, nodes: NDArray[np.int32]) -> Ints:
    """Return for each row the first one with the same nodes and line [R]: itself, unless it is a repetition."""
    line = shapely.linestrings(lines.lon, lines.lat, indices=np.repeat(np.arange(len(nodes)), np.diff(lines.offset)))
    rows = pl.DataFrame(
        {"u": nodes[:, 0], "v": nodes[:, 1], "line": shapely.to_wkb(line), "row": np.arange(len(nodes))}
    )
    return rows.select(pl.col("row").min().over("u", "v", "line")).to_series().to_numpy()


def _is_outside(lines: Lines, bbox: BBox | None) -> Mask:
    if bbox is None:
        return np.zeros(len(lines.offset) - 1, bool)
    west, south, east, north = bbox
    inside = (lines.lon >= west) & (lines.lon <= east) & (lines.lat >= south) & (lines.lat <= north)
    return ~np.logical_and.reduceat(inside, lines.offset[:-1])


def _missing_directions(table: pl.DataFrame, lines: Lines, nodes: NDArray[np.int32], keep: Ints, path: Path) -> Ints:
    """Return the rows to be driven backwards too: those that say ``oneway=no`` in a table that lists each road once.

    Most tables, osmnx exports among them, list both directions; ``oneway`` then only repeats what the rows say. A table
    lists each road once if most of its two-way rows have no row that runs back along them.
    """
    name = _find(table.columns, ONEWAY_NAMES)
    if name is None:
        return np.zeros(0, np.int64)
    value = tidy(table[name]).cast(pl.String).str.to_lowercase().str.replace(r"\.0+$", "")[keep]
    two_way = keep[value.is_in(TWO_WAY).fill_null(value=False).to_numpy()]
    alone: Ints = two_way[find_twins(nodes[:, 0], nodes[:, 1], *lines)[two_way] < 0]
    if 2 * len(alone) <= len(two_way):
        return np.zeros(0, np.int64)
    against = np.zeros(len(table), bool)
    against[keep] = value.is_in(AGAINST).fill_null(value=False).to_numpy()
    refuse(
        against,
        "this road is one-way against its line",
        file=path,
        field=name,
        remedy="Reverse the line and swap u and v.",
    )
    return alone
