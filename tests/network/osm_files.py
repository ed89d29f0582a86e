"""Small OpenStreetMap files for tests, written from plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from tedtrajrec.network.roadnet import RoadNetwork

Way = tuple[int, Sequence[int], Mapping[str, str]]
Relation = tuple[int, Sequence[tuple[str, int, str]], Mapping[str, str]]


def write_osm(
    path: Path,
    nodes: Mapping[int, tuple[float, float]],
    ways: Iterable[Way],
    relations: Iterable[Relation] = (),
) -> Path:
    """Write an ``.osm`` file; nodes are metres, roughly, east and north of a place in Porto."""
    lines = ['<osm version="0.6">']
    for node, (x, y) in nodes.items():
        lines.append(f'<node id="{node}" lon="{-8.62 + x / 83_956:.7f}" lat="{41.15 + y / 111_074:.7f}"/>')
    for way, refs, tags in ways:
        lines += [f'<way id="{way}">', *(f'<nd ref="{ref}"/>' for ref in refs), *_tags(tags), "</way>"]
    for relation, members, tags in relations:
        lines.append(f'<relation id="{relation}">')
        lines += [f'<member type="{kind}" ref="{ref}" role="{role}"/>' for kind, ref, role in members]
        lines += [*_tags({"type": "restriction", **tags}), "</relation>"]
    path.write_text("\n".join([*lines, "</osm>"]), encoding="utf-8")
    return path


def connections(network: RoadNetwork) -> list[tuple[int, ...]]:
    """Return for every segment the OSM ids of its ends and how many vertices lie between, sorted."""
    start, end = network.node_id[network.seg_from], network.node_id[network.seg_to]
    between = network.geom_offset[1:] - network.geom_offset[:-1] - 2
    return sorted(zip(start.tolist(), end.tolist(), between.tolist(), strict=True))


def segment(network: RoadNetwork, start: int, end: int) -> int:
    """Return the only segment from one OSM node to another."""
    (found,) = [
        s
        for s in range(len(network))
        if network.node_id[network.seg_from[s]] == start and network.node_id[network.seg_to[s]] == end
    ]
    return found


def _tags(tags: Mapping[str, str]) -> list[str]:
    return [f"<tag k={quoteattr(key)} v={quoteattr(value)}/>" for key, value in tags.items()]
