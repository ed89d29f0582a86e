"""The loss of the segments against a cross entropy of all logits at once, and against its definition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from tedtrajrec.nn import segment_loss as module
from tedtrajrec.nn.constraint import Constraint, constrain
from tedtrajrec.nn.segment_loss import CHUNK_BYTES, chunk_rows, segment_loss
from tests.nn import literal

S, D = 15, 4
MASK = {"radius_m": 100.0, "beta_m": 15.0, "floor": 1e-6}


class Case:
    """States of made-up trips with all that their loss reads; one step is unknown in the middle of a trip."""

    def __init__(self, seed: int = 0, dtype: torch.dtype = torch.float64) -> None:
        torch.manual_seed(seed)
        self.inputs = literal.double(literal.made_inputs(S, seed))
        i = self.inputs
        self.constraint = constrain(i.nearby, i.fix_step, i.fix_mask, i.step_mask.shape[1], **MASK)
        self.target = i.segment.clone()
        self.target[0, 2] = -1
        self.state = torch.randn(*self.target.shape, D, dtype=dtype, requires_grad=True)
        self.score = nn.Linear(D, S, dtype=dtype)

    @property
    def variables(self) -> tuple[Tensor, ...]:
        return self.state, self.score.weight, self.score.bias

    def loss(self, smoothing: float = 0.0) -> Tensor:
        return segment_loss(self.state, self.score, self.constraint, self.target, smoothing=smoothing)

    def dense(self, smoothing: float = 0.0) -> Tensor:
        """Return the loss from the logits of all steps."""
        logits = self.constraint.add_to(self.score(self.state)).flatten(0, 1)
        return functional.cross_entropy(
            logits, self.target.flatten(), ignore_index=-1, reduction="sum", label_smoothing=smoothing
        )


@pytest.fixture
def chunks_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Return what sets the rows of a chunk."""
    return lambda rows: monkeypatch.setattr(module, "chunk_rows", lambda *_: rows)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_by_definition(smoothing: float) -> None:
    case = Case(5)
    masks = [literal.dense_mask(case.inputs, b, S, **MASK) for b in range(len(case.target))]
    terms = []
    for b, i in (case.target >= 0).nonzero().tolist():
        weight = torch.exp(case.score(case.state[b, i])) * masks[b][i]
        log_prob = torch.log(weight / weight.sum())
        terms.append(-(1 - smoothing) * log_prob[case.target[b, i]] - smoothing * log_prob.mean())
    found, expected = case.loss(smoothing), torch.stack(terms).sum()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    for a, b in zip(*(torch.autograd.grad(loss, case.variables) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("rows", [1, 5, 7, 35, 36, 100])
def test_chunks_of_any_size_give_the_cross_entropy_of_all_logits(
    chunks_of: Callable[[int], None], rows: int, smoothing: float
) -> None:
    case = Case(1)
    expected = case.dense(smoothing)
    gradients = torch.autograd.grad(3 * expected, case.variables)
    chunks_of(rows)
    found = case.loss(smoothing)
    assert found.shape == ()
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    for _ in range(2):  # the backward pass leaves what it reads as it is
        for a, b in zip(torch.autograd.grad(3 * found, case.variables, retain_graph=True), gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_single_precision_and_large_logits() -> None:
    case = Case(2, torch.float32)
    with torch.no_grad():
        case.score.weight *= 200  # exp of such logits is not finite, and many probabilities are 0
    found, expected = case.loss(0.1), case.dense(0.1)
    assert float(found.detach()) > 1000
    torch.testing.assert_close(found, expected)
    for a, b in zip(*(torch.autograd.grad(loss, case.variables) for loss in (found, expected)), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5 * float(b.abs().max()))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_by_differences(chunks_of: Callable[[int], None], smoothing: float) -> None:
    chunks_of(10)
    case = Case(3)
    assert torch.autograd.gradcheck(lambda *_: case.loss(smoothing), case.variables)


def test_unknown_steps_have_no_part(chunks_of: Callable[[int], None]) -> None:
    chunks_of(5)
    case = Case(4)
    (gradient,) = torch.autograd.grad(case.loss(), [case.state])
    unknown = case.target < 0
    assert (gradient[unknown] == 0).all()
    assert (gradient[~unknown].abs().sum(-1) > 0).all()
    before = case.loss()
    with torch.no_grad():
        case.state[unknown] += 1
    assert torch.equal(case.loss(), before)
    case.target.fill_(-1)
    found = case.loss(0.1)
    assert float(found.detach()) == 0
    assert all((gradient == 0).all() for gradient in torch.autograd.grad(found, case.variables))


def test_no_rows() -> None:
    case = Case()
    for b, n in ((0, 3), (2, 0)):
        state = torch.zeros(b, n, D, dtype=torch.float64, requires_grad=True)
        near = Constraint(torch.zeros(b, n, 6, dtype=torch.int64), torch.zeros(b, n, 6))
        loss = segment_loss(state, case.score, near, torch.zeros(b, n, dtype=torch.int64))
        assert float(loss.detach()) == 0
        gradients = torch.autograd.grad(loss, [state, *case.score.parameters()])
        assert [tuple(gradient.shape) for gradient in gradients] == [(b, n, D), (S, D), (S,)]
        assert all((gradient == 0).all() for gradient in gradients)


def test_a_wrong_truth_far_from_the_fix_still_has_a_gradient() -> None:
    case = Case(1)
    with torch.no_grad():
        case.state.zero_()
    observed = case.constraint.bonus.sum(-1).argmax()
    near = set(case.constraint.segment.flatten(0, 1)[observed].tolist())
    case.target.fill_(-1)
    case.target.view(-1)[observed] = min(set(range(S)) - near)
    loss = case.loss()
    (gradient,) = torch.autograd.grad(loss, [case.state])
    assert float(loss.detach()) > 10
    assert gradient.isfinite().all()
    assert gradient.norm() > 0.1


def test_gradients_are_made_only_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case()
    expected = case.loss().detach()

    def refuse(*_: Tensor) -> None:
        raise AssertionError("gradients were made")

    monkeypatch.setattr(module, "Gradients", refuse)
    with torch.no_grad():
        assert torch.equal(case.loss(), expected)
    case.state.requires_grad_(False)
    with pytest.raises(AssertionError, match="gradients were made"):
        case.loss()
    case.score.requires_grad_(False)
    found = case.loss()
    assert torch.equal(found, expected)
    assert not found.requires_grad


class Places(TorchDispatchMode):
    """Notes where operations return memory of at least so many bytes, and the most of them."""

    def __init__(self, least: int) -> None:
        super().__init__()
        self.least, self.largest = least, 0
        self.places: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple) else (out,):
            storage = part.untyped_storage()
            self.largest = max(self.largest, storage.nbytes())
            if storage.nbytes() >= self.least:
                self.places.add(storage.data_ptr())
        return out


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_one_chunk_is_the_largest_thing_in_memory(chunks_of: Callable[[int], None], smoothing: float) -> None:
    b, n, segments, rows = 20, 10, 300, 16
    state = torch.randn(b, n, D, requires_grad=True)
    score = nn.Linear(D, segments)
    near = Constraint(torch.randint(segments, (b, n, 3)), torch.rand(b, n, 3))
    target = torch.randint(-1, segments, (b, n))
    chunks_of(rows)
    chunk = rows * segments * state.element_size()
    with Places(chunk // 2) as seen:
        loss = segment_loss(state, score, near, target, smoothing=smoothing)
        torch.autograd.grad(loss, [state, *score.parameters()])
    assert seen.largest == chunk
    assert len(seen.places) == 1  # one chunk after another in the same memory, without a copy


def test_rows_of_a_chunk() -> None:
    weight = torch.empty(1000, D)
    most = CHUNK_BYTES["cpu"] // (4 * 1000)
    assert chunk_rows(0, weight) == 1
    assert chunk_rows(most, weight) == most
    assert chunk_rows(most + 1, weight) == most // 2 + 1  # as even as can be
    assert chunk_rows(10**6, torch.empty(10**6, 250, device="meta")) == 250  # however large the network


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_on_cuda_as_on_the_cpu(chunks_of: Callable[[int], None], smoothing: float) -> None:
    chunks_of(7)
    case = Case(6)
    expected = case.loss(smoothing)
    gradients = torch.autograd.grad(expected, case.variables)
    case.state = case.state.detach().cuda().requires_grad_()
    case.score, case.target = case.score.cuda(), case.target.cuda()
    case.constraint = Constraint(*(part.cuda() for part in case.constraint))
    found = case.loss(smoothing)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-10, atol=0)
    for a, b in zip(torch.autograd.grad(found, case.variables), gradients, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-9, atol=1e-12)
