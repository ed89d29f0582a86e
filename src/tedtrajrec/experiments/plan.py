"""Experiments as cells: one method with its settings on one dataset at one keep ratio with one seed gives one row.

A plan is a TOML file,

    [datasets.chengdu]
    path = "chengdu"                  # a prepared dataset; the command line may say where it lies
    draws = "draws.json"              # observed steps of test trips, for a second evaluation; see given_draw

    [[cells]]
    group = "attention"
    methods = ["tedtrajrec"]
    datasets = ["chengdu"]
    keeps = ["1/8"]
    seeds = [0, 1, 2]
    set = ["train.epochs=100"]
    variants.ted = []
    variants.full = ["model.attention=full"]

and every combination within an entry is a cell. Rows are files of JSON named after their cells, so those of several
machines are merged by copying them into one folder. What has a row with the same settings, under whatever name, is not
run again.

With ``start = "name of a cell"`` training begins with the weights of that one's run; with ``train = false`` too, they
are evaluated as they are, but for settings that can be changed after training. ``{seed}`` and ``{keep}`` in the name
stand for those of the cell. A method that needs the map alone has no start: with ``train = false`` it sees no trips.

Settings that a plan does not name are the defaults, whatever validation trips say, so that rows of a plan are of the
same settings anywhere; with ``choose = true`` the search for drivable trips is chosen on them, as ``train`` does.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tedtrajrec.config import from_dict
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import existing_file
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.registry import method_class, method_entry

MODEL = "model."  # how settings of the method begin


@dataclass(frozen=True)
class Source:
    """Where a dataset of a plan lies."""

    path: str
    draws: str | None = None


@dataclass(frozen=True)
class Entry:
    """Cells of a plan that are given together."""

    group: str
    methods: tuple[str, ...]
    datasets: tuple[str, ...]
    keeps: tuple[str, ...] = ("1/8",)
    seeds: tuple[int, ...] = (0,)
    set: tuple[str, ...] = ()
    variants: dict[str, tuple[str, ...]] | None = None
    start: str = ""
    train: bool = True
    choose: bool = False

    def __post_init__(self) -> None:
        if not (self.train or self.start or all(method_entry(name).needs.of_map_alone for name in self.methods)):
            raise ValueError("without training there must be a start, but for methods that need the map alone")
        if self.choose and not self.train:
            raise ValueError("without training nothing is chosen")


@dataclass(frozen=True)
class Cell:
    """One row of an experiment."""

    group: str
    method: str
    variant: str
    dataset: str
    keep: str
    seed: int
    settings: tuple[str, ...]  # of model and training for learned methods
    start: str = ""  # the cell whose weights training begins with
    train: bool = True  # False: these are evaluated as they are, and a method without a start knows the map alone
    choose: bool = False  # as for train_method

    @property
    def name(self) -> str:
        """A name fit for a file."""
        words = self.group, self.dataset, self.method, self.variant, _of(self.keep), str(self.seed)
        return "-".join(re.sub(r"[^A-Za-z0-9_.]+", "_", word) for word in words if word)


def work_of(cell: Cell) -> Cell:
    """Return a cell without its names: equal ones are the same work.

    Of a setting that is given twice the last one counts, and only its order among others does not matter.
    """
    settings = {text.partition("=")[0]: text for text in cell.settings}
    return replace(cell, group="", variant="", settings=tuple(sorted(settings.values())))


@dataclass(frozen=True)
class Plan:
    """The cells of an experiment."""

    datasets: dict[str, Source]
    cells: tuple[Cell, ...]


def read_plan(file: str | Path, paths: Mapping[str, str] | None = None) -> Plan:
    """Read a plan.

    Parameters
    ----------
    file
        See the module.
    paths
        Where datasets lie, in place of what the file says.
    """
    path = existing_file(file, "a plan of experiments")
    try:
        values = tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"this is not valid TOML ({error})", file=path) from error
    unknown = values.keys() - {"datasets", "cells"}
    if unknown:
        raise InputError(f"it has '{min(unknown)}'; a plan has datasets and cells", file=path)
    datasets = {
        name: from_dict(Source, table, f"datasets.{name}.") for name, table in values.get("datasets", {}).items()
    }
    for name, place in (paths or {}).items():
        if name not in datasets:
            raise ConfigError(f"The plan has no dataset '{name}'. Known: {', '.join(datasets)}.")
        datasets[name] = Source(place, datasets[name].draws)
    cells: dict[str, Cell] = {}
    for entry in (_entry(table) for table in values.get("cells", [])):
        for cell in _cells(entry):
            if cell.dataset not in datasets:
                raise InputError(f"there is no dataset '{cell.dataset}'", file=path, field=f"cells {entry.group}")
            if cells.setdefault(cell.name, cell) != cell:
                raise InputError(f"two cells of other settings are named {cell.name}", file=path)
    order = {name: k for k, name in enumerate(cells)}
    for cell in cells.values():
        if order.get(cell.start, -1) >= order[cell.name]:
            raise InputError(f"{cell.name} comes before its start {cell.start}", file=path)
    return Plan(datasets, tuple(cells.values()))


def _entry(table: dict[str, Any]) -> Entry:
    variants = table.pop("variants", None)
    entry = from_dict(Entry, table, "cells.")
    return (
        entry
        if variants is None
        else Entry(**{**asdict(entry), "variants": {k: tuple(v) for k, v in variants.items()}})
    )


def _cells(entry: Entry) -> list[Cell]:
    variants = entry.variants or {"": ()}
    cells = []
    for seed, dataset, method, (variant, more), keep in itertools.product(
        entry.seeds, entry.datasets, entry.methods, variants.items(), entry.keeps
    ):
        settings = [*entry.set, *more]
        learned = issubclass(method_class(method), LearnedMethod)
        if entry.start and not learned:
            raise ConfigError(f"Cells {entry.group}: {method} is not trained, so it has no start.")
        if entry.start and not entry.train and not all(text.startswith(MODEL) for text in settings):
            raise ConfigError(f"Cells {entry.group}: without training the settings are those of the start, but model.*")
        if learned and entry.train:
            settings += [f"train.seed={seed}"]
            if not any(text.startswith("train.keep=") for text in settings):
                settings += [f'train.keep=["{keep}"]']
        start = entry.start.replace("{seed}", str(seed)).replace("{keep}", _of(keep))
        cells.append(
            Cell(
                entry.group, method, variant, dataset, keep, seed, tuple(settings), start, entry.train,
                learned and entry.choose,
            )
        )  # fmt: skip
    return cells


def _of(keep: str) -> str:
    return keep.replace("/", "of")
