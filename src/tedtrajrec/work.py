"""Long work in parts that survives a kill: a folder of finished parts beside the output, and one run at a time.

Each part is one chunk of the input, written beside its place and renamed into it, so that work which is interrupted at
any moment goes on from the parts that are there. What the parts were made from is written down as a recipe; parts of
another input or of other settings are thrown away.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tedtrajrec.errors import OutputError
from tedtrajrec.files import is_file_of, replacing, try_lock

PATIENCE_S = 2.0  # for the lock of a killed process, which lasts until the system has taken its memory apart

_ALWAYS_OURS = r"(recipe|all_read)\.json|\.[0-9a-f]{8}-.*"


class WorkFolder:
    """A folder of finished parts.

    Parameters
    ----------
    folder
        Its place; made where it is missing.
    recipe
        Plain values that say what the parts are made from and how.
    ours
        Pattern of the names of what is kept in it; a folder with anything else is never removed.
    """

    def __init__(self, folder: Path, recipe: Mapping[str, Any], *, ours: str) -> None:
        self.folder = folder
        self._ours = ours
        recipe = json.loads(json.dumps(recipe))
        found = folder.exists()
        self.is_new = not found or read_json(folder / "recipe.json") != recipe
        self.was_other = found and self.is_new
        if self.was_other:
            self.remove()
        if self.is_new:
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise OutputError(f"{folder} cannot be written: {error.strerror or error}.") from error
            write_json(folder / "recipe.json", recipe)

    def remove(self) -> None:
        """Remove the folder."""
        remove_work(self.folder, ours=self._ours)

    @property
    def all_read(self) -> Mapping[str, Any] | None:
        """What was noted when the whole input had been read, or None."""
        note: Mapping[str, Any] | None = read_json(self.folder / "all_read.json")
        return note

    def note_all_read(self, note: Mapping[str, Any]) -> None:
        """Note that the whole input has been read; no further part will come."""
        write_json(self.folder / "all_read.json", note)


def remove_work(folder: Path, *, ours: str) -> None:
    """Remove a folder of parts, if it is one and holds nothing else."""
    if not folder.is_dir():
        return
    pattern = re.compile(f"{_ALWAYS_OURS}|{ours}")
    if not all(pattern.fullmatch(entry.name) for entry in folder.iterdir()):
        raise OutputError(f"{folder} holds files that are not ours; parts of the work are kept there, so move them.")
    # The recipe goes first: what is left without it is never gone on from.
    (folder / "recipe.json").unlink(missing_ok=True)
    shutil.rmtree(folder)


@contextlib.contextmanager
def only_run(*outputs: str | Path | None) -> Iterator[None]:
    """Keep other runs away from outputs while the block lasts, by a lock on a file beside each; None is skipped.

    The system takes the lock back when a process ends, however it ends, so no lock is ever left behind. Whoever starts
    right after a kill waits a moment for that.

    Raises
    ------
    OutputError
        If another run is working on one of them.
    """
    with contextlib.ExitStack() as stack:
        for output in outputs:
            if output is not None:
                stack.enter_context(_only_run_on(Path(output)))
        yield


@contextlib.contextmanager
def _only_run_on(output: Path) -> Iterator[None]:
    place = output.resolve()  # links and 'runs/x/.' name it too
    path = place.parent / f".{place.name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror or error}.") from error
    if descriptor is None:
        raise OutputError(f"{output} is being made by another run{_by(path)}; wait for it, or give another name.")
    try:
        with contextlib.suppress(OSError):  # a full disk has no room for the number, but the lock holds
            os.ftruncate(descriptor, 0)
            os.write(descriptor, str(os.getpid()).encode())
        yield
    finally:
        with contextlib.suppress(OSError):  # an open file stays on Windows; it does no harm
            path.unlink()
        os.close(descriptor)


def _locked(path: Path) -> int | None:
    """Return the open and locked file, or None where another process has it and keeps it."""
    until = time.monotonic() + PATIENCE_S
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        locked = try_lock(descriptor)
        # Whoever had it before removed it when done, perhaps between our two calls; then the name is another file's.
        if locked and is_file_of(descriptor, path):
            return descriptor
        os.close(descriptor)
        if not locked:
            if time.monotonic() > until:
                return None
            time.sleep(0.01)


def _by(path: Path) -> str:
    with contextlib.suppress(OSError):
        number = path.read_text("ascii", "replace").strip()
        if number.isdigit():
            return f" (process {number})"
    return ""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write plain values to a file that is whole or absent."""
    with replacing(path) as beside:
        beside.write_text(json.dumps(value, ensure_ascii=False), "utf-8")


def read_json(path: Path) -> Any:  # noqa: ANN401  (JSON)
    """Return plain values from a file, None where there is no such file or it is broken."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return None
