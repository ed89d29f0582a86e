"""Cleaning: raw fixes of vehicles in, trips one can trust out, and a reason for everything that is gone.

The stages run in this order; each is a function here, and each can be switched off in :class:`CleanConfig`.

1. Fixes without a position are dropped.
2. Fixes are put in order of time, and of several at the same time the first is kept.
3. Fixes while the vehicle is inactive (ignition off, not occupied) are dropped and cut the trip.
4. Trips are cut at gaps.
5. Fixes that cannot be reached at the highest speed are dropped; a lasting change of place cuts the trip.
6. Stays cut the trip, and the fixes within them are dropped.
7. Fixes far from the network are dropped and cut the trip.
8. Trips that are too small or too long are dropped.

Stages 3 to 8 never join what was apart, and what each one rules out cannot come back in a part of a trip. So cleaning
what is clean changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.cleaning import motion
from tedtrajrec.trips.cleaning.pieces import Pieces
from tedtrajrec.trips.cleaning.rejects import (
    NO_TIME,
    WHOLE_TRIP,
    CleanSummary,
    Reason,
    Rejects,
    count_reasons,
)
from tedtrajrec.trips.table import Trips, as_text

ON_WORDS = frozenset({"1", "true", "t", "yes", "y", "on"})
OFF_WORDS = frozenset({"0", "false", "f", "no", "n", "off"})

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class CleanConfig:
    """How trips are cleaned. The defaults suit fleets with a fix every second to every five minutes; 0 means off."""

    out_of_order: Literal["sort", "drop"] = "sort"  # fixes older than one before them
    drop_duplicates: bool = True  # keep only the first of several fixes at the same time
    active_column: str = ""  # a column of the fixes, such as ignition or occupied; empty: none
    active_values: tuple[
        str, ...
    ] = ()  # its values that mean active; empty: 1, true, t, yes, y, on (0, ... off are not)
    max_gap_s: float = 600.0  # cut where no fix comes for longer
    max_speed_mps: float = 50.0  # no vehicle is faster (180 km/h)
    max_outliers: int = 5  # a longer stretch elsewhere is a change of place, not a row of outliers
    stop_radius_m: float = 50.0  # a stay is within this distance of its first fix
    stop_min_s: float = 600.0  # and lasts at least so long; jams and lights do not
    crop_distance_m: float = 500.0  # farther from every segment is outside, where a network is given
    min_fixes: int = 2
    min_duration_s: float = 60.0
    max_duration_s: float = 0.0
    min_length_m: float = 100.0  # along the fixes

    def __post_init__(self) -> None:
        for name in (
            "max_gap_s",
            "max_speed_mps",
            "max_outliers",
            "stop_radius_m",
            "stop_min_s",
            "crop_distance_m",
            "min_fixes",
            "min_duration_s",
            "max_duration_s",
            "min_length_m",
        ):
            value = getattr(self, name)
            if not (np.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {value}; it must be a number of at least 0")
        if self.out_of_order not in ("sort", "drop"):
            raise ValueError(f"out_of_order is '{self.out_of_order}'; it must be 'sort' or 'drop'")
        if 0 < self.max_duration_s < self.min_duration_s:
            raise ValueError(f"max_duration_s ({self.max_duration_s}) is below min_duration_s ({self.min_duration_s})")
        if self.active_values and not self.active_column:
            raise ValueError("active_values are given without active_column, the column they occur in")


DEFAULTS = CleanConfig()


@dataclass(frozen=True, eq=False)
class Cleaned:
    """Clean trips, with an account of what was dropped."""

    trips: Trips
    summary: CleanSummary
    rejects: Rejects


def clean_trips(
    trips: Trips, config: CleanConfig = DEFAULTS, network: RoadNetwork | CandidateFinder | None = None
) -> Cleaned:
    """Return clean trips and what was dropped to get them; the input is not changed.

    Of a trip that is cut, the pieces left are called ``<id>#1``, ``<id>#2``, ...; a single piece keeps the id. Ids are
    unique afterwards, also where they were not.

    Parameters
    ----------
    trips
        Trips, or the streams of vehicles with one id each, to be cut into trips.
    config
        Thresholds and switches.
    network
        The network to crop to, or its finder, which saves building it for every chunk; nothing is cropped without.

    Raises
    ------
    InputError
        If the column of ``config.active_column`` is missing, or holds a word that is neither on nor off.
    """
    pieces = Pieces(trips)
    pieces.drop((np.abs(trips.lon) <= 180) & (np.abs(trips.lat) <= 90), Reason.NO_POSITION)  # NaN is neither
    reordered = _order(pieces, config)
    if config.drop_duplicates:
        _drop_duplicates(pieces)
    if config.active_column:
        _cut_inactive(pieces, config)
    _cut_gaps(pieces, config)
    if config.max_speed_mps:
        _drop_jumps(pieces, config)
        _cut_gaps(pieces, config)  # a dropped fix may have been the only one for long
    if config.stop_min_s:
        _cut_stays(pieces, config)
    if network is not None and config.crop_distance_m:
        _crop(pieces, config, network)
    cuts = pieces.cut[~pieces.first_of_trip]
    lost = np.flatnonzero(np.bincount(pieces.trip, minlength=len(trips)) == 0)
    dropped, why = _drop_by_size(pieces, config)

    lost_why = np.where(trips.lengths[lost] == 0, Reason.EMPTY, Reason.NOTHING_LEFT).astype(np.uint8)
    rejects = _list_rejects(
        trips,
        pieces.reason,
        first=np.concatenate([trips.offsets[lost], dropped]),
        trip=np.concatenate([lost, _trip_of(trips, dropped)]),
        why=np.concatenate([lost_why, why]),
    )
    clean = pieces.to_trips()
    summary = CleanSummary(
        trips_in=len(trips),
        fixes_in=trips.n_fixes,
        trips_out=len(clean),
        fixes_out=clean.n_fixes,
        fixes_reordered=reordered,
        fixes_dropped=count_reasons(pieces.reason),
        trips_dropped=count_reasons(np.concatenate([lost_why, why])),
        cuts=count_reasons(cuts),
    )
    return Cleaned(clean, summary, rejects)


# ---------------------------------------------------------------------- stages


def _order(pieces: Pieces, config: CleanConfig) -> int:
    """Bring fixes in order of time and return how many came late, or drop those that did."""
    time = pieces.trips.time[pieces.fix]
    late = motion.find_late(pieces.offsets, time)
    if not late.any():
        return 0
    if config.out_of_order == "drop":
        pieces.drop(~late, Reason.OUT_OF_ORDER)
        return 0
    pieces.reorder(np.lexsort((time, pieces.trip)))
    return int(late.sum())


def _drop_duplicates(pieces: Pieces) -> None:
    trips, fix = pieces.trips, pieces.fix
    repeats = ~pieces.first_of_trip
    repeats[1:] &= trips.time[fix[1:]] == trips.time[fix[:-1]]
    if not repeats.any():
        return
    kept = np.maximum.accumulate(np.where(repeats, 0, np.arange(len(fix))))  # the fix that stays for each one
    same = (trips.lon[fix] == trips.lon[fix[kept]]) & (trips.lat[fix] == trips.lat[fix[kept]])
    pieces.drop(~repeats, np.where(same, Reason.DUPLICATE, Reason.SAME_TIME).astype(np.uint8))


def _cut_inactive(pieces: Pieces, config: CleanConfig) -> None:
    """Drop fixes while the vehicle is inactive, and cut where one active value follows another."""
    column = pieces.trips.extra.get(config.active_column)
    if column is None:
        known = ", ".join(pieces.trips.extra) or "none"
        raise InputError(
            "the column that says when a vehicle is active is missing",
            field=config.active_column,
            remedy=f"Columns of the fixes beside time and place: {known}.",
        )
    value, active = _activity(column[pieces.fix], config)
    # A tracker may report the state only when it changes: a missing value repeats the last one of the trip.
    last_known = np.maximum.accumulate(np.where((value >= 0) | pieces.first_of_trip, np.arange(len(value)), 0))
    value = value[last_known]
    keep = active[value]
    changes = np.zeros(len(value), np.bool_)
    changes[1:] = (value[1:] != value[:-1]) & keep[1:] & keep[:-1] & (value[:-1] >= 0)
    pieces.cut_at(changes, Reason.ACTIVITY_CHANGE)
    pieces.drop_and_cut(keep, Reason.INACTIVE)


def _cut_gaps(pieces: Pieces, config: CleanConfig) -> None:
    if config.max_gap_s:
        time = pieces.trips.time[pieces.fix]
        pieces.cut_at(np.diff(time, prepend=time[:1]) > config.max_gap_s, Reason.GAP)


def _drop_jumps(pieces: Pieces, config: CleanConfig) -> None:
    keep, cut = motion.find_jumps(pieces.track(), config.max_speed_mps, config.max_outliers)
    pieces.cut_at(cut, Reason.JUMP)
    pieces.drop(keep, Reason.JUMP)


def _cut_stays(pieces: Pieces, config: CleanConfig) -> None:
    keep, cut = motion.find_stays(pieces.track(), config.stop_radius_m, config.stop_min_s)
    pieces.cut_at(cut, Reason.STANDING)
    pieces.drop(keep, Reason.STANDING)


def _crop(pieces: Pieces, config: CleanConfig, network: RoadNetwork | CandidateFinder) -> None:
    finder = network if isinstance(network, CandidateFinder) else CandidateFinder(network)
    lon, lat = pieces.trips.lon[pieces.fix], pieces.trips.lat[pieces.fix]
    pieces.drop_and_cut(finder.nearest(lon, lat, limit_m=config.crop_distance_m).segment >= 0, Reason.OUTSIDE)


def _drop_by_size(pieces: Pieces, config: CleanConfig) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Drop whole pieces; return the first fix of each (as a number of the input) and why it went."""
    track = pieces.track()
    begin, end = track.offsets[:-1], track.offsets[1:]
    count = end - begin
    piece = np.repeat(np.arange(len(count)), count)
    duration = track.time[end - 1] - track.time[begin]
    length = np.bincount(piece, weights=motion.steps_m(track), minlength=len(count))
    why = np.zeros(len(count), np.uint8)
    # The first rule that a piece breaks names the reason, so the last one is written first.
    why[length < config.min_length_m] = Reason.BELOW_MIN_LENGTH
    if config.max_duration_s:
        why[duration > config.max_duration_s] = Reason.ABOVE_MAX_DURATION
    why[duration < config.min_duration_s] = Reason.BELOW_MIN_DURATION
    why[count < config.min_fixes] = Reason.BELOW_MIN_FIXES
    gone = why > 0
    first = pieces.fix[begin[gone]]
    pieces.drop(~gone[piece], why[piece])
    return first, why[gone]


