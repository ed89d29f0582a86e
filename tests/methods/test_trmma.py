"""TRMMA: what it sees of a batch, its loss by the definition, and its answers put together step by step."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.methods.past.pairs import no_pairs
from tedtrajrec.methods.past.planner import Planner
from tedtrajrec.methods.trmma import Trmma, TrmmaConfig
from tedtrajrec.methods.trmma_inputs import TrmmaInputs, gap_steps, in_gaps, match_inputs, planned_gaps, true_gaps
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.nn.mma import candidate_features
from tedtrajrec.nn.route_decoder import Along, Truth
from tedtrajrec.trips.table import concat_trips
from tests.conftest import make_grid
from tests.methods.past.test_planner import pairs_of, random_trips
from tests.methods.recordable import run_recordable
from tests.trips.test_match import path, segment_between, trip

SMALL = TrmmaConfig(d=8, heads=2, width=12, dropout=0.0)


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return make_grid(one_way_row=None)


@pytest.fixture(scope="module")
def batch(city: RoadNetwork) -> Batch:
    """Trip a: east along the first street, four of seven steps missing; b: two fixes, one unknown step between."""
    east = path(city, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0))
    north = [segment_between(city, (5, k), (5, k + 1)) for k in range(4)]
    a = trip([(10 * k, 30 + 80 * k, 2) for k in range(7)], "a").replace(
        segment=np.array([east[0], east[1], east[1], east[2], east[3], east[4], north[0]], np.int32),
        ratio=np.array([0.3, 0.1, 0.9, 0.7, 0.5, 0.3, 0.1]),
    )
    b = trip([(3600 * 60, 500, 150), (3600 * 60 + 10, 500, 250), (3600 * 60 + 20, 500, 350)], "b").replace(
        segment=np.array([north[1], -1, north[3]], np.int32), ratio=np.array([0.5, np.nan, 0.5])
    )
    seen = np.array([True, False, False, True, False, False, True, True, False, True])
    return make_batch(concat_trips([a, b]), seen, city, step_s=10, time_zone="UTC")


def made(city: RoadNetwork, **settings: object) -> Trmma:
    torch.manual_seed(5)
    method = Trmma(city, dataclasses.replace(SMALL, **settings))
    method.use(pairs_of(city, random_trips(city, 40, 1)))
    return method.double()


def doubled(inputs: TrmmaInputs) -> TrmmaInputs:
    return TrmmaInputs(*(part.double() if part.is_floating_point() else part for part in inputs))


def test_steps_of_gaps(batch: Batch) -> None:
    assert gap_steps(batch).tolist() == [[2, 2, 0], [1, 0, 0]]
    values = torch.arange(14).view(2, 7)
    assert in_gaps(batch, values, -5).tolist() == [[[1, 2], [4, 5], [-5, -5]], [[8, -5], [-5, -5], [-5, -5]]]


def test_true_routes_of_gaps(city: RoadNetwork, batch: Batch) -> None:
    east = path(city, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0))
    gaps = true_gaps(batch, Router(city), 80)
    first, second = ([e for e in gaps.route[0, g].tolist() if e >= 0] for g in range(2))
    assert first == east[:3]
    assert second[:3] == east[2:5]
    assert second[-1] == int(batch.segment[0, 6])
    assert gaps.place.tolist() == [[[1, 1], [1, 2], [-1, -1]], [[-1, -1], [-1, -1], [-1, -1]]]
    assert (gaps.route[0, 2] == -1).all()
    assert [e for e in gaps.route[1, 0].tolist() if e >= 0] == [
        segment_between(city, (5, k), (5, k + 1)) for k in (1, 2, 3)
    ]
    assert (true_gaps(batch, Router(city), 3).route[0, 1] == -1).all()  # too long


def test_planned_routes_of_gaps(city: RoadNetwork, batch: Batch) -> None:
    gaps = planned_gaps(batch, Planner(city, no_pairs(city.n_segments)), Router(city))
    for b, g, low, high in ((0, 0, 0, 3), (0, 1, 3, 6), (1, 0, 0, 2)):
        route = [e for e in gaps.route[b, g].tolist() if e >= 0]
        assert (route[0], route[-1]) == (int(batch.segment[b, low]), int(batch.segment[b, high]))
        for t in range(high - low - 1):
            true, place = int(batch.segment[b, low + 1 + t]), int(gaps.place[b, g, t])
            assert place == (route.index(true) if true in route else -1)


def test_candidates_and_their_numbers(city: RoadNetwork) -> None:
    far = trip([(0, -95, -80), (10, 50, 1), (20, 60, 1)], "c")
    one = make_batch(far, np.ones(3, bool), city, step_s=10, time_zone="UTC")
    finder = CandidateFinder(city)
    seen = match_inputs(one, finder, one.fix_xy, 10)
    fixes = one.fixes(city)
    reach = [130.0, 50.0, 50.0]  # the first is 124 m off the map
    expected_count = np.diff(finder.within(fixes.lon, fixes.lat, reach, most=10).offsets)
    assert seen.near_exists.sum(-1)[0].tolist() == expected_count.tolist()
    assert expected_count.min() > 0
    xy = np.stack(city.plane.to_xy(fixes.lon, fixes.lat), axis=-1)
    gx, gy = city.geom_xy
    for j in range(3):
        onward = xy[j + 1] - xy[j] if j < 2 else np.zeros(2)
        came = xy[j] - xy[j - 1] if j else np.zeros(2)
        for k in np.flatnonzero(seen.near_exists[0, j]).tolist():
            e = int(seen.near_segment[0, j, k])
            start, end = city.geom_offset[e], city.geom_offset[e + 1] - 1
            place = np.stack(city.plane.to_xy(*city.point_at([e], [float(seen.near_ratio[0, j, k])])), -1)
            ends = (np.array([[gx[v], gy[v]]]) for v in (start, end))
            distance = np.hypot(*(place[0] - xy[j]))
            expected = candidate_features(xy[j : j + 1], onward[None], came[None], *ends, place, distance[None])
            np.testing.assert_allclose(seen.near_features[0, j, k], expected[0], atol=2e-3)


def test_the_loss_is_that_of_its_definition(city: RoadNetwork, batch: Batch) -> None:
    method = made(city).train()
    inputs = doubled(method.inputs(batch, torch.ones_like(batch.step_mask)))
    logits = method.match_logits(inputs.match).detach()
    truth = Truth(*(part.flatten(0, 1) for part in (inputs.gap_place, inputs.gap_ratio, inputs.gap_forced)))
    along = Along(*(part.detach() for part in method.along(inputs, method.roads(), truth)))
    match = [
        -math.log(1 / (1 + math.exp(-float(logits[b, j, k]))))
        if inputs.near_true[b, j, k]
        else -math.log(1 - 1 / (1 + math.exp(-float(logits[b, j, k]))))
        for b, j, k in inputs.near_exists.nonzero().tolist()
        if inputs.near_true[b, j].any()
    ]
    miss, off = [], []
    for g, t in ((0, 0), (0, 1), (1, 0), (1, 1)):
        count = int((inputs.route[0, g] >= 0).sum())
        for j in range(count):
            p = math.exp(float(along.log_share[g, t, j]))
            miss.append(-math.log(p if j == inputs.gap_place[0, g, t] else 1 - p))
        off.append(abs(float(along.ratio[g, t] - inputs.gap_ratio[0, g, t])))
    losses = method.loss(inputs)
    assert len(match) > 4
    assert float(losses.segment) == pytest.approx(np.mean(miss), rel=1e-6)
    assert float(losses.ratio) == pytest.approx(np.mean(off), rel=1e-6)
    total = np.mean(match) + 10 * np.mean(miss) + 5 * np.mean(off)
    assert float(losses.total.detach()) == pytest.approx(total, rel=1e-6)


def test_answers_are_put_together_step_by_step(city: RoadNetwork, batch: Batch) -> None:
    method = made(city).eval().float()
    inputs = method.inputs(batch)
    with torch.no_grad():
        logits = method.match_logits(inputs.match).masked_fill(~inputs.near_exists, -torch.inf)
        along = method.along(inputs, method.roads())
    found = method.recover(batch)
    choices = method.best(batch, 4)
    for b in range(2):
        fixes = batch.fix_step[b][batch.fix_mask[b]].tolist()
        matched = [int(inputs.near_segment[b, j, logits[b, j].argmax()]) for j in range(len(fixes))]
        for g, (low, high) in enumerate(itertools.pairwise(fixes)):
            route = [e for e in inputs.route[b, g].tolist() if e >= 0]
            assert (route[0], route[-1]) == (matched[g], matched[g + 1])
            for i in range(low + 1, high):
                share = along.log_share[3 * b + g, i - low - 1, : len(route)]
                assert int(found.segment[b, i]) == route[int(share.argmax())]
                assert float(found.log_prob[b, i]) == pytest.approx(float(share.max()), abs=1e-5)
                assert float(found.ratio[b, i]) == pytest.approx(float(along.ratio[3 * b + g, i - low - 1]), abs=1e-5)
                ranked = [route[k] for k in share.argsort(descending=True).tolist()][:4]
                assert choices.segment[b, i].tolist() == ranked + [-1] * (4 - len(ranked))
        for j, i in enumerate(fixes):
            assert int(found.segment[b, i]) == matched[j]
            assert float(found.log_prob[b, i]) == pytest.approx(
                math.log(1 / (1 + math.exp(-float(logits[b, j].max())))), abs=1e-5
            )


def test_the_truth_has_no_part_in_use(city: RoadNetwork, batch: Batch) -> None:
    method = made(city).eval().float()
    without = dataclasses.replace(
        batch, segment=torch.full_like(batch.segment, -1), ratio=torch.zeros_like(batch.ratio)
    )
    for name in ("segment", "ratio", "log_prob"):
        a, b = (getattr(method.recover(one), name)[batch.step_mask] for one in (batch, without))
        torch.testing.assert_close(a, b, rtol=0, atol=0)
    assert (method.inputs(batch).gap_place == -1).all()


def test_more_padding_changes_nothing(city: RoadNetwork, batch: Batch) -> None:
    method = made(city).train()
    inputs = doubled(method.inputs(batch, torch.zeros_like(batch.step_mask)))
    wide = inputs.rounded(5, 9, 7)
    assert wide.route.shape[1:] == (5, 7)
    assert wide.gap_place.shape[1:] == (5, 9)
    assert wide.step_mask.shape[1] == 9
    for a, b in zip(method.loss(wide), method.loss(inputs), strict=True):
        torch.testing.assert_close(a, b)
    inputs = doubled(method.eval().float().inputs(batch))
    method.double()
    for a, b in zip(method.decode(inputs.rounded(5, 9, 7)), method.decode(inputs), strict=True):
        torch.testing.assert_close(a[:, :7][batch.step_mask], b[batch.step_mask])


def test_matches_and_steps_can_be_recorded(city: RoadNetwork, batch: Batch) -> None:
    method = made(city, no_backward=True).eval().float()
    inputs = method.inputs(batch)
    method._kept_roads()
    run_recordable(lambda: method.match(inputs.match))
    run_recordable(lambda: method.decode(inputs))
    run_recordable(lambda: method.decode(inputs, 3))


def test_planned_routes_can_be_trained_on(city: RoadNetwork, batch: Batch) -> None:
    method = made(city, routes="planned").train().float()
    inputs = method.inputs(batch, torch.ones_like(batch.step_mask))
    assert (inputs.gap_place >= 0).any()
    before = float(method.loss(inputs).total.detach())
    optimizer = torch.optim.Adam(method.parameters(), lr=0.01)
    for _ in range(10):
        optimizer.zero_grad()
        method.loss(inputs).total.backward()
        optimizer.step()
    assert float(method.loss(inputs).total.detach()) < 0.8 * before


def test_settings_that_cannot_be() -> None:
    for wrong in ({"heads": 3}, {"layers": -1}, {"place_weight": -1.0}):
        with pytest.raises(ValueError, match=r"must|divide"):
            TrmmaConfig(**wrong)  # type: ignore[arg-type]
