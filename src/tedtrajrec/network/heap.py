"""A binary heap on plain arrays for compiled shortest-path searches.

Entries are (key, item); the smallest key comes out first, equal keys by smaller item, so that searches are
reproducible. The caller owns the arrays and the size; an item may be pushed again with a smaller key, and the stale
entry is skipped by the caller when it comes out.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Keys = NDArray[np.float64]
Items = NDArray[np.int32]


@njit(cache=True, nogil=True, inline="always")
def _before(keys: Keys, items: Items, i: int, key: float, item: int) -> bool:  # pragma: no cover  (compiled)
    return bool(keys[i] < key or (keys[i] == key and items[i] < item))


@njit(cache=True, nogil=True)
def push(keys: Keys, items: Items, size: int, key: float, item: int) -> int:  # pragma: no cover  (compiled)
    """Add an entry and return the new size; the arrays must have room for it."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if _before(keys, items, parent, key, item):
            break
        keys[i] = keys[parent]
        items[i] = items[parent]
        i = parent
    keys[i] = key
    items[i] = item
    return size + 1


@njit(cache=True, nogil=True)
def pop(keys: Keys, items: Items, size: int) -> int:  # pragma: no cover  (compiled)
    """Remove the first entry, which the caller has read at index 0, and return the new size."""
    size -= 1
    key = keys[size]
    item = items[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(keys, items, child + 1, keys[child], items[child]):
            child += 1
        if not _before(keys, items, child, key, item):
            break
        keys[i] = keys[child]
        items[i] = items[child]
        i = child
    keys[i] = key
    items[i] = item
    return size
