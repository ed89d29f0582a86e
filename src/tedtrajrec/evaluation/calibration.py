"""Whether a method's probabilities can be trusted: how often it is right when it says it is.

All is over steps, not over trips as the other metrics are: a trip has too few steps to tell. The probability of a step
is that of the segment answered there, ``exp(log_prob)``, and the step is right when that is the true segment.
``docs/metrics.md`` has the definitions.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.methods.calibration import bounds_of_equal_count

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

BINS = 15
COVERAGES = (0.5, 0.8, 0.95)
LEAST = 1e-7  # a probability nearer to 0 or 1 counts as this in the logarithm: 16 nats for one sure and wrong step


class Reliability(NamedTuple):
    """Steps in bins of probability, only those bins that have any, from unlikely to likely."""

    low: Floats  # [B] bounds of the bins
    high: Floats  # [B]
    steps: Ints  # [B] how many
    probability: Floats  # [B] mean of what the method said
    accuracy: Floats  # [B] share of steps that were right

    @property
    def error(self) -> float:
        """Mean over steps of the difference between what was said and what was right in their bin; NaN without any."""
        if not len(self.steps):
            return float("nan")
        return float(np.average(np.abs(self.probability - self.accuracy), weights=self.steps))


class RiskCoverage(NamedTuple):
    """Accuracy among the most confident steps, from the surest one to all of them."""

    coverage: Floats  # [N] share of steps that are taken, 1/N .. 1
    accuracy: Floats  # [N] of those taken

    @property
    def area(self) -> float:
        """Mean accuracy over all coverages; a method that knows nothing of its errors has its plain accuracy here."""
        return float(self.accuracy.mean()) if len(self.accuracy) else float("nan")

    def at(self, coverage: float) -> float:
        """Return the accuracy of this share of the steps, rounded up to a whole step."""
        if not 0 < coverage <= 1:
            raise ValueError(f"the coverage is {coverage}; it must be more than 0 and at most 1")
        n = len(self.accuracy)
        return float(self.accuracy[max(int(np.ceil(coverage * n - 1e-9)), 1) - 1]) if n else float("nan")


class Sureness(NamedTuple):
    """The steps of known truth for which a method gave a probability."""

    probability: Floats  # [N]
    right: Mask  # [N]
    observed: Mask  # [N]
    share: float  # of the steps of known truth; those answered without a probability are left out


def sureness(log_prob: ArrayLike, segment: ArrayLike, true_segment: ArrayLike, observed: ArrayLike) -> Sureness:
    """Return probabilities and whether they were justified.

    Parameters
    ----------
    log_prob
        Of the segment answered; NaN where the method gives none.
    segment, true_segment
        Segments; -1 where there is no answer, or no truth.
    observed
        Which steps were given to the method.
    """
    chance, answer, truth = np.asarray(log_prob, np.float64), np.asarray(segment), np.asarray(true_segment)
    known = truth >= 0
    usable = known & (answer >= 0) & ~np.isnan(chance)
    return Sureness(
        probability=np.exp(np.minimum(chance[usable], 0.0)),
        right=answer[usable] == truth[usable],
        observed=np.asarray(observed, bool)[usable],
        share=float(usable.sum() / known.sum()) if known.any() else float("nan"),
    )


def reliability(
    probability: ArrayLike, right: ArrayLike, *, bins: int = BINS, equal_count: bool = False
) -> Reliability:
    """Return how often steps were right for each bin of their probability.

    Parameters
    ----------
    probability, right
        What the method said of each step, and whether it was right.
    bins
        How many bins at most.
    equal_count
        Bins of as many steps each instead of the same width; equal probabilities stay in one bin.
    """
    said, was = _checked(probability, right)
    if bins < 1:
        raise ValueError("there must be at least one bin")
    edges = np.linspace(0, 1, bins + 1)
    if equal_count and len(said):
        edges = np.array([0.0, *bounds_of_equal_count(said, bins), 1.0])
    # A bin holds its upper bound and not its lower, but the first, which holds 0.
    which = np.searchsorted(edges[1:-1], said)
    count = np.bincount(which, minlength=len(edges) - 1)
    some = count > 0
    return Reliability(
        edges[:-1][some],
        edges[1:][some],
        count[some],
        np.bincount(which, said, len(edges) - 1)[some] / count[some],
        np.bincount(which, was, len(edges) - 1)[some] / count[some],
    )


def calibration_error(
    probability: ArrayLike, right: ArrayLike, *, bins: int = BINS, equal_count: bool = False
) -> float:
    """Return the expected calibration error (Naeini et al. 2015); parameters as in :func:`reliability`.

    With bins of equal count it is the adaptive one (Nguyen and O'Connor 2015), which does not hang on where the method
    puts most of its probabilities.
    """
    return reliability(probability, right, bins=bins, equal_count=equal_count).error


def brier_score(probability: ArrayLike, right: ArrayLike) -> float:
    """Return the mean squared difference between the probability and 1 where right, 0 where wrong."""
    said, was = _checked(probability, right)
    return float(((said - was) ** 2).mean()) if len(said) else float("nan")


def negative_log_likelihood(probability: ArrayLike, right: ArrayLike) -> float:
    """Return the mean negative logarithm of the probability given to what happened: the answer right, or wrong."""
    said, was = _checked(probability, right)
    said = np.clip(said, LEAST, 1 - LEAST)
    return float(-np.log(np.where(was, said, 1 - said)).mean()) if len(said) else float("nan")


def risk_coverage(probability: ArrayLike, right: ArrayLike) -> RiskCoverage:
    """Return the accuracy of the most confident steps for every share of them.

    Among steps of one probability none goes before another: each counts with the accuracy of them all, which is what
    an arbitrary order has on average.
    """
    said, was = _checked(probability, right)
    n = len(said)
    distinct, which = np.unique(-said, return_inverse=True)
    count = np.bincount(which, minlength=len(distinct))
    share = np.bincount(which, was, len(distinct)) / count if n else np.zeros(0)
    taken = np.arange(1, n + 1)
    return RiskCoverage(taken / max(n, 1), np.cumsum(np.repeat(share, count)) / taken)


def summarise_confidence(sure: Sureness) -> dict[str, float]:
    """Return the figures of confidence by name, over steps; nothing where there is no probability.

    ``confidence_share`` says how many of the steps have one. ``accuracy_at_50`` is the accuracy of the surer half of
    them, and so on; ``ece_observed`` and ``ece_missing`` are left out where there is no such step.
    """
    said, right = sure.probability, sure.right
    if not len(said):
        return {}
    curve = risk_coverage(said, right)
    kinds = {"observed": sure.observed, "missing": ~sure.observed}
    return {
        "confidence_share": sure.share,
        "ece": calibration_error(said, right),
        "ece_adaptive": calibration_error(said, right, equal_count=True),
        **{f"ece_{name}": calibration_error(said[some], right[some]) for name, some in kinds.items() if some.any()},
        "brier": brier_score(said, right),
        "nll": negative_log_likelihood(said, right),
        **{f"accuracy_at_{round(100 * coverage)}": curve.at(coverage) for coverage in COVERAGES},
        "coverage_area": curve.area,
    }


def _checked(probability: ArrayLike, right: ArrayLike) -> tuple[Floats, Mask]:
    said, was = np.asarray(probability, np.float64), np.asarray(right)
    if said.ndim != 1 or said.shape != was.shape:
        raise ValueError(f"probabilities of shape {said.shape} do not go with outcomes of {was.shape}")
    if not ((said >= 0) & (said <= 1)).all():
        raise ValueError("a probability is not between 0 and 1")
    if was.size and was.dtype != bool:
        raise ValueError(f"whether a step was right is told by booleans, not {was.dtype}")
    return said, was.astype(bool, copy=False)
