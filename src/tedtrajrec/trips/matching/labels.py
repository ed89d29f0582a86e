"""Labels: for each segment what it costs to the important segments that its ways pass.

The label of a segment holds, for each direction, the *hubs* that a climbing search of the hierarchy reaches, as far as
no other way there is cheaper. Of any two segments the cheapest way leads over a hub that is in the labels of both, so
its cost is found by reading two short lists. (Abraham, Delling, Goldberg and Werneck, A hub-based labeling algorithm,
2011.)

Labels grow faster than the network, so there is room for so many entries only (:func:`room_for`). The most important
segments come first; the others are left with themselves as their only hub, and a search climbs from them to segments
that are complete. The fewer those are, the longer are the climbs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import from_dtype, njit
from numpy.typing import NDArray

from tedtrajrec.trips.matching.hierarchy import Hierarchy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Numbers = NDArray[np.int32]
Records = NDArray[Any]

ROOM = 1 << 22  # entries of 32 bytes at least: all labels of some 30,000 segments
ROOM_PER_SEGMENT = 64

ENTRY = np.dtype(
    [
        ("hub", np.int32),  # its place
        ("arc", np.int32),  # the first one of the way there; -1 for none
        ("cost", np.float64),
    ],
    align=True,
)
ENTRY_TYPE: Any = from_dtype(ENTRY)


class Labels(NamedTuple):
    """N entries of the labels of all places, those of a label by cost."""

    offset: Ints  # [2 S + 1] place p has in direction d the entries offset[2 p + d]:offset[2 p + d + 1]
    n_complete: int  # the places below this have all their hubs
    entry: Records  # [N] ENTRY
    driven: Floats  # [N, 2] metres and seconds to the hub


def room_for(n_segments: int) -> int:
    """Return for how many entries there is room in a network of so many segments."""
    return max(ROOM, ROOM_PER_SEGMENT * n_segments)


@njit(cache=True, nogil=True)
def build_labels(hierarchy: Hierarchy, room: int) -> Labels:  # pragma: no cover  (compiled)
    """Return labels of about ``room`` entries, and one more in each direction for every segment that is left over."""
    n = len(hierarchy.place)
    offset = np.zeros(2 * n + 1, np.int64)
    entry, driven = np.empty(2 * n, ENTRY_TYPE), np.empty((2 * n, 2))
    # What is known of the label in work, by hub: the cost, the first arc, and the entry of the label where that ends.
    best = np.full(n, np.inf)
    first, above = np.empty(n, np.int32), np.empty(n, np.int64)
    found = np.empty(n, np.int32)
    n_complete = n
    size = 0
    for p in range(n):
        if size > room and n_complete == n:
            n_complete = p
        for d in range(2):
            best[p], first[p] = 0.0, -1
            found[0] = p
            n_found = 1
            if p < n_complete:
                for a in range(hierarchy.offset[2 * p + d], hierarchy.offset[2 * p + d + 1]):
                    label = 2 * hierarchy.arc[a].upper + d
                    for e in range(offset[label], offset[label + 1]):
                        h = entry[e].hub
                        cost = hierarchy.arc[a].cost + entry[e].cost
                        if best[h] == np.inf:
                            found[n_found] = h
                            n_found += 1
                        if cost < best[h]:
                            best[h], first[h], above[h] = cost, a, e
            hubs = found[:n_found]
            kept = _needed(hubs, best, offset, entry, 1 - d)
            if size + len(kept) > len(entry):
                entry, driven = _resized(entry, driven, size, 5 * (size + len(kept)) // 4)
            for h in kept[np.argsort(best[kept], kind="mergesort")]:
                a = first[h]
                entry[size].hub, entry[size].arc, entry[size].cost = h, a, best[h]
                driven[size] = 0.0
                if a >= 0:
                    driven[size, 0] = hierarchy.arc[a].metres + driven[above[h], 0]
                    driven[size, 1] = hierarchy.arc[a].seconds + driven[above[h], 1]
                size += 1
            best[hubs] = np.inf
            offset[2 * p + d + 1] = size
    entry, driven = _resized(entry, driven, size, size)
    return Labels(offset, n_complete, entry, driven)


@njit(cache=True, nogil=True)
def _needed(
    hubs: Numbers, best: Floats, offset: Ints, entry: Records, back: int
) -> Numbers:  # pragma: no cover  (compiled)
    """Return those hubs to which no way over another hub is cheaper; ``back`` is the opposite direction."""
    kept = np.empty(len(hubs), np.int32)
    n = 0
    for h in hubs:
        is_needed = True
        for e in range(offset[2 * h + back], offset[2 * h + back + 1]):
            if entry[e].cost >= best[h]:
                break
            if best[entry[e].hub] + entry[e].cost < best[h]:
                is_needed = False
                break
        if is_needed:
            kept[n] = h
            n += 1
    return kept[:n]


@njit(cache=True, nogil=True)
def _resized(
    entry: Records, driven: Floats, size: int, room: int
) -> tuple[Records, Floats]:  # pragma: no cover  (compiled)
    longer, farther = np.empty(room, ENTRY_TYPE), np.empty((room, 2))
    for i in range(size):
        longer[i], farther[i, 0], farther[i, 1] = entry[i], driven[i, 0], driven[i, 1]
    return longer, farther
