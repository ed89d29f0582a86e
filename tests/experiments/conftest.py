"""What takes long, replaced where it does not matter: processes of cells, and pictures of reports."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from matplotlib.figure import Figure

from tedtrajrec.experiments.reporting import figures
from tedtrajrec.experiments.reporting.page import Picture


class Thread(threading.Thread):
    """In place of a process, which would take seconds to load the libraries."""

    exitcode = 0


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have plans run their cells in threads."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Process=Thread))


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have reports with empty pictures."""

    def save(_: Figure, folder: Path, name: str, caption: str, alt: str) -> Picture:
        place = Path("figures") / f"{name}.png"
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).touch()
        return Picture(caption, alt, place, None)

    monkeypatch.setattr(figures, "_save", save)
