"""Speed of the chain over candidates: 72 steps, 64 candidates, 27 transition matrices a trip.

    python benchmarks/chain_speed.py [--device cuda] [--batch 64 1024 4096] [--k 5]

GB/s counts the matrices of all steps read once, and once more for gradients and for marginals: what no way of doing it
step by step can save. On CUDA the work is a recorded graph, and products may be TF32 outside the chain, as in training.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from tedtrajrec.nn.chain import Chain, k_best, log_partition, marginals, negative_log_likelihood, viterbi
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.loop import choose_device

STEPS, CANDIDATES, MATRICES = 72, 64, 27


class Outputs(NamedTuple):
    """What a piece of work returns; a graph must keep it."""

    first: Tensor
    second: Tensor


def random_chain(b: int, device: torch.device) -> Chain:
    """Return trips of 14 gaps with their matrices in order, most transitions forbidden."""
    shape = (b, MATRICES, CANDIDATES, CANDIDATES)
    pair = torch.randn(shape, device=device).masked_fill_(torch.rand(shape, device=device) < 0.9, -30.0)
    return Chain(
        torch.randn(b, STEPS, CANDIDATES, device=device) * 3,
        pair,
        torch.randint(MATRICES, (b, STEPS - 1), device=device).sort(1).values,
        torch.ones(b, STEPS, dtype=torch.bool, device=device),
    )


def forward(chain: Chain) -> Outputs:
    """Return log Z."""
    total = log_partition(chain)
    return Outputs(total, total)


def gradients(loss: Callable[[Chain], Tensor], chain: Chain) -> Outputs:
    """Return the gradients of a loss."""
    unary, pair = chain.unary.detach().requires_grad_(True), chain.pair.detach().requires_grad_(True)
    return Outputs(*torch.autograd.grad(loss(chain._replace(unary=unary, pair=pair)).sum(), (unary, pair)))


def training_loss(chain: Chain) -> Tensor:
    """Return the loss with the truth at candidate 3, unknown at every fifth step."""
    truth = torch.full_like(chain.mask, 3, dtype=torch.int64)
    truth[:, ::5] = -1
    return negative_log_likelihood(chain, truth)


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 7) -> float:
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
    """Print a row of JSON for each piece of work and size of batch."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, nargs="*", default=[64, 1024, 4096])
    parser.add_argument("--k", type=int, default=5)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(0)
    tasks: dict[str, tuple[Callable[[Chain], Outputs], int]] = {  # and how often each must read the matrices
        "log_partition": (forward, 1),
        "log_partition + gradients": (partial(gradients, log_partition), 2),
        "negative_log_likelihood + gradients": (partial(gradients, training_loss), 2),
        "marginals": (lambda chain: Outputs(marginals(chain), chain.mask), 2),
        "viterbi": (lambda chain: Outputs(*viterbi(chain)), 1),
        f"{arguments.k} best": (lambda chain: Outputs(*k_best(chain, arguments.k)), 1),
    }
    for b in arguments.batch:
        chain = random_chain(b, device)
        for name, (task, reads) in tasks.items():
            peak = None
            work: Callable[[Chain], Outputs] = task
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
                held = torch.cuda.memory_allocated()
                work = Recorded(task, device)
                work(chain)
                peak = (torch.cuda.max_memory_allocated() - held) / 2**30
            took = seconds(partial(work, chain), device)
            size = reads * b * (STEPS - 1) * CANDIDATES**2 * 4
            row = {"what": name, "device": str(device), "batch": b, "ms": round(1e3 * took, 3)}
            row |= {"trips_per_s": round(b / took), "GB_per_s": round(size / took / 1e9, 1), "working_gib": peak}
            print(json.dumps(row), flush=True)
            del work


if __name__ == "__main__":
    main()
