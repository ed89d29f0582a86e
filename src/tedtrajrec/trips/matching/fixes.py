"""What is known of each fix before the chain: its candidates, their likelihood, the noise, and which fixes to use."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.network.grid import PieceGrid
from tedtrajrec.network.grid_search import Places, search_within
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
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
    grid: PieceGrid, network: RoadNetwork, x: Floats, y: Floats, trip_offsets: Ints, config: MatchConfig
) -> Candidates:
    """Return the candidates of fixes at ``x``, ``y`` on the network's plane."""
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
        again = np.flatnonzero((nearest > reach / 3) & (reach < config.radius_limit_m))
        if len(again) == 0:
            break
        reach[again] = np.minimum(2 * reach[again], config.radius_limit_m)
        more = search_within(grid, x[again], y[again], reach[again], config.most_candidates)
        count, places = _replaced(count, places, again, *more)
    noise = np.full(len(x), config.noise_m or 0.0)
    if config.noise_m is None:
        nearest = np.minimum(nearest, config.radius_limit_m)
        _estimate_noise(nearest, trip_offsets, config.least_noise_m, config.most_noise_m, noise)
    return Candidates(
        *_weigh(
            grid,
            network.geom_along,
            (network.seg_from, network.seg_to),
            count,
            places,
            noise,
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
    grid: PieceGrid,
    measure: Floats,
    ends: tuple[Segments, Segments],
    count: Ints,
    places: Places,
    noise: Floats,
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
            log_likelihood[c] = max(-0.5 * z * z if z <= tail else -tail * (z - 0.5 * tail), -outlier)
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
