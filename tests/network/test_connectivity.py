import numpy as np
import pytest

from tedtrajrec.network.connectivity import largest_component, lost_pieces, strong_components
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.network.test_routing import make_roads


def one_way_city():
    """Return a two-way square with a one-way road out of it, one into it, one that passes it, and one far away."""
    points = [(0, 0), (100, 0), (100, 100), (0, 100), (200, 100), (320, 100), (-150, 0), (900, 900), (940, 900)]
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    lines = [*ring, *(line[::-1] for line in ring), (2, 4), (4, 5), (6, 0), (7, 8), (8, 7)]
    return make_roads(points, lines, geom_way_id=np.repeat(np.arange(len(lines)) + 100, 2), u_turns=True)


def test_a_grid_is_one_component(tiny_city):
    assert (strong_components(tiny_city) == 0).all()
    assert lost_pieces(tiny_city) == []
    assert largest_component(tiny_city).hash == tiny_city.hash


def test_components_are_numbered_by_their_length():
    network = one_way_city()
    labels = strong_components(network)
    assert list(labels[:8]) == [0] * 8
    assert labels[11] == labels[12]
    # 150 m in, 120 m out, 100 m out (each its own), 2 x 40 m far away
    assert list(labels[8:]) == [3, 2, 1, 4, 4]


def test_components_are_those_of_reachability():
    plain = make_grid(5, 5)
    source = np.repeat(np.arange(len(plain)), np.diff(plain.succ_offset))
    turns = np.column_stack([source, plain.succ])
    network = make_grid(5, 5, forbidden_turns=turns[np.random.default_rng(1).random(len(turns)) < 0.6])
    s = np.arange(len(network))
    reach = np.isfinite(Router(network).many_to_many(s, np.ones(len(s)), s, np.zeros(len(s)))) | np.eye(
        len(s), dtype=bool
    )
    labels = strong_components(network)
    assert len(np.unique(labels)) > 5
    np.testing.assert_array_equal(labels[:, None] == labels, reach & reach.T)


def test_the_largest_component_is_a_network_that_is_all_connected():
    part = largest_component(one_way_city())
    assert len(part) == 8
    assert part.n_nodes == 4
    assert (strong_components(part) == 0).all()
    assert list(part.validate().osm_way_id) == list(range(100, 108))


def test_lost_pieces_are_listed_with_length_and_reason():
    network = one_way_city()
    out, into, far = lost_pieces(network)
    assert (out.n_segments, out.osm_way_id, out.segment, out.way_in, out.way_out) == (2, 109, 9, True, False)
    assert out.km == pytest.approx(0.22, rel=0.01)
    assert (into.n_segments, into.osm_way_id, into.way_in, into.way_out) == (1, 110, False, True)
    assert (far.n_segments, far.osm_way_id, far.way_in, far.way_out) == (2, 111, False, False)
    assert far.km == pytest.approx(0.08, rel=0.01)
    assert lost_pieces(network, most=1) == [out]
    lost_km = sum(piece.km for piece in lost_pieces(network, most=99))
    assert lost_km == pytest.approx((network.length_m.sum() - largest_component(network).length_m.sum()) / 1000)


@pytest.mark.real
def test_chengdu_is_as_broken_as_its_description_says(chengdu):
    part = largest_component(chengdu)
    assert part.n_nodes == 1031
    assert 0.75 < part.length_m.sum() / chengdu.length_m.sum() < 0.8
