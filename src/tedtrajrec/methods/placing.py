"""Ratios for steps whose segments are fixed: in driving order, and no faster than the top speed.

With x the metres of each step along its segment and y those proposed, the sum of w (x - y)² is made least subject to

- x is on the segment, and within the stretch allowed on it if any is given;
- x[i] ≤ x[i+1] while the vehicle stays on one segment, which alone is isotonic regression;
- x[i+1] ≤ x[i] + what the top speed leaves: its reach within the time, less the way that is fixed by the segments.

Each condition joins two consecutive steps only, so dynamic programming solves the whole exactly: the least cost up to
step i is a convex, piecewise quadratic function of x[i], and its derivative a rising broken line, kept as pieces.
"""

from __future__ import annotations

import itertools

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.routing import Router
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

STEPS_PER_PART = 8192


def place(
    router: Router,
    offsets: Ints,
    segment: ArrayLike,
    ratio: ArrayLike,
    *,
    step_s: float,
    top_speed_mps: float = TOP_SPEED_MPS,
    weight: ArrayLike | None = None,
    lowest: ArrayLike | None = None,
    highest: ArrayLike | None = None,
    gap_m: ArrayLike | None = None,
    broken: ArrayLike | None = None,
    workers: int | None = None,
) -> Floats:
    """Return the ratios nearest to those proposed that can be driven [N].

    Where no ratios of two consecutive steps can be driven, because there is no way within the time or the steps before
    leave none, that move alone is left as it is. A trip that is fine as proposed is returned unchanged.

    Parameters
    ----------
    router
        Over the metres of the network.
    offsets
        Steps of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1].
    segment, ratio
        Positions [N]; segment -1 where there is none: its ratio stays, and the next move has more time.
    step_s
        Seconds from one step to the next.
    top_speed_mps
        What no move may exceed.
    weight
        How much a step resists being moved [N], more than 0; None: all the same.
    lowest, highest
        The stretch on which a step must stay, as ratios [N]; None: the whole segment. Speed gives way to it, and it to
        the driving order. A road that passes a fix at d metres is within 100 m of it for 100 - d metres either way.
    gap_m
        Metres from the end of the segment before to the start of a step's own, for steps that come from another
        segment, inf for no way [N]; None: they are searched.
    broken
        Which moves from another segment are known not to be driven [N]: of two that exclude each other, this one is
        left as it is. None: the later one is.
    workers
        Threads to use; None: all cores. Results do not depend on it.
    """
    length = router.network.length_m
    seg, given = np.asarray(segment).astype(np.int64, copy=False), np.asarray(ratio, np.float64)
    heavy = np.ones(len(seg)) if weight is None else np.asarray(weight, np.float64)
    if not (heavy > 0).all():
        raise ValueError("weights must be positive")
    placed = np.flatnonzero(seg >= 0)
    trip = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[placed]
    seg, at, heavy = seg[placed], np.clip(given[placed], 0.0, 1.0), heavy[placed]

    # Bounds of x[i] - x[i-1]; no bounds where a trip starts.
    least, most = np.full(len(placed), -np.inf), np.full(len(placed), np.inf)
    step = np.flatnonzero(np.diff(trip, prepend=-1) == 0)
    reach = top_speed_mps * step_s * np.diff(placed, prepend=0)
    stays = step[seg[step] == seg[step - 1]]
    least[stays], most[stays] = 0.0, reach[stays]
    moves = step[seg[step] != seg[step - 1]]
    if gap_m is None:
        gap = router.distances(seg[moves - 1], 1.0, seg[moves], 0.0, limit_m=reach[moves], workers=workers)
    else:
        gap = np.asarray(gap_m, np.float64)[placed[moves]]
    if broken is not None:
        gap = np.where(np.asarray(broken)[placed[moves]], np.inf, gap)
    slack = reach[moves] - gap - length[seg[moves - 1]]
    most[moves] = np.where(gap <= reach[moves], slack, np.inf)

    starts = np.flatnonzero(np.diff(trip, prepend=-1))
    cuts = starts[np.flatnonzero(np.diff(starts // STEPS_PER_PART, prepend=-1))].tolist()
    parts = list(itertools.starmap(slice, itertools.pairwise([*cuts, len(placed)])))
    size = length[seg]
    metres = at * size
    low = np.zeros(len(size)) if lowest is None else np.clip(np.asarray(lowest, np.float64)[placed], 0, 1) * size
    high = size if highest is None else np.clip(np.asarray(highest, np.float64)[placed], 0, 1) * size
    if not (low <= high).all():
        raise ValueError("a stretch ends before it begins")

    def solve(part: slice) -> Floats:
        out: Floats = _solve(metres[part], heavy[part], low[part], high[part], least[part], most[part])
        return out

    solved = np.concatenate([np.zeros(0), *map_parts(solve, parts, workers)])
    same = solved == metres
    moved = np.divide(solved, size, out=np.zeros(len(size)), where=size > 0)
    out = given.copy()
    out[placed] = np.where(same, at, np.clip(moved, 0.0, 1.0))
    return out


@njit(cache=True, nogil=True)
def _solve(
    y: Floats, w: Floats, low: Floats, high: Floats, least: Floats, most: Floats
) -> Floats:  # pragma: no cover  (compiled)
    """Return the x that minimises the sum of w (x - y)² within low..high and bounds of consecutive differences [N].

    A chain begins where a step has no bounds; one that is fine as it is stays exactly as it is.
    """
    n = len(y)
    x = y.copy()
    first = 0
    while first < n:
        fine = low[first] <= y[first] <= high[first]
        last = first + 1
        while last < n and (least[last] > -np.inf or most[last] < np.inf):
            fine = fine and low[last] <= y[last] <= high[last] and least[last] <= y[last] - y[last - 1] <= most[last]
            last += 1
        if not fine:
            chain = slice(first, last)
            x[chain] = _solve_chain(y[chain], w[chain], low[chain], high[chain], least[chain], most[chain])
        first = last
    return x


@njit(cache=True, nogil=True)
def _solve_chain(
    y: Floats, w: Floats, low: Floats, high: Floats, least: Floats, most: Floats
) -> Floats:  # pragma: no cover  (compiled)
    """Return the solution for steps that are all bound to the one before."""
    n = len(y)
    # Half the derivative of the least cost so far: on piece k, from line[0, k] to the next, it starts at line[1, k] and
    # rises by line[2, k] a metre. The first piece begins at floor, the last ends at roof.
    line, passed = np.empty((3, 2 * n + 2)), np.empty((3, 2 * n + 2))
    floor, roof = low[0], high[0]
    line[0, 0], line[1, 0], line[2, 0] = floor, w[0] * (floor - y[0]), w[0]
    pieces = 1
    best = np.empty(n)  # where the least cost up to a step is least
    best[0] = _lowest(line, pieces, roof)
    upper = most.copy()
    for i in range(1, n):
        next_floor = max(low[i], floor + least[i])
        if roof + most[i] < next_floor:  # whatever is chosen before, this step is out of reach: the move stays broken
            upper[i] = np.inf
        next_roof = min(max(high[i], next_floor), roof + upper[i])
        pieces = _pass_on(line, pieces, roof, best[i - 1], least[i], upper[i], next_floor, next_roof, passed)
        floor, roof = next_floor, next_roof
        line, passed = passed, line
        for k in range(pieces):
            line[1, k] += w[i] * (line[0, k] - y[i])
            line[2, k] += w[i]
        best[i] = _lowest(line, pieces, roof)
    x = best
    for i in range(n - 2, -1, -1):
        x[i] = min(max(best[i], x[i + 1] - upper[i + 1]), x[i + 1] - least[i + 1])
    return x


@njit(cache=True, nogil=True)
def _lowest(line: Floats, pieces: int, roof: float) -> float:  # pragma: no cover  (compiled)
    """Return where the derivative passes 0, or the end it does not pass it before."""
    for k in range(pieces):
        begin, value, slope = line[0, k], line[1, k], line[2, k]
        if value >= 0:
            return float(begin)
        end = line[0, k + 1] if k + 1 < pieces else roof
        if value + slope * (end - begin) >= 0:
            return float(min(begin - value / slope, end))
    return roof


@njit(cache=True, nogil=True)
def _pass_on(
    line: Floats,
    pieces: int,
    roof: float,
    best: float,
    least: float,
    most: float,
    next_floor: float,
    next_roof: float,
    out: Floats,
) -> int:  # pragma: no cover  (compiled)
    """Write the least cost of all before, as a function of the next x, and return its pieces.

    The next x is reached from whatever lies least to most before it. So what falls towards the best point moves by
    ``least``, what rises beyond it by ``most``, and in between, where the best point itself is in reach, it is flat.
    """
    n = 0
    if least > -np.inf:
        for k in range(pieces):
            end = min(line[0, k + 1] if k + 1 < pieces else roof, best)
            n = _append(out, n, line[0, k] + least, end + least, line[1, k], line[2, k], next_floor, next_roof)
    n = _append(out, n, max(best + least, next_floor), best + most, 0.0, 0.0, next_floor, next_roof)
    if most < np.inf:
        for k in range(pieces):
            begin = max(line[0, k], best)
            end = line[0, k + 1] if k + 1 < pieces else roof
            value = line[1, k] + line[2, k] * (begin - line[0, k])
            n = _append(out, n, begin + most, end + most, value, line[2, k], next_floor, next_roof)
    if n == 0:  # a single point is left
        out[0, 0], out[1, 0], out[2, 0] = next_floor, 0.0, 0.0
        n = 1
    return n


@njit(cache=True, nogil=True)
def _append(
    out: Floats, n: int, begin: float, end: float, value: float, slope: float, floor: float, roof: float
) -> int:  # pragma: no cover  (compiled)
    """Add what lies of a piece within floor..roof, if anything, and return how many pieces there are."""
    inside = max(begin, floor)
    if end <= inside or inside >= roof:
        return n
    out[0, n], out[1, n], out[2, n] = inside, value + slope * (inside - begin), slope
    return n + 1
