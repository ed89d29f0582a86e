"""An adaptive binary range coder: what makes packed datasets small.

Each yes or no is coded with a probability that follows what was seen in the same *slot* before. A slot is a context,
for example "the second bit of a step along the same segment in slow traffic"; callers number them. Whoever reads has
seen the same decisions and so has the same probabilities. All arithmetic is on integers, so every machine agrees.

The functions ``code_*`` work both ways, so that a format is described once: a writing coder codes the value it is given
and returns it; a reading one ignores the value and returns what was written.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

_ONE = 1 << 16  # a probability of 1
_LEAST = 24  # no probability comes nearer to 0 or 1: a decision costs at most 11.5 bits
_MEMORY = 160  # decisions that a slot remembers, at most 256
_RATE = np.array([_ONE / (seen + 1.6) for seen in range(_MEMORY)]).astype(np.int64)

_WIDTH = 48  # bits of the two ends of the interval
_TOP = _WIDTH - 8
_MASK = (1 << _WIDTH) - 1
_LOW, _HIGH, _DONE, _VIEW, _READING = range(5)  # places in Coder.state

_SIZE_SLOTS, _SIGN_SLOTS, _LEADING_SLOTS = 64, 64, 64 * 8
INT_SLOTS = _SIZE_SLOTS + _SIGN_SLOTS + _LEADING_SLOTS
"""Slots that :func:`code_int` needs for one context."""

BIT_BYTES = 2
"""More than a decision ever takes."""

INT_BITS = 40
"""Numbers are below 2^40; this also keeps sums of them small, whatever is read."""

INT_BYTES = 11 * BIT_BYTES + INT_BITS // 8
"""More than a number ever takes."""


Slots = NDArray[np.int32]
"""For each slot the probability that a decision is yes, of 65536, and in the last 8 bits the decisions so far."""


class Coder(NamedTuple):
    """A message under way: the interval that it lies in, and its bytes."""

    state: NDArray[np.int64]  # low and high end, bytes done, the 48 bits in view, whether it reads
    data: NDArray[np.uint8]


def new_slots(count: int) -> Slots:
    """Return slots that have seen nothing."""
    return np.full(count, (_ONE // 2) << 8, np.int32)


def writer() -> Coder:
    """Return a coder that writes; before it does, it needs room."""
    return Coder(np.array([0, _MASK, 0, 0, 0], np.int64), np.empty(0, np.uint8))


def with_room(coder: Coder, size: int) -> Coder:
    """Return the coder with room for ``size`` more bytes if it writes."""
    done = int(coder.state[_DONE])
    size += _WIDTH // 8  # what the interval still holds from before
    if coder.state[_READING] or len(coder.data) - done >= size:
        return coder
    data = np.empty(2 * done + size, np.uint8)
    data[:done] = coder.data[:done]
    return Coder(coder.state, data)


def reader(data: bytes) -> Coder:
    """Return a coder that reads ``data``; behind its end it finds zeros."""
    view = int.from_bytes(data[: _WIDTH // 8].ljust(_WIDTH // 8, b"\0"), "big")
    return Coder(np.array([0, _MASK, _WIDTH // 8, view, 1], np.int64), np.frombuffer(data, np.uint8).copy())


def written(coder: Coder) -> bytes:
    """Return the message of a writing coder, which is then used up."""
    if coder.state[_DONE] > len(coder.data):
        raise RuntimeError("the message did not find room")
    # The ends differ in their top byte, so that the next byte after that of the low end, then zeros, lie between them.
    return coder.data[: coder.state[_DONE]].tobytes() + bytes([(int(coder.state[_LOW]) >> _TOP) + 1])


@njit(cache=True, nogil=True)
def _split(coder: Coder, chance: int, bit: bool) -> bool:  # pragma: no cover  (compiled)
    """Code a decision that is yes with probability ``chance``."""
    state, data = coder
    low, high = state[_LOW], state[_HIGH]
    middle = low + ((high - low) >> 16) * chance
    reading = state[_READING] != 0
    if reading:
        bit = state[_VIEW] <= middle
    if bit:
        high = middle
    else:
        low = middle + 1
    while (low ^ high) >> _TOP == 0:
        room = state[_DONE] < len(data)
        if reading:
            byte = int(data[state[_DONE]]) if room else 0
            state[_VIEW] = ((state[_VIEW] << 8) & _MASK) | byte
        elif room:
            data[state[_DONE]] = low >> _TOP
        state[_DONE] += 1
        low = (low << 8) & _MASK
        high = ((high << 8) & _MASK) | 255
    state[_LOW], state[_HIGH] = low, high
    return bit


@njit(cache=True, nogil=True)
def code_bit(coder: Coder, slots: Slots, slot: int, bit: bool) -> bool:  # pragma: no cover  (compiled)
    """Code a decision in a slot, which learns from it."""
    chance, seen = int(slots[slot] >> 8), int(slots[slot] & 255)
    bit = _split(coder, chance, bit)
    chance += (((_ONE if bit else 0) - chance) * _RATE[seen]) >> 16
    slots[slot] = min(max(chance, _LEAST), _ONE - _LEAST) << 8 | min(seen + 1, _MEMORY - 1)
    return bit


@njit(cache=True, nogil=True)
def code_bits(coder: Coder, slots: Slots, slot: int, bits: int, value: int) -> int:  # pragma: no cover  (compiled)
    """Code a number below 2^bits, first bits first, in the slots ``slot:slot + 2**bits``."""
    node = 1
    for place in range(bits - 1, -1, -1):
        node = 2 * node + (1 if code_bit(coder, slots, slot + node, (value >> place) & 1 != 0) else 0)
    return node - (1 << bits)


@njit(cache=True, nogil=True)
def code_below(coder: Coder, count: int, value: int) -> int:  # pragma: no cover  (compiled)
    """Code a number of 0..count-1, all of them equally likely."""
    first = 0
    while count > 1:
        half = count // 2
        if _split(coder, (half << 16) // count, value < first + half):
            count = half
        else:
            first += half
            count -= half
    return first


@njit(cache=True, nogil=True)
def code_int(coder: Coder, slots: Slots, slot: int, value: int) -> int:  # pragma: no cover  (compiled)
    """Code an integer of at most INT_BITS bits in the slots ``slot:slot + INT_SLOTS``: its size, sign and bits.

    The three bits behind the leading one are learnt; those below are taken as noise.
    """
    size = 0
    while size < INT_BITS and abs(value) >> size:
        size += 1
    size = min(code_bits(coder, slots, slot, 6, size), INT_BITS)
    if size == 0:
        return 0
    negative = code_bit(coder, slots, slot + _SIZE_SLOTS + size, value < 0)
    learnt = min(size - 1, 3)
    noise = size - 1 - learnt
    leading = slot + _SIZE_SLOTS + _SIGN_SLOTS + 8 * size
    head = code_bits(coder, slots, leading, learnt, (abs(value) >> noise) & ((1 << learnt) - 1))
    tail = 0
    for place in range(noise - 1, -1, -1):
        tail = 2 * tail + (1 if _split(coder, _ONE // 2, (abs(value) >> place) & 1 != 0) else 0)
    whole = (((1 << learnt) + head) << noise) + tail
    return -whole if negative else whole
