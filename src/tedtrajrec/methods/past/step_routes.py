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

    From one known step to the next that is the shortest route, or where none can be driven in the time, nothing in
    between.

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
    trip = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = np.flatnonzero(segment >= 0)
    segment_of, ratio_of, time = segment[known], ratio[known], known * step_s
    goes_on = np.zeros(len(known), bool)  # from the known step before
    goes_on[1:] = np.diff(trip[known]) == 0
    moves = np.flatnonzero(goes_on & (np.diff(segment_of, prepend=-1) != 0))
    routes = router.routes(
        segment_of[moves - 1],
        ratio_of[moves - 1],
        segment_of[moves],
        ratio_of[moves],
        limit_m=TOP_SPEED_MPS * (time[moves] - time[moves - 1]),
        workers=workers,
    )
    length = np.diff(routes.offsets)
    count = (~goes_on).astype(np.int64)  # segments that a step adds to the list
    count[moves] = np.maximum(length - 1, 1)
    end = np.cumsum(count)
    out = np.empty(count.sum(), np.int32)
    adds = count > 0
    out[end[adds] - 1] = segment_of[adds]
    inner = np.maximum(length - 2, 0)
    out[ranges((end - count)[moves], inner)] = routes.segment[ranges(routes.offsets[:-1] + 1, inner)]
    at = np.full(len(segment), -1)
    at[known] = end - 1
    bounds = np.concatenate([[0], end])[np.searchsorted(known, offsets)]
    return StepRoutes(at, bounds, out)
