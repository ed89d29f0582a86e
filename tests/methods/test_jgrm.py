"""JGRM: features, both views and how they are joined, against loops over the equations; pre-training."""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.jgrm import Jgrm, JgrmConfig, Task, Views, features
from tedtrajrec.methods.pretraining import pretrain
from tedtrajrec.methods.road_tokens import DatedInputs
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.transformer import Transformer
from tests.conftest import make_grid
from tests.methods.few_trips import write_few_trips
from tests.methods.test_start import layered, made_inputs
from tests.nn.test_grid_gnn import attended

SMALL = JgrmConfig(d=8, heads=2, joint_heads=2, width=12, route_layers=1, joint_layers=2, dropout=0.0)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return write_few_trips(tmp_path_factory.mktemp("jgrm"))


@pytest.fixture(scope="module")
def grid() -> RoadNetwork:
    return make_grid(3, 3)


def made(grid: RoadNetwork) -> Jgrm:
    torch.manual_seed(1)
    method = Jgrm(grid, SMALL).double().train()
    method.mean.copy_(torch.linspace(-1, 1, 7))
    method.deviation.copy_(torch.linspace(40, 90, 7))
    return method


def test_what_is_said_of_a_fix() -> None:
    metres = torch.tensor([[[0.0, 0.0], [0.0, 300.0], [-400.0, 300.0], [-400.0, 300.0], [-400.0, 600.0]]]).double()
    seconds = torch.tensor([[0.0, 60.0, 100.0, 100.0, 160.0]]).double()
    found = features(metres, seconds)[0]
    torch.testing.assert_close(found[:, :2], metres[0])
    expected = {
        "speed": [0, 5, 10, 0, 5],  # two fixes at the same time say nothing of speed
        "acceleration": [0, 5 / 60, 5 / 40, 0, 5 / 60],
        "turn": [0, 0, math.pi / 2, 0, 0],  # none after a halt
        "interval": [0, 60, 40, 0, 60],
        "way": [0, 300, 400, 0, 300],
    }
    for k, values in enumerate(expected.values()):
        torch.testing.assert_close(found[:, 2 + k], torch.tensor(values).double())


def test_a_turn_is_the_shorter_way_round() -> None:
    angles = torch.tensor([0.0, 3.0, -3.0, -3.0 + 2 * math.pi / 3]).double()
    steps = torch.stack([angles.cos(), angles.sin()], dim=-1) * 10
    places = torch.cat([torch.zeros(1, 2).double(), steps.cumsum(0)])
    turn = features(places[None], torch.arange(5).double()[None] * 30)[0, :, 4]
    torch.testing.assert_close(turn, torch.tensor([0, 0, 3, 2 * math.pi - 6, 2 * math.pi / 3]).double())


@pytest.mark.parametrize("skip", [False, True])
def test_roads_hear_their_neighbours(grid: RoadNetwork, skip: bool) -> None:
    torch.manual_seed(2)
    method = Jgrm(grid, dataclasses.replace(SMALL, road_skip=skip)).double().eval()
    source = np.repeat(np.arange(grid.n_segments), np.diff(grid.succ_offset))
    pairs = {(int(a), int(b)) for a, b in zip(source, grid.succ, strict=True)}
    heard = [
        [j for j in range(grid.n_segments) if i == j or (i, j) in pairs or (j, i) in pairs]
        for i in range(grid.n_segments)
    ]
    x: Tensor = method.road_table
    for k, layer in enumerate(method.road_gat):
        x = torch.where(x > 0, x, torch.exp(x) - 1) if k else x
        x = attended(layer, x, heard) + (x @ layer.res.weight.T if skip else 0)
    torch.testing.assert_close(method.roads().more, x)


