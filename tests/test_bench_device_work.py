"""benchmarks/device_work.py: memory that is known, and a whole step of training without a device."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytest.importorskip("triton", reason="triton is made for Linux on x86-64 alone", exc_type=ImportError)


def test_what_is_allocated_is_followed_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    device_work = importlib.import_module("device_work")
    size = 4 * 2**20
    x = torch.empty(2**20, device="meta")
    with device_work.Asked() as asked:
        y = x + 1
        z = y.view(2, -1).t() @ y.view(2, -1)[:, :1]  # two views of y, and a product of 2**19 numbers
        y.mul_(2)
        del y
        assert (asked.held, asked.most) == (z.nbytes, size + z.nbytes)
        del z
        torch.empty(2, device="meta").relu()
        with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
            x.sum().item()
    assert (asked.held, asked.most) == (0, size + size // 2)
    names = [line.split()[0].split(".")[1] for line in asked.lines]
    assert names == ["add", "mm", "mul_", "empty", "relu", "sum"]
    assert asked.lines[1] == "aten.mm.default float32[524288, 2] float32[2, 1] -> float32[524288, 1]"


def test_a_step_asks_for_as_many_operations_in_a_larger_network(tmp_path: Path) -> None:
    command = [sys.executable, BENCHMARKS / "device_work.py", "--tiles", "1", "4", "--batch", "2", "--list", tmp_path]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    small, large = map(json.loads, done.stdout.splitlines())
    assert (small["touched"], small["segments"]) == (9198, 9198)
    assert large["touched"] < large["segments"] / 4  # so it is trained in parts
    assert small["operations"] <= large["operations"] <= small["operations"] + 20
    assert small["launches"] | {"rows_cuda.coast": 1, "rows_cuda.adam": 1} == large["launches"]
    kernels = {name.partition(".")[0] for name in large["launches"]}
    assert kernels == {"attention_cuda", "chain_cuda", "gatv2_cuda", "roads_cuda", "rows_cuda", "transitions_cuda"}
    lines = (tmp_path / "4.txt").read_text().splitlines()
    assert sum(line.startswith(tuple(kernels)) for line in lines) == len(lines) - large["operations"] == 19
    # Nothing passes over the whole table.
    whole = {line.split()[0].split(".")[1] for line in lines if "[36800," in line}
    assert whole == {"index", "embedding", "coast", "adam"}
