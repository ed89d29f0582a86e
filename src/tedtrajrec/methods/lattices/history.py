"""What past trips say of the ways between candidates, from the table of pairs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.methods.past.pairs import OwnPairs, Pairs, pair_without
from tedtrajrec.methods.past.passed import Ends
from tedtrajrec.network.near import find_near

Floats = NDArray[np.float64]
Segments = NDArray[np.int32]

WITHIN_S = 900.0  # of the pairs of past trips
LIKELY = 0.02  # ends of less weight are not looked up
PRIOR_TRIPS = 2.0  # with the usual spread, added to those of a pair
USUAL_S, USUAL_SHARE = 10.0, 0.25  # the usual spread of a time: so many seconds, and this share of it
OFF_S, OFF_SHARE = 15.0, 0.25  # the same between two fixes

TRIPS, MEAN_S, SD_S, SQUARE = 0, 1, 2, 3  # columns of what `between` fills in; the last one is for its own use
FITTING, ALL = 0, 1  # columns of what `joining` fills in


class History(NamedTuple):
    """Pairs of past trips, and how to take the asking ones out."""

    pairs: Pairs
    own: OwnPairs  # of the trips of the batch, or of none
    left_out: bool  # the trips of the batch have part in the pairs


@njit(cache=True, nogil=True)
def between(
    history: History, trip: int, ends: Ends, fix: int, later: bool, cost: Floats, segment: Segments, out: Floats
) -> None:  # pragma: no cover  (compiled)
    """Fill in how many trips came from a fix to each segment (``later``: went from it to the fix), and their times.

    Parameters
    ----------
    history, trip
        Past trips, and the number of the asking one.
    ends, fix, later
        Candidates of the fixes, and the fix at the end of the gap; whether it is the later end.
    cost
        Seconds that each segment takes.
    segment
        Candidates of the gap [C].
    out
        Trips, mean and standard deviation of their seconds from the fix to the start of the segment (from its end to
        the fix) [C, 4].
    """
    pairs, own = history.pairs, history.own
    out[: len(segment)] = 0.0
    for k in range(ends.offset[fix], ends.offset[fix + 1]):
        if ends.weight[k] < LIKELY:
            continue
        s = ends.segment[k]
        rest = (ends.ratio[k] if later else 1.0 - ends.ratio[k]) * cost[s]
        in_pairs = history.left_out and find_near(own.offset, own.segment, trip, s) >= 0
        for c in range(len(segment)):
            a, b = (segment[c], s) if later else (s, segment[c])
            q = find_near(pairs.offset, pairs.target, a, b)
            if q < 0:
                continue
            count, squares = float(pairs.trips[q]), float(pairs.squares[q])
            took = float(pairs.seconds[q]) / count
            if in_pairs and find_near(own.offset, own.segment, trip, segment[c]) >= 0:
                count, took, squares = pair_without(pairs, own, trip, a, b)
            usual = USUAL_S + USUAL_SHARE * took
            weight = ends.weight[k] * count
            out[c, TRIPS] += weight
            out[c, MEAN_S] += weight * (rest + took)
            out[c, SQUARE] += weight * (rest + took) * (rest + took)
            out[c, SD_S] += weight * (squares + PRIOR_TRIPS * usual * usual) / (count + PRIOR_TRIPS)
    for c in range(len(segment)):
        total = out[c, TRIPS]
        if total > 0.0:
            mean = out[c, MEAN_S] / total
            out[c, MEAN_S] = mean
            out[c, SD_S] = np.sqrt(out[c, SD_S] / total + max(out[c, SQUARE] / total - mean * mean, 0.0))


@njit(cache=True, nogil=True)
def joining(
    history: History,
    trip: int,
    ends: Ends,
    fix: int,
    other: int,
    seconds: float,
    cost: Floats,
    out: Floats,
) -> None:  # pragma: no cover  (compiled)
    """Fill in how many trips joined each candidate of ``fix`` with those of ``other``, the fix before or after.

    Parameters
    ----------
    history, trip
        Past trips, and the number of the asking one.
    ends, fix, other
        Candidates of the fixes, and two of them.
    seconds
        Between the two.
    cost
        Seconds that each segment takes.
    out
        Trips whose time fits that of the gap (each as well as it does), and all of them [K, 2].
    """
    pairs, own = history.pairs, history.own
    later = other > fix
    for r in range(ends.offset[fix], ends.offset[fix + 1]):
        e, fitting, every = ends.segment[r], 0.0, 0.0
        here = (1.0 - ends.ratio[r] if later else ends.ratio[r]) * cost[e]
        in_pairs = history.left_out and find_near(own.offset, own.segment, trip, e) >= 0
        for k in range(ends.offset[other], ends.offset[other + 1]):
            if ends.weight[k] < LIKELY:
                continue
            s = ends.segment[k]
            a, b = (e, s) if later else (s, e)
            q = find_near(pairs.offset, pairs.target, a, b)
            if q < 0:
                continue
            count = float(pairs.trips[q])
            took = float(pairs.seconds[q]) / count
            if in_pairs and find_near(own.offset, own.segment, trip, s) >= 0:
                count, took, _ = pair_without(pairs, own, trip, a, b)
            there = (ends.ratio[k] if later else 1.0 - ends.ratio[k]) * cost[s]
            off = (seconds - took - here - there) / (OFF_S + OFF_SHARE * seconds)
            every += ends.weight[k] * count
            fitting += ends.weight[k] * count * np.exp(-0.5 * off * off)
        out[r - ends.offset[fix], FITTING], out[r - ends.offset[fix], ALL] = fitting, every


@njit(cache=True, nogil=True)
def count_visits(history: History, trip: int, segment: Segments, out: Floats) -> None:  # pragma: no cover  (compiled)
    """Fill in how many other trips drove each of some segments."""
    for c in range(len(segment)):
        out[c] = history.pairs.visits[segment[c]]
        if history.left_out and find_near(history.own.offset, history.own.segment, trip, segment[c]) >= 0:
            out[c] -= 1.0
