"""The ids met so far in a long file, as hashes: 8 bytes each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class SeenHashes:
    """A growing set of hashes, kept as few sorted arrays so that adding a block does not sort all of them again."""

    def __init__(self) -> None:
        self._parts: list[NDArray[np.uint64]] = []  # each at least twice as long as the next

    def add(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Add hashes and tell for each whether it was there before."""
        before = np.zeros(len(hashes), bool)
        for part in self._parts:
            place = np.minimum(np.searchsorted(part, hashes), len(part) - 1)
            before |= part[place] == hashes
        new = np.unique(hashes[~before])
        if len(new):
            self._parts.append(new)
        while len(self._parts) > 1 and len(self._parts[-2]) < 2 * len(self._parts[-1]):
            last = self._parts.pop()
            self._parts[-1] = np.sort(np.concatenate([self._parts[-1], last]))
        return before
