"""Training, validation and test: by trip, by day, or as a column says."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.data.sampling import trip_keys
from tedtrajrec.errors import InputError
from tedtrajrec.trips.table import as_text

Codes = NDArray[np.int8]
Ints = NDArray[np.int64]

NO_SPLIT = -1
"""Code of a trip that belongs to no split; others are indices into SPLITS of the dataset."""

SPLIT_WORDS = {"train": 0, "training": 0, "valid": 1, "val": 1, "validation": 1, "dev": 1, "test": 2, "testing": 2}
"""What a column may say, in any case."""


def exact_counts(total: int, shares: Sequence[float]) -> list[int]:
    """Return how many of ``total`` trips each split gets: the shares, and what is left to the largest remainders."""
    exact = [total * Fraction(share).limit_denominator(1_000_000) for share in shares]
    counts = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda i: (counts[i] - exact[i], i))
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def split_by_trip(traj_id: ArrayLike, shares: Sequence[float], seed: int) -> Codes:
    """Return the split of each trip [T].

    Trips are ranked by a hash of seed and id, so the place of a trip does not depend on the order of the trips, and
    other trips only move it where it is at the border of a split.
    """
    rank = np.argsort(_draws(as_text(traj_id), seed), kind="stable")
    codes = np.empty(len(rank), np.int8)
    codes[rank] = np.repeat(np.arange(len(shares)), exact_counts(len(rank), shares))
    return codes


def split_by_day(day: ArrayLike, shares: Sequence[float], seed: int) -> Codes:
    """Return the split of each trip [T] so that all trips of a day are in one; shares are as near as whole days allow.

    Days are dealt out in an order drawn from the seed, each to the split that lacks most; then days are moved and
    exchanged while that brings the counts nearer to the shares.

    Parameters
    ----------
    day
        Number of the local day of each trip [T].
    """
    days, of_trip, size = np.unique(np.asarray(day), return_inverse=True, return_counts=True)
    wanted = np.asarray(shares) * size.sum()
    used = np.flatnonzero(wanted)
    if len(days) < len(used):
        raise InputError(
            f"the trips are of {len(days)} days, too few for {len(used)} splits by day", remedy="Split by trip."
        )
    split = np.empty(len(days), np.int64)
    lacking = wanted.copy()
    for left, i in zip(range(len(days), 0, -1), np.argsort(_draws(days, seed), kind="stable").tolist(), strict=True):
        # The last days go to splits that have none yet.
        empty = [s for s in used.tolist() if lacking[s] == wanted[s]]
        choice = empty if left <= len(empty) else used.tolist()
        split[i] = max(choice, key=lambda s: lacking[s])
        lacking[split[i]] -= size[i]
    _improve(split, size, wanted)
    return split[of_trip.ravel()].astype(np.int8)


def split_by_words(words: Sequence[str | None]) -> tuple[Codes, str | None]:
    """Return the split that each word names [T], ``NO_SPLIT`` for an empty one, and the first word that names none."""
    codes = {word: SPLIT_WORDS.get((word or "").strip().lower(), NO_SPLIT) for word in dict.fromkeys(words)}
    wrong = next((word for word, code in codes.items() if code == NO_SPLIT and (word or "").strip()), None)
    return np.array([codes[word] for word in words], np.int8), wrong


def _improve(split: Ints, size: Ints, wanted: NDArray[np.float64]) -> None:
    """Move one day or exchange two, whichever helps most, while the squared error of the counts falls."""
    used = np.flatnonzero(wanted)
    while True:
        have = np.bincount(split, weights=size, minlength=len(wanted))
        days = np.bincount(split, minlength=len(wanted))
        excess = have - wanted
        best, change = (0, 0, -1), -1e-9
        for target in used.tolist():
            # What moving day i to the target, and day j (none: -1) back, does to the sum of squares.
            others = np.flatnonzero((split != target) & (days[split] > 1))
            gain = _change(excess[split[others]], excess[target], size[others])
            if len(others) and gain.min() < change:
                best, change = (int(others[gain.argmin()]), target, -1), gain.min()
            away, here = np.flatnonzero(split != target), np.flatnonzero(split == target)
            if len(away) and len(here):
                moved = size[away][:, None] - size[here][None, :]
                gain = _change(excess[split[away]][:, None], excess[target], moved)
                if gain.min() < change:
                    row, column = divmod(int(gain.argmin()), len(here))
                    best, change = (int(away[row]), target, int(here[column])), gain.min()
        i, target, j = best
        if change >= -1e-9:
            return
        if j >= 0:
            split[j] = split[i]
        split[i] = target


def _change(from_excess: NDArray[np.float64], to_excess: float, moved: Ints) -> NDArray[np.float64]:
    """Return by how much the sum of squared errors changes when ``moved`` trips go from one split to another."""
    change: NDArray[np.float64] = (from_excess - moved) ** 2 - from_excess**2 + (to_excess + moved) ** 2 - to_excess**2
    return change


def _draws(keys: NDArray[np.generic], seed: int) -> NDArray[np.uint64]:
    """Return a number for each key that is as good as random and depends on nothing but key and seed."""
    return trip_keys([f"{seed}/{key}" for key in keys.tolist()])
