"""osmnx graphs and geopandas frames: there and back without loss, and usable by osmnx itself."""

from __future__ import annotations

import geopandas
import networkx
import numpy as np
import osmium
import osmnx
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import InputError
from tedtrajrec.network.classes import CLASS_NUMBER, ROAD_CLASSES
from tedtrajrec.network.interop import from_osmnx, to_geodataframe, to_osmnx
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid

PORTO = (-8.62, 41.15)


def turns(network: RoadNetwork) -> set[tuple]:
    """Return the allowed turns, each as two segments told by nodes and lines."""
    name = segments(network)
    source = np.repeat(np.arange(network.n_segments), np.diff(network.succ_offset))
    return {(name[a], name[b]) for a, b in zip(source.tolist(), network.succ.tolist(), strict=True)}


def segments(network: RoadNetwork) -> list[tuple]:
    """Return what makes up each segment, in terms that do not depend on numbering."""
    return [
        (
            network.node_id[network.seg_from[i]].item(),
            network.node_id[network.seg_to[i]].item(),
            int(network.road_class[i]),
            float(network.speed_mps[i]),
            network.geometry(i)[0].tobytes(),
            network.geometry(i)[1].tobytes(),
        )
        for i in range(network.n_segments)
    ]


def assert_same(one: RoadNetwork, other: RoadNetwork) -> None:
    assert sorted(segments(one)) == sorted(segments(other))
    assert turns(one) == turns(other)


@st.composite
def cities(draw):
    """Draw a grid with bent roads beside its straight ones: one-way, two-way, loops, of all classes and speeds."""
    grid = make_grid(draw(st.integers(2, 4)), draw(st.integers(2, 4)), one_way_row=draw(st.sampled_from([None, 0, 1])))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    place = np.column_stack([grid.node_lon, grid.node_lat])
    rows = [(u, v, place[[u, v]]) for u, v in zip(grid.seg_from.tolist(), grid.seg_to.tolist(), strict=True)]
    for _ in range(draw(st.integers(0, 10))):
        u, v = rng.integers(0, grid.n_nodes, 2).tolist()
        bends = PORTO + rng.normal(0, 0.01, (int(rng.integers(1, 4)), 2))
        rows.append((u, v, np.vstack([place[u], bends, place[v]])))
        if rng.random() < 0.5:
            rows.append((v, u, rows[-1][2][::-1]))
    lines = np.vstack([line for _, _, line in rows])
    return RoadNetwork.build(
        node_lon=grid.node_lon,
        node_lat=grid.node_lat,
        node_id=grid.node_id if draw(st.booleans()) else np.array([f"n{i}" for i in grid.node_id]),
        seg_from=[u for u, _, _ in rows],
        seg_to=[v for _, v, _ in rows],
        road_class=rng.integers(0, len(ROAD_CLASSES), len(rows)),
        speed_mps=rng.uniform(1, 50, len(rows)),
        geom_offset=np.concatenate([[0], np.cumsum([len(line) for _, _, line in rows])]),
        geom_lon=lines[:, 0],
        geom_lat=lines[:, 1],
        geom_way_id=rng.integers(0, 4, len(lines)),
    )


@settings(max_examples=40, deadline=None)
@given(cities(), st.booleans())
def test_there_and_back_is_the_same(network, u_turns):
    graph = to_osmnx(network)
    again = from_osmnx(graph, u_turns=u_turns)
    rebuilt = RoadNetwork.build(
        **{
            name: array
            for name, array in network.arrays().items()
            if name not in ("length_m", "succ", "succ_offset", "source_id")
        },
        u_turns=u_turns,
    )
    assert_same(again, rebuilt)
    # And a graph that came from osmnx keeps its keys.
    once_more = to_osmnx(again)
    assert set(once_more.edges(keys=True)) == set(graph.edges(keys=True))


@pytest.mark.parametrize("columns", [2, 5])
def test_osmnx_accepts_the_graph(columns):
    network = make_grid(columns, 4)
    graph = to_osmnx(network)
    osmnx.convert.validate_graph(graph, strict=True)
    nodes, edges = osmnx.convert.graph_to_gdfs(graph)
    assert (len(nodes), len(edges)) == (network.n_nodes, network.n_segments)
    assert edges.crs.to_epsg() == 4326
    np.testing.assert_array_equal(nodes["street_count"], list(osmnx.stats.count_streets_per_node(graph).values()))
    again = osmnx.convert.graph_from_gdfs(nodes, edges)
    assert set(again.edges(keys=True)) == set(graph.edges(keys=True))
    osmnx.distance.add_edge_lengths(again)
    np.testing.assert_allclose(
        [d["length"] for *_, d in again.edges(data=True)], [d["length"] for *_, d in graph.edges(data=True)], rtol=3e-3
    )  # osmnx: a sphere


