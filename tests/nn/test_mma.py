"""MMA against its equations written out."""

from __future__ import annotations

import math

import numpy as np
import torch

from tedtrajrec.nn.mma import FEATURES, Mma, candidate_features
from tedtrajrec.nn.tedformer import positions


def test_the_nine_numbers_by_their_definition() -> None:
    random = np.random.default_rng(3)
    fix, onward, came, start, end, place = (random.normal(size=(20, 2)) * 50 for _ in range(6))
    onward[0], came[1], place[2], end[3] = 0, 0, fix[2], start[3]
    distance = np.hypot(*(place - fix).T)
    found = candidate_features(fix, onward, came, start, end, place, distance)

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        size = math.hypot(*a) * math.hypot(*b)
        return float(a @ b) / size if size else 0.0

    for k in range(20):
        along, aside = end[k] - start[k], place[k] - fix[k]
        left, right = fix[k] - start[k], end[k] - fix[k]
        expected = [
            math.exp(-(distance[k] ** 2) / 225),
            cosine(along, onward[k]),
            cosine(along, came[k]),
            cosine(along, left),
            cosine(along, right),
            cosine(along, aside),
            cosine(left, right),
            cosine(left, aside),
            cosine(right, aside),
        ]
        np.testing.assert_allclose(found[k], expected, atol=1e-6)


def test_logits_and_gradients_are_those_of_the_equations() -> None:
    torch.manual_seed(1)
    model = Mma(11, 8, 2, 12, 2).double()
    b, m, k = 2, 4, 5
    random = torch.Generator().manual_seed(2)
    xy = torch.rand(b, m, 2, generator=random).double()
    step = torch.tensor([[0, 3, 9, 12], [0, 6, 0, 0]])
    mask = torch.tensor([[True] * 4, [True, True, False, False]])
    segment = torch.randint(11, (b, m, k), generator=random)
    features = torch.randn(b, m, k, FEATURES, generator=random).double()
    exists = (torch.rand(b, m, k, generator=random) < 0.7) | (torch.arange(k) == 0)
    found = model(xy, step, mask, segment, features, exists)
    weight = torch.rand(b, m, k, generator=random).double() * (exists & mask[..., None])
    total = torch.zeros(()).double()
    for i in range(b):
        real = int(mask[i].sum())
        x = torch.stack([model.point(torch.cat([xy[i, j], step[i, j, None] / 64])) for j in range(real)])
        fixes = model.encoder((x + positions(real, 8, x))[None], torch.ones(1, real, dtype=torch.bool))[0]
        for j in range(real):
            here = [n for n in range(k) if exists[i, j, n]]
            near = {
                n: model.candidate(torch.cat([model.segments.weight[segment[i, j, n]], features[i, j, n]]))
                for n in here
            }
            hidden = [torch.tanh(model.of_fix(fixes[j]) + model.of_candidate(near[n])) for n in here]
            share = torch.softmax(torch.cat([model.attention(one) for one in hidden]), dim=0)
            read = sum((share[q] * near[n] for q, n in enumerate(here)), torch.zeros(8).double())
            for n in here:
                logit = model.score(torch.cat([fixes[j], read, near[n]]))[0]
                torch.testing.assert_close(found[i, j, n], logit)
                total = total + weight[i, j, n] * logit
    weights = list(model.parameters())
    expected = torch.autograd.grad(total, weights, allow_unused=True)
    for a, e in zip(torch.autograd.grad((found * weight).sum(), weights), expected, strict=True):
        assert e is not None
        torch.testing.assert_close(a, e, rtol=1e-6, atol=1e-9)
