"""Memory that the C library keeps is given back."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.training.memory import give_back


def held_mib() -> int:
    """Return the memory of this process."""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) >> 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_freed_arrays_are_given_back() -> None:
    if not hasattr(ctypes.CDLL(None), "malloc_trim"):
        pytest.skip("this C library gives memory back by itself, or not at all")
    small = [np.ones(8_000) for _ in range(3_000)]  # 64 KB each, below what is mapped by itself
    last = np.ones(8_000)  # keeps the end of the heap
    full = held_mib()
    small.clear()
    give_back()
    assert held_mib() < full - 100
    assert last.all()


def test_without_such_a_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> object:
        raise OSError("no library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    give_back()
