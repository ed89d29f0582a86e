"""The cells of a plan are run: each in a process of its own, several side by side, within a given time."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import os
import platform
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from tedtrajrec import __version__
from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.given import given_draw
from tedtrajrec.evaluation.run import Evaluation, draw_steps, evaluate_draw
from tedtrajrec.evaluation.true_routes import MOST, summarise_ranks, true_route_ranks
from tedtrajrec.experiments.plan import Cell, Plan, Source
from tedtrajrec.experiments.trips import save_trips
from tedtrajrec.files import replacing
from tedtrajrec.methods.alternatives import WithAlternatives
from tedtrajrec.methods.base import Method
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import load_method, make_method, method_class
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.train import train_method
from tedtrajrec.work import only_run

EVALUATION_S = 30.0  # set aside at the end of the time for evaluating what was trained


def run_cell(
    cell: Cell, source: Source, run: Path, *, device: str = "auto", until: float | None = None
) -> tuple[dict[str, Any], Evaluation] | None:
    """Train and evaluate one cell and return its row and all it recovered, or None without time for a single epoch.

    Parameters
    ----------
    cell, source
        The cell and where its dataset lies.
    run
        Folder of the training run; one that is there goes on. Beside it lies that of the start, where there is one.
    device
        As for :func:`train_method`.
    until
        Time (of :func:`time.time`) when the row should be there; training that is not finished then is stopped, and
        the row says so.
    """
    started = time.time()
    dataset = Dataset(source.path)
    learned = _learn(cell, dataset, run, device, until)
    if learned is None:
        return None
    method, training = learned
    evaluations = {"test": evaluate_draw(method, draw_steps(dataset, keep=cell.keep), keep_steps=True)}
    if source.draws is not None:
        evaluations["fixed"] = evaluate_draw(method, given_draw(dataset, source.draws, cell.keep))
    more: dict[str, Any] = {}
    if isinstance(method, WithAlternatives):
        more["routes"] = summarise_ranks(true_route_ranks(method, evaluations["test"].draw, max(MOST)))
    row = {
        "cell": asdict(cell),
        "finished": training.get("finished", True),
        "method": {"name": method.name, "parameters": _size(method), **to_dict(method.config)},
        "note": method.note,
        "training": training,
        "metrics": {name: evaluation.summary for name, evaluation in evaluations.items()},
        "draws": {name: evaluation.draw.hash for name, evaluation in evaluations.items()},
        **more,
        "network": dataset.info.network_hash,
        "seconds": round(time.time() - started, 1),
        **machine(),
    }
    return row, evaluations["test"]


def _learn(
    cell: Cell, dataset: Dataset, run: Path, device: str, until: float | None
) -> tuple[Method[Any], dict[str, Any]] | None:
    if not issubclass(method_class(cell.method), LearnedMethod):
        method = make_method(cell.method, dataset.network, cell.settings)
        method.precompute(dataset)
        return method, {}
    start = run.with_name(cell.start) if cell.start else None
    if start is not None and not cell.train:
        return _placed(load_method(start, dataset.network), device), {}
    minutes = None if until is None else max(0.0, until - EVALUATION_S - time.time()) / 60
    fitted = train_method(
        cell.method, dataset, run, overrides=cell.settings, start=start, device=device, max_minutes=minutes
    )
    if fitted.epochs == 0:
        return None
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    training = {**asdict(fitted), "history": history}
    if choose_device(device).type == "cuda":
        training["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    return _placed(load_method(run, dataset.network), device), training


def _placed(method: Method[Any], device: str) -> Method[Any]:
    return method.to(choose_device(device)) if isinstance(method, LearnedMethod) else method


def _size(method: Method[Any]) -> int:
    return sum(p.numel() for p in method.parameters()) if isinstance(method, LearnedMethod) else 0


def machine() -> dict[str, Any]:
    """Return where and when a figure was taken, and with what versions."""
    cuda = torch.cuda.is_available()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"gpu": torch.cuda.get_device_name() if cuda else None, "cores": os.cpu_count()},
        "versions": {"tedtrajrec": __version__, "python": platform.python_version(), "torch": torch.__version__},
    }


def run_plan(
    plan: Plan,
    output: str | Path,
    *,
    runs: str | Path | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    device: str = "auto",
    say: Callable[[str], None] = print,
) -> list[dict[str, Any]]:
    """Run the cells of a plan that have no row yet, each in a process of its own, and return all rows.

    A cell with a start waits for it, and is left out where that has no finished run.

    Parameters
    ----------
    plan
        The cells, in the order in which they are begun.
    output
        Folder of rows.
    runs
        Folder of training runs; ``runs`` in the folder of rows if not given.
    jobs
        Cells run side by side.
    minutes
        Time for all; nothing new is begun in its last tenth.
    device
        As for :func:`train_method`.
    say
        Told what happens.
    """
    with only_run(output):
        return _run_plan(plan, Path(output), runs, jobs, minutes, device, say)


def _run_plan(
    plan: Plan,
    folder: Path,
    runs: str | Path | None,
    jobs: int,
    minutes: float | None,
    device: str,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    run_folder = folder / "runs" if runs is None else Path(runs)
    started = time.time()
    until = None if minutes is None else started + 60 * minutes
    waiting = [cell for cell in plan.cells if not _done(folder, cell)]
    say(f"{len(plan.cells)} cells, {len(waiting)} to do")
    context = multiprocessing.get_context("spawn")
    active: dict[str, tuple[BaseProcess, Cell]] = {}
    try:
        while waiting or active:
            late = until is not None and time.time() > until - 6 * (minutes or 0)
            if late and waiting:
                say(f"{len(waiting)} cells are left for another time")
                waiting = []
            while len(active) < jobs:
                pending = {cell.name for cell in waiting} | active.keys()
                cell = next((cell for cell in waiting if cell.start not in pending), None)
                if cell is None:
                    break
                waiting.remove(cell)
                if cell.start and not _has_run(plan, folder, run_folder, cell.start):
                    say(f"{cell.name}: left out, there is no finished run {run_folder / cell.start} to start from")
                    continue
                arguments = cell, plan.datasets[cell.dataset], folder, run_folder / cell.name, device, until
                process = context.Process(target=_work, args=arguments, name=cell.name)
                process.start()
                active[cell.name] = process, cell
            time.sleep(0.2)
            for name, (begun, cell) in list(active.items()):
                if not begun.is_alive():
                    del active[name]
                    failed = f"failed with exit code {begun.exitcode}" if begun.exitcode else "no time for one epoch"
                    done = "done" if _row(folder, cell) else failed
                    say(f"{time.time() - started:6.0f} s  {name}: {done}")
    finally:
        for left, _ in active.values():
            left.terminate()
    return [row for cell in plan.cells if (row := _row(folder, cell)) is not None]


def _work(cell: Cell, source: Source, folder: Path, run: Path, device: str, until: float | None) -> None:
    torch.set_num_threads(1)  # cells run side by side
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    found = run_cell(cell, source, run, device=device, until=until)
    if found is None:
        return
    row, evaluation = found
    save_trips(folder / "trips" / f"{cell.name}.npz", evaluation)
    with replacing(folder / f"{cell.name}.json") as path:
        path.write_text(json.dumps(row) + "\n", "utf-8")


def _end_with_parent() -> None:
    """End this process with the one that started it, even where that was killed: else two would work on one run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _row(folder: Path, cell: Cell) -> dict[str, Any] | None:
    path = folder / f"{cell.name}.json"
    if not path.exists():
        return None
    row: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return row if from_dict(Cell, row["cell"]) == cell else None


def _has_run(plan: Plan, folder: Path, runs: Path, name: str) -> bool:
    """Return whether there are the weights of a cell, and its training is finished if it is one of the plan."""
    done = all(_done(folder, cell) for cell in plan.cells if cell.name == name)
    return done and (runs / name / "model.safetensors").exists()


def _done(folder: Path, cell: Cell) -> bool:
    row = _row(folder, cell)
    return row is not None and bool(row["finished"])
