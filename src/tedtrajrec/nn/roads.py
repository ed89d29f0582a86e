"""What a method knows of all segments, evaluated at the (segment, time) pairs that are needed.

Times are turned into angles, one turn a day, so that a frequency of 1 is a daily rhythm and gradients have a sensible
size. It is kept apart from the networks that make it (:mod:`tedtrajrec.nn.road_gnn`), whose library takes seconds to
load: methods that do without graphs start without it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.nn.kernels import kernels_for

ANGLE_PER_MINUTE = 2 * math.pi / 1440


class Roads(NamedTuple):
    """All segments of a network, ready to be asked for any time."""

    static: Tensor  # [S, d], S_hat
    omega: Tensor | None  # [S, d] frequencies of each segment, [d] the same for all, or none
    phase: Tensor | None  # [d]
    more: Tensor | None = None  # what a method keeps of the map beside its segments

    def at(self, segment: Tensor, minute: Tensor) -> Tensor:
        """Return X(e, t) [..., d] of segments [...] at local minutes of the day [...]."""
        kernels = kernels_for("roads_cuda", self.static)
        if kernels is not None and self.omega is not None and self.omega.ndim == 2:
            x: Tensor = kernels.at(*self[:3], segment, (minute * ANGLE_PER_MINUTE).float())
            return x
        static = functional.embedding(segment, self.static)
        if self.omega is None or self.phase is None:
            return static
        omega = self.omega if self.omega.ndim == 1 else functional.embedding(segment, self.omega)
        angle = torch.addcmul(self.phase, (minute * ANGLE_PER_MINUTE).to(static.dtype)[..., None], omega)
        return static + torch.cat([angle[..., :1], torch.sin(angle[..., 1:])], dim=-1)
