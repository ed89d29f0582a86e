"""Fixes as words for methods that were made for matched trips: a road, and when it was driven.

Sparse raw fixes have no roads. The word of a fix is the nearest segment, or by choice a mean of those around it,
weighted by exp(-dist^2 / gamma^2); never the true one. A fix that no road is near has a learned word of its own.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.more_inputs import PLAIN, MoreInputs
from tedtrajrec.nn.point_features import point_features
from tedtrajrec.nn.roads import Roads

MINUTES, WEEKDAYS = 1440, 7


class DatedInputs(MoreInputs):
    """A batch whose fixes have a weekday, and times in seconds."""

    along_fixes: ClassVar[tuple[int, ...]] = (1, 1)

    @property
    def weekday(self) -> Tensor:
        """Local weekdays of the fixes [B, m], Monday 0."""
        return self[PLAIN]

    @property
    def seconds(self) -> Tensor:
        """When fixes were, in seconds from the start of the trip [B, m]."""
        return self[PLAIN + 1]


def dated(batch: Batch, plain: Inputs) -> DatedInputs:
    """Return what all methods see of a batch, with its dates."""
    next_day = batch.fix_minute < batch.fix_minute[:, :1]
    return DatedInputs(*plain, (batch.weekday[:, None] + next_day) % WEEKDAYS, batch.fix_time)


def minutes(inputs: Inputs) -> Tensor:
    """Return the whole minutes of the day of the fixes [B, m] int64."""
    return inputs.fix_minute.long().clamp(0, MINUTES - 1)


def road_tokens(vectors: Tensor, inputs: Inputs, unknown: Tensor, *, eta_m: float, soft_m: float = 0.0) -> Tensor:
    """Return the words of the fixes [B, m, w].

    Parameters
    ----------
    vectors
        Of the segments [S, w].
    inputs
        The fixes.
    unknown
        The word of a fix without a road [w].
    eta_m
        How far a road may be.
    soft_m
        gamma, for the mean of the segments around a fix; 0 for the nearest.
    """
    near = inputs.nearby
    if soft_m:
        word = point_features(Roads(vectors, None, None), near, inputs.fix_minute, eta_m=eta_m, gamma_m=soft_m)
    else:
        word = functional.embedding(near.segment[..., 0], vectors)
    return torch.where(near.distance_m[..., :1] <= eta_m, word, unknown)
