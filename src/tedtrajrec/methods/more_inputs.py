"""What a step-by-step method sees of a batch where it needs more of the fixes than :class:`Inputs` has."""

from __future__ import annotations

from typing import ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.methods.learned import Inputs

PLAIN = len(Inputs._fields)


class MoreInputs(tuple[Tensor, ...]):
    """The tensors of :class:`Inputs`, and more behind them; a subclass has a property for each of those."""

    along_fixes: ClassVar[tuple[int, ...]]
    """For each tensor beyond those of :class:`Inputs`, how many of its dimensions after the first go along fixes."""

    def __new__(cls, *parts: Tensor) -> Self:
        """Make it of all tensors in order."""
        if len(parts) != PLAIN + len(cls.along_fixes):
            raise ValueError(f"{cls.__name__} has {PLAIN + len(cls.along_fixes)} tensors, not {len(parts)}")
        return super().__new__(cls, parts)

    @property
    def plain(self) -> Inputs:
        """The part that all methods have."""
        return Inputs(*self[:PLAIN])

    @property
    def step_mask(self) -> Tensor:
        """Real steps [B, n]."""
        return self.plain.step_mask

    def to(self, device: torch.device) -> Self:
        """Return the tensors on a device."""
        return type(self)(*(part.to(device, non_blocking=True) for part in self))

    def pin(self) -> Self:
        """Return the tensors in memory that can be copied to a device while other work goes on."""
        return type(self)(*(part.pin_memory() for part in self))

    def rounded(self, fixes: int = 4, steps: int = 8) -> Self:
        """Return the batch with more padding, up to multiples of these, so that few shapes occur."""
        more = -self.plain.fix_mask.shape[1] % fixes
        padded = [
            functional.pad(part, [0, 0] * (part.ndim - 1 - along) + [0, more] * along)
            for part, along in zip(self[PLAIN:], self.along_fixes, strict=True)
        ]
        return type(self)(*self.plain.rounded(fixes, steps), *padded)
