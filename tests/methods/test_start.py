"""START: what a fix is told as, and attention that knows intervals, against loops over the equations; pre-training."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.pretraining import pretrain
from tedtrajrec.methods.road_tokens import DatedInputs, dated, road_tokens
from tedtrajrec.methods.start import Start, StartConfig, Task, contrast
from tedtrajrec.nn.tpe_gat import turns
from tedtrajrec.nn.transformer import TransformerLayer
from tests.conftest import make_grid
from tests.methods.few_trips import STEP_S, ZONE, write_few_trips
from tests.nn import literal

SMALL = StartConfig(d=8, heads=2, width=12, road_heads=(2, 1), dropout=0.0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_few_trips(tmp_path_factory.mktemp("start"))


def made_inputs(n_segments: int) -> DatedInputs:
    plain = literal.double(literal.made_inputs(n_segments, 5))
    weekday = torch.tensor([[0], [6], [3]]).expand(plain.fix_mask.shape)
    return DatedInputs(*plain, weekday, plain.fix_time * 15)


def sine(place: int, d: int) -> Tensor:
    angles = [place / 10_000 ** (2 * (k // 2) / d) for k in range(d)]
    return torch.tensor([math.cos(a) if k % 2 else math.sin(a) for k, a in enumerate(angles)], dtype=torch.float64)


def layered(layer: TransformerLayer, x: list[Tensor], bias: list[list[Tensor]]) -> list[Tensor]:
    """Return a layer, head by head."""
    d, c = len(x[0]), len(x[0]) // layer.heads
    mapped = [layer.query_key_value.weight @ row + layer.query_key_value.bias for row in x]
    out = []
    for i, row in enumerate(x):
        read = []
        for h in range(layer.heads):
            q, k, v = (slice(part * d + h * c, part * d + (h + 1) * c) for part in range(3))
            weights = [torch.exp(mapped[i][q] @ other[k] / math.sqrt(c) + bias[i][j]) for j, other in enumerate(mapped)]
            read.append(sum(w * other[v] for w, other in zip(weights, mapped, strict=True)) / sum(weights))
        y = literal.norm(layer.norm1, row + layer.out.weight @ torch.cat(read) + layer.out.bias)
        hidden = literal.activation("gelu", layer.feed[0].weight @ y + layer.feed[0].bias)
        out.append(literal.norm(layer.norm2, y + layer.feed[3].weight @ hidden + layer.feed[3].bias))
    return out


def test_states_follow_the_equations() -> None:
    grid = make_grid(3, 3)
    torch.manual_seed(1)
    method = Start(grid, SMALL).double().train()
    inputs = made_inputs(grid.n_segments)
    plain = inputs.plain
    g = method.roads().more
    assert g is not None
    found = method.fixes(inputs, method.roads())
    variables = [method.minute.weight, method.cls, method.table, *method.intervals.parameters()]
    for b, length in enumerate(plain.fix_mask.sum(1).tolist()):
        x = [method.cls + sine(0, 8)]
        for j in range(length):
            word = g[plain.near_segment[b, j, 0]]
            when = method.minute.weight[int(plain.fix_minute[b, j])] + method.weekday.weight[inputs.weekday[b, j]]
            x.append(word + when + sine(j + 1, 8))
        times = [0.0, *inputs.seconds[b, :length].tolist()]
        for layer, interval in zip(method.layers, method.intervals, strict=True):
            first, last = interval.network[0], interval.network[2]

            def bias(s: float, first: torch.nn.Linear = first, last: torch.nn.Linear = last) -> Tensor:
                hidden = first.weight[:, 0] / math.log(math.e + s) + first.bias
                return last.weight[0] @ torch.where(hidden > 0, hidden, 0.2 * hidden) + last.bias[0]

            x = layered(cast("TransformerLayer", layer), x, [[bias(abs(s - t)) for t in times] for s in times])
        expected = torch.stack(x)
        out = torch.cat([found.start[b][None], found.states[b, :length]])
        torch.testing.assert_close(out, expected)
        slopes, others = (
            torch.autograd.grad(value.sin().sum(), variables, retain_graph=True) for value in (out, expected)
        )
        for a, c in zip(slopes, others, strict=True):
            torch.testing.assert_close(a, c)


def test_what_a_fix_is_told_as() -> None:
    grid = make_grid(3, 3)
    plain = made_inputs(grid.n_segments).plain
    vectors, unknown = torch.randn(grid.n_segments, 4).double(), torch.randn(4).double()
    near = plain.near_distance.clone()
    near[0, 1] = torch.inf
    near[1, 0] += 400
    plain = plain._replace(near_distance=near)
    nearest = road_tokens(vectors, plain, unknown, eta_m=400)
    soft = road_tokens(vectors, plain, unknown, eta_m=400, soft_m=30)
    for b, j in plain.fix_mask.nonzero().tolist():
        if (b, j) in {(0, 1), (1, 0)}:
            torch.testing.assert_close(nearest[b, j], unknown)
            torch.testing.assert_close(soft[b, j], unknown)
            continue
        torch.testing.assert_close(nearest[b, j], vectors[plain.near_segment[b, j, 0]])
        weight = torch.exp(-((near[b, j] / 30) ** 2))
        torch.testing.assert_close(soft[b, j], weight @ vectors[plain.near_segment[b, j]] / weight.sum())


def batch_of(dataset: Dataset) -> Batch:
    trips = dataset.split("test").trips()
    seen = draw_observed(trips, "1/4", seed=1)
    return make_batch(trips, seen, dataset.network, step_s=STEP_S, time_zone=ZONE)


def test_after_midnight_it_is_the_next_day(dataset: Dataset) -> None:
    batch = batch_of(dataset)
    shape = batch.fix_mask.shape
    minute = torch.full(shape, 1439.5)
    minute[1, 1:] = 3.0
    batch = dataclasses.replace(batch, fix_minute=minute, weekday=torch.full((shape[0],), 6))
    inputs = dated(batch, Start(dataset.network, SMALL).plain_inputs(batch))
    assert inputs.weekday[0].tolist() == [6] * shape[1]
    assert inputs.weekday[1].tolist() == [6] + [0] * (shape[1] - 1)
    assert inputs.rounded(fixes=8).weekday.shape[1] % 8 == 0


@pytest.mark.parametrize("by_source", [False, True])
def test_turns_of_training_trips_are_counted(dataset: Dataset, by_source: bool) -> None:
    method = Start(dataset.network, dataclasses.replace(SMALL, by_source=by_source))
    method.precompute(dataset)
    share = method.road_gat.share.numpy()
    sums = np.bincount(turns(dataset.network)[0 if by_source else 1], share, dataset.network.n_segments)
    assert set(np.unique(sums.round(5)).tolist()) <= {0.0, 1.0}
    assert sums.any()


def pretrained(dataset: Dataset, epochs: int, start: dict[str, str] | None = None) -> Start:
    torch.manual_seed(4)
    method = Start(dataset.network, dataclasses.replace(SMALL, pretrain_epochs=epochs))
    method.start = start
    method.precompute(dataset)
    return method


def test_pretraining_changes_weights_alike_each_time(dataset: Dataset, tmp_path: Path) -> None:
    plain, once, again, begun = (
        pretrained(dataset, epochs, start).state() for epochs, start in ((0, None), (1, None), (1, None), (1, {}))
    )
    assert plain.keys() == once.keys()
    for name, array in once.items():
        np.testing.assert_array_equal(again[name], array)
        np.testing.assert_array_equal(begun[name], plain[name])  # weights of another run are not trained again
    changed = {name for name, array in once.items() if (array != plain[name]).any()}
    assert {"minute.weight", "table", "cls", "layers.1.out.weight", "intervals.0.network.0.weight"} <= changed
    assert not any(name.startswith(("decoder", "start_state")) for name in changed)
    method = pretrained(dataset, 1)
    method.save(tmp_path / "run")
    assert Start.load(tmp_path / "run", dataset.network).config.pretrain_epochs == 1


def test_pretraining_learns(dataset: Dataset) -> None:
    torch.manual_seed(5)
    method = Start(dataset.network, dataclasses.replace(SMALL, d=16)).eval()
    task = Task(method)
    assert not any(weight is other for weight in task.parameters() for other in method.parameters())
    losses = pretrain(method, dataset, task, task.loss, epochs=30, lr=1e-2)
    assert losses[-1] < 0.7 * losses[0]
    assert not method.training
    assert all(weight.grad is None for weight in method.parameters())


def test_hidden_roads_are_not_told(dataset: Dataset) -> None:
    torch.manual_seed(6)
    method = Start(dataset.network, SMALL).eval()
    inputs = method.inputs(batch_of(dataset))
    vectors = cast("Tensor", method.roads().more)
    hidden = inputs.plain.fix_mask.clone()
    hidden[:, 0] = False
    other = DatedInputs(
        *inputs.plain._replace(
            near_segment=torch.where(hidden[..., None], 3, inputs.plain.near_segment),
            fix_minute=torch.where(hidden, 77.0, inputs.plain.fix_minute),
        ),
        *inputs[-2:],
    )
    assert torch.equal(method.read(inputs, vectors, hidden).start, method.read(other, vectors, hidden).start)
    assert not torch.equal(method.read(inputs, vectors).start, method.read(other, vectors).start)


def test_contrast_of_views() -> None:
    torch.manual_seed(7)
    a, b = torch.randn(2, 3, 5).double()
    views = [view / view.norm() for view in (*a, *b)]
    total = 0.0
    for i, view in enumerate(views):
        like = {j: math.exp(float(view @ other) / 0.05) for j, other in enumerate(views) if j != i}
        total -= math.log(like[(i + 3) % 6] / sum(like.values()))
    assert contrast(a, b).item() == pytest.approx(total / 6)


@pytest.mark.parametrize("wrong", [{"heads": 3}, {"road_heads": ()}, {"pretrain_epochs": -1}, {"soft_m": -1.0}])
def test_settings_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"heads|pretrain_epochs"):
        dataclasses.replace(SMALL, **wrong)
