"""Transitions between the candidates of two fixes: how likely each is, and how far it is worth looking for a route.

The log-weight of a transition is

    - |route - straight| / scale
    - fast_weight x max(0, pace - fast)² - slow_weight x min(log max(1, fast / pace), 2)
    scale = detour_m + min(detour_mps x elapsed, detour_share x straight)

where pace is the free-flow time of the route over the elapsed one; but never below ``- break_cost``, for which a road
that the map lacks may lead from anywhere to anywhere. A route may also come from a fix before the last one: what lies
between is left out, for ``skip_cost`` each. Only candidates within ``reach`` nats of the best one are continued, best
first, and a route is sought no further than it could still come within ``reach`` of what is already reached.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.matching.config import MatchConfig
from tedtrajrec.trips.matching.fixes import Candidates
from tedtrajrec.trips.matching.ways import Roads, Scratch, aim, find_ways

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Bytes = NDArray[np.uint8]

MATCHED, FOLLOWED, OFF_MAP, NO_ROUTE, TOO_FAST = range(5)  # status of a fix; the last three are unmatched

STAND, FREE, NEVER = range(3)

SLOWEST = 2.0  # e-folds below ``fast`` from where on slower is no less likely: who is that slow stands
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
    slow_weight: float
    too_fast: float
    top_speed_mps: float
    most_skipped: int
    break_cost: float
    skip_cost: float
    longest_gap_s: float
    reach: float


class Work(NamedTuple):
    """Working memory of one step, as long as the widest step of a chunk."""

    from_fix: Ints  # fixes that a transition may come from, the last first
    from_shift: Floats  # what is to be added to the scores of their candidates

    metres: Floats
    seconds: Floats
    room: Floats
    reached: Floats  # score of the best way to each target, before its own likelihood
    order: Ints  # candidates that are continued, best first
    value: Floats  # their scores
    level: Ints  # where their fixes stand in from_fix
    log_weight: Floats  # [live, target]


def new_model(config: MatchConfig) -> Model:
    """Return the settings for compiled code."""
    values = {name: getattr(config, name) for name in Model._fields if name != "backwards"}
    return Model(backwards=("stand", "free", "never").index(config.backwards), **values)


@njit(cache=True, nogil=True)
def new_work(widest: int, most_skipped: int) -> Work:  # pragma: no cover  (compiled)
    """Return working memory for steps of at most ``widest`` candidates."""
    most = widest * (most_skipped + 1)
    return Work(
        np.empty(most_skipped + 1, np.int64),
        np.empty(most_skipped + 1),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.empty(widest),
        np.empty(most, np.int64),
        np.empty(most),
        np.empty(most, np.int64),
        np.empty((most, widest)),
    )


@njit(cache=True, nogil=True)
def backwards(model: Model, noise: float) -> float:  # pragma: no cover  (compiled)
    """Return how many metres a candidate may lie behind the one before it on the same segment."""
    if model.backwards == NEVER:
        return 0.0
    return model.stand * noise if model.backwards == STAND else np.inf


@njit(cache=True, nogil=True)
def farthest(model: Model, elapsed: float, noise: float) -> float:  # pragma: no cover  (compiled)
    """Return how many metres a vehicle can get in the ``elapsed`` seconds."""
    return model.top_speed_mps * (elapsed + 1.0) + 4.0 * noise


@njit(cache=True, nogil=True)
def _order(
    candidates: Candidates, score: Floats, reach: float, n_from: int, work: Work
) -> int:  # pragma: no cover  (compiled)
    """Put the candidates within ``reach`` of the best of the fix last used in order, and return their number."""
    order, value, level = work.order, work.value, work.level
    first, last = candidates.offsets[work.from_fix[0]], candidates.offsets[work.from_fix[0] + 1]
    least = score[first:last].max() - reach
    n_live = 0
    for m in range(n_from):
        fix = work.from_fix[m]
        for c in range(candidates.offsets[fix], candidates.offsets[fix + 1]):
            worth = score[c] + work.from_shift[m]
            if worth < least:
                continue
            k = n_live
            while k > 0 and value[k - 1] < worth:
                order[k], value[k], level[k] = order[k - 1], value[k - 1], level[k - 1]
                k -= 1
            order[k], value[k], level[k] = c, worth, m
            n_live += 1
    return n_live


@njit(cache=True, nogil=True)
def connect(
    roads: Roads,
    scratch: Scratch,
    model: Model,
    candidates: Candidates,
    fixes: tuple[Floats, Floats, Ints],
    n_from: int,
    b: int,
    score: Floats,
    best: Ints,
    skipped: Bytes,
    work: Work,
) -> tuple[int, int, float]:  # pragma: no cover  (compiled)
    """Weigh all transitions to fix ``b`` from the first ``n_from`` fixes of ``work.from_fix``.

    Fill in of b's candidates the score, the best one before (the complement of its number where no known route leads
    here) and how many steps are left out between; order, value, level and log_weight of ``work``. Return the number of
    candidates that were continued, and where none leads on (0) why not; and what all scores of b were lowered by.
    """
    x, y, time = fixes
    segment, along, noise = candidates.segment, candidates.along, candidates.noise[b]
    b0, b1 = candidates.offsets[b], candidates.offsets[b + 1]
    width = b1 - b0
    a = work.from_fix[0]
    straight = np.sqrt((x[b] - x[a]) ** 2 + (y[b] - y[a]) ** 2)
    elapsed = float(time[b] - time[a])
    scale = model.detour_m + min(model.detour_mps * elapsed, model.detour_share * straight)
    reach = model.reach + REACH_NOISE * noise / scale
    rival = RIVAL if reach < EXACT else reach
    look = max(reach, model.break_cost) if model.break_cost < np.inf else reach
    back = backwards(model, noise)
    n_live = _order(candidates, score, reach, n_from, work)
    order, value, level = work.order, work.value, work.level

    metres, seconds, room, reached = work.metres, work.seconds, work.room, work.reached
    unknown = -model.break_cost
    reached[:width] = value[0] + unknown
    best[b0:b1], skipped[b0:b1] = ~order[0], level[0]
    # Score of the best of all targets so far.
    top = reached[0] + candidates.log_likelihood[b0:b1].max()
    any_route = False
    targets = aim(roads, scratch, segment[b0:b1])
    for attempt in range(3):
        # A first look with the best candidate alone tells how far the others, and longer routes, are worth a search.
        for k in range(n_live if attempt > 0 else 1):
            c = order[k]
            a = work.from_fix[level[k]]
            straight = np.sqrt((x[b] - x[a]) ** 2 + (y[b] - y[a]) ** 2)
            elapsed = float(time[b] - time[a])
            scale = model.detour_m + min(model.detour_mps * elapsed, model.detour_share * straight)
            fastest = farthest(model, elapsed, noise)
            full = straight + scale * (min(FIRST_LOOK, reach) if attempt == 0 else look)
            if attempt == 2:
                full = max(full, 2 * straight + model.longest_detour_m)
            full = min(full, fastest)
            source = segment[c]
            rate = roads.cost[source] / roads.length[source]
            rest = roads.length[source] - along[c]
            for j in range(width):
                target = segment[b0 + j]
                # No further than a route could come within reach of the best there is, to this target or to any.
                least = max(reached[j] - rival, top - candidates.log_likelihood[b0 + j] - reach)
                worth = value[k] - least
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
            find_ways(roads, scratch, source, targets, room[:width], metres, seconds)
            for j in range(width):
                work.log_weight[k, j] = unknown
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
                elif pace < model.fast:
                    log_weight -= model.slow_weight * min(np.log(model.fast / max(pace, 1e-9)), SLOWEST)
                work.log_weight[k, j] = max(log_weight, unknown)
                if value[k] + log_weight > reached[j]:
                    reached[j] = value[k] + log_weight
                    best[b0 + j], skipped[b0 + j] = c, level[k]
                    top = max(top, reached[j] + candidates.log_likelihood[b0 + j])
        if attempt > 0 and top > -np.inf:
            break
    else:
        return 0, TOO_FAST if any_route or straight > fastest else NO_ROUTE, 0.0
    for j in range(width):
        score[b0 + j] = reached[j] + candidates.log_likelihood[b0 + j]
    score[b0:b1] -= top
    return n_live, MATCHED, top
