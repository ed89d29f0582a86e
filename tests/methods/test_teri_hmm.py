"""TERI against its equations written out: tokens, what each of them sees, the loss, and greedy filling."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.methods.cell_stage import CellInputs
from tedtrajrec.methods.teri_hmm import TeriConfig, TeriHmm, Transitions, before_last, nt_xent, spans
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid
from tests.methods.cells_literal import made_cells, trip_of
from tests.methods.recordable import run_recordable
from tests.trips.test_match import trip

SMALL = TeriConfig(d=8, heads=2, width=12, dropout=0.0, cell_m=80.0)


def made(grid: RoadNetwork, **settings: object) -> TeriHmm:
    torch.manual_seed(2)
    method = TeriHmm(grid, dataclasses.replace(SMALL, **settings)).double()
    random = np.random.default_rng(1)
    pairs = np.unique(random.integers(len(method.centres), size=(2, 30)), axis=1)
    method.use(Transitions(*pairs, random.integers(1, 9, pairs.shape[1])))
    return method


def dense_vectors(method: TeriHmm) -> Tensor:
    """Return the vectors of all tokens with the graph as a whole matrix."""
    count = torch.eye(len(method.own)).double()
    for a, b, times in zip(*method._transitions, strict=True):
        count[a, b] += times
    matrix = count / count.sum(1, keepdim=True)
    first, second = method.convolutions
    x = matrix @ (method.context @ first.lin.weight.T) + first.bias
    x = torch.where(x > 0, x, 0.2 * x)
    return method.own + matrix @ (x @ second.lin.weight.T) + second.bias


def literal_token(method: TeriHmm, vectors: Tensor, token: int, position: int, time: float) -> Tensor:
    cells = len(method.centres)
    place = method.centres[token] if token < cells else torch.zeros(2).double()
    x = vectors[token] + math.sqrt(8) * method.position[position]
    return x + method.in_time(torch.tensor([time]).double()) + method.in_space(place)


def literal_layers(method: TeriHmm, tokens: list[Tensor]) -> Tensor:
    """Return the last states of tokens of which each sees those before it: a layer of torch over each beginning."""
    x = torch.stack(tokens)
    for layer in method.layers:
        rows = []
        for k in range(len(x)):
            seen = x[: k + 1]
            query, key, value = layer.query_key_value(seen).chunk(3, dim=-1)
            heads = []
            for h in range(2):
                part = slice(4 * h, 4 * h + 4)
                weight = torch.softmax(key[:, part] @ query[-1, part] / 2, dim=0)
                heads.append(weight @ value[:, part])
            y = layer.norm1(x[k] + layer.out(torch.cat(heads)))
            rows.append(layer.norm2(y + layer.feed(y)))
        x = torch.stack(rows)
    return method.norm(x)


def literal_source(method: TeriHmm, vectors: Tensor, one: CellInputs) -> list[Tensor]:
    tokens = []
    for i in range(one.step_mask.shape[1]):
        seen = bool(one.observed[0, i])
        token = int(one.fix_cell[0, one.before[0, i]]) if seen else len(method.centres)
        time = float(i) if seen or method.config.blank_times else 333.0
        tokens.append(literal_token(method, vectors, token, i, time))
    return tokens


@pytest.mark.parametrize("blank_times", [True, False])
def test_the_loss_and_its_gradients_are_those_of_the_equations(grid: RoadNetwork, blank_times: bool) -> None:
    method = made(grid, blank_times=blank_times, contrastive=0.0).train()
    inputs = made_cells(method, 4)
    vectors, cells = dense_vectors(method), len(method.centres)
    miss, count = torch.zeros(()).double(), 0
    for b in range(3):
        one = trip_of(inputs, b)
        tokens = literal_source(method, vectors, one)
        told, since, slots = cells + 1, 0.0, []
        for i in np.flatnonzero(~one.observed[0].numpy()).tolist():
            slots.append((len(tokens), int(one.cell[0, i])))
            tokens.append(literal_token(method, vectors, told, i, since))
            told, since = int(one.cell[0, i]) if one.cell[0, i] >= 0 else cells, float(i)
        states = literal_layers(method, tokens)
        for place, true in slots:
            if true >= 0:
                miss = miss - torch.log_softmax(method.score(states[place]), dim=0)[true]
                count += 1
    losses = method.loss(inputs)
    torch.testing.assert_close(losses.segment, (miss / count).detach(), rtol=1e-8, atol=0)
    weights = [weight for name, weight in method.named_parameters() if not name.startswith("view")]
    expected = torch.autograd.grad(miss / count, weights)
    for a, b in zip(torch.autograd.grad(losses.total, weights), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)


def test_blanks_are_filled_in_one_after_the_other(grid: RoadNetwork) -> None:
    method = made(grid).eval()
    inputs = made_cells(method, 9)
    found = method.places(inputs).place
    vectors, cells = dense_vectors(method), len(method.centres)
    seen = set()
    for b in range(3):
        one = trip_of(inputs, b)
        tokens = literal_source(method, vectors, one)
        told, since = cells + 1, 0.0
        for i in range(one.step_mask.shape[1]):
            if one.observed[0, i]:
                torch.testing.assert_close(found[b, i], one.fix_place[0, one.before[0, i]])
                continue
            tokens.append(literal_token(method, vectors, told, i, since))
            told, since = int(method.score(literal_layers(method, tokens)[-1]).argmax()), float(i)
            seen.add(told)
            torch.testing.assert_close(found[b, i], method.centres[told])
    assert len(seen) > 2


def test_more_padding_changes_nothing(grid: RoadNetwork) -> None:
    method = made(grid, contrastive=0.0).train()
    inputs = made_cells(method, 1)
    torch.testing.assert_close(method.loss(inputs.rounded(7, 16)).total, method.loss(inputs).total)
    found = method.eval().places(inputs.rounded(7, 16)).place[:, :12][inputs.step_mask]
    torch.testing.assert_close(found, method.places(inputs).place[inputs.step_mask])


def test_places_can_be_recorded(grid: RoadNetwork) -> None:
    method = made(grid).eval()
    inputs = made_cells(method, 1)
    method._kept_roads()
    run_recordable(lambda: method.places(inputs))


def test_the_contrastive_loss_has_a_part_in_training_alone(grid: RoadNetwork) -> None:
    method = made(grid).train()
    inputs = made_cells(method, 1)
    losses = method.loss(inputs)
    torch.testing.assert_close(losses.total.detach(), losses.segment + 0.2 * losses.ratio)
    assert float(losses.ratio) > 0
    assert float(method.eval().loss(inputs).ratio) == 0


def test_nt_xent_by_its_formula() -> None:
    random = torch.Generator().manual_seed(1)
    views = torch.randn(6, 4, generator=random)
    terms = []
    for i in range(6):
        alike = [float(torch.cosine_similarity(views[i], views[k], dim=0)) / 0.3 for k in range(6)]
        total = sum(math.exp(alike[k]) for k in range(6) if k != i)
        terms.append(-math.log(math.exp(alike[(i + 3) % 6]) / total))
    assert float(nt_xent(views, 0.3)) == pytest.approx(np.mean(terms), rel=1e-5)


def test_spans_are_one_to_three_parts_of_the_trip() -> None:
    torch.manual_seed(0)
    count = torch.randint(10, 40, (300,))
    inside = spans(count, 48)
    assert not (inside & (torch.arange(48) >= count[:, None])).any()
    share = inside.sum(1) / count
    assert share.max() <= 0.8
    assert share.min() > 0.05
    starts = (inside & ~torch.nn.functional.pad(inside[:, :-1], (1, 0))).sum(1)
    assert set(starts.tolist()) == {1, 2, 3}


def test_the_blank_before() -> None:
    blank = torch.tensor([[False, True, True, False, True, False]])
    assert before_last(blank).tolist() == [[-1, -1, 1, 2, 2, 4]]


def test_transitions_are_counted_in_training_trips_and_kept(tmp_path: Path) -> None:
    city = make_grid(4, 3)
    steps = trip([(0, 10, 0), (10, 90, 0), (20, 95, 0), (30, 250, 0), (40, 10, 0)], "a")
    # Along the first street: two steps in one cell, then an unknown one, which ends what is counted.
    steps = steps.replace(segment=np.array([0, 0, 0, -1, 0], np.int32), ratio=np.array([0.1, 0.9, 0.95, np.nan, 0.1]))
    splits = {"train": shards_of(steps)}
    dataset = write_dataset(tmp_path / "city", city, splits, step_s=10, time_zone="UTC")
    method = TeriHmm(city, dataclasses.replace(SMALL, cell_m=50.0))
    method.precompute(dataset)
    (source,), (target,), (times,) = method._transitions
    assert times == 1
    np.testing.assert_allclose((method.centres[target] - method.centres[source]).numpy(), [1, 0], atol=1e-5)
    again = TeriHmm(city, dataclasses.replace(SMALL, cell_m=50.0))
    again.restore(method.state())
    torch.testing.assert_close(again.roads().more, method.roads().more)


def test_settings_that_cannot_be() -> None:
    for wrong in ({"d": 9}, {"heads": 3}, {"layers": 0}, {"contrastive": -0.1}):
        with pytest.raises(ValueError, match="must"):
            TeriConfig(**wrong)  # type: ignore[arg-type]
