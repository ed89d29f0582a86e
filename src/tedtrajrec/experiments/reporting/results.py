"""Rows of one method over its seeds, and their trips."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.experiments.reporting.evaluations import FILE, trips_of_evaluation
from tedtrajrec.experiments.reporting.paper import METRICS, Metric, label_of, order_of
from tedtrajrec.experiments.reporting.rows import Row, Slot, settings_of
from tedtrajrec.experiments.trips import load_trips

Floats = NDArray[np.float64]


class Spread(NamedTuple):
    """A metric over seeds."""

    mean: float
    deviation: float  # standard deviation over seeds; NaN for one
    n: int


class TripMetrics(NamedTuple):
    """The paper's metrics of each trip."""

    traj_id: NDArray[np.str_]  # [n]
    values: Floats  # [n, 6], in the order of METRICS

    def minus(self, other: TripMetrics, metric: Metric) -> Floats | None:
        """Return the differences in one metric [n], or None where the trips are not the same."""
        if not np.array_equal(self.traj_id, other.traj_id):
            return None
        k = METRICS.index(metric)
        difference: Floats = self.values[:, k] - other.values[:, k]
        return difference


@dataclass(frozen=True, eq=False)
class Result:
    """A method in one of its variants on one dataset at one keep ratio, with all seeds."""

    method: str
    variant: str
    dataset: str
    keep: str
    slots: tuple[Slot, ...]
    apart: str = ""  # settings that tell it from others of the same name

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows that count: the finished ones or, where there is none, all."""
        found = tuple(slot.row for slot in self.slots if slot.row is not None)
        return tuple(row for row in found if row.finished) or found

    @property
    def final(self) -> bool:
        """Whether there is a finished row."""
        return bool(self.rows) and self.rows[0].finished

    @property
    def label(self) -> str:
        """Its name in tables."""
        return ", ".join(text for text in (label_of(self.method), self.variant, self.apart) if text)

    @property
    def state(self) -> str:
        """What a reader must know beside the name: that it is unfinished and how far it came."""
        if not self.rows:
            return "not computed"
        return "" if self.final else f"unfinished: {', '.join(dict.fromkeys(row.epochs for row in self.rows))}"

    @property
    def seeds(self) -> str:
        """The number of seeds that count, and of how many."""
        return str(len(self.rows)) if len(self.rows) == len(self.slots) else f"{len(self.rows)} of {len(self.slots)}"

    def metric(self, name: str, draw: str = "test") -> Spread | None:
        """Return a metric over seeds, or None where no row has it."""
        return spread(value for row in self.rows if (value := row.metric(name, draw)) is not None)

    @property
    def draws(self) -> set[str]:
        """Names of the draws of test trips that the rows were evaluated on."""
        return {str(row.content.get("draws", {}).get("test")) for row in self.rows}

    @cached_property
    def trips(self) -> TripMetrics | None:
        """The metrics of each trip, the mean over seeds; None where not all rows have kept their trips."""
        found = [trips for row in self.rows if (trips := _trips_of(row)) is not None]
        if not found or len(found) < len(self.rows):
            return None
        for row, one in zip(self.rows, found, strict=True):
            if not np.array_equal(one.traj_id, found[0].traj_id):
                raise InputError(
                    f"its trips are not those of {self.rows[0].file}", file=row.path, remedy="Run the cell again."
                )
        return TripMetrics(found[0].traj_id, np.mean([one.values for one in found], axis=0, dtype=np.float64))


def _trips_of(row: Row) -> TripMetrics | None:
    """Return the metrics of each trip of a row, or None where it has not kept them."""
    names = [metric.name for metric in METRICS]
    if row.path.name == FILE:
        found = trips_of_evaluation(row.path.parent, names)
        return None if found is None else TripMetrics(*found)
    file = row.path.parent / "trips" / f"{row.path.stem}.npz"
    if not file.exists():
        return None
    trips = load_trips(file)
    return TripMetrics(trips.traj_id, np.column_stack([getattr(trips, name) for name in names]))


def spread(values: Iterable[float]) -> Spread | None:
    """Return mean and standard deviation of some values, or None for none."""
    found = np.fromiter(values, np.float64)
    if not len(found):
        return None
    return Spread(float(found.mean()), float(found.std(ddof=1)) if len(found) > 1 else math.nan, len(found))


def results_of(slots: Iterable[Slot]) -> list[Result]:
    """Gather slots that differ in their seed alone; methods in the paper's order.

    Rows of other settings under the same names, as of two plans, are results of their own, told apart by these.
    """
    names: dict[tuple[str, str, str, str], dict[frozenset[str], list[Slot]]] = {}
    for slot in slots:
        cell = slot.cell
        same = names.setdefault((cell.method, cell.variant, cell.dataset, cell.keep), {})
        same.setdefault(settings_of(cell), []).append(slot)
    found = []
    for name, kinds in names.items():
        common = frozenset.intersection(*kinds)
        found += [Result(*name, tuple(group), ", ".join(sorted(kind - common))) for kind, group in kinds.items()]
    return sorted(found, key=lambda result: order_of(result.method))


def main_results(results: Iterable[Result]) -> dict[str, Result]:
    """Return one result for each method, of those without a variant: the one with the most seeds."""
    found: dict[str, Result] = {}
    for result in results:
        known = found.get(result.method)
        if not result.variant and (known is None or _seeds(result) > _seeds(known)):
            found[result.method] = result
    return found


def _seeds(result: Result) -> tuple[bool, int]:
    return result.final, len(result.rows)


def number(value: float, digits: int, *, sign: bool = False) -> str:
    """Return a number as tables have it: shares without the 0 before the point, metres with thousands."""
    text = f"{value:{'+' if sign else ''},.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text


def number_with_spread(value: Spread, digits: int) -> str:
    """Return a mean and, where there are several seeds, their standard deviation."""
    text = number(value.mean, digits)
    return text if math.isnan(value.deviation) else f"{text} ± {number(value.deviation, digits)}"
