"""Speed of TedTrajRec on the problem that the authors' code was timed on: 8,781 segments, 10 fixes, 72 steps, d 256.

    python benchmarks/model_speed.py [--device cuda] [--train 64 512 1024] [--recover 1 64 1024 4096] [-o rows.jsonl]

Inputs are random and lie on the device, so this is the model alone. On CUDA steps are recorded graphs, as in training.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import Trainer, choose_device

AUTHORS = {"train": 74, "recover": 286, "one": 157e-3, "one_cpu": 8.9}
"""Trips/s of training and inference and seconds of one trip, measured on an H200 (REFERENCE section 5)."""


def random_inputs(b: int, n_segments: int, *, m: int = 10, n: int = 72, k: int = 32) -> Inputs:
    """Return a batch of the right shapes and sizes."""
    step = torch.stack([torch.randperm(n)[:m].sort().values for _ in range(b)])
    return Inputs(
        near_segment=torch.randint(0, n_segments, (b, m, k)),
        near_distance=(torch.rand(b, m, k) * 120).sort(-1).values,
        near_ratio=torch.rand(b, m, k),
        fix_mask=torch.ones(b, m, dtype=torch.bool),
        fix_xy=torch.rand(b, m, 2) * 2 - 1,
        fix_time=step.float(),
        fix_minute=600 + step / 4,
        fix_step=step,
        step_mask=torch.ones(b, n, dtype=torch.bool),
        step_minute=(600 + torch.arange(n) / 4).repeat(b, 1),
        segment=torch.randint(0, n_segments, (b, n)),
        ratio=torch.rand(b, n),
        forced=torch.rand(b, n) < 0.5,
    )


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> float:
    """Return the median time of some runs after two that do not count."""
    times = []
    for k in range(repeats + 2):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if k >= 2:
            times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def main() -> None:
    """Print a row of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--train", type=int, nargs="*", default=[64, 256, 512, 1024])
    parser.add_argument("--recover", type=int, nargs="*", default=[1, 64, 512, 2048, 4096])
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    network = synthetic_city(size="large")
    network = network.subset(range(8781))
    rows = []

    def report(what: str, batch: int, took: float) -> None:
        memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
        row = {"what": what, "device": str(device), "batch": batch, "ms": 1e3 * took, "trips_per_s": batch / took}
        row |= {"against_authors": batch / took / AUTHORS[what], "peak_gib": memory}
        rows.append(row)
        print(json.dumps(row), flush=True)

    for batch in arguments.recover:
        method = TedTrajRec(network, TedTrajRecConfig()).to(device).eval()
        inputs = random_inputs(batch, network.n_segments).to(device)
        decode = Recorded(method.decode, device) if device.type == "cuda" else method.decode
        report("recover", batch, seconds(lambda d=decode, i=inputs: d(i), device))  # type: ignore[misc]
    for batch in arguments.train:
        if device.type == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        method = TedTrajRec(network, TedTrajRecConfig()).to(device).train()
        trainer = Trainer(method, TrainConfig(batch=batch), 1000)
        inputs = random_inputs(batch, network.n_segments).to(device)
        progress = Progress()
        report("train", batch, seconds(lambda t=trainer, i=inputs, p=progress: t(i, p), device))  # type: ignore[misc]
    if arguments.output is not None:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
