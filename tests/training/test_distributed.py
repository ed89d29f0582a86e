"""Training on two processes: the steps of one process, each trip once, one writer, and on it goes after a loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.tedtrajrec_parallel import TABLE
from tedtrajrec.training.batches import epoch_order, training_batch
from tedtrajrec.training.checkpoint import FILE
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE, Ranks, joined, launched
from tests.training.conftest import SHORT, files_of, new_method

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")

TINY = ["model.d=8", "model.heads=2", "model.dropout=0", "train.batch=7", "train.epochs=3", "train.lr=0.01"]
PAPER = [*TINY, "model.width=8", "model.encoder_layers=1", "model.road_layers=1", "train.forcing=0.5"]
OURS = [*TINY, "model.width=16", "model.hidden=8", "model.encoder_layers=1", "model.step_layers=1", "model.most=32"]
CASES = {"tedtrajrec": PAPER, "tedtrajrec_parallel": OURS}
PARTS = [*OURS, "model.road_layers=1", "model.most_candidates=8", "model.eta_m=150", "train.batch=2"]
REACHABLE = [*PAPER, *PARTS[-3:], "model.scored=reachable", "model.most_reached=24"]
SHARES = (0.9, 0.27)  # all batches hold a part of the network; at times one rank's does and the other's does not

# Forks the ranks of one run after another, as torchrun would start them. Libraries are loaded once.
PARENT = """
import hashlib, json, os, socket, sys
import torch
import torch._dynamo  # which optimizers load
import tedtrajrec.methods.tedtrajrec, tedtrajrec.methods.tedtrajrec_parallel
from tedtrajrec.methods import parallel_inputs, reachable
from tedtrajrec.training import loop, train

loop.VALID_TRIPS = 2  # several batches, so that both ranks have some
digests, kinds, caught_up, take = [], set(), loop.Trainer.catch_up, loop.Trainer._taken

def catch_up(self):
    caught_up(self)
    if self._rows:
        digest = hashlib.sha256()
        for tensor in (part for rows in self._rows for part in rows._whole()):
            digest.update(tensor.detach().numpy().tobytes())
        digests.append(digest.hexdigest())

def taken(self, gradients, mine, touched):
    kinds.add((mine is None, touched is None))
    return take(self, gradients, mine, touched)

loop.Trainer.catch_up, loop.Trainer._taken = catch_up, taken

def start(rank, count, port, name, run, settings, share):
    child = os.fork()
    if child:
        return child
    try:
        where = {"RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        os.environ |= {key: str(value) for key, value in where.items()}
        torch.set_num_threads(1)
        if share:
            parallel_inputs.LARGE_CPU, parallel_inputs.SHARE = 0, share
            reachable.LARGE, reachable.SHARE = 0, share
        fitted = train.train_method(name, sys.argv[1], run, overrides=settings, device="cpu")
        print(json.dumps([run, rank, fitted.epochs, digests, sorted(kinds)]), flush=True)
        os._exit(0)
    finally:
        os._exit(1)

for name, run, settings, count, share in json.loads(sys.argv[2]):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for child in [start(rank, count, port, name, run, settings, share) for rank in range(count)]:
        assert os.waitpid(child, 0)[1] == 0
"""

# What torchrun starts; rank 1 kills itself once, some batches into the second epoch.
RANK = """
import os, signal, sys
from pathlib import Path
from tedtrajrec.training import loop, train

loop.CHECKPOINT_S, loop.VALID_TRIPS = 0.0, 2
dataset, run, *settings = sys.argv[1:]
killed, step = Path(run).with_name("killed-once"), loop.Trainer.__call__

def dying(self, inputs, progress):
    if os.environ["RANK"] == "1" and (progress.epoch, progress.step) == (1, 1) and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, inputs, progress)

loop.Trainer.__call__ = dying
train.train_method("tedtrajrec", dataset, run, overrides=settings, device="cpu")
"""


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [{**json.loads(line), "seconds": 0} for line in (run / "metrics.jsonl").read_text().splitlines()]


def run_all(dataset: Dataset, todo: list[tuple[str, str, list[str], int, float | None]]) -> dict[str, list[Any]]:
    """Train, and return what each rank of each run says: its number, digests of the table, and kinds of steps."""
    command = [sys.executable, "-c", PARENT, str(dataset.path), json.dumps(todo)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    said: dict[str, list[Any]] = {}
    for run, rank, epochs, *more in map(json.loads, done.stdout.splitlines()):
        assert epochs == 3
        said.setdefault(run, []).append([rank, *more])
    for _, run, _, count, _ in todo:
        said[run].sort()
        assert [rank for rank, *_ in said[run]] == list(range(count))
    return said


@pytest.fixture(scope="module")
def runs(small_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a run of each method by one process and by two."""
    folder = tmp_path_factory.mktemp("ranks")
    todo = [(name, str(folder / f"{name}-{count}"), CASES[name], count, None) for name in CASES for count in (1, 2)]
    run_all(small_dataset, todo)
    return folder