def test_osmnx_finds_nodes_edges_and_routes(tiny_city):
    graph = to_osmnx(tiny_city)
    x, y = tiny_city.node_lon[8] + 1e-5, tiny_city.node_lat[8] + 1e-5
    assert osmnx.distance.nearest_nodes(graph, x, y) == tiny_city.node_id[8]
    assert osmnx.routing.shortest_path(graph, 1000, 1035, weight="length") is not None
    timed = osmnx.routing.add_edge_travel_times(graph)
    time_s = networkx.shortest_path_length(timed, 1000, 1005, weight="travel_time")
    assert time_s == pytest.approx(tiny_city.length_m[0] * 5 / 10.0, rel=1e-6)


@pytest.mark.real
def test_porto_there_and_back(porto):
    graph = to_osmnx(porto)
    osmnx.convert.validate_graph(graph, strict=True)
    again = from_osmnx(graph)
    assert sorted(segments(again)) == sorted(segments(porto))
    assert turns(again) == turns(porto), "Porto has no turn restrictions that could be lost"


@pytest.mark.real
def test_a_graph_that_osmnx_made(peers_dir, tmp_path):
    source, xml = peers_dir / "porto500" / "network.osm.pbf", tmp_path / "porto500.osm"
    known = {node.id for node in osmium.FileProcessor(source, osmium.osm.NODE)}
    with osmium.SimpleWriter(xml) as writer:  # osmnx reads XML only, and no ways cut by the border
        for item in osmium.FileProcessor(source, osmium.osm.NODE | osmium.osm.WAY):
            if not item.is_way() or all(node.ref in known for node in item.nodes):
                writer.add(item)
    graph = osmnx.graph.graph_from_xml(xml, retain_all=True)
    assert any(isinstance(data["highway"], list) for *_, data in graph.edges(data=True))
    network = from_osmnx(graph)
    assert network.n_segments == len(graph.edges) > 1500
    np.testing.assert_allclose(network.length_m, [data["length"] for *_, data in graph.edges(data=True)], rtol=3e-3)
    again = to_osmnx(network)
    assert set(again.edges(keys=True)) == set(graph.edges(keys=True))
    assert all(again.edges[edge]["oneway"] == graph.edges[edge]["oneway"] for edge in graph.edges)


def osmnx_like() -> networkx.MultiDiGraph:
    """Return a graph as osmnx simplifies it, by hand: lists, missing geometry, texts for speeds."""
    graph = networkx.MultiDiGraph(crs="epsg:4326", name="by hand")
    for node, x, y in ((11, -8.62, 41.15), (12, -8.61, 41.15), (13, -8.61, 41.16)):
        graph.add_node(node, x=x, y=y)
    bow = shapely.LineString([(-8.62, 41.15), (-8.615, 41.151), (-8.61, 41.15)])
    graph.add_edge(11, 12, 0, osmid=[7, 8], highway=["residential", "tertiary"], maxspeed=["30", "50"], geometry=bow)
    graph.add_edge(11, 12, 1, osmid=9, highway="trunk", maxspeed="30 mph", oneway=True)
    graph.add_edge(12, 11, 0, osmid=[7, 8], highway="residential", maxspeed=float("nan"), geometry=bow.reverse())
    graph.add_edge(12, 13, 4, highway="busway", maxspeed="signals")
    graph.add_edge(13, 12, 0, osmid=10, highway="primary", speed_kph=33.0, maxspeed="90")
    return graph


