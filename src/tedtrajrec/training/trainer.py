"""One training step after another: gradients, clipping, the optimizer, and the sums of the losses."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Sequence
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.learned import I, LearnedMethod, Losses
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.nn.segment_table import BySegment
from tedtrajrec.nn.touched import Part, unfilled
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE, Ranks
from tedtrajrec.training.drift import Ints
from tedtrajrec.training.rows import TableRows, Taken, can_coast


class Trainer(Generic[I]):
    """One optimizer step after another; adds up losses on the device without waiting for it.

    Of weights with a row for each segment, a batch that holds a part of the network moves the rows that it reads, and
    only those have a gradient (:mod:`tedtrajrec.training.rows`). The weights of a method are those of all steps after
    :meth:`catch_up`.

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
        self._gradients: dict[Tensor, Tensor] = {}  # recorded graphs write there, so they must stay in place
        self._by_segment = [module for module in method.modules() if isinstance(module, BySegment)]
        self._rows: list[TableRows] = []
        if can_coast(self.optimizer, config.lr):
            self._rows = [
                TableRows(weight, self.optimizer, lambda step: self._rate(step - 1))
                for module in self._by_segment
                for weight in module.by_segment()
            ]
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
        touched = self._ranks.union(mine) if self._rows and hasattr(inputs, "part") else None
        for rows in self._rows:
            rows.catch_up(touched)
        # So that dropout is the same after a restart, and that of one rank not that of another.
        torch.manual_seed((self._config.seed << 32) + (self._ranks.rank << 26) + number)
        passed = self._backward(inputs) if self._recorded is None else self._recorded(inputs)
        losses = Losses(*(value.clone() for value in passed[: len(Losses._fields)]))
        taken = self._taken(passed[len(Losses._fields) :], mine, touched)
        weights: list[Tensor] = [*self._parameters, *(part.gradient for part in taken)]
        gradients = [weight.grad for weight in weights if weight.grad is not None]
        self._ranks.average([*gradients, *losses[:3]], losses.known.float())
        torch.nn.utils.clip_grad_norm_(weights, self._config.clip)
        self.optimizer.step()
        for rows, moved in itertools.zip_longest(self._rows, taken):
            if moved is None:
                rows.stepped()
            else:
                rows.step(moved)
        self._sums.append(losses)
        return losses

    def _part(self, inputs: I) -> Part | None:
        """Return the part of the network that a batch holds, where its rows can be moved alone."""
        return getattr(inputs, "part", None) if self._rows else None

    def _backward(self, inputs: I) -> tuple[Tensor, ...]:
        """Return the losses and, of a batch that holds a part, the gradients of the rows that it reads."""
        part, weights = self._part(inputs), self._parameters
        read: list[Tensor] = []
        with contextlib.ExitStack() as stack:
            if part is not None:
                for module in self._by_segment:
                    read += stack.enter_context(module.apart(part))
                tables = {id(rows.table) for rows in self._rows}
                weights = [weight for weight in weights if id(weight) not in tables]
            losses = self._method.loss(inputs)
        # Not backward(): that works on the stream where a parameter was first used, which cannot be recorded.
        # Weights without a part in the loss (what feeds the next step, where all trips have one) have a gradient of 0.
        gradients = torch.autograd.grad(losses.total, [*weights, *read], materialize_grads=True)
        for parameter, gradient in zip(weights, gradients, strict=False):
            parameter.grad = self._gradient(parameter).copy_(gradient)
        return *(value.detach() for value in losses), *gradients[len(weights) :]

    def _gradient(self, parameter: Tensor) -> Tensor:
        """Return where the gradient of a parameter lies."""
        if parameter not in self._gradients:
            self._gradients[parameter] = torch.zeros_like(parameter)
        return self._gradients[parameter]

    def _taken(self, gradients: Sequence[Tensor], mine: Ints | None, touched: Ints | None) -> list[Taken]:
        """Return the rows of each table that are to be moved, with their gradient; none where all of them are.

        Parameters
        ----------
        gradients
            Those of the rows that this rank read, and of those that filled them up.
        mine
            The rows that this rank read; None for all.
        touched
            Those that any rank read.
        """
        taken = []
        for k, rows in enumerate(self._rows):
            table = rows.table
            if mine is None or touched is None:
                table.grad = self._gradient(table)
                if mine is not None:  # but another rank read all of it
                    table.grad.zero_()[torch.from_numpy(mine).to(table.device)] = gradients[k][: len(mine)]
                continue
            table.grad = None
            own = gradients[k][: len(mine)]
            if self._ranks.count > 1:
                own = own.new_zeros(len(touched), *own.shape[1:])
                place = torch.from_numpy(np.searchsorted(touched, mine))
                own[place.to(own.device)] = gradients[k][: len(mine)]
            taken.append(rows.taken(touched, own))
        return taken

    def catch_up(self) -> None:
        """Have rows that no batch read of late catch up, so that the weights are those of all steps."""
        for rows in self._rows:
            rows.catch_up()

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
