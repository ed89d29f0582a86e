"""Planned routes against the rule written out, and what trips drove between their steps."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tedtrajrec.methods.past.pairs import Pairs, learn_pairs, no_pairs
from tedtrajrec.methods.past.planner import Planner, Ragged
from tedtrajrec.methods.past.step_routes import step_routes
from tedtrajrec.methods.past.visits import Visits
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.trips.test_match import path, segment_between


def pairs_of(network: RoadNetwork, trips: list[list[int]]) -> Pairs:
    offset = np.cumsum([0, *(len(trip) for trip in trips)])
    segment = np.array([e for trip in trips for e in trip], np.int32)
    time = np.concatenate([np.arange(len(trip), dtype=np.float32) * 10 for trip in trips])
    return learn_pairs(Visits(offset, segment, time, time + 10), network.n_segments, within_s=np.inf)


def random_trips(network: RoadNetwork, count: int, seed: int) -> list[list[int]]:
    random = np.random.default_rng(seed)
    trips = []
    for _ in range(count):
        trip = [int(random.integers(network.n_segments))]
        for _ in range(int(random.integers(4, 14))):
            trip.append(int(random.choice(network.successors(trip[-1]))))
        trips.append(trip)
    return trips


def literal_walk(
    network: RoadNetwork, trips: list[list[int]], a: int, b: int, own: list[int], most: int
) -> list[int] | None:
    """Return the route of the rule, None where the walk comes to no end."""

    def later(trip: list[int], x: int) -> bool:
        return any(e == b and x in trip[:k] for k, e in enumerate(trip))

    def cosine(x: int) -> float:
        gx, gy = network.geom_xy
        start, end = network.geom_offset[x], network.geom_offset[x + 1] - 1
        goal = network.geom_offset[b]
        u = (gx[end] - gx[start], gy[end] - gy[start])
        v = (gx[goal] - gx[start], gy[goal] - gy[start])
        size = math.hypot(*u) * math.hypot(*v)
        return (u[0] * v[0] + u[1] * v[1]) / size if size else 0.0

    route = [a]
    while route[-1] != b:
        onward = network.successors(route[-1]).tolist()
        if b in onward:
            route.append(b)
            break
        free = [x for x in onward if x not in route]
        if not free or len(route) > most:
            return None
        votes = {x: sum(later(trip, x) for trip in trips) - later(own, x) for x in free}
        route.append(max(free, key=lambda x: (votes[x], cosine(x))))
    if len(route) > most + 1:
        return None
    cut = [route[0]]
    while cut[-1] != b:
        k = max(k for k, x in enumerate(route) if x in network.successors(cut[-1]) and k > route.index(cut[-1]))
        cut.append(route[k])
    return cut


@pytest.mark.parametrize("own_drives", [False, True])
def test_routes_are_those_of_the_rule(own_drives: bool) -> None:
    network = make_grid(5, 5, one_way_row=1)
    trips = random_trips(network, 60, 2)
    most = 6
    planner = Planner(network, pairs_of(network, trips), most=most)
    random = np.random.default_rng(5)
    source, target = random.integers(network.n_segments, size=(2, 200))
    own = [trips[int(k)] if own_drives else [] for k in random.integers(len(trips), size=200)]
    flat = Ragged(np.cumsum([0, *map(len, own)]), np.array([e for one in own for e in one], np.int32))
    half = np.full(200, 0.5)
    found = planner.routes(source, half, target, half, flat if own_drives else None)
    again = planner.routes(source, half, target, half, flat if own_drives else None, workers=1)
    np.testing.assert_array_equal(found.segment, again.segment)
    fastest = Router(network, cost=network.length_m / network.speed_mps)
    lost = 0
    for k, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        route = found.segment[found.offsets[k] : found.offsets[k + 1]].tolist()
        expected = literal_walk(network, trips, a, b, own[k], most)
        if expected is None:
            lost += 1
            expected = fastest.routes([a], [0.5], [b], [0.5])[0].tolist()
        assert route == expected
        assert all(y in network.successors(x) for x, y in itertools.pairwise(route))
    assert 0 < lost < 100


def test_past_trips_decide_and_their_own_drive_does_not_count() -> None:
    network = make_grid(4, 4, one_way_row=None)
    nodes = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0), (3, 0)]
    round_about = [segment_between(network, a, b, columns=4) for a, b in itertools.pairwise(nodes)]
    a, b = round_about[0], round_about[-1]
    planner = Planner(network, pairs_of(network, [round_about]))
    assert planner.routes([a], [0.5], [b], [0.5]).segment.tolist() == round_about
    own = Ragged(np.array([0, len(round_about)]), np.array(round_about, np.int32))
    direct = planner.routes([a], [0.5], [b], [0.5], own).segment.tolist()
    assert len(direct) < len(round_about)


def test_one_segment_and_no_way() -> None:
    network = make_grid(3, 1, one_way_row=0)  # two segments to the east
    planner = Planner(network, no_pairs(network.n_segments))
    first, second = (segment_between(network, (k, 0), (k + 1, 0), columns=3) for k in range(2))
    found = planner.routes([first, second, first], [0.9, 0.1, 0.5], [first, first, second], [0.1, 0.5, 0.5])
    assert np.split(found.segment, found.offsets[1:-1])[0].tolist() == [first]
    assert np.split(found.segment, found.offsets[1:-1])[1].tolist() == [second, first]
    assert np.split(found.segment, found.offsets[1:-1])[2].tolist() == [first, second]
    assert len(planner.routes([], [], [], []).segment) == 0


def test_what_trips_drove() -> None:
    network = make_grid(6, 2, one_way_row=None)
    east = path(network, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0))
    back = segment_between(network, (5, 1), (4, 1))
    segment = np.array([east[0], east[0], east[2], -1, east[4], east[4], back, east[2], east[0]], np.int32)
    ratio = np.array([0.1, 0.6, 0.5, np.nan, 0.9, 0.2, 0.5, 0.5, 0.5])
    # One step of the first trip is not known, and the one but last goes back on its segment.
    found = step_routes(Router(network), np.array([0, 7, 9]), segment, ratio, 10.0)
    first = found.segment[: found.offsets[1]].tolist()
    assert first[:5] == east
    assert first[-1] == back
    assert found.at[:7].tolist() == [0, 0, 2, -1, 4, 4, len(first) - 1]
    assert found.offsets.tolist() == [0, len(first), len(found.segment)]
    assert all(b in network.successors(a) for a, b in itertools.pairwise(first))
    second = found.segment[found.offsets[1] :].tolist()
    assert second[0] == east[2]
    assert second[-1] == east[0]
    assert found.at[7:].tolist() == [len(first), len(first) + len(second) - 1]
    few = step_routes(Router(network), np.array([0, 2]), segment[7:], ratio[7:], 1.0)
    assert few.segment.tolist() == [east[2], east[0]]  # nobody drives so far in a second
    none = step_routes(Router(network), np.array([0, 2]), np.full(2, -1, np.int32), np.full(2, np.nan), 1.0)
    assert (len(none.segment), none.at.tolist(), none.offsets.tolist()) == (0, [-1, -1], [0, 0])
