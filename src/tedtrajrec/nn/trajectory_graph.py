"""MM-STGED's graph of a trip: all fixes are linked, by time and by distance.

A_t[i, j] = exp(-|t_i - t_j| / mean gap),   A_d[i, j] = exp(-dist_ij / std of dist_i.),   0 for i = j
X' = X + ReLU(BN(W_h X + W_t ReLU(A_t X W_1) + W_d ReLU(A_d X W_2) + W_e E))
E_i = sum over j of (Z [A_t[i, j] || A_d[i, j]] + U x_i + U x_j)            over the other fixes of the trip
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tedtrajrec.nn.masked_norm import MaskedNorm

SHORTEST = 1e-6  # of gaps and spreads, so that fixes at one place or time make no 0 / 0


def links_of(time: Tensor, xy: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return A_t and A_d [B, m, m] of fixes at times [B, m] and places [B, m, 2]; mask [B, m] is False for padding."""
    real = mask.to(xy.dtype)
    pair = real[:, :, None] * real[:, None] * (1 - torch.eye(mask.shape[1], dtype=xy.dtype, device=xy.device))
    count = real.sum(1)
    last = (time * real).amax(1) - time[:, 0]
    gap = (last / (count - 1).clamp_min(1)).clamp_min(SHORTEST)
    by_time = torch.exp(-(time[:, :, None] - time[:, None]).abs() / gap[:, None, None])

    distance = torch.linalg.vector_norm(xy[:, :, None] - xy[:, None], dim=-1)
    weight = real[:, None] / count.clamp_min(1)[:, None, None]
    mean = (distance * weight).sum(-1, keepdim=True)
    spread = ((distance - mean) ** 2 * weight).sum(-1, keepdim=True).sqrt().clamp_min(SHORTEST)
    return by_time * pair, torch.exp(-distance / spread) * pair


class TrajectoryGraph(nn.Module):
    """One layer over the graph of a trip; see the module."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.own = nn.Linear(d, d)
        self.time1, self.time2 = nn.Linear(d, d), nn.Linear(d, d)
        self.distance1, self.distance2 = nn.Linear(d, d), nn.Linear(d, d)
        self.link, self.end = nn.Linear(2, d), nn.Linear(d, d)
        self.links = nn.Linear(d, d)
        self.norm = MaskedNorm(d)

    def forward(self, x: Tensor, time: Tensor, xy: Tensor, mask: Tensor) -> Tensor:
        """Return X' [B, m, d] of fixes x [B, m, d] at times [B, m] and places [B, m, 2]; mask is False for padding."""
        by_time, by_distance = (part.to(x.dtype) for part in links_of(time, xy, mask))
        x = x * mask[..., None]
        near = self.time2(torch.relu(by_time @ self.time1(x)))
        near = near + self.distance2(torch.relu(by_distance @ self.distance1(x)))
        # The sum over j, whose terms are linear, without a vector for each pair.
        others = (mask.sum(1, keepdim=True) - 1).clamp_min(0).to(x.dtype)[..., None]
        both = torch.stack([by_time.sum(-1), by_distance.sum(-1)], dim=-1)
        link = both @ self.link.weight.t() + others * self.link.bias
        end = self.end(x)
        ends = others * end + (end * mask[..., None]).sum(1, keepdim=True) - end
        return x + torch.relu(self.norm(self.own(x) + near + self.links(link + ends), mask))
