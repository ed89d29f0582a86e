"""From what a method believes to what turns out right: monotone maps of probabilities, learned on validation trips.

Steps are put in bins of equal count by their probability; the shares of right ones are made monotone (isotonic
regression) and joined by lines. On held-out trips this was as good as isotonic regression of all steps, in 40 numbers,
and better than a temperature, Platt's or a beta map; ``docs/metrics.md`` has the figures. Observed and missing steps,
which are not equally reliable, have a map each.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression
from torch import Tensor

from tedtrajrec.methods.base import Arrays

Floats = NDArray[np.float64]

BINS = 20
STEPS_PER_BIN = 50  # with fewer, the share that was right says too little
SAID, RIGHT = "said", "right"


class Calibration:
    """Monotone maps of probabilities, one for each kind of step; as it is made, it changes nothing.

    Parameters
    ----------
    said, right
        Bends of the maps, which are flat beyond the outer ones [kinds, bends]: probabilities as they come, in order,
        and what becomes of them.
    """

    def __init__(self, said: ArrayLike = ((0.0, 1.0),), right: ArrayLike = ((0.0, 1.0),)) -> None:
        self.said, self.right = np.asarray(said, np.float64), np.asarray(right, np.float64)
        if self.said.ndim != 2 or self.said.shape != self.right.shape or not self.said.size:
            raise ValueError(f"bends of shape {self.said.shape} do not go with {self.right.shape}")
        for bends in (self.said, self.right):
            if not ((np.diff(bends) >= 0).all() and (bends >= 0).all() and (bends <= 1).all()):
                raise ValueError("the bends of a calibration must rise, from 0 to 1")

    @classmethod
    def fit(cls, probability: ArrayLike, right: ArrayLike, kind: ArrayLike | None = None) -> Self:
        """Return the maps that steps of known truth call for.

        Parameters
        ----------
        probability, right
            What the method said of each step, and whether it was right [N].
        kind
            The kind of each step, 0 or more, or whether it was observed [N]; None: all are of one kind. A kind with
            too few steps for two bins is left as it is.
        """
        said, was = np.asarray(probability, np.float64), np.asarray(right, np.float64)
        which = np.zeros(len(said), np.int64) if kind is None else np.asarray(kind, np.int64)
        if not ((said >= 0) & (said <= 1)).all():
            raise ValueError("a probability is not between 0 and 1")
        # Whether steps were observed makes two kinds, also where all or none were.
        kinds = max(int(which.max(initial=0)) + 1, 2 if np.asarray(kind).dtype == bool else 1)
        maps = [_fit(said[which == k], was[which == k]) for k in range(kinds)]
        return cls(np.stack([x for x, _ in maps]), np.stack([y for _, y in maps]))

    def __call__(self, probability: ArrayLike, kind: ArrayLike | None = None) -> Floats:
        """Return the calibrated probabilities, of the same shape; NaN stays.

        Without kinds all are of the first; a kind that has no map takes the last.
        """
        said = torch.from_numpy(np.asarray(probability, np.float64))
        kinds = None if kind is None else torch.from_numpy(np.asarray(kind, np.int64))
        out: Floats = self.tensor(said, kinds).numpy()
        return out

    def tensor(self, probability: Tensor, kind: Tensor | None = None) -> Tensor:
        """Return the same for tensors, on any device."""
        said, right = (torch.from_numpy(bends).to(probability) for bends in (self.said, self.right))
        out = _interpolate(probability, said[0], right[0])
        if kind is not None:
            for k in range(1, len(said)):
                out = torch.where(kind >= k, _interpolate(probability, said[k], right[k]), out)
        return out

    def state(self) -> Arrays:
        """Return the bends as arrays, fit to be saved with a method."""
        return {SAID: self.said, RIGHT: self.right}

    @classmethod
    def restored(cls, state: Arrays) -> Self:
        """Return the calibration whose :meth:`state` this is."""
        return cls(state[SAID], state[RIGHT])


def bounds_of_equal_count(values: Floats, bins: int) -> Floats:
    """Return the upper bounds of bins with as many values each, without the last; equal values stay in one bin."""
    last = -(-len(values) * np.arange(1, bins) // bins) - 1
    return np.unique(np.sort(values)[last])


def _fit(said: Floats, was: Floats) -> tuple[Floats, Floats]:
    """Return the bends of one map [BINS each]; where there are fewer, the last one is repeated."""
    n_bins = min(BINS, len(said) // STEPS_PER_BIN)
    if n_bins < 2:
        return _padded(np.array([0.0, 1.0])), _padded(np.array([0.0, 1.0]))
    some, which, count = np.unique(
        np.searchsorted(bounds_of_equal_count(said, n_bins), said), return_inverse=True, return_counts=True
    )
    # Means of bins of nearly equal values may be out of order by their rounding.
    x = np.maximum.accumulate(np.bincount(which, said, len(some)) / count)
    share = (np.bincount(which, was, len(some)) + 0.5) / (count + 1)  # a bin is never quite sure
    return _padded(np.clip(x, 0, 1)), _padded(isotonic_regression(share, weights=count).x)


def _padded(bends: Floats) -> Floats:
    return np.pad(bends, (0, BINS - len(bends)), mode="edge")


def _interpolate(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return the broken line through (x, y), flat beyond its ends, as numpy.interp does; NaN stays."""
    inside = at.clamp(x[0], x[-1])
    after = torch.searchsorted(x, inside.contiguous()).clamp(max=len(x) - 1)
    before = (after - 1).clamp(min=0)
    width = x[after] - x[before]
    part = (inside - x[before]) / torch.where(width > 0, width, 1.0)
    return torch.where(at.isnan(), at, y[before] + part * (y[after] - y[before]))
