"""What a method answers at the steps of all pieces: batches in, positions with their times out."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.alternatives import Alternatives, WithAlternatives, route_keys
from tedtrajrec.methods.base import Method, Recovered, as_recovered
from tedtrajrec.methods.feasible import Feasible
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.grid import Pieces, batch_of, canonical_batches
from tedtrajrec.recovery.rows import Knots
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


class Answers(NamedTuple):
    """Positions at the N steps of P pieces, and up to k other routes of each."""

    offsets: Ints  # [P+1] piece i has the steps offsets[i]:offsets[i + 1]
    time: Floats  # [N] epoch seconds
    segment: Segments  # [1+k, N] row 0 is the trip itself; -1 where there is no answer or no other route
    ratio: Floats  # [1+k, N]
    probability: Floats  # [N] of the trip itself; NaN where the method gives none
    share: Floats  # [1+k, P] of the draws that drive the route; NaN without alternatives


def answer(
    method: Method[Any],
    router: Router,
    trips: Trips,
    pieces: Pieces,
    *,
    step_s: int,
    time_zone: str,
    alternatives: int = 0,
) -> Answers:
    """Return what a method answers.

    Parameters
    ----------
    method
        Ready for use.
    router
        Over the metres of its network.
    trips, pieces
        The fixes, see :func:`~tedtrajrec.recovery.grid.lay_out`.
    step_s, time_zone
        Those of the method.
    alternatives
        How many other routes of each piece.
    """
    offsets = np.concatenate([[0], np.cumsum(pieces.steps)]).astype(np.int64)
    exact = _inner(method).answers_fixes
    n, p = int(offsets[-1]), len(pieces)
    segment, ratio = np.full((1 + alternatives, n), -1, np.int32), np.zeros((1 + alternatives, n))
    probability = np.full(n, np.nan)
    share = np.full((1 + alternatives, p), 0.0 if alternatives else np.nan)
    for which in canonical_batches(trips, pieces):
        batch = batch_of(trips, pieces, which, method.network, step_s=step_s, time_zone=time_zone, exact=exact)
        rows = ranges(offsets[which], pieces.steps[which])
        mask = batch.step_mask.numpy()
        found, others = _recovered(method, router, batch, alternatives)
        segment[0, rows] = found.segment.cpu().numpy()[mask]
        ratio[0, rows] = found.ratio.cpu().numpy()[mask]
        probability[rows] = np.exp(found.log_prob.cpu().numpy()[mask].astype(np.float64))
        if others is not None:
            segment[1:, rows] = np.moveaxis(others.segment.numpy(), 1, 0)[:, mask]
            ratio[1:, rows] = np.moveaxis(others.ratio.numpy(), 1, 0)[:, mask]
            share[:, which] = others.probability.numpy().T
    return Answers(offsets, _times(trips, pieces, step_s, exact=exact), segment, ratio, probability, share)


def knots_of(answers: Answers, pieces: Pieces, rank: int, some: Ints) -> Knots:
    """Return the positions of some stretches, one after another.

    Parameters
    ----------
    rank
        0: the trip itself; else another route, where there is one.
    some
        Numbers of the stretches, ascending.
    """
    piece = np.repeat(np.arange(len(pieces)), np.diff(answers.offsets))
    segment, ratio = answers.segment[rank].copy(), answers.ratio[rank].copy()
    without = answers.segment[rank] < 0
    if rank:
        segment[without], ratio[without] = answers.segment[0][without], answers.ratio[0][without]
    probability = np.where(without, answers.probability, np.nan) if rank else answers.probability
    stretch = pieces.stretch[piece]
    # Two pieces of a stretch meet at a fix, which is one knot.
    fresh = np.ones(len(piece), bool)
    first = answers.offsets[:-1][1:]
    fresh[first] = (stretch[first] != stretch[first - 1]) | (answers.time[first] > answers.time[first - 1])
    kept = np.flatnonzero(fresh & (segment >= 0) & np.isin(stretch, some))
    offsets = np.searchsorted(stretch[kept], np.append(some, stretch.max(initial=0) + 1)).astype(np.int64)
    return Knots(offsets, answers.time[kept], segment[kept], ratio[kept], probability[kept])


def _inner(method: Method[Any]) -> Method[Any]:
    return method.method if isinstance(method, Feasible) else method


def _recovered(method: Method[Any], router: Router, batch: Batch, k: int) -> tuple[Recovered, Alternatives | None]:
    """Return what a method answers, and k other routes where some are asked for; see :func:`_others`."""
    if not k:
        return _answered(method, batch), None
    inner = _inner(method)
    if not isinstance(inner, WithAlternatives):
        raise ConfigError(
            f"{inner.name} gives one trip, and no alternatives; ask a model of tedtrajrec_parallel for them."
        )
    if inner is method:
        found, drawn = inner.recover_with_alternatives(batch, k + 1)
    else:
        found = _answered(method, batch)
        drawn = inner.alternatives(batch, k + 1, own=found.segment)
    return found, _others(router, batch, found, drawn, k)


def _answered(method: Method[Any], batch: Batch) -> Recovered:
    """Return what a method answers; where that is for the time of the step, fixes of other times do not bind it."""
    if not isinstance(method, Feasible) or method.method.answers_fixes:
        return method.recover(batch)
    on_step = batch.fix_time == batch.fix_step * batch.step_s
    near = dataclasses.replace(batch, fix_mask=batch.fix_mask & on_step)
    driven = method.drive(near, method.method.best(batch, method.choices))
    return as_recovered(batch, driven.segment.astype(np.int32), driven.ratio, driven.log_prob)


def _others(router: Router, batch: Batch, found: Recovered, drawn: Alternatives, k: int) -> Alternatives:
    """Return the share of the trip's own route and, behind it, k other routes; positions are only those of the k."""
    own = found.segment.cpu()[:, None]
    segment = torch.where(drawn.segment.cpu() < 0, own, drawn.segment.cpu())
    mask = batch.step_mask.numpy()
    placed = torch.cat([own, segment], dim=1).clamp_min(0).numpy()
    keys = route_keys(router, placed, mask, TOP_SPEED_MPS * batch.step_s)
    chance = drawn.probability.cpu().numpy()
    same = keys[:, 1:] == keys[:, :1]
    order = np.argsort(same | (chance == 0), axis=1, kind="stable")[:, :k]  # other routes first, likely ones first
    other = np.take_along_axis(~same & (chance > 0), order, axis=1)
    at = torch.from_numpy(order)[..., None].expand(-1, -1, mask.shape[1])
    return Alternatives(
        segment.gather(1, at).masked_fill(~torch.from_numpy(other)[..., None], -1),
        drawn.ratio.cpu().gather(1, at),
        torch.from_numpy(np.column_stack([drawn.own, np.where(other, np.take_along_axis(chance, order, axis=1), 0.0)])),
        drawn.own,
    )


