"""Pictures of confidence: how often a method is right when it says so, and how right it is where it is sure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tedtrajrec.evaluation.calibration import BINS, COVERAGES, Sureness, reliability, risk_coverage, sureness
from tedtrajrec.evaluation.run import Evaluation, truth_of
from tedtrajrec.network.plot import DPI, INK, PAPER, save_figure
from tedtrajrec.trips.plot import SPARSE, TRUTH

ALL, OBSERVED, MISSING = INK, SPARSE, TRUTH
MOST_POINTS = 2000  # of a curve


def plot_confidence(evaluation: Evaluation, path: str | Path) -> Path:
    """Draw the confidence of an evaluation that kept its steps and return the picture.

    Left, the reliability diagram: the share of right steps for each bin of probability, for observed and for missing
    steps, and below it how many steps each bin has. Right, the accuracy of the most confident steps for every share of
    them.
    """
    if evaluation.steps is None or not evaluation.confidence:
        raise ValueError("the evaluation did not keep its steps, or the method gives no probabilities")
    draw, steps = evaluation.draw, evaluation.steps
    truth, _ = truth_of(draw.dataset.split(draw.split).trips(draw.number))
    sure = sureness(steps.log_prob, steps.segment, truth, draw.observed)
    figure = Figure(figsize=(10, 4.8), dpi=DPI, facecolor=PAPER, layout="constrained")
    spaces = figure.subplot_mosaic(
        [["reliability", "coverage"], ["histogram", "coverage"]], gridspec_kw={"height_ratios": (3, 1)}
    )
    for axes in spaces.values():
        axes.set_facecolor(PAPER)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    _draw_reliability(spaces["reliability"], spaces["histogram"], sure)
    _draw_coverage(spaces["coverage"], sure)
    said = evaluation.confidence
    figure.suptitle(
        f"{evaluation.method}, {len(draw):,} {draw.split} trips, keep {draw.keep}, {draw.rule}; "
        f"calibration error {said['ece']:.3f}, Brier score {said['brier']:.3f}, "
        f"{said['confidence_share']:.0%} of the steps",
        x=0.01, ha="left", color=INK, fontsize=11,
    )  # fmt: skip
    path = Path(path)
    save_figure(figure, path)
    return path


def _draw_reliability(axes: Axes, below: Axes, sure: Sureness) -> None:
    axes.plot([0, 1], [0, 1], color=INK, linewidth=0.8, alpha=0.5)
    edges = np.linspace(0, 1, BINS + 1).tolist()
    kinds = (("missing steps", ~sure.observed, MISSING), ("observed steps", sure.observed, OBSERVED))
    for name, some, colour in kinds:
        if not some.any():
            continue
        table = reliability(sure.probability[some], sure.right[some])
        axes.plot(
            table.probability, table.accuracy, "o-", color=colour, markersize=4, label=f"{name}: {table.error:.3f}"
        )
        below.hist(sure.probability[some], edges, histtype="step", color=colour, linewidth=1.5)
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="share of steps that are right")
    axes.legend(frameon=False, labelcolor=INK, title="calibration error", loc="upper left")
    below.set(xlim=(0, 1), xlabel="probability the method gives its answer", ylabel="steps")


def _draw_coverage(axes: Axes, sure: Sureness) -> None:
    kinds = {
        "all steps": (np.ones(len(sure.right), bool), ALL),
        "missing steps": (~sure.observed, MISSING),
        "observed steps": (sure.observed, OBSERVED),
    }
    for name, (some, colour) in kinds.items():
        if not some.any():
            continue
        curve = risk_coverage(sure.probability[some], sure.right[some])
        shown = np.unique(np.linspace(0, len(curve.coverage) - 1, MOST_POINTS).astype(np.int64))
        axes.plot(curve.coverage[shown], curve.accuracy[shown], color=colour, label=name)
        if name == "all steps":
            for coverage in COVERAGES:
                axes.plot(coverage, curve.at(coverage), "o", color=colour, markersize=4)
                axes.annotate(
                    f"{curve.at(coverage):.3f}", (coverage, curve.at(coverage)), (0, 6), textcoords="offset points",
                    ha="center", fontsize=8, color=INK,
                )  # fmt: skip
    axes.set(xlim=(0, 1), xlabel="share of steps taken, the surest first", ylabel="share of them that are right")
    axes.legend(frameon=False, labelcolor=INK, loc="lower left")
