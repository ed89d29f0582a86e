"""Which trips cannot be trusted, and why each one is dropped."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.preparing.config import DropConfig
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Drop(IntEnum):
    """Why a trip is not in the dataset, beside the reasons of cleaning; files use :attr:`text`."""

    NO_TRUTH = 1  # no step has both a fix and a known true position
    BELOW_MIN_STEPS = 2
    BELOW_MIN_DURATION = 3
    ABOVE_MAX_DURATION = 4
    BROKEN_ROUTE = 5  # too many steps are unknown, and the matcher found no way through the whole trip
    UNKNOWN_TRUTH = 6  # too many steps are unknown for other reasons
    FAR_FROM_ROADS = 7  # the fixes are too far from the true positions
    NO_SPLIT = 8  # the column that divides the trips is empty
    REPEATED_TRIP = 9  # has exactly the fixes of an earlier trip
    SHARED_FIXES = 10  # a training trip with fixes of a trip of another split

    @property
    def text(self) -> str:
        """Return the name used in files, such as ``no_truth``."""
        return self.name.lower()


TOO_SPARSE = Drop.UNKNOWN_TRUTH.text
DENSE_ENOUGH = (
    "A dataset is made of past trips with a fix every step or two, of which most are hidden in training; sparse trips "
    "are recovered as they are."
)


def trimmed(steps: Trips) -> Mask:
    """Return which steps [K] lie from the first to the last one that has a fix and a known position, of each trip."""
    if steps.segment is None:
        raise ValueError("the steps carry no positions")
    whole = np.isfinite(steps.lon) & (steps.segment >= 0)
    seen = np.concatenate([[0], np.cumsum(whole)])
    trip = steps.trip_of_fix
    so_far = seen[1:] - seen[steps.offsets[:-1]][trip]
    to_come = seen[steps.offsets[1:]][trip] - seen[:-1]
    inside: Mask = (so_far > 0) & (to_come > 0)
    return inside


def judge(steps: Trips, distance_m: Floats, broken: Mask, config: DropConfig) -> NDArray[np.uint8]:
    """Return for each trip why it is dropped [T], or 0.

    Parameters
    ----------
    steps
        Trips with one row a step, trimmed.
    distance_m
        From the fix of each step to its true position [K], NaN without.
    broken
        Which trips have no route through the whole [T].
    """
    if steps.segment is None:
        raise ValueError("the steps carry no positions")
    count = steps.lengths
    filled = count > 0
    first, last = steps.offsets[:-1][filled], steps.offsets[1:][filled] - 1
    duration = np.zeros(len(steps))
    duration[filled] = steps.time[last] - steps.time[first]
    unknown = np.bincount(steps.trip_of_fix[steps.segment < 0], minlength=len(steps)) / np.maximum(count, 1)
    why = np.zeros(len(steps), np.uint8)
    # The first rule that a trip breaks names the reason, so the last one is written first.
    if config.max_median_m:
        why[_medians(steps, distance_m) > config.max_median_m] = Drop.FAR_FROM_ROADS
    why[unknown > config.max_unknown] = Drop.UNKNOWN_TRUTH
    why[(unknown > config.max_unknown) & broken] = Drop.BROKEN_ROUTE
    if config.max_duration_s:
        why[duration > config.max_duration_s] = Drop.ABOVE_MAX_DURATION
    why[duration < config.min_duration_s] = Drop.BELOW_MIN_DURATION
    why[count < config.min_steps] = Drop.BELOW_MIN_STEPS
    why[~filled] = Drop.NO_TRUTH
    return why


def count_drops(codes: NDArray[np.uint8]) -> dict[str, int]:
    """Return how often each reason occurs among codes; zeros do not count."""
    counts = np.bincount(codes, minlength=len(Drop) + 1)
    return {drop.text: int(counts[drop]) for drop in Drop if counts[drop]}


def _medians(steps: Trips, values: Floats) -> Floats:
    """Return the (upper) median of the known values of each trip [T]; NaN without any."""
    known = np.flatnonzero(np.isfinite(values))
    trip = steps.trip_of_fix[known]
    order = np.lexsort((values[known], trip))
    count = np.bincount(trip, minlength=len(steps))
    middle = np.cumsum(count) - count + count // 2
    median = np.full(len(steps), np.nan)
    some = count > 0
    median[some] = values[known][order][middle[some]]
    return median
