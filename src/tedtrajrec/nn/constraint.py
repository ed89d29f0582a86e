"""The constraint mask: at observed steps, segments near the fix are favoured.

    C[i, e] = exp(-dist(p_i, e)^2 / beta^2) for e within the radius of the fix p_i observed at step i, at least a floor;
    C[i, e] = 1 for all e at other steps

A softmax does not change when a row is multiplied by a constant, so a row may be divided by its floor: then only the
few segments near the fix differ from 1, and log C is stored for those alone. It is never dense.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tedtrajrec.nn.point_features import Nearby


class StepMask(Protocol):
    """What to add to the logits of a step."""

    def add_to(self, logits: Tensor) -> Tensor:
        """Return logits, of trips or of other rows [R, S], with it, added in place."""


class RowMask(StepMask, Protocol):
    """What to add to the logits of rows, each of a step of a trip."""

    def part(self, which: slice) -> RowMask:
        """Return that of some of the rows."""


class Mask(Protocol):
    """What to add to the logits of all steps of a batch."""

    def each(self) -> Sequence[StepMask]:
        """Return that of each step, with trips as rows; to be added in the order of steps."""

    def rows(self) -> RowMask:
        """Return that of all steps as rows, trip by trip."""


class Constraint(NamedTuple):
    """What to add to the logits of a few segments at each step; nothing is added at steps without a fix."""

    segment: Tensor  # [B, n, K] int64
    bonus: Tensor  # [B, n, K] log(C / floor), at least 0

    def add_to(self, logits: Tensor) -> Tensor:
        """Return logits [B, n, S] with the constraint, which is added in place: they are large."""
        return logits.scatter_add_(-1, self.segment, self.bonus.to(logits.dtype))

    def each(self) -> list[Constraint]:
        """Return the constraint of each step [B, K]."""
        parts = zip(self.segment.unbind(1), self.bonus.unbind(1), strict=True)
        return [Constraint(segment, bonus) for segment, bonus in parts]

    def rows(self) -> Constraint:
        """Return the constraint of all steps as rows [B * n, K]."""
        return Constraint(self.segment.flatten(0, 1), self.bonus.flatten(0, 1))

    def part(self, which: slice) -> Constraint:
        """Return the constraint of some rows."""
        return Constraint(self.segment[which], self.bonus[which])


def constrain(
    nearby: Nearby,
    fix_step: Tensor,
    fix_mask: Tensor,
    n_steps: int,
    *,
    radius_m: float = 100.0,
    beta_m: float = 15.0,
    floor: float = 1e-6,
) -> Constraint:
    """Return the constraint of the steps of a batch.

    Parameters
    ----------
    nearby
        Segments around the fixes [B, m, K].
    fix_step, fix_mask
        The step of each fix and whether it is one [B, m].
    n_steps
        n.
    radius_m, beta_m, floor
        See the module.
    """
    b, m, k = nearby.segment.shape
    near = (nearby.distance_m <= radius_m) & fix_mask[..., None]
    bonus = (-math.log(floor) - (nearby.distance_m / beta_m) ** 2).clamp_min(0).masked_fill(~near, 0)
    place = torch.where(fix_mask, fix_step, n_steps)[..., None].expand(b, m, k)  # padding goes to a row of its own
    shape = (b, n_steps + 1, k)
    segment = torch.zeros(shape, dtype=torch.int64, device=bonus.device).scatter(1, place, nearby.segment)
    return Constraint(
        segment[:, :n_steps],
        torch.zeros(shape, dtype=bonus.dtype, device=bonus.device).scatter(1, place, bonus)[:, :n_steps],
    )
