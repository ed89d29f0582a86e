"""Whether two methods differ on the same trips: a sign-flip permutation test and a bootstrap interval, both paired.

Under the null hypothesis that two methods are exchangeable, the difference of a trip could as well have the other sign.
The p-value is the share of all assignments of signs whose mean is at least as far from 0 as the one observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FLIPS = 9_999  # assignments drawn where there are more than can be listed
RESAMPLES = 2_000
SEED = 20_250_513
_AT_ONCE = 4_000_000  # signs held in memory
_ROUNDING = 1e-9  # relative: sums of the same numbers in another order are equal


class Interval(NamedTuple):
    """Mean differences and the bounds of their bootstrap intervals [K each]."""

    mean: Floats
    low: Floats
    high: Floats


def sign_flip_test(difference: Floats, *, flips: int = FLIPS, seed: int = SEED) -> Floats:
    """Return two-sided p-values of mean paired differences [K].

    Where all ``2**n`` assignments of signs are no more than ``flips`` they are all listed and the p-value is exact.
    Else so many are drawn, and the observed assignment counts as one of them, so that no p-value is 0.

    Parameters
    ----------
    difference
        One row a trip, one column a comparison [n, K]; NaN where a trip has no value, which leaves it out.
    flips
        Assignments of signs that are looked at.
    seed
        Of the draw; all columns share one draw.
    """
    value = np.where(np.isnan(difference), 0.0, difference)
    n, columns = value.shape
    observed = np.abs(value.sum(axis=0))
    bound = observed - _ROUNDING * np.abs(value).sum(axis=0)
    exact = n < 60 and 2**n <= flips
    reached = np.zeros(columns, np.int64)
    for signs in _all_signs(n) if exact else _drawn_signs(n, flips, seed):
        reached += (np.abs(signs @ value) >= bound).sum(axis=0)
    p: Floats = reached / 2**n if exact else (reached + 1) / (flips + 1)
    return np.where(np.isnan(difference).all(axis=0), np.nan, p)


def _all_signs(n: int) -> Iterator[Floats]:
    number = np.arange(2**n)
    yield (2 * ((number[:, None] >> np.arange(n)) & 1) - 1).astype(np.float64)


def _drawn_signs(n: int, flips: int, seed: int) -> Iterator[Floats]:
    rng = np.random.default_rng(seed)
    size = max(1, _AT_ONCE // max(n, 1))
    for first in range(0, flips, size):
        yield (2 * rng.integers(0, 2, (min(size, flips - first), n), dtype=np.int8) - 1).astype(np.float64)


def bootstrap_interval(
    difference: Floats, *, level: float = 0.95, resamples: int = RESAMPLES, seed: int = SEED
) -> Interval:
    """Return mean paired differences and their percentile bootstrap intervals; whole trips are drawn.

    Parameters
    ----------
    difference
        As for :func:`sign_flip_test`.
    level
        The probability that an interval is meant to cover.
    resamples
        How often the trips are drawn, with replacement.
    seed
        Of the draw; all columns share one draw.
    """
    has = ~np.isnan(difference)
    both = np.hstack([np.where(has, difference, 0.0), has])
    n, columns = difference.shape
    rng = np.random.default_rng(seed)
    sums = np.empty((resamples, 2 * columns))
    for i in range(resamples):
        weight = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
        # einsum, not @: on busy cores the threads of BLAS wait for each other at each of these small products.
        np.einsum("i,ij->j", weight, both, out=sums[i])
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums[:, :columns] / sums[:, columns:]
        mean = both[:, :columns].sum(axis=0) / both[:, columns:].sum(axis=0)
    low, high = np.full(columns, np.nan), np.full(columns, np.nan)
    for k in np.flatnonzero(has.any(axis=0)):
        low[k], high[k] = np.nanquantile(means[:, k], ((1 - level) / 2, (1 + level) / 2))
    return Interval(mean, low, high)


def holm(p: Sequence[float] | Floats) -> Floats:
    """Return p-values corrected for their number by Holm's method; NaN stays and does not count."""
    value = np.asarray(p, np.float64)
    out = np.full(len(value), np.nan)
    known = np.flatnonzero(~np.isnan(value))
    order = known[np.argsort(value[known], kind="stable")]
    steps = value[order] * np.arange(len(order), 0, -1)
    out[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return out
