"""Training steps on parts of a network: those on the whole of it, with only the rows moved that a batch reads."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods import parallel_inputs, reachable
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.parallel_inputs import ParallelInputs
from tedtrajrec.methods.tedtrajrec_parallel import TABLE, TedTrajRecParallel
from tedtrajrec.nn.touched import Part, rounded, unfilled
from tedtrajrec.training import loop
from tedtrajrec.training.batches import epoch_order, training_batch
from tedtrajrec.training.checkpoint import FILE, Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import fit
from tedtrajrec.training.rows import LAST, TableRows
from tedtrajrec.training.trainer import Trainer
from tests.methods.recordable import run_recordable
from tests.training.conftest import TINY, new_method

SMALL = ParallelConfig(
    d=8, heads=2, width=16, hidden=8, encoder_layers=1, step_layers=1, road_layers=1, most=32, most_candidates=8,
    eta_m=150.0, dropout=0.0,
)  # fmt: skip
PAIRS = TrainConfig(epochs=2, batch=2, lr=0.01, most_valid=6)

# Their gradient is 0 but for rounding (to add the same to all scores changes nothing), which Adam makes steps of.
LEVELS = {
    "scorer.key.bias", "scorer.score.bias", "road_gnn.layers.0.lin_r.weight", "road_gnn.layers.0.lin_r.bias",
    "steps.blocks.0.among.bias",
}  # fmt: skip

Parts = Callable[[float], None]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    """Have batches take parts of a small network, of up to a share of it."""

    def take(share: float) -> None:
        monkeypatch.setattr(parallel_inputs, "LARGE", 0)
        monkeypatch.setattr(parallel_inputs, "LARGE_CPU", 0)
        monkeypatch.setattr(parallel_inputs, "SHARE", share)

    return take


def made(dataset: Dataset, config: ParallelConfig = SMALL) -> TedTrajRecParallel:
    torch.manual_seed(0)
    method = TedTrajRecParallel(dataset.network, config)
    method.precompute(dataset)
    return method


def batches(method: TedTrajRecParallel, dataset: Dataset, config: TrainConfig = PAIRS) -> list[ParallelInputs]:
    split = dataset.split("train")
    order = epoch_order(split.lengths, config.batch, config.seed, 0)
    return [method.inputs(*training_batch(dataset, split, which, config, 0)) for which in order]


def rows_of(run: Path) -> list[dict[str, Any]]:
    return [{**json.loads(line), "seconds": 0} for line in (run / "metrics.jsonl").read_text().splitlines()]


def assert_same_run(a: Path, b: Path) -> None:
    for name in (FILE, "model.safetensors"):
        x, y = load_file(a / name), load_file(b / name)
        assert x.keys() == y.keys()
        assert all(torch.equal(value, y[key]) for key, value in x.items())
    assert rows_of(a) == rows_of(b)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that steps are written into as they are made."""
    kinds: list[str] = []
    step, stepped = TableRows.step, TableRows.stepped
    monkeypatch.setattr(TableRows, "step", lambda self, taken: (kinds.append("rows"), step(self, taken))[1])
    monkeypatch.setattr(TableRows, "stepped", lambda self: (kinds.append("whole"), stepped(self))[1])
    return kinds


@pytest.mark.parametrize("share", [0.9, 0.5])
@pytest.mark.parametrize("kind", ["adamw", "adam"])
def test_a_run_on_parts_is_one_on_the_whole(
    small_dataset: Dataset, tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, kind: str, share: float
) -> None:
    decay = 0.1 if kind == "adamw" else 0.0
    config = dataclasses.replace(PAIRS, optimizer=kind, weight_decay=decay)  # type: ignore[arg-type]
    fit(made(small_dataset), small_dataset, tmp_path / "whole", config, device="cpu")
    parts(share)
    kinds = watched(monkeypatch)
    fit(made(small_dataset), small_dataset, tmp_path / "parts", config, device="cpu")
    assert len(kinds) == 20
    assert set(kinds) == ({"rows"} if share == 0.9 else {"rows", "whole"})
    for ours, theirs in zip(rows_of(tmp_path / "parts"), rows_of(tmp_path / "whole"), strict=True):
        assert ours["loss_total"] == pytest.approx(theirs["loss_total"], rel=1e-5)
        assert ours["valid_accuracy"] == pytest.approx(theirs["valid_accuracy"], abs=1e-6)
    ours, theirs = (load_file(tmp_path / name / FILE) for name in ("parts", "whole"))
    assert ours.keys() == theirs.keys()  # all rows are done
    torch.testing.assert_close(ours[f"model.{TABLE}"], theirs[f"model.{TABLE}"], rtol=1e-5, atol=1e-5)
    for name in theirs:
        if name.startswith("model.") and name.removeprefix("model.") not in LEVELS:
            torch.testing.assert_close(ours[name], theirs[name], rtol=1e-3, atol=2e-4)


