"""Best and drawn paths of a chain, as found by writing out all paths."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.nn.best_paths import TRIPS_PER_PART, by_kernel, by_tensors
from tedtrajrec.nn.chain import (
    NO,
    Chain,
    draw_paths,
    k_best,
    log_partition,
    path_score,
    viterbi,
)
from tests.nn.chains import all_paths, chains, made_chain


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
