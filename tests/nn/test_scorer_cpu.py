"""The network over features in pieces: what plain layers give, forth and back, whatever pieces and dropout are."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.nn import scorer_cpu
from tedtrajrec.nn.scorer_cpu import Places, Weights, answers

E, N, H, M = 7, 5, 6, 3


def plain(lists: Tensor, states: Tensor, places: Places, weights: Weights, kept: Tensor | float = 1.0) -> Tensor:
    x = lists[places.entry] + states[places.step] + places.moving @ weights.moving.T
    y = functional.linear(functional.gelu(x), weights.inner, weights.inner_bias)
    return functional.linear(functional.gelu(y) * kept, weights.outer, weights.outer_bias)


def case(q: int, *, seed: int = 0) -> tuple[Tensor, Tensor, Places, Weights]:
    torch.manual_seed(seed)
    weights = Weights(*(0.5 * torch.randn(*size).double() for size in ((H, M), (H, H), (H,), (2, H), (2,))))
    lists, states = 0.5 * torch.randn(E, H).double(), 0.5 * torch.randn(N, H).double()
    for leaf in (lists, states, *weights):
        leaf.requires_grad_()
    places = Places(torch.randint(E, (q,)), torch.randint(N, (q,)), torch.randn(q, M).double())
    return lists, states, places, weights


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scorer_cpu, "PIECE", 4)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("q", [0, 1, 4, 5, 30])
def test_answers_and_gradients_are_those_of_plain_layers(q: int) -> None:
    lists, states, places, weights = case(q)
    found, expected = answers(lists, states, places, weights), plain(lists, states, places, weights)
    torch.testing.assert_close(found, expected)
    leaves = [lists, states, *weights]
    for one, other in zip(*(torch.autograd.grad(out.sin().sum(), leaves) for out in (found, expected)), strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(answers(lists, states, places, weights), expected)


@pytest.mark.usefixtures("small_pieces")
def test_the_way_back_drops_what_the_way_forth_dropped() -> None:
    lists, states, places, weights = case(30)
    rate = round(0.3 * 256) / 256

    def found() -> Tensor:
        torch.manual_seed(5)
        return answers(lists, states, places, weights, 0.3)

    # With outer weights that hand the hidden numbers on as they are, answers tell which ones were dropped.
    with torch.no_grad():
        handed_on = weights._replace(outer=torch.eye(H).double(), outer_bias=torch.zeros(H).double())
        torch.manual_seed(5)
        kept = answers(lists, states, places, handed_on, 0.3) / plain(lists, states, places, handed_on)
    assert set(kept.flatten().round(decimals=9).tolist()) == {0.0, round(1 / (1 - rate), 9)}
    expected = plain(lists, states, places, weights, kept)
    torch.testing.assert_close(found(), expected)
    leaves = [lists, states, *weights]
    for one, other in zip(*(torch.autograd.grad(out.sin().sum(), leaves) for out in (found(), expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_as_much_is_dropped_as_was_asked_for() -> None:
    like = torch.empty(1000, 129)
    for dropout in (0.1, 0.5):
        factors = scorer_cpu._kept(like, dropout, 3)
        assert float((factors == 0).float().mean()) == pytest.approx(dropout, abs=0.005)
        assert float(factors.mean()) == pytest.approx(1, abs=0.01)
        assert torch.equal(factors, scorer_cpu._kept(like, dropout, 3))
        assert not torch.equal(factors, scorer_cpu._kept(like, dropout, 4))
        by_column = (factors == 0).float().mean(0)  # each byte of a drawn number is as good as the others
        assert (by_column - dropout).abs().max() < 0.08


def test_one_seed_one_answer_and_another_another() -> None:
    lists, states, places, weights = case(30)
    torch.manual_seed(1)
    first, second = (answers(lists, states, places, weights, 0.5) for _ in range(2))
    torch.manual_seed(1)
    assert torch.equal(answers(lists, states, places, weights, 0.5), first)
    assert not torch.equal(first, second)
