"""How the benchmarks measure time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

RUNS = 5


def median_s(work: Callable[[], object]) -> float:
    """Return the median wall time of five runs of the work in seconds, after one run to warm up."""
    work()
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
