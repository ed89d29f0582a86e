"""TrajGAT: the graph of a trip, its eigenvectors and the attention over it, against loops over the equations."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.dataset import Dataset, shards_of, write_dataset
from tedtrajrec.methods.quadtree import make_quadtree
from tedtrajrec.methods.trajgat import ORDER, GraphLayer, LeafInputs, TrajGat, TrajGatConfig, graph_of, waves_of
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tests.conftest import make_grid
from tests.nn import literal

SMALL = TrajGatConfig(d=8, heads=2, layers=2, tree_d=6, leaf_fixes=20)
LEAVES = torch.tensor([[4, 7, 4, 2, 7, 0], [3, 3, 3, 0, 0, 0], [5, 0, 0, 0, 0, 0], [1, 2, 3, 4, 5, 6]])
LENGTHS = (5, 3, 1, 6)
MASK = torch.arange(6) < torch.tensor(LENGTHS)[:, None]


def graph_by_hand(leaves: list[int]) -> tuple[list[int], np.ndarray]:
    """Return the nodes of a trip's graph, by their place among 2m of m = 6, and which of them are neighbours."""
    slots: dict[int, int] = {}
    for i, leaf in enumerate(leaves):
        slots.setdefault(leaf, 6 + i)
    nodes = [*range(len(leaves)), *slots.values()]
    near = np.zeros((12, 12), bool)
    for i, leaf in enumerate(leaves):
        near[i, slots[leaf]] = near[slots[leaf], i] = True
    for a in slots.values():
        for b in slots.values():
            near[a, b] = True
    for node in nodes:
        near[node, node] = True
    return nodes, near[np.ix_(nodes, nodes)]


def test_fixes_meet_in_their_leaves() -> None:
    mask, adjacent = graph_of(LEAVES, MASK)
    for b, length in enumerate(LENGTHS):
        nodes, near = graph_by_hand(LEAVES[b, :length].tolist())
        assert mask[b].nonzero().ravel().tolist() == sorted(nodes)
        np.testing.assert_array_equal(adjacent[b][np.ix_(nodes, nodes)].numpy(), near)
        others = [k for k in range(12) if k not in nodes]
        assert not adjacent[b][np.ix_(nodes, others)].any()
        assert adjacent[b].diagonal().all()


def test_waves_are_eigenvectors_of_the_graph() -> None:
    waves = waves_of(LEAVES.numpy(), MASK.numpy())
    for b, length in enumerate(LENGTHS):
        nodes, near = graph_by_hand(LEAVES[b, :length].tolist())
        found = waves[b].transpose(1, 0, 2).reshape(12, 8)
        assert not found[[k for k in range(12) if k not in nodes]].any()
        degree = near.sum(axis=1)
        laplace = np.eye(len(nodes)) - near / np.sqrt(degree[:, None] * degree)
        values = np.sort(np.linalg.eigvalsh(laplace))
        kept = min(8, len(nodes) - 1)
        vectors = found[nodes, :kept].astype(np.float64)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(kept), atol=1e-5)
        # Of the graph itself they are so but for the small weights.
        np.testing.assert_allclose(laplace @ vectors, vectors * values[1 : kept + 1], atol=2 * ORDER)
        assert not found[:, kept:].any()
        for k in range(kept):  # the first large number is positive
            large = np.abs(vectors[:, k]) >= 0.5 * np.abs(vectors[:, k]).max() - 1e-6
            assert vectors[large.argmax(), k] > 0


