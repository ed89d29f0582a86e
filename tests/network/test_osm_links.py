import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.network import osm_links

N = 9

way_lists = st.lists(
    st.tuples(
        st.lists(st.integers(-1, N - 1), min_size=0, max_size=7),  # nodes; -1 is missing
        st.integers(0, 1),  # class
        st.sampled_from([(50.0, 50.0), (50.0, 0.0), (0.0, 50.0), (50.0, 30.0)]),  # speeds
    ),
    min_size=1,
    max_size=6,
)


def make(ways):
    nodes = [np.array(way[0], np.int64) for way in ways]
    return osm_links.make_links(
        np.concatenate([[0], np.cumsum([len(way) for way in nodes])]).astype(np.int64),
        np.concatenate(nodes),
        n_nodes=N,
        road_class=np.array([way[1] for way in ways], np.uint8),
        forward_kmh=np.array([way[2][0] for way in ways]),
        backward_kmh=np.array([way[2][1] for way in ways]),
    )


def segments(ways):
    """Return segments as (vertices, class, speed), and the nodes, the long way round through the module."""
    links = make(ways)
    if not len(links.start):
        return [], links
    following, plain = osm_links.find_next(links)
    chains = osm_links.join(links, following, osm_links.anchor_loops(links, ~plain))
    result = []
    for s in range(len(chains.seg_from)):
        vertices = tuple(chains.vertex[chains.geom_offset[s] : chains.geom_offset[s + 1]].tolist())
        link = chains.first_link[s]
        result.append((vertices, int(links.road_class[link]), float(links.kmh[link])))
    return result, links


def expected_links(ways):
    """Return {(start, end): (class, speed)} by plain loops; the first of equals counts."""
    found = {}
    for nodes, road_class, speeds in ways:
        for a, b in itertools.pairwise(nodes):
            if a >= 0 and b >= 0 and a != b:
                for key, kmh in (((a, b), speeds[0]), ((b, a), speeds[1])):
                    if kmh and key not in found:
                        found[key] = (road_class, kmh)
    return found


@given(way_lists)
@settings(max_examples=100, deadline=None)
def test_segments_cover_every_link_once_with_its_attributes(ways):
    found = {}
    for vertices, road_class, kmh in segments(ways)[0]:
        for pair in itertools.pairwise(vertices):
            assert pair not in found
            found[pair] = (road_class, kmh)
    assert found == expected_links(ways)


@given(way_lists)
@settings(max_examples=100, deadline=None)
def test_two_way_roads_are_cut_alike(ways):
    found, _ = segments(ways)
    shapes = {vertices for vertices, _, _ in found}
    links = expected_links(ways)
    for vertices in shapes:
        if all((b, a) in links for a, b in itertools.pairwise(vertices)):
            assert vertices[::-1] in shapes


@given(way_lists)
@settings(max_examples=100, deadline=None)
def test_nodes_are_where_something_is_decided(ways):
    found, _ = segments(ways)
    ends = {v for vertices, _, _ in found for v in (vertices[0], vertices[-1])}
    inner = {v for vertices, _, _ in found for v in vertices[1:-1]}
    assert not ends & inner
    links = expected_links(ways)
    neighbours = {v: {b if a == v else a for a, b in links if v in (a, b)} for v in ends | inner}
    assert all(len(neighbours[v]) == 2 for v in inner)
    for v in ends:
        if len(neighbours[v]) == 2:
            a, b = neighbours[v]
            passes = links.get((a, v)) == links.get((v, b)) and links.get((b, v)) == links.get((v, a))
            if passes:  # then it is the one node that a loop needs
                loops = [vertices for vertices, _, _ in found if vertices[0] == vertices[-1] == v]
                assert len(loops) in (1, 2)


@given(way_lists, st.data())
@settings(max_examples=100, deadline=None)
def test_it_does_not_matter_where_ways_begin_and_end(ways, data):
    pieces = []
    for nodes, road_class, speeds in ways:
        cut = data.draw(st.integers(0, max(len(nodes) - 1, 0)))
        pieces += [(nodes[: cut + 1], road_class, speeds), (nodes[cut:], road_class, speeds)]
    assert segments(pieces)[0] == segments(ways)[0]


def test_contract_joins_neighbours_at_the_same_place_only():
    lon, lat = np.array([0.0, 1.0, 1.0, 1.0, 2.0, 1.0]), np.zeros(6)
    ref = np.array([0, 1, 2, 3, 4, 5, 4])
    # Node 5 lies at the same place, but the way reaches it from elsewhere: a bridge, perhaps.
    assert osm_links.contract(np.array([0, 7]), ref, lon, lat).tolist() == [0, 1, 1, 1, 4, 5]
