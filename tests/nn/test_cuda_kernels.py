"""Kernels for CUDA devices against their twins in tensor operations; without such a device, Triton interprets them."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.nn import kernels
from tedtrajrec.nn.best_paths import by_kernel
from tedtrajrec.nn.chain import Chain, log_partition, marginals, negative_log_likelihood, viterbi
from tedtrajrec.nn.kernels import kernels_for
from tedtrajrec.nn.parallel_decoder import CandidateScorer
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.time_attention import Kind, TimeAttention
from tedtrajrec.nn.transitions import Moves
from tests.nn.chains import made_chain, some_truth
from tests.nn.moves import made_moves, made_scorer

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
INTERPRETED = DEVICE.type == "cpu"
Answer = Sequence[Tensor]


def need_triton() -> None:
    """Skip without Triton, or fail where nothing may be missing (CI)."""
    if importlib.util.find_spec("triton") is None:
        reason = "triton is not installed"
        if os.environ.get("TEDTRAJREC_REQUIRE_DATA"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture
def run_kernels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have kernels do the work on the device of the tests, even if that is a processor; skip without Triton."""
    need_triton()
    if INTERPRETED:
        if os.environ.get("TRITON_INTERPRET") != "1":
            pytest.skip("there is no CUDA device, and TRITON_INTERPRET is not 1")
        monkeypatch.setattr(kernels, "DEVICES", {"cpu"})
        monkeypatch.setattr(kernels, "RECORDED", {"cpu"})  # so that the twins are those of CUDA devices
    with np.errstate(all="ignore"):  # what kernels make of padding means nothing
        yield


