"""One training step after another: gradients, clipping, the optimizer, and the sums of the losses."""

from __future__ import annotations

import math
from typing import Any, Generic, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.learned import I, LearnedMethod, Losses
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.nn.segment_table import SegmentTable
from tedtrajrec.nn.touched import Part, unfilled
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE, Ranks
from tedtrajrec.training.drift import Ints
from tedtrajrec.training.rows import TableRows, Taken, can_coast


class Backward(NamedTuple):
    """What a pass forth and back gives beside the gradients of weights."""

    total: Tensor
    segment: Tensor
    ratio: Tensor
    known: Tensor
    rows: Tensor  # [U, d] gradient of what was read of the table of segments, or [0] where that was the whole

    @property
    def losses(self) -> Losses:
        """The losses."""
        return Losses(*self[:-1])


class Trainer(Generic[I]):
    """One optimizer step after another; adds up losses on the device without waiting for it.

    Of a table of segments, a batch that holds a part of the network moves the rows that it reads, and only those have a
    gradient (:mod:`tedtrajrec.training.rows`). The weights of a method are those of all steps after :meth:`catch_up`.

    Parameters
    ----------
    method
        On its device; its optimizer is made here.
    config
        Settings of training.
    per_epoch
        Batches of an epoch.
    ranks
        The processes that make each step together, with the batch divided between them.
    """

    def __init__(
        self, method: LearnedMethod[Any, I], config: TrainConfig, per_epoch: int, ranks: Ranks = ALONE
    ) -> None:
        self._method, self._config, self._per_epoch, self._ranks = method, config, per_epoch, ranks
        self.optimizer = _optimizer(method, config)
        self._cuda = method.device.type == "cuda"
        self._parameters = list(method.parameters())
        self._gradients: dict[nn.Parameter, Tensor] = {}  # recorded graphs write there, so they must stay in place
        self._segments = next((module for module in method.modules() if isinstance(module, SegmentTable)), None)
        self._rows: TableRows | None = None
        if self._segments is not None and can_coast(self.optimizer, config.lr):
            self._rows = TableRows(self._segments.table, self.optimizer, lambda step: self._rate(step - 1))
        self._recorded = Recorded(self._backward, method.device) if self._cuda else None
        self._sums: list[Losses] = []
        self.prepared = not self._cuda

    def prepare(self, inputs: I) -> None:
        """Get ready for batches no larger than this one: graphs of theirs then fit into the memory of its graph."""
        if self._recorded is not None:
            self._recorded.record(inputs)
        self.prepared = True

    def shape(self, inputs: I) -> I:
        """Return a batch as it is sent to the device."""
        return inputs.rounded().pin() if self._cuda else inputs

    def __call__(self, inputs: I, progress: Progress) -> Losses:
        """Make one step with a batch and return its losses."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(progress)
        number = progress.epoch * self._per_epoch + progress.step
        part = self._part(inputs)
        mine = None if part is None else unfilled(part)
        # All ranks let the rows catch up that any of them reads, so that their tables stay equal to the last bit.
        touched = self._ranks.union(mine) if self._rows is not None and hasattr(inputs, "part") else None
        if self._rows is not None:
            self._rows.catch_up(touched)
        # So that dropout is the same after a restart, and that of one rank not that of another.
        torch.manual_seed((self._config.seed << 32) + (self._ranks.rank << 26) + number)
        passed = self._backward(inputs) if self._recorded is None else self._recorded(inputs)
        losses = Losses(*(value.clone() for value in passed.losses))
        weights: list[Tensor] = [*self._parameters]
        taken = self._taken(passed.rows, mine, touched)
        if taken is not None:
            weights.append(taken.gradient)
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        self._ranks.average([*gradients, *losses[:3]], losses.known.float())
        torch.nn.utils.clip_grad_norm_(weights, self._config.clip)
        self.optimizer.step()
        if self._rows is not None and taken is not None:
            self._rows.step(taken)
        elif self._rows is not None:
            self._rows.stepped()
        self._sums.append(losses)
        return losses

    def _part(self, inputs: I) -> Part | None:
        """Return the part of the network that a batch holds, where its rows can be moved alone."""
        return None if self._rows is None else getattr(inputs, "part", None)

    def _backward(self, inputs: I) -> Backward:
        part, weights = self._part(inputs), self._parameters
        if self._segments is None or part is None:
            losses, read = self._method.loss(inputs), None
        else:
            with self._segments.apart(part) as read:
                losses = self._method.loss(inputs)
            weights = [weight for weight in weights if weight is not self._segments.table]
        # Not backward(): that works on the stream where a parameter was first used, which cannot be recorded.
        # Weights without a part in the loss (what feeds the next step, where all trips have one) have a gradient of 0.
        of = weights if read is None else [*weights, read]
        gradients = torch.autograd.grad(losses.total, of, materialize_grads=True)
        for parameter, gradient in zip(weights, gradients, strict=False):
            parameter.grad = self._gradient(parameter).copy_(gradient)
        rows = losses.total.new_zeros(0) if read is None else gradients[-1]
        return Backward(*Losses(*(value.detach() for value in losses)), rows)

    def _gradient(self, parameter: nn.Parameter) -> Tensor:
        """Return where the gradient of a parameter lies."""
        if parameter not in self._gradients:
            self._gradients[parameter] = torch.zeros_like(parameter)
        return self._gradients[parameter]

    def _taken(self, gradient: Tensor, mine: Ints | None, touched: Ints | None) -> Taken | None:
        """Return the rows of the table that are to be moved, with their gradient; None for the table as a whole.

        Parameters
        ----------
        gradient
            That of the rows that this rank read, and of those that filled them up.
        mine
            The rows that this rank read; None for all.
        touched
            Those that any rank read.
        """
        if self._segments is None or self._rows is None:
            return None
        table = self._segments.table
        if mine is None or touched is None:
            table.grad = self._gradient(table)
            if mine is not None:  # but another rank read all of it
                table.grad.zero_()[torch.from_numpy(mine).to(table.device)] = gradient[: len(mine)]
            return None
        table.grad = None
        own = gradient[: len(mine)]
        if self._ranks.count > 1:
            own = gradient.new_zeros(len(touched), *gradient.shape[1:])
            own[torch.from_numpy(np.searchsorted(touched, mine)).to(own.device)] = gradient[: len(mine)]
        return self._rows.taken(touched, own)

    def catch_up(self) -> None:
        """Have rows that no batch read of late catch up, so that the weights are those of all steps."""
        if self._rows is not None:
            self._rows.catch_up()

    def settle(self, progress: Progress) -> None:
        """Add the losses so far to the sums of the epoch, one by one, so that a restart adds the same numbers."""
        for losses in self._sums:
            for name in ("total", "segment", "ratio"):
                progress.sums[name] = progress.sums.get(name, 0.0) + float(getattr(losses, name))
        self._sums.clear()
        if not all(map(math.isfinite, progress.sums.values())):
            raise ConfigError(
                f"The loss is not finite by batch {progress.step} of epoch {progress.epoch + 1}. "
                f"Start again in another folder with train.lr below {self._config.lr:g} or train.clip below "
                f"{self._config.clip:g}; the best weights so far are kept in this one."
            )

    def rate(self, progress: Progress, later: int = 0) -> float:
        """Return the learning rate of the next batch, or of one so many batches later."""
        return self._rate(progress.epoch * self._per_epoch + progress.step + later)

    def _rate(self, number: int) -> float:
        config = self._config
        if config.schedule == "constant":
            return config.lr
        total = config.epochs * self._per_epoch
        rise = max(1, round(config.warm_up * total))
        if number < rise:
            return config.lr * (number + 1) / rise
        return config.lr * max(1e-3, 0.5 * (1 + math.cos(math.pi * (number - rise) / max(1, total - rise))))


def _optimizer(method: LearnedMethod[Any, Any], config: TrainConfig) -> torch.optim.Adam:
    kind = torch.optim.Adam if config.optimizer == "adam" else torch.optim.AdamW
    return kind(method.parameters(), lr=config.lr, weight_decay=config.weight_decay, fused=True)
