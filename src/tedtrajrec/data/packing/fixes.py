"""Fixes: how far from the true position, in the light of how far the last ones were."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.packing.positions import Roads, piece_at, size_of
from tedtrajrec.data.packing.range_coder import (
    BIT_BYTES,
    INT_BYTES,
    INT_SLOTS,
    Coder,
    Slots,
    code_bit,
    code_int,
    new_slots,
    with_room,
)

Ints = NDArray[np.int64]

_STEP_BYTES = 2 * INT_BYTES + BIT_BYTES
_SCALES = 48  # contexts by how wrong the last guesses were
_FIRST, _SECOND, _LONE_X, _LONE_Y = (n * _SCALES * INT_SLOTS for n in range(4))
_PRESENT = 4 * _SCALES * INT_SLOTS
_SLOTS = _PRESENT + 2


class FixModel:
    """Codes fixes, and learns from one call to the next how GPS errs."""

    def __init__(self) -> None:
        self._slots = new_slots(_SLOTS)
        self._missed = np.zeros(2, np.int64)

    def code(
        self,
        coder: Coder,
        roads: Roads,
        offset: Ints,
        segment: Ints,
        part: Ints,
        road_x: Ints,
        road_y: Ints,
        present: NDArray[np.bool_],
        x: Ints,
        y: Ints,
    ) -> Coder:
        """Code fixes of trips in place and return the coder.

        Parameters
        ----------
        coder
            Writes or reads.
        roads, offset, segment, part, road_x, road_y
            True positions, as :class:`~tedtrajrec.data.packing.positions.PositionModel` left them.
        present
            Whether there is a fix [N].
        x, y
            The fixes in microdegrees [N].
        """
        coder = with_room(coder, int(offset[-1] - offset[0]) * _STEP_BYTES)
        _code_fixes(
            coder, self._slots, self._missed, roads, offset, segment, part, road_x, road_y, present, x, y
        )  # fmt: skip
        return coder


@njit(cache=True, nogil=True)
def _scale_slot(error: int) -> int:  # pragma: no cover  (compiled)
    """Return the slots for errors of about this size (times 8), two contexts for each doubling."""
    size = size_of(error >> 3)
    context = size if size <= 1 else 2 * size - 2 + ((error >> (size + 1)) & 1)
    return min(context, _SCALES - 1) * INT_SLOTS


@njit(cache=True, nogil=True)
def _code_fixes(
    coder: Coder,
    slots: Slots,
    missed: Ints,
    roads: Roads,
    offset: Ints,
    segment: Ints,
    part: Ints,
    road_x: Ints,
    road_y: Ints,
    present: NDArray[np.bool_],
    x: Ints,
    y: Ints,
) -> None:  # pragma: no cover  (compiled)
    """Code each fix as its error, the axis across the road first.

    Errors last: three quarters of the one before are expected again. Where truth was made by matching, the fix lies at
    a right angle to the road, so that the first axis tells the second; which of both guesses is better is learnt.
    """
    last_x, last_y = roads.x[0], roads.y[0]
    seen = True
    for trip in range(len(offset) - 1):
        error_x = error_y = 0
        scale = 400  # eight times the mean error of late
        for i in range(offset[trip], offset[trip + 1]):
            seen = code_bit(coder, slots, _PRESENT + (1 if seen else 0), present[i])
            present[i] = seen
            if not seen:
                error_x = error_y = 0
                continue
            if segment[i] < 0:
                wrong = code_int(coder, slots, _LONE_X + _scale_slot(scale), x[i] - last_x)
                x[i] = last_x + wrong
                wrong_too = code_int(coder, slots, _LONE_Y + _scale_slot(scale), y[i] - last_y)
                y[i] = last_y + wrong_too
                error_x = error_y = 0
            else:
                vertex, _ = piece_at(roads, segment[i], part[i])
                east = (roads.x[vertex + 1] - roads.x[vertex]) * roads.shrink * roads.shrink
                north = float(roads.y[vertex + 1] - roads.y[vertex])
                steep = abs(north) > abs(east)
                if steep:  # a road to the north: errors are to the east
                    lasting, lasting_too = 3 * error_x // 4, 3 * error_y // 4
                    slope = -east / north
                    wrong = code_int(coder, slots, _FIRST + _scale_slot(scale), x[i] - road_x[i] - lasting)
                else:
                    lasting, lasting_too = 3 * error_y // 4, 3 * error_x // 4
                    slope = -north / east if east != 0 else 0.0
                    wrong = code_int(coder, slots, _FIRST + _scale_slot(scale), y[i] - road_y[i] - lasting)
                error = lasting + wrong
                square = int(np.rint(slope * error))
                guess = square if missed[0] < missed[1] else lasting_too
                want = y[i] - road_y[i] if steep else x[i] - road_x[i]
                wrong_too = code_int(coder, slots, _SECOND + _scale_slot((scale + 8 * abs(wrong)) >> 1), want - guess)
                error_too = guess + wrong_too
                missed[0] += (256 * abs(error_too - square) - missed[0]) >> 8
                missed[1] += (256 * abs(error_too - lasting_too) - missed[1]) >> 8
                error_x, error_y = (error, error_too) if steep else (error_too, error)
                x[i], y[i] = road_x[i] + error_x, road_y[i] + error_y
            scale += (3 * (4 * (abs(wrong) + abs(wrong_too)) - scale)) >> 3
            last_x, last_y = x[i], y[i]
