"""Made chains over candidates, and all their paths written out."""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from tedtrajrec.nn.chain import (
    NO,
    Chain,
)

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
