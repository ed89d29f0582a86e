"""The part of a road network that a batch touches, so that work on its roads does not grow with the network.

With P layers of a graph neural network, the representation of a segment depends on segments up to P hops away and on no
others. The part of a batch is the segments that it asks for and all within P hops of them, with every edge that leads
to a segment less than P hops away. What the layers give there for the segments asked for is what they give on the whole
network, and so are the gradients. Segments P hops away are only read, and the last layer needs no more edges than those
that lead to segments asked for: these are kept apart from the others.

Sizes are rounded up, so that few shapes occur and work can be recorded in CUDA graphs: what fills up are segments that
nobody asks for, which take up the edges that fill up. They repeat the last one, and have no gradient.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.growing import resized

LARGE = 30_000
"""On a CUDA device, networks of no more segments are never taken in parts: all of them take less than a millisecond."""

LARGE_CPU = 4_000
"""The same of a processor, where a pass over 20,000 segments takes a second."""

SHARE = 0.5
"""A part larger than this share of the network is not worth it: the network is taken as a whole."""

FILL = 8  # edges that a segment which fills up takes at most

Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


class Part(NamedTuple):
    """Some segments of a network and edges between them; segments are numbered anew from 0, those asked for first.

    An edge is three int64: source and target as numbers in the part, and its number in the network. Targets rise.
    """

    asked: Tensor  # [A] int64, numbers in the network of the segments asked for
    around: Tensor  # [U - A] of all others
    to_asked: Tensor  # [3, E] the edges that lead to segments asked for
    to_others: Tensor  # [3, F] those that lead to others

    @property
    def segment(self) -> Tensor:
        """All segments [U]."""
        return torch.cat([self.asked, self.around])

    @property
    def edges(self) -> Tensor:
        """All edges [3, E + F]."""
        return torch.cat([self.to_asked, self.to_others], dim=1)


class PartFinder:
    """Finds parts of a network, in time and memory that do not depend on its size; may be used from several threads.

    Parameters
    ----------
    edges
        Sources and targets of the edges of all segments [2, E].
    n_segments
        S.
    """

    def __init__(self, edges: Tensor, n_segments: int) -> None:
        source, target = edges.cpu().numpy()
        self._order = np.argsort(target, kind="stable").astype(np.int32)
        self._source = source[self._order].astype(np.int32)
        self._offset = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=n_segments))])
        self.n_segments = n_segments
        self._scratch: list[Segments] = []  # the number of each segment in the part, or -1; one for each thread

    def around(self, asked: Ints, hops: int) -> tuple[Part, Ints]:
        """Return the part around some segments, unrounded, and the number in it of each of those asked for.

        The first of the part are those asked for, as they come.

        Parameters
        ----------
        asked
            Segments [...]; they may repeat.
        hops
            How many layers a segment hears its neighbours through.
        """
        try:
            number = self._scratch.pop()
        except IndexError:
            number = np.full(self.n_segments, -1, np.int32)
        segment, own, inner = _collect(self._offset, self._source, asked.ravel(), hops, number)
        ends = (0, min(own, inner), inner)
        edges = [
            _edges(self._offset, self._source, self._order, segment, first, last, number)
            for first, last in itertools.pairwise(ends)
        ]
        places = number[asked].astype(np.int64)
        number[segment] = -1
        self._scratch.append(number)
        segments = np.split(segment.astype(np.int64), [own])
        return Part(*map(torch.from_numpy, segments), *map(torch.from_numpy, edges)), places


def rounded(part: Part) -> Part:
    """Return a part with more segments and edges, up to sizes of which there are few.

    Those asked for have such a size too: some of the others count as asked for, and nobody uses what is made of them.
    """
    segment, edges = part.segment, part.edges
    u, e = len(segment), edges.shape[1]
    more_edges = _size(e) - e
    fill = _size(u + -(-more_edges // FILL)) - u
    # Spread, because many edges to one target are slow to add up.
    target = u + torch.arange(more_edges) * fill // max(more_edges, 1)
    segment = torch.cat([segment, segment[-1:].expand(fill)])
    edges = torch.cat([edges, torch.stack([target, target, torch.zeros_like(target)])], dim=1)
    asked, to_asked = _size(len(part.asked)), _size(part.to_asked.shape[1])
    # Contiguous, because others are copied once more on their way to a device, which waits for that.
    halves = edges[:, :to_asked].contiguous(), edges[:, to_asked:].contiguous()
    return Part(segment[:asked], segment[asked:], *halves)


def unfilled(part: Part) -> Ints:
    """Return the segments of a part, each once: without those that :func:`rounded` filled it up with."""
    segment: Ints = part.segment.cpu().numpy()
    return segment[: int(np.argmax(segment == segment[-1])) + 1]


def no_part() -> Part:
    """Return the part that stands for the network as a whole."""
    none, no_edge = torch.zeros(0, dtype=torch.int64), torch.zeros(3, 0, dtype=torch.int64)
    return Part(none, none, no_edge, no_edge)


def _size(count: int) -> int:
    """Return the next of the sizes: eight between a power of 2 and the next."""
    unit = max(1024, 1 << max(count.bit_length() - 4, 0))
    return -(-count // unit) * unit


@njit(cache=True, nogil=True)
def _collect(
    offset: Ints, source: Segments, asked: Ints, hops: int, number: Segments
) -> tuple[Segments, int, int]:  # pragma: no cover  (compiled)
    """Return the segments of a part, with numbers; how many are asked for, and how many less than all hops away."""
    found = np.empty(1024, np.int32)
    size = 0
    for s in asked:
        if number[s] < 0:
            if size == len(found):
                found = resized(found, size, 2 * size)
            number[s], found[size] = size, s
            size += 1
    own = size
    first = last = 0
    for _ in range(hops):
        last = size
        for k in range(first, last):
            for j in range(offset[found[k]], offset[found[k] + 1]):
                s = source[j]
                if number[s] < 0:
                    if size == len(found):
                        found = resized(found, size, 2 * size)
                    number[s], found[size] = size, s
                    size += 1
        first = last
    return found[:size], own, last


@njit(cache=True, nogil=True)
def _edges(
    offset: Ints, source: Segments, order: Segments, segment: Segments, first: int, last: int, number: Segments
) -> Ints:  # pragma: no cover  (compiled)
    """Return the edges that lead to some segments of a part, from one up to another."""
    total = 0
    for s in segment[first:last]:
        total += offset[s + 1] - offset[s]
    edges = np.empty((3, total), np.int64)
    k = 0
    for i in range(first, last):
        for j in range(offset[segment[i]], offset[segment[i] + 1]):
            edges[0, k], edges[1, k], edges[2, k] = number[source[j]], i, order[j]
            k += 1
    return edges
