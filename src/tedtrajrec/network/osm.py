"""The road network of an OpenStreetMap extract.

osmium reads the file; ``osm_tags``, ``osm_links`` and ``osm_turns`` make of it what a car may use. The rules, with
their reasons, stand in ``docs/network.md``.
"""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import osmium
from numpy.typing import NDArray
from osmium.osm.types import Node, Relation, Way

from tedtrajrec.errors import InputError
from tedtrajrec.files import existing_file
from tedtrajrec.network import osm_links, osm_turns
from tedtrajrec.network.bbox import BBox, check_bbox
from tedtrajrec.network.classes import OSM_ATTRIBUTION
from tedtrajrec.network.osm_tags import LIMITS, RELEVANT, Road, country_code, read_road
from tedtrajrec.network.osm_turns import Junctions, Restriction
from tedtrajrec.network.roadnet import RoadNetwork

SHORT = "no two neighbouring nodes in the extract"
TWICE = "drawn twice"

_NOWHERE = 2**31 - 1  # a coordinate that osmium gives to nodes without a place

_ONE_WAY_FILE = b"<osm version='0.6'><way id='1'><nd ref='1'/></way></osm>"  # a way makes osmium sort its table

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Extract:
    """What an extract holds for cars: W ways with R references to nodes, and the turn restrictions."""

    way_id: Ints  # [W]
    road_class: NDArray[np.uint8]  # [W]
    forward_kmh: Floats  # [W] 0 where closed
    backward_kmh: Floats  # [W]
    ref_offset: Ints  # [W+1]
    ref: Ints  # [R] OSM node ids
    restrictions: list[Restriction]
    left_out: Counter[str]  # ways by reason
    ignored: Counter[str]  # restrictions by reason
    n_odd_maxspeed: int  # ways with a limit that cannot be read


def read_osm(
    path: str | Path, *, bbox: BBox | None = None, service: bool = False, country: str | None = None
) -> RoadNetwork:
    """Build the drivable network of an OpenStreetMap extract; see :meth:`RoadNetwork.from_osm`."""
    path = existing_file(path, "an OpenStreetMap extract")
    _check_options(bbox, country)
    extract = read_extract(path, service=service, country=country)
    if not len(extract.way_id):
        remedy = "Take an extract that holds roads" + ("." if service else ", or ask for service roads too.")
        raise InputError("the extract has no roads for cars", file=path, remedy=remedy)
    node_id, lon, lat = read_nodes(path, extract.ref, bbox)
    ref = _find(node_id, extract.ref)
    same = osm_links.contract(extract.ref_offset, ref, lon, lat)
    ref[ref >= 0] = same[ref[ref >= 0]]
    links = osm_links.make_links(
        extract.ref_offset,
        ref,
        n_nodes=len(node_id),
        road_class=extract.road_class,
        forward_kmh=extract.forward_kmh,
        backward_kmh=extract.backward_kmh,
    )
    if not len(links.start):
        where, remedy = "the extract", "Take an extract that holds the nodes of its ways."
        if bbox is not None:
            where, remedy = f"the bounding box {bbox}", "Give west,south,east,north in degrees."
        raise InputError(f"no road for cars lies in {where}", file=path, remedy=remedy)

    via = _find(node_id, np.array([r.via_node for r in extract.restrictions], np.int64))
    following, plain = osm_links.find_next(links)
    plain[same[via[via >= 0]]] = False  # a turn can only be forbidden where there is a node
    chains = osm_links.join(links, following, osm_links.anchor_loops(links, ~plain))

    node, ends = np.unique(np.concatenate([chains.seg_from, chains.seg_to]), return_inverse=True)
    seg_from, seg_to = ends.astype(np.int32).reshape(2, -1)
    geom_lon, geom_lat, geom_way_id = lon[chains.vertex], lat[chains.vertex], extract.way_id[chains.way]
    junctions = Junctions(node_id[node], seg_from, seg_to, chains.geom_offset, geom_lon, geom_lat, geom_way_id)
    restrictions = [
        dataclasses.replace(restriction, via_node=int(node_id[same[v]])) if v >= 0 else restriction
        for restriction, v in zip(extract.restrictions, via, strict=True)
    ]
    forbidden, not_placed = osm_turns.forbidden_turns(restrictions, junctions)

    drawn = np.searchsorted(extract.ref_offset, osm_links.neighbours(extract.ref_offset, ref), side="right") - 1
    n_drawn, n_used = len(np.unique(drawn)), len(np.unique(links.way))
    left_out = extract.left_out + Counter({SHORT: len(extract.way_id) - n_drawn, TWICE: n_drawn - n_used})
    return RoadNetwork.build(
        node_lon=lon[node],
        node_lat=lat[node],
        node_id=node_id[node],
        seg_from=seg_from,
        seg_to=seg_to,
        road_class=links.road_class[chains.first_link],
        speed_mps=links.kmh[chains.first_link] / 3.6,
        geom_offset=chains.geom_offset,
        geom_lon=geom_lon,
        geom_lat=geom_lat,
        geom_way_id=geom_way_id,
        u_turns=False,
        forbidden_turns=forbidden,
        meta={
            "source": path.name,
            "attribution": OSM_ATTRIBUTION,
            "options": {"bbox": bbox and list(bbox), "service": service, "country": country},
            "ways": n_used,
            "ways_left_out": dict(left_out),
            "nodes_missing": int(len(np.unique(extract.ref)) - len(node_id)),
            "nodes_contracted": int((same != np.arange(len(same))).sum()),
            "links_repeated": links.n_repeated,
            "maxspeed_unreadable": extract.n_odd_maxspeed,
            "restrictions_applied": len(restrictions) - not_placed.total(),
            "restrictions_ignored": dict(extract.ignored + not_placed),
        },
    )


