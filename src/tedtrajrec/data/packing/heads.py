"""What is said once a trip: when it starts, how many steps it has, and its id."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.packing.range_coder import (
    BIT_BYTES,
    INT_BYTES,
    INT_SLOTS,
    Coder,
    Slots,
    code_bits,
    code_int,
    new_slots,
    with_room,
)

Ints = NDArray[np.int64]

_START, _COUNT, _SHARED, _REST, _BYTE = (n * INT_SLOTS for n in range(5))


class HeadModel:
    """Codes the heads of trips, and learns from one call to the next."""

    def __init__(self) -> None:
        self._slots = new_slots(_BYTE + 256 * 256)

    def code(self, coder: Coder, start: Ints, count: Ints, id_offset: Ints, id_text: NDArray[np.uint8]) -> Coder:
        """Code starts [T], numbers of steps [T], and ids with offsets [T+1], in place; return the coder.

        Raises
        ------
        ValueError
            If a reading coder finds something else.
        """
        coder = with_room(coder, 4 * INT_BYTES * len(start) + 8 * BIT_BYTES * len(id_text))
        if not _code_heads(coder, self._slots, start, count, id_offset, id_text):
            raise ValueError("the numbers of steps or the ids of trips make no sense")
        return coder


@njit(cache=True, nogil=True)
def _code_heads(
    coder: Coder, slots: Slots, start: Ints, count: Ints, id_offset: Ints, text: NDArray[np.uint8]
) -> bool:  # pragma: no cover  (compiled)
    """Code values as differences from the trip before, and an id as what it shares with that one and the rest."""
    last_start = last_count = last_id = last_end = 0
    for trip in range(len(start)):
        start[trip] = last_start + code_int(coder, slots, _START, start[trip] - last_start)
        count[trip] = last_count + code_int(coder, slots, _COUNT, count[trip] - last_count)
        last_start, last_count = start[trip], count[trip]
        begin, end = id_offset[trip], id_offset[trip + 1]
        shared = 0
        while shared < min(end - begin, last_end - last_id) and text[begin + shared] == text[last_id + shared]:
            shared += 1
        rest = code_int(coder, slots, _REST, end - begin - shared)
        shared = code_int(coder, slots, _SHARED, shared)
        end = begin + shared + rest
        if count[trip] < 1 or not (0 <= shared <= last_end - last_id and rest >= 0 and end <= len(text)):
            return False
        text[begin : begin + shared] = text[last_id : last_id + shared]
        for i in range(begin + shared, end):
            before = int(text[i - 1]) if i > begin else 0
            text[i] = code_bits(coder, slots, _BYTE + 256 * before, 8, int(text[i]))
        id_offset[trip + 1] = end
        last_id, last_end = begin, end
    return bool(id_offset[len(start)] == len(text))
