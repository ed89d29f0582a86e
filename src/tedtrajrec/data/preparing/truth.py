"""True positions at the steps: given with the fixes, or found by the matcher."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.preparing.config import TruthConfig
from tedtrajrec.data.preparing.grid import StepGrid, bracket
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import Matcher
from tedtrajrec.trips.resample import positions_on_routes
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Segments = NDArray[np.int32]


class Truth(NamedTuple):
    """The true position at each of K steps of T trips."""

    segment: Segments  # [K] -1 where unknown
    ratio: Floats  # [K] NaN where unknown
    broken: NDArray[np.bool_]  # [T] the matcher found no way through the whole trip


def given_truth(trips: Trips, grid: StepGrid) -> Truth:
    """Return the positions that fixes carry, at the steps on which a fix lies; the others are unknown."""
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no segment and ratio")
    fix = bracket(trips, grid).before
    known = fix >= 0
    known[known] = (trips.time[fix[known]] == grid.time[known]) & (trips.segment[fix[known]] >= 0)
    known[known] = np.isfinite(trips.ratio[fix[known]])
    segment, ratio = np.full(len(fix), -1, np.int32), np.full(len(fix), np.nan)
    segment[known], ratio[known] = trips.segment[fix[known]], trips.ratio[fix[known]]
    return Truth(segment, ratio, np.zeros(len(trips), np.bool_))


def matched_truth(
    trips: Trips, grid: StepGrid, matcher: Matcher, config: TruthConfig, *, workers: int | None = None
) -> Truth:
    """Return positions on the matched routes, between two matched fixes at the same share of free flow everywhere.

    A step is unknown in a break of the route, where the matched fixes around it are too far apart, and where one of
    them is too far from the road.
    """
    matched = matcher.match(trips, workers=workers)
    cost = 1.0 / matcher.network.speed_mps.astype(np.float64)
    segment, ratio = positions_on_routes(matcher.network, trips, matched, grid.offsets, grid.time, metre_cost=cost)
    before, after = bracket(trips, grid, matched.segment >= 0)
    doubtful = (before >= 0) & (after >= 0)
    i, j = before[doubtful], after[doubtful]
    doubtful[doubtful] = (trips.time[j] - trips.time[i] > config.max_gap_s) | (
        np.maximum(matched.distance_m[i], matched.distance_m[j]) > config.max_distance_m
    )
    segment[doubtful], ratio[doubtful] = -1, np.nan
    return Truth(segment, ratio, np.diff(matched.piece_offsets) > 1)


def filled_truth(
    given: Truth, trips: Trips, grid: StepGrid, matcher: Matcher, config: TruthConfig, *, workers: int | None = None
) -> Truth:
    """Return the given positions, and those of the matcher where none is given."""
    unknown = given.segment < 0
    some = np.zeros(len(trips), np.bool_)
    some[grid.trip[unknown]] = True
    if not some.any():
        return given
    mine = some[grid.trip]
    lengths = np.diff(grid.offsets)[some]
    part = StepGrid(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), grid.time[mine])
    found = matched_truth(trips.select(some), part, matcher, config, workers=workers)
    segment, ratio, broken = given.segment.copy(), given.ratio.copy(), given.broken.copy()
    segment[unknown], ratio[unknown] = found.segment[unknown[mine]], found.ratio[unknown[mine]]
    broken[some] = found.broken
    return Truth(segment, ratio, broken)


def make_truth(
    trips: Trips, grid: StepGrid, matcher: Matcher | None, config: TruthConfig, *, workers: int | None = None
) -> Truth:
    """Return the true positions as the settings want them; without a matcher, those that are given."""
    if matcher is None:
        return given_truth(trips, grid)
    if config.source == "match" or (config.source == "auto" and trips.segment is None):
        return matched_truth(trips, grid, matcher, config, workers=workers)
    given = given_truth(trips, grid)
    if not config.rematch:
        return given
    return filled_truth(given, trips, grid, matcher, config, workers=workers)


def distances_m(network: RoadNetwork, lon: Floats, lat: Floats, truth: Truth) -> Floats:
    """Return how far the fix of each step is from its true position [K]; NaN without either."""
    both = np.flatnonzero((truth.segment >= 0) & np.isfinite(lon))
    distance = np.full(len(lon), np.nan)
    x, y = network.plane.to_xy(lon[both], lat[both])
    at_x, at_y = network.plane.to_xy(*network.point_at(truth.segment[both], truth.ratio[both]))
    distance[both] = np.hypot(x - at_x, y - at_y)
    return distance
