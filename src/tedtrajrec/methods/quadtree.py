"""A quadtree over a square city: where past fixes lie close, its leaves are small.

A place of the square (-1 to 1, both ways) has a code: the bits of its column and row among 2^20 each, taken in turns,
so that all places of a node of the tree follow each other. A leaf is then a range of codes, and the leaf of a place is
found by bisection.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Longs = NDArray[np.int64]

DEPTH = 20  # of the deepest leaves: centimetres in a city of 10 km


class Quadtree(NamedTuple):
    """The T nodes of a tree, level by level from the root."""

    start: Longs  # [T] first code of the node
    depth: Longs  # [T] 0 for the root
    parent: Longs  # [T] number of the node above; -1 for the root

    @property
    def edges(self) -> Longs:
        """The pairs of a node and the one above it, both ways [2, E]."""
        pairs = np.stack([np.arange(1, len(self.parent)), self.parent[1:]])
        return np.concatenate([pairs, pairs[::-1]], axis=1)

    @property
    def leaves(self) -> Longs:
        """The nodes that are not divided, in the order of their codes."""
        leaf = np.setdiff1d(np.arange(len(self.parent)), self.parent)
        return leaf[np.argsort(self.start[leaf])]


def codes_of(xy: NDArray[np.floating]) -> Longs:
    """Return the codes [...] of places [..., 2]; those outside of the square count to its edge."""
    cell = np.floor((np.asarray(xy, np.float64) + 1) / 2 * (1 << DEPTH)).clip(0, (1 << DEPTH) - 1).astype(np.int64)
    column, row = _spread(cell[..., 0]), _spread(cell[..., 1])
    return column | (row << 1)


def make_quadtree(xy: NDArray[np.floating], most: int) -> Quadtree:
    """Return the tree whose leaves hold at most so many of the places [N, 2], unless they are too small to be told."""
    code = np.sort(codes_of(xy))
    start, parent = np.zeros(1, np.int64), np.full(1, -1)
    levels = [(start, parent)]
    first = 0  # number of the first node of the level
    for depth in range(DEPTH):
        size = 1 << 2 * (DEPTH - depth)
        count = np.searchsorted(code, start + size) - np.searchsorted(code, start)
        divided = np.flatnonzero(count > most)
        if not len(divided):
            break
        parent = np.repeat(first + divided, 4)
        first += len(start)
        start = (start[divided, None] + np.arange(4) * (size // 4)).ravel()
        levels.append((start, parent))
    depths = [np.full(len(start), depth) for depth, (start, _) in enumerate(levels)]
    starts, parents = (np.concatenate(part) for part in zip(*levels, strict=True))
    return Quadtree(starts, np.concatenate(depths), parents)


def leaf_of(leaf_start: Longs, xy: NDArray[np.floating]) -> Longs:
    """Return which of the leaves, given by their first codes in order [L], holds each place [..., 2]."""
    return np.searchsorted(leaf_start, codes_of(xy), side="right") - 1


def boxes_of(start: Longs, depth: Longs) -> NDArray[np.float32]:
    """Return centre, width and height of nodes [T, 4]: x, y, w, h."""
    corner = np.stack([_gather(start), _gather(start >> 1)], axis=1) / (1 << DEPTH) * 2 - 1
    size = (2.0 / (1 << depth))[:, None]
    return np.concatenate([corner + size / 2, size, size], axis=1).astype(np.float32)


def _spread(value: Longs) -> Longs:
    """Return numbers of DEPTH bits with a 0 put before each bit."""
    out = np.zeros_like(value)
    for bit in range(DEPTH):
        out |= (value >> bit & 1) << 2 * bit
    return out


def _gather(value: Longs) -> Longs:
    """Return every second bit of numbers, from the lowest: what :func:`_spread` was given."""
    out = np.zeros_like(value)
    for bit in range(DEPTH):
        out |= (value >> 2 * bit & 1) << bit
    return out
