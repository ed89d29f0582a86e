"""Padded sequences, and recurrent networks over them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def rows(values: Tensor, which: Tensor) -> Tensor:
    """Return values [B, k, ...] at rows [B, n] of each trip: [B, n, ...]."""
    index = which.view(*which.shape, *[1] * (values.ndim - 2)).expand(*which.shape, *values.shape[2:])
    return values.gather(1, index)


def last_real(x: Tensor, mask: Tensor) -> Tensor:
    """Return the last real element [B, d] of sequences x [B, m, d], which have theirs first; mask is [B, m]."""
    last = (mask.sum(1) - 1).clamp_min(0)[:, None, None].expand(-1, 1, x.shape[-1])
    return x.gather(1, last).squeeze(1)


def turned(x: Tensor, mask: Tensor) -> Tensor:
    """Return sequences x [B, m, d] with their real elements, which come first, in reverse; mask is [B, m]."""
    count, place = mask.sum(1, keepdim=True), torch.arange(mask.shape[1], device=mask.device)
    source = torch.where(place < count, count - 1 - place, place)
    return x.gather(1, source[..., None].expand_as(x))


def start_recurrent(module: nn.RNNBase | nn.RNNCellBase) -> None:
    """Give a recurrent network first weights as MTrajRec does: Xavier's, orthogonal ones, and biases of 0."""
    for name, weight in module.named_parameters():
        if name.startswith("weight_ih"):
            nn.init.xavier_uniform_(weight)
        elif name.startswith("weight_hh"):
            nn.init.orthogonal_(weight)
        else:
            nn.init.zeros_(weight)
