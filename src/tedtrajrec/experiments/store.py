"""Rows of cells as they lie in folders: a file of JSON for each, named after its cell.

A cell is done where a finished row has its work (:func:`work_of`), under whatever name: equal cells of several groups
or plans are computed once, and the row lies there once, under the name that it was computed for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from tedtrajrec.config import from_dict
from tedtrajrec.errors import ConfigError
from tedtrajrec.experiments.plan import Cell, work_of
from tedtrajrec.files import replacing
from tedtrajrec.work import read_json


class Stored(NamedTuple):
    """A row and its file."""

    path: Path
    cell: Cell
    row: dict[str, Any]

    @property
    def finished(self) -> bool:
        """Whether its training is."""
        return bool(self.row["finished"])


class RowStore:
    """The rows of one folder, and of others whose rows count too.

    Parameters
    ----------
    folder
        Where rows are written.
    known
        Folders that are only read.
    """

    def __init__(self, folder: Path, known: Iterable[Path] = ()) -> None:
        self.folder = folder
        self._rows: dict[Path, Stored] = {}
        for place in (folder, *known):
            for path in sorted(place.glob("*.json")):
                self._read(path)

    def find(self, cell: Cell) -> Stored | None:
        """Return the best row of the work of a cell: a finished one, of its own name, the latest; None without."""
        work = work_of(cell)
        found = [stored for stored in self._rows.values() if work_of(stored.cell) == work]
        return max(found, key=lambda one: (one.finished, one.cell == cell, str(one.row.get("date", ""))), default=None)

    def done(self, cell: Cell) -> bool:
        """Return whether there is a finished row of the work of a cell."""
        found = self.find(cell)
        return found is not None and found.finished

    def rows(self, cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
        """Yield the rows of cells, as rows of these where they were computed under another name."""
        for cell in cells:
            found = self.find(cell)
            if found is not None:
                yield found.row if found.cell == cell else {**found.row, "cell": asdict(cell)}

    def read_again(self, cell: Cell) -> bool:
        """Read the row that a cell has been computed for; return whether there is one."""
        path = row_file(self.folder, cell)
        self._rows.pop(path, None)
        self._read(path)
        return path in self._rows and self._rows[path].cell == cell

    def _read(self, path: Path) -> None:
        """Take a row; other files, and rows that are broken, are none."""
        row = read_json(path)
        if isinstance(row, dict) and "kind" not in row and {"cell", "finished"} <= row.keys():
            try:
                self._rows[path] = Stored(path, from_dict(Cell, row["cell"]), row)
            except (ConfigError, AttributeError):
                return


def row_file(folder: Path, cell: Cell) -> Path:
    """Return the file of the row of a cell."""
    return folder / f"{cell.name}.json"


def write_row(folder: Path, cell: Cell, row: dict[str, Any]) -> None:
    """Write the row of a cell; the file is whole or absent."""
    with replacing(row_file(folder, cell)) as path:
        path.write_text(json.dumps(row) + "\n", "utf-8")
