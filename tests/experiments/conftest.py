"""Cells in threads, where it does not matter that they are in processes."""

from __future__ import annotations

import multiprocessing
import threading
from types import SimpleNamespace

import pytest


class Thread(threading.Thread):
    """In place of a process, which would take seconds to load the libraries."""

    exitcode = 0


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have plans run their cells in threads."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: SimpleNamespace(Process=Thread))
