"""Thinning: which fixes of a dense trip are observed.

The first and the last fix always stay. Three rules choose among those between them:

exact
    floor((n - 2) x keep) of them, drawn without replacement, every choice equally likely.
bernoulli
    Each one by itself with probability keep.
uniform
    As many as ``exact``, spread evenly; nothing is drawn.

The draw of a trip depends only on the seed, the epoch, the key of the trip and its number of fixes. So it does not
change with other trips, their order, chunks, batches or machines, and one epoch can be drawn again alone.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Literal, get_args

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import ConfigError
from tedtrajrec.splitmix import STEP, mixed, unit
from tedtrajrec.trips.table import Trips, as_text

Rule = Literal["exact", "bernoulli", "uniform"]
Mask = NDArray[np.bool_]

_FNV_START = np.uint64(0xCBF29CE484222325)
_FNV_PRIME = np.uint64(0x00000100000001B3)
_SEPARATOR = 0xFF  # a byte that occurs in no UTF-8 text


def keep_share(keep: str | float | Fraction) -> Fraction:
    """Return the nominal share of observed fixes, such as ``1/8`` or ``0.125``, as an exact fraction.

    Parameters
    ----------
    keep
        Text or a number above 0 and at most 1. The nearest fraction with a denominator of at most a million is meant:
        0.1 is 1/10, and 0.3333333333333333 is 1/3.

    Raises
    ------
    ConfigError
        If it is no number, or out of range.
    """
    try:
        share = Fraction(str(keep).replace(" ", "")).limit_denominator(1_000_000)
    except (ValueError, ZeroDivisionError) as error:
        raise ConfigError(f"The share to keep is '{keep}'; write it as 1/8 or 0.125.") from error
    if not 0 < share <= 1:
        raise ConfigError(f"The share to keep is {keep}; it must be above 0 and at most 1, for example 1/8.")
    return share


def trip_keys(traj_id: ArrayLike) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each id (text or integers), the same on every machine and in every run."""
    texts = as_text(traj_id).tolist()
    if not texts:
        return np.zeros(0, np.uint64)
    joined = bytes([_SEPARATOR]).join(map(str.encode, texts)) + bytes([_SEPARATOR])
    return _hash_texts(np.frombuffer(joined, np.uint8), len(texts))


def thin_mask(
    offsets: NDArray[np.int64],
    keep: str | float | Fraction,
    *,
    seed: int,
    trip_key: NDArray[np.uint64],
    rule: Rule = "exact",
    epoch: int = 0,
) -> Mask:
    """Return which fixes are observed.

    Parameters
    ----------
    offsets
        Fixes of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1].
    keep
        Nominal share of inner fixes to keep, see :func:`keep_share`.
    seed, epoch
        Any integers; each pair gives another draw.
    trip_key
        A number for each trip, usually :func:`trip_keys` of its id [T].
    rule
        How inner fixes are chosen, see the module. ``uniform`` draws nothing.

    Returns
    -------
    Mask
        True for observed fixes [F]. Trips of at most two fixes keep all.
    """
    if rule not in get_args(Rule):
        raise ConfigError(f"The rule for thinning is '{rule}'; it must be one of {', '.join(get_args(Rule))}.")
    share = keep_share(keep)
    offsets = np.asarray(offsets, np.int64)
    keys = np.asarray(trip_key, np.uint64)
    if len(keys) != len(offsets) - 1:
        raise ValueError(f"there are {len(keys)} keys for {len(offsets) - 1} trips")
    lengths = np.diff(offsets)
    inner = np.maximum(lengths - 2, 0) * share.numerator // share.denominator
    mask = np.zeros(int(offsets[-1]), np.bool_)
    mask[offsets[:-1][lengths > 0]] = True
    mask[offsets[1:][lengths > 0] - 1] = True
    if rule == "uniform":
        _mark_even(offsets, inner, mask)
        return mask
    start = _stream_starts(_word(seed), _word(epoch), keys, lengths)
    if rule == "exact":
        _mark_exact(offsets, inner, start, mask)
    else:
        _mark_bernoulli(offsets, float(share), start, mask)
    return mask


def thin_trips(
    trips: Trips, keep: str | float | Fraction, *, seed: int = 0, rule: Rule = "exact", epoch: int = 0
) -> Trips:
    """Return the trips with only their observed fixes, drawn by :func:`thin_mask` with the hashes of their ids."""
    mask = thin_mask(trips.offsets, keep, seed=seed, trip_key=trip_keys(trips.traj_id), rule=rule, epoch=epoch)
    return trips.keep_fixes(mask)


