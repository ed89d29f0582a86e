"""What trips drove, segment by segment, and where their steps are in it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


class StepRoutes(NamedTuple):
    """The segments driven by trips of N steps in all, in order, each once where a trip stays on it."""

    at: Ints  # [N] where the segment of each step is in the list; -1 where it is not known
    offsets: Ints  # [T+1] trip i drove segment[offsets[i]:offsets[i + 1]]
    segment: Segments


def step_routes(
    router: Router, offsets: Ints, segment: Segments, ratio: Floats, step_s: float, *, workers: int | None = None
) -> StepRoutes:
    """Return what trips drove.

    From one step to the next that is the shortest route, or where none can be driven in the time, nothing in between.
    The list has a break where the position of a step is not known.

    Parameters
    ----------
    router
        Of the network.
    offsets
        Steps of trip i are ``offsets[i]:offsets[i + 1]``.
    segment, ratio
        Positions of the steps [N]; segment -1 where unknown.
    step_s
        Seconds between steps.
    workers
        Number of threads; all processors if not given.
    """
    n = len(segment)
    first = np.zeros(n, bool)
    first[offsets[:-1][np.diff(offsets) > 0]] = True
    known = segment >= 0
    joined = known & ~first & np.roll(known, 1)  # goes on from the step before
    moves = np.flatnonzero(joined & (segment != np.roll(segment, 1)))
    routes = router.routes(
        segment[moves - 1],
        ratio[moves - 1],
        segment[moves],
        ratio[moves],
        limit_m=TOP_SPEED_MPS * step_s,
        workers=workers,
    )
    length = np.diff(routes.offsets)
    count = np.where(known & ~joined, 1, 0)  # segments that a step adds to the list
    count[moves] = np.maximum(length - 1, 1)
    end = np.cumsum(count)
    out = np.empty(end[-1] if n else 0, np.int32)
    adds = count > 0
    out[end[adds] - 1] = segment[adds]
    inner = np.maximum(length - 2, 0)
    out[ranges((end - count)[moves], inner)] = routes.segment[ranges(routes.offsets[:-1] + 1, inner)]
    return StepRoutes(np.where(known, end - 1, -1), np.concatenate([[0], end])[offsets], out)
