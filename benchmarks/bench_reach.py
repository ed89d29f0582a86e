"""Segments between fixes: share of missing true steps among them, how many they are, and gaps per second.

    python benchmarks/bench_reach.py out/chengdu_ds [--keep 1/8] [--trips 500]

Trips of the validation split, thinned by the package's rule; pace and links from the training trips. The times are CPU
seconds of one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.links import find_links, with_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.near import near_table
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.reach import Band, Gaps, GapSearch, Reached
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RADIUS_M, MOST_ENDS, NOISE_M, NAT_S = 100.0, 8, 10.0, 2.0


class Missing(NamedTuple):
    """Missing steps with their gaps."""

    gap: Ints
    segment: Ints


def learned(dataset: Dataset) -> tuple[RoadNetwork, Floats]:
    """Return the network with links and the seconds of each segment, from the training trips."""
    network = dataset.network
    drives = drives_of(network, dataset.split("train").trips())
    linked = with_links(network, find_links(drives))
    cost_s = linked.length_m / linked.speed_mps
    cost_s[: len(network)] = network.length_m * learn_pace(network, drives)
    return linked, cost_s


def gaps_of(network: RoadNetwork, trips: Trips, keep: str) -> tuple[Gaps, Missing]:
    """Return the gaps of thinned trips and the true segments, where known, of the steps that are missing.

    A fix far from all roads says nothing, so it ends no gap.
    """
    fix = np.flatnonzero(draw_observed(trips, keep, seed=0))
    finder = CandidateFinder(network)
    fix = fix[np.isfinite(finder.nearest(trips.lon[fix], trips.lat[fix], limit_m=RADIUS_M).distance_m)]
    found = finder.within(trips.lon[fix], trips.lat[fix], RADIUS_M, most=MOST_ENDS)
    extra_s = NAT_S * found.distance_m**2 / (2 * NOISE_M**2)
    trip = trips.trip_of_fix[fix]
    before = np.flatnonzero((np.diff(trip) == 0) & (np.diff(fix) > 1))  # no step is missing between neighbours

    def ends(which: Ints) -> tuple[Ints, NDArray[np.int32], Floats, Floats]:
        count = np.diff(found.offsets)[which]
        at = ranges(found.offsets[which], count)
        return np.concatenate([[0], np.cumsum(count)]), found.segment[at], found.ratio[at], extra_s[at]

    seconds = (trips.time[fix[before + 1]] - trips.time[fix[before]]).astype(np.float64)
    count = fix[before + 1] - fix[before] - 1
    segment = trips.segment[ranges(fix[before] + 1, count)].astype(np.int64)
    gap = np.repeat(np.arange(len(before)), count)
    return Gaps(seconds, *ends(before), *ends(before + 1)), Missing(gap[segment >= 0], segment[segment >= 0])


def recall(found: Reached, missing: Missing, n_segments: int) -> NDArray[np.bool_]:
    """Return which of the missing steps are on a segment that was found for their gap."""
    gap = np.repeat(np.arange(len(found.best_s)), np.diff(found.offset))
    pairs = np.unique(gap * n_segments + found.segment)
    return np.isin(missing.gap * n_segments + missing.segment, pairs)
