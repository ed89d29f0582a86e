"""What a chain says of each step, made ready for the search for a trip that can be driven.

A trip is good for three reasons: it is likely as a whole, each of its steps is likely by itself, and where it is wrong
it is not far off. So the score of a choice s of step i is

    (1 - a) unary_i(s) + a log p_i(s) - error_i(s) / error_m,       that of a move  (1 - a) pair(s, s')

with the root mean square error_i(s)^2 = sum over s' of p_i(s') |x_i(s) - x_i(s')|^2, the places x on straight segments.
Without the last term, steps stay on long segments, which hold more probability each than the short ones behind them.

The p_i are those of the chain; or, with a share of it, those of votes (:func:`votes_for`), which know of routes that a
network has not learned from few trips, and of roads that the map lacks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.methods.base import Choices
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.chain import Chain, marginals

CHOICES = 12  # candidates of a step that take part in the search
BY_STEPS = 0.5  # a above: how much it goes by the probabilities of steps, and not by that of the trip as a whole
LEAST = 1e-9  # probability


class Scored(NamedTuple):
    """The candidates of all steps of a batch, as the network sees them."""

    chain: Chain
    ratio: Tensor  # [B, n, C] where on the candidate it would be
    segment: Tensor  # [B, n, C]
    exists: Tensor  # [B, n, C] lists are padded
    votes: Tensor  # [B, n, C] of past drives, or of the map's own


class Options(NamedTuple):
    """The K most probable candidates of each step; see :meth:`Driver.drive`, and :func:`weighed` for its scores."""

    segment: Tensor  # [B, n, K]
    ratio: Tensor  # [B, n, K]
    log_prob: Tensor  # [B, n, K]
    score: Tensor  # [B, n, K] without the error
    move: Tensor  # [B, n, K, K]
    error: Tensor  # [B, n, K] metres


def options_of(scored: Scored, ends: Tensor, votes: Tensor | None = None, voted: float = 0.0) -> Options:
    """Return the most probable candidates of each step, and what the search for a trip is to make greatest.

    Parameters
    ----------
    scored
        Of a batch.
    ends
        Of all segments (:func:`ends_of`).
    votes
        What others say of the candidates [B, n, C] (:func:`votes_for`).
    voted
        The share that this has in what counts as their probability.
    """
    chain, ratio = scored.chain, scored.ratio
    segment = scored.segment.masked_fill(~scored.exists, -1)
    share = marginals(chain)
    if votes is not None:
        share = torch.lerp(share, votes.to(share.dtype), voted)
        share = share / share.sum(-1, keepdim=True).clamp_min(LEAST)  # some votes are for none of the candidates
    c = share.shape[-1]
    log_prob, place = share.topk(min(CHOICES, c), dim=-1)
    log_prob = log_prob.clamp(LEAST, 1).log()
    cell = (chain.which[..., None, None] * c + place[:, :-1, :, None]) * c + place[:, 1:, None, :]
    move = chain.pair.flatten(1).gather(1, cell.flatten(1)).view(cell.shape)
    start, end = ends[segment.clamp_min(0)].unbind(-2)
    error = expected_error(torch.lerp(start, end, ratio.float()[..., None]), share.float())
    score = (1 - BY_STEPS) * chain.unary.gather(-1, place) + BY_STEPS * log_prob
    return Options(
        segment.gather(-1, place),
        ratio.gather(-1, place).float(),
        log_prob,
        score,
        functional.pad((1 - BY_STEPS) * move, (0, 0, 0, 0, 1, 0)),
        error.gather(-1, place),
    )


def votes_for(segment: Tensor, exists: Tensor, votes: Choices) -> Tensor:
    """Return the share of the votes of each step that each of its candidates has [B, n, C].

    Parameters
    ----------
    segment, exists
        The candidates, and whether there are so many [B, n, C].
    votes
        The segments with most votes at each step and the logarithms of their shares; without any of these, the first
        segment is all that is known.
    """
    segment = segment.masked_fill(~exists, -1)
    voted = votes.segment.to(segment)
    chance = votes.log_prob.to(segment.device, torch.float32).exp().nan_to_num(0.0)
    chance = chance.masked_fill(voted < 0, 0.0)
    chance[..., 0] = torch.where((chance.sum(-1) == 0) & (voted[..., 0] >= 0), 1.0, chance[..., 0])
    rising, order = segment.sort(dim=-1)
    place = torch.searchsorted(rising, voted).clamp(max=segment.shape[-1] - 1)
    chance = torch.where(rising.gather(-1, place) == voted, chance, 0.0)
    out = torch.zeros(segment.shape, device=segment.device)
    return out.scatter_add_(-1, order.gather(-1, place), chance)


def probability_of(scored: Scored, segment: Tensor) -> Tensor:
    """Return the probability that the chain alone gives to a segment of each step [B, n].

    Parameters
    ----------
    scored
        Of a batch.
    segment
        One of each step [B, n]; one that is not among its candidates is as good as impossible.
    """
    named = (scored.segment == segment.to(scored.segment)[..., None]) & scored.exists
    return (marginals(scored.chain) * named).sum(-1).float().clamp(LEAST, 1).cpu()


def weighed(options: Options, error_m: float) -> Tensor:
    """Return the scores of the choices [B, n, K].

    Apart from :func:`options_of`, so that several ``error_m`` can be tried on one pass through the network.

    Parameters
    ----------
    options
        Of a batch.
    error_m
        An expected error of so many metres takes 1 off.
    """
    return options.score - options.error / error_m


def expected_error(place: Tensor, share: Tensor) -> Tensor:
    """Return the root mean square distance of each place [..., C, 2] from all, with these probabilities [..., C]."""
    off = place - (place * share[..., None]).sum(-2, keepdim=True)
    square = off.square().sum(-1)
    return (square + (square * share).sum(-1, keepdim=True)).sqrt()


def ends_of(network: RoadNetwork) -> Tensor:
    """Return where segments start and end, in metres [S, 2, 2]."""
    xy = np.stack(network.plane.to_xy(network.node_lon, network.node_lat), axis=1).astype(np.float32)
    return torch.from_numpy(np.stack([xy[network.seg_from], xy[network.seg_to]], axis=1))
