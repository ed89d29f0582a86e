"""TedAttn and its two other kinds against the equations written out."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tedtrajrec.nn.time_attention import ACTIVATIONS, TimeAttention, lecun
from tests.nn import literal

B, Q, K, D, HEADS = 2, 3, 4, 8, 2
CASES = [("ted", name) for name in ACTIVATIONS] + [("exp_decay", "lecun"), ("full", "lecun")]


def made(kind: str, act: str = "lecun", seed: int = 0) -> tuple[TimeAttention, dict[str, Tensor]]:
    torch.manual_seed(seed)
    layer = TimeAttention(D, HEADS, kind=kind, activation=act).double()  # type: ignore[arg-type]
    if kind == "ted":
        torch.nn.init.normal_(layer.cell_bias)  # zero at first, which would hide a mistake
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])
    tensors = {
        "query": torch.randn(Q, B, D, dtype=torch.float64, requires_grad=True),
        "memory": torch.randn(B, K, D, dtype=torch.float64, requires_grad=True),
        "memory_time": torch.rand(B, K, dtype=torch.float64) * 20,
        "query_time": torch.rand(B, Q, dtype=torch.float64) * 20,
        "mask": mask,
    }
    return layer, tensors


def attend(layer: TimeAttention, t: dict[str, Tensor]) -> Tensor:
    return layer.attend(t["query"], layer.evolve(t["memory"], t["memory_time"], t["query_time"], t["mask"]))


@pytest.mark.parametrize(("kind", "act"), CASES)
def test_equals_the_equation_with_its_gradients(kind: str, act: str) -> None:
    layer, t = made(kind, act)
    found = attend(layer, t)
    expected = torch.stack(
        [
            literal.attention(
                layer,
                t["query"][:, b],
                t["query_time"][b],
                t["memory"][b, t["mask"][b]],
                t["memory_time"][b, t["mask"][b]],
                act,
            )
            for b in range(B)
        ],
        dim=1,
    )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-12)
    variables = [t["query"], t["memory"], *layer.parameters()]
    toward = torch.randn_like(found)
    a = torch.autograd.grad((found * toward).sum(), variables, materialize_grads=True)
    b = torch.autograd.grad((expected * toward).sum(), variables, materialize_grads=True)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("kind", ["ted", "exp_decay", "full"])
def test_gradients_by_differences(kind: str) -> None:
    layer, t = made(kind, seed=1)
    weights = [parameter for parameter in layer.parameters() if parameter.numel() <= 64]

    def run(query: Tensor, memory: Tensor, *_: Tensor) -> Tensor:
        return attend(layer, {**t, "query": query, "memory": memory})

    assert torch.autograd.gradcheck(run, (t["query"], t["memory"], *weights))


@pytest.mark.parametrize("kind", ["ted", "exp_decay", "full"])
def test_each_query_alone_is_the_same(kind: str) -> None:
    layer, t = made(kind, seed=2)
    evolved = layer.evolve(t["memory"], t["memory_time"], t["query_time"], t["mask"])
    together = layer.attend(t["query"], evolved)
    parts = evolved.each(Q)
    assert len(parts) == Q
    alone = torch.stack([layer.attend(x, part) for x, part in zip(t["query"], parts, strict=True)])
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-14)
    (a,) = torch.autograd.grad(alone.square().sum(), [t["memory"]], retain_graph=True)
    (b,) = torch.autograd.grad(together.square().sum(), [t["memory"]])
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_no_queries() -> None:
    layer, t = made("ted")
    assert layer.evolve(t["memory"], t["memory_time"], t["query_time"][:, :0], t["mask"]).each(0) == []


@pytest.mark.parametrize("kind", ["ted", "exp_decay", "full"])
def test_padding_has_no_weight_at_all(kind: str) -> None:
    layer, t = made(kind, seed=3)
    found = attend(layer, t)
    other = {**t, "memory": t["memory"].detach().clone(), "memory_time": t["memory_time"].clone()}
    other["memory"][0, 3] = 1e3
    other["memory_time"][0, 3] = -50
    assert torch.equal(attend(layer, other), found)
    (gradient,) = torch.autograd.grad(found.sum(), [t["memory"]])
    assert (gradient[0, 3] == 0).all()


def test_a_memory_of_padding_alone_gives_numbers() -> None:
    layer, t = made("ted")
    found = attend(layer, {**t, "mask": torch.zeros_like(t["mask"])})
    assert found.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_large_lags_stay_finite(dtype: torch.dtype) -> None:
    layer, t = made("ted", seed=4)
    layer = layer.to(dtype)
    half = {name: value.detach().to(dtype) if value.is_floating_point() else value for name, value in t.items()}
    half["query_time"] = torch.tensor([[0.0, 5e3, 2e4]] * B)  # a day and more
    half["memory"].requires_grad_()
    found = attend(layer, half)
    (gradient,) = torch.autograd.grad(found.float().sum(), [half["memory"]])
    assert found.isfinite().all()
    assert gradient.isfinite().all()


def test_only_moving_keys_know_the_time() -> None:
    for kind, moves in (("ted", True), ("exp_decay", True), ("full", False)):
        layer, t = made(kind, seed=5)
        later = {**t, "query_time": t["query_time"] + 3}
        assert torch.equal(attend(layer, later), attend(layer, t)) is not moves


def test_lecun() -> None:
    assert float(lecun(torch.tensor(1.0, dtype=torch.float64))) == pytest.approx(1.7159 * math.tanh(2 / 3), abs=1e-12)
    assert float(lecun(torch.tensor(1.0, dtype=torch.float64))) == pytest.approx(1.0, abs=1e-4)  # made to be so


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(ValueError, match="heads"):
        TimeAttention(10, 4)
