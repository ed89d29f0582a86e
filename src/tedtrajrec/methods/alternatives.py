"""Other routes that a trip may have taken, with their probabilities.

The best paths of a chain hardly differ: a vehicle is at one corner a step earlier or later. So paths are drawn from the
chain, as likely as they are, and told apart by the route they drive: their segments in order, with the shortest ways
between them filled in, since a short segment may or may not hold a step. The share of the draws that drive a route is
its probability, whatever the timing; it is that of the chain to about a percent, with some hundred draws.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Choices, Recovered, as_recovered
from tedtrajrec.methods.chain_options import Scored
from tedtrajrec.methods.driving import Driver
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.nn.chain import draw_paths

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]

DRAWS = 256  # paths drawn from the chain of a trip
BASE = np.uint64(0x9E3779B97F4A7C15)  # of the keys of routes; odd


class Alternatives(NamedTuple):
    """Up to k trips for each of a batch, on different routes, the likeliest first."""

    segment: Tensor  # [B, k, n] int64; -1 where there are fewer
    ratio: Tensor  # [B, k, n] float32
    probability: Tensor  # [B, k] of the route; 0 where there are fewer
    own: Tensor  # [B] likewise of the route of the trip that was recovered; 0 where none was given


@runtime_checkable
class WithAlternatives(Protocol):
    """A method that knows other routes."""

    def alternatives(self, batch: Batch, k: int, *, own: Tensor | None = None) -> Alternatives:
        """Return the k most likely routes of each trip, and how likely that of given segments is [B, n]."""

    def recover_with_alternatives(self, batch: Batch, k: int) -> tuple[Recovered, Alternatives]:
        """Return the positions at every step and the k most likely routes, for which trips are scored only once."""


def draw_routes(
    driver: Driver, batch: Batch, scored: Scored, k: int, draws: int, own: Tensor | None = None
) -> Alternatives:
    """Return the k most likely routes of each trip with their probabilities, each driven as it is most likely.

    Parameters
    ----------
    driver
        Of the network.
    batch, scored
        The trips and their candidates.
    k
        How many routes; fewer where the draws show no more.
    draws
        Paths drawn from the chain of each trip, always with the same random numbers.
    own
        Segments of trips whose routes are to be found among the draws [B, n].
    """
    n, c = scored.segment.shape[1:]
    uniform = torch.rand(n, draws, c, generator=torch.Generator().manual_seed(0))
    paths, score = draw_paths(scored.chain, uniform)
    segment = scored.segment.gather(-1, paths.mT)  # [B, n, draws]
    mask = batch.step_mask.cpu().numpy()
    keys = route_keys(driver.router, segment.mT.cpu().numpy(), mask, TOP_SPEED_MPS * batch.step_s)
    best, share = likeliest_routes(keys, score.double().cpu().numpy(), k)
    own_share = np.zeros(len(keys))
    if own is not None:
        given = own.cpu()[:, None].clamp_min(0).numpy()
        own_share = (keys == route_keys(driver.router, given, mask, TOP_SPEED_MPS * batch.step_s)).mean(axis=1)
    chosen = torch.from_numpy(best)[:, None].expand(-1, n, -1).to(segment.device)
    place = paths.mT.gather(-1, chosen.clamp_min(0))
    found = segment.gather(-1, chosen.clamp_min(0)).masked_fill(chosen < 0, -1)
    trips = Choices(found, scored.ratio.gather(-1, place).float(), torch.zeros_like(found, dtype=torch.float32))
    parts = []
    for j in range(k):
        # Other roads than those of the route would make it another one.
        driven = driver.drive(batch, Choices(*(part[..., j : j + 1] for part in trips)), bridged=False)
        parts.append(as_recovered(batch, driven.segment.astype(np.int32), driven.ratio))
    return Alternatives(
        torch.stack([part.segment for part in parts], dim=1),
        torch.stack([part.ratio for part in parts], dim=1),
        torch.from_numpy(share).float(),
        torch.from_numpy(own_share).float(),
    )


def route_keys(router: Router, segment: Ints, mask: Bools, reach_m: float) -> Keys:
    """Return a number for each path that tells its route from others [B, k].

    Parameters
    ----------
    router
        Over the metres of the network.
    segment
        Of each step [B, k, n].
    mask
        Real steps [B, n].
    reach_m
        A longer way between two steps is none: the path leaps.
    """
    # The key of a route is the sum of mixed(i-th segment) BASE^i modulo 2^64. That of two parts, one after the other,
    # is key + BASE^length key', so that only the key and length of each move are needed.
    before, after = segment[..., :-1], segment[..., 1:]
    moves = (before != after) & mask[:, None, 1:]
    move, which = np.unique(np.stack([before[moves], after[moves]], axis=-1), axis=0, return_inverse=True)
    ways = router.routes(move[:, 0], 1.0, move[:, 1], 0.0, limit_m=reach_m)
    length = np.maximum(np.diff(ways.offsets) - 1, 0)  # without the segment that the move comes from
    row = np.repeat(np.arange(len(move)), length)
    place = ranges(np.zeros(len(move), np.int64), length)
    power = np.concatenate([[np.uint64(1)], np.cumprod(np.full(max(length.max(initial=0), 1), BASE))])
    key = np.zeros(len(move), np.uint64)
    np.add.at(key, row, _mixed(ways.segment[ways.offsets[row] + 1 + place]) * power[place])
    leaps = length == 0
    key[leaps], length[leaps] = _mixed(move[leaps, 1]), 1

    of_move = np.full(before.shape, -1)
    of_move[moves] = which.ravel()
    out, scale = _mixed(segment[..., 0]), np.full(segment.shape[:2], BASE)
    for step in np.moveaxis(of_move, -1, 0):
        some = step >= 0
        out[some] += scale[some] * key[step[some]]
        scale[some] *= power[length[step[some]]]
    return out


def likeliest_routes(keys: Keys, score: Floats, k: int) -> tuple[Ints, Floats]:
    """Return the draw of the highest score of each of the k most frequent routes [B, k], and their shares [B, k].

    Of equally frequent routes the one with the higher score comes first. Where there are fewer, the draw is -1.

    Parameters
    ----------
    keys, score
        Routes and scores of the draws [B, draws].
    k
        How many routes.
    """
    b, draws = keys.shape
    best, share = np.full((b, k), -1), np.zeros((b, k))
    order = np.lexsort([-score, keys])
    ranked = np.take_along_axis(keys, order, axis=1)
    first = np.ones((b, draws), np.bool_)
    first[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    trip, begin = np.nonzero(first)
    draw = order[trip, begin]
    count = np.diff(np.flatnonzero(first), append=b * draws)
    rank = np.lexsort([-score[trip, draw], -count, trip])
    place = np.arange(len(trip)) - np.searchsorted(trip, trip)  # trips are in order before and after
    kept = place < k
    best[trip[kept], place[kept]] = draw[rank][kept]
    share[trip[kept], place[kept]] = count[rank][kept] / draws
    return best, share


def _mixed(segment: NDArray[np.integer]) -> Keys:
    """Return numbers that look random."""
    out = (segment.astype(np.uint64) + np.uint64(1)) * np.uint64(0xBF58476D1CE4E5B9)
    out ^= out >> np.uint64(31)
    mixed: Keys = out * np.uint64(0x94D049BB133111EB)
    return mixed
