"""Candidates that exist: work on these alone gives what work on all places gives."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.nn.existing import Existing
from tedtrajrec.nn.parallel_decoder import CandidateScorer
from tedtrajrec.nn.sequences import rows

D, C = 8, 4


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.integers(0, 1000))
def test_scores_and_gradients_are_those_of_all_places(b: int, lists: int, n: int, seed: int) -> None:
    torch.manual_seed(seed)
    scorer = CandidateScorer(D, 6, 3, 2).double()
    states, roads = torch.randn(b, n, D).double(), torch.randn(b, lists, C, D).double()
    static, moving = torch.randn(b, lists, C, 3).double(), torch.randn(b, n, C, 2).double()
    guess, slot = torch.rand(b, n, C).double(), torch.randint(lists, (b, n))
    exists, mask = torch.rand(b, lists, C) < 0.5, torch.rand(b, n) < 0.8
    there = Existing.of(exists, slot, mask)
    leaves = [states, roads, *scorer.parameters()]
    for leaf in leaves:
        leaf.requires_grad_()

    wanted = rows(exists, slot) & mask[..., None]
    every = scorer(states, roads, slot, static, moving, guess)
    some = scorer.of_existing(
        states, there.entries(roads), there, there.entries(static), there.pairs(moving), there.pairs(guess)
    )
    parts = [(part[wanted], found) for part, found in zip(every, some, strict=True)]
    for expected, found in parts:
        torch.testing.assert_close(found, expected)
    gradients = [
        torch.autograd.grad(sum(side.sin().sum() for side in sides), leaves, materialize_grads=True)
        for sides in zip(*parts, strict=True)
    ]
    for expected, found in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected)

    spread = there.spread(some[0], guess.shape, -7)
    torch.testing.assert_close(spread, every[0].where(wanted, -7.0))
    assert (spread[~wanted] == -7).all()


def test_a_batch_in_which_nothing_exists() -> None:
    there = Existing.of(
        torch.zeros(2, 3, C, dtype=torch.bool), torch.zeros(2, 5, dtype=torch.int64), torch.ones(2, 5) > 0
    )
    assert len(there.entry) == len(there.pair) == 0
    assert (there.spread(torch.zeros(0), torch.Size((2, 5, C)), 3.0) == 3).all()
