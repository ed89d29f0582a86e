"""The part of a network that a batch touches: what it holds, and that layers on it give what they give on the whole."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn import road_gnn
from tedtrajrec.nn.road_gnn import RoadGnn
from tedtrajrec.nn.touched import Ints, Part, PartFinder, rounded
from tests.conftest import make_grid

KINDS = ("gatv2", "gat", "gcn", "sage", "gin", "none")


@pytest.fixture(scope="module")
def network() -> RoadNetwork:
    return make_grid(9, 9)


def made(network: RoadNetwork, gnn: str, layers: int = 2) -> RoadGnn:
    torch.manual_seed(3)
    return RoadGnn(network, 8, layers=layers, heads=2, gnn=gnn).double()  # type: ignore[arg-type]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_a_part_holds_all_within_its_hops(data: st.DataObject) -> None:
    n, hops = data.draw(st.integers(1, 12)), data.draw(st.integers(0, 3))
    pairs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), unique=True, max_size=30))
    edges = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    asked = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=6)))
    finder = PartFinder(edges, n)
    for _ in range(2):  # the second finds what the first left behind
        part, number = finder.around(asked, hops)
    within = [set(asked.tolist())]
    for _ in range(hops):
        within.append(within[-1] | {a for a, b in pairs if b in within[-1]})
    segment = part.segment.tolist()
    assert len(segment) == len(set(segment))
    assert set(segment) == within[-1]
    assert [segment[k] for k in number] == asked.tolist()
    assert set(part.asked.tolist()) == within[0]
    assert (part.to_asked[1] < len(part.asked)).all()
    assert (part.to_others[1] >= len(part.asked)).all()
    for seen in (part, rounded(part)):
        assert (seen.edges[1].diff() >= 0).all()
    source, target, which = part.edges.tolist()
    assert [pairs[k] for k in which] == [(segment[a], segment[b]) for a, b in zip(source, target, strict=True)]
    assert sorted(which) == [k for k, (_, b) in enumerate(pairs) if hops and b in within[-2]]


def gradients(loss: Tensor, model: RoadGnn) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True))


@pytest.mark.parametrize("gnn", KINDS)
@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_part_gives_what_the_whole_gives(network: RoadNetwork, gnn: str, layers: int) -> None:
    model = made(network, gnn, layers)
    asked = np.array([[5, 40, 41], [5, 17, 100]])
    minute = torch.full(asked.shape, 500.0, dtype=torch.float64)
    part, number = model.parts.around(asked, model.hops)
    if layers < 3:
        assert len(part.segment) < network.n_segments
    weight = torch.randn(*asked.shape, 8, dtype=torch.float64)
    dense = model().at(torch.from_numpy(asked), minute)
    expected = gradients((dense * weight).sum(), model)
    for seen in (part, rounded(part)):
        roads = model(part=seen)
        assert len(roads.static) == len(seen.asked)
        found = roads.at(torch.from_numpy(number), minute)
        torch.testing.assert_close(found, dense)
        for ours, theirs in zip(gradients((found * weight).sum(), model), expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_a_part_from_other_vectors(network: RoadNetwork) -> None:
    model = made(network, "gatv2")
    start = torch.randn(network.n_segments, 8, dtype=torch.float64)
    part, number = model.parts.around(np.array([3, 50]), model.hops)
    torch.testing.assert_close(model(start[part.segment], part).static[number], model(start).static[[3, 50]])


@pytest.mark.parametrize("gnn", KINDS)
def test_a_large_network_in_use_is_made_by_chunks(
    network: RoadNetwork, gnn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(network, gnn)
    expected = model()
    monkeypatch.setattr(road_gnn, "LARGE", 10)
    monkeypatch.setattr(road_gnn, "CHUNK", 50)
    asked: list[int] = []
    around = PartFinder.around

    def watched(self: PartFinder, segments: Ints, hops: int) -> tuple[Part, Ints]:
        asked.append(len(segments))
        return around(self, segments, hops)

    monkeypatch.setattr(PartFinder, "around", watched)
    model()
    assert not asked  # gradients need it whole
    with torch.no_grad():
        found = model()
    assert sum(asked) == 2 * network.n_segments if gnn != "none" else network.n_segments
    assert max(asked) == 50
    for ours, theirs in zip(found, expected, strict=True):
        if theirs is not None:
            torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("size", [1, 700, 1023, 1024, 5000, 70_000])
@pytest.mark.parametrize("around", [0, 0.4, 1.5])
def test_few_sizes_occur(size: int, around: float) -> None:
    others = int(around * size)
    edges = [torch.zeros(3, 5 * count, dtype=torch.int64) for count in (size, others)]
    part = rounded(Part(*torch.arange(size + others).split([size, others]), *edges))
    u, e = len(part.segment), part.edges.shape[1]
    assert len(part.asked) % 1024 == len(part.around) % 1024 == 0
    assert part.to_asked.shape[1] % 1024 == part.to_others.shape[1] % 1024 == 0
    assert size <= len(part.asked) <= 1.13 * size + 1024
    assert u <= 1.3 * (size + others) + 3072
    assert e <= 1.15 * 5 * (size + others) + 1024
    filled = part.edges[1, 5 * (size + others) :]
    assert not len(filled) or ((filled >= size + others).all() and (filled < u).all())
    assert not len(filled) or torch.bincount(filled).max() <= 9  # none takes many


def test_threads_find_the_same(network: RoadNetwork) -> None:
    finder = made(network, "gatv2").parts
    questions = [np.random.default_rng(k).integers(network.n_segments, size=20) for k in range(40)]
    alone = [finder.around(asked, 2) for asked in questions]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda asked: finder.around(asked, 2), questions))
    for (a, i), (b, j) in zip(alone, together, strict=True):
        assert torch.equal(a.segment, b.segment)
        assert torch.equal(a.edges, b.edges)
        np.testing.assert_array_equal(i, j)


def test_the_graph_of_a_city_has_no_repeats() -> None:
    edges = road_gnn.neighbours(synthetic_city(size="small"), loops=True)
    assert torch.equal(edges, torch.unique(edges, dim=1))
