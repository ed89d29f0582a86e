"""PD-GNN: the graph, its layers, and what a segment is like at a time of day."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.road_gnn import RoadGnn, neighbours
from tedtrajrec.nn.roads import Roads
from tests.conftest import make_grid
from tests.nn import literal

D, HEADS = 8, 2
KINDS = {"gatv2": GATv2Conv, "gat": GATConv, "gcn": GCNConv, "sage": SAGEConv, "gin": GINConv, "none": torch.nn.Linear}


@pytest.fixture(scope="module")
def network() -> RoadNetwork:
    return make_grid(3, 3, u_turns=True)


def neighbour_sets(network: RoadNetwork) -> list[set[int]]:
    """Return N_i without i: those that may follow i, and those that it may follow."""
    follow = [
        set(network.succ[network.succ_offset[i] : network.succ_offset[i + 1]].tolist())
        for i in range(network.n_segments)
    ]
    return [
        (follow[i] | {j for j in range(network.n_segments) if i in follow[j]}) - {i} for i in range(network.n_segments)
    ]


def made(network: RoadNetwork, gnn: str, rhythm: str = "dynamic") -> RoadGnn:
    torch.manual_seed(3)
    model = RoadGnn(network, D, layers=2, heads=HEADS, gnn=gnn, rhythm=rhythm)  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)  # some are zero at first
    return model.double()


def literal_layer(gnn: str, layer: torch.nn.Module, x: Tensor, near: list[set[int]]) -> Tensor:
    rows = []
    for i, neighbour in enumerate(near):
        with_self = sorted(neighbour | {i})
        if gnn == "none":
            rows.append(layer.weight @ x[i] + layer.bias)
        elif gnn == "gcn":
            degree = [len(near[j]) + 1 for j in range(len(near))]
            total = sum(layer.lin.weight @ x[j] / (degree[i] * degree[j]) ** 0.5 for j in with_self)
            rows.append(total + layer.bias)
        elif gnn == "sage":
            mean = sum(x[j] for j in neighbour) / len(neighbour)
            rows.append(layer.lin_l.weight @ mean + layer.lin_l.bias + layer.lin_r.weight @ x[i])
        elif gnn == "gin":
            first, last = layer.nn[0], layer.nn[2]
            total = x[i] + sum(x[j] for j in neighbour)
            rows.append(last.weight @ torch.clamp(first.weight @ total + first.bias, min=0) + last.bias)
        else:
            rows.append(torch.cat([attentive(gnn, layer, x, i, with_self, k) for k in range(HEADS)]) + layer.bias)
    return torch.stack(rows)


def attentive(gnn: str, layer: torch.nn.Module, x: Tensor, i: int, with_self: list[int], k: int) -> Tensor:
    """Return head k of segment i: softmax over N_i and i."""
    part = slice(k * D // HEADS, (k + 1) * D // HEADS)
    scores, messages = [], []
    for j in with_self:
        if gnn == "gatv2":  # a . LeakyReLU(W [u_i || u_j])
            message = (layer.lin_l.weight @ x[j] + layer.lin_l.bias)[part]
            own = (layer.lin_r.weight @ x[i] + layer.lin_r.bias)[part]
            scores.append(layer.att[0, k] @ functional.leaky_relu(message + own, 0.2))
        else:  # LeakyReLU(a . [W u_i || W u_j])
            message, own = (layer.lin.weight @ x[j])[part], (layer.lin.weight @ x[i])[part]
            scores.append(functional.leaky_relu(layer.att_src[0, k] @ message + layer.att_dst[0, k] @ own, 0.2))
        messages.append(message)
    total = sum(torch.exp(score) for score in scores)
    return sum(torch.exp(score) / total * message for score, message in zip(scores, messages, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize("loops", [False, True])
def test_neighbours(network: RoadNetwork, loops: bool) -> None:
    pairs = list(zip(*neighbours(network, loops=loops).tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    expected = {(i, j) for i, near in enumerate(neighbour_sets(network)) for j in near}
    expected |= {(i, i) for i in range(network.n_segments) if loops}
    assert set(pairs) == expected


@pytest.mark.parametrize("gnn", list(KINDS))
def test_layers_equal_their_equations_with_gradients(network: RoadNetwork, gnn: str) -> None:
    model, near = made(network, gnn), neighbour_sets(network)
    assert len(model.layers) == (1 if gnn == "none" else 2)
    assert all(isinstance(layer, KINDS[gnn]) for layer in model.layers)
    x: Tensor = model.table
    for layer in model.layers:
        x = functional.leaky_relu(literal_layer(gnn, layer, x, near), 0.01)
    expected = torch.cat(
        [x @ model.to_static.weight.T + model.to_static.bias, x @ model.to_omega.weight.T + model.to_omega.bias]
    )
    roads = model()
    found = torch.cat([roads.static, roads.omega])
    close = 1e-5 if gnn == "gcn" else 1e-10  # the norms of gcn are of single precision
    torch.testing.assert_close(found, expected, rtol=close, atol=close)
    weights = [p for name, p in model.named_parameters() if name != "phase"]
    toward = torch.randn_like(found)
    for a, b in zip(
        torch.autograd.grad((found * toward).sum(), weights),
        torch.autograd.grad((expected * toward).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=100 * close, atol=10 * close)


def test_norms_are_those_of_torch_geometric(network: RoadNetwork) -> None:
    model = made(network, "gcn")
    plain = GCNConv(D, D).double()
    plain.load_state_dict(model.layers[0].state_dict())
    torch.testing.assert_close(
        model.layers[0](model.table, model.edges, model.weight), plain(model.table, neighbours(network, loops=False))
    )


@pytest.mark.parametrize("rhythm", ["dynamic", "shared", "none"])
def test_roads_at_times(network: RoadNetwork, rhythm: str) -> None:
    model = made(network, "none", rhythm)
    roads = model()
    shape = {"dynamic": (network.n_segments, D), "shared": (D,), "none": None}[rhythm]
    assert (None if roads.omega is None else tuple(roads.omega.shape)) == shape
    segment = torch.randint(network.n_segments, (2, 3))
    minute = torch.rand(2, 3, dtype=torch.float64) * 1440
    found = roads.at(segment, minute)
    expected = torch.stack(
        [torch.stack([literal.road(roads, int(segment[i, j]), minute[i, j]) for j in range(3)]) for i in range(2)]
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = list(model.parameters())
    for a, b in zip(
        torch.autograd.grad(found.square().sum(), weights, retain_graph=True),
        torch.autograd.grad(expected.square().sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_times_as_angles() -> None:
    roads = Roads(torch.zeros(1, 3), torch.ones(1, 3), torch.zeros(3))
    at_six = roads.at(torch.tensor([0]), torch.tensor([360.0]))[0]  # a quarter of a day is a quarter of a turn
    torch.testing.assert_close(at_six, torch.tensor([torch.pi / 2, 1.0, 1.0]))


def test_attention_has_the_bits_of_torch_geometric(network: RoadNetwork) -> None:
    model = made(network, "gatv2").float()
    plain = GATv2Conv(D, D // HEADS, HEADS, add_self_loops=False)
    plain.load_state_dict(model.layers[0].state_dict())
    toward = torch.randn(network.n_segments, D)
    found = []
    for layer in (model.layers[0], plain):
        out = layer(model.table, model.edges)
        found.append((out, *torch.autograd.grad((out * toward).sum(), [model.table, *layer.parameters()])))
    for mine, theirs in zip(*found, strict=True):
        assert torch.equal(mine, theirs)
