"""Places: where in a short list a segment stands, by a small hash; for lists that are asked many times.

A table is an array of segments, -1 where it is free, as long as :func:`room_for` says; ``slot_of`` finds the slot where
a segment is or may be put. What belongs to the segment, its place, stands in an array beside it.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

SPREAD = 2654435761  # odd, so that segments that follow each other have different slots


@njit(cache=True, nogil=True)
def room_for(most: int) -> int:  # pragma: no cover  (compiled)
    """Return the length of a table for so many segments: a power of two, never more than half full."""
    room = 2
    while room < 2 * most:
        room *= 2
    return room


@njit(cache=True, nogil=True)
def slot_of(table: NDArray[np.int32], segment: int) -> int:  # pragma: no cover  (compiled)
    """Return the slot of a segment, or a free one if it is not in the table."""
    last = len(table) - 1
    slot = (segment * SPREAD) & last
    while table[slot] >= 0 and table[slot] != segment:
        slot = (slot + 1) & last
    return slot
