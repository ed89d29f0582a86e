"""Settings of training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tedtrajrec.data.sampling import Rule, keep_share

Optimizer = Literal["adam", "adamw"]
Schedule = Literal["constant", "one_cycle"]


@dataclass(frozen=True)
class TrainConfig:
    """How a method is trained; the defaults are ours, those of the paper are in :data:`PRESETS`."""

    epochs: int = 100
    batch: int = 128
    optimizer: Optimizer = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    schedule: Schedule = "one_cycle"
    warm_up: float = 0.1  # share of the steps in which the rate of one_cycle rises
    clip: float = 1.0  # largest norm of the gradient
    forcing: float = 0.0  # share of steps whose truth is fed to the next one, in the first epoch
    forcing_decay: float = 0.9  # what it is multiplied by after each epoch
    keep: tuple[str, ...] = ("1/8",)  # share of observed steps; each trip of an epoch draws one of these
    rule: Rule = "exact"  # how they are drawn
    redraw: bool = True  # whether every epoch draws anew
    patience: int = 0  # epochs without a better validation accuracy until it stops; 0: never
    most_train: int = 0  # trips used for training, and so of the past, drawn by the seed; 0: all
    most_valid: int = 2000  # trips used for validation
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch", "lr", "clip", "most_valid"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive")
        for name in ("forcing", "forcing_decay", "warm_up"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be 0 to 1")
        if min(self.weight_decay, self.patience, self.most_train) < 0:
            raise ValueError("weight_decay, patience and most_train must not be negative")
        if not 0 <= self.seed < 2**31:
            raise ValueError("seed must be 0 to 2147483647")
        if not self.keep:
            raise ValueError("keep must name at least one share")
        for share in self.keep:
            keep_share(share)


_PAPER = TrainConfig(
    epochs=30, batch=64, optimizer="adam", weight_decay=0.0, schedule="constant", forcing=0.5, forcing_decay=0.9
)

PRESETS = {"default": TrainConfig(), "paper": _PAPER, "authors": _PAPER}
"""``authors`` has the settings of a method's own authors, trained as the paper trains all."""
