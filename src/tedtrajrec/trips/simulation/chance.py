"""Random numbers by counting: each depends only on a key, so that trips can be made in any order by any thread.

A key is made of the seed, the trip and a purpose by the mixing function of splitmix64; a stream counts on from a key.
Normal numbers are quantiles looked up in a table of 4,096, hence lie within 3.7 standard deviations.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.special import ndtri

Stream = NDArray[np.uint64]

# Purposes, one for each independent stream of a trip.
DEPARTURE, JOURNEY, TASTE, GPS = 1, 2, 3, 4

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FACTOR1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR2 = np.uint64(0x94D049BB133111EB)
_TABLE_BITS = 12

NORMAL = ndtri((np.arange(2**_TABLE_BITS) + 0.5) / 2**_TABLE_BITS)
"""Quantiles of the standard normal distribution [4096]."""


@njit(cache=True, nogil=True)
def mix(key: int, number: int) -> np.uint64:  # pragma: no cover  (compiled)
    """Return a new key from a key and a number."""
    z = np.uint64(key) + np.uint64(number) * _STEP + _STEP
    z = (z ^ (z >> np.uint64(30))) * _FACTOR1
    z = (z ^ (z >> np.uint64(27))) * _FACTOR2
    return z ^ (z >> np.uint64(31))


@njit(cache=True, nogil=True)
def place(key: int, number: int) -> int:  # pragma: no cover  (compiled)
    """Return the place in the table of quantiles that belongs to a key and a number."""
    return np.int64(mix(key, number) >> np.uint64(64 - _TABLE_BITS))


@njit(cache=True, nogil=True)
def keyed_normal(key: int, number: int) -> float:  # pragma: no cover  (compiled)
    """Return the standard normal number that belongs to a key and a number."""
    return NORMAL[place(key, number)]


@njit(cache=True, nogil=True)
def uniform(stream: Stream) -> float:  # pragma: no cover  (compiled)
    """Return the next number of a stream (an array of one key) in [0, 1)."""
    value = mix(stream[0], 0)
    stream[0] += _STEP
    return np.float64(value >> np.uint64(11)) * 2.0**-53


@njit(cache=True, nogil=True)
def normal(stream: Stream) -> float:  # pragma: no cover  (compiled)
    """Return the next standard normal number of a stream."""
    return NORMAL[np.int64(uniform(stream) * len(NORMAL))]


@njit(cache=True, nogil=True)
def exponential(stream: Stream, mean: float) -> float:  # pragma: no cover  (compiled)
    """Return the next exponential number of a stream."""
    return -mean * math.log(1.0 - uniform(stream))
