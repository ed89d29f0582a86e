"""An LSTM that reads sequences from both ends, where these have padding behind them."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from tedtrajrec.nn.sequences import turned


class TwoWayLstm(nn.Module):
    """Layers of an LSTM from the first to the last element beside one from the last to the first.

    Packed sequences, which torch has for this, depend on the lengths and cannot be recorded.

    Parameters
    ----------
    d_in, d
        Width of the elements, and of the states: each direction has half of it.
    layers, dropout
        How many, and dropout between them.
    """

    def __init__(self, d_in: int, d: int, layers: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if d % 2:
            raise ValueError(f"a width of {d} cannot be halved")
        widths = [d_in] + [d] * (layers - 1)
        self.ahead = nn.ModuleList(nn.LSTM(width, d // 2, batch_first=True) for width in widths)
        self.back = nn.ModuleList(nn.LSTM(width, d // 2, batch_first=True) for width in widths)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the states [B, m, d] of sequences x [B, m, d_in]; those of the padding are 0."""
        for number, ahead, back in zip(itertools.count(), self.ahead, self.back, strict=False):
            x = self.dropout(x) if number else x
            x = torch.cat([ahead(x)[0], turned(back(turned(x, mask))[0], mask)], dim=-1)
        return x * mask[..., None]
