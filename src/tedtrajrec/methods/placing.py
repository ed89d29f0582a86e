"""Ratios for steps whose segments are fixed: in driving order, and no faster than the top speed.

With x the metres of each step along its segment and y those proposed, the sum of w (x - y)² is made least subject to

- 0 ≤ x ≤ length of the segment;
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

from tedtrajrec.network.routing import Router
from tedtrajrec.threads import map_parts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOP_SPEED_MPS = 40.0
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
    gap_m: ArrayLike | None = None,
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
    gap_m
        Metres from the end of the segment before to the start of a step's own, for steps that come from another
        segment, inf for no way [N]; None: they are searched.
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
    slack = reach[moves] - gap - length[seg[moves - 1]]
    most[moves] = np.where(gap <= reach[moves], slack, np.inf)

    starts = np.flatnonzero(np.diff(trip, prepend=-1))
    cuts = starts[np.flatnonzero(np.diff(starts // STEPS_PER_PART, prepend=-1))].tolist()
    parts = list(itertools.starmap(slice, itertools.pairwise([*cuts, len(placed)])))
    metres, size = at * length[seg], length[seg]

    def solve(part: slice) -> Floats:
        out: Floats = _solve(metres[part], heavy[part], size[part], least[part], most[part])
        return out

    solved = np.concatenate([np.zeros(0), *map_parts(solve, parts, workers)])
    same = solved == metres
    moved = np.divide(solved, size, out=np.zeros(len(size)), where=size > 0)
    out = given.copy()
    out[placed] = np.where(same, at, np.clip(moved, 0.0, 1.0))
    return out


@njit(cache=True, nogil=True)
def _solve(y: Floats, w: Floats, size: Floats, least: Floats, most: Floats) -> Floats:  # pragma: no cover  (compiled)
    """Return the x that minimises the sum of w (x - y)² within size and the bounds of consecutive differences [N].

    A chain begins where a step has no bounds; one that is fine as it is stays exactly as it is.
    """
    n = len(y)
    x = y.copy()
    first = 0
    while first < n:
        last = first + 1
        fine = True
        while last < n and (least[last] > -np.inf or most[last] < np.inf):
            gone = y[last] - y[last - 1]
            fine = fine and least[last] <= gone <= most[last]
            last += 1
        if not fine:
            _solve_chain(
                y[first:last], w[first:last], size[first:last], least[first:last], most[first:last], x[first:last]
            )
        first = last
    return x


@njit(cache=True, nogil=True)
def _solve_chain(
    y: Floats, w: Floats, size: Floats, least: Floats, most: Floats, x: Floats
) -> None:  # pragma: no cover  (compiled)
    """Write the solution for steps that are all bound to the one before into ``x``."""
    n = len(y)
    # Half the derivative of the least cost so far: on piece k, from line[0, k] to the next, it starts at line[1, k] and
    # rises by line[2, k] a metre. The first piece begins at 0, the last ends at high.
    line, passed = np.empty((3, 2 * n + 2)), np.empty((3, 2 * n + 2))
    line[0, 0], line[1, 0], line[2, 0] = 0.0, -w[0] * y[0], w[0]
    pieces, high = 1, size[0]
    best = np.empty(n)  # where the least cost up to a step is least
    upper = most.copy()
    best[0] = _lowest(line, pieces, high)
    for i in range(1, n):
        if high + most[i] < 0:  # whatever is chosen before, the way to this step is too long: the move stays broken
            upper[i] = np.inf
        pieces = _pass_on(line, pieces, high, best[i - 1], least[i], upper[i], size[i], passed)
        high = min(high + upper[i], size[i])
        line, passed = passed, line
        for k in range(pieces):
            line[1, k] += w[i] * (line[0, k] - y[i])
            line[2, k] += w[i]
        best[i] = _lowest(line, pieces, high)
    x[n - 1] = best[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = min(max(best[i], x[i + 1] - upper[i + 1]), x[i + 1] - least[i + 1])


@njit(cache=True, nogil=True)
def _lowest(line: Floats, pieces: int, high: float) -> float:  # pragma: no cover  (compiled)
    """Return where the derivative passes 0, or the end it never reaches 0 before."""
    for k in range(pieces):
        begin, value, slope = line[0, k], line[1, k], line[2, k]
        if value >= 0:
            return float(begin)
        end = line[0, k + 1] if k + 1 < pieces else high
        if value + slope * (end - begin) >= 0:
            return float(min(begin - value / slope, end))
    return high


@njit(cache=True, nogil=True)
def _pass_on(
    line: Floats, pieces: int, high: float, lowest: float, least: float, most: float, size: float, out: Floats
) -> int:  # pragma: no cover  (compiled)
    """Write the least cost of all before, as a function of the next x, and return its pieces.

    The next x is reached from whatever lies least to most before it. So what falls towards the lowest point moves by
    ``least``, what rises beyond it by ``most``, and in between, where the lowest point itself is in reach, it is flat.
    """
    n = 0
    if least > -np.inf:
        for k in range(pieces):
            end = min(line[0, k + 1] if k + 1 < pieces else high, lowest)
            n = _append(out, n, line[0, k] + least, end + least, line[1, k], line[2, k], size)
    n = _append(out, n, max(lowest + least, 0.0), lowest + most, 0.0, 0.0, size)
    if most < np.inf:
        for k in range(pieces):
            begin = max(line[0, k], lowest)
            end = line[0, k + 1] if k + 1 < pieces else high
            n = _append(
                out, n, begin + most, end + most, line[1, k] + line[2, k] * (begin - line[0, k]), line[2, k], size
            )
    if n == 0:  # a single point is left
        out[0, 0], out[1, 0], out[2, 0] = 0.0, 0.0, 0.0
        n = 1
    return n


@njit(cache=True, nogil=True)
def _append(
    out: Floats, n: int, begin: float, end: float, value: float, slope: float, size: float
) -> int:  # pragma: no cover  (compiled)
    """Add what lies of a piece within 0..size, if anything, and return how many pieces there are."""
    inside = max(begin, 0.0)
    if end <= inside or inside >= size:
        return n
    out[0, n], out[1, n], out[2, n] = inside, value + slope * (inside - begin), slope
    return n + 1