def _times(trips: Trips, pieces: Pieces, step_s: int, *, exact: bool) -> Floats:
    """Return when the vehicle was at the answers of all steps.

    Parameters
    ----------
    exact
        Whether answers at observed steps are for the time of the fix. If not, all are for that of the step; only the
        last fix was given the time of its step, so time in the gap before it is stretched or shrunk to fit.
    """
    steps = pieces.steps
    offsets = np.concatenate([[0], np.cumsum(steps)]).astype(np.int64)
    since = ranges(np.zeros(len(pieces), np.int64), steps) * step_s
    fix_time = trips.time[pieces.fix].astype(np.float64)
    start = fix_time[pieces.offsets[:-1]]
    time = np.repeat(start, steps) + since
    if exact:
        time[np.repeat(offsets[:-1], pieces.lengths) + pieces.step] = fix_time
        return time
    last = pieces.offsets[1:] - 1
    seen, end, given = fix_time[last - 1], fix_time[last], start + pieces.step[last] * step_s
    piece = np.repeat(np.arange(len(pieces)), steps)
    late = (time > seen[piece]) & (end != given)[piece]
    scale = ((end - seen) / (given - seen))[piece]
    time[late] = (seen[piece] + (time - seen[piece]) * scale)[late]
    time[offsets[1:] - 1] = end
    return time