def test_waves_do_not_depend_on_rounding_or_padding() -> None:
    waves = waves_of(LEAVES.numpy(), MASK.numpy())
    wide = waves_of(np.pad(LEAVES.numpy(), ((0, 0), (0, 5))), np.pad(MASK.numpy(), ((0, 0), (0, 5))))
    np.testing.assert_array_equal(wide[:, :6], waves)
    assert not wide[:, 6:].any()
    # All leaves unlike: the most regular graph, most of whose eigenvectors have the same value.
    nodes, near = graph_by_hand(LEAVES[3].tolist())
    degree = near.sum(axis=1)
    laplace = np.eye(12) - near / np.sqrt(degree[:, None] * degree) + np.diag(np.arange(12) * ORDER / 12)
    noise = np.random.default_rng(0).normal(0, 1e-13, (12, 12))
    vectors = np.linalg.eigh(laplace + noise + noise.T)[1][:, 1:9]
    found = waves[3].transpose(1, 0, 2).reshape(12, 8)[nodes]
    np.testing.assert_allclose(np.abs(found), np.abs(vectors), atol=1e-5)


@pytest.mark.parametrize("twice", [False, True])
def test_nodes_attend_to_their_neighbours(twice: bool) -> None:
    torch.manual_seed(0)
    layer = GraphLayer(8, heads=2, twice_exp=twice).double().eval()
    for norm in (layer.norm1, layer.norm2):
        norm.mean.normal_()
        norm.var.uniform_(0.5, 2)
    x = (torch.randn(4, 12, 8, dtype=torch.float64) * 3).requires_grad_()
    mask, adjacent = graph_of(LEAVES, MASK)
    found = layer(x, mask, adjacent)

    def norm_of(norm: torch.nn.Module, y: Tensor) -> Tensor:
        return (y - norm.mean) / torch.sqrt(norm.var + 1e-5) * norm.gain + norm.bias

    for b, length in enumerate(LENGTHS):
        nodes, near = graph_by_hand(LEAVES[b, :length].tolist())
        for i, node in enumerate(nodes):
            read = []
            for head in range(2):
                q, k, v = (
                    (weight @ x[b].T + bias[:, None]).T[:, 4 * head : 4 * head + 4]
                    for weight, bias in zip(
                        layer.query_key_value.weight.chunk(3), layer.query_key_value.bias.chunk(3), strict=True
                    )
                )
                weights = []
                for j, other in enumerate(nodes):
                    logit = torch.clamp(q[node] @ k[other] / math.sqrt(4), -5, 5)
                    weights.append(torch.exp(torch.exp(logit) if twice else logit) if near[i, j] else 0 * logit)
                read.append(sum(w * v[other] for w, other in zip(weights, nodes, strict=True)) / sum(weights))
            y = norm_of(layer.norm1, x[b, node] + layer.out.weight @ torch.cat(read) + layer.out.bias)
            expected = norm_of(layer.norm2, y + layer.feed(y))
            torch.testing.assert_close(found[b, node], expected)
            variables = [x, *layer.query_key_value.parameters()]
            slopes, others = (
                torch.autograd.grad(out.sin().sum(), variables, retain_graph=True) for out in (found[b, node], expected)
            )
            for a, c in zip(slopes, others, strict=True):
                torch.testing.assert_close(a, c)


def test_what_nodes_start_from() -> None:
    network = make_grid(3, 3)
    torch.manual_seed(1)
    method = TrajGat(network, dataclasses.replace(SMALL, layers=0)).eval()
    tree = make_quadtree(np.random.default_rng(0).uniform(-1, 1, (90, 2)), 20)
    leaves = tree.leaves
    vector = np.random.default_rng(1).normal(size=(len(leaves), 6)).astype(np.float32)
    known = {"tree.start": tree.start[leaves], "tree.depth": tree.depth[leaves], "tree.vector": vector}
    method.restore(method.state() | known)
    plain = literal.made_inputs(network.n_segments, 3)
    leaf = torch.randint(len(leaves), plain.fix_mask.shape) * plain.fix_mask
    leaf[2, 1] = leaf[2, 0]
    waves = torch.from_numpy(waves_of(leaf.numpy(), plain.fix_mask.numpy()))
    found = method.fixes(LeafInputs(*plain, leaf, waves), method.roads())
    for b in range(3):
        length = int(plain.fix_mask[b].sum())
        nodes = []
        for i in range(length):
            place = torch.tensor([*plain.fix_xy[b, i], 0, 0, plain.fix_time[b, i] / 64])
            nodes.append(method.from_place(place) + method.from_waves(waves[b, i, 0]))
            torch.testing.assert_close(found.states[b, i], nodes[-1])
        for i in range(length):
            if leaf[b, i] in leaf[b, :i]:
                continue
            box = box_of(tree.start[leaves][leaf[b, i]], tree.depth[leaves][leaf[b, i]])
            told = method.from_tree(torch.from_numpy(vector[leaf[b, i]]))
            nodes.append(method.from_place(torch.tensor([*box, 0])) + method.from_waves(waves[b, i, 1]) + told)
        torch.testing.assert_close(found.start[b], torch.stack(nodes).mean(0), rtol=1e-4, atol=1e-5)