@pytest.fixture
def exact_products() -> Iterator[None]:
    """Keep TF32 out of the products around the kernels."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


def both_ways(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Answer]) -> tuple[Answer, Answer]:
    """Return what the kernels and what tensor operations give, on the same device."""
    load, asked = kernels._module, []

    def watched(name: str) -> ModuleType | None:
        asked.append(load(name))
        return asked[-1]

    with monkeypatch.context() as patch:
        patch.setattr(kernels, "_module", watched)
        found = work()
        assert asked
        assert None not in asked
        patch.setattr(kernels, "_module", lambda _: None)
        return found, work()


def agree(found: Answer, expected: Answer) -> None:
    """Check that two answers are the same but for rounding."""
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * max(1.0, float(other.abs().max())))


def gradients(outputs: Tensor, variables: Sequence[Tensor]) -> list[Tensor]:
    """Return the outputs, and the gradients of a random sum of them."""
    toward = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(5)).to(outputs)
    return [outputs.detach(), *torch.autograd.grad((outputs * toward).sum(), variables, materialize_grads=True)]


def test_there_are_none_for_other_devices_and_types() -> None:
    assert kernels_for("chain_cuda", torch.zeros(3)) is None
    if torch.cuda.is_available():
        assert kernels_for("chain_cuda", torch.zeros(3, device=DEVICE)) is not None
        assert kernels_for("chain_cuda", torch.zeros(3, device=DEVICE).double()) is None


def test_without_triton_there_are_none_but_other_faults_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(missing: str) -> Callable[[str], Any]:
        def load(_: str) -> None:
            raise ModuleNotFoundError(name=missing)

        return load

    monkeypatch.setattr(kernels.importlib, "import_module", importing("triton"))
    assert kernels._module.__wrapped__("chain_cuda") is None
    monkeypatch.setattr(kernels.importlib, "import_module", importing("tedtrajrec.nn.chain_cuda"))
    with pytest.raises(ModuleNotFoundError):
        kernels._module.__wrapped__("chain_cuda")


@pytest.mark.parametrize("kind", ["ted", "exp_decay", "full"])
def test_reading_at_once_is_reading_in_two_steps(kind: Kind) -> None:
    torch.manual_seed(1)
    layer = TimeAttention(8, 2, kind=kind)
    query, memory, mask = torch.randn(5, 3, 8), torch.randn(3, 4, 8), torch.ones(3, 4, dtype=torch.bool)
    memory_time, query_time = torch.rand(3, 4), torch.rand(3, 5)
    expected = layer.attend(query, layer.evolve(memory, memory_time, query_time, mask))
    assert torch.equal(layer.read(query, query_time, memory, memory_time, mask), expected)


def moves_on(device: torch.device) -> Moves:
    """Return ways between 5 lists of 10 candidates."""
    moves = made_moves(torch.full((2, 5), 10))
    return Moves(*(part.to(device) if isinstance(part, Tensor) else part for part in moves))


def test_moves_are_scored_as_their_candidates_say() -> None:
    moves, ways = moves_on(torch.device("cpu")), made_scorer()
    found = ways.between(moves)
    for b, p, c, d in [(0, 0, 0, 0), (1, 5, 9, 2), (0, 3, 4, 4), (1, 2, 7, 8), (1, 1, 3, 6)]:
        i, j = moves.source[b, p], moves.target[b, p]
        same = moves.segment[b, i, c] == moves.segment[b, j, d]
        rest, enter, between = moves.rest[b, i, c], moves.enter[b, j, d], moves.way[b, p, c, d].float() / moves.unit
        whole = torch.minimum(rest, enter) if same else rest + enter + between
        one = [torch.as_tensor(part).reshape(1, 1, 1, 1) for part in (between, whole, between >= 0, same)]
        torch.testing.assert_close(found[b, p, c, d], ways(torch.tensor([p % 3]), *one).squeeze())


@pytest.mark.usefixtures("run_kernels")
@pytest.mark.parametrize("c", [1, 5, 16, 48, 70, 128, 130])
def test_chains(c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = made_chain(c, (30, 1, 7, 2), c, 5, whole=c == 48, dtype=torch.float32)
    truth = some_truth(plain, c).where(plain.mask, -1).to(DEVICE)
    unary, pair = (part.to(DEVICE, copy=True).requires_grad_(True) for part in plain[:2])
    chain = Chain(unary, pair, plain.which.to(DEVICE), plain.mask.to(DEVICE))

    def work() -> Answer:
        sums = [
            gradients(log_partition(chain), (unary, pair)),
            gradients(negative_log_likelihood(chain, truth), (unary, pair)),
        ]
        return [*sums[0], *sums[1], marginals(chain)]

    agree(*both_ways(monkeypatch, work))
    path, score = viterbi(chain)
    expected, best = (part[:, 0] for part in by_kernel(*plain, 1))
    assert torch.equal(path.cpu(), expected.where(plain.mask, 0))
    assert torch.equal(score.detach().cpu(), best)


@pytest.mark.usefixtures("exact_products", "run_kernels")
@pytest.mark.parametrize(("d", "heads", "k"), [(8, 2, 1), (24, 2, 4), (256, 8, 10)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention(d: int, heads: int, k: int, dropout: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    b, q = 3, 7
    layer = TimeAttention(d, heads, dropout=dropout).to(DEVICE)
    query = torch.randn(q, b, d, device=DEVICE, requires_grad=True)
    memory = torch.randn(b, k, d, device=DEVICE, requires_grad=True)
    times = 10 * torch.rand(b, k, device=DEVICE), 10 * torch.rand(b, q, device=DEVICE)
    mask = torch.rand(b, k, device=DEVICE) > 0.3
    if dropout:
        draw = (torch.rand(q, b, heads, k, device=DEVICE) > dropout).float() / (1 - dropout)
        layer.dropout.forward = lambda weight: weight * draw  # type: ignore[method-assign]

    def work() -> Answer:
        return gradients(layer.read(query, times[1], memory, times[0], mask), [query, memory, *layer.parameters()])

    agree(*both_ways(monkeypatch, work))


@pytest.mark.usefixtures("run_kernels")
@pytest.mark.parametrize("d", [1, 20, 256])
def test_roads(d: int, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    tables = [torch.randn(*shape, device=DEVICE, requires_grad=True) for shape in ((30, d), (30, d), (d,))]
    segment = torch.randint(30, (3, 101), device=DEVICE)
    minute = 1440 * torch.rand(3, 1, device=DEVICE).expand(3, 101)
    agree(*both_ways(monkeypatch, lambda: gradients(Roads(*tables).at(segment, minute), tables)))


@pytest.mark.usefixtures("run_kernels")
def test_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    moves, ways = moves_on(DEVICE), made_scorer().to(DEVICE)
    agree(*both_ways(monkeypatch, lambda: gradients(ways.between(moves), list(ways.parameters()))))


@pytest.mark.usefixtures("exact_products", "run_kernels")
@pytest.mark.parametrize(("hidden", "candidates"), [(128, 48), (20, 7)])
def test_scores_of_candidates(monkeypatch: pytest.MonkeyPatch, hidden: int, candidates: int) -> None:
    torch.manual_seed(6)
    b, n, lists, d, static, moving = 3, 11, 5, 16, 4, 9
    scorer = CandidateScorer(d, hidden, static, moving).to(DEVICE).eval()
    features = torch.randn(moving, b, n, candidates, device=DEVICE).movedim(0, -1)
    inputs = (
        torch.randn(b, n, d, device=DEVICE),
        torch.randn(b, lists, candidates, d, device=DEVICE),
        torch.randint(lists, (b, n), device=DEVICE),
        torch.randn(b, lists, candidates, static, device=DEVICE),
    )
    guess = torch.rand(b, n, candidates, device=DEVICE)
    with torch.no_grad():
        for layout in (features, features.contiguous()):
            agree(*both_ways(monkeypatch, lambda layout=layout: scorer(*inputs, layout, guess)))  # type: ignore[misc]
    scorer.train()
    assert scorer(*inputs, features, guess)[0].requires_grad


def test_kernels_compile_for_a_device_that_is_not_here(tmp_path: Path) -> None:
    need_triton()
    environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    script = Path(__file__).with_name("compile_kernels.py")
    done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
