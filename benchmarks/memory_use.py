"""What a process holds in memory, and the most it holds while it works (Linux with the GNU C library)."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from pathlib import Path

WATCH_S = 2e-4
FIELDS = "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"


class _MallInfo(ctypes.Structure):
    """What the C library says of its memory, see mallinfo2(3)."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in FIELDS)


LIBC = ctypes.CDLL(None)
LIBC.mallinfo2.restype = _MallInfo


def allocated() -> int:
    """Return the bytes that are allocated."""
    found = LIBC.mallinfo2()
    return int(found.uordblks + found.hblkhd)


def most_allocated(work: Callable[[], object]) -> int:
    """Return the most bytes that are allocated while something is done."""
    most, done = allocated(), threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(WATCH_S):
            most = max(most, allocated())

    watcher = threading.Thread(target=watch)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return most


def memory(peak: bool = False) -> int:
    """Return the bytes that the process holds, or the most it held since :func:`forget_peak`."""
    name = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def forget_peak() -> None:
    """Give back what is not used, and count the peak of memory from here on."""
    gc.collect()
    LIBC.malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", "ascii")
