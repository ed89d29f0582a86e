"""Training in processes of their own that are killed (SIGKILL) at random moments, and then goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.training.checkpoint import FILE
from tests.training.conftest import files_of

# Trains once from start to end, then forks a trainer again and again and kills it some time after it has written its
# first state, then lets one go on to the end. Libraries are loaded once; nothing of them runs before the forks.
PARENT = """
import os, random, signal, sys, time
from pathlib import Path
import torch
import torch._dynamo  # which optimizers load
import tedtrajrec.methods.tedtrajrec, tedtrajrec.methods.tedtrajrec_parallel
from tedtrajrec.methods import parallel_inputs
from tedtrajrec.training import loop, train

dataset, folder, epochs, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
name = sys.argv[6]
parallel_inputs.LARGE_CPU, parallel_inputs.SHARE = 0, 0.5  # some batches hold a part of the network, some the whole
state, draw = folder / "killed" / "last" / "state.safetensors", random.Random(seed)
loop.CHECKPOINT_S = 0.0  # a state after every batch
settings = ["model.d=8", "model.heads=2", "model.width=8", "train.batch=5", "train.lr=0.01", f"train.epochs={epochs}"]
if name == "tedtrajrec_parallel":
    settings += ["model.hidden=8", "model.most=32", "model.road_layers=1", "model.eta_m=150", "train.batch=2"]

def start(run):
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            train.train_method(name, dataset, folder / run, overrides=settings, device="cpu")
            os._exit(0)
        finally:
            os._exit(1)
    return child

def stamp():
    return state.stat().st_mtime_ns if state.exists() else 0

assert os.waitpid(start("whole"), 0)[1] == 0
for _ in range(kills):
    before, child = stamp(), start("killed")
    while stamp() == before:
        time.sleep(0.001)
    time.sleep(draw.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
assert os.waitpid(start("killed"), 0)[1] == 0
"""


def metrics(run: Path) -> list[dict[str, object]]:
    return [{**json.loads(line), "seconds": 0} for line in (run / "metrics.jsonl").read_text().splitlines()]


def same_after_kills(
    dataset: Dataset, folder: Path, *, epochs: int, kills: int, seed: int, name: str = "tedtrajrec"
) -> None:
    command = [sys.executable, "-c", PARENT, str(dataset.path), str(folder), str(epochs), str(kills), str(seed), name]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    whole, killed = folder / "whole", folder / "killed"
    assert files_of(killed) == files_of(whole)
    for file in (FILE, "model.safetensors"):
        expected, found = load_file(whole / file), load_file(killed / file)
        assert expected.keys() == found.keys()
        assert all(torch.equal(value, found[key]) for key, value in expected.items())
    assert metrics(killed) == metrics(whole)
    assert len(metrics(whole)) == epochs


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("name", ["tedtrajrec", "tedtrajrec_parallel"])
def test_killed_and_gone_on_with_the_weights_are_the_same(small_dataset: Dataset, tmp_path: Path, name: str) -> None:
    same_after_kills(small_dataset, tmp_path, epochs=3, kills=2, seed=1, name=name)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("seed", [2, 3])
def test_killed_ten_times(small_dataset: Dataset, tmp_path: Path, seed: int) -> None:
    same_after_kills(small_dataset, tmp_path, epochs=10, kills=10, seed=seed)
