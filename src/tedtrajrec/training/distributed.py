"""Training on several processes: each takes its share of every batch, and gradients are averaged between them.

``torchrun`` starts the processes (ranks) and says to each which one it is. A batch is the same as in one process, and
rank r of R takes every R-th of its trips. Losses are means over the steps of known truth, of which ranks have different
numbers, so that gradients and losses are averaged with these numbers as weights: then a step is the one that a single
process would make, but for the order of additions (and for dropout, whose draws differ by rank).

Gradients are averaged by ``all_reduce`` between the backward pass and the optimizer, and not by the hooks of
``DistributedDataParallel``, which cannot be recorded as part of a CUDA graph.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.errors import ConfigError

T = TypeVar("T")

LARGE = 1 << 20  # elements of a tensor that is averaged in place; smaller ones travel together


@dataclass(frozen=True)
class Ranks:
    """The processes that train together, as one of them sees them."""

    rank: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes files and tells the user."""
        return self.rank == 0

    def share(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return those of the trips of a batch that this rank takes, perhaps none."""
        return which[self.rank :: self.count]

    def average(self, tensors: Sequence[Tensor], weight: Tensor) -> None:
        """Replace tensors by their weighted means over all ranks, where each has a weight of its own.

        Without any weight they become 0.
        """
        if self.count == 1:
            return
        small = [tensor for tensor in tensors if tensor.numel() < LARGE]
        large = [tensor for tensor in tensors if tensor.numel() >= LARGE]
        together = torch.cat([tensor.reshape(-1) for tensor in small] + [torch.ones_like(weight).reshape(1)])
        together *= weight
        dist.all_reduce(together)
        total = together[-1].clamp_min(1)
        places = torch.split(together[:-1].div_(total), [tensor.numel() for tensor in small])
        for tensor, mean in zip(small, places, strict=True):
            tensor.copy_(mean.view_as(tensor))
        for tensor in large:
            tensor.mul_(weight)
            dist.all_reduce(tensor)
            tensor.div_(total)

    def union(self, mine: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        """Return the numbers that any rank has, each once; None, which is all there are, where a rank has None.

        Those of one rank must be without repeats.
        """
        if self.count == 1:
            return mine
        count = torch.tensor([-1 if mine is None else len(mine)])
        counts = [torch.empty_like(count) for _ in range(self.count)]
        dist.all_gather(counts, count)
        if mine is None or min(counts) < 0:
            return None
        most = int(max(counts))
        padded = torch.from_numpy(np.pad(mine, (0, most - len(mine)), mode="edge"))
        gathered = [torch.empty_like(padded) for _ in range(self.count)]
        dist.all_gather(gathered, padded)
        return np.unique(torch.cat(gathered).numpy())

    def first_says(self, value: bool) -> bool:
        """Return what the first rank was given; clocks differ, and all must stop at the same batch."""
        if self.count == 1:
            return value
        said = [value]
        dist.broadcast_object_list(said)
        return said[0]

    def copy_first(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by those of the first rank."""
        if self.count > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def all_of(self, mine: Sequence[T]) -> list[T]:
        """Return the items of all ranks, of which each has every R-th, in order."""
        if self.count == 1:
            return list(mine)
        of_rank: list[Any] = [None] * self.count
        dist.all_gather_object(of_rank, list(mine))
        total = sum(map(len, of_rank))
        return [of_rank[k % self.count][k // self.count] for k in range(total)]

    def wait(self) -> None:
        """Wait until all ranks are here."""
        if self.count > 1:
            self.first_says(True)


ALONE = Ranks()


def launched() -> Ranks:
    """Return the ranks that the environment tells of, as ``torchrun`` sets it; one without."""
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        return ALONE
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ConfigError(f"WORLD_SIZE is {count}, but {missing[0]} is not set; start the command with torchrun.")
    return Ranks(int(os.environ["RANK"]), count)


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """Join the other ranks where ``torchrun`` started several, and leave them at the end.

    On CUDA each rank of a machine gets a device of its own and gradients travel by NCCL; ranks that must share one, and
    those on CPUs, use Gloo.
    """
    ranks = launched()
    if ranks.count == 1:
        yield ranks
        return
    backend = "gloo"
    if device.type == "cuda":
        local, here = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        devices = torch.cuda.device_count()
        torch.cuda.set_device(local % devices)
        backend = "cpu:gloo,cuda:nccl" if here <= devices else "gloo"
    store, _, _ = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]
    # torchrun keeps the store when it starts the ranks again; addresses of those that are gone must not be found there.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"attempt {attempt}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=ranks.rank, world_size=ranks.count)
    try:
        yield ranks
    finally:
        dist.destroy_process_group()