def gru(weights: nn.GRU | nn.GRUCell, rows: list[Tensor], d: int) -> list[Tensor]:
    """Return the states of a GRU."""
    names = [f"{name}_l0" if isinstance(weights, nn.GRU) else name for name in ("weight_ih", "weight_hh")]
    biases = [name.replace("weight", "bias") for name in names]
    w, u = (getattr(weights, name) for name in names)
    b, c = (getattr(weights, name) for name in biases)
    state, out = torch.zeros(d).double(), []
    for row in rows:
        r0, z0, n0 = (w @ row + b).chunk(3)
        r1, z1, n1 = (u @ state + c).chunk(3)
        reset, update = torch.sigmoid(r0 + r1), torch.sigmoid(z0 + z1)
        state = (1 - update) * torch.tanh(n0 + reset * n1) + update * state
        out.append(state)
    return out


def read(stack: Transformer, x: list[Tensor]) -> list[Tensor]:
    for layer in stack.layers:
        x = layered(layer, x, [[torch.zeros(()).double()] * len(x)] * len(x))
    return x


def plain_views(method: Jgrm, inputs: DatedInputs, trip: int, vectors: Tensor, hidden: Tensor) -> Views:
    """Return both views of a trip, fix by fix."""
    plain, half = inputs.plain, method.config.d // 2
    length = int(plain.fix_mask[trip].sum())
    told = features(plain.fix_xy[trip : trip + 1, :length] * method._extent, inputs.seconds[trip : trip + 1, :length])
    points, words = [], []
    for j in range(length):
        scaled = ((told[0, j] - method.mean) / method.deviation).clamp(-5, 5)
        point = method.point.weight @ torch.cat([torch.ones(1).double(), scaled]) + method.point.bias
        until = (inputs.seconds[trip, j + 1] - inputs.seconds[trip, j]) / 60 if j + 1 < length else torch.zeros(())
        bins = torch.exp(method.until[0].weight[:, 0] * until + method.until[0].bias)
        word = vectors[plain.near_segment[trip, j, 0]]
        word = word + method.weekday.weight[inputs.weekday[trip, j]]
        word = word + method.minute.weight[int(plain.fix_minute[trip, j])]
        word = word + method.until[2].weight @ (bins / bins.sum())
        if hidden[trip, j]:
            point, word = torch.zeros_like(point), method.unknown
        points.append(gru(method.within, [point], half)[0])
        words.append(method.into_route.weight @ (word + method.place.weight[j]) + method.into_route.bias)
    on = gru(method.between.on, points, half)
    back = gru(method.between.back, points[::-1], half)[::-1]
    gps = torch.stack([torch.cat(pair) for pair in zip(on, back, strict=True)])
    route = torch.stack(read(method.route, words))
    return Views(gps, route, gps.mean(0), route.mean(0))


def plain_joined(method: Jgrm, views: Views) -> Views:
    """Return the views of a trip after they have been joined."""
    tokens = []
    for kind, (trip, fixes) in enumerate([(views.gps_trip, views.gps), (views.route_trip, views.route)]):
        for place, state in enumerate([trip, *fixes]):
            token = state + method.joint_place.weight[place] + method.view.weight[kind]
            tokens.append(method.into_joint.weight @ token + method.into_joint.bias)
    out = torch.stack(read(method.joint, tokens))
    m = len(views.gps)
    return Views(out[1 : m + 1], out[m + 2 :], out[0], out[m + 1])


@pytest.mark.parametrize("hiding", [False, True])
def test_views_follow_the_equations(grid: RoadNetwork, hiding: bool) -> None:
    method = made(grid)
    inputs = made_inputs(grid.n_segments)
    mask = inputs.plain.fix_mask
    vectors = cast("Tensor", method.roads().more)
    hidden = torch.zeros_like(mask)
    hidden[:, 1] = hiding
    views = method.views(inputs, vectors, hidden)
    joined = method.joined(views, mask)
    for b, length in enumerate(mask.sum(1).tolist()):
        alone = plain_views(method, inputs, b, vectors, hidden)
        together = plain_joined(method, alone)
        for found, expected in ((views, alone), (joined, together)):
            torch.testing.assert_close(found.gps[b, :length], expected.gps)
            torch.testing.assert_close(found.route[b, :length], expected.route)
            torch.testing.assert_close(found.gps_trip[b], expected.gps_trip)
            torch.testing.assert_close(found.route_trip[b], expected.route_trip)


