"""STTExtractor: a fix as a true weighted mean of the roads around it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.batch import FixCandidates
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.point_features import Nearby, pad_candidates, point_features
from tedtrajrec.nn.roads import Roads
from tests.nn import literal

S, D, ETA, GAMMA = 12, 4, 400.0, 30.0


def made(distance: list[list[float]]) -> tuple[Roads, Nearby, Tensor]:
    random = torch.Generator().manual_seed(1)
    m, k = len(distance), len(distance[0])
    roads = Roads(*(torch.randn(*shape, dtype=torch.float64, generator=random) for shape in ((S, D), (S, D), (D,))))
    assert roads.omega is not None
    roads.static.requires_grad_()
    roads.omega.requires_grad_()
    near = Nearby(
        torch.stack([torch.randperm(S, generator=random)[:k] for _ in range(m)])[None],
        torch.tensor(distance)[None],
        torch.zeros(1, m, k),
    )
    return roads, near, torch.rand(1, m, generator=random, dtype=torch.float64) * 1440


def by_definition(roads: Roads, near: Nearby, minute: Tensor) -> Tensor:
    rows = []
    for j in range(near.segment.shape[1]):
        total, weights = torch.zeros(D, dtype=torch.float64), 0.0
        for segment, distance in zip(near.segment[0, j].tolist(), near.distance_m[0, j].tolist(), strict=True):
            if distance <= ETA:
                weight = math.exp(-(distance**2) / GAMMA**2)
                total = total + weight * literal.road(roads, segment, minute[0, j])
                weights += weight
        rows.append(total / weights if weights else total)
    return torch.stack(rows)[None]


def test_equals_the_equation_with_its_gradients() -> None:
    roads, near, minute = made(
        [[1.0, 20.0, 50.0], [0.0, 0.0, math.inf], [300.0, 310.0, 399.0], [390.0, 405.0, math.inf]]
    )
    found, expected = point_features(roads, near, minute), by_definition(roads, near, minute)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)  # weights are of single precision
    variables = [roads.static, roads.omega]
    for a, b in zip(
        torch.autograd.grad(found.square().sum(), variables),  # type: ignore[arg-type]
        torch.autograd.grad(expected.square().sum(), variables),  # type: ignore[arg-type]
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_roads_that_are_all_alike_give_that_road_however_far() -> None:
    _, near, minute = made([[300.0, 301.0, 350.0], [5.0, 5.0, 5.0]])
    road = torch.randn(D)
    roads = Roads(road.expand(S, D), None, None)
    torch.testing.assert_close(point_features(roads, near, minute), road.expand(1, 2, D))


def test_no_road_near_gives_zero_and_clean_gradients() -> None:
    roads, near, minute = made([[math.inf, math.inf], [401.0, math.inf], [3.0, 9.0]])
    found = point_features(roads, near, minute)
    assert (found[0, :2] == 0).all()
    (gradient,) = torch.autograd.grad(found.square().sum(), [roads.static])
    assert gradient.isfinite().all()
    assert gradient.abs().sum() > 0


def test_candidates_are_padded_by_fix(tiny_city: RoadNetwork) -> None:
    b, m, most = 2, 3, 4
    x, y = tiny_city.geom_xy
    at = [0, 10, 20, 30]  # vertices; fixes 2 and 5 are padding
    lon, lat = tiny_city.plane.to_lonlat(np.asarray(x)[at] + 30.0, np.asarray(y)[at] + 7.0)
    found = CandidateFinder(tiny_city).within(lon, lat, 150.0)
    rows = [0, 1, 3, 4]
    count = np.zeros(b * m, np.int64)
    count[rows] = np.diff(found.offsets)
    assert count.max() > most
    candidates = FixCandidates(
        150.0,
        torch.from_numpy(np.concatenate([[0], np.cumsum(count)])),
        torch.from_numpy(found.segment.astype(np.int64)),
        torch.from_numpy(found.distance_m.astype(np.float32)),
        torch.from_numpy(found.ratio.astype(np.float32)),
    )
    near = pad_candidates(candidates, (b, m), most)
    for row in range(b * m):
        first = int(candidates.offset[row])
        kept = min(most, int(count[row]))
        place = divmod(row, m)
        for padded, flat, fill in (
            (near.segment, candidates.segment, 0),
            (near.distance_m, candidates.distance_m, math.inf),
            (near.ratio, candidates.ratio, 0),
        ):
            assert torch.equal(padded[place][:kept], flat[first : first + kept])
            assert (padded[place][kept:] == fill).all()


@pytest.mark.parametrize("shape", [(2, 3), (1, 0)])
def test_no_candidates_at_all(shape: tuple[int, int]) -> None:
    b, m = shape
    none = FixCandidates(
        100.0, torch.zeros(b * m + 1, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), *torch.zeros(2, 0)
    )
    near = pad_candidates(none, shape, 5)
    assert near.segment.shape == near.distance_m.shape == near.ratio.shape == (b, m, 5)
    assert near.segment.dtype == torch.int64
    assert (near.segment == 0).all()
    assert (near.distance_m == math.inf).all()
