"""TedFormer: post-norm layers, positions and means."""

from __future__ import annotations

import math

import pytest
import torch

from tedtrajrec.nn.tedformer import TedFormerEncoder, masked_mean, positions
from tests.nn import literal

D, HEADS, WIDTH = 8, 2, 12


@pytest.mark.parametrize("kind", ["ted", "exp_decay", "full"])
def test_encoder_equals_the_equations_with_gradients(kind: str) -> None:
    torch.manual_seed(2)
    encoder = TedFormerEncoder(D, HEADS, WIDTH, 2, kind=kind, dropout=0.3).double().eval()  # type: ignore[arg-type]
    for parameter in encoder.parameters():
        torch.nn.init.normal_(parameter, std=0.4)  # norms are 1 and biases 0 at first
    x = torch.randn(2, 4, D, dtype=torch.float64, requires_grad=True)
    time = torch.rand(2, 4, dtype=torch.float64).cumsum(1) * 5
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    found = encoder(x, time, mask)
    assert (found[~mask] == 0).all()
    variables = [x, *encoder.parameters()]
    total_found, total_expected = torch.zeros(()), torch.zeros(())
    for b in range(2):
        y, t = x[b, mask[b]], time[b, mask[b]]
        for layer in encoder.layers:
            y = literal.tedformer(layer, y, t, y, t)
        torch.testing.assert_close(found[b, mask[b]], y, rtol=1e-10, atol=1e-11)
        toward = torch.randn_like(y)
        total_found = total_found + (found[b, mask[b]] * toward).sum()
        total_expected = total_expected + (y * toward).sum()
    for a, c in zip(
        torch.autograd.grad(total_found, variables, materialize_grads=True),
        torch.autograd.grad(total_expected, variables, materialize_grads=True),
        strict=True,
    ):
        torch.testing.assert_close(a, c, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("d", [6, 7])
def test_positions(d: int) -> None:
    found = positions(5, d, torch.zeros(1, dtype=torch.float64))
    for place in range(5):
        for i in range(d):
            angle = place / 10_000 ** (2 * (i // 2) / d)
            assert float(found[place, i]) == pytest.approx(math.sin(angle) if i % 2 == 0 else math.cos(angle), abs=1e-6)


def test_mean_of_real_elements() -> None:
    x = torch.randn(3, 4, 2)
    mask = torch.tensor([[True, False, True, False], [True] * 4, [False] * 4])
    found = masked_mean(x, mask)
    torch.testing.assert_close(found[0], (x[0, 0] + x[0, 2]) / 2)
    torch.testing.assert_close(found[1], x[1].mean(0))
    assert (found[2] == 0).all()