SCORES = ("decoder.score.weight", "decoder.score.bias")
REACHABLE = dataclasses.replace(
    TINY, dropout=0.0, scored="reachable", most_reached=24, most_candidates=8, eta_m=150.0, smoothing=0.1
)


def test_the_model_of_the_paper_on_parts(
    small_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(new_method(small_dataset, REACHABLE), small_dataset, tmp_path / "whole", PAIRS, device="cpu")
    monkeypatch.setattr(reachable, "LARGE", 0)
    monkeypatch.setattr(reachable, "SHARE", 0.9)
    kinds = watched(monkeypatch)
    fit(new_method(small_dataset, REACHABLE), small_dataset, tmp_path / "parts", PAIRS, device="cpu")
    assert len(kinds) == 60  # three tables: vectors, and weights and biases of scores
    assert "rows" in kinds
    for ours, theirs in zip(rows_of(tmp_path / "parts"), rows_of(tmp_path / "whole"), strict=True):
        assert ours["loss_total"] == pytest.approx(theirs["loss_total"], rel=1e-5)
    ours, theirs = (load_file(tmp_path / name / FILE) for name in ("parts", "whole"))
    assert ours.keys() == theirs.keys()
    for name in (TABLE, *SCORES):
        torch.testing.assert_close(ours[f"model.{name}"], theirs[f"model.{name}"], rtol=1e-4, atol=1e-4)


def test_scores_of_segments_have_no_gradient_of_the_whole_network(
    small_dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reachable, "LARGE", 0)
    monkeypatch.setattr(reachable, "SHARE", 0.9)
    method = new_method(small_dataset, REACHABLE).train()
    trainer, split = Trainer(method, PAIRS, 10), small_dataset.split("train")
    which = epoch_order(split.lengths, 2, 0, 0)[0]
    inputs = method.inputs(*training_batch(small_dataset, split, which, PAIRS, 0))
    assert isinstance(inputs, reachable.ReachableInputs)
    assert inputs.part is not None
    filled, count = inputs.rounded(), len(inputs.part.segment)
    assert filled.part is not None
    for rows in run_recordable(lambda: trainer._backward(filled))[4:]:
        assert len(rows) == len(filled.part.segment) > count
        assert rows[:count].any()
        assert not rows[count:].any()
    tables = {name: weight for name, weight in method.named_parameters() if name in (TABLE, *SCORES)}
    before = {name: weight.detach().clone() for name, weight in tables.items()}
    trainer(inputs, Progress())
    touched = inputs.part.segment.sort().values
    for name, weight in tables.items():
        assert weight.grad is None
        changed = (weight != before[name]).view(len(weight), -1).any(1).nonzero()[:, 0]
        assert torch.equal(changed, touched)
        last = trainer.optimizer.state[weight][LAST]
        assert torch.equal(last.nonzero()[:, 0], touched)


def test_no_gradient_of_the_whole_table_is_made(small_dataset: Dataset, parts: Parts) -> None:
    parts(0.9)
    method = made(small_dataset).train()
    trainer, table = Trainer(method, PAIRS, 10), method.road_gnn.table
    inputs = batches(method, small_dataset)[0]
    before = table.detach().clone()
    trainer(inputs, Progress())
    assert table.grad is None
    assert all(gradient.numel() < table.numel() for gradient in trainer._gradients.values())
    changed = (table != before).any(1).nonzero()[:, 0]
    assert inputs.part is not None
    assert torch.equal(changed, inputs.part.segment.sort().values)
    last = trainer.optimizer.state[table][LAST]
    assert torch.equal(last.nonzero()[:, 0], changed)
    trainer.catch_up()
    assert (table != before).any(1).all()  # weights decay everywhere
    assert LAST not in trainer.optimizer.state[table]


def test_gradients_are_clipped_by_the_norm_of_all(small_dataset: Dataset, parts: Parts) -> None:
    means = []
    for share in (0.0, 0.9):
        parts(share)
        method = made(small_dataset).train()
        trainer = Trainer(method, dataclasses.replace(PAIRS, clip=1e-3), 10)
        inputs = batches(method, small_dataset)[0]
        assert (inputs.part is None) == (share == 0)
        trainer(inputs, Progress())
        trainer.catch_up()
        means.append({name: trainer.optimizer.state[w]["exp_avg"] for name, w in method.named_parameters()})
    whole, rows = means
    assert float(torch.stack([mean.norm() for mean in rows.values()]).norm()) == pytest.approx(1e-4, rel=1e-3)
    assert float(rows[TABLE].norm()) > 1e-6
    for name, mean in whole.items():
        torch.testing.assert_close(rows[name], mean, rtol=1e-3, atol=1e-9)


def test_what_fills_up_changes_nothing(small_dataset: Dataset, parts: Parts) -> None:
    parts(0.9)
    found = []
    for fill in (False, True):
        method = made(small_dataset).train()
        trainer, progress = Trainer(method, PAIRS, 10), Progress()
        for inputs in batches(method, small_dataset)[:4]:
            seen = inputs.rounded(fixes=1, steps=1) if fill else inputs
            assert seen.part is not None
            assert (len(seen.part.segment) % 1024 == 0) == fill
            trainer(seen, progress)
            progress.step += 1
        found.append((method.road_gnn.table.detach(), trainer.optimizer.state[method.road_gnn.table][LAST]))
    (plain, last), (filled, its_last) = found
    assert torch.equal(last, its_last)
    torch.testing.assert_close(filled, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("segment", [[0], [4, 0], [0, 3, 9], list(range(1024))])
def test_segments_of_a_rounded_part(segment: list[int]) -> None:
    for asked in {1, len(segment)}:
        part = Part(*torch.tensor(segment).split([asked, len(segment) - asked]), *torch.zeros(2, 3, 50).long())
        for seen in (part, rounded(part)):
            np.testing.assert_array_equal(unfilled(seen), segment)


def test_a_step_on_a_part_can_be_recorded(small_dataset: Dataset, parts: Parts) -> None:
    parts(0.9)
    method = made(small_dataset).train()
    trainer = Trainer(method, PAIRS, 10)
    inputs = batches(method, small_dataset)[0].rounded()
    passed = run_recordable(lambda: trainer._backward(inputs))
    count = len(unfilled(inputs.part))  # type: ignore[arg-type]
    assert inputs.part is not None
    rows = passed[-1]
    assert rows.shape == (len(inputs.part.segment), SMALL.d)
    assert count < len(rows)
    assert rows[:count].any()
    assert not rows[count:].any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
def test_recorded_steps_on_parts_are_those_of_the_cpu(small_dataset: Dataset, parts: Parts) -> None:
    torch.set_float32_matmul_precision("highest")
    parts(0.5)  # some are of the whole
    tables, losses = [], []
    for device in ("cpu", "cuda"):
        method = made(small_dataset).to(device).train()
        trainer, progress = Trainer(method, PAIRS, 10), Progress()
        inputs = batches(method, small_dataset)
        assert {seen.part is None for seen in inputs} == {True, False}
        rows = []
        for seen in [*inputs, *inputs[::-1]]:
            rows.append(trainer(trainer.shape(seen), progress))
            progress.step += 1
        trainer.catch_up()
        tables.append(method.road_gnn.table.detach().cpu())
        losses.append([float(row.total) for row in rows])
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    torch.testing.assert_close(tables[1], tables[0], rtol=1e-2, atol=1e-3)


def test_without_a_table_in_use_its_rows_only_decay(small_dataset: Dataset, parts: Parts) -> None:
    parts(0.9)
    method = made(small_dataset, dataclasses.replace(SMALL, table=False)).train()
    trainer, before = Trainer(method, PAIRS, 10), method.road_gnn.table.detach().clone()
    for step, inputs in enumerate(batches(method, small_dataset)[:3]):
        trainer(inputs, Progress(0, step))
    trainer.catch_up()
    share = method.road_gnn.table.detach() / before
    torch.testing.assert_close(share, torch.full_like(share, float(share[0, 0])))
    assert 0.999 < float(share[0, 0]) < 1


def test_adam_that_decays_stays_with_the_whole_table(small_dataset: Dataset, parts: Parts) -> None:
    parts(0.9)
    method = made(small_dataset).train()
    trainer = Trainer(method, dataclasses.replace(PAIRS, optimizer="adam", weight_decay=0.01), 10)
    inputs = batches(method, small_dataset)[0]
    assert inputs.part is not None
    trainer(inputs, Progress())
    assert method.road_gnn.table.grad is not None
    assert LAST not in trainer.optimizer.state[method.road_gnn.table]


@pytest.mark.parametrize("share", [0.9, 0.5])
def test_stopped_after_every_batch_it_goes_on(
    small_dataset: Dataset, tmp_path: Path, parts: Parts, monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    parts(share)
    config = dataclasses.replace(SMALL, dropout=0.1)
    fit(made(small_dataset, config), small_dataset, tmp_path / "whole", PAIRS, device="cpu")
    calls, finished, lasts = 0, False, 0
    while not finished:
        fitted = fit(made(small_dataset, config), small_dataset, tmp_path / "cut", PAIRS, device="cpu", max_minutes=0.0)
        finished = fitted.finished
        lasts += any(name.endswith(f".{LAST}") for name in load_file(tmp_path / "cut" / FILE))
        calls += 1
    assert calls >= 20
    assert lasts >= 10  # rows were behind in most states
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
    # Nor does it matter when states are written.
    monkeypatch.setattr(loop, "CHECKPOINT_S", 0.0)
    fit(made(small_dataset, config), small_dataset, tmp_path / "often", PAIRS, device="cpu")
    assert_same_run(tmp_path / "often", tmp_path / "whole")
