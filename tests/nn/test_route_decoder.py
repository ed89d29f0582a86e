"""The decoder along routes against its equations written out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tedtrajrec.nn.route_decoder import Gaps, RouteDecoder, Truth


def made(seed: int) -> tuple[RouteDecoder, Gaps, Truth]:
    torch.manual_seed(seed)
    decoder = RouteDecoder(8, 6).double()
    count = torch.tensor([5, 1, 3])
    gaps = Gaps(
        states=2 * torch.randn(3, 5, 8).double(),
        told=torch.randn(3, 5, 6).double(),
        exists=torch.arange(5) < count[:, None],
        start=torch.randn(3, 8).double(),
        start_ratio=torch.rand(3).double(),
        end_ratio=torch.rand(3).double(),
    )
    place = (torch.rand(3, 4) * count[:, None]).long()
    return decoder, gaps, Truth(place, torch.rand(3, 4).double(), torch.rand(3, 4) < 0.5)


def literal(
    decoder: RouteDecoder, gaps: Gaps, g: int, steps: int, truth: Truth | None, forwards: bool
) -> list[tuple[Tensor, Tensor]]:
    """Return log P over the real route and the ratio of each step of one gap."""
    count = int(gaps.exists[g].sum())
    place, ratio, h, out = 0, gaps.start_ratio[g], gaps.start[g], []
    for t in range(steps):
        fed = torch.cat([gaps.told[g, place], ratio[None], gaps.told[g, count - 1], gaps.end_ratio[g, None]])
        h = decoder.cell(fed, h)
        allowed = range(place if forwards else 0, count)
        logits = torch.full((count,), -torch.inf).double()
        for j in allowed:
            logits[j] = decoder.attention(torch.tanh(decoder.of_state(h) + decoder.of_route(gaps.states[g, j])))[0]
        share = torch.log_softmax(logits, dim=0)
        read = sum((share[j].exp() * gaps.states[g, j] for j in allowed), torch.zeros(8).double())
        r = torch.sigmoid(decoder.to_ratio(torch.cat([h, read])))[0]
        out.append((share, r))
        place, ratio = int(share.argmax()), r.detach()
        if truth is not None and truth.use[g, t]:
            place, ratio = int(truth.place[g, t]), truth.ratio[g, t]
    return out


@pytest.mark.parametrize(("forced", "forwards"), [(False, False), (False, True), (True, False)])
def test_steps_and_gradients_are_those_of_the_equations(forced: bool, forwards: bool) -> None:
    decoder, gaps, truth = made(3)
    found = decoder(gaps, 4, truth if forced else None, forwards=forwards)
    total, expected = torch.zeros(()).double(), torch.zeros(()).double()
    for g in range(3):
        for t, (share, ratio) in enumerate(literal(decoder, gaps, g, 4, truth if forced else None, forwards)):
            real = share.isfinite()
            torch.testing.assert_close(found.log_share[g, t, : len(share)][real], share[real])
            assert (found.log_share[g, t, : len(share)][~real] < -1000).all()
            assert (found.log_share[g, t, len(share) :] < -1000).all()
            torch.testing.assert_close(found.ratio[g, t], ratio)
            total = total + found.log_share[g, t, int(real.int().argmax())] + found.ratio[g, t]
            expected = expected + share[int(real.int().argmax())] + ratio
    weights = list(decoder.parameters())
    for a, b in zip(torch.autograd.grad(total, weights), torch.autograd.grad(expected, weights), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_forwards_never_goes_back() -> None:
    decoder, gaps, _ = made(8)
    place = decoder(gaps, 9, forwards=True).log_share.argmax(-1)
    assert (place.diff(dim=1) >= 0).all()
    assert (decoder(gaps, 9).log_share.argmax(-1).diff(dim=1) < 0).any()
