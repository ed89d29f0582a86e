"""Made-up ways between candidates, and what scores them."""

from __future__ import annotations

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
