"""Weights with a row for each segment of a network, of which a batch may read those of a part."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn.touched import Part


class BySegment(ABC):
    """What has such weights, and a way to read some rows so that only these have a gradient."""

    _apart: list[Tensor] | None = None

    @abstractmethod
    def by_segment(self) -> list[Tensor]:
        """Return the weights [S, ...]."""

    def rows_of(self, part: Part) -> list[Tensor]:
        """Return the rows of a part, of each of the weights [U, ...]."""
        if self._apart is not None:
            return self._apart
        return [looked_up(part.segment, weight) for weight in self.by_segment()]

    @contextlib.contextmanager
    def apart(self, part: Part) -> Iterator[list[Tensor]]:
        """Have the rows of a part be weights of their own for a while, and give them [U, ...].

        Their gradient is as large as the part. That of the weights has a row for every segment of the network.
        """
        self._apart = [looked_up(part.segment, weight.detach()).requires_grad_() for weight in self.by_segment()]
        try:
            yield self._apart
        finally:
            self._apart = None


class SegmentTable(nn.Module, BySegment):
    """A learned vector for each segment.

    Parameters
    ----------
    n_segments, d
        Their number and width.
    """

    def __init__(self, n_segments: int, d: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(n_segments, d) / math.sqrt(d))

    def by_segment(self) -> list[Tensor]:
        """Return the table."""
        return [self.table]

    def vectors(self, part: Part | None = None) -> Tensor:
        """Return the learned vectors of all segments, or of a part."""
        return self.table if part is None else self.rows_of(part)[0]


class SegmentScores(nn.Linear, BySegment):
    """A linear map to a score of each segment."""

    def by_segment(self) -> list[Tensor]:
        """Return weight and bias."""
        return [self.weight, self.bias]

    def chosen(self, segment: Tensor, part: Part | None = None) -> tuple[Tensor, Tensor]:
        """Return weight [..., d] and bias [...] of the scores of some segments.

        Parameters
        ----------
        segment
            They [...], numbered as in the part where there is one.
        part
            The part.
        """
        weight, bias = self.by_segment() if part is None else self.rows_of(part)
        return looked_up(segment, weight), looked_up(segment, bias)


def looked_up(segment: Tensor, weight: Tensor) -> Tensor:
    """Return rows [..., d] of weights [S, d] or [S], with the fast gradient of an embedding."""
    if weight.ndim == 1:
        return functional.embedding(segment, weight[:, None]).squeeze(-1)
    return functional.embedding(segment, weight)
