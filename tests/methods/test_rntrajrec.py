"""RNTrajRec: GPSFormer and the loss of fixes against their equations, and what padding must not change."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.rntrajrec import RNTrajRec, RNTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.gps_former import Around, GpsFormerLayer, followers, graphs_around
from tests.methods import mtrajrec_literal
from tests.nn import literal
from tests.nn.test_grid_gnn import attended

SMALL = RNTrajRecConfig(d=8, heads=2, width=12, dropout=0.0, ratio_weight=3.0)


def made(grid: RoadNetwork) -> RNTrajRec:
    torch.manual_seed(1)
    return RNTrajRec(grid, SMALL).double().train()


def test_graphs_around_fixes(grid: RoadNetwork, inputs: Inputs) -> None:
    real = inputs.near_distance < 110
    around = graphs_around(inputs.near_segment, real, followers(grid))
    b, m, k = inputs.near_segment.shape
    assert around.links.any()
    for at in torch.cartesian_prod(*(torch.arange(size) for size in (b, m, k, k))).tolist():
        trip, fix, i, j = at
        after = grid.successors(int(inputs.near_segment[trip, fix, j]))
        linked = int(inputs.near_segment[trip, fix, i]) in after
        expected = i == j or (linked and bool(real[trip, fix, i] and real[trip, fix, j]))
        assert bool(around.links[trip, fix, i, j]) == expected


def plain_layer(layer: GpsFormerLayer, x: Tensor, mask: Tensor, road: Tensor, around: Around) -> tuple[Tensor, Tensor]:
    """Return a layer of GPSFormer, fix by fix."""
    b, m, _ = x.shape
    fixes = torch.zeros_like(x)
    for trip in range(b):
        real = int(mask[trip].sum())
        time = torch.zeros(real, dtype=x.dtype)
        fixes[trip, :real] = literal.tedformer(layer.attend, x[trip, :real], time, x[trip, :real], time)
    at = [(trip, fix) for trip in range(b) for fix in range(m) if mask[trip, fix]]
    graphs = {place: around.real[place].nonzero()[:, 0].tolist() for place in at}

    def norm(module: torch.nn.Module, nodes: dict[tuple[int, int], Tensor]) -> dict[tuple[int, int], Tensor]:
        full = [rows for rows in nodes.values() if len(rows)]
        mean = torch.stack([rows.mean(0) for rows in full]).mean(0)
        var = ((torch.cat(full) - mean) ** 2).mean(0)
        parts = dict(module.named_parameters())
        return {
            place: (rows - mean) / (var + 1e-5).sqrt() * parts["gain"] + parts["bias"] for place, rows in nodes.items()
        }

    fused = {}
    for place, nodes in graphs.items():
        t, z = fixes[place], road[place][nodes]
        gate = torch.sigmoid(z @ layer.gate_road.weight.T + layer.gate_road.bias + layer.gate_fix.weight @ t)
        fused[place] = z + gate * t + (1 - gate) * z
    fused = norm(layer.norm1, fused)
    spread = {}
    for place, nodes in graphs.items():
        links = around.links[place]
        heard = [[j for j, e in enumerate(nodes) if e == d or links[d, e]] for d in nodes]
        spread[place] = fused[place] + attended(layer.graph, fused[place], heard) if nodes else fused[place]
    spread = norm(layer.norm2, spread)
    out, roads = torch.zeros_like(x), torch.zeros_like(road)
    for place, nodes in graphs.items():
        out[place] = spread[place].mean(0) if nodes else fixes[place]
        for k, node in enumerate(nodes):
            roads[(*place, node)] = spread[place][k]
    return out, roads


def test_a_layer_and_its_gradients_are_those_of_the_equations(grid: RoadNetwork, inputs: Inputs) -> None:
    torch.manual_seed(2)
    layer = GpsFormerLayer(8, 2, 12).double()
    for weight in layer.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    b, m, k = inputs.near_segment.shape
    x = torch.randn(b, m, 8, dtype=torch.float64, requires_grad=True)
    road = torch.randn(b, m, k, 8, dtype=torch.float64, requires_grad=True)
    real = (inputs.near_distance < 110) & (torch.arange(m) != 1)[:, None]  # the second fix has no road near
    around = graphs_around(inputs.near_segment, real, followers(grid))
    found = layer(x, inputs.fix_mask, road, around)
    expected = plain_layer(layer, x, inputs.fix_mask, road, around)
    mask = inputs.fix_mask
    torch.testing.assert_close(found[0][mask], expected[0][mask])
    torch.testing.assert_close(found[1], expected[1])
    towards = torch.randn_like(x)[mask], torch.randn_like(road)
    weights = [x, road, *layer.parameters()]
    a, c = (
        torch.autograd.grad((part[0][mask] * towards[0]).sum() + (part[1] * towards[1]).sum(), weights)
        for part in (found, expected)
    )
    for one, other in zip(a, c, strict=True):
        torch.testing.assert_close(one, other)


def test_the_loss_is_that_of_the_equations(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    # Some fixes have their true segment among those around them, as the nearest one, and some do not.
    near = inputs.near_segment.clone()
    near[0, :3, 0] = inputs.segment[0].gather(0, inputs.fix_step[0, :3])
    inputs = inputs._replace(near_segment=near)
    roads = method.roads()
    x, b = roads.static[:, :8], len(near)
    rows = torch.zeros(b, near.shape[1], 8, dtype=torch.float64)
    told = method.grid.told(inputs.fix_xy, inputs.fix_step)
    for trip in range(b):
        for j in range(int(inputs.fix_mask[trip].sum())):
            weight = torch.exp(-((inputs.near_distance[trip, j] / 30) ** 2))
            point = (weight[:, None] * x[near[trip, j]]).sum(0) / weight.sum()
            angle = j / 10_000 ** (torch.arange(0, 8, 2) / 8)
            place = torch.stack([angle.sin(), angle.cos()], dim=1).flatten()
            entry = method.point.weight @ torch.cat([point, told[trip, j]]) + method.point.bias
            rows[trip, j] = math.sqrt(8) * entry + place
    around = graphs_around(near, inputs.near_distance <= 400, method.follows)
    road = x[near]
    for layer in method.layers:
        assert isinstance(layer, GpsFormerLayer)
        rows, road = plain_layer(layer, rows, inputs.fix_mask, road, around)
    found = method.encode(inputs, roads)
    torch.testing.assert_close(found.states, rows)
    for trip, real in enumerate(inputs.fix_mask.sum(1).tolist()):
        start = mtrajrec_literal.first_state(
            method.start_state, rows[trip, :real].mean(0), inputs.fix_minute[trip, :real]
        )
        torch.testing.assert_close(found.start[trip], start)

    fix_losses = []
    for trip in range(b):
        for j in range(int(inputs.fix_mask[trip].sum())):
            true = inputs.segment[trip, inputs.fix_step[trip, j]]
            exists = inputs.near_distance[trip, j].isfinite()
            chance = torch.exp(road[trip, j] @ method.score_near.weight[0]) * torch.exp(
                -((inputs.near_distance[trip, j] / 30) ** 2)
            )
            at = ((near[trip, j] == true) & exists).nonzero()
            if len(at):
                fix_losses.append(-torch.log(chance[at[0, 0]] / chance.sum()))
    assert 3 <= len(fix_losses) < int(inputs.fix_mask.sum())
    segment, ratio = mtrajrec_literal.losses(method, inputs, found)
    expected = segment + 3 * ratio + 0.1 * torch.stack(fix_losses).mean()
    torch.testing.assert_close(method.loss(inputs).total, expected, rtol=1e-8, atol=0)


def test_padding_changes_neither_loss_nor_gradients(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    weights = list(method.parameters())
    state = {name: value.clone() for name, value in method.state_dict().items()}
    plain = method.loss(inputs).total
    gradients = torch.autograd.grad(plain, weights)
    learned = {name: value.clone() for name, value in method.state_dict().items()}
    method.load_state_dict(state)
    padded = method.loss(inputs.rounded(8, 16)).total
    torch.testing.assert_close(plain, padded)
    for a, b in zip(gradients, torch.autograd.grad(padded, weights), strict=True):
        torch.testing.assert_close(a, b)
    for name, value in method.state_dict().items():  # running statistics too
        torch.testing.assert_close(value, learned[name])
    assert any(not torch.equal(learned[name], state[name]) for name in state)


def test_gradients_stay_finite_without_any_road_near(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    lost = inputs._replace(
        near_segment=torch.zeros_like(inputs.near_segment),
        near_distance=torch.full_like(inputs.near_distance, torch.inf),
    )
    gradients = torch.autograd.grad(method.loss(lost).total, list(method.parameters()), allow_unused=True)
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("change", [{"heads": 3}, {"road_d": 4}, {"fix_weight": -1.0}, {"gamma_m": 0.0}])
def test_settings_that_make_no_sense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"divide|must be|fewer"):
        RNTrajRecConfig(**change)  # type: ignore[arg-type]