def test_a_simplified_graph():
    network = from_osmnx(osmnx_like())
    order = [(11, 12, 0), (11, 12, 1), (12, 11, 0), (12, 13, 4), (13, 12, 0)]
    found = zip(
        network.node_id[network.seg_from].tolist(),
        network.node_id[network.seg_to].tolist(),
        network.source_id.tolist(),
        strict=True,
    )
    assert list(found) == order
    assert [ROAD_CLASSES[c] for c in network.road_class] == ["tertiary", "trunk", "residential", "road", "primary"]
    np.testing.assert_allclose(network.speed_mps * 3.6, [40, 48.28032, 30, 40, 33], rtol=1e-6)
    assert network.osm_way_id.tolist() == [7, 9, 7, 0, 10]
    assert np.diff(network.geom_offset).tolist() == [3, 2, 3, 2, 2]
    assert network.twin.tolist() == [2, -1, 0, 4, 3]
    assert network.successors(0).tolist() == [3], "no U-turn where one can go on"
    assert network.successors(3).tolist() == [4], "but at a dead end"
    assert 2 in from_osmnx(osmnx_like(), u_turns=True).successors(0)
    assert network.meta["unknown_classes"] == {"busway": 1}
    assert set(to_osmnx(network).edges(keys=True)) == set(order)


def test_several_ways_are_a_list_in_order_of_travel():
    grid = make_grid(2, 2, one_way_row=None)
    line = np.linspace(0, 1, 5)
    network = RoadNetwork.build(
        node_lon=grid.node_lon,
        node_lat=grid.node_lat,
        node_id=grid.node_id,
        seg_from=[0],
        seg_to=[1],
        road_class=[CLASS_NUMBER["primary"]],
        speed_mps=[10.0],
        geom_offset=[0, 5],
        geom_lon=grid.node_lon[0] + line * (grid.node_lon[1] - grid.node_lon[0]),
        geom_lat=np.full(5, grid.node_lat[0]),
        geom_way_id=[8, 8, 3, 8, 8],
    )
    ((_, _, data),) = to_osmnx(network).edges(data=True)
    assert data["osmid"] == [8, 3]
    assert data["oneway"] is True


def with_edge(**attributes: object) -> networkx.MultiDiGraph:
    """Return the graph with other attributes of its edge (12, 13, 4)."""
    graph = osmnx_like()
    graph.edges[12, 13, 4].update(attributes)
    return graph


def with_node(**attributes: object) -> networkx.MultiDiGraph:
    """Return the graph without a CRS and with other attributes of its node 12."""
    graph = osmnx_like()
    del graph.graph["crs"]
    graph.nodes[12].update(attributes)
    return graph


TOO_LONG = shapely.LineString([(-8.61, 41.15), (-8.61, 41.161)])
BAD_GRAPHS = {
    "projected": (lambda: osmnx.projection.project_graph(osmnx_like()), "not in EPSG:4326. Unproject it"),
    "projected without crs": (lambda: with_node(x=530_000.0), "looks projected"),
    "undirected": (lambda: networkx.MultiGraph(osmnx_like()), "this is a MultiGraph"),
    "not multi": (lambda: networkx.DiGraph(osmnx_like()), "this is a DiGraph"),
    "no edges": (networkx.MultiDiGraph, "the graph has no edges"),
    "no x": (lambda: with_node(x=float("nan")), "node 12: it has no x and y"),
    "point": (lambda: with_edge(geometry=shapely.Point(0, 0)), "edge (12, 13, 4): the geometry is not a LineString"),
    "text": (lambda: with_edge(geometry="LINESTRING"), "edge (12, 13, 4): the geometry is missing or cannot be read"),
    "far": (lambda: with_edge(geometry=TOO_LONG), "edge (12, 13, 4): its geometry ends 111."),
    "way": (lambda: with_edge(osmid="x"), "edge (12, 13, 4): this is not an OSM way id"),
}


@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_a_bad_graph_is_refused(case):
    make, message = BAD_GRAPHS[case]
    with pytest.raises(InputError) as caught:
        from_osmnx(make())
    assert message in str(caught.value)


def test_two_nodes_of_one_id_are_refused(tiny_city):
    twice = np.zeros(tiny_city.n_nodes, np.int64)
    same = RoadNetwork(**{**tiny_city.arrays(), "node_id": twice})
    with pytest.raises(InputError, match="two nodes of the network have the same id"):
        to_osmnx(same)


def test_geodataframe_has_one_row_per_segment(tiny_city):
    frame = to_geodataframe(tiny_city)
    assert isinstance(frame, geopandas.GeoDataFrame)
    assert frame.index.name == "segment"
    assert frame.crs.to_epsg() == 4326
    np.testing.assert_allclose(frame.to_crs(32629).length, tiny_city.length_m, rtol=1e-3)
    np.testing.assert_array_equal(frame["oneway"], tiny_city.twin < 0)
    assert set(frame["highway"]) == {"residential"}
    np.testing.assert_array_equal(frame["v"].iloc[:3], tiny_city.node_id[tiny_city.seg_to[:3]])
