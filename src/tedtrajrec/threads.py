"""Work done in parts on several threads; compiled kernels run without the interpreter's lock, so threads suffice.

Whole chunks of an input can also be worked on elsewhere: functions that go through them take an :class:`Over`.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

Part = TypeVar("Part")
T = TypeVar("T")
Label = TypeVar("Label")

THREADS = "TEDTRAJREC_THREADS"
"""Variable of the environment: processors that a process may use, where they are not all its own."""


class Over(Protocol):
    """Goes through items with a function as ``map`` does: lazily and in order, but perhaps on other machines."""

    def __call__(self, function: Callable[[Part], T], items: Iterable[Part], /) -> Iterator[T]:
        """Yield the result of every item."""


def labelled(
    over: Over, function: Callable[[Part], T], pairs: Iterable[tuple[Label, Part]]
) -> Iterator[tuple[Label, T]]:
    """Yield the label and the result of every pair of a label and an item; labels stay here."""
    labels: deque[Label] = deque()

    def items() -> Iterator[Part]:
        for label, item in pairs:
            labels.append(label)
            yield item

    for result in over(function, items()):
        yield labels.popleft(), result


def processors() -> int:
    """Return how many processors this process may use."""
    return int(os.environ.get(THREADS, "0")) or os.cpu_count() or 1


def map_parts(task: Callable[[Part], T], parts: Sequence[Part], workers: int | None) -> list[T]:
    """Return the result of ``task`` for every part, in order.

    Parameters
    ----------
    task
        Called once for each part, on any thread.
    parts
        What to work on; a single one is done without a thread.
    workers
        Number of threads; all processors if not given.
    """
    workers = _number(workers, parts)
    if workers <= 1:
        return [task(part) for part in parts]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(task, parts))


def iter_parts(task: Callable[[Part], T], parts: Sequence[Part], workers: int | None) -> Iterator[T]:
    """Yield what :func:`map_parts` returns; a few parts are under way at a time, so that memory stays small."""
    workers = _number(workers, parts)
    if workers <= 1:
        yield from map(task, parts)
        return
    with ThreadPoolExecutor(workers) as pool:
        yield from in_order(pool, task, parts, 2 * workers)


def in_order(pool: Executor, task: Callable[[Part], T], items: Iterable[Part], most: int) -> Iterator[T]:
    """Yield the result of ``task`` for every item, in order; no more than so many wait for others, done or not.

    What has not begun when nobody asks any more is not begun.
    """
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(task, item))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def _number(workers: int | None, parts: Sequence[Part]) -> int:
    return min(workers or processors(), len(parts))
