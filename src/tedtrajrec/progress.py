"""One progress bar for all long work, silent where nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

from tqdm import tqdm

T = TypeVar("T")


def progress(items: Iterable[T], what: str, *, total: int | None = None, unit: str = "it") -> Iterator[T]:
    """Iterate over ``items`` behind a bar on standard error; no bar where that is not a terminal."""
    yield from tqdm(items, desc=what, total=total, unit=unit, disable=not sys.stderr.isatty(), leave=False)
