"""A GRU in both directions over padded sequences."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tedtrajrec.nn.sequences import start_recurrent, turned


class BiGru(nn.Module):
    """One GRU from the first element on, another from the last real one back.

    torch's own needs packed sequences for that, whose sizes depend on the data, so that they cannot be recorded.

    Parameters
    ----------
    width, d
        Of what comes in, and of the states of either GRU.
    """

    def __init__(self, width: int, d: int) -> None:
        super().__init__()
        self.on, self.back = (nn.GRU(width, d, batch_first=True) for _ in range(2))
        for part in (self.on, self.back):
            start_recurrent(part)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return both states [B, m, 2 d] of each element of x [B, m, width]; mask [B, m] is False for padding."""
        on, _ = self.on(x)
        back, _ = self.back(turned(x, mask))
        return torch.cat([on, turned(back, mask)], dim=-1)
