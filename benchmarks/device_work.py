"""What a training step asks of a CUDA device, written down on a machine that has none.

    python benchmarks/device_work.py [--tiles 1 22] [--batch 64] [-o rows.jsonl] [--list folder]

The step is that of ``scale.py --train --device cuda``, with tensors of the device "meta", which have shapes, no memory.
Each operation of torch is written down with the shapes it reads and writes, and each launch of a kernel of our own, in
their order; what is allocated is followed to its end. An operation that would wait for the device cannot be made
there and fails; the graphs that are recorded on CUDA devices cannot hold one either.

The lists of two commits say whether what was timed on a device once is what the code still asks for. This file
also runs in a tree of 2026-11-16, the commit 1de508c, whose step was timed (docs/scale.md).
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import subprocess
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.optim import adam as torch_adam
from torch.utils import _foreach_utils as foreach
from torch.utils._pytree import tree_leaves
from triton.runtime import JITFunction

import scale
from model_speed import Work
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.methods import parallel_inputs
from tedtrajrec.nn import kernels
from tedtrajrec.training import loop

THERE = torch.device("meta")
Trainer: Any = vars(loop)["Trainer"]  # of any commit


class Asked(Work):  # type: ignore[no-untyped-call]
    """Writes down operations, launches and the most that is allocated beside what was before."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.launches: collections.Counter[str] = collections.Counter()
        self.held = self.most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Make an operation and write it down where it is one of the device."""
        before = self.operations
        out = super().__torch_dispatch__(func, types, args, kwargs)
        read, wrote = _there((args, kwargs)), _there(out)
        if self.operations > before and (read or wrote):
            self.lines.append(f"{func} {_shapes(read)} -> {_shapes(wrote)}")
        old = {tensor.untyped_storage()._cdata for tensor in read}  # noqa: SLF001  (which memory a tensor has)
        for tensor in wrote:
            self._follow(tensor, old)
        return out

    def _follow(self, tensor: Tensor, old: set[int]) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in old:  # noqa: SLF001
            size = storage.nbytes()
            self.held += size
            self.most = max(self.most, self.held)
            weakref.finalize(storage, self._freed, size)

    def _freed(self, size: int) -> None:
        self.held -= size

    def launch(self, kernel: JITFunction[Any], *arguments: object, **settings: object) -> None:
        """Write down a launch, in place of making it."""
        name = f"{kernel.fn.__module__.rpartition('.')[2]}.{kernel.fn.__name__.removeprefix('_')}"
        self.launches[name] += 1
        self.lines.append(f"{name} {settings.get('grid')} {_shapes(_there((arguments, settings)))}")


def _there(values: object) -> list[Tensor]:
    return [part for part in tree_leaves(values) if isinstance(part, Tensor) and part.device == THERE]


def _shapes(tensors: list[Tensor]) -> str:
    return " ".join(f"{str(part.dtype).removeprefix('torch.')}{list(part.shape)}" for part in tensors)


class Listed(Trainer):  # type: ignore[misc]
    """Makes steps as on a CUDA device, but for the recording of graphs."""

    third: Asked  # the first steps make what stays

    def __init__(self, method: Any, *settings: object) -> None:  # noqa: ANN401  (a method of any commit)
        super().__init__(method.to(THERE), *settings)
        self._cuda, self._recorded = True, self._pass
        self._steps = 0

    def __call__(self, inputs: Any, progress: Any) -> Any:  # noqa: ANN401
        """Make a step."""
        asked = Asked()

        def run(kernel: JITFunction[Any], *arguments: object, **settings: object) -> None:
            asked.launch(kernel, *arguments, **settings)

        with asked, mock.patch.object(JITFunction, "run", run):
            losses = super().__call__(inputs, progress)
        self._steps += 1
        if self._steps == 3:
            Listed.third = asked
        return losses

    def _pass(self, inputs: Any) -> Any:  # noqa: ANN401
        """Go forth and back, as a recorded graph does."""
        return self._backward(type(inputs)(*(part.to(THERE) for part in inputs)))


def asked_of_device(tiles: int, trips: int) -> tuple[dict[str, Any], list[str]]:
    """Return the row of a step on a network of so many tiles, and the list of what it asks for."""
    device: Any = torch.device("cpu")  # where batches are made ready
    row = scale.in_training(tiles, trips, device, whole=False)
    asked = Listed.third
    facts = {name: row[name] for name in ("what", "tiles", "segments", "batch", "touched")}
    facts |= {"operations": len(asked.lines) - asked.launches.total(), "launches": dict(sorted(asked.launches.items()))}
    facts |= {"gflop": asked.flops / 1e9, "gib": asked.bytes / 2**30, "working_gib": asked.most / 2**30}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    return facts | {"commit": commit.stdout.strip()} | machine(), asked.lines


@contextlib.contextmanager
def stand_in() -> Iterator[None]:
    """Have "meta" taken for a CUDA device."""
    with contextlib.ExitStack() as undo:
        # Commits of 2026-11-16 have no such sets.
        for kinds in (vars(kernels)[name] for name in ("DEVICES", "RECORDED") if name in vars(kernels)):
            kinds.add(THERE.type)
            undo.callback(kinds.discard, THERE.type)
        places: list[tuple[object, str, object]] = [
            (scale, "Trainer", Listed),
            (scale, "choose_device", torch.device),
            (torch, "is_autocast_enabled", lambda *_: False),  # these refuse "meta", or do without it
            (torch, "autocast", contextlib.nullcontext),
            (torch_adam, "_device_dtype_check_for_fused", lambda *_: None),
            (foreach, "_get_foreach_kernels_supported_devices", lambda: [THERE.type]),
            (Tensor, "pin_memory", lambda tensor: tensor),
            (Tensor, "is_cuda", property(lambda tensor: tensor.device == THERE)),
        ]
        if "LARGE_CPU" in vars(parallel_inputs):
            places.append((parallel_inputs, "LARGE_CPU", vars(parallel_inputs)["LARGE"]))
        for where, name, what in places:
            undo.enter_context(mock.patch.object(where, name, what))
        yield


def main() -> None:
    """Print a row of JSON for each network."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--tiles", type=int, nargs="+", default=[1, 22])
    parser.add_argument("--batch", type=int, default=64, help="trips at once")
    parser.add_argument("-o", "--output", type=Path, help="file of rows")
    parser.add_argument("--list", type=Path, help="folder for what is asked for, a file for each network")
    arguments = parser.parse_args()
    rows = []
    for tiles in arguments.tiles:
        with stand_in():
            row, lines = asked_of_device(tiles, arguments.batch)
        rows.append(json.dumps(row) + "\n")
        print(rows[-1], end="", flush=True)
        if arguments.list is not None:
            arguments.list.mkdir(parents=True, exist_ok=True)
            (arguments.list / f"{tiles}.txt").write_text("".join(line + "\n" for line in lines), "utf-8")
    if arguments.output is not None:
        arguments.output.write_text("".join(rows), "utf-8")


if __name__ == "__main__":
    main()