def test_states_of_fixes_come_from_both_views(grid: RoadNetwork) -> None:
    method = made(grid)
    inputs = made_inputs(grid.n_segments)
    roads = method.roads()
    found = method.fixes(inputs, roads)
    none = torch.zeros_like(inputs.plain.fix_mask)
    variables = [method.road_table, method.point.weight, method.minute.weight, method.view.weight]
    for b, length in enumerate(inputs.plain.fix_mask.sum(1).tolist()):
        views = plain_joined(method, plain_views(method, inputs, b, cast("Tensor", roads.more), none))
        both = torch.cat([views.gps, views.route], dim=-1)
        expected = both @ method.to_fix.weight.T + method.to_fix.bias
        torch.testing.assert_close(found.states[b, :length], expected)
        trip = torch.cat([views.gps_trip, views.route_trip])
        torch.testing.assert_close(found.start[b], method.to_start.weight @ trip + method.to_start.bias)
        slopes, others = (
            torch.autograd.grad(out.sin().sum(), variables, retain_graph=True)
            for out in (found.states[b, :length], expected)
        )
        for a, c in zip(slopes, others, strict=True):
            torch.testing.assert_close(a, c)


def test_features_are_scaled_by_training_trips(dataset: Dataset) -> None:
    method = Jgrm(dataset.network, SMALL)
    method.precompute(dataset)
    trips = dataset.split("train").trips()
    fixes = trips.keep_fixes(draw_observed(trips, "1/8", seed=0))
    x, y = dataset.network.plane.to_xy(fixes.lon, fixes.lat)
    middle = method._middle.numpy()
    told = [
        features(
            torch.from_numpy(np.stack([x[a:b], y[a:b]], axis=-1) - middle)[None],
            torch.from_numpy(fixes.time[a:b] - fixes.time[a]).double()[None],
        )[0]
        for a, b in zip(fixes.offsets, fixes.offsets[1:], strict=False)
    ]
    values = torch.cat(told)
    torch.testing.assert_close(method.mean.double(), values.mean(0), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(method.deviation.double(), values.std(0, correction=0), rtol=1e-3, atol=1e-3)


def test_pretraining_learns_and_leaves_the_decoder(dataset: Dataset) -> None:
    torch.manual_seed(5)
    method = Jgrm(dataset.network, dataclasses.replace(SMALL, d=32))
    before = {name: array.copy() for name, array in method.state().items()}
    task = Task(method)
    losses = pretrain(method, dataset, task, task.loss, epochs=40, lr=1e-2)
    assert losses[-1] < 0.8 * losses[0]
    changed = {name for name, array in method.state().items() if (array != before[name]).any()}
    assert {"road_table", "point.weight", "between.back.weight_ih_l0", "joint.layers.1.out.weight"} <= changed
    assert not any(name.startswith(("decoder", "table", "to_fix", "to_start")) for name in changed)


def test_pretraining_is_a_switch(dataset: Dataset) -> None:
    states = []
    for epochs in (0, 1, 1):
        torch.manual_seed(2)
        method = Jgrm(dataset.network, dataclasses.replace(SMALL, pretrain_epochs=epochs))
        method.precompute(dataset)
        states.append(method.state())
    for name, array in states[1].items():
        np.testing.assert_array_equal(array, states[2][name])
    assert (states[0]["road_table"] != states[1]["road_table"]).any()


def test_a_negative_is_another_trip(grid: RoadNetwork) -> None:
    torch.manual_seed(3)
    task = Task(made(grid)).double()
    views = torch.eye(4, 8).double()  # each is nearest to its own
    seen: list[Tensor] = []
    task.same.register_forward_pre_hook(lambda _, pairs: seen.extend(pairs))
    task.match(views, views)
    a, b = seen[0].chunk(2, dim=-1)
    same = (a * b).sum(-1) > 0
    assert same.tolist() == [True] * 4 + [False] * 8
    assert task.match(views[:1], views[:1]) == 0


@pytest.mark.parametrize("wrong", [{"d": 9}, {"heads": 3}, {"joint_heads": 0}, {"pretrain_epochs": -1}])
def test_settings_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"heads|pretrain_epochs"):
        dataclasses.replace(SMALL, **wrong)
