"""Candidates of fixes, and routes of the map between them."""

from __future__ import annotations

import numpy as np
import pytest

from tedtrajrec.methods.lattices.ends import EXTRA_S, FARTHEST, find_ends, gaps_between, with_routes
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.reach import GapSearch
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tests.methods.lattices.cities import city, city_batch, drive


def test_candidates_are_the_nearest_and_probabilities_those_of_distance(tiny_city: RoadNetwork) -> None:
    fixes = drive(tiny_city, [(0, 0.5), (2, 0.3)])
    ends = find_ends(CandidateFinder(tiny_city), fixes, 150.0, 4, None)
    assert ends.offset.tolist() == [0, 4, 8]
    assert set(ends.segment[:2]) == {0, 1}  # both directions
    assert ends.ratio[:2] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert ends.distance_m[:4] == pytest.approx([0, 0, 50, 50], abs=0.2)
    chance = np.exp(-(ends.distance_m**2) / 200)
    assert ends.weight == pytest.approx(chance / np.repeat(chance.reshape(2, 4).sum(axis=1), 4))
    assert (ends.route == -1).all()


def test_a_fix_far_from_every_road_has_the_nearest_one(tiny_city: RoadNetwork) -> None:
    near = drive(tiny_city, [(0, 0.5), (2, 0.3), (4, 0.5)])
    far = near.replace(lat=near.lat - np.array([0.1, 0.0, 5.0]))
    ends = find_ends(CandidateFinder(tiny_city), far, 150.0, 12, None)
    count = np.diff(ends.offset)
    assert count[[0, 2]].tolist() == [1, 1]
    assert count[1] > 1
    nearest = CandidateFinder(tiny_city).nearest(far.lon, far.lat)
    np.testing.assert_array_equal(ends.segment[ends.offset[:-1]], nearest.segment)
    np.testing.assert_allclose(ends.distance_m[ends.offset[:-1]], nearest.distance_m)
    assert ends.weight[[0, -1]].tolist() == [1, 1]


def test_gaps_lie_between_likely_candidates_of_neighbouring_fixes_of_one_trip() -> None:
    fixes = city_batch([0, 1, 2]).fixes(city())
    ends = find_ends(CandidateFinder(city()), fixes, 150.0, 12, None)
    first, gaps = gaps_between(fixes, ends)
    assert len(first) == fixes.n_fixes - len(fixes)
    assert (ends.nats > FARTHEST).any()
    for g, f in enumerate(first):
        assert fixes.trip_of_fix[f] == fixes.trip_of_fix[f + 1]
        assert gaps.seconds[g] == fixes.time[f + 1] - fixes.time[f]
        for at, offset, segment, extra in (
            (f, gaps.a_offset, gaps.a_segment, gaps.a_extra_s),
            (f + 1, gaps.b_offset, gaps.b_segment, gaps.b_extra_s),
        ):
            own = slice(*ends.offset[at : at + 2])
            likely = ends.nats[own] <= FARTHEST
            part = slice(*offset[g : g + 2])
            assert segment[part].tolist() == ends.segment[own][likely].tolist()
            assert extra[part].tolist() == (EXTRA_S * ends.nats[own][likely]).tolist()


def test_routes_are_the_best_of_the_map() -> None:
    network = city()
    cost = network.length_m / 10.0  # so that metres follow from seconds
    fixes = city_batch(list(range(6))).fixes(network)
    ends = find_ends(CandidateFinder(network), fixes, 150.0, 12, None)
    first, gaps = gaps_between(fixes, ends)
    ends = with_routes(ends, cost, first, gaps.seconds, GapSearch(network, cost).search(gaps, most=200))
    router, routed = Router(network), 0
    for g, f in enumerate(first):
        sources = np.arange(ends.offset[f], ends.offset[f + 1])
        sources = sources[ends.nats[sources] <= FARTHEST]
        for k in range(ends.offset[f + 1], ends.offset[f + 2]):
            if ends.route[k] < 0 or ends.segment[k] in ends.segment[sources]:  # on one segment one may stand
                continue
            metres = router.distances(
                ends.segment[sources], ends.ratio[sources], ends.segment[k], ends.ratio[k], workers=1
            )
            paid = metres / 10 + EXTRA_S * ends.nats[sources]
            took = metres[ends.route[k] - sources[0]] / 10
            assert paid[ends.route[k] - sources[0]] == pytest.approx(paid.min(), abs=0.01)
            fit = np.exp(-0.5 * (np.log(max(took, 5) / gaps.seconds[g]) / 0.5) ** 2)
            assert ends.fit[k] == pytest.approx(fit, abs=1e-3)
            routed += 1
    assert routed > 50
    start = fixes.offsets[:-1]
    assert all((ends.route[ends.offset[f] : ends.offset[f + 1]] == -1).all() for f in start)
