"""From metrics per trip to those of a method: means with standard errors, and paired comparisons of two methods."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.metrics import TripMetrics

Floats = NDArray[np.float64]


class Difference(NamedTuple):
    """The mean difference of one metric between two methods over the trips for which both have it."""

    mean: float
    low: float  # bounds of the bootstrap interval
    high: float
    se: float  # standard error of the mean
    n_trips: int


def summarise(metrics: TripMetrics) -> dict[str, float]:
    """Return the mean of each metric over trips, each trip with the same weight, as published.

    For a metric ``x`` there are ``x`` (the mean), ``x_se`` (its standard error; NaN for fewer than two trips) and
    ``x_trips`` (the trips that have it; NaN is left out). ``n_trips`` and the sums of the counts of steps come first.
    """
    out = {"n_trips": float(len(metrics))}
    out |= {name: float(column.sum()) for name, column in metrics.counts().items()}
    for name, column in metrics.values().items():
        value = column[~np.isnan(column)]
        out[name], out[f"{name}_se"] = _mean_and_error(value)
        out[f"{name}_trips"] = float(len(value))
    return out


def compare(
    a: TripMetrics, b: TripMetrics, *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> dict[str, Difference]:
    """Return for each metric the mean of ``a - b`` over trips, with a bootstrap interval.

    Trips are paired: both methods must have been evaluated on the same steps of the same trips. The bootstrap draws
    whole trips with replacement, the same draw for all metrics, and takes percentiles. A metric that no trip has in
    both gets NaN.

    Parameters
    ----------
    a, b
        Metrics of two methods.
    level
        The probability that the interval is meant to cover.
    resamples
        How many times trips are drawn.
    seed
        Of the draw; the same seed gives the same interval.
    """
    if not 0 < level < 1:
        raise ValueError(f"the level is {level}; it must be between 0 and 1")
    if resamples < 1:
        raise ValueError("there must be at least one resample")
    _check_pairs(a, b)
    theirs = b.values()
    difference = {name: column - theirs[name] for name, column in a.values().items()}
    low, high = _bootstrap(np.column_stack(list(difference.values())), level, resamples, seed)
    out = {}
    for i, (name, column) in enumerate(difference.items()):
        value = column[~np.isnan(column)]
        mean, error = _mean_and_error(value)
        out[name] = Difference(mean, float(low[i]), float(high[i]), error, len(value))
    return out


def _check_pairs(a: TripMetrics, b: TripMetrics) -> None:
    if len(a) != len(b):
        raise InputError(f"{len(a)} trips cannot be paired with {len(b)}")
    for name in ("n_steps", "n_unknown", "n_observed", "n_no_route"):
        different = a.counts()[name] != b.counts()[name]
        if different.any():
            raise InputError(
                f"trip {int(np.argmax(different)) + 1} has another {name} in each of the two results",
                remedy="Evaluate both methods on the same trips, in the same order, with the same observed steps.",
            )


def _mean_and_error(value: Floats) -> tuple[float, float]:
    n = len(value)
    mean = float(value.mean()) if n else float("nan")
    return mean, float(value.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")


def _bootstrap(value: Floats, level: float, resamples: int, seed: int) -> tuple[Floats, Floats]:
    """Return the bounds of the percentile interval of each column's mean [M], NaN left out, rows drawn together."""
    n, columns = value.shape
    low = np.full(columns, np.nan)
    high = low.copy()
    has_value = ~np.isnan(value)
    weighed = np.hstack([np.where(has_value, value, 0.0), has_value])
    rng = np.random.default_rng(seed)
    sums = np.zeros((resamples, 2 * columns))
    for i in range(resamples if n else 0):
        # einsum, not @: on busy cores the threads of BLAS wait for each other at each of these small products.
        np.einsum("i,ij->j", np.bincount(rng.integers(n, size=n), minlength=n).astype(float), weighed, out=sums[i])
    tails = (1 - level) / 2, (1 + level) / 2
    for column in range(columns):
        total, count = sums[:, column], sums[:, columns + column]
        drawn = count > 0  # a draw may miss the few trips that have the metric
        if drawn.any():
            low[column], high[column] = np.quantile(total[drawn] / count[drawn], tails)
    return low, high
