"""STTExtractor: a fix as the distance-weighted mean of the roads around it, at its time of day.

h_i = sum_j w_ij X(e_j, t_i) / sum_j w_ij,   w_ij = exp(-dist_ij^2 / gamma^2),   over segments within eta
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from tedtrajrec.data.batch import FixCandidates
from tedtrajrec.nn.roads import Roads


class Nearby(NamedTuple):
    """The segments around each fix, padded to the K nearest."""

    segment: Tensor  # [B, m, K] int64; 0 for padding
    distance_m: Tensor  # [B, m, K]; infinite for padding
    ratio: Tensor  # [B, m, K]


def pad_candidates(candidates: FixCandidates, shape: tuple[int, int], most: int) -> Nearby:
    """Return ragged candidates, which are ordered by distance, as padded ones.

    Parameters
    ----------
    candidates
        Of the fixes of a batch.
    shape
        B and m.
    most
        K; farther candidates are left out.
    """
    b, m = shape
    start, count = candidates.offset[:-1], candidates.offset.diff()
    place = torch.arange(most, device=start.device)
    real = place < count[:, None]  # [B*m, K]
    row = torch.where(real, start[:, None] + place, 0)

    def pad(values: Tensor, fill: float) -> Tensor:
        if len(values) == 0:
            return values.new_full((b, m, most), fill)
        return torch.where(real, values[row], fill).view(b, m, most)

    return Nearby(pad(candidates.segment, 0), pad(candidates.distance_m, torch.inf), pad(candidates.ratio, 0))


def point_features(
    roads: Roads, nearby: Nearby, minute: Tensor, *, eta_m: float = 400.0, gamma_m: float = 30.0
) -> Tensor:
    """Return h [B, m, d] of fixes at local minutes of the day [B, m]; zero where no road is near."""
    near = nearby.distance_m <= eta_m
    # As a softmax, so that a fix 300 m from the nearest road does not underflow to 0 / 0.
    logit = (-((nearby.distance_m / gamma_m) ** 2)).masked_fill(~near, -torch.inf)
    weight = torch.softmax(logit, dim=-1).masked_fill(~near, 0)  # which is NaN where nothing is near
    x = roads.at(nearby.segment, minute[..., None].expand_as(nearby.distance_m))  # [B, m, K, d]
    return (weight[..., None].to(x.dtype) * x).sum(-2)
