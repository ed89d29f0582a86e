"""How many candidates a step needs in a city: before training, validation trips tell.

The steps between two fixes share one list. Where segments are short and fixes far apart, the ways between them are many
segments, and a list that is too short does not hold the true ones; where it is longer than need be, training is slower.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from torch import Tensor

from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.data.batch import Batch
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import read_json, replacing
from tedtrajrec.training.loop import is_begun

FILE = "lists.json"
SIZES = (48, 64, 96, 144, 192, 256)
ENOUGH = 0.01  # of the steps may have their truth in longer lists alone
MOST_TRIPS = 200  # looked at, all shares of training together


@runtime_checkable
class Listing(Protocol):
    """A method that chooses among lists of candidates."""

    def listed(self, batch: Batch, most: int) -> Tensor:
        """Return whether the true segment of each step is among its candidates, in lists of so many [B, n]."""

    def use_lists(self, most: int) -> None:
        """Have so many candidates of a step at most."""


@dataclass(frozen=True)
class Lists:
    """How long lists are to be; the file of a run that says so is ``lists.json``."""

    most: int
    steps: int  # between fixes, of known truth
    tried: dict[str, float]  # share of these whose truth is in no list, by the length of lists

    def __str__(self) -> str:
        missed = ", ".join(f"{size} {share:.1%}" for size, share in self.tried.items())
        return (
            f"lists of {self.most} candidates: steps between fixes whose truth they miss, of {self.steps:,}: {missed}"
        )


def choose_lists(method: Listing, run: str | Path, batches: Iterable[Batch], *, write: bool) -> None:
    """Give a method lists of the length that suits the validation trips; a run that goes on keeps what it has.

    Parameters
    ----------
    method
        Ready for use but for its weights.
    run
        The run directory.
    batches
        Validation trips, which are looked at only if they are needed.
    write
        Whether this process writes the file.
    """
    folder = Path(run)
    lists = read_lists(folder)
    if lists is None and not is_begun(folder):
        lists = suited_lists(method, batches)
        if lists is not None and write:
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(folder / FILE) as path:
                path.write_text(json.dumps(to_dict(lists), indent=2) + "\n", "utf-8")
    if lists is not None:
        method.use_lists(lists.most)


def read_lists(run: str | Path) -> Lists | None:
    """Return what was chosen for a run; None where nothing was."""
    file = Path(run) / FILE
    if not file.is_file():
        return None
    try:
        return from_dict(Lists, read_json(file, "the lists of a run"))
    except ConfigError as error:
        raise InputError(f"this is not the choice of lists ({error})", file=file) from error


def suited_lists(method: Listing, batches: Iterable[Batch]) -> Lists | None:
    """Return the shortest lists that miss hardly more than the longest; None without a step to go by."""
    steps, missed = 0, dict.fromkeys(SIZES, 0)
    for batch in batches:
        known = ((batch.segment >= 0) & batch.step_mask & ~batch.observed).cpu()
        steps += int(known.sum())
        for size in SIZES:
            missed[size] += int((known & ~method.listed(batch, size)).sum())
    if not steps:
        return None
    most = next(size for size in SIZES if missed[size] <= missed[SIZES[-1]] + ENOUGH * steps)
    return Lists(most, steps, {str(size): missed[size] / steps for size in SIZES})
