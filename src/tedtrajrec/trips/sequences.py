"""Ragged sequences of segments: repeats collapsed, longest common subsequences, common elements.

Sequence ``i`` has the values ``offsets[i]:offsets[i + 1]`` of a flat array.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Segments = NDArray[np.int32]


def collapse(offsets: Ints, values: Segments, keep: NDArray[np.bool_]) -> tuple[Ints, Segments]:
    """Return the sequences without the values that ``keep`` excludes [F], then without immediate repeats."""
    sequence = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[keep]
    kept = values[keep]
    is_new = np.ones(len(kept), bool)
    is_new[1:] = (kept[1:] != kept[:-1]) | (sequence[1:] != sequence[:-1])
    count = np.bincount(sequence[is_new], minlength=len(offsets) - 1)
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int64), kept[is_new]


@njit(cache=True, nogil=True)
def common_subsequence(
    offsets_a: Ints, a: Segments, offsets_b: Ints, b: Segments
) -> Ints:  # pragma: no cover  (compiled)
    """Return the length of the longest common subsequence of each pair of sequences [T].

    The textbook recurrence with one row kept: time is the product of the two lengths, memory the second.
    """
    n = len(offsets_a) - 1
    out = np.empty(n, np.int64)
    longest = 0
    for i in range(n):
        longest = max(longest, offsets_b[i + 1] - offsets_b[i])
    row = np.empty(longest + 1, np.int64)  # row[k]: the first k values of b against those of a so far
    for i in range(n):
        first, last = offsets_b[i], offsets_b[i + 1]
        row[: last - first + 1] = 0
        for j in range(offsets_a[i], offsets_a[i + 1]):
            diagonal = 0
            for k in range(1, last - first + 1):
                above = row[k]
                row[k] = diagonal + 1 if a[j] == b[first + k - 1] else max(above, row[k - 1])
                diagonal = above
        out[i] = row[last - first]
    return out


@njit(cache=True, nogil=True)
def distinct_counts(
    offsets_a: Ints, a: Segments, offsets_b: Ints, b: Segments, n_values: int
) -> tuple[Ints, Ints, Ints]:  # pragma: no cover  (compiled)
    """Return how many distinct values each sequence of a has, each of b, and how many of them are in both [T each].

    Parameters
    ----------
    n_values
        Values are 0..n_values - 1.
    """
    n = len(offsets_a) - 1
    in_a, in_b, in_both = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.int64)
    last_a, last_b = np.full(n_values, -1), np.full(n_values, -1)  # the last sequence that had the value
    for i in range(n):
        for j in range(offsets_a[i], offsets_a[i + 1]):
            if last_a[a[j]] != i:
                last_a[a[j]] = i
                in_a[i] += 1
        for j in range(offsets_b[i], offsets_b[i + 1]):
            if last_b[b[j]] != i:
                last_b[b[j]] = i
                in_b[i] += 1
                in_both[i] += last_a[b[j]] == i
    return in_a, in_b, in_both