def test_signs_of_waves_are_drawn_for_each_trip_in_training_only() -> None:
    network = make_grid(3, 3)
    torch.manual_seed(2)
    method = TrajGat(network, dataclasses.replace(SMALL, layers=0, dropout=0.0))
    with torch.no_grad():
        for part in (method.from_place, method.from_waves, method.from_tree):
            part.weight.zero_()
            part.bias.zero_()
        method.from_waves.weight.copy_(torch.eye(8))
    plain = literal.made_inputs(network.n_segments, 3)
    waves = torch.rand(3, 4, 2, 8) + 1
    inputs = LeafInputs(*plain, torch.zeros(3, 4, dtype=torch.int64), waves)
    torch.testing.assert_close(method.eval().fixes(inputs, method.roads()).states, waves[:, :, 0])
    drawn = torch.stack([method.train().fixes(inputs, method.roads()).states for _ in range(20)]) / waves[:, :, 0]
    torch.testing.assert_close(drawn.abs(), torch.ones_like(drawn))
    assert (drawn == drawn[:, :, :1]).all()  # all fixes of a trip alike
    assert 0.3 < (drawn > 0).float().mean() < 0.7
    assert len(drawn[:, :, 0].flatten(0, 1).unique(dim=0)) > 30


def box_of(start: int, depth: int) -> list[float]:
    """Return centre and size of a node, by going down to it."""
    x, y, size = 0.0, 0.0, 2.0
    for level in range(depth):
        part = int(start) >> 2 * (19 - level) & 3
        size /= 2
        x += size / 2 if part & 1 else -size / 2
        y += size / 2 if part & 2 else -size / 2
    return [x, y, size, size]


def test_the_tree_is_made_of_training_fixes_and_kept(tmp_path: Path) -> None:
    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=20, step_s=15, seed=3, workers=1)
    splits = {"train": shards_of(trips.select(np.arange(15))), "test": shards_of(trips.select(np.arange(15, 20)))}
    dataset: Dataset = write_dataset(tmp_path / "city", city, splits, step_s=15, time_zone="Europe/Berlin")
    torch.manual_seed(0)
    method = TrajGat(city, SMALL)
    method.precompute(dataset)
    state = method.state()
    kept = dataset.split("train").trips()
    x, y = city.plane.to_xy(kept.lon, kept.lat)
    middle, extent = method._middle.numpy(), method._extent
    tree = make_quadtree((np.stack([x, y], axis=1)[~np.isnan(kept.lon)] - middle) / extent, 20)
    np.testing.assert_array_equal(state["tree.start"], tree.start[tree.leaves])
    assert state["tree.vector"].shape == (len(tree.leaves), 6)
    assert state["tree.vector"].min() >= 0
    assert state["tree.vector"].max() <= 1
    assert not any("leaf" in name for name, _ in method.named_parameters())  # frozen

    broken = state | {"tree.depth": state["tree.depth"][:-1]}
    with pytest.raises(ValueError, match="leaves"):
        method.restore(broken)


def test_settings_that_make_no_sense_are_refused() -> None:
    for change in ({"heads": 3}, {"leaf_fixes": 0}, {"walk_length": 5}, {"layers": -1}, {"tree_d": 0}):
        with pytest.raises(ValueError, match=r"must|divide"):
            dataclasses.replace(SMALL, **change)
