"""The mixing function of splitmix64: random numbers by counting, in any order and on any thread.

Simulation and thinning draw from it, so that what a trip gets depends on its own key alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

STEP = np.uint64(0x9E3779B97F4A7C15)
"""What a stream's counter grows by for each number."""

_FACTOR1 = np.uint64(0xBF58476D1CE4E5B9)
_FACTOR2 = np.uint64(0x94D049BB133111EB)


@njit(cache=True, nogil=True, inline="always")
def mixed(x: np.uint64) -> np.uint64:  # pragma: no cover  (compiled)
    """Return 64 well mixed bits for 64 bits, one to one."""
    x = (x ^ (x >> np.uint64(30))) * _FACTOR1
    x = (x ^ (x >> np.uint64(27))) * _FACTOR2
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True, inline="always")
def unit(bits: np.uint64) -> float:  # pragma: no cover  (compiled)
    """Return 64 bits as a number of at least 0 and below 1, from the upper 53."""
    return float(np.float64(bits >> np.uint64(11)) * 2.0**-53)
