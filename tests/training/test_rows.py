"""The rows of a table that batches read, beside the optimizers of torch on the whole table."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tedtrajrec.training import rows as rows_module
from tedtrajrec.training.drift import Ints
from tedtrajrec.training.rows import LAST, TableRows, can_coast

S, D = 40, 6
KINDS: dict[str, tuple[type[torch.optim.Adam], float]] = {
    "adam": (torch.optim.Adam, 0.0),
    "adamw": (torch.optim.AdamW, 0.01),
    "adamw that decays fast": (torch.optim.AdamW, 2.0),
}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA"))]


def rate(step: int) -> float:
    return 1e-2 * min(1, step / 30) * max(1e-3, 0.5 * (1 + math.cos(math.pi * min(step, 500) / 500)))


class Both:
    """A table and another weight, moved by the rows that are touched, and as a whole."""

    def __init__(
        self,
        kind: str,
        device: str = "cpu",
        dtype: torch.dtype = torch.float64,
        eps: float = 1e-8,
        shape: tuple[int, ...] = (S, D),
    ) -> None:
        torch.manual_seed(0)
        make, decay = KINDS[kind]
        self.ours = [nn.Parameter(torch.randn(*size, device=device, dtype=dtype)) for size in (shape, (3,))]
        self.theirs = copy.deepcopy(self.ours)
        self.optimizers = [
            make(part, lr=1.0, weight_decay=decay, eps=eps, fused=True) for part in (self.ours, self.theirs)
        ]
        self.rows = TableRows(self.ours[0], self.optimizers[0], rate)
        self.steps = 0

    def step(self, touched: Ints | None, gradient: Tensor) -> None:
        """Make a step with the gradient of the rows that were touched, or of all."""
        self.steps += 1
        gradient = gradient.to(self.ours[0])
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = rate(self.steps)
        other = gradient.new_full((3,), 0.1 * self.steps)
        self.ours[1].grad, self.theirs[1].grad = other, other.clone()
        self.rows.catch_up(touched)
        if touched is None:
            self.ours[0].grad = self.theirs[0].grad = gradient
            self.optimizers[0].step()
            self.rows.stepped()
        else:
            self.ours[0].grad = None
            taken = self.rows.taken(touched, gradient.clone())
            self.optimizers[0].step()
            self.rows.step(taken)
            whole = torch.zeros_like(self.theirs[0])
            whole[torch.from_numpy(touched).to(whole.device)] = gradient
            self.theirs[0].grad = whole
        self.optimizers[1].step()

    def check(self, within: float = 1e-8) -> None:
        """Check that both are equal but for so much of 1, with means and counts."""
        self.rows.catch_up()
        for ours, theirs in zip(self.ours, self.theirs, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=within, atol=within)
            a, b = (o.state[p] for o, p in zip(self.optimizers, (ours, theirs), strict=True))
            assert a.keys() == b.keys()
            assert float(a["step"]) == float(b["step"]) == self.steps
            exact = 1e-10 if ours.dtype == torch.float64 else 1e-4
            for mean in ("exp_avg", "exp_avg_sq"):
                torch.testing.assert_close(a[mean], b[mean], rtol=exact, atol=1e-30)


@pytest.mark.parametrize(
    ("dtype", "eps", "within"),
    [(torch.float64, 1e-30, 1e-11), (torch.float64, 1e-8, 1e-6), (torch.float32, 1e-8, 1e-5)],
)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_many_steps_are_those_of_the_whole_table(
    kind: str, device: str, dtype: torch.dtype, eps: float, within: float
) -> None:
    both, rng = Both(kind, device, dtype, eps), np.random.default_rng(1)
    for k in range(600):
        touched = None if k % 97 == 50 else rng.permutation(S - 5)[: rng.integers(1, 12)]  # some rows hardly ever
        size = 10.0 ** rng.integers(-4, 2)
        count = S if touched is None else len(touched)
        both.step(touched, torch.from_numpy(size * rng.standard_normal((count, D))))
    before = both.ours[0].detach().clone()
    both.check(within)
    if kind != "adam":
        assert not torch.equal(before, both.ours[0])  # some had to catch up


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_table_of_numbers(kind: str, device: str) -> None:
    both, rng = Both(kind, device, eps=1e-30, shape=(S,)), np.random.default_rng(1)
    for k in range(60):
        touched = None if k == 50 else rng.permutation(S - 5)[: rng.integers(1, 12)]
        both.step(touched, torch.from_numpy(rng.standard_normal(S if touched is None else len(touched))))
    both.check(1e-11)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_any_order_of_reading(data: st.DataObject) -> None:
    both = Both(data.draw(st.sampled_from(sorted(KINDS))))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    for _ in range(data.draw(st.integers(1, 25))):
        touched = data.draw(st.none() | st.lists(st.integers(0, S - 1), min_size=1, max_size=8, unique=True))
        which = None if touched is None else np.array(touched)
        both.step(which, torch.from_numpy(rng.standard_normal((S if touched is None else len(touched), D))))
        if data.draw(st.booleans()):
            both.rows.catch_up(np.array(data.draw(st.lists(st.integers(0, S - 1), max_size=5, unique=True)), np.int64))
    both.check()


def test_rows_left_alone_for_long() -> None:
    both, rng = Both("adamw"), np.random.default_rng(2)
    both.step(None, torch.from_numpy(rng.standard_normal((S, D))))
    for k in range(5000):  # longer than the sums of one block
        both.step(np.array([k % 3]), torch.from_numpy(rng.standard_normal((1, D))))
    both.check()


@pytest.mark.parametrize(("before", "within"), [(0, 5e-5), (150, 1e-7)])
def test_gradients_about_as_large_as_eps(before: int, within: float) -> None:
    # There the closed form is not exact, above all in the first steps; each of these moves a row by up to 1e-2.
    both, rng = Both("adamw"), np.random.default_rng(3)
    for k in range(before + 300):
        touched = rng.permutation(S)[:4] if k >= before else np.arange(4)
        size = 10.0 ** rng.uniform(-10, -6, (4, D)) if k >= before else np.zeros((4, D))
        both.step(touched, torch.from_numpy(size * rng.choice([-1, 1], (4, D))))
    both.check(within)


def test_catching_up_twice_is_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows_module, "CHUNK", 7)
    both = Both("adamw")
    both.step(None, torch.ones(S, D))
    for _ in range(20):
        both.step(np.array([1]), torch.ones(1, D))
    once = copy.deepcopy(both)
    for _ in range(2):
        both.rows.catch_up(np.arange(9, 30))
        assert LAST in both.optimizers[0].state[both.ours[0]]
    both.rows.catch_up()
    once.rows.catch_up()
    assert LAST not in both.optimizers[0].state[both.ours[0]]
    assert torch.equal(both.ours[0], once.ours[0])
    both.step(np.array([2, 3]), torch.ones(2, D))
    both.check()


def test_rows_catch_up_only_when_asked() -> None:
    both = Both("adamw")
    both.step(None, torch.ones(S, D))
    before = both.ours[0].detach().clone()
    both.step(np.array([5, 2]), torch.ones(2, D))
    changed = (both.ours[0] != before).any(1).nonzero()[:, 0]
    assert changed.tolist() == [2, 5]
    both.step(np.array([7]), torch.ones(1, D))
    changed = (both.ours[0] != before).any(1).nonzero()[:, 0]
    assert changed.tolist() == [2, 5, 7]


def test_a_state_goes_on_bit_for_bit() -> None:
    def more(both: Both) -> None:
        for k in range(10):
            both.step(np.array([k, 39 - k]), torch.full((2, D), 0.1 * k))

    whole, other = Both("adamw"), Both("adamw")
    more(whole)
    for number, name in enumerate(("ours", "theirs")):
        state: dict[str, Any] = copy.deepcopy(whole.optimizers[number].state_dict())
        other.optimizers[number].load_state_dict(state)
        for a, b in zip(getattr(whole, name), getattr(other, name), strict=True):
            b.data.copy_(a.data)
    other.steps = whole.steps
    for both in (whole, other):
        more(both)
        both.rows.catch_up()
    assert torch.equal(whole.ours[0], other.ours[0])
    other.check()


def test_a_state_without_it_is_of_rows_that_are_done() -> None:
    both, later = Both("adamw"), Both("adamw")
    for _ in range(3):
        both.step(None, torch.ones(S, D))
    for number, (a, b) in enumerate(((both.ours, later.ours), (both.theirs, later.theirs))):
        state = both.optimizers[number].state_dict()
        assert all(LAST not in values for values in state["state"].values())
        later.optimizers[number].load_state_dict(state)
        for x, y in zip(a, b, strict=True):
            y.data.copy_(x.data)
    later.steps = 3
    later.step(np.array([4]), torch.ones(1, D))
    later.check()


def test_what_can_be_left_alone() -> None:
    weights = [nn.Parameter(torch.zeros(2))]
    assert can_coast(torch.optim.AdamW(weights, weight_decay=0.01), 1e-3)
    assert can_coast(torch.optim.Adam(weights, weight_decay=0.0), 1e-3)
    assert not can_coast(torch.optim.Adam(weights, weight_decay=0.01), 1e-3)  # a gradient for every row
    assert not can_coast(torch.optim.AdamW(weights, weight_decay=0.01), 1e30)
