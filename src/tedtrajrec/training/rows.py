"""Adam on the rows of a table that a batch read, so that a step costs what these rows cost and not what the table does.

A row without a gradient is left alone, and catches up before it is read the next time (:mod:`tedtrajrec.training.drift`
says what it missed). So weights are those of Adam on the whole table: they differ by rounding, and where eps matters to
rows left alone from the first steps of a run on by what is said there. Nobody has to choose.

The running means are those of the optimizer of torch, which makes the steps of all other weights, and of this table too
where a batch reads the whole of it. Beside them lies the step up to which each row is done, as long as not all are done
up to the last: so a state on disk holds it, and one without it is a state of rows that are all done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.optim.adam import adam

from tedtrajrec.nn.kernels import kernels_for
from tedtrajrec.training.drift import MOST_DECAY, Drift, Ints

CHUNK = 1 << 15  # rows that catch up at a time
LAST = "last"  # name in the state of the optimizer


class Taken(NamedTuple):
    """Rows that are to be moved."""

    rows: Ints  # [N]
    gradient: Tensor  # [N, ...], and its own too: what averages and clips gradients asks weights for theirs


class TableRows:
    """The rows of a table, in the care of an optimizer.

    Parameters
    ----------
    table
        One of the optimizer's weights [S, d] or [S]. Its gradient must be None where a batch read only some rows.
    optimizer
        With one group of weights, and all steps made (see :func:`can_coast`).
    rate
        The learning rate of a step, as the optimizer had or will have it; the first has number 1.
    """

    def __init__(self, table: Tensor, optimizer: torch.optim.Adam, rate: Callable[[int], float]) -> None:
        self.table, self._optimizer = table, optimizer
        group = optimizer.param_groups[0]
        self._drift = Drift(rate, group["betas"], group["eps"], group["weight_decay"])
        # Kept here, where asking for it does not wait for the device.
        self._count = 0  # steps made
        self._last: NDArray[np.int32] | None = None  # [S]; None: all rows are done up to the last step
        optimizer.register_load_state_dict_post_hook(lambda _: self._restore())

    def _restore(self) -> None:
        state = self._optimizer.state.get(self.table, {})
        self._count, self._last = int(state.get("step", 0)), None
        if LAST in state:  # as numbers of the table's type, which are exact up to 16 million steps
            self._keep(state[LAST].cpu().numpy().astype(np.int32))

    def _keep(self, last: NDArray[np.int32]) -> NDArray[np.int32]:
        self._last = last
        self._state()[LAST] = torch.from_numpy(last)  # the same memory
        return last

    def _state(self) -> dict[str, Tensor]:
        """Return the state of the table, made as the optimizer does where it has made none."""
        state: dict[str, Tensor] = self._optimizer.state[self.table]
        if "step" not in state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=self.table.device)
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(self.table), torch.zeros_like(self.table)
        return state

    def catch_up(self, rows: Ints | None = None) -> None:
        """Bring rows, each named once, up to the last step; None for all. Done twice it changes nothing."""
        if self._last is None:
            return
        chosen = np.arange(len(self._last)) if rows is None else rows
        late = chosen[self._last[chosen] < self._count]
        for first in range(0, len(late), CHUNK):
            self._coast(late[first : first + CHUNK], self._last)
        if rows is None:
            self._last = None
            del self._state()[LAST]
        else:
            self._last[late] = self._count

    @torch.no_grad()
    def _coast(self, rows: Ints, last: NDArray[np.int32]) -> None:
        since, which = np.unique(last[rows], return_inverse=True)
        found = self._drift.between(since.astype(np.int64), self._count)
        factors = self._send(np.stack([found.keep, found.first, found.second, *found.weight, *found.floor]))
        factors, place, column = factors.to(self.table.dtype), self._send(rows), self._send(which)
        kernels, whole = kernels_for("rows_cuda", self.table), self._whole()
        if kernels is not None:
            kernels.coast(*whole, place, column, factors)
            return
        keep, first, second, low, high, low_floor, high_floor = factors[:, column, None]
        p, m, v = (tensor[place] for tensor in whole)
        root = v.sqrt()
        move = low / (root + low_floor) + high / (root + high_floor)
        for tensor, part in zip(whole, (p * keep - m * move, m * first, v * second), strict=True):
            tensor.index_copy_(0, place, part)

    def taken(self, rows: Ints, gradient: Tensor) -> Taken:
        """Return rows, each named once and caught up, with their gradient, which may still be changed in place."""
        weight = gradient.detach()
        weight.grad = gradient
        return Taken(rows, weight)

    @torch.no_grad()
    def step(self, taken: Taken) -> None:
        """Make the next step, of some rows, in place of the optimizer."""
        last = self._last
        if last is None:
            last = self._keep(np.full(len(self.table), self._count, np.int32))
        rows, gradient = taken.rows, taken.gradient.view(len(taken.rows), -1)
        place, whole, step = self._send(rows), self._whole(), self._state()["step"]
        group = self._optimizer.param_groups[0]
        kernels = kernels_for("rows_cuda", self.table)
        if kernels is not None:
            settings = {"rate": group["lr"], "eps": group["eps"], "decay": group["weight_decay"]}
            step += 1
            kernels.adam(*whole, place, gradient, step=self._count + 1, betas=group["betas"], **settings)
        else:
            values, first, second = (tensor[place] for tensor in whole)
            adam(
                [values],
                [gradient],
                [first],
                [second],
                [],
                [step],  # which it counts up
                fused=True,
                decoupled_weight_decay=_is_decoupled(self._optimizer),
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
            for tensor, part in zip(whole, (values, first, second), strict=True):
                tensor.index_copy_(0, place, part)
        self._count += 1
        last[rows] = self._count

    def stepped(self) -> None:
        """Count a step of the whole table that the optimizer made, for which all rows had caught up."""
        self._count += 1

    def _whole(self) -> list[Tensor]:
        """Return the table and its means [S, d]."""
        state = self._state()
        return [part.view(len(part), -1) for part in (self.table, state["exp_avg"], state["exp_avg_sq"])]

    def _send(self, array: NDArray[Any]) -> Tensor:
        tensor, device = torch.from_numpy(array), self.table.device
        return tensor if device.type == "cpu" else tensor.pin_memory().to(device, non_blocking=True)


def can_coast(optimizer: torch.optim.Adam, most_rate: float) -> bool:
    """Return whether it is known what steps without a gradient do, at rates of up to this.

    The decay of Adam, other than that of AdamW, is a gradient.
    """
    decay = optimizer.param_groups[0]["weight_decay"]
    return bool(most_rate * decay <= MOST_DECAY if _is_decoupled(optimizer) else decay == 0)


def _is_decoupled(optimizer: torch.optim.Adam) -> bool:
    return isinstance(optimizer, torch.optim.AdamW)
