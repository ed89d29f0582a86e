"""TedTrajRec as a whole: its loss, its ablations, and trips that do not know of each other."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.decoder import Encoded, Fed
from tedtrajrec.nn.roads import Roads
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tests.conftest import make_grid
from tests.nn import literal

SMALL = TedTrajRecConfig(d=16, heads=2, width=24)


@pytest.fixture(scope="module")
def grid() -> RoadNetwork:
    return make_grid(3, 3)


def made(network: RoadNetwork, config: TedTrajRecConfig = SMALL) -> TedTrajRec:
    torch.manual_seed(1)
    return TedTrajRec(network, config)


@pytest.mark.parametrize("change", [{}, {"coordinates": False}, {"guided": True}], ids=str)
def test_the_loss_and_its_gradients_are_those_of_the_equations(grid: RoadNetwork, change: dict[str, Any]) -> None:
    config = dataclasses.replace(SMALL, d=8, width=12, dropout=0.0, ratio_weight=3.0, **change)
    method = made(grid, config).double().train()
    s = grid.n_segments
    inputs = literal.double(literal.made_inputs(s, 7))
    roads = method.roads()
    encoded = method.encode(inputs, roads)
    masks = [literal.dense_mask(inputs, b, s, radius_m=100.0, beta_m=15.0, floor=1e-6) for b in range(3)]
    lengths = inputs.step_mask.sum(1).tolist()
    truth = Fed(inputs.segment.clamp_min(0), inputs.ratio, inputs.forced)
    trips = literal.decode(method.decoder, encoded, roads, inputs.step_minute, masks, lengths, truth)
    segment: Any = 0.0
    ratio: Any = 0.0
    for b, trip in enumerate(trips):
        for i, (_, _, log_prob, state) in enumerate(trip):
            segment = segment - log_prob[inputs.segment[b, i]]
            x = literal.road(roads, int(inputs.segment[b, i]), inputs.step_minute[b, i])
            ratio = ratio + (method.decoder.ratio(state, x) - inputs.ratio[b, i]) ** 2
    count = sum(lengths)
    found = method.loss(inputs)
    torch.testing.assert_close(found.segment, segment.detach() / count, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.ratio, ratio.detach() / count, rtol=1e-9, atol=0)
    torch.testing.assert_close(found.total, (segment + 3 * ratio) / count, rtol=1e-9, atol=0)
    weights = list(method.parameters())
    a = torch.autograd.grad(found.total, weights)
    # Ratios that are fed hold no gradient, in both; X of the segments that are fed does.
    b = torch.autograd.grad((segment + 3 * ratio) / count, weights)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-9)


def test_points_are_the_mean_of_roads_with_place_and_position(grid: RoadNetwork) -> None:
    config = dataclasses.replace(SMALL, coordinates=False, encoder_layers=0)
    method = made(grid, config).eval()
    inputs = literal.made_inputs(grid.n_segments, 2)
    roads = method.roads()
    encoded = method.encode(inputs, roads)
    near = inputs.nearby
    for b in range(3):
        rows = []
        for j in range(int(inputs.fix_mask[b].sum())):
            weight = torch.exp(-((near.distance_m[b, j].double() / 30) ** 2))
            x = torch.stack([literal.road(roads, int(e), inputs.fix_minute[b, j]) for e in near.segment[b, j]])
            angle = j / 10_000 ** (torch.arange(0, 16, 2) / 16)
            position = torch.stack([angle.sin(), angle.cos()], dim=1).flatten()
            rows.append((weight[:, None] * x).sum(0) / weight.sum() + position)
        expected = torch.stack(rows).float()
        torch.testing.assert_close(encoded.states[b, : len(rows)], expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(encoded.start[b], expected.mean(0), rtol=1e-4, atol=1e-5)


ABLATIONS = [
    *({"gnn": gnn} for gnn in ("gatv2", "gat", "gcn", "sage", "gin", "none")),
    *({"rhythm": rhythm} for rhythm in ("shared", "none")),
    *({"attention": kind} for kind in ("exp_decay", "full")),
    *({"activation": name} for name in ("tanh", "gelu", "selu")),
    {"encoder_layers": 1, "decoder_layers": 2, "road_layers": 1},
    {"smoothing": 0.1, "coordinates": False},
    {"guided": True},
]


@pytest.mark.parametrize("change", ABLATIONS, ids=str)
def test_ablations_from_settings_alone(grid: RoadNetwork, change: dict[str, Any]) -> None:
    method = made(grid, dataclasses.replace(SMALL, **change)).train()
    inputs = literal.made_inputs(grid.n_segments, 0)
    weights = dict(method.named_parameters())
    gradients = torch.autograd.grad(method.loss(inputs).total, list(weights.values()))
    for name, gradient in zip(weights, gradients, strict=True):
        assert gradient.isfinite().all(), name
        silent = name.endswith(("attention.key.bias", "interval.2.bias"))  # no softmax hears them
        assert gradient.abs().max() > 0 or silent, name
    found = method.eval().decode(inputs)
    assert found.log_prob.isfinite().all()


def test_guided_segments_near_each_other_start_alike(grid: RoadNetwork) -> None:
    method = made(grid, dataclasses.replace(SMALL, d=256, heads=8, guided=True))
    table, score = method.road_gnn.table.detach(), method.decoder.score.weight.detach()
    torch.testing.assert_close(score * (3 * 256) ** 0.5, table)
    alike = table @ table.T / 256
    start, end = (torch.tensor(part) for part in (grid.seg_from, grid.seg_to))
    twin = (start[:, None] == end) & (end[:, None] == start)
    torch.testing.assert_close(alike.diag(), torch.ones(len(table)))
    assert twin.any()
    assert alike[twin].max() < 0.5  # the same place, the other direction


def test_gradients_stay_finite_without_any_road_near(grid: RoadNetwork) -> None:
    method = made(grid).train()
    inputs = literal.made_inputs(grid.n_segments, 0)
    lost = inputs._replace(
        near_segment=torch.zeros_like(inputs.near_segment),
        near_distance=torch.full_like(inputs.near_distance, torch.inf),
        segment=torch.full_like(inputs.segment, -1),
    )
    for batch in (lost, lost._replace(segment=inputs.segment)):
        loss = method.loss(batch).total
        gradients = torch.autograd.grad(loss, list(method.parameters()))
        assert all(gradient.isfinite().all() for gradient in gradients)
    assert float(method.loss(lost).total.detach()) == 0  # nothing is known of the truth


# Trips of a simulated city, alone and together.


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@pytest.fixture(scope="module")
def trips(city: RoadNetwork) -> Trips:
    return simulate_trips(city, trips=5, step_s=15, seed=4, workers=1)


@pytest.fixture(scope="module")
def method(city: RoadNetwork) -> TedTrajRec:
    return made(city).eval()


def batch_of(city: RoadNetwork, trips: Trips, finder: CandidateFinder | None = None, radius_m: float = 100.0) -> Batch:
    observed = draw_observed(trips, "1/8", seed=3)
    return make_batch(trips, observed, city, step_s=15, time_zone="Europe/Berlin", finder=finder, radius_m=radius_m)


def logits_of(method: TedTrajRec, inputs: Inputs) -> Tensor:
    """Return the constrained logits at every step with the truth fed."""
    roads = method.roads()
    encoded = method.encode(inputs, roads)
    fed = Fed(inputs.segment.clamp_min(0), inputs.ratio, inputs.forced)
    state = method.decoder.states(encoded, roads, inputs.step_minute, fed)
    return method.constraint(inputs).add_to(method.decoder.score(state))


def assert_same(method: TedTrajRec, a: Inputs, b: Inputs, rows: list[int]) -> None:
    """Check that trips ``rows`` of batch a are the trips of batch b, in results and logits."""
    with torch.no_grad():
        x, y = logits_of(method, a)[rows], logits_of(method, b)
    found, expected = method.decode(a), method.decode(b)
    for k, i in enumerate(rows):
        n = int(min(a.step_mask[i].sum(), b.step_mask[k].sum()))
        assert n == int(a.step_mask[i].sum()) == int(b.step_mask[k].sum())
        torch.testing.assert_close(x[k, :n], y[k, :n], rtol=1e-5, atol=1e-5)
        assert torch.equal(found.segment[i, :n], expected.segment[k, :n])
        torch.testing.assert_close(found.ratio[i, :n], expected.ratio[k, :n], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found.log_prob[i, :n], expected.log_prob[k, :n], rtol=1e-4, atol=1e-5)


def test_a_trip_alone_or_in_a_batch_in_any_order(city: RoadNetwork, trips: Trips, method: TedTrajRec) -> None:
    together = method.inputs(batch_of(city, trips))
    lengths = together.step_mask.sum(1)
    assert len(lengths.unique()) > 1
    order = [3, 0, 4, 2, 1]
    assert_same(method, together, method.inputs(batch_of(city, trips.select(np.array(order)))), order)
    for i in (int(lengths.argmin()), int(lengths.argmax())):
        assert_same(method, together, method.inputs(batch_of(city, trips.select(np.array([i])))), [i])


@pytest.mark.parametrize(("fixes", "steps"), [(4, 8), (64, 8), (4, 200)])
def test_more_padding_changes_nothing(
    city: RoadNetwork, trips: Trips, method: TedTrajRec, fixes: int, steps: int
) -> None:
    inputs = method.inputs(batch_of(city, trips))
    padded = inputs.rounded(fixes, steps)
    assert padded.fix_mask.shape[1] % fixes == padded.step_mask.shape[1] % steps == 0
    assert padded.step_mask.sum() == inputs.step_mask.sum()
    assert_same(method, padded, inputs, list(range(5)))
    method.decoder.eval()  # no dropout, so that losses can be compared
    torch.testing.assert_close(method.loss(padded).total, method.loss(inputs).total, rtol=1e-5, atol=1e-6)


def test_candidates_are_searched_where_they_are_missing_or_too_few(
    city: RoadNetwork, trips: Trips, method: TedTrajRec
) -> None:
    expected = method.inputs(batch_of(city, trips))
    finder = CandidateFinder(city)
    for radius_m in (100.0, 400.0, 600.0):
        found = method.inputs(batch_of(city, trips, finder, radius_m))
        near = expected.near_distance <= 400
        assert torch.equal(found.near_segment[near], expected.near_segment[near])
        torch.testing.assert_close(found.near_distance[near], expected.near_distance[near], rtol=0, atol=0.02)
    assert near.any()


def test_what_is_kept_of_the_roads_follows_the_weights(city: RoadNetwork, trips: Trips) -> None:
    method = made(city)
    batch = batch_of(city, trips)
    first = method.recover(batch)
    assert not method.training
    with torch.no_grad():
        method.train().road_gnn.table.add_(1)
    second = method.recover(batch)
    assert not torch.equal(second.ratio, first.ratio)
    state = method.state()
    state["road_gnn.table"] = state["road_gnn.table"] - 1
    method.restore(state)
    torch.testing.assert_close(method.recover(batch).ratio, first.ratio, rtol=0, atol=1e-4)
    method.double()
    assert method.recover(batch).ratio.dtype == torch.float64


def test_what_is_kept_for_one_trip_follows_the_weights(city: RoadNetwork, trips: Trips) -> None:
    method = made(city)
    alone, two = (batch_of(city, trips.select(np.arange(count))) for count in (1, 2))
    first = method.recover(alone)
    with torch.no_grad():
        method.train().decoder.score.weight.neg_()
    second = method.recover(alone)
    n = second.segment.shape[1]
    assert not torch.equal(second.segment, first.segment)
    assert torch.equal(second.segment[0], method.recover(two).segment[0, :n])


def test_one_trip_keeps_to_one_thread(city: RoadNetwork, trips: Trips, monkeypatch: pytest.MonkeyPatch) -> None:
    method = made(city).eval()
    encode, seen = method.encode, []

    def look(inputs: Inputs, roads: Roads) -> Encoded:
        seen.append(torch.get_num_threads())
        return encode(inputs, roads)

    monkeypatch.setattr(method, "encode", look)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for some in (trips.select(np.array([0])), trips):
            method.decode(method.inputs(batch_of(city, some)))
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == [1, 2]


def test_settings_that_make_no_sense_are_refused() -> None:
    for change in (
        {"d": 0}, {"d": 10, "heads": 4}, {"dropout": 1.0}, {"mask_floor": 0.0}, {"heads": 0}, {"encoder_layers": -1},
        {"ratio_weight": -1.0}, {"gamma_m": 0.0},
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"must|divide|cannot"):
            dataclasses.replace(SMALL, **change)