# ---------------------------------------------------------------------- parts of stages


def _activity(column: NDArray[Any], config: CleanConfig) -> tuple[NDArray[np.int64], Mask]:
    """Return the number of each value (-1 if missing) and which numbers mean active; missing ones do."""
    missing = np.ma.getmaskarray(column).copy()
    values = np.ma.getdata(column)
    if values.dtype.kind == "f":
        missing |= np.isnan(values)
    elif values.dtype.kind in "OTU":
        missing |= values == None  # noqa: E711  (element by element)
        missing[~missing] = as_text(values[~missing]) == ""
    distinct, number = np.unique(values[~missing], return_inverse=True)
    words = [_word(value) for value in distinct.tolist()]  # states or numbers of rides, few beside the fixes
    if config.active_values:
        wanted = {_word(value) for value in config.active_values}
    else:
        wanted = {word for word in words if word in ON_WORDS or (word not in OFF_WORDS and _is_number(word))}
        for word in words:
            if word not in wanted | OFF_WORDS:
                raise InputError(
                    f"the value '{word}' means neither active nor inactive",
                    field=config.active_column,
                    remedy="Name the values that mean active in active_values.",
                )
    number_of = {word: i for i, word in enumerate(dict.fromkeys(words))}
    value = np.full(len(column), -1, np.int64)
    value[~missing] = np.array([number_of[word] for word in words], np.int64)[number.ravel()]
    return value, np.array([*(word in wanted for word in number_of), True])


