"""Rows of experiments as they lie in folders, and the cells of plans that have none."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tedtrajrec.config import from_dict
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.experiments.plan import Cell, Plan, work_of
from tedtrajrec.experiments.reporting.evaluations import is_evaluation, row_of_evaluation

_NOT_ROWS = {"runs", "trips"}  # folders beside the rows that hold other files


@dataclass(frozen=True, eq=False)
class Row:
    """One file of results."""

    number: int  # by which the report refers to it
    path: Path
    file: str  # its path from the folder of results on, with that one's name
    content: dict[str, Any]
    cell: Cell | None = None  # None: a row of another kind

    @property
    def finished(self) -> bool:
        """Whether its training was; rows of other kinds always are."""
        return bool(self.content.get("finished", True))

    @property
    def seed(self) -> int | None:
        """The seed of its cell, or of the cell that a row of another kind was made from."""
        seed: int | None = (self.content.get("cell") or {}).get("seed")
        return seed

    @cached_property
    def config_hash(self) -> str:
        """A name for all settings: that of the row if it has one, else made of its cell and its method."""
        given = self.content.get("config_hash")
        if given:
            return str(given)
        text = json.dumps([self.content.get("cell"), self.content.get("method")], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def machine(self) -> str:
        """The machine on which it was computed."""
        machine = self.content.get("machine")
        if not machine:
            return "machine not noted"
        cores = f"{machine.get('cores', '?')} cores"
        return f"{machine['gpu']}, {cores}" if machine.get("gpu") else cores

    @property
    def epochs(self) -> str:
        """How much of its training was done, as '34 of 60 epochs'; empty for methods that are not trained."""
        done = self.content.get("training", {}).get("epochs")
        if done is None or self.cell is None:
            return ""
        planned = setting(self.cell, "train.epochs")
        return f"{done} of {planned} epochs" if planned else f"{done} epochs"

    def metric(self, name: str, draw: str = "test") -> float | None:
        """Return one metric, or None where the row does not have it; routes are those of the test draw."""
        routes = self.content.get("routes", {}) if draw == "test" else {}
        value = {**routes, **self.content.get("metrics", {}).get(draw, {})}.get(name)
        return None if value is None or math.isnan(value) else float(value)

    def __str__(self) -> str:
        date = str(self.content.get("date", "no date"))[:10]
        seed = "" if self.seed is None else f", seed {self.seed}"
        unfinished = "" if self.finished else f", unfinished ({self.epochs})"
        return f"{self.path.name}, {date}, {self.machine}, settings {self.config_hash}{seed}{unfinished}"


@dataclass(frozen=True)
class Results:
    """All rows of some folders."""

    cells: tuple[Row, ...]  # of cells, one for each
    others: tuple[Row, ...]  # of other kinds
    replaced: tuple[str, ...]  # rows of cells that have a better one
    ignored: tuple[str, ...]  # files that are no rows

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows in the order of their numbers."""
        return tuple(sorted((*self.cells, *self.others), key=lambda row: row.number))


@dataclass(frozen=True)
class Slot:
    """A place in the report: a cell and its row, if there is one."""

    cell: Cell
    row: Row | None


def read_results(results: Path | Sequence[Path]) -> Results:
    """Read all rows below some folders.

    Of rows of one cell, from several folders, a finished one goes before an unfinished one and a later one before an
    earlier one.

    Parameters
    ----------
    results
        Folders; folders of rows may lie within them.
    """
    folders = [results] if isinstance(results, Path) else list(results)
    found: dict[object, list[Row]] = {}
    ignored = []
    for path, file in {path.resolve(): (path, file) for folder in folders for path, file in _files(folder)}.values():
        content = _read(path)
        if content is None:
            ignored.append(file)
            continue
        cell = _cell(path, content) if "kind" not in content and "experiment" not in content else None
        found.setdefault(path if cell is None else cell, []).append(Row(0, path, file, content, cell))
    cells, others, replaced = list[Row](), list[Row](), list[str]()
    for number, candidates in enumerate(found.values(), 1):
        *worse, chosen = sorted(candidates, key=lambda row: (row.finished, str(row.content.get("date", ""))))
        replaced += [row.file for row in worse]
        (others if chosen.cell is None else cells).append(replace(chosen, number=number))
    if not found:
        raise InputError(
            "there are no rows of experiments",
            file=folders[0] if folders else None,
            remedy="Give the folder that 'tedtrajrec benchmark' wrote.",
        )
    return Results(tuple(cells), tuple(others), tuple(replaced), tuple(ignored))


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    if not folder.is_dir():
        raise InputError("there is no such folder (rows of experiments)", file=folder, remedy="Check the path.")
    for path in sorted(folder.rglob("*.json")):
        inside = path.relative_to(folder)
        if not _NOT_ROWS & set(inside.parts[:-1]):
            yield path, (folder.resolve().name / inside).as_posix()


def _read(path: Path) -> dict[str, Any] | None:
    """Return a row, or None for a file of something else."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(
            f"this row cannot be read ({error})", file=path, remedy="Delete it and run its cell again."
        ) from error
    if isinstance(content, dict) and is_evaluation(content):
        try:
            return row_of_evaluation(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"this evaluation is not whole ({error!r})", file=path, remedy="Evaluate the method again."
            ) from error
    is_row = isinstance(content, dict) and (
        {"cell", "metrics"} <= content.keys() or "kind" in content or content.get("experiment") == "hmm-interval"
    )
    return content if is_row else None


def _cell(path: Path, content: dict[str, Any]) -> Cell:
    try:
        return from_dict(Cell, content["cell"])
    except (ConfigError, AttributeError) as error:
        raise InputError(
            f"its cell is not one of a plan ({error})", file=path, field="cell", remedy="Delete it and run it again."
        ) from error


def slots(results: Results, plans: Iterable[Plan] = ()) -> list[Slot]:
    """Return a slot for each cell of the plans, in their order, and then for each row of no plan.

    A cell of a plan takes the row of an equal cell, one with the same settings under another name, where it has none or
    only an unfinished one.
    """
    by_work: dict[Cell, list[Row]] = {}
    for row in results.cells:
        if row.cell is not None:
            by_work.setdefault(work_of(row.cell), []).append(row)
    placed = {
        cell: max(by_work.get(work_of(cell), ()), key=lambda row: (row.finished, row.cell == cell), default=None)
        for cell in (cell for plan in plans for cell in plan.cells)
    }
    rest = {row.cell: row for row in results.cells if row.cell is not None and row.cell not in placed}
    return [Slot(cell, row) for cell, row in (placed | rest).items()]


def settings_of(cell: Cell) -> frozenset[str]:
    """Return the settings of a cell without those that follow from its seed and keep ratio."""
    return frozenset(text for text in cell.settings if not text.startswith(("train.seed=", "train.keep=")))


def setting(cell: Cell, key: str) -> str | None:
    """Return the text of a setting of a cell; the last one counts."""
    found = [text.partition("=")[2] for text in cell.settings if text.startswith(f"{key}=")]
    return found[-1] if found else None
