"""Positions on routes: hand-made cases, a naive reading of the same rules, and simulated trips."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.match import MatchConfig, Matched, match
from tedtrajrec.trips.resample import Tracks, positions_on_routes, positions_on_tracks, tracks_along, tracks_of
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tests.conftest import make_grid
from tests.trips.test_match import path, trip

START = 1_700_000_000
EXACT = MatchConfig(noise_m=5.0)


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@pytest.fixture(scope="module")
def simulated(city: RoadNetwork) -> tuple[Trips, Matched]:
    trips = simulate_trips(city, trips=60, step_s=5, seed=3)
    return trips, match(trips, city)


def at(
    trips: Trips, matched: Matched, network: RoadNetwork, *seconds: float, metre_cost: object = None
) -> list[object]:
    """Return (segment, ratio) of one trip at seconds from START."""
    times = START + np.array(seconds, float)
    found = positions_on_routes(network, trips, matched, [0, len(times)], times, metre_cost=metre_cost)
    return [(int(s), None if np.isnan(r) else round(float(r), 3)) for s, r in zip(*found, strict=True)]


def test_constant_speed_between_fixes(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 50, 0), (20, 250, 0), (30, 301, 0)])
    matched = match(trips, tiny_city, EXACT)
    a, b, c, d = path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0))
    assert at(trips, matched, tiny_city, -1, 0, 2.5, 10, 19, 20, 25, 30, 30.5) == [
        (-1, None),
        (a, 0.5),
        (a, 0.75),
        (b, 0.5),
        (c, 0.4),
        (c, 0.5),
        (c, 0.755),
        (d, 0.01),
        (-1, None),
    ]


def test_a_dear_segment_takes_longer(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 0.1, 0), (30, 199.9, 0)])
    matched = match(trips, tiny_city, EXACT)
    a, b = path(tiny_city, (0, 0), (1, 0), (2, 0))
    cost = np.ones(tiny_city.n_segments)
    cost[a] = 2.0
    (s, r), (s2, r2) = at(trips, matched, tiny_city, 10, 25, metre_cost=cost)
    assert (s, s2) == (a, b)
    assert r == pytest.approx(0.5, abs=0.002)
    assert r2 == pytest.approx(0.5, abs=0.002)


def test_nothing_in_a_break() -> None:
    network = make_grid(columns=30, rows=2, one_way_row=None)
    # The second half starts far beyond what can be driven in 15 s.
    trips = trip([(0, 50, 0), (15, 150, 0), (30, 2550, 0), (45, 2650, 0)])
    matched = match(trips, network, EXACT)
    assert len(matched.piece_ends) == 2
    found = at(trips, matched, network, 7, 15, 22, 30, 37)
    assert [s for s, _ in found][2] == -1
    assert all(s >= 0 for s, _ in found[:2] + found[3:])


def test_a_loop_drives_its_first_segment_twice(tiny_city: RoadNetwork) -> None:
    fixes = [(0, 80, 0), (20, 100, 80), (40, 20, 100), (60, 0, 20), (80, 20, 0), (100, 140, 0)]
    trips = trip(fixes)
    matched = match(trips, tiny_city, EXACT)
    loop = path(tiny_city, (0, 0), (1, 0), (1, 1), (0, 1), (0, 0), (1, 0), (2, 0))
    assert matched.route(0).tolist() == loop
    assert tracks_of(trips, matched).place.tolist() == [0, 1, 2, 3, 4, 5]
    assert at(trips, matched, tiny_city, 80, 90) == [(loop[4], 0.2), (loop[4], 0.8)]


def test_round_the_block_in_one_gap() -> None:
    network = make_grid(spacing_m=300.0)
    trips = trip([(0, 240, 600), (160, 60, 600)])  # on the street that runs east only
    matched = match(trips, network, dataclasses.replace(EXACT, backwards="never"))
    route = matched.route(0).tolist()
    assert len(route) == 5
    assert route[0] == route[4] == path(network, (0, 2), (1, 2))[0]
    assert tracks_of(trips, matched).place.tolist() == [0, 4]
    assert at(trips, matched, network, 0, 80, 160) == [(route[0], 0.8), (route[2], 0.5), (route[0], 0.2)]


def test_small_steps_back_are_followed(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 20, 0), (10, 60, 0), (20, 55, 0), (30, 58, 0), (40, 120, 0)])
    matched = match(trips, tiny_city, dataclasses.replace(EXACT, thin=0.0, backwards="free"))
    a, b = path(tiny_city, (0, 0), (1, 0), (2, 0))
    assert at(trips, matched, tiny_city, 10, 15, 20, 25, 30, 40) == [
        (a, 0.6),
        (a, 0.575),
        (a, 0.55),
        (a, 0.565),
        (a, 0.58),
        (b, 0.2),
    ]


def test_of_fixes_at_one_time_the_first_counts(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 20, 0), (10, 60, 0), (10, 75, 0), (20, 90, 0)])
    matched = match(trips, tiny_city, EXACT)
    assert at(trips, matched, tiny_city, 10)[0][1] == pytest.approx(0.6, abs=0.001)


def test_positions_at_fixes_are_their_own(city: RoadNetwork, simulated: tuple[Trips, Matched]) -> None:
    trips, matched = simulated
    segment, ratio = positions_on_routes(city, trips, matched, trips.offsets, trips.time)
    known = matched.segment >= 0
    assert known.mean() > 0.9
    np.testing.assert_array_equal(segment[known], matched.segment[known])
    np.testing.assert_array_equal(ratio[known], matched.ratio[known])


def test_a_dense_trip_moves_along_its_route(city: RoadNetwork, simulated: tuple[Trips, Matched]) -> None:
    trips, matched = simulated
    tracks = tracks_of(trips, matched)
    last, first = trips.time[trips.offsets[1:] - 1], trips.time[trips.offsets[:-1]]
    offsets = np.concatenate([[0], np.cumsum(last - first + 1)])
    time = np.concatenate([np.arange(a, b + 1) for a, b in zip(first, last, strict=True)])
    segment, ratio = positions_on_routes(city, trips, matched, offsets, time, metre_cost=1 / city.speed_mps)
    whole = np.flatnonzero(np.diff(matched.piece_offsets) == 1)
    assert len(whole) > 0.8 * len(trips)
    for i in whole.tolist():
        piece = matched.piece_offsets[i]
        knots, steps = slice(*tracks.offsets[i : i + 2]), slice(*offsets[i : i + 2])
        known = segment[steps] >= 0
        times, seg, rat = time[steps][known], segment[steps][known], ratio[steps][known]
        ends = np.cumsum(city.length_m[matched.route(piece)])
        start_m = np.concatenate([[0], ends])
        knot_m = start_m[tracks.place[knots] - matched.route_offsets[piece]]
        knot_m += tracks.ratio[knots] * city.length_m[tracks.segment[knots]]
        place, metres = 0, []  # what was driven is the route, in its order
        for s, r in zip(seg.tolist(), rat.tolist(), strict=True):
            place += matched.route(piece)[place:].tolist().index(s)
            metres.append(start_m[place] + r * city.length_m[s])
        gap = np.searchsorted(tracks.time[knots], times[1:])
        back = np.diff(metres) < -1e-6
        # Only where the matcher itself put a fix behind the one before it.
        assert not (back & (np.diff(knot_m, prepend=0)[gap] >= 0)).any()


def naive(network: RoadNetwork, tracks: Tracks, trip: int, t: float, cost: NDArray[np.float64]) -> tuple[int, float]:
    """Return the position by adding up the whole gap for every question."""
    knots = range(tracks.offsets[trip], tracks.offsets[trip + 1])
    for k in knots:
        if tracks.time[k] == t:
            return int(tracks.segment[k]), float(tracks.ratio[k])
    for a, b in itertools.pairwise(knots):
        if tracks.time[a] < t < tracks.time[b] and tracks.piece[a] == tracks.piece[b]:
            share = (t - tracks.time[a]) / (tracks.time[b] - tracks.time[a])
            spans = [[int(tracks.route[r]), 0.0, 1.0] for r in range(int(tracks.place[a]), int(tracks.place[b]) + 1)]
            spans[0][1], spans[-1][2] = float(tracks.ratio[a]), float(tracks.ratio[b])
            parts = [(high - low) * network.length_m[s] * cost[s] for s, low, high in spans]
            left = share * sum(parts)
            for (s, low, high), part in zip(spans, parts, strict=True):
                if left <= part or s == spans[-1][0]:
                    return int(s), low + (high - low) * left / part if part else low
                left -= part
    return -1, np.nan


@settings(max_examples=60)
@given(data=st.data())
def test_agrees_with_a_naive_reading(city: RoadNetwork, simulated: tuple[Trips, Matched], data: st.DataObject) -> None:
    trips, _ = simulated
    which = data.draw(st.integers(0, len(trips) - 1))
    one = trips.select([which])
    keep = data.draw(st.lists(st.booleans(), min_size=one.n_fixes, max_size=one.n_fixes).filter(any))
    sparse = one.keep_fixes(np.array(keep))
    matched = match(sparse, city)
    tracks = tracks_of(sparse, matched)
    cost = np.random.default_rng(data.draw(st.integers(0, 99))).uniform(0.1, 3, city.n_segments)
    span = int(one.time[-1] - one.time[0])
    times = np.sort(one.time[0] + np.array(data.draw(st.lists(st.floats(-5, span + 5), max_size=30)), float))
    times = np.sort(np.concatenate([times, sparse.time[::2]]))
    segment, ratio = positions_on_routes(city, sparse, matched, [0, len(times)], times, metre_cost=cost)
    for t, s, r in zip(times, segment, ratio, strict=True):
        expected, where = naive(city, tracks, 0, t, cost)
        length = city.length_m[s]
        if s != expected:  # rounding may put it on the other side of a junction
            assert min(r, 1 - r) * length < 1e-3
        elif s >= 0:
            assert r * length == pytest.approx(where * length, abs=1e-3)


def test_tracks_along_given_routes(tiny_city: RoadNetwork) -> None:
    way = path(tiny_city, (0, 0), (1, 0), (1, 1), (2, 1))
    far = path(tiny_city, (4, 5), (5, 5))[0]
    segment = np.array([way[0], way[2], way[2], far, far], np.int32)
    ratio = np.array([0.5, 0.5, 0.5, 0.25, 0.75])
    joined = np.array([False, True, True, True, True])
    router = Router(tiny_city)
    limit = np.array([np.inf, np.inf, 100.0, np.inf])  # none is found to the fourth knot, where a piece begins
    routes = router.routes(segment[:-1], ratio[:-1], segment[1:], ratio[1:], limit_m=limit)
    tracks = tracks_along(np.array([0, 5]), START + np.arange(0.0, 50, 10), segment, ratio, joined, routes)
    assert tracks.route.tolist() == [*way, far]
    assert tracks.place.tolist() == [0, 2, 2, 3, 3]
    assert tracks.piece.tolist() == [0, 0, 0, 1, 1]
    found, where = positions_on_tracks(tiny_city, tracks, [0, 5], START + np.array([5.0, 10, 15, 25, 35]))
    assert found.tolist() == [way[1], way[2], way[2], -1, far]
    np.testing.assert_allclose(where, [0.5, 0.5, 0.5, np.nan, 0.5], atol=1e-3)


def test_only_what_is_driven_costs(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 50, 0), (20, 250, 0)])
    tracks = tracks_of(trips, match(trips, tiny_city, EXACT))
    cost = np.full(tiny_city.n_segments, np.nan)
    cost[tracks.route] = 2.0  # the same everywhere, as without a cost; a power of 2 leaves all bits as they are
    times = START + np.arange(21)
    found = positions_on_tracks(tiny_city, tracks, [0, len(times)], times, metre_cost=cost)
    for got, expected in zip(found, positions_on_tracks(tiny_city, tracks, [0, len(times)], times), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_bad_questions(tiny_city: RoadNetwork) -> None:
    trips = trip([(0, 50, 0), (20, 250, 0)])
    matched = match(trips, tiny_city, EXACT)
    tracks = tracks_of(trips, matched)
    with pytest.raises(ValueError, match="must not fall"):
        positions_on_tracks(tiny_city, tracks, [0, 2], [START + 1, START])
    with pytest.raises(ValueError, match="do not divide"):
        positions_on_tracks(tiny_city, tracks, [0, 1], [START, START])
    with pytest.raises(ValueError, match="one positive number"):
        positions_on_tracks(tiny_city, tracks, [0, 1], [START], metre_cost=np.zeros(tiny_city.n_segments))
    with pytest.raises(ValueError, match="has shape"):
        positions_on_tracks(tiny_city, tracks, [0, 1], [START], metre_cost=np.ones(3))
    with pytest.raises(ValueError, match="not the matched trips"):
        tracks_of(trip([(0, 50, 0)]), matched)
    wrong = dataclasses.replace(matched, route_segment=matched.route_segment[::-1].copy())
    with pytest.raises(ValueError, match="do not lead through"):
        tracks_of(trips, wrong)
