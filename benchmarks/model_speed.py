"""Speed of TedTrajRec on the problem that the authors' code was timed on: 8,781 segments, 10 fixes, 72 steps, d 256.

    python benchmarks/model_speed.py [--device cuda] [--recover 1 64 4096] [--train 64 512] [-o rows.jsonl] [--table]

Inputs are random and lie on the device, so this is the model alone. On CUDA the work is recorded as graphs, as it is in
training and use. Beside each time stand three limits of the device, measured in the same run: how long the products
would take at the speed of one large product, the bytes that all operations ask for at the speed of one large copy (as
if no cache served any), and the kernels, one after another, at the speed of a chain of the smallest ones.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.trainer import Trainer

SEGMENTS, FIXES, STEPS = 8781, 10, 72

AUTHORS = {
    ("cuda", "train", 64): 74.0,
    ("cuda", "recover", 64): 286.0,
    ("cuda", "recover", 1): 1 / 0.157,
    ("cpu", "train", 64): 64 / 81,
    ("cpu", "recover", 64): 64 / 12,
    ("cpu", "recover", 1): 1 / 8.9,
}
"""Trips/s of the authors' code at batch 64 and of one trip, on an H200 and on 2 cores (REFERENCE section 5)."""

BATCHES = {"cuda": ([1, 64, 512, 2048, 4096], [64, 256, 512, 1024]), "cpu": ([1, 64, 256], [64])}
"""To recover and to train with, unless told."""

LOOKUPS = {"embedding", "index_select", "gather", "index", "index_copy_", "scatter_add_", "embedding_dense_backward"}
"""Operations that touch only as much of their first tensor as they have results or sources."""


class Limits(NamedTuple):
    """What the device does at best."""

    flops: float  # a second, in products
    bytes: float  # a second, read and written
    kernel_s: float  # one small kernel after another


class Counted(NamedTuple):
    """The work of one call."""

    flops: float  # of products
    bytes: float  # as operations ask for
    kernels: int


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what operations calculate, read and write, and counts those that are not mere views."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops, self.bytes, self.operations = 0, 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operation and count it."""
        out = func(*args, **(kwargs or {}))
        schema = func._schema  # noqa: SLF001  (the only place that tells views)
        if any(part.alias_info is not None and not part.alias_info.is_write for part in schema.returns):
            return out
        name = schema.name.removeprefix("aten::")
        product = getattr(torch.ops.aten, name.removesuffix("_"), None)  # in place it is the same work
        if product in flop_registry:
            self.flops += flop_registry[product](*args, **(kwargs or {}), out_val=out)
        given = {name: value for name, value in (kwargs or {}).items() if name != "out"}
        read = [part for part in tree_leaves((args, given)) if isinstance(part, Tensor)]
        wrote = [part for part in tree_leaves(out) if isinstance(part, Tensor)]
        if name in LOOKUPS:
            read = read[1:]
            wrote = read[-1:] * (1 + (name == "scatter_add_")) if name.endswith("_") else wrote * 2
        self.bytes += sum(map(size, (*read, *wrote)))
        self.operations += 1
        return out


def size(tensor: Tensor) -> int:
    """Return the bytes of a tensor; elements that are one in memory count once."""
    own = (length for length, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride)
    return math.prod(own, start=tensor.element_size())


