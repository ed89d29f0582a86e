"""From fixes at any time to steps: which fixes can be used, in which pieces a trip is recovered, and batches of them.

The steps of a piece start with its first fix and are ``step_s`` seconds apart; each fix belongs to the nearest one. A
gap that is too long ends a stretch, which is recovered as if it were a trip of its own. A stretch of very many steps,
or of many with many fixes, is recovered in several pieces that share the fix between them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import NO_TIME, Rejects
from tedtrajrec.trips.table import TEXT, Trips

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

MOST_GAP_S = 1800
MOST_AWAY_M = 1000.0
MOST_STEPS = 4000  # of a piece
MOST_PAIRS = 160_000  # of a step and a fix of a piece: 100 minutes with a fix every 15 s, half a gigabyte
BATCH_TRIPS = 64
BATCH_PAIRS = 30_000  # of a step and a fix, with padding: attention has a vector for each, gigabytes of dense trips


class Reason(IntEnum):
    """Why a fix is not used."""

    NO_POSITION = 1
    OFF_ROAD = 2
    NOT_AFTER = 3
    SHARES_STEP = 4
    ALONE = 5

    @property
    def text(self) -> str:
        """Return the reason in words."""
        return _WORDS[self]


_WORDS = {
    Reason.NO_POSITION: "has no position on Earth",
    Reason.OFF_ROAD: f"no road within {MOST_AWAY_M / 1000:g} km",
    Reason.NOT_AFTER: "not after the fix before",
    Reason.SHARES_STEP: "shares its step",
    Reason.ALONE: f"no fix of another step within {MOST_GAP_S:,} s",
}
NO_FIXES = "has no fixes"
TOO_FEW = "fewer than two fixes that can be used"


@dataclass(frozen=True, eq=False)
class Pieces:
    """P pieces of trips with the M fixes that are used, in the order of trips and time.

    A fix between two pieces of a stretch belongs to both.
    """

    trip: Ints  # [P] number of the trip
    stretch: Ints  # [P] number of the stretch, from 0 without holes
    offsets: Ints  # [P+1] piece i has the fixes offsets[i]:offsets[i + 1]
    fix: Ints  # [M] number of the fix among those of all trips
    step: Ints  # [M] its step from the start of the piece

    def __len__(self) -> int:
        return len(self.trip)

    @property
    def lengths(self) -> Ints:
        """Number of fixes of each piece [P]."""
        return np.diff(self.offsets)

    @property
    def steps(self) -> Ints:
        """Number of steps of each piece [P]."""
        return self.step[self.offsets[1:] - 1] + 1


def lay_out(trips: Trips, finder: CandidateFinder, step_s: int) -> tuple[Pieces, Rejects]:
    """Return the pieces of trips, and every fix and trip that cannot be used."""
    reason = _unusable(trips, finder)
    left = np.flatnonzero(reason == 0)
    trip, time = trips.trip_of_fix[left], trips.time[left]
    first, last, stretch = _cut(trip, time, step_s)
    row = ranges(first, last - first + 1)
    piece = np.repeat(np.arange(len(first)), last - first + 1)
    since = time[row] - time[first][piece]
    step = (2 * since + step_s) // (2 * step_s)  # the nearest; of two equally near, the later

    # Of the fixes of a step the nearest in time stays, and of equally near ones the first.
    order = np.lexsort([np.abs(since - step * step_s), step, piece])
    best = np.ones(len(order), bool)
    best[1:] = (np.diff(piece[order]) != 0) | (np.diff(step[order]) != 0)
    won = np.zeros(len(row), bool)
    won[order[best]] = True
    enough = np.bincount(piece[won], minlength=len(first)) > 1
    used = won & enough[piece]

    shares = np.ones(len(left), bool)
    shares[row[won]] = False
    reason[left] = np.where(shares, Reason.SHARES_STEP, Reason.ALONE)
    reason[left[row[used]]] = 0
    count = np.bincount(piece[used], minlength=len(first))[enough]
    pieces = Pieces(
        trip=trip[first[enough]],
        stretch=np.unique(stretch[enough], return_inverse=True)[1].astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        fix=left[row[used]],
        step=step[used],
    )
    return pieces, _rejects(trips, pieces, reason)


def _unusable(trips: Trips, finder: CandidateFinder) -> NDArray[np.uint8]:
    """Return why fixes cannot be used at all [F]; 0 for the others."""
    reason = np.zeros(trips.n_fixes, np.uint8)
    there = (np.abs(trips.lon) <= 180) & (np.abs(trips.lat) <= 90)  # not for NaN
    reason[~there] = Reason.NO_POSITION
    found = finder.within(trips.lon[there], trips.lat[there], MOST_AWAY_M, most=1)
    reason[np.flatnonzero(there)[np.diff(found.offsets) == 0]] = Reason.OFF_ROAD
    left = np.flatnonzero(reason == 0)
    if len(left):
        trip, time = trips.trip_of_fix[left], trips.time[left]
        # One rising key for all trips: the latest time so far within the trip.
        key = trip * (np.ptp(time) + 1) + time - time.min()
        late = np.ones(len(left), bool)
        late[1:] = (key[1:] > np.maximum.accumulate(key)[:-1]) | (np.diff(trip) != 0)
        reason[left[~late]] = Reason.NOT_AFTER
    return reason


def _cut(trip: Ints, time: Ints, step_s: int) -> tuple[Ints, Ints, Ints]:
    """Return the first and the last fix of each piece, both of it, and its stretch."""
    starts = np.ones(len(trip), bool)
    starts[1:] = (np.diff(trip) != 0) | (np.diff(time) > MOST_GAP_S)
    first = np.flatnonzero(starts)
    last = np.flatnonzero(np.append(starts, True)[1:])
    stretch = np.arange(len(first))
    longest = MOST_STEPS * step_s
    span = time[last] - time[first]
    long = np.flatnonzero((span > longest) | ((span // step_s + 1) * (last - first + 1) > MOST_PAIRS))
    if not len(long):
        return first, last, stretch
    pieces: list[tuple[int, int, int]] = []
    for s in long.tolist():
        at, end = int(first[s]), int(last[s])
        while at < end:
            since = time[at : min(end + 1, at + MOST_PAIRS)] - time[at]
            fits = (since <= longest) & ((since // step_s + 1) * np.arange(1, len(since) + 1) <= MOST_PAIRS)
            cut = at + max(int(fits.sum()) - 1, 1)  # a gap may be longer
            pieces.append((at, cut, s))
            at = cut
    short = np.setdiff1d(stretch, long)
    table = np.concatenate([np.column_stack([first[short], last[short], short]), np.array(pieces)])
    table = table[np.lexsort([table[:, 0], table[:, 2]])]
    return table[:, 0], table[:, 1], table[:, 2]


def _rejects(trips: Trips, pieces: Pieces, reason: NDArray[np.uint8]) -> Rejects:
    """Return the trips that are not recovered, each before those of its fixes that cannot be used."""
    lost = np.setdiff1d(np.arange(len(trips)), pieces.trip)
    fix = np.flatnonzero(reason)
    trip = np.concatenate([lost, trips.trip_of_fix[fix]])
    words = np.array(["", *(r.text for r in Reason), NO_FIXES, TOO_FEW], TEXT)
    code = np.concatenate([np.where(trips.lengths[lost] == 0, len(Reason) + 1, len(Reason) + 2), reason[fix]])
    order = np.argsort(trip, kind="stable")
    time = np.concatenate([np.full(len(lost), NO_TIME), trips.time[fix]])
    return Rejects(trips.traj_id[trip[order]], time[order], words[code[order].astype(np.int64)])


def canonical_batches(trips: Trips, pieces: Pieces) -> list[Ints]:
    """Return the pieces of each batch; it does not depend on the order of trips unless some are the same.

    Results can differ in their last digits with what else is in a batch, so one call must always make the same ones.
    """
    first = pieces.fix[pieces.offsets[:-1]]
    order = np.lexsort([trips.lat[first], trips.lon[first], trips.time[first], pieces.lengths, pieces.steps])
    steps, fixes = pieces.steps[order], pieces.lengths[order]
    batches = []
    at = 0
    while at < len(order):
        some = slice(at, at + BATCH_TRIPS)
        pairs = steps[some] * np.maximum.accumulate(fixes[some])  # of each piece, padded like the longest so far
        size = max(1, int((pairs * np.arange(1, len(pairs) + 1) <= BATCH_PAIRS).sum()))
        batches.append(order[at : at + size])
        at += size
    return batches


def batch_of(
    trips: Trips,
    pieces: Pieces,
    which: Ints,
    network: RoadNetwork,
    *,
    step_s: int,
    time_zone: str,
    exact: bool,
) -> Batch:
    """Return some pieces as a batch.

    Parameters
    ----------
    trips, pieces
        What :func:`lay_out` was given and returned.
    which
        Numbers of the pieces.
    network, step_s, time_zone
        Of the method.
    exact
        Whether the last fix of a piece keeps its time as the others do; else it has that of its step.
    """
    lengths = pieces.steps[which]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    count = pieces.lengths[which]
    used = ranges(pieces.offsets[which], count)
    row = np.repeat(offsets[:-1], count) + pieces.step[used]
    start = trips.time[pieces.fix[pieces.offsets[which]]]
    time = np.repeat(start, lengths) + ranges(np.zeros(len(which), np.int64), lengths) * step_s
    lon, lat = np.full(offsets[-1], np.nan), np.full(offsets[-1], np.nan)
    fix = pieces.fix[used]
    lon[row], lat[row] = trips.lon[fix], trips.lat[fix]
    ends = time[offsets[1:] - 1]
    time[row] = trips.time[fix]
    if not exact:
        time[offsets[1:] - 1] = ends
    observed = np.zeros(offsets[-1], bool)
    observed[row] = True
    steps = Trips(trips.traj_id[pieces.trip[which]], offsets, time, lon, lat)
    return make_batch(steps, observed, network, step_s=step_s, time_zone=time_zone)
