"""The settings of the search for drivable trips that suit the city best: after training, validation trips tell.

It happens before probabilities are calibrated, since these are of the trips that the search finds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.data.batch import Batch
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import read_json, replacing
from tedtrajrec.methods.base import Recovered
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.searches import SEARCHES, Searching
from tedtrajrec.trips.sequences import collapse, common_subsequence

CHOICE = "search.json"
MOST_TRIPS = 500  # looked at, all shares of training together: a difference of .01 in F1 is then told from noise

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Tried:
    """How good the trips of one search are, as means over trips."""

    error_m: float
    margin: float
    f1: float  # of the routes
    accuracy: float


@dataclass(frozen=True)
class Choice:
    """What was tried on how many trips, and what was chosen; the file of a run that says so is ``search.json``."""

    error_m: float
    margin: float
    trips: int
    tried: tuple[Tried, ...]

    @property
    def settings(self) -> dict[str, float]:
        """Those of the method."""
        return {"error_m": self.error_m, "margin": self.margin}

    def __str__(self) -> str:
        pairs = ", ".join(f"{one.error_m:g} and {one.margin:g} {one.f1:.4f}" for one in self.tried)
        return (
            f"search chosen on {self.trips:,} validation trips: error_m {self.error_m:g} and margin {self.margin:g} "
            f"(F1 of {pairs})"
        )


def choose_run(method: LearnedMethod[Any, Any], run: str | Path, batches: Iterable[Batch]) -> None:
    """Choose the search of the weights that a run has saved and save it with them, if that is not done.

    Probabilities that were calibrated for another search are forgotten.

    Parameters
    ----------
    method
        One of the kind, on the device to be used; it is left as it is.
    run
        The run directory.
    batches
        Validation trips, which are looked at only if they are needed.
    """
    file = Path(run) / CHOICE
    if not (isinstance(method, Searching) and method.drivable) or file.exists():
        return
    best = type(method).load(run, method.network).to(method.device)
    choice = choose_search(best, batches)
    if choice is None:
        return
    settings = dataclasses.replace(best.config, **choice.settings)
    if settings != best.config:
        best.config, best.calibration = settings, None
        best.save(run)
    # Last: a run that is killed before has nothing chosen, and the same command chooses the same again.
    with replacing(file) as path:
        path.write_text(json.dumps(to_dict(choice), indent=2) + "\n", "utf-8")


def read_choice(run: str | Path) -> Choice | None:
    """Return what was chosen for a run; None where nothing was."""
    file = Path(run) / CHOICE
    if not file.is_file():
        return None
    try:
        return from_dict(Choice, read_json(file, "the search of a run"))
    except ConfigError as error:
        raise InputError(f"this is not the choice of a search ({error})", file=file) from error


def choose_search(method: Searching, batches: Iterable[Batch]) -> Choice | None:
    """Return the search with the best F1 of routes, among equal ones that of the best accuracy, then the first.

    Without a step of known truth there is none.
    """
    found = [[route_scores(batch, answer) for answer in method.searched(batch, SEARCHES)] for batch in batches]
    trips = sum(len(of_batch[0][0]) for of_batch in found)
    if not trips:
        return None
    tried = []
    for of_search, search in zip(zip(*found, strict=True), SEARCHES, strict=True):
        f1, accuracy = (float(np.concatenate(column).mean()) for column in zip(*of_search, strict=True))
        tried.append(Tried(*search, f1, accuracy))
    best = max(tried, key=lambda one: (one.f1, one.accuracy))
    return Choice(best.error_m, best.margin, trips, tuple(tried))


def route_scores(batch: Batch, found: Recovered) -> tuple[Floats, Floats]:
    """Return F1 of routes and accuracy of each trip that has a step of known truth, as ``evaluate_trips`` does."""
    mask = batch.step_mask.cpu().numpy()
    truth, answer = (part.cpu().numpy()[mask].astype(np.int32) for part in (batch.segment, found.segment))
    offsets = np.append(0, np.cumsum(mask.sum(axis=1))).astype(np.int64)
    known = truth >= 0
    true_route = collapse(offsets, truth, known)
    route = collapse(offsets, answer, known & (answer >= 0))
    trip = np.repeat(np.arange(len(mask)), mask.sum(axis=1))[known]
    steps = np.bincount(trip, minlength=len(mask))
    some = steps > 0
    right = np.bincount(trip, (truth == answer)[known], len(mask))[some] / steps[some]
    lengths = np.diff(true_route[0]) + np.diff(route[0])
    return 2 * common_subsequence(*true_route, *route)[some] / lengths[some], right
