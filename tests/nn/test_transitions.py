"""Scores of transitions: the kernel of processors against tensor operations in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tedtrajrec.nn.transitions import Moves, TransitionScorer


def made_moves(count: Tensor, c: int = 10) -> Moves:
    """Return ways between lists that hold so many of 10 candidates [B, J], some of them the same segments."""
    random = torch.Generator().manual_seed(4)
    (b, lists), p = count.shape, 6
    ends = torch.randint(lists, (2, b, p), generator=random)
    way = torch.randint(-1500, 3000, (b, p, c, c), generator=random).clamp(min=-1).to(torch.int16)
    segment = torch.randint(12, (b, lists, c), generator=random)
    rest, enter = torch.rand(2, b, lists, c, generator=random)
    return Moves(*ends, segment, rest, enter, way, unit=1500.0, size=count)


def made_scorer() -> TransitionScorer:
    """Return a scorer none of whose weights are 0."""
    torch.manual_seed(2)
    scorer = TransitionScorer(3)
    for weight in scorer.parameters():
        torch.nn.init.normal_(weight)
    return scorer


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
