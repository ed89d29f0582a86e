"""MM-STGED's condition of the roads: traffic by hour and cell, smoothed over places and hours by convolutions.

Y = conv 1x1 of F;   Q = Y + ReLU(conv over hours of BN(ReLU(conv 3x3 of ReLU(conv 3x3 of Y))))
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RoadCondition(nn.Module):
    """Vectors of hours and cells from the traffic there.

    The traffic is the same for all batches, and so are its statistics: the norm takes them in use as in training.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.lift = nn.Conv2d(1, width, 1)
        self.places = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.BatchNorm2d(width, track_running_stats=False),
        )
        self.hours = nn.Conv1d(width, width, 3, padding=1)

    def forward(self, traffic: Tensor) -> Tensor:
        """Return Q [hours * rows * columns, width] of traffic F [hours, rows, columns]."""
        hours, rows, columns = traffic.shape
        lifted = self.lift(traffic[:, None])  # [hours, width, rows, columns]
        smooth = self.places(lifted).permute(2, 3, 1, 0).flatten(0, 1)  # [cells, width, hours]
        over = torch.relu(self.hours(smooth)).view(rows, columns, -1, hours).permute(3, 0, 1, 2)
        out: Tensor = (lifted.permute(0, 2, 3, 1) + over).flatten(0, 2)
        return out
