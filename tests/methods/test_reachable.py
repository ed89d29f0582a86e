"""The paper's model over the segments that a trip may have used: what they are, and that with all it is the same."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods import reachable
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.reachable import ReachableInputs, ReachableSearch, sets_of, with_truth
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.touched import no_part
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips
from tests.methods.recordable import run_recordable

TINY = TedTrajRecConfig(
    d=16, heads=2, width=16, encoder_layers=1, road_layers=2, dropout=0.0, scored="reachable", smoothing=0.1
)


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@pytest.fixture(scope="module")
def trips(city: RoadNetwork) -> Trips:
    made = simulate_trips(city, trips=12, step_s=15, seed=5, workers=1)
    return made.select(np.argsort(made.lengths, kind="stable")[:6])


def batch_of(city: RoadNetwork, trips: Trips) -> Batch:
    return make_batch(trips, draw_observed(trips, "1/8", seed=2), city, step_s=15, time_zone="UTC")


def made(city: RoadNetwork, config: TedTrajRecConfig = TINY) -> TedTrajRec:
    torch.manual_seed(1)
    return TedTrajRec(city, config)


def training_inputs(method: TedTrajRec, batch: Batch) -> Inputs | ReachableInputs:
    return method.inputs(batch, torch.zeros_like(batch.step_mask))


def test_sets_hold_each_segment_once() -> None:
    rows = sets_of(np.array([2, 0, 2, 2]), np.array([7, 3, 1, 7]), 3, 9)
    assert rows.shape == (3, reachable.UNIT)
    assert [[s for s in row if s < 9] for row in rows.tolist()] == [[3], [], [1, 7]]
    assert (rows.diff(dim=1) >= 0).all()
    more = with_truth(rows, torch.tensor([[3, -1], [8, 0], [-1, -1]]), 9)
    assert [[s for s in row if s < 9] for row in more.tolist()] == [[3], [0, 8], [1, 7]]


def test_choices_hold_what_is_near_and_most_of_the_truth(city: RoadNetwork, trips: Trips) -> None:
    method, batch = made(city), batch_of(city, trips)
    seen = method.inputs(batch)
    assert isinstance(seen, ReachableInputs)
    choice = [set(row) - {city.n_segments} for row in seen.choice.tolist()]
    is_near = seen.plain.near_distance.isfinite()
    near, of = seen.plain.near_segment[is_near], is_near.nonzero()[:, 0]
    assert all(int(s) in choice[int(b)] for b, s in zip(of, near, strict=True))
    true = [(b, int(s)) for b, row in enumerate(batch.segment) for s in row if s >= 0]
    found = np.mean([s in choice[b] for b, s in true])
    assert found > 0.9
    few = ReachableSearch(city, 4).choices(batch, seen.plain)
    assert (few < city.n_segments).sum() < (seen.choice < city.n_segments).sum()
    known = training_inputs(method, batch)
    assert isinstance(known, ReachableInputs)
    assert all(s in known.choice[b].tolist() for b, s in true)


@pytest.fixture
def with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every trip choose among all segments."""

    def everything(self: ReachableSearch, batch: Batch, inputs: Inputs) -> torch.Tensor:
        del inputs
        n, b = self.network.n_segments, len(batch)
        return sets_of(np.repeat(np.arange(b), n), np.tile(np.arange(n), b), b, n)

    monkeypatch.setattr(ReachableSearch, "choices", everything)


@pytest.mark.usefixtures("with_all")
def test_among_all_segments_it_is_the_model_of_the_paper(city: RoadNetwork, trips: Trips) -> None:
    ours, dense = made(city).eval(), made(city, dataclasses.replace(TINY, scored="all")).eval()
    batch = batch_of(city, trips)
    found, expected = (method.loss(training_inputs(method, batch)) for method in (ours, dense))
    torch.testing.assert_close(found, expected)
    gradients = [
        torch.autograd.grad(loss.total, list(method.parameters()), materialize_grads=True)
        for loss, method in ((found, ours), (expected, dense))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-6)
    for a, b in zip(ours.recover(batch), dense.recover(batch), strict=True):
        torch.testing.assert_close(a, b)
    for a, b in zip(ours.best(batch, 3), dense.best(batch, 3), strict=True):
        torch.testing.assert_close(a, b)


