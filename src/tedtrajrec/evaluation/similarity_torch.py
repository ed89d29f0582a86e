"""The distances of :mod:`tedtrajrec.evaluation.similarity_kernels` on a device, many pairs of trips side by side.

One lane of 64-bit integers for each pair; the words and their operations are the same. The second trips of a block are
all trips in order of length, so that those that go on at a step are the last ones: a slice, without masks.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.evaluation.similarity_kernels import WORD

_FULL = 2**WORD - 1
LANES = 2**23
"""Words of 64 bits in a block; some ten tensors of 8 bytes a word are alive at a time."""


def device_blocks(
    offsets: NDArray[np.int64], values: NDArray[np.int32], *, edits: bool, device: torch.device, lanes: int = LANES
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield numbers of trips [R] and their distances to all trips [R, T], block by block, on the device.

    Parameters
    ----------
    offsets, values
        The segments of trip ``i`` are ``values[offsets[i]:offsets[i + 1]]``.
    edits
        EDR rather than LCSS.
    device
        Where to compute.
    lanes
        Words in a block.
    """
    lengths = np.diff(offsets)
    n_trips = len(lengths)
    order = np.argsort(lengths, kind="stable")
    others = _Others(offsets, values, order, device)
    first = 0
    while first < n_trips:
        # Trips come in order of length, so the words of a block's last trip are those of all; they grow by blocks.
        n_rows = min(n_trips - first, max(1, lanes // n_trips))
        n_words = max(1, -(-int(lengths[order[first + n_rows - 1]]) // WORD))
        n_rows = max(1, min(n_rows, lanes // n_trips // n_words))
        rows = order[first : first + n_rows]
        yield torch.from_numpy(rows).to(device), _distances(offsets, values, rows, others, edits=edits)
        first += n_rows


class _Others:
    """All trips in order of length, on the device."""

    def __init__(
        self, offsets: NDArray[np.int64], values: NDArray[np.int32], order: NDArray[np.int64], device: torch.device
    ) -> None:
        lengths = np.diff(offsets)[order]
        longest = int(lengths.max(initial=0))
        steps = np.zeros((longest, len(order)), np.int64)
        inside = np.arange(longest)[:, None] < lengths
        steps[inside] = values[(offsets[order] + np.arange(longest)[:, None])[inside]]
        self.device = device
        self.n_values = int(values.max(initial=-1)) + 1
        self.steps = torch.from_numpy(steps).to(device)  # [longest, T]
        self.lengths = torch.from_numpy(lengths).to(device)  # [T]
        self.begun = np.searchsorted(lengths, np.arange(longest), side="right").tolist()  # trips that end before a step
        self.back = torch.from_numpy(np.argsort(order)).to(device)  # [T] where each trip stands


def _distances(
    offsets: NDArray[np.int64],
    values: NDArray[np.int32],
    rows: NDArray[np.int64],
    others: _Others,
    *,
    edits: bool,
) -> Tensor:
    device = others.device
    lengths = np.diff(offsets)[rows]
    n_words = max(1, -(-int(lengths.max()) // WORD))
    match, number = _matches(offsets, values, rows, n_words, others)
    left = torch.from_numpy(lengths).to(device) - WORD * torch.arange(n_words, device=device)[:, None]
    left = left.clamp(0, WORD)
    inside = torch.where(left == WORD, _FULL, (torch.ones_like(left) << left.clamp(max=WORD - 1)) - 1)  # [word, R]
    n_first = torch.from_numpy(lengths).to(device)
    if edits:
        count = _count_edits(match, number, others, inside)
        longer = torch.maximum(others.lengths[:, None], n_first)
        distance = count / longer.clamp(min=1).double()
    else:
        shorter = torch.minimum(others.lengths[:, None], n_first)
        distance = (shorter - _count_common(match, number, others, inside)) / shorter.clamp(min=1).double()
    distance[(others.lengths[:, None] == 0) | (n_first == 0)] = 1.0
    distance = distance[others.back].T.contiguous()
    distance[torch.arange(len(rows), device=device), torch.from_numpy(rows).to(device)] = 0.0
    return distance


def _matches(
    offsets: NDArray[np.int64], values: NDArray[np.int32], rows: NDArray[np.int64], n_words: int, others: _Others
) -> tuple[Tensor, Tensor]:
    """Return the steps of the rows on each of their segments [word, number, R], and the numbers at others' steps."""
    lengths = np.diff(offsets)[rows]
    row = np.repeat(np.arange(len(rows)), lengths)
    step = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    segments, number = np.unique(values[np.repeat(offsets[rows], lengths) + step], return_inverse=True)
    size = len(segments) + 1  # 0: on none of them
    place = ((step // WORD) * size + number + 1) * len(rows) + row
    match = torch.zeros(n_words * size * len(rows), dtype=torch.int64, device=others.device)
    bit = torch.from_numpy(np.int64(1) << (step % WORD))
    match.index_add_(0, torch.from_numpy(place).to(others.device), bit.to(others.device))  # all bits are different
    lookup = np.zeros(others.n_values, np.int64)
    lookup[segments] = np.arange(1, size)
    return match.view(n_words, size, len(rows)), torch.from_numpy(lookup).to(others.device)[others.steps]


def _count_common(match: Tensor, number: Tensor, others: _Others, inside: Tensor) -> Tensor:
    """Return the lengths of the longest common subsequences [T, R]."""
    n_words, _, n_rows = match.shape
    state = torch.full((n_words, number.shape[1], n_rows), _FULL, dtype=torch.int64, device=others.device)
    for t, begun in enumerate(others.begun):
        carry: Tensor | None = None
        for word in range(n_words):
            now = state[word, begun:]
            hit = match[word].index_select(0, number[t, begun:]).bitwise_and_(now)
            rest = now ^ hit
            now += hit
            if carry is not None:
                now += carry
            if word + 1 < n_words:
                carry = (now >> WORD).bitwise_and_(1)
            now &= _FULL
            now |= rest
    state.bitwise_not_()
    return sum((_ones(state[word] & inside[word]) for word in range(n_words)), torch.zeros_like(state[0]))


def _count_edits(match: Tensor, number: Tensor, others: _Others, inside: Tensor) -> Tensor:
    """Return the least numbers of edits [T, R]."""
    n_words, _, n_rows = match.shape
    up = torch.full((n_words, number.shape[1], n_rows), _FULL, dtype=torch.int64, device=others.device)
    down = torch.zeros_like(up)
    for t, begun in enumerate(others.begun):
        plus: Tensor | int = 1
        minus: Tensor | int = 0
        for word in range(n_words):
            up_now, down_now = up[word, begun:], down[word, begun:]
            equal = match[word].index_select(0, number[t, begun:])
            vertical = equal | down_now
            equal |= minus
            horizontal = (equal & up_now).add_(up_now).bitwise_xor_(up_now).bitwise_or_(equal)
            more = (horizontal | up_now).bitwise_not_().bitwise_or_(down_now)
            less = horizontal.bitwise_and_(up_now)
            before = plus, minus
            if word + 1 < n_words:
                plus, minus = (more >> (WORD - 1)) & 1, (less >> (WORD - 1)) & 1
            more.bitwise_left_shift_(1).bitwise_or_(before[0])
            less.bitwise_left_shift_(1).bitwise_or_(before[1])
            torch.bitwise_and(more, vertical, out=down_now).bitwise_and_(_FULL)
            torch.bitwise_or(more, vertical, out=up_now).bitwise_not_().bitwise_or_(less).bitwise_and_(_FULL)
    edits = others.lengths[:, None].expand(-1, n_rows).clone()
    for word in range(n_words):
        edits += _ones(up[word] & inside[word])
        edits -= _ones(down[word] & inside[word])
    return edits


def _ones(word: Tensor) -> Tensor:
    """Return the number of bits that are set, counted in pairs, fours and bytes; words are not negative."""
    word = word - ((word >> 1) & 0x5555555555555555)
    word = (word & 0x3333333333333333) + ((word >> 2) & 0x3333333333333333)
    word = (word + (word >> 4)) & 0x0F0F0F0F0F0F0F0F
    return (word * 0x0101010101010101) >> 56
