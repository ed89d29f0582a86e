"""Steps of trips: the list of candidates that each has, the fixes around it, and plain facts."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

LARGEST = 5.0  # facts are cut here: behind the last fix they mean nothing, but must stay small


class Fact(IntEnum):
    """Columns of the facts of a step; the gap is that between the fixes around it, and nothing at observed steps."""

    SHARE = 0  # of the gap's time that has passed
    LEFT = 1  # 1 - SHARE
    GAP = 2  # log(1 + minutes)
    STRAIGHT = 3  # kilometres between the two fixes
    SPEED = 4  # straight, 10 m/s
    SPEED_BEFORE = 5  # of the gap before
    SPEED_AFTER = 6  # of the gap after, or of the last one
    OBSERVED = 7
    SINCE = 8  # log(1 + minutes) since the previous fix
    UNTIL = 9  # to the following one
    SINE = 10  # of the time of day
    COSINE = 11


class Steps(NamedTuple):
    """n steps of each of B trips."""

    slot: Ints  # [B, n] list of each step
    previous: Ints  # [B, n] fix at or before it
    following: Ints  # [B, n] fix at or after it
    since: Reals  # [B, n] seconds since the previous fix
    gap: Reals  # [B, n] seconds between the two; 0 at observed steps
    facts: Reals  # [B, n, len(Fact)]


def steps_of(batch: Batch) -> Steps:
    """Return the steps of a batch."""
    b, n = batch.step_mask.shape
    slot, previous, following = (np.zeros((b, n), np.int64) for _ in range(3))
    since, gap = (np.zeros((b, n), np.float32) for _ in range(2))
    out = Steps(slot, previous, following, since, gap, np.zeros((b, n, len(Fact)), np.float32))
    fixes = _Fixes(batch.fix_mask.cpu().numpy(), batch.fix_time.cpu().numpy(), batch.fix_xy.cpu().numpy())
    mask, observed, minute = (part.cpu().numpy() for part in (batch.step_mask, batch.observed, batch.step_minute))
    _fill(fixes, mask, observed, minute, float(batch.step_s), out)
    return out


class _Fixes(NamedTuple):
    mask: Bools  # [B, m]
    time: Reals  # [B, m]
    xy: Reals  # [B, m, 2]


@njit(cache=True, nogil=True)
def _fill(
    fixes: _Fixes, mask: Bools, observed: Bools, minute: Reals, step_s: float, out: Steps
) -> None:  # pragma: no cover  (compiled)
    metres, speed = np.zeros(fixes.mask.shape[1]), np.zeros(fixes.mask.shape[1])  # straight, from the fix before
    for b in range(len(mask)):
        n, time, xy = fixes.mask[b].sum(), fixes.time[b], fixes.xy[b]
        for i in range(1, n):
            metres[i] = np.hypot(xy[i, 0] - xy[i - 1, 0], xy[i, 1] - xy[i - 1, 1])
            speed[i] = metres[i] / max(time[i] - time[i - 1], 1.0)
        seen = 0
        for i in range(mask.shape[1] if n > 0 else 0):
            seen += observed[b, i]
            p = min(max(seen - 1, 0), n - 1)
            f = p if observed[b, i] else min(p + 1, n - 1)
            inside = f > p
            clock = i * step_s
            gap, since = float(time[f] - time[p]), clock - time[p]
            out.slot[b, i], out.previous[b, i], out.following[b, i] = 2 * p + inside, p, f
            out.gap[b, i] = gap
            if not mask[b, i]:
                continue
            out.since[b, i] = since
            share = since / gap if gap > 0.0 else 0.0
            fact = out.facts[b, i]
            fact[Fact.SHARE], fact[Fact.LEFT] = share, 1.0 - share
            fact[Fact.GAP] = np.log1p(gap / 60)
            fact[Fact.STRAIGHT] = metres[f] / 1000 if inside else 0.0
            fact[Fact.SPEED] = metres[f] / gap / 10 if gap > 0.0 else 0.0
            fact[Fact.SPEED_BEFORE] = speed[p] / 10
            fact[Fact.SPEED_AFTER] = speed[min(f + 1, n - 1)] / 10
            fact[Fact.OBSERVED] = observed[b, i]
            fact[Fact.SINCE] = np.log1p(max(since, 0.0) / 60)
            fact[Fact.UNTIL] = np.log1p(max(time[f] - clock, 0.0) / 60)
            angle = minute[b, i] * (2 * np.pi / 1440)
            fact[Fact.SINE], fact[Fact.COSINE] = np.sin(angle), np.cos(angle)
            for k in range(len(fact)):
                fact[k] = min(max(fact[k], -LARGEST), LARGEST)
