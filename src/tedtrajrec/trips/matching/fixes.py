"""What is known of each fix before the chain: its candidates, their likelihood, the noise, and which fixes to use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.grid import PieceGrid
from tedtrajrec.network.grid_search import GridSearch, Places
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.matching.config import MatchConfig

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Mask = NDArray[np.bool_]

FIRST_RADIUS_M = 50.0  # least radius of the search where no radius is set
RADIUS_NOISE = 5.0  # radius in noise_m where none is set
PRIOR_NOISE_M = 8.0  # the estimate of a trip's noise starts from this, with the weight of so many fixes
PRIOR_FIXES = 10.0
STREETS_M = 40.0  # the larger the noise, the oftener another street is nearer than the right one


class Candidates(NamedTuple):
    """The candidates of F fixes, ragged and by distance, and the noise of each fix."""

    offsets: Ints  # [F+1]
    segment: Segments  # [C]
    along: Floats  # [C] metres from the start of the segment
    distance: Floats  # [C]
    log_likelihood: Floats  # [C]
    noise: Floats  # [F]


def find_noise(search: GridSearch, x: Floats, y: Floats, trip_offsets: Ints, config: MatchConfig) -> Floats:
    """Return the noise of each fix: given, or estimated for each trip from the distances to the nearest roads."""
    if config.noise_m is not None:
        return np.full(len(x), config.noise_m)
    nearest = np.full(len(x), config.radius_limit_m)
    reach = min(FIRST_RADIUS_M, config.radius_limit_m)
    left = np.arange(len(x))
    while True:
        count, (_, _, distance2) = search.within(x[left], y[left], np.full(len(left), reach), 1)
        nearest[left[count > 0]] = np.sqrt(distance2)
        left = left[count == 0]
        if len(left) == 0 or reach == config.radius_limit_m:
            break
        reach = min(2 * reach, config.radius_limit_m)
    return _estimate_noise(nearest, trip_offsets, config.least_noise_m, config.most_noise_m)


def find_candidates(
    search: GridSearch, network: RoadNetwork, x: Floats, y: Floats, noise: Floats, weight: Floats, config: MatchConfig
) -> Candidates:
    """Return the candidates of fixes at ``x``, ``y`` on the network's plane; those without weight have none."""
    radius = config.radius_m
    if radius is None:
        radius = max(RADIUS_NOISE * (config.noise_m or 0.0), FIRST_RADIUS_M)
    which = np.flatnonzero(weight)
    reach = np.full(len(which), min(radius, config.radius_limit_m))
    found, places = search.within(x[which], y[which], reach, config.most_candidates)
    # A fix off the road must be offered more than the one road that happens to lie just within the radius.
    while True:
        first = np.cumsum(found) - found
        nearest = np.full(len(which), np.inf)
        some = found > 0
        nearest[some] = np.sqrt(places[2][first[some]])
        again = np.flatnonzero((nearest > reach / 3) & (reach < config.radius_limit_m))
        if len(again) == 0:
            break
        reach[again] = np.minimum(2 * reach[again], config.radius_limit_m)
        more = search.within(x[which[again]], y[which[again]], reach[again], config.most_candidates)
        found, places = _replaced(found, places, again, *more)
    count = np.zeros(len(x), np.int64)
    count[which] = found
    return Candidates(
        *_weigh(
            search.grid,
            network.geom_along,
            (network.seg_from, network.seg_to),
            count,
            places,
            noise,
            weight,
            config.tail,
            config.outlier,
        ),
        noise,
    )


def _replaced(count: Ints, places: Places, again: Ints, new_count: Ints, new_places: Places) -> tuple[Ints, Places]:
    """Return counts and places with those of the points ``again`` replaced."""
    start = np.cumsum(count) - count
    start[again] = int(count.sum()) + np.cumsum(new_count) - new_count
    count = count.copy()
    count[again] = new_count
    order = ranges(start, count)
    piece, share, distance2 = places
    new_piece, new_share, new_distance2 = new_places
    return count, (
        np.concatenate([piece, new_piece])[order],
        np.concatenate([share, new_share])[order],
        np.concatenate([distance2, new_distance2])[order],
    )


