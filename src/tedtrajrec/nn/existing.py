"""Which candidates of a batch exist, as places in flat arrays, so that processors work on no others.

Lists of candidates are as long as the longest one may be, and a trip has as many as the one with the most fixes: of all
places in them about a third holds a candidate, and of the places of steps two thirds. CUDA devices work on all of them,
since what is recorded as a graph has fixed shapes; a processor takes those that exist.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tedtrajrec.nn.sequences import rows


class Existing(NamedTuple):
    """E candidates of lists and Q candidates of steps."""

    entry: Tensor  # [E] places in [B, J, C]
    pair: Tensor  # [Q] places in [B, n, C]
    entry_of_pair: Tensor  # [Q] which of the E
    step_of_pair: Tensor  # [Q] places in [B, n]
    packed: Tensor  # [B, K] the candidates of each trip, as numbers of the E; what fills up is the first
    product_of_pair: Tensor  # [Q] places in [B, n, K]

    @classmethod
    def of(cls, exists: Tensor, slot: Tensor, step_mask: Tensor) -> Existing:
        """Return what exists of a batch.

        Parameters
        ----------
        exists
            [B, J, C].
        slot
            The list of each step [B, n].
        step_mask
            [B, n].
        """
        b, c = len(exists), exists.shape[-1]
        there = exists.view(b, -1)
        count = there.sum(1)
        before, most = count.cumsum(0) - count, int(count.max()) if b else 0
        within = there.cumsum(1) - 1  # the number of each among those of its trip
        pair = (rows(exists, slot) & step_mask[..., None]).flatten().nonzero().squeeze(1)
        place = rows(within.view_as(exists), slot).flatten()[pair]
        step = torch.div(pair, c, rounding_mode="floor")
        trip = torch.div(step, slot.shape[1], rounding_mode="floor")
        number = torch.arange(most)
        packed = (before[:, None] + number).masked_fill(number >= count[:, None], 0)
        return cls(there.flatten().nonzero().squeeze(1), pair, before[trip] + place, step, packed, step * most + place)

    def entries(self, values: Tensor) -> Tensor:
        """Return the values [B, J, C, ...] of candidates of lists [E, ...]."""
        return values.flatten(0, 2)[self.entry]

    def pairs(self, values: Tensor) -> Tensor:
        """Return the values [B, n, C, ...] of candidates of steps [Q, ...]."""
        return values.flatten(0, 2)[self.pair]

    def spread(self, values: Tensor, shape: torch.Size, missing: float) -> Tensor:
        """Return values [Q] of candidates of steps at their places [B, n, C], and another one where there is none."""
        return values.new_full((shape.numel(),), missing).index_copy(0, self.pair, values).view(shape)
