"""A learned vector for each segment of a network, of which a batch may read those of a part."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn.touched import Part


class SegmentTable(nn.Module):
    """The vectors, and a way to read some of them so that only these have a gradient.

    Parameters
    ----------
    n_segments, d
        Their number and width.
    """

    def __init__(self, n_segments: int, d: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(n_segments, d) / math.sqrt(d))
        self._apart: Tensor | None = None

    def vectors(self, part: Part | None = None) -> Tensor:
        """Return the learned vectors of all segments, or of a part."""
        if part is None:
            return self.table
        return functional.embedding(part.segment, self.table) if self._apart is None else self._apart

    @contextlib.contextmanager
    def apart(self, part: Part) -> Iterator[Tensor]:
        """Have the vectors of a part be weights of their own for a while, and give them [U, d].

        Their gradient is as large as the part. That of the table has a row for every segment of the network.
        """
        self._apart = functional.embedding(part.segment, self.table.detach()).requires_grad_()
        try:
            yield self._apart
        finally:
            self._apart = None
