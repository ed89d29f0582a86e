"""Straight lines between fixes, and roads along them: the last resort of methods that follow routes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.polylines import locate
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Segments = NDArray[np.int32]

MOST_ROADS = 12  # nearest segments to choose among
TURN_M = 60.0  # metres that a right angle between road and movement costs


class Straight(NamedTuple):
    """The straight line through the fixes at each of N steps."""

    lon: Floats  # [N]
    lat: Floats  # [N]
    east: Floats  # [N] metres from the fix before to the fix after; 0 where there is only one
    north: Floats  # [N]


class Around(NamedTuple):
    """The fixes around each of N steps, by number among all fixes of a batch."""

    before: NDArray[np.int64]  # [N] before the first fix of a trip it is the first
    after: NDArray[np.int64]  # [N] after the last fix it is the last; at an observed step it is the fix
    share: Floats  # [N] of the time from the one to the other that has passed, 0 where they are the same


def fixes_around(batch: Batch, fixes: Trips) -> Around:
    """Return the neighbouring fixes of every real step of a batch, of which these are all; every trip has a fix."""
    if (fixes.lengths == 0).any():
        raise ValueError("a trip has no fix")
    offsets, time = batch.step_times()
    trip = np.repeat(np.arange(len(batch)), np.diff(offsets))
    # One rising key for all trips, so that a single search finds the neighbours of all steps.
    first = min(fixes.time.min(initial=0), time.min(initial=0))
    span = max(fixes.time.max(initial=0), time.max(initial=0)) - first + 1
    key = fixes.trip_of_fix * span + fixes.time - first
    after = np.searchsorted(key, trip * span + time - first)
    low, high = fixes.offsets[:-1][trip], fixes.offsets[1:][trip] - 1
    before, after = np.clip(after - 1, low, high), np.clip(after, low, high)
    elapsed = fixes.time[after] - fixes.time[before]
    share = (time - fixes.time[before]) / np.maximum(elapsed, 1)
    return Around(before, after, np.where(elapsed > 0, share, 0.0))


def straight_steps(batch: Batch, network: RoadNetwork) -> Straight:
    """Return where the straight line between its two neighbouring fixes is at every real step of a batch.

    At an observed step that is the fix itself; before the first fix of a trip it is the first, after the last the last.
    Every trip must have a fix.
    """
    fixes = batch.fixes(network)
    before, after, share = fixes_around(batch, fixes)
    x, y = network.plane.to_xy(fixes.lon, fixes.lat)
    east, north = x[after] - x[before], y[after] - y[before]
    lon, lat = network.plane.to_lonlat(x[before] + share * east, y[before] + share * north)
    observed = batch.step_times()[1] == fixes.time[after]
    return Straight(np.where(observed, fixes.lon[after], lon), np.where(observed, fixes.lat[after], lat), east, north)


def roads_along(finder: CandidateFinder, line: Straight) -> tuple[Segments, Floats]:
    """Return the segment and ratio near each point whose direction fits the movement."""
    network = finder.network
    segment, ratio = np.empty(len(line.lon), np.int32), np.empty(len(line.lon))
    if not len(line.lon):
        return segment, ratio
    reach = finder.nearest(line.lon, line.lat).distance_m + 2 * TURN_M
    found = finder.within(line.lon, line.lat, reach, most=MOST_ROADS)
    point = np.repeat(np.arange(len(line.lon)), np.diff(found.offsets))
    x, y = network.geom_xy
    vertex, _ = locate(network.geom_offset, network.geom_along, found.segment.astype(np.int64), found.ratio)
    along_x, along_y = x[vertex + 1] - x[vertex], y[vertex + 1] - y[vertex]
    size = np.hypot(along_x, along_y) * np.hypot(line.east, line.north)[point]
    cosine = np.divide(
        along_x * line.east[point] + along_y * line.north[point], size, out=np.ones(len(size)), where=size > 0
    )
    cost = found.distance_m + TURN_M * (1 - cosine)
    best = np.lexsort([cost, point])[found.offsets[:-1]]
    return found.segment[best], found.ratio[best]
