"""Labels: for each segment what it costs to the important segments that its ways pass.

The label of a segment holds, for each direction, the *hubs* that a climbing search of the hierarchy reaches, as far as
no other way there is cheaper. Of any two segments the cheapest way leads over a hub that is in the labels of both, so
its cost is found by reading two short lists. (Abraham, Delling, Goldberg and Werneck, A hub-based labeling algorithm,
2011.)

Labels grow with the network, but the ways that are asked for are short. So a label keeps only its nearest :data:`MOST`
hubs, and says up to which cost it has them all, its *radius*: what two labels say of a way that costs less than the
radius of either is exact, however large the network is. For ways that may cost more, a search climbs to segments whose
labels, with the way there, reach far enough (:mod:`tedtrajrec.trips.matching.climbs`).
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

MOST = 80  # entries of a label, of 32 bytes

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
    radius: Floats  # [2 S] all hubs that cost less are in the label; inf where it has all there are
    entry: Records  # [N] ENTRY
    driven: Floats  # [N, 2] metres and seconds to the hub


def build_labels(hierarchy: Hierarchy, most: int) -> Labels:
    """Return labels of at most ``most`` entries each, at least one: the segment itself."""
    first, last, radius, entry, driven = _made(hierarchy, most)
    count = last - first
    offset = np.concatenate([[0], np.cumsum(count)])
    # Arrays of numpy, which asks the system for large pages: reading a label is mostly waiting for memory.
    laid = Labels(offset, radius, np.empty(offset[-1], ENTRY), np.empty((offset[-1], 2)))
    _lay_out(first, entry, driven, laid)
    return laid


@njit(cache=True, nogil=True)
def _lay_out(first: Ints, entry: Records, driven: Floats, laid: Labels) -> None:  # pragma: no cover  (compiled)
    """Copy labels, which begin at ``first``, into the order of their places."""
    for label in range(len(first)):
        e = first[label]
        for k in range(laid.offset[label], laid.offset[label + 1]):
            laid.entry[k] = entry[e]
            laid.driven[k, 0], laid.driven[k, 1] = driven[e, 0], driven[e, 1]
            e += 1


@njit(cache=True, nogil=True)
def _made(
    hierarchy: Hierarchy, most: int
) -> tuple[Ints, Ints, Floats, Records, Floats]:  # pragma: no cover  (compiled)
    """Return where each label begins and ends, its radius, and the entries of all, the most important first."""
    n = len(hierarchy.place)
    first, last, radius = np.zeros(2 * n, np.int64), np.zeros(2 * n, np.int64), np.full(2 * n, np.inf)
    entry, driven = np.empty(2 * n, ENTRY_TYPE), np.empty((2 * n, 2))
    # What is known of the label in work, by hub: the cost, the first arc, and the entry of the label where that ends.
    best = np.full(n, np.inf)
    arc, above = np.empty(n, np.int32), np.empty(n, np.int64)
    found = np.empty(n, np.int32)
    size = 0
    for p in np.argsort(hierarchy.rank):
        for d in range(2):
            here = 2 * p + d
            arcs = range(hierarchy.offset[here], hierarchy.offset[here + 1])
            for a in arcs:
                radius[here] = min(radius[here], hierarchy.arc[a].cost + radius[2 * hierarchy.arc[a].upper + d])
            best[p], arc[p] = 0.0, -1
            found[0] = p
            n_found = 1
            for a in arcs:
                label = 2 * hierarchy.arc[a].upper + d
                for e in range(first[label], last[label]):
                    h = entry[e].hub
                    cost = hierarchy.arc[a].cost + entry[e].cost
                    if cost >= radius[here]:
                        break
                    if best[h] == np.inf:
                        found[n_found] = h
                        n_found += 1
                    if cost < best[h]:
                        best[h], arc[h], above[h] = cost, a, e
            hubs = found[:n_found]
            kept = _needed(hubs, best, first, last, entry, 1 - d)
            kept = kept[np.argsort(best[kept], kind="mergesort")]
            if len(kept) > most:
                radius[here] = best[kept[most]]
                kept = kept[:most]
            if size + len(kept) > len(entry):
                entry, driven = _resized(entry, driven, size, 5 * (size + len(kept)) // 4)
            first[here] = size
            for h in kept:
                a = arc[h]
                entry[size].hub, entry[size].arc, entry[size].cost = h, a, best[h]
                driven[size] = 0.0
                if a >= 0:
                    driven[size, 0] = hierarchy.arc[a].metres + driven[above[h], 0]
                    driven[size, 1] = hierarchy.arc[a].seconds + driven[above[h], 1]
                size += 1
            best[hubs] = np.inf
            last[here] = size
    return first, last, radius, entry, driven


@njit(cache=True, nogil=True)
def _needed(
    hubs: Numbers, best: Floats, first: Ints, last: Ints, entry: Records, back: int
) -> Numbers:  # pragma: no cover  (compiled)
    """Return those hubs to which no way over another hub is cheaper; ``back`` is the opposite direction."""
    kept = np.empty(len(hubs), np.int32)
    n = 0
    for h in hubs:
        is_needed = True
        for e in range(first[2 * h + back], last[2 * h + back]):
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