def read_extract(path: Path, *, service: bool = False, country: str | None = None) -> Extract:
    """Read the ways for cars and the turn restrictions of an extract."""
    way_id, ref, count = array("q"), array("q"), array("q")
    road_class, forward, backward = array("B"), array("d"), array("d")
    restrictions: list[Restriction] = []
    left_out, ignored, n_odd = Counter[str](), Counter[str](), 0

    @lru_cache(maxsize=65_536)  # few combinations of tags make up most of the ways
    def road_of(tags: tuple[tuple[str, str], ...]) -> Road | str:
        return read_road(dict(tags), service=service, country=country)

    roads = osmium.filter.KeyFilter("highway")
    roads.enable_for(osmium.osm.WAY)
    turns = osmium.filter.TagFilter(("type", "restriction"))
    turns.enable_for(osmium.osm.RELATION)
    with _readable(path):
        for item in (
            osmium.FileProcessor(str(path), osmium.osm.WAY | osmium.osm.RELATION).with_filter(roads).with_filter(turns)
        ):
            if isinstance(item, Relation):
                members = [(member.type, member.ref, member.role) for member in item.members]
                restriction = osm_turns.parse(item.id, dict(item.tags), members)
                if isinstance(restriction, str):
                    ignored[restriction] += 1
                else:
                    restrictions.append(restriction)
            elif isinstance(item, Way):
                road = road_of(tuple((tag.k, tag.v) for tag in item.tags if tag.k in RELEVANT))
                if isinstance(road, str):
                    left_out[road] += 1
                    continue
                nodes = [node.ref for node in item.nodes]
                way_id.append(item.id)
                ref.extend(nodes)
                count.append(len(nodes))
                road_class.append(road.road_class)
                forward.append(road.forward_kmh)
                backward.append(road.backward_kmh)
                n_odd += road.odd_maxspeed
    return Extract(
        way_id=np.array(way_id, np.int64),
        road_class=np.array(road_class, np.uint8),
        forward_kmh=np.array(forward, np.float64),
        backward_kmh=np.array(backward, np.float64),
        ref_offset=np.concatenate([[0], np.cumsum(np.array(count, np.int64))]).astype(np.int64),
        ref=np.array(ref, np.int64),
        restrictions=restrictions,
        left_out=left_out,
        ignored=ignored,
        n_odd_maxspeed=n_odd,
    )


def read_nodes(path: Path, ref: Ints, bbox: BBox | None = None) -> tuple[Ints, Floats, Floats]:
    """Read the referenced nodes: their ids, ascending, and lon and lat; what is missing or outside ``bbox`` is absent.

    All nodes of the file pass through a table of osmium, 16 bytes each; only the wanted ones come to Python.
    """
    wanted = np.unique(ref)
    x, y = np.full(len(wanted), _NOWHERE), np.full(len(wanted), _NOWHERE)
    table = osmium.index.create_map("flex_mem")
    locations = osmium.NodeLocationsForWays(table)
    locations.ignore_errors()
    with _readable(path):
        osmium.apply(osmium.io.Reader(str(path), osmium.osm.NODE), locations)
        osmium.apply(osmium.io.Reader(osmium.io.FileBuffer(_ONE_WAY_FILE, "osm")), locations)
        for i, node in enumerate(wanted.tolist()):
            if node >= 0:
                with suppress(KeyError):
                    location = table.get(node)
                    x[i], y[i] = location.x, location.y
        negative = {int(node): i for i, node in enumerate(wanted[wanted < 0])}
        if negative:  # editors give such ids to new nodes, and the table does not take them
            for item in osmium.FileProcessor(str(path), osmium.osm.NODE):
                if isinstance(item, Node) and item.id in negative:
                    here = negative[item.id]
                    x[here], y[here] = item.location.x, item.location.y
    lon, lat = x / 1e7, y / 1e7  # as osmium does, so that coordinates are those of the file to the last digit
    known = x != _NOWHERE
    if bbox is not None:
        west, south, east, north = bbox
        known &= (west <= lon) & (lon <= east) & (south <= lat) & (lat <= north)
    return wanted[known], lon[known], lat[known]


def _find(node_id: Ints, wanted: Ints) -> Ints:
    """Return the places of ids in the ascending ``node_id``, -1 for those that are not there."""
    place = np.searchsorted(node_id, wanted)
    place[place == len(node_id)] = 0
    found = node_id[place] == wanted if len(node_id) else np.zeros(len(wanted), bool)
    return np.where(found, place, -1)


def _check_options(bbox: BBox | None, country: str | None) -> None:
    if bbox is not None:
        check_bbox(bbox)
    if country is not None and country_code(country) not in LIMITS:
        known = " ".join(sorted(LIMITS))
        raise InputError(
            f"the speed limits of country '{country}' are not known", remedy=f"Leave it out, or give one of {known}."
        )


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn what osmium raises on a damaged or foreign file into an error that says so."""
    try:
        yield
    except (RuntimeError, ValueError, OSError, osmium.InvalidLocationError) as error:
        raise InputError(
            f"the file cannot be read as OpenStreetMap data ({error})",
            file=path,
            remedy="It must be a whole .osm.pbf, .osm, .osm.gz or .osm.bz2 file; download it again.",
        ) from error
