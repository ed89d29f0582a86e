"""From what a method answered to recovered trips: rows at the times asked for, rounded, with all their columns."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.answers import Answers, knots_of
from tedtrajrec.recovery.grid import Pieces
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects, kept_by_trip, no_trips
from tedtrajrec.recovery.rows import around, find_breaks, row_times, rows_from
from tedtrajrec.trips.table import TEXT, Trips

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NO_ANSWER = "the method found no road"


class _Stretches(NamedTuple):
    """Q stretches of trips."""

    trip: Ints  # [Q]
    start: Ints  # [Q] epoch seconds of the first fix that is used
    end: Ints  # [Q] ... of the last
    answered: Mask  # [Q] whether the method placed any step


def dense_trips(router: Router, trips: Trips, pieces: Pieces, answers: Answers, step_s: int) -> RecoveredTrips:
    """Return recovered trips in the order of the input, each followed by its alternatives.

    Parameters
    ----------
    router
        Over the metres of the network.
    trips, pieces, answers
        The fixes, and what the method answered.
    step_s
        Seconds from row to row.
    """
    stretches = _stretches(trips, pieces, answers)
    rejects = _without_answer(trips, pieces, stretches)
    parts, numbers = [], []
    for rank in range(len(answers.segment)):
        number = np.unique(stretches.trip[stretches.answered])
        if rank:
            number = np.intersect1d(number, pieces.trip[answers.share[rank] > 0])
        if len(number):
            parts.append(_one_rank(router, trips, pieces, answers, stretches, number, rank, step_s))
            numbers.append(number)
    if not parts:
        return no_trips(rejects)
    whole = RecoveredTrips.concat(parts)
    ordered = whole.select(np.lexsort((whole.rank, np.concatenate(numbers))))
    return dataclasses.replace(ordered, rejects=rejects)


def _stretches(trips: Trips, pieces: Pieces, answers: Answers) -> _Stretches:
    first = np.flatnonzero(np.diff(pieces.stretch, prepend=-1))  # piece that begins each stretch
    last = np.append(first[1:], len(pieces)) - 1
    placed = np.repeat(pieces.stretch, np.diff(answers.offsets))[answers.segment[0] >= 0]
    return _Stretches(
        trip=pieces.trip[first],
        start=trips.time[pieces.fix[pieces.offsets[first]]],
        end=trips.time[pieces.fix[pieces.offsets[last + 1] - 1]],
        answered=np.bincount(placed, minlength=len(first)) > 0,
    )


def _without_answer(trips: Trips, pieces: Pieces, stretches: _Stretches) -> Rejects:
    """Return the fixes of stretches for which the method knows nothing, and the trips that have no others."""
    fix = np.unique(pieces.fix[~stretches.answered[np.repeat(pieces.stretch, pieces.lengths)]])
    lost = np.setdiff1d(stretches.trip, stretches.trip[stretches.answered])
    trip = np.concatenate([lost, trips.trip_of_fix[fix]])
    time = np.concatenate([np.full(len(lost), NO_TIME), trips.time[fix]])
    order = np.argsort(trip, kind="stable")
    return Rejects(trips.traj_id[trip[order]], time[order], np.full(len(trip), NO_ANSWER, TEXT))


def _one_rank(
    router: Router,
    trips: Trips,
    pieces: Pieces,
    answers: Answers,
    stretches: _Stretches,
    number: Ints,
    rank: int,
    step_s: int,
) -> RecoveredTrips:
    """Return the given trips themselves, or their alternative of a rank."""
    network = router.network
    some = np.flatnonzero(stretches.answered & np.isin(stretches.trip, number))
    offsets, time = row_times(stretches.start[some], stretches.end[some], step_s)
    rows = rows_from(router, knots_of(answers, pieces, rank, some), offsets, time)
    ratio = np.round(rows.ratio, 6)
    lon, lat = network.point_at(rows.segment, ratio)
    trip_offsets = np.append(offsets[np.searchsorted(stretches.trip[some], number)], offsets[-1])
    starts = np.zeros(len(time), bool)
    starts[trip_offsets[:-1]] = True
    broken = find_breaks(router, starts, time, rows.segment, ratio)
    broken[offsets[:-1]] = ~starts[offsets[:-1]]  # nobody knows how the vehicle came through the gap
    return RecoveredTrips(
        traj_id=trips.traj_id[number],
        offsets=trip_offsets,
        time=time,
        lon=np.round(lon, 7),
        lat=np.round(lat, 7),
        segment=rows.segment,
        ratio=ratio,
        osm_way_id=network.way_at(rows.segment, ratio),
        observed=_observed(trips, pieces, some, offsets, time),
        probability=np.round(rows.probability, 4).astype(np.float32),
        broken=broken,
        trip_extra=kept_by_trip(trips, number),
        rank=np.full(len(number), rank, np.int16),
        share=_shares(pieces, answers, number, rank),
    )


def _observed(trips: Trips, pieces: Pieces, some: Ints, offsets: Ints, time: Ints) -> Mask:
    """Return which rows are the nearest one in time to a fix."""
    stretch = np.repeat(pieces.stretch, pieces.lengths)
    mine = np.isin(stretch, some)
    fix_offsets = np.searchsorted(stretch[mine], np.append(some, len(pieces))).astype(np.int64)
    fix_time = trips.time[pieces.fix[mine]]
    before, after = around(offsets, time.astype(np.float64), fix_offsets, fix_time)
    observed = np.zeros(len(time), bool)
    observed[np.where(fix_time - time[before] <= time[after] - fix_time, before, after)] = True
    return observed


def _shares(pieces: Pieces, answers: Answers, number: Ints, rank: int) -> NDArray[np.float32]:
    """Return the share of draws that drive the routes of all pieces of each trip, as if these were independent."""
    own = (answers.share[rank] == 0) if rank else np.ones(len(pieces), bool)
    share = np.where(own, answers.share[0], answers.share[rank])
    mine = np.flatnonzero(np.isin(pieces.trip, number))
    first = np.searchsorted(pieces.trip[mine], number)
    return np.round(np.multiply.reduceat(share[mine], first), 4).astype(np.float32)
