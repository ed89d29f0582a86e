"""Compiled distances from some trips to all others, 63 steps at a time.

The table of a dynamic program is worked through in words: bit ``p`` of a word belongs to step ``p`` of the first trip,
and a step of the second changes the whole word in a few operations (Hyyrö 2004 for the longest common subsequence,
Myers 1999 and Hyyrö 2003 for edits). A word has 63 steps, so that the carry of a sum is the bit above them. A longer
trip has several words; what one hands to the next at each step of the second trip is kept in between.

Trips without a common segment have the distance 1 and are never compared: an index from segments to trips leads to the
others. That is exact.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Words = NDArray[np.uint64]
Floats = NDArray[np.float64]

WORD = 63
"""Steps in a word."""

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TOP = np.uint64(WORD - 1)
_CARRY = np.uint64(WORD)
_FULL = np.uint64(2**WORD - 1)


@njit(cache=True, nogil=True)
def fill_rows(
    first: int, offsets: Ints, values: Segments, index_offsets: Ints, index: Segments, edits: bool, out: Floats
) -> None:  # pragma: no cover  (compiled)
    """Write the distances from trips ``first``, ``first + 1``, ... to all trips.

    Parameters
    ----------
    offsets, values
        The segments of trip ``i`` are ``values[offsets[i]:offsets[i + 1]]``.
    index_offsets, index
        The trips that have segment ``s`` are ``index[index_offsets[s]:index_offsets[s + 1]]``, each once.
    edits
        EDR rather than LCSS.
    out
        The distances [R, T].
    """
    n_rows, n_trips = out.shape
    longest = 0
    for i in range(n_trips):
        longest = max(longest, offsets[i + 1] - offsets[i])
    number = np.zeros(len(index_offsets) - 1, np.int32)  # of a segment among those of the first trip, from 1; 0: none
    match = np.zeros((longest // WORD + 1, longest + 1), np.uint64)  # [word, number]: steps on that segment
    plus, minus = np.empty(longest, np.uint64), np.empty(longest, np.uint64)  # handed from one word to the next
    seen = np.full(n_trips, -1)
    met = np.empty(n_trips, np.int64)
    for i in range(first, first + n_rows):
        row = out[i - first]
        row[:] = 1.0
        start, length = offsets[i], offsets[i + 1] - offsets[i]
        n_words = (length + WORD - 1) // WORD
        n_numbers, n_met = 0, 0
        for p in range(length):
            segment = values[start + p]
            if number[segment] == 0:
                n_numbers += 1
                number[segment] = n_numbers
                match[:n_words, n_numbers] = _ZERO
                for q in range(index_offsets[segment], index_offsets[segment + 1]):
                    j = index[q]
                    if seen[j] != i:
                        seen[j] = i
                        met[n_met] = j
                        n_met += 1
            match[p // WORD, number[segment]] |= _ONE << np.uint64(p % WORD)
        for q in range(n_met):
            j = met[q]
            other = values[offsets[j] : offsets[j + 1]]
            if edits:
                row[j] = _edits(length, match, number, other, plus, minus) / max(length, len(other))
            else:
                shorter = min(length, len(other))
                row[j] = (shorter - _common(length, match, number, other, plus)) / shorter
        row[i] = 0.0
        for p in range(start, start + length):
            number[values[p]] = 0


@njit(cache=True, nogil=True)
def _common(
    length: int, match: Words, number: Segments, other: Segments, carry: Words
) -> int:  # pragma: no cover  (compiled)
    """Return the length of the longest common subsequence."""
    common = 0
    carry[: len(other)] = _ZERO
    for word in range((length + WORD - 1) // WORD):
        state = _FULL  # 0 where the subsequence grows from one step of the first trip to the next
        masks = match[word]
        for t in range(len(other)):
            hit = state & masks[number[other[t]]]
            total = state + hit + carry[t]
            carry[t] = total >> _CARRY
            state = (total & _FULL) | (state ^ hit)
        common += _ones(~state & _steps(length - word * WORD))
    return common


@njit(cache=True, nogil=True)
def _edits(
    length: int, match: Words, number: Segments, other: Segments, plus: Words, minus: Words
) -> int:  # pragma: no cover  (compiled)
    """Return the least number of steps to insert, delete or replace."""
    edits = len(other)
    plus[: len(other)], minus[: len(other)] = _ONE, _ZERO
    for word in range((length + WORD - 1) // WORD):
        up, down = _FULL, _ZERO  # where the edits of one step more of the first trip are one more, one less
        masks = match[word]
        for t in range(len(other)):
            equal = masks[number[other[t]]]
            vertical = equal | down
            equal |= minus[t]
            horizontal = (((equal & up) + up) ^ up) | equal
            more = down | ~(horizontal | up)
            less = up & horizontal
            shifted_more = (more << _ONE) | plus[t]
            shifted_less = (less << _ONE) | minus[t]
            plus[t], minus[t] = (more >> _TOP) & _ONE, (less >> _TOP) & _ONE
            up = (shifted_less | ~(vertical | shifted_more)) & _FULL
            down = shifted_more & vertical & _FULL
        steps = _steps(length - word * WORD)
        edits += _ones(up & steps) - _ones(down & steps)
    return edits


@njit(cache=True, nogil=True, inline="always")
def _steps(left: int) -> np.uint64:  # pragma: no cover  (compiled)
    """Return a word with the bits of the steps that are left of a trip."""
    return _FULL if left >= WORD else (_ONE << np.uint64(left)) - _ONE


@njit(cache=True, nogil=True, inline="always")
def _ones(word: np.uint64) -> int:  # pragma: no cover  (compiled)
    """Return the number of bits that are set, counted in pairs, fours and bytes."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return int(np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56)))  # signed, as sums of counts are
