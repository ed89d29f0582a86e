"""Methods on the trips of a prepared dataset: which steps they are given, and how well they recover the others.

A :class:`Draw` says which trips are recovered from which of their steps; several methods are evaluated on one draw, so
that their metrics are paired trip by trip. Trips are read batch by batch, never a whole split at once.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from fractions import Fraction
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.config import to_dict
from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, SplitName
from tedtrajrec.data.sampling import Rule, draw_observed, effective_share, keep_share, mean_fixes
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.calibration import summarise_confidence, sureness
from tedtrajrec.evaluation.drivable import Drives, check_drives
from tedtrajrec.evaluation.metrics import TripMetrics, evaluate_trips, gaps_without_route
from tedtrajrec.evaluation.summary import summarise
from tedtrajrec.methods.base import Method, Recovered
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.progress import progress
from tedtrajrec.trips.table import TEXT, Trips

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

_CHUNK = 4096  # trips read at a time to draw their steps


@dataclass(frozen=True, eq=False)
class Draw:
    """T trips of a split with N steps in all, and which of these are given to a method."""

    dataset: Dataset
    split: SplitName
    keep: Fraction  # nominal share of observed steps
    rule: str  # how they were drawn; "given" where the caller chose them
    seed: int
    number: Ints  # [T] of the trips in the split
    traj_id: NDArray[Any]  # [T] text
    offsets: Ints  # [T+1] steps of trip i are offsets[i]:offsets[i + 1]
    observed: Mask  # [N]
    no_route: Mask  # [N] missing steps in gaps for which the map has no route
    hash: str  # names trips, fixes, truth and observed steps: what has the same was tested alike

    def __len__(self) -> int:
        return len(self.number)

    def __repr__(self) -> str:
        return f"Draw({len(self)} {self.split} trips, keep {self.keep}, {self.rule}, seed {self.seed}, {self.hash})"

    @property
    def effective_share(self) -> float:
        """Mean over trips of the share of steps that are observed."""
        return effective_share(self.observed, self.offsets)

    @property
    def mean_fixes(self) -> float:
        """Mean number of observed steps of a trip."""
        return mean_fixes(self.observed, self.offsets)

    @cached_property
    def true_drives(self) -> Drives:
        """What keeps the true trips themselves from being driven; the map may lack roads."""
        parts = []
        router = Router(self.dataset.network)
        for first in range(0, len(self), _CHUNK):
            here = np.arange(first, min(first + _CHUNK, len(self)))
            trips = self.dataset.split(self.split).trips(self.number[here])
            parts.append(_check(router, self, self.rows(here), trips, *truth_of(trips)))
        return Drives(
            *(np.concatenate(columns) for columns in zip(*(d.columns().values() for d in parts), strict=True))
        )

    def rows(self, trips: Ints) -> Ints:
        """Return the rows of the steps of some trips, which are numbered within the draw."""
        return ranges(self.offsets[trips], np.diff(self.offsets)[trips])


@dataclass(frozen=True, eq=False)
class Steps:
    """What a method answered at the N steps of a draw."""

    segment: NDArray[np.int32]  # [N] -1 where it has no answer
    ratio: NDArray[np.float32]  # [N]
    log_prob: NDArray[np.float32]  # [N] NaN where it gives none


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How well one method recovered the trips of a draw."""

    method: str
    config: Mapping[str, Any]  # its settings
    draw: Draw
    metrics: TripMetrics  # [T] in the order of the draw
    drives: Drives  # [T]
    confidence: Mapping[str, float]  # over steps (:func:`summarise_confidence`); empty without probabilities
    recover_s: float  # spent in Method.recover, without what its first call sets up
    steps: Steps | None = None
    decoding: str = "own"  # how the answers were found (:attr:`Method.decoding`)
    note: str = ""  # what a user should know of the method (:attr:`Method.note`)

    def __repr__(self) -> str:
        return f"Evaluation({self.method}, {self.draw}, accuracy {self.summary['accuracy']:.3f})"

    @property
    def trips_per_s(self) -> float:
        """Trips recovered in a second."""
        return len(self.draw) / self.recover_s if self.recover_s > 0 else float("nan")

    @property
    def name(self) -> str:
        """Method, how it decodes if not its own way, and draw in one word, fit for a file name."""
        keep = self.draw.keep
        method = self.method if self.decoding == "own" else f"{self.method}-{self.decoding.replace(' ', '-')}"
        return f"{method}-{self.draw.split}-{keep.numerator}of{keep.denominator}-{self.draw.rule}-{self.draw.seed}"

    @cached_property
    def summary(self) -> dict[str, float]:
        """Means over trips and their standard errors (:func:`summarise`), confidence, and the size of the draw."""
        return {
            "effective_share": self.draw.effective_share,
            "mean_fixes": self.draw.mean_fixes,
            "recover_s": self.recover_s,
            "trips_per_s": self.trips_per_s,
            **summarise(self.metrics),
            **self.drives.summary(),
            **self.confidence,
        }


