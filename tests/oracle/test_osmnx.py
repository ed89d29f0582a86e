"""The same ways through osmnx must give the same directed connections between junctions."""

from collections import Counter

import osmium
import osmnx
import pytest

from tedtrajrec.network.classes import DEFAULT_SPEED_KMH
from tedtrajrec.network.osm import read_extract

PORTUGAL_KMH = {"PT:urban": 50, "PT:zone30": 30, "PT:zone20": 20}


def limit(tags):
    """Return the speed limit of a way of Porto, where all are plain numbers or one of three kinds."""
    for key in ("maxspeed", "maxspeed:type", "source:maxspeed"):
        value = tags.get(key, "")
        if value.isdigit() or value in PORTUGAL_KMH:
            return int(PORTUGAL_KMH.get(value, value))
    return int(DEFAULT_SPEED_KMH[tags["highway"]])


@pytest.mark.real
def test_porto_has_the_connections_that_osmnx_finds(porto, data_dir, tmp_path):
    source = data_dir / "porto" / "porto.osm.pbf"
    extract = read_extract(source)
    ways, nodes = set(extract.way_id.tolist()), set(extract.ref.tolist())
    tags = {}
    drivable = tmp_path / "drivable.osm"  # osmnx has no filter for files: give it the ways that we use, and their nodes
    with osmium.SimpleWriter(str(drivable)) as writer:
        for item in osmium.FileProcessor(str(source)):
            if item.is_way() and item.id in ways:
                tags[item.id] = dict(item.tags)
                writer.add(item)
            elif item.is_node() and item.id in nodes:
                writer.add(item)
    graph = osmnx.graph_from_xml(drivable, simplify=False, retain_all=True)
    # Five ways differ, all one-way by rules that osmnx does not have: motor_vehicle:backward=no closes one direction of
    # four, and one is a motorway without a oneway tag.
    lane = {way for way, found in tags.items() if found.get("motor_vehicle:backward") == "no"}
    motorway = {way for way, found in tags.items() if found["highway"] == "motorway" and "oneway" not in found}
    edges = list(graph.edges(keys=True, data=True))
    against = [(u, v, key) for u, v, key, edge in edges if edge["osmid"] in lane | motorway and edge["reversed"]]
    assert len(lane) == 4
    assert motorway == {1099481915}
    assert {graph.edges[edge]["osmid"] for edge in against} == lane | motorway
    graph.remove_edges_from(against)
    for _, _, edge in graph.edges(data=True):
        edge["road"] = f"{edge['highway']} {limit(tags[edge['osmid']])}"
    graph = osmnx.simplify_graph(graph, edge_attrs_differ=["road"], remove_rings=False)

    theirs = Counter((u, v) for u, v, _ in graph.edges)
    ours = Counter(zip(porto.node_id[porto.seg_from].tolist(), porto.node_id[porto.seg_to].tolist(), strict=True))
    assert ours == theirs  # parallel roads counted
    assert set(porto.node_id.tolist()) == set(graph.nodes)
    # Lengths too, though osmnx measures on a sphere.
    assert porto.length_m.sum() == pytest.approx(sum(edge["length"] for _, _, edge in graph.edges(data=True)), rel=3e-3)