def draw_observed(
    trips: Trips, keep: str | float | Fraction, *, seed: int = 0, rule: Rule = "exact", epoch: int = 0
) -> Mask:
    """Return which steps of prepared trips are observed [N], drawn among those that have a fix."""
    has_fix = ~np.isnan(trips.lon)
    before = np.concatenate([[0], np.cumsum(has_fix)])
    chosen = thin_mask(
        before[trips.offsets], keep, seed=seed, trip_key=trip_keys(trips.traj_id), rule=rule, epoch=epoch
    )
    mask = np.zeros(trips.n_fixes, np.bool_)
    mask[has_fix] = chosen
    return mask


def effective_share(mask: Mask, offsets: NDArray[np.int64]) -> float:
    """Return the share of fixes that are observed, as the mean over trips; ends make it larger than the nominal one.

    Trips without fixes do not count; without any trip it is NaN.
    """
    lengths = np.diff(offsets)
    kept = _kept(mask, offsets)[lengths > 0]
    return float(np.mean(kept / lengths[lengths > 0])) if kept.size else float("nan")


def mean_fixes(mask: Mask, offsets: NDArray[np.int64]) -> float:
    """Return the mean number of observed fixes of a trip; without any trip it is NaN."""
    return float(_kept(mask, offsets).mean()) if len(offsets) > 1 else float("nan")


def _kept(mask: Mask, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    before = np.concatenate([[0], np.cumsum(mask)])
    kept: NDArray[np.int64] = np.diff(before[offsets])
    return kept


def _word(value: int) -> np.uint64:
    """Return any Python integer as 64 bits; negative ones wrap."""
    return np.uint64(value & 0xFFFFFFFFFFFFFFFF)


@njit(cache=True, nogil=True)
def _stream_starts(
    seed: np.uint64, epoch: np.uint64, keys: NDArray[np.uint64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:  # pragma: no cover  (compiled)
    starts = np.empty(len(keys), np.uint64)
    run = mixed(mixed(seed + STEP) ^ epoch)
    for i in range(len(keys)):
        trip = mixed((run + STEP) ^ keys[i])
        starts[i] = mixed((trip + STEP) ^ np.uint64(lengths[i]))
    return starts


@njit(cache=True, nogil=True)
def _mark_exact(
    offsets: NDArray[np.int64], inner: NDArray[np.int64], start: NDArray[np.uint64], mask: Mask
) -> None:  # pragma: no cover  (compiled)
    """Mark ``inner[i]`` of the inner fixes of each trip: each is taken with the share that is still wanted."""
    for trip in range(len(inner)):
        wanted = inner[trip]
        left = offsets[trip + 1] - offsets[trip] - 2
        for i in range(left):
            if wanted == 0:
                break
            if unit(mixed(start[trip] + np.uint64(i) * STEP)) * (left - i) < wanted:
                mask[offsets[trip] + 1 + i] = True
                wanted -= 1


@njit(cache=True, nogil=True)
def _mark_bernoulli(
    offsets: NDArray[np.int64], share: float, start: NDArray[np.uint64], mask: Mask
) -> None:  # pragma: no cover  (compiled)
    for trip in range(len(start)):
        for i in range(offsets[trip + 1] - offsets[trip] - 2):
            if unit(mixed(start[trip] + np.uint64(i) * STEP)) < share:
                mask[offsets[trip] + 1 + i] = True


@njit(cache=True, nogil=True)
def _mark_even(
    offsets: NDArray[np.int64], inner: NDArray[np.int64], mask: Mask
) -> None:  # pragma: no cover  (compiled)
    """Mark the fixes nearest to the ends of ``inner[i] + 1`` equal parts of each trip; a tie goes to the later fix."""
    for trip in range(len(inner)):
        parts = inner[trip] + 1
        last = offsets[trip + 1] - offsets[trip] - 1
        for part in range(1, parts):
            mask[offsets[trip] + (2 * part * last + parts) // (2 * parts)] = True


@njit(cache=True, nogil=True)
def _hash_texts(joined: NDArray[np.uint8], count: int) -> NDArray[np.uint64]:  # pragma: no cover  (compiled)
    """Return FNV-1a of each text, mixed once more because its high bits alone are weak on short texts."""
    keys = np.empty(count, np.uint64)
    text = 0
    state = _FNV_START
    for byte in joined:
        if byte == _SEPARATOR:
            keys[text] = mixed(state)
            text += 1
            state = _FNV_START
        else:
            state = (state ^ np.uint64(byte)) * _FNV_PRIME
    return keys