def random_inputs(b: int) -> Inputs:
    """Return a batch of the right shapes and sizes."""
    m, n, k = FIXES, STEPS, TedTrajRecConfig().most_candidates
    step = torch.stack([torch.randperm(n)[:m].sort().values for _ in range(b)])
    return Inputs(
        near_segment=torch.randint(0, SEGMENTS, (b, m, k)),
        near_distance=(torch.rand(b, m, k) * 120).sort(-1).values,
        near_ratio=torch.rand(b, m, k),
        fix_mask=torch.ones(b, m, dtype=torch.bool),
        fix_xy=torch.rand(b, m, 2) * 2 - 1,
        fix_time=step.float(),
        fix_minute=600 + step / 4,
        fix_step=step,
        step_mask=torch.ones(b, n, dtype=torch.bool),
        step_minute=(600 + torch.arange(n) / 4).repeat(b, 1),
        segment=torch.randint(0, SEGMENTS, (b, n)),
        ratio=torch.rand(b, n),
        forced=torch.rand(b, n) < 0.5,
    )


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> tuple[float, float]:
    """Return the median wall time and processor time of some runs after two that do not count."""
    times = []
    for _ in range(repeats + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start, used = time.perf_counter(), time.process_time()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start, time.process_time() - used))
    wall, processor = (sorted(column)[repeats // 2] for column in zip(*times[2:], strict=True))
    return wall, processor


def limits_of(device: torch.device) -> Limits:
    """Measure a large product, a large copy and a chain of small operations."""
    cuda = device.type == "cuda"
    side, length = (8192, 2**28) if cuda else (2048, 2**25)
    a, b = (torch.randn(side, side, device=device) for _ in range(2))
    x, y = (torch.zeros(length, device=device) for _ in range(2))
    one, chain = torch.zeros(1, device=device), 2000

    def work() -> None:
        for _ in range(chain):
            one.add_(1)

    if cuda:
        work()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
    return Limits(
        flops=2 * side**3 / seconds(lambda: torch.mm(a, b), device)[0],
        bytes=2 * 4 * length / seconds(lambda: y.copy_(x), device)[0],
        kernel_s=seconds(graph.replay if cuda else work, device)[0] / chain,
    )


def counted(work: Callable[[Inputs], object], inputs: Inputs) -> Counted:
    """Count the work of one call that is not recorded.

    Products and bytes are counted on one and on two trips, since both grow by the same for each more.
    """
    device, b = inputs.fix_mask.device, len(inputs.fix_mask)
    done = []
    for trips in (1, 2):
        few = Inputs(*(part[:1].expand(trips, *part.shape[1:]).contiguous() for part in inputs))
        work(few)  # what is kept for later calls does not count
        with Work() as counts:
            work(few)
        done.append(counts)
    one, two = done
    kernels = two.operations
    if device.type == "cuda":
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            work(inputs)
            torch.cuda.synchronize()
        kernels = sum(event.count for event in profiled.key_averages() if event.device_type.name == "CUDA")
    flops, moved = ((low + (high - low) * (b - 1)) for low, high in ((one.flops, two.flops), (one.bytes, two.bytes)))
    return Counted(flops, moved, kernels)


def recovering(network: RoadNetwork, device: torch.device, inputs: Inputs) -> tuple[Callable[[], object], Counted]:
    """Return the work of recovering a batch, and its amount."""
    method = TedTrajRec(network, TedTrajRecConfig()).to(device).eval()
    decode = Recorded(method.decode, device) if device.type == "cuda" else method.decode
    return lambda: decode(inputs), counted(method.decode, inputs)


def training(network: RoadNetwork, device: torch.device, inputs: Inputs) -> tuple[Callable[[], object], Counted]:
    """Return the work of a training step, and its amount without that of the optimizer."""
    method = TedTrajRec(network, TedTrajRecConfig()).to(device).train()
    trainer = Trainer(method, TrainConfig(batch=len(inputs.fix_mask)), 1000)
    progress = Progress()

    def gradients(few: Inputs) -> None:
        torch.autograd.grad(method.loss(few).total, list(method.parameters()))

    return lambda: trainer(inputs, progress), counted(gradients, inputs)


def machine_of(device: torch.device) -> dict[str, Any]:
    """Return where and when this runs."""
    cuda = device.type == "cuda"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name() if cuda else "cpu",
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "precision": torch.get_float32_matmul_precision() if cuda else "float32",
        "config": f"{SEGMENTS} segments, {FIXES} fixes, {STEPS} steps, d {TedTrajRecConfig().d}",
    }


def measured(
    what: str, batch: int, network: RoadNetwork, device: torch.device, limits: Limits, machine: dict[str, Any]
) -> dict[str, Any]:
    """Return a row of one measurement."""
    cuda = device.type == "cuda"
    gc.collect()
    inputs = random_inputs(batch).to(device)
    work, amount = (training if what == "train" else recovering)(network, device, inputs)
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    took, processor = seconds(work, device)
    like = "H200" in machine["device"] if cuda else machine["threads"] == 2
    authors_batch = min(batch, 64)
    authors = AUTHORS.get((device.type, what, authors_batch)) if like else None
    at_best = {
        "arithmetic": amount.flops / limits.flops,
        "bytes": amount.bytes / limits.bytes,
        "launches": amount.kernels * limits.kernel_s,
    }
    return {
        "what": what,
        "batch": batch,
        "ms": 1e3 * took,
        "processor_ms": 1e3 * processor,
        "trips_per_s": batch / took,
        "authors_batch": authors_batch if authors else None,
        "against_authors": batch / took / authors if authors else None,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
        "gflop": amount.flops / 1e9,
        "tflop_per_s": amount.flops / took / 1e12,
        "best_tflop_per_s": limits.flops / 1e12,
        "gb": amount.bytes / 1e9,
        "gb_per_s": amount.bytes / took / 1e9,
        "best_gb_per_s": limits.bytes / 1e9,
        "kernels": amount.kernels,
        "kernel_us": 1e6 * took / amount.kernels,
        "best_kernel_us": 1e6 * limits.kernel_s,
        "limit_ms": {name: 1e3 * value for name, value in at_best.items()},
        "bound": max(at_best, key=lambda name: at_best[name]),
        **machine,
    }


def bar(row: dict[str, Any], best: int) -> str:
    """Return what a row must reach (DESIGN section 6); ``best`` is the batch of the most trips/s."""
    cuda = row["peak_gb"] is not None
    bars = []
    if row["what"] == "recover" and row["batch"] == 1:
        bars.append("10 ms" if cuda else "80 ms")
    if cuda and row["batch"] == best:
        bars.append("25,000 trips/s" if row["what"] == "recover" else "4,000 trips/s")
    if cuda and row["what"] == "train" and row["batch"] == 64:
        bars.append("2 GB")
    return ", ".join(bars)


def table(rows: list[dict[str, Any]]) -> Iterable[str]:
    """Return the lines of a Markdown table."""
    first = rows[0]
    yield (
        f"{first['date']}, {first['device']}, {first['machine']}, {first['threads']} threads, "
        f"Python {first['python']}, torch {first['torch']}, products in {first['precision']}; "
        f"{first['config']}. At best: {first['best_tflop_per_s']:.3g} TFLOP/s, {first['best_gb_per_s']:,.0f} GB/s, "
        f"{first['best_kernel_us']:.2f} µs a kernel.\n"
    )
    columns = ("what", "batch", "ms", "trips/s", "must reach", "authors", "peak GB", "TFLOP/s", "GB/s", "kernels")
    yield f"| {' | '.join(columns)} | limits in ms: arithmetic, bytes, launches |"
    yield "|---" + "|--:" * len(columns) + "|"
    best = {
        what: max((row for row in rows if row["what"] == what), key=lambda row: row["trips_per_s"])["batch"]
        for what in {row["what"] for row in rows}
    }
    for row in rows:
        against = "" if row["against_authors"] is None else f"{row['against_authors']:,.0f} x"
        memory = "" if row["peak_gb"] is None else f"{row['peak_gb']:.2f}"
        limits = ", ".join(f"{value:.3g}" for value in row["limit_ms"].values())
        cells = (
            row["what"], row["batch"], f"{row['ms']:,.1f}", f"{row['trips_per_s']:,.4g}", bar(row, best[row["what"]]),
            against, memory, f"{row['tflop_per_s']:.3g}", f"{row['gb_per_s']:,.0f}", f"{row['kernels']:,}", limits,
        )  # fmt: skip
        yield f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print a row of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--recover", type=int, nargs="*", help="batches to recover")
    parser.add_argument("--train", type=int, nargs="*", help="batches to train with")
    parser.add_argument("-o", "--output", type=Path, help="where to write the rows")
    parser.add_argument("--table", action="store_true", help="print a Markdown table as well")
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    network = synthetic_city(size="large").subset(range(SEGMENTS))
    machine, limits = machine_of(device), limits_of(device)
    given = (arguments.recover, arguments.train)
    rows = []
    for what, chosen, usual in zip(("recover", "train"), given, BATCHES[device.type], strict=True):
        for batch in usual if chosen is None else chosen:
            rows.append(measured(what, batch, network, device, limits, machine))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.output is not None:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows))
    if arguments.table and rows:
        print("\n" + "\n".join(table(rows)))


if __name__ == "__main__":
    main()
