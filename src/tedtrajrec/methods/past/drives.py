"""What past trips drove between consecutive steps: the raw material of learned pace and of popular routes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

TOP_SPEED_MPS = 40.0
"""A step that would need more is no drive: the map lacks a road there, or the true positions are wrong."""


class Drives(NamedTuple):
    """K drives from one step to the next along the shortest route, and J leaps, where no route can be driven."""

    offsets: Ints  # [K+1] drive k has the segments offsets[k]:offsets[k + 1]
    segment: Segments  # [N] in driving order
    metres: Floats  # [N] driven on each
    time: Ints  # [K] epoch seconds of its start
    seconds: Floats  # [K] it took
    leap_from: Segments  # [J] segment before the leap
    leap_to: Segments  # [J] and after it
    leap_trip: Ints  # [J] number of the trip

    @property
    def drive_of(self) -> Ints:
        """Number of the drive of each segment driven [N]."""
        return np.repeat(np.arange(len(self.seconds)), np.diff(self.offsets))


def drives_of(network: RoadNetwork, trips: Trips, *, workers: int | None = None) -> Drives:
    """Return the drives between consecutive steps of known position.

    Parameters
    ----------
    network
        The network of the positions.
    trips
        Trips with segment and ratio. A step backwards on one segment counts as standing still.
    workers
        Number of threads; all processors if not given.
    """
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no positions")
    trip, known = trips.trip_of_fix, trips.segment >= 0
    step = np.flatnonzero(known[:-1] & known[1:] & (trip[:-1] == trip[1:]))
    a, b = trips.segment[step], trips.segment[step + 1]
    from_a, to_b = trips.ratio[step], trips.ratio[step + 1]
    to_b = np.where((a == b) & (to_b < from_a), from_a, to_b)
    seconds = (trips.time[step + 1] - trips.time[step]).astype(np.float64)
    routes = Router(network).routes(a, from_a, b, to_b, limit_m=TOP_SPEED_MPS * seconds, workers=workers)

    found = np.diff(routes.offsets) > 0  # the others have no segments, so the flat list stays as it is
    offsets = np.concatenate([[0], np.cumsum(np.diff(routes.offsets)[found])]).astype(np.int64)
    low, high = np.zeros(len(routes.segment)), np.ones(len(routes.segment))
    low[offsets[:-1]], high[offsets[1:] - 1] = from_a[found], to_b[found]
    return Drives(
        offsets=offsets,
        segment=routes.segment,
        metres=(high - low) * network.length_m[routes.segment],
        time=trips.time[step][found],
        seconds=seconds[found],
        leap_from=a[~found],
        leap_to=b[~found],
        leap_trip=trip[step][~found],
    )