def evaluate_method(
    method: Method[Any],
    dataset: Dataset,
    *,
    keep: str | float | Fraction,
    seed: int = 0,
    rule: Rule = "exact",
    split: SplitName = "test",
    trips: ArrayLike | None = None,
    observed: ArrayLike | None = None,
    batch_trips: int = 256,
    keep_steps: bool = False,
    show_progress: bool = False,
) -> Evaluation:
    """Return how well a method recovers trips of a dataset: :func:`draw_steps`, then :func:`evaluate_draw`."""
    draw = draw_steps(dataset, keep=keep, seed=seed, rule=rule, split=split, trips=trips, observed=observed)
    return evaluate_draw(method, draw, batch_trips=batch_trips, keep_steps=keep_steps, show_progress=show_progress)


def draw_steps(
    dataset: Dataset,
    *,
    keep: str | float | Fraction,
    seed: int = 0,
    rule: Rule = "exact",
    split: SplitName = "test",
    trips: ArrayLike | None = None,
    observed: ArrayLike | None = None,
) -> Draw:
    """Draw the steps that methods are given.

    Parameters
    ----------
    dataset, split
        Where the trips are from.
    keep, seed, rule
        See :func:`tedtrajrec.data.sampling.thin_mask`. A trip is thinned the same whatever other trips are with it.
    trips
        Numbers of trips in the split; all if not given.
    observed
        Which steps of these trips are observed, one trip after another [N], instead of a draw; ``keep`` then only
        names the share that is meant.

    Raises
    ------
    InputError
        If an observed step has no fix, or a trip no observed step.
    """
    share = keep_share(keep)
    if rule not in get_args(Rule):
        raise ConfigError(f"The rule for thinning is '{rule}'; it must be one of {', '.join(get_args(Rule))}.")
    source = dataset.split(split)
    number = np.arange(len(source)) if trips is None else np.asarray(trips, np.int64)
    if not len(number):
        raise InputError(f"there are no trips to evaluate in '{split}'", file=dataset.path)
    offsets = np.concatenate([[0], np.cumsum(source.lengths[number])]).astype(np.int64)
    mask = np.zeros(offsets[-1], np.bool_)
    if observed is not None:
        given = np.asarray(observed)
        if given.shape != mask.shape or given.dtype != bool:
            raise InputError(
                f"it is {given.dtype} of shape {given.shape}; the trips have {len(mask)} steps", field="observed"
            )
        mask[:] = given
    no_route = np.zeros(offsets[-1], np.bool_)
    traj_id = np.empty(len(number), TEXT)
    router = Router(dataset.network)
    content = _Content()
    for first in range(0, len(number), _CHUNK):
        chosen = slice(first, first + _CHUNK)
        part = source.trips(number[chosen])
        rows = slice(offsets[first], offsets[first] + part.n_fixes)
        if observed is None:
            mask[rows] = draw_observed(part, share, seed=seed, rule=rule)
        _check_observed(part, mask[rows])
        no_route[rows] = gaps_without_route(router, part.offsets, truth_of(part)[0], mask[rows])
        traj_id[chosen] = part.traj_id
        content.add(part, mask[rows])
    return Draw(
        dataset=dataset,
        split=split,
        keep=share,
        rule=rule if observed is None else "given",
        seed=seed,
        number=number,
        traj_id=traj_id,
        offsets=offsets,
        observed=mask,
        no_route=no_route,
        hash=content.name(dataset.info.network_hash),
    )


