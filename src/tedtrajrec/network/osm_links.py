"""From ways to segments: ways are cut into links between neighbouring nodes, links are joined where nothing is decided.

Cutting everything and joining again makes the result independent of where mappers end one way and begin the next.
Nothing here knows of OSM's tags or files.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from tedtrajrec.network import polylines

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Links:
    """L directed links between neighbouring nodes; no two have the same start and end."""

    start: Ints  # [L] node
    end: Ints  # [L] node
    way: Ints  # [L] row of the way
    road_class: NDArray[np.uint8]  # [L]
    kmh: Floats  # [L]
    order: Ints  # [L] place in the file: twice the number of the node pair, plus 1 against the way's direction
    n_nodes: int
    n_repeated: int  # directed links dropped because an earlier one has the same start and end


@dataclass(frozen=True, eq=False)
class Chains:
    """S segments as chains of links, with their vertices."""

    seg_from: NDArray[np.int32]  # [S] node
    seg_to: NDArray[np.int32]  # [S]
    first_link: Ints  # [S]
    geom_offset: Ints  # [S+1]
    vertex: Ints  # [G] node
    way: Ints  # [G] row of the way of the link that starts at the vertex; the last one repeats


def neighbours(ref_offset: Ints, ref: Ints) -> Ints:
    """Return the places in ``ref`` from which a way goes on to another node: both known, and not the same."""
    goes_on = (ref[:-1] >= 0) & (ref[1:] >= 0) & (ref[:-1] != ref[1:])
    ends = ref_offset[(ref_offset > 0) & (ref_offset < len(ref))]
    goes_on[ends - 1] = False
    return np.flatnonzero(goes_on)


def contract(ref_offset: Ints, ref: Ints, lon: Floats, lat: Floats) -> Ints:
    """Return for each node the one that stands for it: neighbours on a way at the same place become one node [N]."""
    pair = neighbours(ref_offset, ref)
    a, b = ref[pair], ref[pair + 1]
    together = (lon[a] == lon[b]) & (lat[a] == lat[b])
    if not together.any():
        return np.arange(len(lon))
    label = _components(a[together], b[together], len(lon))
    _, first = np.unique(label, return_index=True)
    return first[label]


def make_links(
    ref_offset: Ints,
    ref: Ints,
    *,
    n_nodes: int,
    road_class: NDArray[np.uint8],
    forward_kmh: Floats,
    backward_kmh: Floats,
) -> Links:
    """Cut ways into directed links; of several with the same start and end the first counts.

    Parameters
    ----------
    ref_offset, ref
        The nodes of each way; -1 for a node that is missing, where the way is interrupted.
    n_nodes
        The number of nodes.
    road_class, forward_kmh, backward_kmh
        For each way its class and its speed in both directions, 0 where a direction is closed.
    """
    pair = neighbours(ref_offset, ref)
    way = np.searchsorted(ref_offset, pair, side="right") - 1
    start, end = np.concatenate([ref[pair], ref[pair + 1]]), np.concatenate([ref[pair + 1], ref[pair]])
    kmh = np.concatenate([forward_kmh[way], backward_kmh[way]])
    order = np.concatenate([2 * pair, 2 * pair + 1])
    kept = np.flatnonzero(kmh > 0)
    kept = kept[np.argsort(order[kept])]
    _, first = np.unique(start[kept] * np.int64(n_nodes) + end[kept], return_index=True)
    n_repeated = len(kept) - len(first)
    kept = kept[np.sort(first)]
    way = np.concatenate([way, way])[kept]
    return Links(start[kept], end[kept], way, road_class[way], kmh[kept], order[kept], n_nodes, n_repeated)


def find_next(links: Links) -> tuple[Ints, Bools]:
    """Return the link that continues each link through a node with two neighbours, or -1 [L], and the plain nodes [N].

    A node is plain, and its links are to be joined, if it has exactly two neighbours and the road passes it unchanged:
    every link that arrives goes on to the other neighbour with the same class and speed.
    """
    n, n_links = links.n_nodes, len(links.start)
    low, high = np.minimum(links.start, links.end), np.maximum(links.start, links.end)
    road = np.unique(low * np.int64(n) + high)
    n_neighbours = np.bincount(road // n, minlength=n) + np.bincount(road % n, minlength=n)
    arriving, leaving = np.bincount(links.end, minlength=n), np.bincount(links.start, minlength=n)
    by_start = np.argsort(links.start, kind="stable")
    first = np.cumsum(leaving) - leaving
    following = np.full(n_links, -1)
    for slot in (0, 1):  # a node with two neighbours has at most two links that leave it
        candidate = by_start[np.minimum(first[links.end] + slot, n_links - 1)]
        on = (n_neighbours[links.end] == 2) & (leaving[links.end] > slot) & (links.end[candidate] != links.start)
        following[on] = candidate[on]
    same = (following >= 0) & (links.road_class[following] == links.road_class) & (links.kmh[following] == links.kmh)
    smooth = np.bincount(links.end[same], minlength=n)
    return following, (n_neighbours == 2) & (arriving == leaving) & (arriving == smooth)


def anchor_loops(links: Links, is_node: Bools) -> Bools:
    """Return ``is_node`` with one node added on every closed road that meets no other road."""
    label = _components(links.start, links.end, links.n_nodes)
    used = np.zeros(links.n_nodes, bool)
    used[links.start] = used[links.end] = True
    anchored = np.bincount(label, weights=is_node & used) > 0
    candidates = np.flatnonzero(used & ~anchored[label])
    _, first = np.unique(label[candidates], return_index=True)
    result = is_node.copy()
    result[candidates[first]] = True
    return result


def join(links: Links, following: Ints, is_node: Bools) -> Chains:
    """Join links to segments that run from node to node, in the order of the file."""
    starts = np.flatnonzero(is_node[links.start])
    chain, offset = _walk(starts, links.end, following, is_node)
    count = np.diff(offset)
    # A segment and its twin take the place of their first link in the file, so that they are neighbours.
    place = np.argsort(np.minimum.reduceat(links.order[chain], offset[:-1]))
    chain = chain[polylines.ranges(offset[:-1][place], count[place])]
    offset = np.concatenate([[0], np.cumsum(count[place])])
    geom_offset = offset + np.arange(len(offset))
    vertex, way = np.empty(geom_offset[-1], np.int64), np.empty(geom_offset[-1], np.int64)
    last = geom_offset[1:] - 1
    inner = np.ones(len(vertex), bool)
    inner[last] = False
    vertex[inner], way[inner] = links.start[chain], links.way[chain]
    vertex[last], way[last] = links.end[chain[offset[1:] - 1]], links.way[chain[offset[1:] - 1]]
    return Chains(
        seg_from=vertex[geom_offset[:-1]].astype(np.int32),
        seg_to=vertex[last].astype(np.int32),
        first_link=chain[offset[:-1]],
        geom_offset=geom_offset,
        vertex=vertex,
        way=way,
    )


@njit(cache=True, nogil=True)
def _walk(
    starts: NDArray[np.int64], end: NDArray[np.int64], following: NDArray[np.int64], is_node: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:  # pragma: no cover  (compiled)
    chain = np.empty(len(end), np.int64)
    offset = np.zeros(len(starts) + 1, np.int64)
    n = 0
    for i in range(len(starts)):
        link = starts[i]
        chain[n] = link
        n += 1
        while not is_node[end[link]]:
            link = following[link]
            chain[n] = link
            n += 1
        offset[i + 1] = n
    return chain[:n], offset


def _components(a: Ints, b: Ints, n: int) -> NDArray[np.int32]:
    graph = sparse.coo_array((np.ones(len(a), bool), (a, b)), shape=(n, n))
    return np.asarray(csgraph.connected_components(graph, directed=False)[1])
