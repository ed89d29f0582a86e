import dataclasses
import itertools

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from tedtrajrec.network import osm_turns
from tedtrajrec.network.osm import read_extract
from tedtrajrec.network.osm_turns import Junctions, Restriction
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.turns import connect
from tests.network.osm_files import write_osm

FROM, VIA, TO = ("w", 1, "from"), ("n", 10, "via"), ("w", 2, "to")


def junctions(network: RoadNetwork) -> Junctions:
    return Junctions(*(getattr(network, field.name) for field in dataclasses.fields(Junctions)))


# ---------------------------------------------------------------------------------------------- reading relations


@pytest.mark.parametrize(
    ("tags", "kind"),
    [
        ({"restriction": "no_left_turn"}, "no_left_turn"),
        ({"restriction:motorcar": "no_u_turn"}, "no_u_turn"),
        ({"restriction:motor_vehicle": "only_straight_on", "restriction": "no_left_turn"}, "only_straight_on"),
        ({"restriction": "no_left_turn", "except": "psv;bicycle"}, "no_left_turn"),
        ({"restriction": "no_left_turn", "restriction:conditional": "none @ (Su)"}, "no_left_turn"),
        ({"restriction": "no_left_turn", "restriction:hgv": "no_right_turn"}, "no_left_turn"),
    ],
)
def test_what_holds_for_cars(tags, kind):
    assert osm_turns.parse(5, tags, [FROM, VIA, TO]) == Restriction(5, kind, (1,), 10, (2,))


@pytest.mark.parametrize(
    ("tags", "members", "reason"),
    [
        ({"restriction:hgv": "no_left_turn"}, [FROM, VIA, TO], osm_turns.OTHER_VEHICLES),
        ({"restriction": "no_left_turn", "except": "motorcar"}, [FROM, VIA, TO], osm_turns.OTHER_VEHICLES),
        ({"restriction": "no_left_turn", "except": "psv; motor_vehicle"}, [FROM, VIA, TO], osm_turns.OTHER_VEHICLES),
        ({"restriction:conditional": "no_left_turn @ (Mo-Fr)"}, [FROM, VIA, TO], osm_turns.CONDITIONAL),
        ({"restriction:motorcar:conditional": "no_left_turn @ (Su)"}, [FROM, VIA, TO], osm_turns.CONDITIONAL),
        ({"restriction": "no_left_turn", "hour_on": "07:00"}, [FROM, VIA, TO], osm_turns.CONDITIONAL),
        ({"restriction": "no_left_turn"}, [FROM, ("w", 3, "via"), TO], osm_turns.VIA_WAY),
        ({"restriction": "no_left_turn"}, [FROM, ("w", 3, "via"), VIA, TO], osm_turns.VIA_WAY),
        ({"restriction": "no_left_turn"}, [FROM, TO], osm_turns.MALFORMED),
        ({"restriction": "no_left_turn"}, [FROM, VIA], osm_turns.MALFORMED),
        ({"restriction": "no_left_turn"}, [VIA, TO], osm_turns.MALFORMED),
        ({"restriction": "no_left_turn"}, [("n", 1, "from"), VIA, TO], osm_turns.MALFORMED),
        ({"restriction": "no_left_turn"}, [FROM, VIA, ("n", 11, "via"), TO], osm_turns.MALFORMED),
        ({"restriction": "no_left_turn"}, [FROM, ("w", 3, "from"), VIA, TO], osm_turns.MALFORMED),
        ({"restriction": "no_turn_at_all"}, [FROM, VIA, TO], osm_turns.MALFORMED),
        ({"restriction": "no_exit"}, [FROM, ("w", 3, "from"), VIA, TO], osm_turns.MALFORMED),
    ],
)
def test_what_does_not(tags, members, reason):
    assert osm_turns.parse(5, tags, members) == reason


def test_no_entry_and_no_exit_have_several_members():
    third = ("w", 3, "from")
    assert osm_turns.parse(5, {"restriction": "no_entry"}, [FROM, third, VIA, TO]).from_ways == (1, 3)
    third = ("w", 3, "to")
    assert osm_turns.parse(5, {"restriction": "no_exit"}, [FROM, VIA, TO, third]).to_ways == (2, 3)


# ---------------------------------------------------------------------------------------------- a crossing
#
#            4
#            |  40                Ways 10, 20, 30, 40 end at node 9, in the middle. Way 20 is cut by a side street at
#   1 - - - 9 - 8 - - 2          node 8. Way 30 is drawn away from node 9, the others towards it.
#     10     |    20
#            3  30
NODES = {1: (-100, 0), 2: (100, 0), 3: (0, -100), 4: (0, 100), 9: (0, 0), 8: (50, 0), 7: (50, 50)}


