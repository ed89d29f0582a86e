"""Random numbers by counting: each depends only on a key, so that trips can be made in any order by any thread.

A key is made of the seed, the trip and a purpose by the mixing function of splitmix64; a stream counts on from a key.
Normal numbers are quantiles looked up in a table of 4,096, hence lie within 3.7 standard deviations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

from tedtrajrec.splitmix import STEP, mixed, unit

Stream = NDArray[np.uint64]
Word = int | np.integer[Any]

# Purposes, one for each independent stream of a trip.
DEPARTURE, JOURNEY, TASTE, GPS = 1, 2, 3, 4

_TABLE_BITS = 12

NORMAL = ndtri((np.arange(2**_TABLE_BITS) + 0.5) / 2**_TABLE_BITS)
"""Quantiles of the standard normal distribution [4096]."""


@njit(cache=True, nogil=True)
def mix(key: Word, number: Word) -> np.uint64:  # pragma: no cover  (compiled)
    """Return a new key from a key and a number."""
    return mixed(np.uint64(key) + np.uint64(number) * STEP + STEP)


@njit(cache=True, nogil=True)
def place(key: Word, number: Word) -> int:  # pragma: no cover  (compiled)
    """Return the place in the table of quantiles that belongs to a key and a number."""
    return int(mix(key, number) >> np.uint64(64 - _TABLE_BITS))


@njit(cache=True, nogil=True)
def keyed_normal(key: Word, number: Word) -> float:  # pragma: no cover  (compiled)
    """Return the standard normal number that belongs to a key and a number."""
    return float(NORMAL[place(key, number)])


@njit(cache=True, nogil=True)
def uniform(stream: Stream) -> float:  # pragma: no cover  (compiled)
    """Return the next number of a stream (an array of one key) in [0, 1)."""
    value = mix(stream[0], 0)
    stream[0] += STEP
    return unit(value)


@njit(cache=True, nogil=True)
def normal(stream: Stream) -> float:  # pragma: no cover  (compiled)
    """Return the next standard normal number of a stream."""
    return float(NORMAL[int(uniform(stream) * len(NORMAL))])


@njit(cache=True, nogil=True)
def exponential(stream: Stream, mean: float) -> float:  # pragma: no cover  (compiled)
    """Return the next exponential number of a stream."""
    return -mean * math.log(1.0 - uniform(stream))
