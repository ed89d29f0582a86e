"""The settings of the search for drivable trips that suit the city best: after training, validation trips tell.

A search that weighs likelihood more than metres stays on the likeliest roads: more steps are on the true segment, but
the routes have holes, and the other way round. No one figure says how much of the one may be given for the other, so
what past trips alone achieve does: the search is taken that is ahead of ``lookup`` by most where it is ahead by least.

It happens before probabilities are calibrated, since these are of the trips that the search finds.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.files import read_json, replacing
from tedtrajrec.methods.base import Method, Recovered
from tedtrajrec.methods.learned import LearnedMethod
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.searches import SEARCHES, Search, Searching
from tedtrajrec.trips.sequences import collapse, common_subsequence

CHOICE = "search.json"
MOST_TRIPS = 1000  # looked at, all shares of training together: a difference of .01 in F1 is then told from noise
MOST_VOTERS = (
    20_000  # training trips up to which votes are tried: they are saved with a model, 1 kB each, and cost time
)
MOST_DRAWS = 4  # of the same trips, where they are few; more of them tell little that is new

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """How good recovered trips are, as means over trips."""

    accuracy: float
    recall: float  # of the routes, as are those below
    precision: float
    f1: float

    def ahead(self, other: Scores) -> float:
        """Return the least lead over another in accuracy, recall and precision, as a share of what that has."""
        pairs = ((self.accuracy, other.accuracy), (self.recall, other.recall), (self.precision, other.precision))
        return min(mine / theirs - 1 if theirs else np.inf for mine, theirs in pairs)


@dataclass(frozen=True)
class Tried:
    """One search and its trips."""

    error_m: float
    margin: float
    scores: Scores
    voted: float = 0.0

    def __str__(self) -> str:
        votes = f", votes {self.voted:g}" if self.voted else ""
        return f"error_m {self.error_m:g}, margin {self.margin:g}{votes}"


@dataclass(frozen=True)
class Choice:
    """What was tried on how many trips, and what was chosen; the file of a run that says so is ``search.json``."""

    error_m: float
    margin: float
    trips: int
    tried: tuple[Tried, ...]
    lookup: Scores
    voted: float = 0.0

    @property
    def settings(self) -> dict[str, float]:
        """Those of the method."""
        return {"error_m": self.error_m, "margin": self.margin, "voted": self.voted}

    def __str__(self) -> str:
        chosen = Search(self.error_m, self.margin, self.voted)
        found = next(one for one in self.tried if (one.error_m, one.margin, one.voted) == chosen)
        default, *others = self.tried
        return (
            f"search chosen on {self.trips:,} draws of validation trips: {found}; least lead over lookup in accuracy, "
            f"recall and precision {found.scores.ahead(self.lookup):+.1%} (default, {default}: "
            f"{default.scores.ahead(self.lookup):+.1%}; {len(others)} others are in {CHOICE})"
        )


def choose_run(method: LearnedMethod[Any, Any], run: str | Path, batches: Iterable[Batch], dataset: Dataset) -> None:
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
    dataset
        Whose training trips ``lookup`` learns from, likewise; where its votes are chosen to count, it is saved too.
    """
    file = Path(run) / CHOICE
    if not (isinstance(method, Searching) and method.drivable) or file.exists():
        return
    best = type(method).load(run, method.network).to(method.device)
    lookup = Lookup(method.network)
    lookup.precompute(dataset)
    voters = lookup if len(dataset.split("train")) <= MOST_VOTERS else None
    best.ask(voters)
    choice = choose_search(best, batches, lookup, [one for one in SEARCHES if voters is not None or not one.voted])
    if choice is None:
        return
    best.ask(lookup if choice.voted else None)
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
        raise InputError(
            f"this is not the choice of a search ({error}); remove it and give the command of the run again, which "
            "chooses anew",
            file=file,
        ) from error


def choose_search(
    method: Searching, batches: Iterable[Batch], lookup: Method[Any], searches: Sequence[Search] = SEARCHES
) -> Choice | None:
    """Return the search that is furthest ahead of ``lookup``; among equal ones that of the best F1, then the first.

    Without a step of known truth there is none.
    """
    found, past = [], []
    for batch in batches:
        found.append([route_scores(batch, answer) for answer in method.searched(batch, searches)])
        past.append(route_scores(batch, lookup.recover(batch)))
    trips = sum(map(len, past))
    if not trips:
        return None
    reference = _means(past)
    tried = tuple(
        Tried(search.error_m, search.margin, _means(of_search), search.voted)
        for of_search, search in zip(zip(*found, strict=True), searches, strict=True)
    )
    best = max(tried, key=lambda one: (one.scores.ahead(reference), one.scores.f1))
    return Choice(best.error_m, best.margin, trips, tried, reference, best.voted)


def _means(scores: Iterable[Floats]) -> Scores:
    return Scores(*np.concatenate([*scores]).mean(axis=0).tolist())


def route_scores(batch: Batch, found: Recovered) -> Floats:
    """Return accuracy, recall, precision and F1 of each trip with a step of known truth, as ``evaluate_trips`` does."""
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
    common = common_subsequence(*true_route, *route)[some]
    true_length, length = np.diff(true_route[0])[some], np.diff(route[0])[some]
    shares = common / true_length, common / np.maximum(length, 1), 2 * common / (true_length + length)
    return np.stack([right, *shares], axis=1)
