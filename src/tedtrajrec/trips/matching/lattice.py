"""The chain of a trip: the most likely path through the candidates, and the probability of each candidate.

A *step* is a fix that the chain uses; :mod:`tedtrajrec.trips.matching.transitions` weighs what leads from one to the
next. The chain runs forwards over all trips of a chunk and, in :func:`smooth`, back again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.growing import resized
from tedtrajrec.trips.matching.fixes import Candidates
from tedtrajrec.trips.matching.transitions import FOLLOWED, MATCHED, NO_ROUTE, OFF_MAP, Model, Work, connect, new_work
from tedtrajrec.trips.matching.ways import Roads, Scratch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

END_OF_TRIP, BREAK_OFF_MAP, BREAK_NO_ROUTE, BREAK_TOO_FAST, BREAK_GAP = range(5)  # why a piece ends

GOES_ON = 255


class Lattice(NamedTuple):
    """The steps of all trips of a chunk, in order; candidates are numbered as in :class:`Candidates`."""

    fix: Ints  # [N] fix of each step
    before: Ints  # [N] the step before it in its chain, -1 at the start of a chain; after smoothing: of its piece
    broken: Bytes  # [N] why the chain ends with this step; 255 where it goes on
    total: Floats  # [N] the sum of shares before they are normalised
    live_offset: Ints  # [N+1] candidates of steps before that were continued
    live: Ints
    weight_offset: Ints  # [N+1] transition weights, one row for each live candidate
    weight: Floats
    best: Ints  # [C] the candidate before on the most likely path; its complement where no known route leads here
    skipped: Bytes  # [C] how many steps that path leaves out between the two
    score: Floats  # [C] log-likelihood of the most likely path to here, up to a constant of the step
    share: Floats  # [C] probability given all fixes up to here


@njit(cache=True, nogil=True)
def build_lattice(
    roads: Roads,
    scratch: Scratch,
    model: Model,
    candidates: Candidates,
    fixes: tuple[Floats, Floats, Ints],
    trip_offsets: Ints,
    used: NDArray[np.bool_],
    status: Bytes,
) -> Lattice:  # pragma: no cover  (compiled)
    """Run the chain of every trip forwards; ``fixes`` is x, y and time, ``status`` is filled in for all fixes."""
    offsets = candidates.offsets
    n_fixes = len(offsets) - 1
    n_candidates = len(candidates.segment)
    widest = 1
    for i in range(n_fixes):
        widest = max(widest, offsets[i + 1] - offsets[i])
    room = max(n_fixes, 1)
    step_fix, before = np.empty(room, np.int64), np.empty(room, np.int64)
    broken = np.empty(room, np.uint8)
    live_offset, weight_offset = np.zeros(room + 1, np.int64), np.zeros(room + 1, np.int64)
    live, weight = np.empty(4 * room, np.int64), np.empty(32 * room)
    best, skips = np.full(n_candidates, -1, np.int64), np.zeros(n_candidates, np.uint8)
    score, share = np.empty(n_candidates), np.zeros(n_candidates)
    # Scores and shares are relative to those of their step: what was taken off, in all.
    lowered, scaled, total = np.zeros(room), np.zeros(room), np.empty(room)
    work = new_work(widest, model.most_skipped)
    time = fixes[2]
    n = 0
    for trip in range(len(trip_offsets) - 1):
        i, end = trip_offsets[trip], trip_offsets[trip + 1]
        step = -1  # the last step of the chain
        skipped = 0
        first_skipped = -1
        while True:
            why = GOES_ON
            if i == end:
                if first_skipped < 0:
                    break
                why = BREAK_NO_ROUTE + status[first_skipped] - NO_ROUTE
            elif not used[i]:
                status[i] = max(status[i - 1], FOLLOWED)  # that of the fix it stays near
                i += 1
                continue
            elif offsets[i] == offsets[i + 1]:
                status[i] = OFF_MAP
                skipped += 1
            elif step >= 0 and time[i] - time[step_fix[step]] > model.longest_gap_s:
                if first_skipped < 0:
                    first_skipped = i
                why = BREAK_GAP
            else:
                n_live = 0
                first, last = offsets[i], offsets[i + 1]
                width = last - first
                low = 0.0
                if step >= 0:
                    n_from, skip_cost = 0, 0.0
                    earlier = step
                    while earlier >= 0 and n_from <= model.most_skipped:
                        work.from_fix[n_from] = step_fix[earlier]
                        work.from_shift[n_from] = lowered[earlier] - lowered[step] - skip_cost
                        n_from += 1
                        skip_cost += model.skip_cost
                        earlier = before[earlier]
                    n_live, failure, low = connect(
                        roads, scratch, model, candidates, fixes, n_from, i, score, best, skips, work
                    )
                if step < 0 or n_live > 0:
                    if weight_offset[n] + n_live * width > len(weight):
                        weight = resized(weight, len(weight), 2 * (weight_offset[n] + n_live * width))
                    if live_offset[n] + n_live > len(live):
                        live = resized(live, len(live), 2 * (live_offset[n] + n_live))
                    if step < 0:
                        score[first:last] = candidates.log_likelihood[first:last]
                    else:
                        broken[step] = GOES_ON
                    lowered[n] = low + (lowered[step] if step >= 0 else 0.0)
                    total[n], scaled[n] = _advance(
                        candidates,
                        work,
                        model.skip_cost,
                        n_live,
                        (first, last),
                        share,
                        scaled[max(n - model.most_skipped - 1, 0) : n][::-1],
                        live[live_offset[n] :],
                        weight[weight_offset[n] :],
                    )
                    status[i] = MATCHED
                    step_fix[n], before[n] = i, step
                    live_offset[n + 1] = live_offset[n] + n_live
                    weight_offset[n + 1] = weight_offset[n] + n_live * width
                    broken[n] = END_OF_TRIP
                    step = n
                    n += 1
                    skipped = 0
                    first_skipped = -1
                else:
                    status[i] = failure
                    if first_skipped < 0:
                        first_skipped = i
                    skipped += 1
            if why == GOES_ON and step >= 0 and skipped > model.most_skipped:
                why = BREAK_NO_ROUTE + status[first_skipped] - NO_ROUTE if first_skipped >= 0 else BREAK_OFF_MAP
                i += 1
            elif why == GOES_ON:
                i += 1
                continue
            # The chain breaks after its last step, and a new one starts with the first fix that did not fit.
            if step >= 0:
                broken[step] = why
            step = -1
            i = first_skipped if first_skipped >= 0 else i
            skipped = 0
            first_skipped = -1
    return Lattice(
        step_fix[:n],
        before[:n],
        broken[:n],
        total[:n],
        live_offset[: n + 1],
        live,
        weight_offset[: n + 1],
        weight,
        best,
        skips,
        score,
        share,
    )


@njit(cache=True, nogil=True)
def _advance(
    candidates: Candidates,
    work: Work,
    skip_cost: float,
    n_live: int,
    span: tuple[int, int],
    share: Floats,
    scaled: Floats,
    live: Ints,
    weight: Floats,
) -> tuple[float, float]:  # pragma: no cover  (compiled)
    """Keep the live candidates and weights of a step, and fill in its shares: the forward recursion, normalised.

    ``span`` is the candidates of the step, ``scaled`` the logarithms by which shares of the steps before are scaled,
    the last first. Return what the shares were divided by, and the logarithm by which they are scaled in all.
    """
    first, last = span
    width = last - first
    top = -np.inf
    for k in range(n_live):
        live[k] = work.order[k]
        m = work.level[k]
        if m > 0:
            work.log_weight[k, :width] += scaled[m] - scaled[0] - m * skip_cost
        for j in range(width):
            top = max(top, work.log_weight[k, j])
    nearest = candidates.log_likelihood[first]
    total = 0.0
    for j in range(width):
        c = first + j
        incoming = 0.0 if n_live else 1.0
        for k in range(n_live):
            w = np.exp(work.log_weight[k, j] - top)
            weight[k * width + j] = w
            incoming += share[live[k]] * w
        share[c] = incoming * np.exp(candidates.log_likelihood[c] - nearest)
        total += share[c]
    if total > 0.0:
        share[first:last] /= total
    else:  # all underflow: what can be said is the most likely path alone
        share[first:last] = 1.0 / width
        total = 1.0
    if n_live == 0:
        return total, np.log(total) + nearest
    return total, scaled[0] + np.log(total) + top + nearest


@njit(cache=True, nogil=True)
def smooth(candidates: Candidates, lattice: Lattice) -> tuple[Floats, Ints]:  # pragma: no cover  (compiled)
    """Return the probability of every candidate given all fixes of its chain [C], and the chosen ones of all steps [N].

    Chosen is the most likely path; -1 at the steps that it leaves out. Where it has no known route, the chain is broken
    in two pieces. The probabilities of a step sum up to that of not being left out. Candidates of fixes that are no
    step have probability 0.
    """
    offsets = candidates.offsets
    probability = np.zeros(len(candidates.segment))
    behind = np.zeros(len(candidates.segment))  # likelihood of all later fixes, scaled as the shares
    chosen = np.full(len(lattice.fix), -1)
    goal = -1  # the next step of the path, going back
    unknown = np.zeros(len(lattice.fix), np.bool_)  # no known route leads on from this step
    for n in range(len(lattice.fix) - 1, -1, -1):
        i = lattice.fix[n]
        first, last = offsets[i], offsets[i + 1]
        if lattice.broken[n] != GOES_ON:
            behind[first:last] = 1.0
            chosen[n] = first + np.argmax(lattice.score[first:last])
            goal = n
        for c in range(first, last):
            probability[c] = min(lattice.share[c] * behind[c], 1.0)
        if chosen[n] >= 0 and probability[chosen[n]] == 0.0:  # underflow
            probability[chosen[n]] = 1.0
        if lattice.before[n] < 0:
            continue
        if n == goal:
            c = chosen[n]
            source = lattice.best[c]
            goal = n - 1 - lattice.skipped[c]
            chosen[goal] = source if source >= 0 else ~source
            lattice.before[n] = goal
            if source < 0:
                lattice.before[n] = -1
                unknown[goal] = True
        width = last - first
        nearest = candidates.log_likelihood[first]
        for k in range(lattice.live_offset[n + 1] - lattice.live_offset[n]):
            row = lattice.weight_offset[n] + k * width
            later = 0.0
            for j in range(width):
                likelihood = np.exp(candidates.log_likelihood[first + j] - nearest)
                later += lattice.weight[row + j] * likelihood * behind[first + j]
            behind[lattice.live[lattice.live_offset[n] + k]] += later / lattice.total[n]
    lattice.broken[unknown] = BREAK_NO_ROUTE
    return probability, chosen
