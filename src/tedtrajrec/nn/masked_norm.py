"""Norms over the real elements of a batch.

    y = g (x - mean) / sqrt(var + eps) + b          batch statistics in training, their running means in use

Padding has no part in the statistics, so a batch may be padded at will, and in use trips do not know of each other.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

EPSILON = 1e-5


class MaskedNorm(nn.Module):
    """A batch norm; with elements that belong to graphs, RNTrajRec's GraphNorm, whose mean is over the means of graphs.

    Parameters
    ----------
    d
        Width.
    momentum
        How much of the running statistics a batch replaces.
    """

    mean: Tensor
    var: Tensor

    def __init__(self, d: int, momentum: float = 0.1) -> None:
        super().__init__()
        self.momentum = momentum
        self.gain = nn.Parameter(torch.ones(d))
        self.bias = nn.Parameter(torch.zeros(d))
        self.register_buffer("mean", torch.zeros(d))
        self.register_buffer("var", torch.ones(d))

    def forward(self, x: Tensor, mask: Tensor, graph_share: Tensor | None = None) -> Tensor:
        """Return y of x [..., d], 0 for padding.

        Parameters
        ----------
        x, mask
            Elements [..., d] and whether they are real [...].
        graph_share
            For GraphNorm: 1 / size of the graph of each real element, 0 for padding [...].
        """
        real = mask.to(x.dtype)[..., None]
        mean, var = self.mean, self.var
        if self.training:
            share = real if graph_share is None else graph_share.to(x.dtype)[..., None]
            dims = tuple(range(x.ndim - 1))
            mean = (x * share).sum(dims) / share.sum().clamp_min(EPSILON)
            var = ((x - mean) ** 2 * real).sum(dims) / real.sum().clamp_min(1)
            with torch.no_grad():
                some = self.momentum * (real.sum() > 0).to(x.dtype)  # nothing but padding teaches nothing
                self.mean.lerp_(mean, some)
                self.var.lerp_(var, some)
        return ((x - mean) * torch.rsqrt(var + EPSILON) * self.gain + self.bias) * real
