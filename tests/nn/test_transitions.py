"""Scores of transitions: the kernel of processors against tensor operations in float64."""

from __future__ import annotations

import pytest
import torch

from tedtrajrec.nn.transitions import TransitionScorer
from tests.nn.moves import made_moves, made_scorer


@pytest.mark.parametrize("trips", [1, 3, 20])  # a part of one thread, less, and more
def test_the_kernel_scores_as_tensor_operations_do(trips: int) -> None:
    count = torch.randint(11, (trips, 5), generator=torch.Generator().manual_seed(trips))
    count[0, 0], count[-1, -1] = 0, 10
    moves, scorer = made_moves(count), made_scorer()
    exact = TransitionScorer(3).double()
    exact.load_state_dict(scorer.state_dict())
    doubled = moves._replace(rest=moves.rest.double(), enter=moves.enter.double())
    place = torch.arange(10)
    leaves = place < count.gather(1, moves.source)[..., None]
    reaches = place < count.gather(1, moves.target)[..., None]
    exists = leaves[..., :, None] & reaches[..., None, :]
    weight = torch.randn(exists.shape, generator=torch.Generator().manual_seed(1)) * exists
    found, expected = scorer.between(moves), exact.between(doubled)
    torch.testing.assert_close(found[exists].double(), expected[exists], rtol=1e-5, atol=1e-5)
    assert (found[~exists] == scorer.break_score).all()
    (found * weight).sum().backward()
    (expected * weight).sum().backward()
    for mine, theirs in zip(scorer.parameters(), exact.parameters(), strict=True):
        assert mine.grad is not None
        assert theirs.grad is not None
        torch.testing.assert_close(mine.grad.double(), theirs.grad, rtol=1e-4, atol=1e-4)
