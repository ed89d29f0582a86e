"""The chain over candidates: sums, gradients, probabilities and best paths as found by writing out all paths."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tedtrajrec.nn.best_paths import TRIPS_PER_PART, by_kernel, by_tensors
from tedtrajrec.nn.chain import (
    NO,
    REACH,
    Chain,
    constrained_log_partition,
    draw_paths,
    k_best,
    log_partition,
    marginals,
    negative_log_likelihood,
    path_score,
    viterbi,
)
from tedtrajrec.nn.recorded import Recorded

FORBIDDEN = -30.0


def made_chain(
    seed: int, lengths: tuple[int, ...], c: int, p: int, *, whole: bool = False, dtype: torch.dtype = torch.float64
) -> Chain:
    """Return trips of the given lengths with some candidates missing and some transitions forbidden.

    Whole numbers make ties, and padding holds rubbish.
    """
    random = torch.Generator().manual_seed(seed)
    b, n = len(lengths), max(lengths)

    def scores(*shape: int) -> Tensor:
        if whole:
            return torch.randint(-2, 3, shape, generator=random).to(dtype)
        return 3 * torch.randn(*shape, generator=random, dtype=dtype)

    mask = torch.arange(n) < torch.tensor(lengths)[:, None]
    missing = torch.rand(b, n, c, generator=random) < 0.25
    missing.scatter_(2, torch.randint(c, (b, n, 1), generator=random), value=False)  # one exists at each step
    pair = scores(b, p, c, c).masked_fill(torch.rand(b, p, c, c, generator=random) < 0.3, FORBIDDEN)
    return Chain(
        unary=scores(b, n, c).masked_fill(missing, NO).masked_fill(~mask[..., None], math.nan),
        pair=pair,
        which=torch.randint(p, (b, n - 1), generator=random).where(mask[:, 1:], -7),
        mask=mask,
    )


class Paths(NamedTuple):
    """All paths of one trip that take candidates that exist."""

    path: Tensor  # [paths, length]
    score: Tensor  # [paths] float64


def all_paths(chain: Chain, b: int) -> Paths:
    """Return all paths of a trip, written out."""
    length = int(chain.mask[b].sum())
    unary, pair = chain.unary[b].double(), chain.pair[b].double()
    rows, totals = [], []
    for path in itertools.product(range(unary.shape[1]), repeat=length):
        if any(unary[i, c] == NO for i, c in enumerate(path)):
            continue
        total = sum((unary[i, c] for i, c in enumerate(path)), torch.zeros((), dtype=torch.float64))
        for i in range(length - 1):
            total = total + pair[chain.which[b, i], path[i], path[i + 1]]
        rows.append(path)
        totals.append(total)
    return Paths(torch.tensor(rows), torch.stack(totals))


def some_truth(chain: Chain, seed: int) -> Tensor:
    """Return paths of candidates that exist, unknown at about every other step, and rubbish at padding."""
    random = torch.Generator().manual_seed(seed)
    draw = torch.rand(chain.unary.shape, generator=random)
    truth = draw.masked_fill((chain.unary == NO) | chain.unary.isnan(), -1.0).argmax(-1)
    truth = truth.masked_fill(torch.rand(truth.shape, generator=random) < 0.5, -1)
    return truth.where(chain.mask, 99)


def agreeing(paths: Paths, truth: Tensor) -> Tensor:
    """Return which paths agree with what is known."""
    known = truth[: paths.path.shape[1]]
    return ((paths.path == known) | (known < 0)).all(1)


chains = st.builds(
    made_chain,
    st.integers(0, 2**32 - 1),
    st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple),
    st.integers(1, 4),
    st.integers(1, 3),
    whole=st.booleans(),
)


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


@settings(max_examples=40)
@given(chains, st.integers(1, 8))
def test_best_paths_are_those_of_all_paths(chain: Chain, k: int) -> None:
    paths, scores = k_best(chain, k)
    best, score = viterbi(chain)
    assert torch.equal(best, paths[:, 0])
    torch.testing.assert_close(score, scores[:, 0])
    torch.testing.assert_close(path_score(chain, best), score)
    for b in range(len(chain.mask)):
        every = all_paths(chain, b)
        found, length = min(k, len(every.score)), every.path.shape[1]
        torch.testing.assert_close(scores[b, :found], every.score.sort(descending=True).values[:found])
        assert (scores[b, found:] == NO).all()
        assert not paths[b, found:].any()
        assert not paths[b, :, length:].any()
        assert len(paths[b, :found].unique(dim=0)) == found
        for path, value in zip(paths[b, :found, :length], scores[b, :found], strict=True):
            torch.testing.assert_close(every.score[(every.path == path).all(1)], value[None])


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


@settings(max_examples=30)
@given(chains, st.integers(1, 8))
def test_best_paths_of_other_devices_are_those_of_the_kernel(chain: Chain, k: int) -> None:
    paths, scores = by_kernel(*chain, k)
    others, other_scores = by_tensors(*chain, k)
    assert torch.equal(scores, other_scores)
    some = scores.isfinite()[..., None] & chain.mask[:, None]
    assert torch.equal(paths.where(some, 0), others.where(some, 0))


def test_many_trips_are_searched_in_parts() -> None:
    chain = made_chain(
        0, tuple(1 + k % 9 for k in range(2 * TRIPS_PER_PART + 3)), 5, 3, whole=True, dtype=torch.float32
    )
    path, score = viterbi(chain)
    other, other_score = (part[:, 0] for part in by_tensors(*chain, 1))
    assert torch.equal(path, other.where(chain.mask, 0))
    assert torch.equal(score, other_score)


def test_ties_go_to_the_lowest_candidate() -> None:
    chain = Chain(
        torch.zeros(1, 4, 3),
        torch.zeros(1, 1, 3, 3),
        torch.zeros(1, 3, dtype=torch.int64),
        torch.ones(1, 4, dtype=torch.bool),
    )
    assert viterbi(chain)[0].tolist() == [[0, 0, 0, 0]]
    barred = chain._replace(unary=chain.unary.masked_fill(torch.tensor([True, False, False]), NO))
    assert viterbi(barred)[0].tolist() == [[1, 1, 1, 1]]
    assert k_best(barred, 3)[0].tolist() == [[[1, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1]]]


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


def test_paths_are_drawn_as_often_as_they_are_likely() -> None:
    chain = made_chain(3, (3, 1, 4), c=3, p=2)
    k = 20_000
    uniform = torch.rand(4, k, 3, generator=torch.Generator().manual_seed(1))
    paths, scores = draw_paths(chain, uniform)
    assert paths.shape == (3, k, 4)
    assert not (paths.masked_fill(chain.mask[:, None], 0)).any()
    log_z = log_partition(chain)
    for i, length in enumerate(chain.mask.sum(1).tolist()):
        found: dict[tuple[int, ...], int] = {}
        for path in paths[i, :, :length].tolist():
            found[tuple(path)] = found.get(tuple(path), 0) + 1
        one = Chain(*(part[i : i + 1] for part in chain))
        for path in itertools.product(range(3), repeat=length):
            whole = torch.tensor([*path] + [0] * (4 - length))[None]
            expected = float((path_score(one, whole)[0] - log_z[i]).exp())
            assert found.get(path, 0) / k == pytest.approx(expected, abs=5 * math.sqrt(max(expected, 1 / k) / k))
        best = int(scores[i].argmax())
        torch.testing.assert_close(scores[i, best], path_score(one, paths[i, best][None])[0], rtol=1e-5, atol=1e-4)


def test_draws_of_a_trip_do_not_depend_on_the_others() -> None:
    chain = made_chain(4, (5, 2, 3), c=4, p=2)
    uniform = torch.rand(5, 50, 4, generator=torch.Generator().manual_seed(1))
    paths, scores = draw_paths(chain, uniform)
    alone = Chain(chain.unary[1:2, :2], chain.pair[1:2], chain.which[1:2, :1], chain.mask[1:2, :2])
    apart, score = draw_paths(alone, uniform[:2])
    assert torch.equal(apart[0], paths[1, :, :2])
    torch.testing.assert_close(score[0], scores[1])


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
