"""Compiles all kernels for an H200 without one: a script, as in a process of tests Triton interprets them.

    TRITON_INTERPRET=0 python tests/nn/compile_kernels.py

Kernels are called as the package calls them, at the sizes of `tedtrajrec_parallel`, but for being launched: types,
constants and what Triton learns of sizes and addresses are those of use, and what comes out means nothing. Prints the
registers of each thread; fails where a kernel does not compile, spills registers, or is not called here.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GATv2Conv
from triton import JITFunction
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import get_ptxas
from triton.runtime.driver import driver

from tedtrajrec import nn

CAPABILITY = 90
D, HEADS, FIXES, CANDIDATES, HIDDEN, MOVING = 256, 8, 10, 48, 128, 9
B, N, SEGMENTS = 3, 20, 50

compiled: list[tuple[JITFunction[Any], dict[str, Any], str]] = []  # with its constants, and its code for ptxas


def compile_only(function: JITFunction[Any], grid: Any) -> Callable[..., None]:
    """Return what compiles a kernel where it is to be launched."""

    def take(*args: Any, **constants: Any) -> None:
        compiled.append((function, constants, function.warmup(*args, grid=grid, **constants).asm["ptx"]))

    return take


def real(*shape: int) -> Tensor:
    return torch.rand(*shape, requires_grad=True)


def whole(most: int, *shape: int, kind: torch.dtype = torch.int64) -> Tensor:
    return torch.randint(most, shape, dtype=kind)


def learn(out: Tensor) -> None:
    """Have the backward pass of what kernels gave run, too."""
    out.sum().backward()  # type: ignore[no-untyped-call]


def call_all(load: Callable[[str], Any]) -> None:
    """Call all kernels."""
    chain, matrices = load("chain_cuda"), 4
    for c in (CANDIDATES, chain.MOST):
        pair, which = real(B, matrices, c, c), whole(matrices, B, N - 1)
        mask = torch.ones(B, N, dtype=torch.bool)
        learn(chain.totals(real(B, 2, N, c), pair, which, mask, 60.0))
        chain.marginals(real(B, N, c), pair, which, mask, 60.0)
        chain.best_path(real(B, N, c), pair, which, mask)

    c, attention = D // HEADS, load("attention_cuda")
    memory = real(B, HEADS, FIXES, 3 * c), real(B, HEADS, FIXES, c), real(B, FIXES), real(B, N), real(B, FIXES)
    for keep in (None, real(N, B, HEADS, FIXES)):
        learn(attention.attend(real(N, B, HEADS, c), *memory, keep))

    table = real(SEGMENTS, D), real(SEGMENTS, D), real(D)
    learn(load("roads_cuda").at(*table, whole(SEGMENTS, B, N, CANDIDATES), torch.rand(B, N, CANDIDATES)))

    scorer, lists = load("scorer_cuda"), 7
    features = torch.rand(B, N, CANDIDATES, MOVING), torch.rand(HIDDEN, MOVING)
    with torch.no_grad():
        of_lists = torch.rand(B, lists, CANDIDATES, HIDDEN)
        x = scorer.first_layer(of_lists, whole(lists, B, N), torch.rand(B, N, HIDDEN), *features)
        scorer.last_layer(x, torch.rand(2, HIDDEN), torch.rand(2))

    places = whole(SEGMENTS, B, N, CANDIDATES), torch.rand(B, N, CANDIDATES), torch.rand(B, N, CANDIDATES)
    ways = whole(900, B, N - 1, CANDIDATES, CANDIDATES, kind=torch.int16)
    moves = whole(N, B, N - 1), whole(N, B, N - 1), *places, ways
    learn(load("transitions_cuda").transitions(real(1, 11), moves, 1500.0))

    rows, means = load("rows_cuda"), [torch.rand(SEGMENTS, D) for _ in range(2)]
    rows.coast(table[0], *means, whole(SEGMENTS, N), whole(5, N), torch.rand(7, 5))
    settings = {"rate": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.01}
    rows.adam(table[0], *means, whole(SEGMENTS, N), torch.rand(N, D), step=3, **settings)

    gatv2 = load("gatv2_cuda")
    for segments, width, heads in ((SEGMENTS, D, HEADS), (SEGMENTS, gatv2.MOST, HEADS), (1, 30, 1)):
        layer = GATv2Conv(width, width // heads, heads, add_self_loops=False)
        learn(gatv2.convolve(layer, real(segments, width), torch.arange(segments).expand(2, -1)))


def resources(ptx: str) -> tuple[int, int]:
    """Return the registers of a thread, and the bytes that it spills."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.ptx"
        file.write_text(ptx)
        assembler = [get_ptxas(CAPABILITY).path, "-v", f"--gpu-name=sm_{CAPABILITY}a", str(file), "-o", f"{file}.cubin"]
        said = subprocess.run(assembler, check=True, capture_output=True, text=True).stderr
    return int(re.findall(r"Used (\d+) registers", said)[-1]), sum(map(int, re.findall(r"(\d+) bytes spill", said)))


def main() -> None:
    """Compile all kernels."""
    device = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda _: 0,
        get_current_target=lambda: GPUTarget("cuda", CAPABILITY, 32),
        utils=SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 232_448}),
    )
    driver.set_active(device)
    JITFunction.__getitem__ = compile_only
    names = [file.stem for file in Path(nn.__path__[0]).glob("*_cuda.py")]
    modules = {name: import_module(f"tedtrajrec.nn.{name}") for name in names}
    call_all(modules.__getitem__)
    faults = []
    for function, constants, ptx in compiled:
        registers, spilt = resources(ptx)
        print(f"{function.module}.{function.__name__} {constants}: {registers} registers")
        if spilt:
            faults.append(f"{function.module}.{function.__name__} {constants} spills {spilt} bytes")
    called = {function for function, _, _ in compiled}
    for module in modules.values():
        for name, function in vars(module).items():
            # What is no kernel of its own is compiled with those that use it.
            inside = any(f" {name}(" in other.src for other in called if other.module == module.__name__)
            if isinstance(function, JITFunction) and function not in called and not inside:
                faults.append(f"{module.__name__}.{name} was not compiled")
    sys.exit("\n".join(faults) or None)


if __name__ == "__main__":
    main()