def test_training_on_the_touched_part_is_training_on_the_whole(
    city: RoadNetwork, trips: Trips, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, batch = made(city), batch_of(city, trips.select([0]))
    weights = list(method.parameters())
    forced = torch.rand(batch.step_mask.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    whole = method.inputs(batch, forced)
    monkeypatch.setattr(reachable, "LARGE", 0)
    monkeypatch.setattr(reachable, "SHARE", 0.95)
    part = method.inputs(batch, forced)
    assert isinstance(whole, ReachableInputs)
    assert isinstance(part, ReachableInputs)
    assert whole.part is None
    assert part.part is not None
    expected = method.loss(whole)
    gradients = torch.autograd.grad(expected.total, weights, materialize_grads=True)
    for seen in (part, part.rounded()):
        found = method.loss(seen)
        torch.testing.assert_close(found, expected)
        ours = torch.autograd.grad(found.total, weights, materialize_grads=True)
        torch.testing.assert_close(ours, gradients, rtol=1e-4, atol=1e-6)
    run_recordable(lambda: torch.autograd.grad(method.loss(part.rounded()).total, weights, materialize_grads=True))


@pytest.mark.parametrize("large", [1, 10**6])
def test_choices_that_fill_up_change_nothing(
    city: RoadNetwork, trips: Trips, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachable, "LARGE", large)
    monkeypatch.setattr(reachable, "SHARE", 2)
    method = made(city)
    inputs = training_inputs(method, batch_of(city, trips))
    assert isinstance(inputs, ReachableInputs)
    assert (inputs.part is None) == (large > 1)
    expected = method.loss(inputs)
    monkeypatch.setattr(reachable, "UNIT", inputs.choice.shape[1] - 1)
    filled = inputs.rounded()
    assert filled.choice.shape[1] == 2 * inputs.choice.shape[1] - 2
    assert (filled.choice.diff(dim=1) >= 0).all()
    assert (filled.choice >= 0).all()
    for found, loss in zip(method.loss(filled), expected, strict=True):
        torch.testing.assert_close(found, loss)


@pytest.mark.parametrize("count", [1, 64, 511, 513, 1024, 1025, 1984, 5000])
def test_few_numbers_of_choices_occur(city: RoadNetwork, trips: Trips, count: int) -> None:
    inputs = training_inputs(made(city), batch_of(city, trips))
    assert isinstance(inputs, ReachableInputs)
    seen = type(inputs)(*inputs.plain, inputs.choice[:, :1].expand(-1, count), *no_part()).rounded()
    found = seen.choice.shape[1]
    assert count <= found < 1.25 * count + reachable.UNIT
    assert found % max(reachable.UNIT, 2 ** (found.bit_length() - 4)) == 0


def test_a_trip_is_answered_alone_as_among_others(city: RoadNetwork, trips: Trips) -> None:
    method = made(city).eval()
    together = method.recover(batch_of(city, trips))
    for k in range(len(trips)):
        alone = method.recover(batch_of(city, trips.select([k])))
        n = alone.segment.shape[1]
        assert torch.equal(alone.segment[0], together.segment[k, :n])
        torch.testing.assert_close(alone.log_prob[0], together.log_prob[k, :n], rtol=1e-4, atol=1e-5)


def test_it_learns(city: RoadNetwork, trips: Trips) -> None:
    method, batch = made(city, dataclasses.replace(TINY, smoothing=0.0)), batch_of(city, trips)
    inputs = training_inputs(method, batch)
    optimizer = torch.optim.Adam(method.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = method.loss(inputs).total
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.5 * losses[0]
    assert (method.recover(batch).segment[batch.step_mask] >= 0).all()
