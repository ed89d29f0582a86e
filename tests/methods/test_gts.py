"""GTS: points of the roads, and the graph network over them, against loops over the map and the equations."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.gts import Gts, GtsConfig, PoiInputs, make_pois
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tests.conftest import make_grid

SMALL = GtsConfig(d=8, poi_d=6, cut_m=60.0, hops=3)


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@pytest.fixture(scope="module")
def batch(city: RoadNetwork) -> Batch:
    trips = simulate_trips(city, trips=6, step_s=15, seed=8, workers=1)
    return make_batch(trips, draw_observed(trips, "1/4"), city, step_s=15, time_zone="Europe/Berlin")


def made(network: RoadNetwork, config: GtsConfig = SMALL) -> Gts:
    torch.manual_seed(0)
    return Gts(network, config)


def test_pois_of_a_grid_are_its_crossings_and_the_cuts_between_them() -> None:
    grid = make_grid(3, 2, spacing_m=100.0, one_way_row=0)  # 7 roads of 100 m, 2 of which are one-way
    pois = make_pois(grid, 40.0)
    assert pois.xy.shape == (6 + 7 * 2, 2)
    assert pois.edges.shape == (2, 7 * 3 * 2)
    np.testing.assert_allclose(pois.length_m, 100 / 3, rtol=1e-3)
    apart = np.linalg.norm(pois.xy[pois.edges[0]] - pois.xy[pois.edges[1]], axis=1)
    np.testing.assert_allclose(apart, pois.length_m, rtol=1e-2)
    assert {tuple(pair) for pair in pois.edges.T.tolist()} == {(b, a) for a, b in pois.edges.T.tolist()}
    assert make_pois(grid, 150.0).xy.shape == (6, 2)


def test_pois_of_a_city_follow_its_roads(city: RoadNetwork) -> None:
    pois = make_pois(city, 100.0)
    count = city.n_nodes + sum(
        math.ceil(city.length_m[e] / 100) - 1 for e in np.flatnonzero(city.is_road) if city.length_m[e] > 100
    )
    assert len(pois.xy) == count
    assert pois.length_m.max() <= 100
    straight = np.linalg.norm(pois.xy[pois.edges[0]] - pois.xy[pois.edges[1]], axis=1)
    assert (straight <= pois.length_m * 1.01 + 0.01).all()


def test_fixes_take_the_nearest_poi_and_hear_of_those_within_k_edges(city: RoadNetwork, batch: Batch) -> None:
    method = made(city)
    inputs = method.inputs(batch)
    neighbours: dict[int, set[int]] = {}
    for a, b in method.pois.edges.T.tolist():
        neighbours.setdefault(a, set()).add(b)
    seen = set()
    for b in range(len(batch)):
        for i in range(batch.fix_mask.shape[1]):
            if not batch.fix_mask[b, i]:
                assert not inputs.related[b, i].any()
                assert not inputs.related[b, :, i].any()
                continue
            away = np.linalg.norm(method.pois.xy - batch.fix_xy[b, i].numpy(), axis=1)
            poi = int(inputs.poi[b, i])
            assert away[poi] <= away.min() + 1e-3
            reached = {poi}
            for _ in range(3):
                reached |= {n for k in reached for n in neighbours.get(k, ())}
            for j in range(int(batch.fix_mask[b].sum())):
                related = i != j and int(inputs.poi[b, j]) in reached
                assert bool(inputs.related[b, i, j]) == related
                seen.add(related)
    assert seen == {True, False}


def test_vectors_of_fixes_and_their_gradients_are_those_of_the_equations(city: RoadNetwork, batch: Batch) -> None:
    method = made(city).double().eval()
    inputs = PoiInputs(*(part.double() if part.is_floating_point() else part for part in method.inputs(batch)))
    count = len(method.pois.xy)
    weight = torch.eye(count, dtype=torch.float64)
    for (a, b), length in zip(method.pois.edges.T.tolist(), method.pois.length_m.tolist(), strict=True):
        weight[b, a] = math.exp(-length / 100)
    degree = weight.sum(1)
    spread = weight / torch.sqrt(degree[:, None] * degree)
    graph = method.graph
    z = torch.relu(spread @ method.poi_table @ graph.lin.weight.T + graph.bias)
    rows: list[Tensor] = []
    for b in range(len(batch)):
        pois = inputs.poi[b].tolist()
        for i in range(int(batch.fix_mask[b].sum())):
            others = [z[pois[j]] for j in range(len(pois)) if inputs.related[b, i, j]]
            heard = sum(others) / len(others) if others else torch.zeros(8, dtype=torch.float64)
            rows.append(torch.relu(method.mix.weight @ torch.cat([z[pois[i]], heard]) + method.mix.bias))
    expected = torch.stack(rows)

    heard_by: list[Tensor] = []
    method.encoder.register_forward_pre_hook(lambda _, given: heard_by.append(given[0]))
    found = method.fixes(inputs, method.roads())
    mask = inputs.plain.fix_mask
    points = heard_by[0][mask]
    torch.testing.assert_close(points[:, :-1], expected, rtol=1e-6, atol=1e-8)  # weights of edges are single precision
    torch.testing.assert_close(points[:, -1], inputs.plain.fix_time[mask] / 64)
    variables = [method.poi_table, *method.graph.parameters(), *method.mix.parameters()]
    slopes = torch.autograd.grad(points.sin().sum(), variables, retain_graph=True)
    others = torch.autograd.grad((expected.sin()).sum(), variables)
    for a, c in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-5, atol=1e-7)

    last = mask.sum(1) - 1
    assert torch.equal(found.start, found.states[torch.arange(len(last)), last])


def test_training_starts_from_node2vec(city: RoadNetwork) -> None:
    method = made(city)
    random = method.poi_table.detach().clone()
    method.precompute(None)  # type: ignore[arg-type]  (it asks for nothing but the map)
    start = method.poi_table.detach()
    assert not torch.equal(start, random)
    assert float(start.norm(dim=1).mean()) == pytest.approx(1, rel=1e-4)
    unit = torch.nn.functional.normalize(start, dim=1)
    near = (unit[method.pois.edges[0]] * unit[method.pois.edges[1]]).sum(1).mean()
    assert near > (unit @ unit.T).mean() + 0.3
    plain = made(city, dataclasses.replace(SMALL, walks=0))
    plain.precompute(None)  # type: ignore[arg-type]
    assert torch.equal(plain.poi_table, random)


def test_more_padding_goes_along_the_fixes(city: RoadNetwork, batch: Batch) -> None:
    method = made(city).eval()
    inputs = method.inputs(batch)
    padded = inputs.rounded(16, 8)
    m = inputs.plain.fix_mask.shape[1]
    assert padded.poi.shape == (6, 16)
    assert padded.related.shape == (6, 16, 16)
    assert not padded.related[:, m:].any()
    roads = method.roads()
    torch.testing.assert_close(method.encode(padded, roads).states[:, :m], method.encode(inputs, roads).states)
    with pytest.raises(ValueError, match="tensors"):
        PoiInputs(*inputs[:-1])


def test_settings_that_make_no_sense_are_refused() -> None:
    for change in ({"layers": 0}, {"cut_m": 0.0}, {"hops": -1}, {"poi_d": 0}):
        with pytest.raises(ValueError, match="must"):
            dataclasses.replace(SMALL, **change)
