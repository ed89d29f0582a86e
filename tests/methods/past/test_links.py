"""Links where the map lacks a road."""

from __future__ import annotations

import numpy as np

from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.links import Links, find_links, off_links, with_links
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import concat_trips
from tests.conftest import make_grid
from tests.methods.past.test_drives import steps


def island() -> RoadNetwork:
    """Return a grid cut in two: no road between the columns 2 and 3."""
    grid = make_grid(one_way_row=None)
    left_a, left_b = grid.seg_from % 6 < 3, grid.seg_to % 6 < 3
    return grid.subset(left_a == left_b)


def ends(network: RoadNetwork) -> tuple[int, int]:
    """Return the segments that lead to the gap and away from it in the lowest row."""
    x = (network.node_id - 1000).astype(int)
    pairs = list(zip(x[network.seg_from].tolist(), x[network.seg_to].tolist(), strict=True))
    return pairs.index((1, 2)), pairs.index((3, 4))


def test_a_leap_of_two_trips_is_a_link() -> None:
    network = island()
    a, b = ends(network)
    once = steps((a, 0.5), (b, 0.5), name="a")
    assert np.isinf(Router(network).distances(a, 0.5, b, 0.5)[0])
    assert len(find_links(drives_of(network, once)).source) == 0
    # The same trip twice over the gap is still one trip.
    again = steps((a, 0.5), (b, 0.5), (-1, np.nan), (a, 0.2), (b, 0.5), name="b")
    links = find_links(drives_of(network, again))
    assert len(links.source) == 0
    links = find_links(drives_of(network, concat_trips([once, again])))
    assert (links.source.tolist(), links.target.tolist()) == ([a], [b])


def test_routes_lead_over_links() -> None:
    network = island()
    a, b = ends(network)
    linked = with_links(network, Links(np.array([a], np.int32), np.array([b], np.int32)))
    assert linked.n_segments == network.n_segments + 1
    link = network.n_segments
    route = Router(linked).routes(a, 0.5, b, 0.5)
    assert route[0].tolist() == [a, link, b]
    np.testing.assert_allclose(route.distance_m, 150, rtol=0.01)  # the link counts half
    # Others do not lead onto it, and all that was there is as before.
    assert [s for s in range(link) if link in linked.successors(s)] == [a]
    for s in range(link):
        assert [x for x in linked.successors(s) if x != link] == sorted(network.successors(s).tolist())


def test_no_links_change_nothing(tiny_city: RoadNetwork) -> None:
    none = Links(np.zeros(0, np.int32), np.zeros(0, np.int32))
    assert with_links(tiny_city, none).hash == tiny_city.hash


def test_positions_on_links_go_to_the_nearer_end() -> None:
    links = Links(np.array([3, 4], np.int32), np.array([7, 8], np.int32))
    segment, ratio = off_links(links, 10, np.array([2, 10, 11, -1], np.int32), np.array([0.3, 0.2, 0.9, np.nan]))
    assert segment.tolist() == [2, 3, 8, -1]
    np.testing.assert_array_equal(ratio, [0.3, 1.0, 0.0, np.nan])
