"""Passing: which past trips drove each segment, and when, so that those that passed two fixes are quickly found.

Their votes are counted in :mod:`tedtrajrec.methods.past.passed`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.past.visits import Visits

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]
Records = NDArray[Any]


SEEN = np.dtype([("visit", np.int32), ("trip", np.int32), ("enter", np.float32), ("leave", np.float32)])


class Passing(NamedTuple):
    """V visits of T past trips, and for each segment those K that are remembered; 32 bytes a visit."""

    trip: Segments  # [V]
    segment: Segments  # [V]
    enter: Reals  # [V] seconds from the start of the trip
    leave: Reals  # [V]
    offset: Ints  # [S+1] segment s has the visits seen[offset[s]:offset[s + 1]]
    seen: Records  # [K] SEEN, in the order of visits for each segment
    n_trips: int


def index_passing(visits: Visits, rank: Ints, n_segments: int, *, most: int = 300) -> Passing:
    """Return past trips in the order of visits by segment.

    Parameters
    ----------
    visits
        Of all past trips.
    rank
        Of the trips [T]: where a segment has more than ``most`` visits, those of the lowest rank are remembered. The
        same trips are left on all busy segments, so that they can still be joined.
    n_segments
        Number of segments of the network.
    most
        See ``rank``.
    """
    trip = np.repeat(np.arange(len(visits.offset) - 1), np.diff(visits.offset))
    order = np.lexsort((rank[trip], visits.segment))
    start = np.searchsorted(visits.segment[order], np.arange(n_segments + 1))
    place = np.arange(len(order)) - start[visits.segment[order]]
    kept = np.sort(order[place < most])
    kept = kept[np.argsort(visits.segment[kept], kind="stable")]
    offset = np.searchsorted(visits.segment[kept], np.arange(n_segments + 1)).astype(np.int64)
    return _passing(trip.astype(np.int32), visits.segment, visits.enter, visits.leave, offset, kept, len(rank))


def no_passing(n_segments: int) -> Passing:
    """Return no past trips."""
    none, times = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return _passing(none, none, times, times, np.zeros(n_segments + 1, np.int64), none, 0)


def passing_state(passing: Passing) -> Arrays:
    """Return past trips as plain arrays."""
    return {
        "trip": passing.trip,
        "segment": passing.segment,
        "enter": passing.enter,
        "leave": passing.leave,
        "offset": passing.offset,
        "visit": passing.seen["visit"].copy(),
        "n_trips": np.array([passing.n_trips]),
    }


def restored_passing(state: Arrays) -> Passing:
    """Return what :func:`passing_state` made arrays of."""
    return _passing(**{**state, "n_trips": int(state["n_trips"][0])})  # type: ignore[arg-type]


def _passing(
    trip: Segments, segment: Segments, enter: Reals, leave: Reals, offset: Ints, visit: Ints | Segments, n_trips: int
) -> Passing:
    """Return past trips with what is searched put together."""
    seen = np.empty(len(visit), SEEN)
    seen["visit"], seen["trip"], seen["enter"], seen["leave"] = visit, trip[visit], enter[visit], leave[visit]
    return Passing(trip, segment, enter, leave, offset, seen, n_trips)