def _word(value: Any) -> str:  # noqa: ANN401  (bool, number or text)
    """Return one spelling for one state: ``1``, ``1.0`` and ``' 1 '`` are the same."""
    text = str(value).strip().lower()
    if text.isdecimal():
        return str(int(text))  # exact, however long the number of a ride is
    return str(int(float(text))) if _is_number(text) and float(text).is_integer() else text


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _trip_of(trips: Trips, fix: NDArray[np.int64]) -> NDArray[np.int64]:
    trip: NDArray[np.int64] = np.searchsorted(trips.offsets, fix, side="right") - 1
    return trip


def _list_rejects(
    trips: Trips,
    reason: NDArray[np.uint8],
    *,
    trip: NDArray[np.int64],
    first: NDArray[np.int64],
    why: NDArray[np.uint8],
) -> Rejects:
    """Return the dropped fixes (by their reasons [F]) and trips (by number and first fix), in order of the input."""
    fix = np.flatnonzero(reason)
    all_trip = np.concatenate([trip, _trip_of(trips, fix)])
    all_fix = np.concatenate([first, fix])
    position = np.concatenate([np.full(len(trip), WHOLE_TRIP), fix - trips.offsets[all_trip[len(trip) :]]])
    order = np.lexsort((position, all_trip))
    all_trip, all_fix, position = all_trip[order], all_fix[order], position[order]
    empty = trips.lengths[all_trip] == 0
    all_fix[empty] = 0

    def column(values: NDArray[Any], none: float) -> NDArray[Any]:
        taken = values[all_fix] if len(values) else np.zeros(len(all_fix), values.dtype)
        taken[empty] = none
        return taken

    return Rejects(
        traj_id=trips.traj_id[all_trip],
        position=position,
        time=column(trips.time, NO_TIME),
        lon=column(trips.lon, np.nan),
        lat=column(trips.lat, np.nan),
        reason=np.concatenate([why, reason[fix]])[order],
    )