def check_same_steps(one: Path, two: Path) -> None:
    assert files_of(one) == files_of(two)
    assert (one / "train.json").read_text() == (two / "train.json").read_text()
    for alone, together in zip(rows_of(one), rows_of(two), strict=True):
        for key in ("loss_total", "loss_segment", "loss_ratio"):
            assert together[key] == pytest.approx(alone[key], rel=1e-4)
        assert together["valid_accuracy"] == pytest.approx(alone["valid_accuracy"], abs=1e-6)
        assert (together["epoch"], together["lr"]) == (alone["epoch"], alone["lr"])


@pytest.mark.parametrize("name", CASES)
def test_two_processes_make_the_steps_of_one(name: str, runs: Path) -> None:
    check_same_steps(runs / f"{name}-1", runs / f"{name}-2")


def test_two_processes_on_parts_make_the_steps_of_one(small_dataset: Dataset, tmp_path: Path) -> None:
    one, *two = tmp_path / "1", *(tmp_path / f"2-{share}" for share in SHARES)
    name = "tedtrajrec_parallel"
    several = [(name, str(run), PARTS, 2, share) for run, share in zip(two, SHARES, strict=True)]
    said = run_all(small_dataset, [(name, str(one), PARTS, 1, SHARES[0]), *several])
    part, whole, other_has_all = [False, False], [True, True], [False, True]
    assert [kinds for *_, kinds in said[str(one)]] == [[part]]
    for run, expected in zip(two, ([part], [part, other_has_all, whole]), strict=True):
        check_same_steps(one, run)
        table, its_table = (load_file(folder / FILE)[f"model.{TABLE}"] for folder in (one, run))
        torch.testing.assert_close(its_table, table, rtol=1e-4, atol=1e-4)
        assert all(kind in expected for *_, kinds in said[str(run)] for kind in kinds)
        assert all(kind in [k for *_, kinds in said[str(run)] for k in kinds] for kind in expected)
        (_, first, _), (_, second, _) = said[str(run)]
        assert len(first) == 3
        assert first == second  # tables and means are equal on both, bit for bit


def test_two_processes_on_parts_that_have_scores_of_their_own(small_dataset: Dataset, tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    said = run_all(small_dataset, [("tedtrajrec", str(run), REACHABLE, int(run.name), 0.95) for run in (one, two)])
    check_same_steps(one, two)
    states = load_file(one / FILE), load_file(two / FILE)
    for name in (TABLE, "decoder.score.weight", "decoder.score.bias"):
        torch.testing.assert_close(*(state[f"model.{name}"] for state in states), rtol=1e-4, atol=1e-4)
    (_, first, kinds), (_, second, _) = said[str(two)]
    assert [False, False] in kinds
    assert first == second


def test_a_killed_rank_and_on_it_goes(small_dataset: Dataset, runs: Path, tmp_path: Path) -> None:
    program, run = tmp_path / "rank.py", tmp_path / "run"
    program.write_text(RANK)
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"),
        *(str(program), str(small_dataset.path), str(run), *PAPER),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed-once").exists()
    whole = runs / "tedtrajrec-2"
    assert files_of(run) == files_of(whole)
    assert rows_of(run) == rows_of(whole)
    for name in (FILE, "model.safetensors"):
        expected, found = load_file(whole / name), load_file(run / name)
        assert expected.keys() == found.keys()
        assert all(torch.equal(value, found[key]) for key, value in expected.items())


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_every_trip_of_an_epoch_is_taken_once(count: int) -> None:
    order = epoch_order(np.arange(20) + 5, 7, seed=1, epoch=2)
    for which in order:
        shares = [Ranks(rank, count).share(which) for rank in range(count)]
        assert sorted(np.concatenate(shares)) == sorted(which)
        assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_rank_sees_its_trips_as_one_process_does(small_dataset: Dataset) -> None:
    split, which = small_dataset.split("train"), np.arange(5)
    config = TrainConfig(keep=("1/8", "1/4"), forcing=0.5)
    whole, forced = training_batch(small_dataset, split, which, config, 3)
    for rank in range(2):
        part, truth = training_batch(small_dataset, split, which, config, 3, Ranks(rank, 2))
        steps = part.step_mask.shape[1]
        assert torch.equal(part.segment, whole.segment[rank::2, :steps])
        assert torch.equal(part.observed, whole.observed[rank::2, :steps])
        assert torch.equal(truth, forced[rank::2, :steps])
        assert torch.equal(part.number, whole.number[rank::2])
        assert part.lot == whole.lot


def test_a_rank_without_a_trip_counts_nothing(small_dataset: Dataset) -> None:
    split = small_dataset.split("train")
    batch, forced = training_batch(small_dataset, split, np.array([3]), SHORT, 0, Ranks(1, 2))
    method = new_method(small_dataset)
    losses = method.loss(method.inputs(batch, forced))
    assert losses.known == 0
    assert losses.total == 0
    assert len(batch.segment) == 1


def test_the_environment_tells_of_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched() is ALONE
    with joined(torch.device("cpu")) as ranks:
        assert ranks is ALONE
        assert ranks.first_says(False) is False
        assert ranks.all_of([3, 4]) == [3, 4]
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="RANK is not set; start the command with torchrun"):
        launched()
    for name, value in {"RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert launched() == Ranks(1, 2)
    assert not launched().is_first
