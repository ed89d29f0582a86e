"""The chain over candidates: sums, gradients and probabilities as found by writing out all paths."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tedtrajrec.nn.chain import (
    NO,
    REACH,
    Chain,
    constrained_log_partition,
    k_best,
    log_partition,
    marginals,
    negative_log_likelihood,
    path_score,
    viterbi,
)
from tedtrajrec.nn.recorded import Recorded
from tests.nn.chains import FORBIDDEN, agreeing, all_paths, chains, made_chain, some_truth


@settings(max_examples=40)
@given(chains, st.integers(0, 2**32 - 1), st.sampled_from([torch.float32, torch.float64]))
def test_sums_and_probabilities_are_those_of_all_paths(chain: Chain, seed: int, dtype: torch.dtype) -> None:
    chain = chain._replace(unary=chain.unary.to(dtype), pair=chain.pair.to(dtype))
    close = {"rtol": 0.0, "atol": 1e-4 if dtype == torch.float32 else 1e-9}
    truth = some_truth(chain, seed)
    total, known, loss = (
        log_partition(chain),
        constrained_log_partition(chain, truth),
        negative_log_likelihood(chain, truth),
    )
    probability = marginals(chain)
    assert total.dtype == known.dtype == loss.dtype == probability.dtype == dtype
    for b in range(len(chain.mask)):
        paths = all_paths(chain, b)
        agree = agreeing(paths, truth[b])
        expected = torch.logsumexp(paths.score, 0)
        expected_known = torch.logsumexp(paths.score[agree], 0)
        torch.testing.assert_close(total[b].double(), expected, **close)
        torch.testing.assert_close(known[b].double(), expected_known, **close)
        torch.testing.assert_close(loss[b].double(), expected - expected_known, **close)
        share = torch.exp(paths.score - expected)
        length = paths.path.shape[1]
        for i, c in itertools.product(range(length), range(chain.unary.shape[2])):
            torch.testing.assert_close(probability[b, i, c].double(), share[paths.path[:, i] == c].sum(), **close)
        assert not probability[b, length:].any()


@settings(max_examples=25)
@given(chains, st.integers(0, 2**32 - 1))
def test_gradients_are_those_of_the_sum_over_all_paths(chain: Chain, seed: int) -> None:
    chain.unary.requires_grad_(True)
    chain.pair.requires_grad_(True)
    truth = some_truth(chain, seed)
    scale = torch.randn(len(chain.mask), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    paths = [all_paths(chain, b) for b in range(len(scale))]
    free = torch.stack([torch.logsumexp(every.score, 0) for every in paths])
    pinned = torch.stack([torch.logsumexp(every.score[agreeing(every, truth[b])], 0) for b, every in enumerate(paths)])
    for found, expected in (
        (log_partition(chain), free),
        (constrained_log_partition(chain, truth), pinned),
        (negative_log_likelihood(chain, truth), free - pinned),
    ):
        of = (chain.unary, chain.pair)
        for one, other in zip(
            torch.autograd.grad((found * scale).sum(), of),
            torch.autograd.grad(
                (expected * scale).sum(), of, retain_graph=True, allow_unused=True, materialize_grads=True
            ),
            strict=True,
        ):
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


def test_gradients_agree_with_differences() -> None:
    chain = made_chain(3, (5, 3), 3, 2)
    unary = chain.unary.masked_fill(chain.unary == NO, 0.0).nan_to_num().requires_grad_(True)
    path = torch.tensor([[0, 1, 2, 0, 1], [2, 2, 0, 5, 5]])

    def of(function: Callable[..., Tensor], *more: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda unary, pair: function(chain._replace(unary=unary, pair=pair), *more)

    for function in (of(log_partition), of(negative_log_likelihood, path), of(path_score, path)):
        assert torch.autograd.gradcheck(function, (unary, chain.pair.requires_grad_(True)))


def test_a_known_path_has_the_loss_of_its_score() -> None:
    chain = made_chain(5, (9, 4, 1), 6, 3)
    path = viterbi(chain)[0]
    torch.testing.assert_close(constrained_log_partition(chain, path), path_score(chain, path))
    torch.testing.assert_close(negative_log_likelihood(chain, path), log_partition(chain) - path_score(chain, path))


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple))
def test_a_trip_does_not_depend_on_padding_and_on_other_trips(seed: int, lengths: tuple[int, ...]) -> None:
    batch = made_chain(seed, lengths, 4, 2)
    batch.unary.requires_grad_(True)
    batch.pair.requires_grad_(True)
    truth = some_truth(batch, seed)

    def results(chain: Chain, truth: Tensor) -> list[Tensor]:
        loss = negative_log_likelihood(chain, truth)
        unary, pair = torch.autograd.grad(loss.sum(), (chain.unary, chain.pair))
        path, score = viterbi(chain)
        paths, scores = k_best(chain, 3)
        by_step = [unary, marginals(chain), path, paths.transpose(1, 2)]
        return [log_partition(chain), loss, score, scores, pair, *by_step]

    together = results(batch, truth)
    for b, length in enumerate(lengths):
        row = slice(b, b + 1)
        cut = [part[row, :size] for part, size in zip(batch, (length, None, length - 1, length), strict=True)]
        alone = results(
            Chain(*(part.detach().requires_grad_(part.is_floating_point()) for part in cut)), truth[row, :length]
        )
        for k, (one, many) in enumerate(zip(alone, together, strict=True)):
            torch.testing.assert_close(one, many[row] if k < 5 else many[row, :length])
            assert k < 5 or not many[row, length:].any()


def log_space(chain: Chain) -> Tensor:
    """Return log Z of trips without padding by plain sums of exponentials in float64."""
    unary, pair = chain.unary.double(), chain.pair.double()
    ahead = unary[:, 0]
    for i, which in enumerate(chain.which.t()):
        ahead = torch.logsumexp(ahead[:, :, None] + pair[torch.arange(len(pair)), which], 1) + unary[:, i + 1]
    return torch.logsumexp(ahead, 1)


@pytest.mark.parametrize("spread", [1.0, 30.0, 300.0])
@pytest.mark.parametrize("lowest", [FORBIDDEN, -0.9 * REACH])
def test_float32_is_exact_at_full_size(lowest: float, spread: float) -> None:
    """Whatever the range of unary scores, with most transitions forbidden."""
    random = torch.Generator().manual_seed(0)
    b, n, c, p = 3, 72, 64, 9
    unary = spread * torch.randn(b, n, c, generator=random)
    pair = torch.randn(b, p, c, c, generator=random).masked_fill(
        torch.rand(b, p, c, c, generator=random) < 0.95, lowest
    )
    chain = Chain(
        unary.requires_grad_(True),
        pair.requires_grad_(True),
        torch.randint(p, (b, n - 1), generator=random),
        torch.ones(b, n, dtype=torch.bool),
    )
    total, expected = log_partition(chain), log_space(chain)
    torch.testing.assert_close(total.double(), expected, rtol=1e-7, atol=1e-4)
    for one, other in zip(
        torch.autograd.grad(total.sum(), chain[:2]), torch.autograd.grad(expected.sum(), chain[:2]), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=3e-5)
    torch.testing.assert_close(marginals(chain).sum(-1), torch.ones(b, n), rtol=0, atol=1e-5)


def test_a_path_without_choice_has_its_score() -> None:
    n, c = 40, 8
    random = torch.Generator().manual_seed(2)
    path = torch.randint(c, (1, n), generator=random)
    pair = torch.full((1, 1, c, c), 5.0)
    pair[0, 0, path[0, :-1], path[0, 1:]] = FORBIDDEN
    unary = torch.full((1, n, c), NO).scatter(2, path[..., None], torch.randn(1, n, 1, generator=random))
    chain = Chain(unary, pair, torch.zeros(1, n - 1, dtype=torch.int64), torch.ones(1, n, dtype=torch.bool))
    torch.testing.assert_close(log_partition(chain), path_score(chain, path), rtol=0, atol=1e-4)
    paths, scores = k_best(chain, 3)
    assert torch.equal(viterbi(chain)[0], path)
    assert torch.equal(paths[:, 0], path)
    assert scores[0, 1:].tolist() == [NO, NO]


def test_transitions_count_as_no_lower_than_the_reach() -> None:
    chain = made_chain(1, (6, 4), 3, 2, dtype=torch.float32)
    cut = chain.pair.maximum(chain.pair.amax(2, keepdim=True) - REACH)
    hopeless = chain._replace(pair=cut.masked_fill(cut == FORBIDDEN, NO).requires_grad_(True))
    floor = chain._replace(pair=hopeless.pair.detach().maximum(hopeless.pair.detach().amax(2, keepdim=True) - REACH))
    total = log_partition(hopeless)
    torch.testing.assert_close(total, log_partition(floor))
    assert torch.autograd.grad(total.sum(), hopeless.pair)[0].isfinite().all()


def test_low_precision_around_it_changes_nothing() -> None:
    """Scores come in bfloat16 under autocast; sums are taken in float32, and gradients come back in bfloat16."""
    chain = made_chain(4, (7, 3), 4, 2, dtype=torch.float32)
    low = chain._replace(
        unary=chain.unary.bfloat16().requires_grad_(True), pair=chain.pair.bfloat16().requires_grad_(True)
    )
    full = chain._replace(unary=low.unary.detach().float().requires_grad_(True), pair=low.pair.detach().float())
    full.pair.requires_grad_(True)
    truth = some_truth(full, 1)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss, probability = negative_log_likelihood(low, truth), marginals(low)
            gradients = torch.autograd.grad(loss.sum(), low[:2])
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert loss.dtype == probability.dtype == torch.float32
    expected = negative_log_likelihood(full, truth)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(probability, marginals(full))
    for one, other in zip(gradients, torch.autograd.grad(expected.sum(), full[:2]), strict=True):
        assert one.dtype == torch.bfloat16
        torch.testing.assert_close(one, other.bfloat16())


class Inputs(NamedTuple):
    unary: Tensor
    pair: Tensor
    which: Tensor
    mask: Tensor
    truth: Tensor


class Results(NamedTuple):
    loss: Tensor
    grad_unary: Tensor
    grad_pair: Tensor
    score_of_truth: Tensor
    probability: Tensor
    path: Tensor
    score: Tensor
    paths: Tensor
    scores: Tensor


def everything(inputs: Inputs) -> Results:
    """Return all that can be asked of a chain."""
    unary, pair = inputs.unary.detach().requires_grad_(True), inputs.pair.detach().requires_grad_(True)
    chain = Chain(unary, pair, inputs.which, inputs.mask)
    loss, score = negative_log_likelihood(chain, inputs.truth), path_score(chain, inputs.truth.clamp_min(0))
    gradients = torch.autograd.grad((loss + 0.5 * score).sum(), (unary, pair))
    return Results(
        *(part.detach() for part in (loss, *gradients, score, marginals(chain), *viterbi(chain), *k_best(chain, 4)))
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_recorded_graph_gives_what_the_cpu_gives() -> None:
    recorded = Recorded(everything, torch.device("cuda"))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")  # as in training
    try:
        for seed in range(3):
            chain = made_chain(seed, (20, 7, 1, 13), 16, 5, whole=seed == 2, dtype=torch.float32)
            truth = some_truth(chain, seed).where(chain.mask, -1)
            found = recorded(Inputs(*chain, truth))
            expected = everything(Inputs(*chain, truth))
            for name, one, other in zip(Results._fields, found, expected, strict=True):
                # The sums of gradients of transitions may be taken in TF32, as other products in training.
                close = 2e-3 if name == "grad_pair" else 1e-4
                torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=close, msg=lambda m, n=name: f"{n}: {m}")
    finally:
        torch.set_float32_matmul_precision(before)