def evaluate_draw(
    method: Method[Any],
    draw: Draw,
    *,
    batch_trips: int = 256,
    keep_steps: bool = False,
    show_progress: bool = False,
) -> Evaluation:
    """Return how well a method recovers the trips of a draw.

    Parameters
    ----------
    method
        A method that is ready: what it learns from training trips has been learned.
    draw
        The trips and their observed steps.
    batch_trips
        Trips recovered at a time. Trips of like length are recovered together, which saves padding.
    keep_steps
        Whether to keep the answer at every step.
    show_progress
        Whether to show a bar.
    """
    if batch_trips < 1:
        raise ValueError("a batch has at least one trip")
    network = draw.dataset.network
    if method.network.hash != network.hash:
        raise InputError(
            f"{method.name} was made for network {method.network.hash}, the dataset has {network.hash}",
            file=draw.dataset.path,
            remedy="Train the method on this dataset.",
        )
    router = Router(network)
    columns: dict[str, NDArray[Any]] = {}
    counts: dict[str, Ints] = {}
    steps = _no_steps(int(draw.offsets[-1]))
    truth = np.empty(int(draw.offsets[-1]), np.int32)
    method.recover(_read(draw, np.zeros(1, np.int64))[1])  # compiles kernels and builds indexes, not to be timed
    seconds = 0.0
    total = -(-len(draw) // batch_trips)
    batches = batches_of(draw, batch_trips)
    for here, trips, batch in progress(batches, method.name, total=total, unit="batch") if show_progress else batches:
        rows = draw.rows(here)
        start = time.perf_counter()
        answer = _flat(method.recover(batch), batch.step_mask.numpy())
        seconds += time.perf_counter() - start
        metrics = evaluate_trips(
            router,
            trips.offsets,
            *truth_of(trips),
            answer.segment,
            answer.ratio,
            observed=draw.observed[rows],
            no_route=draw.no_route[rows],
        )
        for name, values in metrics.columns().items():
            columns.setdefault(name, np.empty(len(draw), values.dtype))[here] = values
        for name, values in _check(router, draw, rows, trips, answer.segment, answer.ratio).columns().items():
            counts.setdefault(name, np.empty(len(draw), np.int64))[here] = values
        for item in fields(Steps):
            getattr(steps, item.name)[rows] = getattr(answer, item.name)
        truth[rows] = truth_of(trips)[0]
    return Evaluation(
        method=method.name,
        config=to_dict(method.config),
        draw=draw,
        metrics=TripMetrics(**columns),
        drives=Drives(**counts),
        confidence=summarise_confidence(sureness(steps.log_prob, steps.segment, truth, draw.observed)),
        recover_s=seconds,
        steps=steps if keep_steps else None,
        decoding=method.decoding,
        note=method.note,
    )


def _check(router: Router, draw: Draw, rows: Ints, trips: Trips, segment: ArrayLike, ratio: ArrayLike) -> Drives:
    """Count what keeps positions at the steps of some trips from being driven."""
    return check_drives(
        router,
        trips.offsets,
        segment,
        ratio,
        step_s=draw.dataset.info.step_s,
        fix_lon=trips.lon,
        fix_lat=trips.lat,
        observed=draw.observed[rows],
    )


def batches_of(draw: Draw, size: int) -> Iterator[tuple[Ints, Trips, Batch]]:
    """Yield the numbers of some trips of a draw, those of like length together, with the trips and their batch."""
    order = np.argsort(np.diff(draw.offsets), kind="stable")
    for first in range(0, len(order), size):
        here = order[first : first + size]
        yield here, *_read(draw, here)


def _read(draw: Draw, here: Ints) -> tuple[Trips, Batch]:
    info = draw.dataset.info
    trips = draw.dataset.split(draw.split).trips(draw.number[here])
    observed = draw.observed[draw.rows(here)]
    return trips, make_batch(trips, observed, draw.dataset.network, step_s=info.step_s, time_zone=info.time_zone)


def _flat(recovered: Recovered, mask: Mask) -> Steps:
    """Return the positions at the real steps, one after another."""
    for name, tensor in recovered._asdict().items():
        if tuple(tensor.shape) != mask.shape:
            raise ValueError(f"a method returned {name} of shape {tuple(tensor.shape)} for steps of {mask.shape}")
    return Steps(
        segment=recovered.segment.cpu().numpy()[mask].astype(np.int32),
        ratio=recovered.ratio.cpu().numpy()[mask].astype(np.float32),
        log_prob=recovered.log_prob.cpu().numpy()[mask].astype(np.float32),
    )


def truth_of(trips: Trips) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Return the true segments and ratios of trips of a dataset."""
    if trips.segment is None or trips.ratio is None:
        raise ValueError("trips of a dataset carry segment and ratio")
    return trips.segment, trips.ratio


def _no_steps(n: int) -> Steps:
    return Steps(np.full(n, -1, np.int32), np.zeros(n, np.float32), np.full(n, np.nan, np.float32))


def _check_observed(trips: Trips, observed: Mask) -> None:
    empty = observed & np.isnan(trips.lon)
    if empty.any():
        trip = trips.trip_of_fix[empty.argmax()]
        raise InputError(
            f"step {empty.argmax() - trips.offsets[trip]} of trip {trips.traj_id[trip]} has no fix", field="observed"
        )
    unseen = np.bincount(trips.trip_of_fix[observed], minlength=len(trips)) == 0
    if unseen.any():
        raise InputError(f"trip {trips.traj_id[unseen.argmax()]} has no observed step", field="observed")


class _Content:
    """A hash of trips and their observed steps that does not depend on the chunks they come in: one for each column."""

    def __init__(self) -> None:
        self._columns = [hashlib.sha256() for _ in range(8)]

    def add(self, trips: Trips, observed: Mask) -> None:
        ids = "".join(f"{traj_id}\0" for traj_id in trips.traj_id.tolist()).encode()
        arrays = trips.lengths, trips.time, trips.lon, trips.lat, *truth_of(trips), observed
        for digest, data in zip(self._columns, (ids, *(array.tobytes() for array in arrays)), strict=True):
            digest.update(data)

    def name(self, network_hash: str) -> str:
        whole = b"".join(digest.digest() for digest in self._columns)
        return hashlib.sha256(network_hash.encode() + whole).hexdigest()[:16]
