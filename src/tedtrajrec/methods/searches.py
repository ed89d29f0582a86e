"""Settings of the search for a trip that can be driven, of which each city has its best.

Where segments are long, an expected error hardly matters and few candidates are worth a look; where they are many and
short, both do. Where past trips are few, a network learns less from them than they say by themselves, so their votes
may count beside its probabilities. A few settings are tried on validation trips when training ends
(:mod:`tedtrajrec.training.choose`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Recovered
from tedtrajrec.methods.lookup import Lookup


class Search(NamedTuple):
    """The settings of these names that a trip is searched with."""

    error_m: float
    margin: float
    voted: float = 0.0  # share of what the votes of ``lookup`` say of a step in what counts as its probability


VOTED = 0.3
BY_MAP = 0.6  # share of the map's own drive, instead, where the weights are of another city and no past trips are known
TRUSTED = 0.2  # its share in the probabilities that are told there: with as much, all on it would look too sure
SEARCHES = tuple(
    Search(error_m, margin, voted)
    for voted in (0.0, VOTED)
    for error_m, margin in ((150.0, 3.0), (50.0, 4.0), (25.0, 6.0), (18.0, 6.0), (12.0, 6.0), (8.0, 6.0))
)
"""Those to choose from, from long segments to short ones, and once more with votes; the first is the default."""


@runtime_checkable
class Searching(Protocol):
    """A method with the settings of a search for trips that can be driven."""

    @property
    def drivable(self) -> bool:
        """Whether it searches for such trips."""

    def ask(self, lookup: Lookup | None) -> None:
        """Have past trips vote from now on, or no longer."""

    def searched(self, batch: Batch, searches: Sequence[Search]) -> list[Recovered]:
        """Return the trips that each of several searches finds."""
