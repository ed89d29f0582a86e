"""The chain of a trip: transitions between candidates, the most likely path and the probability of each candidate.

A *step* is a fix that the chain uses. From the candidates of one step to those of the next the log-weight is

    - |route - straight| / scale  -  fast_weight x max(0, seconds / elapsed - fast)²
    scale = detour_m + min(detour_mps x elapsed, detour_share x straight)

where seconds is the free-flow time of the route. Only candidates within ``reach`` nats of the best one are continued,
best first, and a route is sought no further than it could still come within ``reach`` of what is already reached.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.matching.config import MatchConfig
from tedtrajrec.trips.matching.fixes import Candidates
from tedtrajrec.trips.matching.ways import Roads, Scratch, find_ways

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Bytes = NDArray[np.uint8]

MATCHED, FOLLOWED, OFF_MAP, NO_ROUTE, TOO_FAST = range(5)  # status of a fix; the last three are unmatched
END_OF_TRIP, BREAK_OFF_MAP, BREAK_NO_ROUTE, BREAK_TOO_FAST, BREAK_GAP = range(5)  # why a piece ends

GOES_ON = 255

STAND, FREE, NEVER = range(3)

SLOW = 1.1  # routes are sought up to this many times the cost of an average metre
RIVAL = 3.0  # nats; a way to a candidate that is less likely than another by more is neglected
FIRST_LOOK = 3.0  # nats
REACH_NOISE = 10.0  # noise_m that are added to the reach in metres, which is short where fixes are close
EXACT = 100.0  # a reach beyond this asks for all transitions


class Model(NamedTuple):
    """The settings of the chain as compiled code takes them."""

    detour_m: float
    detour_share: float
    detour_mps: float
    longest_detour_m: float
    backwards: int
    stand: float
    fast: float
    fast_weight: float
    too_fast: float
    top_speed_mps: float
    most_skipped: int
    longest_gap_s: float
    reach: float


class Lattice(NamedTuple):
    """The steps of all trips of a chunk, in order; candidates are numbered as in :class:`Candidates`."""

    fix: Ints  # [N] fix of each step
    before: Ints  # [N] the step before it in its chain, -1 at the start of a chain
    broken: Bytes  # [N] why the chain ends with this step; 255 where it goes on
    live_offset: Ints  # [N+1] candidates of the step before that were continued
    live: Ints
    weight_offset: Ints  # [N+1] transition weights, one row for each live candidate
    weight: Floats
    best: Ints  # [C] the candidate before on the most likely path
    score: Floats  # [C] log-likelihood of the most likely path to here, up to a constant of the step
    share: Floats  # [C] probability given all fixes up to here


def new_model(config: MatchConfig) -> Model:
    """Return the settings for compiled code."""
    values = {name: getattr(config, name) for name in Model._fields if name != "backwards"}
    return Model(backwards=("stand", "free", "never").index(config.backwards), **values)


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
    best = np.full(n_candidates, -1, np.int64)
    score, share = np.empty(n_candidates), np.zeros(n_candidates)
    work = Work(
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest, np.int32),
        np.empty(widest, np.int32),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest, np.int64),
        np.empty((widest, widest)),
    )
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
                if step >= 0:
                    n_live, failure = connect(
                        roads, scratch, model, candidates, fixes, step_fix[step], i, score, best, work
                    )
                if step < 0 or n_live > 0:
                    if weight_offset[n] + n_live * width > len(weight):
                        weight = _grown(weight, 2 * (weight_offset[n] + n_live * width))
                    if live_offset[n] + n_live > len(live):
                        live = _grown(live, 2 * (live_offset[n] + n_live))
                    if step < 0:
                        score[first:last] = candidates.log_likelihood[first:last]
                    else:
                        broken[step] = GOES_ON
                    _advance(
                        candidates,
                        work,
                        n_live,
                        first,
                        last,
                        share,
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
        live_offset[: n + 1],
        live,
        weight_offset[: n + 1],
        weight,
        best,
        score,
        share,
    )


class Work(NamedTuple):
    """Working memory of one step, as long as the widest step of a chunk."""

    metres: Floats
    seconds: Floats
    room: Floats
    missing: Segments
    asked: Segments
    asked_room: Floats
    reached: Floats  # score of the best way to each target, before its own likelihood
    order: Ints  # candidates of the step before, best first
    log_weight: Floats  # [live, target]


@njit(cache=True, nogil=True)
def _grown(values: NDArray[Any], room: int) -> NDArray[Any]:  # pragma: no cover  (compiled)
    grown = np.empty(room, values.dtype)
    grown[: len(values)] = values
    return grown


@njit(cache=True, nogil=True)
def backwards(model: Model, noise: float) -> float:  # pragma: no cover  (compiled)
    """Return how many metres a candidate may lie behind the one before it on the same segment."""
    if model.backwards == NEVER:
        return 0.0
    return model.stand * noise if model.backwards == STAND else np.inf


@njit(cache=True, nogil=True)
def connect(
    roads: Roads,
    scratch: Scratch,
    model: Model,
    candidates: Candidates,
    fixes: tuple[Floats, Floats, Ints],
    a: int,
    b: int,
    score: Floats,
    best: Ints,
    work: Work,
) -> tuple[int, int]:  # pragma: no cover  (compiled)
    """Weigh all transitions from fix ``a`` to fix ``b``: fill in score and best of b, order and log_weight of ``work``.

    Return the number of candidates of a that were continued, and where none leads on (0) why not.
    """
    x, y, time = fixes
    segment, along, noise = candidates.segment, candidates.along, candidates.noise[b]
    a0, a1 = candidates.offsets[a], candidates.offsets[a + 1]
    b0, b1 = candidates.offsets[b], candidates.offsets[b + 1]
    width = b1 - b0
    straight = np.sqrt((x[b] - x[a]) ** 2 + (y[b] - y[a]) ** 2)
    elapsed = float(time[b] - time[a])
    scale = model.detour_m + min(model.detour_mps * elapsed, model.detour_share * straight)
    fastest = model.top_speed_mps * (elapsed + 1.0) + 4.0 * noise
    back = backwards(model, noise)
    reach = model.reach + REACH_NOISE * noise / scale
    rival = RIVAL if reach < EXACT else reach

    # Candidates of a by score, those within reach of the best.
    order = work.order
    top = score[a0:a1].max()
    n_live = 0
    for c in range(a0, a1):
        if score[c] < top - reach:
            continue
        k = n_live
        while k > 0 and score[order[k - 1]] < score[c]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = c
        n_live += 1

    metres, seconds, room, reached = work.metres, work.seconds, work.room, work.reached
    reached[:width] = -np.inf
    top = -np.inf  # score of the best of all targets so far
    any_route = False
    for attempt in range(3):
        # A first look with the best candidate alone tells how far the others, and longer routes, are worth a search.
        full = straight + scale * min(FIRST_LOOK if attempt == 0 else np.inf, reach)
        if attempt == 2:
            full = max(full, 2 * straight + model.longest_detour_m)
        full = min(full, fastest)
        for k in range(n_live if attempt > 0 else 1):
            c = order[k]
            source = segment[c]
            rate = roads.cost[source] / roads.length[source]
            rest = roads.length[source] - along[c]
            for j in range(width):
                target = segment[b0 + j]
                # No further than a route could come within reach of the best there is, to this target or to any.
                least = max(reached[j] - rival, top - candidates.log_likelihood[b0 + j] - reach)
                worth = score[c] - least
                bound = SLOW * min(full, straight + scale * worth)
                if target == source and along[b0 + j] >= along[c] - back:
                    room[j] = -1.0
                    metres[j] = along[b0 + j] - along[c]
                    if metres[j] < 0.0:
                        metres[j] = 0.0 if model.backwards == STAND else -metres[j]
                    seconds[j] = metres[j] * roads.seconds[source] / roads.length[source]
                else:
                    room[j] = bound - rest * rate - along[b0 + j] * roads.cost[target] / roads.length[target]
                    if room[j] < 0.0:
                        metres[j] = seconds[j] = np.inf
            find_ways(
                roads,
                scratch,
                source,
                segment[b0:b1],
                room[:width],
                metres,
                seconds,
                work.missing,
                work.asked,
                work.asked_room,
            )
            for j in range(width):
                work.log_weight[k, j] = -np.inf
                if metres[j] == np.inf:
                    continue
                target = segment[b0 + j]
                if room[j] >= 0.0:
                    metres[j] += rest + along[b0 + j]
                    seconds[j] += rest * roads.seconds[source] / roads.length[source]
                    seconds[j] += along[b0 + j] * roads.seconds[target] / roads.length[target]
                any_route = True
                # Noise may have lengthened the route by two noise_m, and clocks count whole seconds.
                pace = seconds[j] * max(1.0 - 2.0 * noise / max(metres[j], 1e-9), 0.0) / (elapsed + 1.0)
                if pace > model.too_fast or metres[j] > fastest:
                    continue
                log_weight = -abs(metres[j] - straight) / scale
                if pace > model.fast:
                    log_weight -= model.fast_weight * (pace - model.fast) ** 2
                work.log_weight[k, j] = log_weight
                if score[c] + log_weight > reached[j]:
                    reached[j] = score[c] + log_weight
                    best[b0 + j] = c
                    top = max(top, reached[j] + candidates.log_likelihood[b0 + j])
        if attempt > 0 and top > -np.inf:
            break
    else:
        return 0, TOO_FAST if any_route or straight > fastest else NO_ROUTE
    for j in range(width):
        score[b0 + j] = reached[j] + candidates.log_likelihood[b0 + j]
    score[b0:b1] -= score[b0:b1].max()
    return n_live, MATCHED


@njit(cache=True, nogil=True)
def _advance(
    candidates: Candidates,
    work: Work,
    n_live: int,
    first: int,
    last: int,
    share: Floats,
    live: Ints,
    weight: Floats,
) -> None:  # pragma: no cover  (compiled)
    """Keep the live candidates and weights of a step, and fill in its shares: the forward recursion, normalised."""
    width = last - first
    top = -np.inf
    for k in range(n_live):
        live[k] = work.order[k]
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


@njit(cache=True, nogil=True)
def smooth(candidates: Candidates, lattice: Lattice) -> tuple[Floats, Ints]:  # pragma: no cover  (compiled)
    """Return the probability of every candidate given all fixes of its chain [C], and the chosen ones of all steps [N].

    Chosen is the most likely path. Candidates of fixes that are no step have probability 0.
    """
    offsets = candidates.offsets
    probability = np.zeros(len(candidates.segment))
    behind = np.zeros(len(candidates.segment))  # likelihood of all later fixes, up to a constant of the step
    chosen = np.empty(len(lattice.fix), np.int64)
    for n in range(len(lattice.fix) - 1, -1, -1):
        i = lattice.fix[n]
        first, last = offsets[i], offsets[i + 1]
        if lattice.broken[n] != GOES_ON:
            behind[first:last] = 1.0
            chosen[n] = first + np.argmax(lattice.score[first:last])
        total = 0.0
        for c in range(first, last):
            probability[c] = lattice.share[c] * behind[c]
            total += probability[c]
        if total > 0.0:
            probability[first:last] /= total
        else:
            probability[chosen[n]] = 1.0
        if lattice.before[n] < 0:
            continue
        chosen[n - 1] = lattice.best[chosen[n]]
        width = last - first
        nearest = candidates.log_likelihood[first]
        most = 0.0
        for k in range(lattice.live_offset[n + 1] - lattice.live_offset[n]):
            row = lattice.weight_offset[n] + k * width
            later = 0.0
            for j in range(width):
                likelihood = np.exp(candidates.log_likelihood[first + j] - nearest)
                later += lattice.weight[row + j] * likelihood * behind[first + j]
            behind[lattice.live[lattice.live_offset[n] + k]] = later
            most = max(most, later)
        if most > 0.0:
            for k in range(lattice.live_offset[n], lattice.live_offset[n + 1]):
                behind[lattice.live[k]] /= most
    return probability, chosen
