"""Settings of the search for a trip that can be driven, of which each city has its best.

Where segments are long, an expected error hardly matters and few candidates are worth a look; where they are many and
short, both do. So a few pairs are tried on validation trips when training ends (:mod:`tedtrajrec.training.choose`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Recovered


class Search(NamedTuple):
    """The settings of these names that a trip is searched with."""

    error_m: float
    margin: float


SEARCHES = (Search(150.0, 3.0), Search(50.0, 4.0), *(Search(error_m, 6.0) for error_m in (25.0, 18.0, 12.0, 8.0)))
"""Those to choose from, from long segments to short ones; the first is the default."""


@runtime_checkable
class Searching(Protocol):
    """A method whose settings ``error_m`` and ``margin`` are of a search for trips that can be driven."""

    @property
    def drivable(self) -> bool:
        """Whether it searches for such trips."""

    def searched(self, batch: Batch, searches: Sequence[Search]) -> list[Recovered]:
        """Return the trips that each of several searches finds."""
