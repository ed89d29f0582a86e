"""What is known of each fix before the chain: its candidates, their likelihood, the noise, and which fixes to use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.grid import PieceGrid
from tedtrajrec.network.grid_search import Places, search_within
from tedtrajrec.network.polylines import ranges
from tedtrajrec.trips.matching.config import MatchConfig

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

FIRST_RADIUS_M = 50.0  # least radius of the search where no radius is set
RADIUS_NOISE = 5.0  # radius in noise_m where none is set
PRIOR_NOISE_M = 8.0  # the estimate of a trip's noise starts from this, with the weight of so many fixes
PRIOR_FIXES = 10.0


class Candidates(NamedTuple):
    """The candidates of F fixes, ragged and by distance, and the noise of each fix."""

    offsets: Ints  # [F+1]
    segment: Segments  # [C]
    along: Floats  # [C] metres from the start of the segment
    distance: Floats  # [C]
    log_likelihood: Floats  # [C]
    noise: Floats  # [F]


def find_candidates(
    grid: PieceGrid, along: Floats, x: Floats, y: Floats, trip_offsets: Ints, config: MatchConfig
) -> Candidates:
    """Return the candidates of fixes at ``x``, ``y``; ``along`` is the measure of the network's vertices."""
    radius = config.radius_m
    if radius is None:
        radius = max(RADIUS_NOISE * (config.noise_m or 0.0), FIRST_RADIUS_M)
    reach = np.full(len(x), min(radius, config.radius_limit_m))
    count, places = search_within(grid, x, y, reach, config.most_candidates)
    # A fix off the road must be offered more than the one road that happens to lie just within the radius.
    while True:
        first = np.cumsum(count) - count
        nearest = np.full(len(x), np.inf)
        some = count > 0
        nearest[some] = np.sqrt(places[2][first[some]])
        again = np.flatnonzero((nearest > reach / 2) & (reach < config.radius_limit_m))
        if len(again) == 0:
            break
        reach[again] = np.minimum(2 * reach[again], config.radius_limit_m)
        more = search_within(grid, x[again], y[again], reach[again], config.most_candidates)
        count, places = _replaced(count, places, again, *more)
    noise = np.full(len(x), config.noise_m or 0.0)
    if config.noise_m is None:
        nearest = np.minimum(nearest, config.radius_limit_m)
        _estimate_noise(nearest, trip_offsets, config.least_noise_m, config.most_noise_m, noise)
    return Candidates(*_weigh(grid, along, count, places, noise, config.tail, config.outlier), noise)


def _replaced(count: Ints, places: Places, again: Ints, new_count: Ints, new_places: Places) -> tuple[Ints, Places]:
    """Return counts and places with those of the points ``again`` replaced."""
    start = np.cumsum(count) - count
    start[again] = int(count.sum()) + np.cumsum(new_count) - new_count
    count = count.copy()
    count[again] = new_count
    order = ranges(start, count)
    piece, share, distance2 = (np.concatenate(both)[order] for both in zip(places, new_places, strict=True))
    return count, (piece, share, distance2)


@njit(cache=True, nogil=True)
def _estimate_noise(
    nearest: Floats, trip_offsets: Ints, least: float, most: float, noise: Floats
) -> None:  # pragma: no cover  (compiled)
    """Fill in the noise of each trip: the median distance to the nearest road as that of a normal, and a prior."""
    for trip in range(len(trip_offsets) - 1):
        first, last = trip_offsets[trip], trip_offsets[trip + 1]
        if first == last:
            continue
        seen = 1.4826 * np.median(nearest[first:last])
        weight = (last - first) / (last - first + PRIOR_FIXES)
        noise[first:last] = min(max(weight * seen + (1 - weight) * PRIOR_NOISE_M, least), most)


@njit(cache=True, nogil=True)
def _weigh(
    grid: PieceGrid, measure: Floats, count: Ints, places: Places, noise: Floats, tail: float, outlier: float
) -> tuple[Ints, Segments, Floats, Floats, Floats]:  # pragma: no cover  (compiled)
    """Return offsets, segment, metres along it, distance and log-likelihood of all candidates."""
    piece, share, distance2 = places
    total = len(piece)
    offsets = np.zeros(len(count) + 1, np.int64)
    segment = np.empty(total, np.int32)
    along = np.empty(total)
    distance = np.empty(total)
    log_likelihood = np.empty(total)
    c = 0
    for i in range(len(count)):
        for _ in range(count[i]):
            k = piece[c]
            v = grid.vertex[k]
            t = 1.0 - share[c] if grid.backward[k] else share[c]
            segment[c] = grid.segment[k]
            along[c] = min(measure[v] + t * (measure[v + 1] - measure[v]), grid.length_m[segment[c]])
            distance[c] = np.sqrt(distance2[c])
            z = distance[c] / noise[i]
            log_likelihood[c] = max(-0.5 * z * z if z <= tail else -tail * (z - 0.5 * tail), -outlier)
            c += 1
        offsets[i + 1] = c
    return offsets, segment, along, distance, log_likelihood


@njit(cache=True, nogil=True)
def choose_fixes(
    x: Floats, y: Floats, time: Ints, trip_offsets: Ints, noise: Floats, thin: float
) -> NDArray[np.bool_]:  # pragma: no cover  (compiled)
    """Return which fixes the chain uses: not those so near to the last one used that noise hides the movement.

    Of several fixes of one second only the first is used.
    """
    used = np.zeros(len(x), np.bool_)
    for trip in range(len(trip_offsets) - 1):
        last = -1
        for i in range(trip_offsets[trip], trip_offsets[trip + 1]):
            if last >= 0:
                near = thin * noise[i]
                if time[i] <= time[last] or (x[i] - x[last]) ** 2 + (y[i] - y[last]) ** 2 < near * near:
                    continue
            used[i] = True
            last = i
    return used