def crossing(tmp_path, value, *members, one_way=(), through=False, key="restriction"):
    street = {"highway": "residential"}
    shapes = {10: [1, 9], 20: [2, 8, 9], 30: [9, 3], 40: [4, 9], 50: [8, 7]}
    if through:  # 10 and 20 are one way, not cut at the crossing as the map's rules want it
        del shapes[20]
        shapes[10] = [1, 9, 8, 2]
    ways = [(way, refs, {**street, "oneway": "yes"} if way in one_way else street) for way, refs in shapes.items()]
    relations = [(5, [("node", 9, "via"), *members], {key: value})] if value else []
    return RoadNetwork.from_osm(write_osm(tmp_path / "crossing.osm", NODES, ways, relations))


def turns(network):
    """Return the turns at node 9 as (node before, node after)."""
    node = int(np.searchsorted(network.node_id, 9))
    return {
        (int(network.node_id[network.seg_from[s]]), int(network.node_id[network.seg_to[t]]))
        for s in np.flatnonzero(network.seg_to == node)
        for t in network.successors(s)
    }


ALL = {(a, b) for a in (1, 8, 3, 4) for b in (1, 8, 3, 4) if a != b}


def way(role, ref):
    return ("way", ref, role)


def test_without_restrictions(tmp_path):
    assert turns(crossing(tmp_path, None)) == ALL


def test_no_turn_takes_one_pair_away(tmp_path):
    network = crossing(tmp_path, "no_left_turn", way("from", 10), way("to", 40))
    assert turns(network) == ALL - {(1, 4)}
    assert network.meta["restrictions_applied"] == 1


def test_the_piece_that_touches_the_node_is_meant(tmp_path):
    assert turns(crossing(tmp_path, "no_left_turn", way("from", 20), way("to", 30))) == ALL - {(8, 3)}
    assert turns(crossing(tmp_path, "no_right_turn", way("from", 30), way("to", 20))) == ALL - {(3, 8)}


def test_only_turn_takes_all_others_away(tmp_path):
    network = crossing(tmp_path, "only_straight_on", way("from", 10), way("to", 20))
    assert turns(network) == ALL - {(1, 4), (1, 3)}


def test_two_only_restrictions_allow_both_turns(tmp_path):
    street = {"highway": "residential"}
    ways = [(10, [1, 9], street), (20, [9, 2], street), (30, [9, 3], street), (40, [4, 9], street)]
    relations = [
        (5, [("node", 9, "via"), way("from", 10), way("to", 20)], {"restriction": "only_straight_on"}),
        (6, [("node", 9, "via"), way("from", 10), way("to", 30)], {"restriction": "only_right_turn"}),
    ]
    network = RoadNetwork.from_osm(write_osm(tmp_path / "a.osm", NODES, ways, relations))
    assert {b for a, b in turns(network) if a == 1} == {2, 3}
    assert network.meta["restrictions_applied"] == 2


def test_no_entry_and_no_exit(tmp_path):
    network = crossing(tmp_path, "no_entry", way("from", 10), way("from", 20), way("to", 30))
    assert turns(network) == ALL - {(1, 3), (8, 3)}
    network = crossing(tmp_path, "no_exit", way("from", 10), way("to", 30), way("to", 40))
    assert turns(network) == ALL - {(1, 3), (1, 4)}


def test_for_cars_only(tmp_path):
    network = crossing(tmp_path, "no_left_turn", way("from", 10), way("to", 40), key="restriction:motorcar")
    assert turns(network) == ALL - {(1, 4)}
    network = crossing(tmp_path, "no_left_turn", way("from", 10), way("to", 40), key="restriction:hgv")
    assert turns(network) == ALL


@pytest.mark.parametrize(
    ("value", "members", "options", "reason"),
    [
        ("no_left_turn", [way("from", 10), way("to", 77)], {}, osm_turns.ABSENT_WAY),
        ("no_left_turn", [way("from", 10), way("to", 50)], {}, osm_turns.APART),
        ("no_left_turn", [way("from", 10), way("to", 40)], {"one_way": [40]}, osm_turns.ONE_WAY),
        ("no_left_turn", [way("from", 30), way("to", 10)], {"one_way": [30]}, osm_turns.ONE_WAY),
        ("only_left_turn", [way("from", 10), way("to", 40)], {"one_way": [40]}, osm_turns.ONE_WAY),
        ("only_right_turn", [way("from", 10), way("to", 30)], {"one_way": [10, 20, 40]}, osm_turns.REDUNDANT),
        ("no_left_turn", [way("from", 10), way("to", 40)], {"through": True}, osm_turns.AMBIGUOUS),
    ],
)
def test_what_cannot_be_placed_forbids_nothing(tmp_path, value, members, options, reason):
    network = crossing(tmp_path, value, *members, **options)
    assert network.meta["restrictions_ignored"] == {reason: 1}
    assert network.meta["restrictions_applied"] == 0
    assert turns(network) == turns(crossing(tmp_path, None, **options))


