"""Passing: which past trips drove each segment, and when, so that those that passed two fixes are quickly found.

Their votes are counted in :mod:`tedtrajrec.methods.past.passed`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.past.visits import Visits

Ints = NDArray[np.int64]
Reals = NDArray[np.float32]
Segments = NDArray[np.int32]


class Passing(NamedTuple):
    """V visits of T past trips, and for each segment those K that are remembered; 24 bytes a visit."""

    trip: Segments  # [V]
    segment: Segments  # [V]
    enter: Reals  # [V] seconds from the start of the trip
    leave: Reals  # [V]
    offset: Ints  # [S+1] visits of segment s are visit[offset[s]:offset[s + 1]]
    visit: Segments  # [K] rising for each segment
    by: Segments  # [K] the trips of these visits: what is searched lies together
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
    return Passing(
        trip.astype(np.int32),
        visits.segment,
        visits.enter,
        visits.leave,
        np.searchsorted(visits.segment[kept], np.arange(n_segments + 1)).astype(np.int64),
        kept.astype(np.int32),
        trip[kept].astype(np.int32),
        len(visits.offset) - 1,
    )


def no_passing(n_segments: int) -> Passing:
    """Return no past trips."""
    none, times = np.zeros(0, np.int32), np.zeros(0, np.float32)
    return Passing(none, none, times, times, np.zeros(n_segments + 1, np.int64), none, none, 0)


def passing_state(passing: Passing) -> Arrays:
    """Return past trips as plain arrays."""
    return {name: np.atleast_1d(value) for name, value in passing._asdict().items() if name != "by"}


def restored_passing(state: Arrays) -> Passing:
    """Return what :func:`passing_state` made arrays of."""
    by, n_trips = state["trip"][state["visit"]], int(state["n_trips"][0])
    return Passing(**{**state, "by": by, "n_trips": n_trips})  # type: ignore[arg-type]
