"""The best of many linear scores for one vector, exactly, while a quarter of the weights is read.

    best = argmax over e of  w_e . h + b_e + c_e

A product of one vector with the weights of all segments takes as long as these take to be read. So they are also kept
as whole numbers of 8 bits times a scale for each segment, and h for once as such of 16 bits:

    w_e = s_e q_e + r_e,   h = t g + u,   w_e . h = s_e t (q_e . g) + error,   |error| <= |s_e q_e| |u| + |r_e| |h|

The last by Cauchy and Schwarz. A segment whose coarse score, with all that it may lack, does not reach what another one
has for sure cannot be the best. A few are left, and those are scored in full.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

ROUNDING = 1e-9  # share of |w| |h| by which sums in double precision may be off, and more

Floats = NDArray[np.float64]


class Shortlist:
    """The weights of all segments, to be asked for the best one.

    Parameters
    ----------
    weight, bias
        w [S, d] and b [S], on the CPU. They are read again in use: when they change, a new shortlist is needed.
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._weight, self._bias = weight.detach().numpy(), bias.detach().numpy()
        exact = self._weight.astype(np.float64)
        top = np.abs(exact).max(axis=1, initial=0)
        self._scale = np.where(top > 0, top, 1) / np.iinfo(np.int8).max
        self._coarse = np.rint(exact / self._scale[:, None]).astype(np.int8)
        kept = self._coarse * self._scale[:, None]
        self._kept = np.linalg.norm(kept, axis=1)
        self._lost = np.linalg.norm(exact - kept, axis=1) + ROUNDING * self._kept
        # Sums of d products must fit into 32 bits.
        self._most = min(np.iinfo(np.int16).max, np.iinfo(np.int32).max // (np.iinfo(np.int8).max * exact.shape[1]))

    def best(self, state: Tensor, near: Tensor, bonus: Tensor) -> int:
        """Return the segment of the largest score; the first of several.

        Parameters
        ----------
        state
            h [d].
        near, bonus
            Segments [K], which may be named several times, and what is added to their scores; all other c are 0.
        """
        return int(
            _best(
                self._coarse,
                self._scale,
                self._kept,
                self._lost,
                self._weight,
                self._bias,
                state.numpy(),
                self._most,
                near.numpy(),
                bonus.numpy(),
            )
        )


@njit(cache=True, nogil=True)
def _best(
    coarse: NDArray[np.int8],
    scale: Floats,
    kept: Floats,
    lost: Floats,
    weight: NDArray[np.floating],
    bias: NDArray[np.floating],
    h: NDArray[np.floating],
    most: int,
    near: NDArray[np.int64],
    bonus: NDArray[np.floating],
) -> int:  # pragma: no cover  (compiled)
    """Return the segment of the largest score; see the class."""
    segments, d = coarse.shape
    step = 0.0
    for k in range(d):
        step = max(step, abs(float(h[k])) / most)
    fine = np.zeros(d, np.int16)
    length = off = 0.0
    for k in range(d):
        value = float(h[k])
        if step > 0:
            fine[k] = np.int16(np.rint(value / step))
        length += value**2
        off += (value - fine[k] * step) ** 2
    length, off = np.sqrt(length), np.sqrt(off)

    product = np.empty(segments, np.int32)
    for e in range(segments):
        total = np.int32(0)  # with casts, since numba would else add in 64 bits, four at a time instead of sixteen
        for k in range(d):
            total = np.int32(total + np.int32(coarse[e, k]) * np.int32(fine[k]))
        product[e] = total
    score, doubt = scale * step * product + bias, kept * off + lost * length
    for k in range(len(near)):
        score[near[k]] += bonus[k]
    sure = (score - doubt).max()
    best, highest = 0, -np.inf
    for e in range(segments):
        if score[e] + doubt[e] >= sure:
            exact = 0.0
            for k in range(d):
                exact += float(weight[e, k]) * float(h[k]) - scale[e] * step * coarse[e, k] * fine[k]
            if score[e] + exact > highest:
                best, highest = e, score[e] + exact
    return best
