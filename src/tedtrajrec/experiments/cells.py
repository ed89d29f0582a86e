"""The cells of a plan are run: each in a process of its own, several side by side, within a given time."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

import torch

from tedtrajrec.config import to_dict
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import TedtrajrecError
from tedtrajrec.evaluation.given import given_draw
from tedtrajrec.evaluation.run import Evaluation, draw_steps, evaluate_draw
from tedtrajrec.evaluation.true_routes import MOST, summarise_ranks, true_route_ranks
from tedtrajrec.experiments.efficiency import costs, count_macs, first_batch
from tedtrajrec.experiments.plan import MODEL, Cell, Plan, Source, work_of
from tedtrajrec.experiments.provenance import dataset_hash, machine, settings_hash
from tedtrajrec.experiments.store import RowStore, row_file, write_row
from tedtrajrec.experiments.trips import save_trips
from tedtrajrec.methods.alternatives import WithAlternatives
from tedtrajrec.methods.base import Method
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.plugins import load_plugin, loaded_plugins
from tedtrajrec.methods.registry import load_method, make_method, method_class
from tedtrajrec.training.choose import read_choice
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.train import train_method
from tedtrajrec.work import only_run

EVALUATION_S = 30.0  # set aside at the end of the time for evaluating what was trained


def run_cell(
    cell: Cell,
    source: Source,
    run: Path,
    *,
    start: Path | None = None,
    device: str = "auto",
    until: float | None = None,
    command: str | None = None,
) -> tuple[dict[str, Any], Evaluation] | None:
    """Train and evaluate one cell and return its row and all it recovered, or None without time for a single epoch.

    Parameters
    ----------
    cell, source
        The cell and where its dataset lies.
    run
        Folder of the training run; one that is there goes on.
    start
        Folder of the run that the cell starts from, where it does.
    device
        As for :func:`train_method`.
    until
        Time (of :func:`time.time`) when the row should be there; training that is not finished then is stopped, and
        the row says so.
    command
        What was called, for the row.
    """
    started = time.time()
    dataset = Dataset(source.path)
    learned = _learn(cell, dataset, run, start, device, until)
    if learned is None:
        return None
    method, training, trained_with = learned
    draw = draw_steps(dataset, keep=cell.keep)
    macs = count_macs(method, first_batch(draw)) if isinstance(method, LearnedMethod) else 0
    method = method.to(choose_device(device)) if isinstance(method, LearnedMethod) else method
    evaluations = {"test": evaluate_draw(method, draw, keep_steps=True)}
    if source.draws is not None:
        evaluations["fixed"] = evaluate_draw(method, given_draw(dataset, source.draws, cell.keep))
    more: dict[str, Any] = {}
    if isinstance(method, LearnedMethod):
        more["efficiency"] = costs(macs, evaluations["test"], training)
    if isinstance(method, WithAlternatives):
        more["routes"] = summarise_ranks(true_route_ranks(method, evaluations["test"].draw, max(MOST)))
    if command is not None:
        more["command"] = command
    settings = {"method": method.name, "model": to_dict(method.config), "train": trained_with}
    row = {
        "cell": asdict(cell),
        "finished": training.get("finished", True),
        "method": {"name": method.name, "parameters": _size(method), **to_dict(method.config)},
        "note": method.note,
        "training": training,
        "metrics": {name: evaluation.summary for name, evaluation in evaluations.items()},
        "draws": {name: evaluation.draw.hash for name, evaluation in evaluations.items()},
        **more,
        "config_hash": settings_hash({**settings, "start": cell.start.removesuffix(f"-{cell.seed}")}),
        "network": dataset.info.network_hash,
        "dataset_hash": dataset_hash(dataset),
        "step_s": dataset.info.step_s,
        "seconds": round(time.time() - started, 1),
        **machine(),
    }
    return row, evaluations["test"]


def _learn(
    cell: Cell, dataset: Dataset, run: Path, start: Path | None, device: str, until: float | None
) -> tuple[Method[Any], dict[str, Any], dict[str, Any]] | None:
    """Return a method that is ready, on the CPU, how its training went, and the settings of that without the seed."""
    if not issubclass(method_class(cell.method), LearnedMethod):
        method = make_method(cell.method, dataset.network, cell.settings)
        if not cell.train:
            return method, {}, {"seen": "the map alone"}
        method.precompute(dataset)
        return method, {}, {}
    if start is not None and not cell.train:
        return load_method(start, dataset.network, [text.removeprefix(MODEL) for text in cell.settings]), {}, {}
    minutes = None if until is None else max(0.0, until - EVALUATION_S - time.time()) / 60
    fitted = train_method(
        cell.method,
        dataset,
        run,
        overrides=cell.settings,
        start=start,
        choose=cell.choose,
        device=device,
        max_minutes=minutes,
    )
    if fitted.epochs == 0:
        return None
    history = [json.loads(line) for line in (run / "metrics.jsonl").read_text("utf-8").splitlines()]
    training = {**asdict(fitted), "history": history}
    choice = read_choice(run)
    if choice is not None:
        training["search"] = asdict(choice)
    if choose_device(device).type == "cuda":
        training["peak_mib"] = round(torch.cuda.max_memory_allocated() / 2**20)
    settings = json.loads((run / "train.json").read_text("utf-8"))["train"]
    return load_method(run, dataset.network), training, {key: settings[key] for key in settings if key != "seed"}


def _size(method: Method[Any]) -> int:
    return sum(p.numel() for p in method.parameters()) if isinstance(method, LearnedMethod) else 0


class Begun(Protocol):
    """A process that was begun, here or elsewhere."""

    @property
    def exitcode(self) -> int | None:
        """How it ended: 0 for well."""

    def is_alive(self) -> bool:
        """Return whether it is still at work."""

    def terminate(self) -> None:
        """End it."""


Begin = Callable[[Callable[..., None], tuple[Any, ...], str], Begun]
"""Starts a function with arguments in a process of this name."""


class FailedCellsError(TedtrajrecError):
    """Some cells ended with an error, which they have told; the others have their rows."""

    def __init__(self, names: Sequence[str], rows: list[dict[str, Any]]) -> None:
        super().__init__(
            f"{len(names)} cells failed, for the reasons above: {', '.join(names)}. The same command tries them again."
        )
        self.rows = rows


def run_plan(
    plan: Plan,
    output: str | Path,
    *,
    known: Iterable[str | Path] = (),
    runs: str | Path | None = None,
    jobs: int = 1,
    minutes: float | None = None,
    device: str = "auto",
    command: str | None = None,
    say: Callable[[str], None] = print,
    begin: Begin | None = None,
) -> list[dict[str, Any]]:
    """Run the cells of a plan that have no row yet, each in a process of its own, and return all rows.

    Cells of the same work (:func:`work_of`) are run once, for the first of them; their rows are returned for each. A
    cell with a start waits for it, and is left out where that has no finished run.

    Parameters
    ----------
    plan
        The cells, in the order in which they are begun.
    output
        Folder of rows.
    known
        Folders whose rows count too: what has one there is not run.
    runs
        Folder of training runs; ``runs`` in the folder of rows if not given.
    jobs
        Cells run side by side.
    minutes
        Time for all; nothing new is begun in its last tenth.
    device
        As for :func:`train_method`.
    command
        What was called, for the rows.
    say
        Told what happens.
    begin
        Starts the process of a cell; one on this machine if not given.

    Raises
    ------
    FailedCellsError
        When all others are done.
    """
    folder = Path(output)
    with only_run(folder):
        folder.mkdir(parents=True, exist_ok=True)
        store = RowStore(folder, [Path(place) for place in known])
        places = folder / "runs" if runs is None else Path(runs)
        running = _Running(plan, store, places, device, command, say, begin or _spawned)
        running.run(jobs, minutes)
        rows = list(store.rows(plan.cells))
    if running.failed:
        raise FailedCellsError(running.failed, rows)
    return rows


class _Running:
    """The cells of a plan on their way to rows.

    Parameters
    ----------
    plan, device, command, say, begin
        As for :func:`run_plan`.
    store
        The rows that are there.
    runs
        Folder of training runs.
    """

    def __init__(
        self,
        plan: Plan,
        store: RowStore,
        runs: Path,
        device: str,
        command: str | None,
        say: Callable[[str], None],
        begin: Begin,
    ) -> None:
        self._process = begin
        self._plan, self._store, self._runs = plan, store, runs
        self._device, self._command, self._say = device, command, say
        self._named = {cell.name: cell for cell in plan.cells}
        self.failed: list[str] = []  # names of cells
        self._of_work: dict[Cell, Cell] = {}  # the cell that is run for all of the same work
        for cell in sorted(plan.cells, key=lambda cell: not row_file(store.folder, cell).exists()):
            self._of_work.setdefault(work_of(cell), cell)  # one whose row is there, unfinished, goes on

    def run(self, jobs: int, minutes: float | None) -> None:
        """Run what is missing."""
        started = time.time()
        until = None if minutes is None else started + 60 * minutes
        runners = set(self._of_work.values())
        waiting = [cell for cell in self._plan.cells if cell in runners and not self._store.done(cell)]
        equal = len(self._plan.cells) - len(runners)
        again = f" ({equal} equal to others)" if equal else ""
        self._say(f"{len(self._plan.cells)} cells{again}, {len(waiting)} to do")
        active: dict[str, tuple[Begun, Cell]] = {}
        try:
            while waiting or active:
                late = until is not None and time.time() > until - 6 * (minutes or 0)
                if late and waiting:
                    self._say(f"{len(waiting)} cells are left for another time")
                    waiting = []
                while len(active) < jobs:
                    pending = {cell.name for cell in waiting} | active.keys()
                    cell = next((cell for cell in waiting if self._runner(cell.start) not in pending), None)
                    if cell is None:
                        break
                    waiting.remove(cell)
                    process = self._begin(cell, until)
                    if process is not None:
                        active[cell.name] = process, cell
                time.sleep(0.2)
                for name, (begun, cell) in list(active.items()):
                    if not begun.is_alive():
                        del active[name]
                        self._say(f"{time.time() - started:6.0f} s  {name}: {self._ended(begun, cell)}")
        finally:
            for left, _ in active.values():
                left.terminate()

    def _runner(self, name: str) -> str:
        """Return the name of the cell that is run for the one of this name; that of another plan is its own."""
        return self._of_work[work_of(self._named[name])].name if name in self._named else name

    def _begin(self, cell: Cell, until: float | None) -> Begun | None:
        """Start the process of a cell, or say why not."""
        start = self._run_of(cell.start) if cell.start else None
        if cell.start and start is None:
            self._say(f"{cell.name}: left out, there is no finished run {self._runs / cell.start} to start from")
            return None
        arguments = (
            cell, self._plan.datasets[cell.dataset], self._store.folder, self._runs / cell.name, start, self._device,
            until, self._command, loaded_plugins(),
        )  # fmt: skip
        return self._process(_work, arguments, cell.name)

    def _run_of(self, name: str) -> Path | None:
        """Return the finished run of the cell of this name, which may have another one, or None without."""
        if name in self._named:
            found = self._store.find(self._named[name])
            if found is None or not found.finished:
                return None
            name = found.cell.name
        run = self._runs / name
        return run if (run / "model.safetensors").exists() else None

    def _ended(self, process: Begun, cell: Cell) -> str:
        """Return how a process has ended."""
        if self._store.read_again(cell):
            return "done" if self._store.done(cell) else "stopped in time, to be gone on with"
        if not process.exitcode:
            return "no time for one epoch"
        self.failed.append(cell.name)
        return f"failed with exit code {process.exitcode}"


def _spawned(work: Callable[..., None], arguments: tuple[Any, ...], name: str) -> BaseProcess:
    process = multiprocessing.get_context("spawn").Process(target=work, args=arguments, name=name)
    process.start()
    return process


def _work(
    cell: Cell,
    source: Source,
    folder: Path,
    run: Path,
    start: Path | None,
    device: str,
    until: float | None,
    command: str | None,
    plugins: tuple[Path, ...],
) -> None:
    """Run one cell in a process of its own."""
    torch.set_num_threads(1)  # cells run side by side
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    try:
        for file in plugins:
            load_plugin(file)
        found = run_cell(cell, source, run, start=start, device=device, until=until, command=command)
    except TedtrajrecError as error:
        print(f"{cell.name}: {error}", file=sys.stderr)
        sys.exit(2)
    if found is None:
        return
    row, evaluation = found
    save_trips(folder / "trips" / f"{cell.name}.npz", evaluation)
    write_row(folder, cell, row)


def _end_with_parent() -> None:
    """End this process with the one that started it, even where that was killed: else two would work on one run."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)