def test_a_one_way_that_runs_through_the_node_is_not_ambiguous(tmp_path):
    network = crossing(tmp_path, "no_left_turn", way("from", 10), way("to", 40), through=True, one_way=[10])
    assert turns(network) == turns(crossing(tmp_path, None, through=True, one_way=[10])) - {(1, 4)}


def test_via_node_beyond_the_border(tmp_path):
    relations = [(5, [("node", 99, "via"), way("from", 10), way("to", 20)], {"restriction": "no_u_turn"})]
    ways = [(10, [1, 9], {"highway": "primary"}), (20, [9, 2], {"highway": "primary"})]
    network = RoadNetwork.from_osm(write_osm(tmp_path / "a.osm", NODES, ways, relations))
    assert network.meta["restrictions_ignored"] == {osm_turns.ABSENT_NODE: 1}


def test_via_node_in_the_middle_of_a_road_stays_a_node(tmp_path):
    relations = [(5, [("node", 9, "via"), way("from", 10), way("to", 20)], {"restriction": "no_straight_on"})]
    ways = [(10, [1, 9], {"highway": "primary"}), (20, [9, 2], {"highway": "primary"})]
    network = RoadNetwork.from_osm(write_osm(tmp_path / "a.osm", NODES, ways, relations))
    assert len(network) == 4
    assert turns(network) == {(1, 1), (2, 1)}  # coming from 1 all that is left is to turn back


def test_via_node_that_was_contracted(tmp_path):
    nodes = {1: (-100, 0), 8: (0, 0), 9: (0, 0), 2: (100, 0), 4: (0, 100)}
    relations = [(5, [("node", 9, "via"), way("from", 10), way("to", 40)], {"restriction": "no_left_turn"})]
    street = {"highway": "residential"}
    ways = [(10, [1, 8, 9], street), (20, [9, 2], street), (40, [9, 4], street)]
    network = RoadNetwork.from_osm(write_osm(tmp_path / "a.osm", nodes, ways, relations))
    assert network.meta["restrictions_applied"] == 1


# ---------------------------------------------------------------------------------------------- real restrictions

EXPLAINED = {
    # Relation 6244186: its from way 419935504 is one-way and begins at the via node, so nobody arrives on it.
    6244186: osm_turns.ONE_WAY,
    # Relation 7101880: no U-turn on way 477534918, which is one-way already.
    7101880: osm_turns.ONE_WAY,
}


@pytest.fixture(scope="module")
def porto500(peers_dir):
    path = peers_dir / "porto500" / "network.osm.pbf"
    return RoadNetwork.from_osm(path), read_extract(path)


@pytest.mark.real
def test_every_restriction_of_porto500_is_applied_or_explained(porto500):
    network, extract = porto500
    assert len(extract.restrictions) == 38
    assert not extract.ignored
    outcome = {r.relation_id: junctions(network).forbidden(r) for r in extract.restrictions}
    assert {relation: found for relation, found in outcome.items() if isinstance(found, str)} == EXPLAINED
    assert network.meta["restrictions_applied"] == 36
    assert network.meta["restrictions_ignored"] == {osm_turns.ONE_WAY: 2}
    for restriction in extract.restrictions:
        if restriction.relation_id in EXPLAINED:
            continue
        for a, b in outcome[restriction.relation_id]:
            assert b not in network.successors(a)
            # Read the rule anew from the geometry: both touch the via node, on the ways that the relation names.
            assert network.node_id[network.seg_to[a]] == restriction.via_node
            assert network.node_id[network.seg_from[b]] == restriction.via_node
            assert network.way_at(a, 1.0) in restriction.from_ways
            assert (network.way_at(b, 0.0) in restriction.to_ways) == restriction.kind.startswith("no_")


@pytest.mark.real
def test_routes_go_round_the_restrictions_of_porto500(porto500):
    network, extract = porto500
    pairs, _ = osm_turns.forbidden_turns(extract.restrictions, junctions(network))
    source = np.repeat(np.arange(len(network)), np.diff(network.succ_offset))
    graph = sparse.csr_array((network.length_m[network.succ], (source, network.succ)), shape=(len(network),) * 2)
    distance, before = csgraph.dijkstra(graph, indices=pairs[:, 0], return_predecessors=True)
    forbidden = set(map(tuple, pairs.tolist()))
    n_round = 0
    for row, (a, b) in enumerate(pairs.tolist()):
        if np.isfinite(distance[row, b]):
            route = [b]
            while route[-1] != a:
                route.append(int(before[row, route[-1]]))
            assert len(route) > 2  # something lies between a and b
            assert not set(itertools.pairwise(route[::-1])) & forbidden
            n_round += 1
    # Of the other seven, in this extract of 500 routes, the first has no other way on or the second no other way in.
    assert (n_round, len(pairs)) == (31, 38)
    # The rules matter: without them these turns would be free; the others are U-turns where the road goes on.
    offset, free = connect(network.seg_from, network.seg_to, network.twin, u_turns=False)
    assert sum(b in free[offset[a] : offset[a + 1]] for a, b in pairs) == 32
