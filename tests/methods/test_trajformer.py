"""TrajFormer: the kernel over intervals and the attention to pooled fixes, against loops over their equations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tedtrajrec.methods.trajformer import (
    ContinuousPoints,
    SqueezedLayer,
    TrajFormer,
    TrajFormerConfig,
    features,
    pooled,
)
from tests.conftest import make_grid
from tests.nn import literal

LENGTHS = (5, 3, 7, 1)


@pytest.fixture
def trips() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Vectors, places in metres, times in steps and the mask of fixes of four trips."""
    random = torch.Generator().manual_seed(3)
    b, m, d = len(LENGTHS), max(LENGTHS), 8
    mask = torch.arange(m) < torch.tensor(LENGTHS)[:, None]
    x = torch.randn(b, m, d, generator=random, dtype=torch.float64)
    metres = torch.randn(b, m, 2, generator=random, dtype=torch.float64) * 800
    time = (torch.rand(b, m, generator=random, dtype=torch.float64) * 9 + 1).cumsum(1)
    return x.requires_grad_(), metres, time, mask


def test_the_kernel_depends_on_intervals_alone(trips: tuple[Tensor, Tensor, Tensor, Tensor]) -> None:
    x, metres, time, mask = trips
    torch.manual_seed(0)
    layer = ContinuousPoints(8, heads=2, window=5).double()
    found = layer(x, metres, time, mask)
    for b, length in enumerate(LENGTHS):
        rows = []
        for i in range(length):
            around = [k for k in range(i - 2, i + 3) if 0 <= k < length]
            weights = []
            for k in around:
                away = math.dist(metres[b, i].tolist(), metres[b, k].tolist()) / 1000
                interval = torch.tensor([away, float(time[b, k] - time[b, i]) / 8], dtype=torch.float64)
                weights.append(torch.exp(layer.kernel(interval)))
            total = sum(weights)
            out = []
            for head in range(2):
                part = slice(4 * head, 4 * head + 4)
                values = [(layer.value.weight @ x[b, k] + layer.value.bias)[part] for k in around]
                shares = [weight[head] / total[head] for weight in weights]
                out.append(sum(share * value for share, value in zip(shares, values, strict=True)))
            rows.append(x[b, i] + torch.cat(out))
        expected = torch.stack(rows)
        torch.testing.assert_close(found[b, :length], expected)
        variables = [x, *layer.parameters()]
        slopes, others = (
            torch.autograd.grad(out.sin().sum(), variables, retain_graph=True, materialize_grads=True)
            for out in (found[b, :length], expected)
        )
        for a, c in zip(slopes, others, strict=True):
            torch.testing.assert_close(a, c)


@pytest.mark.parametrize("pool", [1, 2, 3])
def test_all_tokens_attend_to_cls_and_to_maxima(trips: tuple[Tensor, Tensor, Tensor, Tensor], pool: int) -> None:
    fixes, _, _, mask = trips
    torch.manual_seed(1)
    layer = SqueezedLayer(8, heads=2, pool=pool).double()
    x = torch.cat([torch.randn(len(fixes), 1, 8, dtype=torch.float64), fixes], dim=1)
    found = layer(x, mask)
    key, value = layer.key_value.weight.chunk(2)
    key_bias, value_bias = layer.key_value.bias.chunk(2)
    for b, length in enumerate(LENGTHS):
        normed = [literal.norm(layer.norm1, row) for row in x[b, : length + 1]]
        blocks = [normed[1 + first : 1 + min(first + pool, length)] for first in range(0, length, pool)]
        memory = [normed[0], *(torch.stack(block).max(0).values for block in blocks)]
        for i, row in enumerate(normed):
            read = []
            for head in range(2):
                part = slice(4 * head, 4 * head + 4)
                query = (layer.query.weight @ row + layer.query.bias)[part]
                weights = [torch.exp(query @ (key @ s + key_bias)[part] / 2) for s in memory]
                values = [(value @ s + value_bias)[part] for s in memory]
                read.append(sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights))
            y = x[b, i] + torch.cat(read)
            torch.testing.assert_close(found[b, i], y + layer.feed(literal.norm(layer.norm2, y)))


def test_padding_has_no_part_in_maxima() -> None:
    x = torch.tensor([[[-3.0], [-1.0], [-2.0], [5.0]], [[1.0], [7.0], [7.0], [7.0]]])
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    most, some = pooled(x, mask, 2)
    assert most.squeeze(-1).tolist() == [[-1, -2], [1, 0]]
    assert some.tolist() == [[True, True], [True, False]]


def test_what_is_said_of_a_fix() -> None:
    metres = torch.tensor([[[0.0, 0.0], [0.0, 600.0], [450.0, 600.0], [450.0, 600.0]]])
    time = torch.tensor([[0.0, 4.0, 5.0, 5.0]])
    found = features(metres, metres / 1000, time)[0]
    speeds = [0, 0.5, 1.5, 0]  # of 300 m a step; two fixes at the same time say nothing of speed
    torch.testing.assert_close(found[:, 2], torch.tensor(speeds))
    torch.testing.assert_close(found[:, 3], torch.tensor([0, 0.125, 1, 0]))
    torch.testing.assert_close(found[:, 4:], torch.stack([torch.tensor([0, 4.0, 1, 0]) / 8, time[0] / 64], dim=1))


def test_the_decoder_starts_from_cls() -> None:
    network = make_grid(3, 3)
    torch.manual_seed(2)
    method = TrajFormer(network, TrajFormerConfig(d=8, layers=0, heads=2)).eval()
    inputs = literal.made_inputs(network.n_segments, 5)
    found = method.fixes(inputs, method.roads())
    torch.testing.assert_close(found.start, method.norm(method.cls).expand(3, -1))
    assert found.states.shape == (3, 4, 8)


def test_settings_that_make_no_sense_are_refused() -> None:
    for change in ({"heads": 3}, {"heads": 0}, {"window": 4}, {"pool": 0}, {"layers": -1}):
        with pytest.raises(ValueError, match=r"must|divide"):
            TrajFormerConfig(d=8, **change)