def _estimate_noise(nearest: Floats, trip_offsets: Ints, least: float, most: float) -> Floats:
    """Return the noise of fixes: the median distance of their trip to the nearest road, as a normal's, and a prior."""
    count = np.diff(trip_offsets)
    trip = np.repeat(np.arange(len(count)), count)
    ranked = nearest[np.lexsort((nearest, trip))]
    some = count > 0
    first = trip_offsets[:-1][some]
    low, high = (ranked[first + (count[some] + k) // 2] for k in (-1, 0))
    seen = np.zeros(len(count))
    seen[some] = 1.4826 * (low + high) / 2
    seen *= 1.0 + seen / STREETS_M
    weight = count / (count + PRIOR_FIXES)
    noise = np.clip(weight * seen + (1 - weight) * PRIOR_NOISE_M, least, most)
    return np.repeat(noise, count)


@njit(cache=True, nogil=True)
def _weigh(
    grid: PieceGrid,
    measure: Floats,
    ends: tuple[Segments, Segments],
    count: Ints,
    places: Places,
    noise: Floats,
    weight: Floats,
    tail: float,
    outlier: float,
) -> tuple[Ints, Segments, Floats, Floats, Floats]:  # pragma: no cover  (compiled)
    """Return offsets, segment, metres along it, distance and log-likelihood of all candidates."""
    piece, share, distance2 = places
    total = len(piece)
    offsets = np.zeros(len(count) + 1, np.int64)
    segment = np.empty(total, np.int32)
    along = np.empty(total)
    distance = np.empty(total)
    log_likelihood = np.empty(total)
    p = c = 0
    for i in range(len(count)):
        first = p
        p += count[i]
        for q in range(first, p):
            k = piece[q]
            s = grid.segment[k]
            v = grid.vertex[k]
            t = 1.0 - share[q] if grid.backward[k] else share[q]
            metres = min(measure[v] + t * (measure[v + 1] - measure[v]), grid.length_m[s])
            if metres == 0.0 and _follows_other(s, piece[first:p], grid.segment, ends):
                continue  # the same place as the end of that one, from where it can still be entered
            segment[c] = s
            along[c] = metres
            distance[c] = np.sqrt(distance2[q])
            z = distance[c] / noise[i]
            log_likelihood[c] = weight[i] * max(-0.5 * z * z if z <= tail else -tail * (z - 0.5 * tail), -outlier)
            c += 1
        offsets[i + 1] = c
    return offsets, segment[:c], along[:c], distance[:c], log_likelihood[:c]


@njit(cache=True, nogil=True)
def _follows_other(
    s: int, others: Segments, owner: Segments, ends: tuple[Segments, Segments]
) -> bool:  # pragma: no cover  (compiled)
    """Return whether ``s`` starts where another candidate ends, which is then at least as near; twins do not count."""
    seg_from, seg_to = ends
    for piece in others:
        before = owner[piece]
        if seg_to[before] == seg_from[s] and seg_from[before] != seg_to[s]:
            return True
    return False


@njit(cache=True, nogil=True)
def choose_fixes(
    x: Floats, y: Floats, time: Ints, trip_offsets: Ints, noise: Floats, thin: float
) -> tuple[Mask, Floats, Floats]:  # pragma: no cover  (compiled)
    """Return which fixes the chain uses, and where it takes them to be.

    Not used are those so near to the last one used that noise hides the movement; they are further sights of the same
    place, so that it is taken to be at the mean of all. Of several fixes of one second only the first is used.
    """
    used = np.zeros(len(x), np.bool_)
    at_x, at_y = x.copy(), y.copy()
    for trip in range(len(trip_offsets) - 1):
        last = -1
        seen = 1
        for i in range(trip_offsets[trip], trip_offsets[trip + 1]):
            if last >= 0:
                near = thin * noise[i]
                is_near = (x[i] - x[last]) ** 2 + (y[i] - y[last]) ** 2 < near * near
                if is_near:
                    seen += 1
                    at_x[last] += (x[i] - at_x[last]) / seen
                    at_y[last] += (y[i] - at_y[last]) / seen
                if is_near or time[i] <= time[last]:
                    continue
            used[i] = True
            last = i
            seen = 1
    return used, at_x, at_y


@njit(cache=True, nogil=True)
def evidence(time: Ints, trip_offsets: Ints, used: Mask, drift_s: float) -> Floats:  # pragma: no cover  (compiled)
    """Return the weight of each used fix beside the one used before it: 0 to 1; of fixes not used 0.

    Errors drift, so fixes close in time err alike and tell less than so many fixes. Where they decay with ``drift_s``,
    the mean of n fixes is as good as that of n tanh(interval / 2 drift_s) independent ones.
    """
    weight = np.zeros(len(time))
    for trip in range(len(trip_offsets) - 1):
        last = -1
        for i in range(trip_offsets[trip], trip_offsets[trip + 1]):
            if used[i]:
                weight[i] = 1.0
                if last >= 0 and drift_s > 0.0:
                    weight[i] = np.tanh((time[i] - time[last]) / (2.0 * drift_s))
                last = i
    return weight
