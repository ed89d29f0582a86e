"""Which segment may follow which: twins, U-turns and forbidden turns."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.network import polylines

Nodes = NDArray[np.int32]


def find_twins(
    seg_from: Nodes,
    seg_to: Nodes,
    geom_offset: NDArray[np.int64],
    geom_lon: NDArray[np.float64],
    geom_lat: NDArray[np.float64],
) -> NDArray[np.int32]:
    """Return for each segment the one that runs back along the same geometry, or -1 [S].

    Parallel roads between the same nodes are told apart by the sums of their vertices, which do not depend on the
    direction; in whole units of 1e-7 degrees they are exact.
    """
    s = len(seg_from)
    if s == 0:
        return np.zeros(0, np.int32)
    sum_lon = np.add.reduceat(np.rint(geom_lon * 1e7).astype(np.int64), geom_offset[:-1])
    sum_lat = np.add.reduceat(np.rint(geom_lat * 1e7).astype(np.int64), geom_offset[:-1])
    n_nodes = int(max(seg_from.max(), seg_to.max())) + 1
    start, end = seg_from.astype(np.int64), seg_to.astype(np.int64)
    columns = (
        np.concatenate([start * n_nodes + end, end * n_nodes + start]),  # there, then back
        np.concatenate([sum_lon, sum_lon]),
        np.concatenate([sum_lat, sum_lat]),
    )
    order = np.lexsort(columns)
    differs = np.zeros(2 * s, bool)
    for column in columns:
        differs[1:] |= np.diff(column[order]) != 0
    key = np.empty(2 * s, np.int64)
    key[order] = np.cumsum(differs)
    key_there, key_back = key[:s], key[s:]
    holder = np.full(int(key.max()) + 1, -1, np.int32)
    holder[key_there[::-1]] = np.arange(s - 1, -1, -1, dtype=np.int32)  # the first one wins among equals
    twin = holder[key_back]
    # A loop has the same key in both directions: its twin is the other segment with that key, if there is one.
    loops = np.flatnonzero(seg_from == seg_to)
    twin[loops] = -1
    order = loops[np.argsort(key_there[loops], kind="stable")]
    pairs = np.flatnonzero(key_there[order][:-1] == key_there[order][1:])
    twin[order[pairs]] = order[pairs + 1]
    twin[order[pairs + 1]] = order[pairs]
    return twin


def connect(
    seg_from: Nodes,
    seg_to: Nodes,
    twin: NDArray[np.int32],
    *,
    u_turns: bool,
    forbidden_turns: ArrayLike | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the successors as CSR (offsets [S+1], segments): all that start where one ends, less what is forbidden.

    Parameters
    ----------
    u_turns
        Whether a segment may be followed by its twin anywhere (True) or only where nothing else may follow (False).
    forbidden_turns
        Pairs of segments [K, 2] that must not follow each other; they hold for U-turns at dead ends too.
    """
    s = len(seg_from)
    n_nodes = int(max(seg_from.max(initial=-1), seg_to.max(initial=-1))) + 1
    by_start = np.argsort(seg_from, kind="stable").astype(np.int32)
    first = np.searchsorted(seg_from[by_start], np.arange(n_nodes + 1))
    count = np.diff(first)[seg_to]
    source = np.repeat(np.arange(s), count)
    target = by_start[polylines.ranges(first[:-1][seg_to], count)]
    allowed = np.ones(len(source), bool)
    if forbidden_turns is not None and np.size(forbidden_turns):
        pairs = np.asarray(forbidden_turns, np.int64)
        allowed &= ~np.isin(source * np.int64(s) + target, pairs[:, 0] * np.int64(s) + pairs[:, 1])
    if not u_turns:
        turns_back = target == twin[source]
        goes_on = np.bincount(source[allowed & ~turns_back], minlength=s) > 0
        allowed &= ~(turns_back & goes_on[source])
    source, target = source[allowed], target[allowed]
    return np.searchsorted(source, np.arange(s + 1)).astype(np.int64), target
