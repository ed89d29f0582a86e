"""Arrays that grow in compiled code."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(cache=True, nogil=True)
def resized(values: NDArray[Any], used: int, room: int) -> NDArray[Any]:  # pragma: no cover  (compiled)
    """Return an array with room for so many values that begins with the first ``used`` ones.

    One by one: an assignment of slices would be compiled with all that words its errors, which takes seconds.
    """
    out = np.empty(room, values.dtype)
    for i in range(used):
        out[i] = values[i]
    return out
