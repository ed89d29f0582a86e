"""Pictures of an evaluation: where errors come from, and what the best and worst trips look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from tedtrajrec.evaluation.metrics import CAP_M
from tedtrajrec.evaluation.run import Draw, Evaluation, Steps, truth_of
from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.plot import DPI, INK, PAPER, add_attribution, draw_roads, frame_map, save_figure
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.plot import SPARSE, STREETS, TRUTH, box_around, drawn_paths
from tedtrajrec.trips.table import Trips

RECOVERED = "#d9822b"
MOST_TRIPS = 4000  # looked at
SHOWN = 3  # best and worst trips each


def plot_evaluation(evaluation: Evaluation, folder: str | Path) -> list[Path]:
    """Draw an evaluation that kept its steps and return the pictures.

    ``errors.png``: accuracy and network distance by time to the nearest fix; ``classes.png``: which road class was
    answered for which; ``trips.png``: the best and the worst trips on the map.
    """
    if evaluation.steps is None:
        raise ValueError("the evaluation did not keep its steps")
    folder = Path(folder)
    draw, steps = evaluation.draw, evaluation.steps
    chosen = np.unique(np.linspace(0, len(draw) - 1, min(MOST_TRIPS, len(draw))).astype(np.int64))
    rows = draw.rows(chosen)
    trips = draw.dataset.split(draw.split).trips(draw.number[chosen])
    answer = Steps(steps.segment[rows], steps.ratio[rows], steps.log_prob[rows])
    _plot_errors(evaluation, trips, draw.observed[rows], answer, folder / "errors.png")
    _plot_classes(evaluation, trips, answer, folder / "classes.png")
    _plot_trips(evaluation, folder / "trips.png")
    return [folder / name for name in ("errors.png", "classes.png", "trips.png")]


def steps_to_fix(offsets: NDArray[np.int64], observed: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return how many steps the nearest observed step of the same trip is away [N]; every trip has one."""
    place = np.arange(len(observed))
    trip = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    seen = np.flatnonzero(observed)
    after = np.searchsorted(seen, place)
    far = len(observed) + 1

    def distance(which: NDArray[np.int64]) -> NDArray[np.int64]:
        there = seen[np.clip(which, 0, len(seen) - 1)]
        valid = (which >= 0) & (which < len(seen)) & (trip[there] == trip)
        return np.where(valid, np.abs(there - place), far)

    return np.minimum(distance(after), distance(after - 1))


def _plot_errors(evaluation: Evaluation, trips: Trips, observed: NDArray[np.bool_], answer: Steps, path: Path) -> None:
    segment, ratio = truth_of(trips)
    known = (segment >= 0) & (answer.segment >= 0)
    away = steps_to_fix(trips.offsets, observed)[known]
    right = segment[known] == answer.segment[known]
    distance, _ = Router(evaluation.draw.dataset.network).both_ways(
        answer.segment[known], answer.ratio[known].astype(np.float64), segment[known], ratio[known], cap_m=CAP_M
    )
    common = np.flatnonzero(np.bincount(away) >= 30)
    seconds = common * evaluation.draw.dataset.info.step_s
    figure, (left, middle) = _figure(2)
    left.plot(seconds, [right[away == k].mean() for k in common], "o-", color=TRUTH, markersize=4)
    left.set(xlabel="seconds to the nearest fix", ylabel="share of steps on the true segment", ylim=(0, 1))
    quantiles = np.array([np.quantile(distance[away == k], (0.25, 0.5, 0.75, 0.9)) for k in common]).reshape(-1, 4)
    middle.fill_between(seconds, quantiles[:, 0], quantiles[:, 2], color=TRUTH, alpha=0.2, label="middle half")
    middle.plot(seconds, quantiles[:, 1], "o-", color=TRUTH, markersize=4, label="median")
    middle.plot(seconds, quantiles[:, 3], ":", color=TRUTH, label="90 %")
    middle.set(xlabel="seconds to the nearest fix", ylabel="network distance to the truth (m)")
    middle.legend(frameon=False, labelcolor=INK)
    figure.suptitle(_title(evaluation), x=0.01, ha="left", color=INK, fontsize=11)
    save_figure(figure, path)


def _plot_classes(evaluation: Evaluation, trips: Trips, answer: Steps, path: Path) -> None:
    network = evaluation.draw.dataset.network
    segment, _ = truth_of(trips)
    known = (segment >= 0) & (answer.segment >= 0)
    true, found = network.road_class[segment[known]], network.road_class[answer.segment[known]]
    classes = np.unique(np.concatenate([true, found]))
    count = np.zeros((len(ROAD_CLASSES), len(ROAD_CLASSES)))
    np.add.at(count, (true, found), 1)
    count = count[np.ix_(classes, classes)]
    share = count / np.maximum(count.sum(axis=1, keepdims=True), 1)
    size = 2.5 + 0.55 * len(classes)
    figure = Figure(figsize=(size + 1.2, size), dpi=DPI, facecolor=PAPER, layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    for i in range(len(classes)):
        for j in range(len(classes)):
            if share[i, j] >= 0.005:
                colour = PAPER if share[i, j] > 0.5 else INK
                axes.text(j, i, f"{share[i, j]:.2f}", ha="center", va="center", fontsize=8, color=colour)
    names = [ROAD_CLASSES[k] for k in classes]
    counts = [f"{name} ({int(total):,})" for name, total in zip(names, count.sum(axis=1), strict=True)]
    axes.set_xticks(range(len(classes)), names, rotation=45, ha="right")
    axes.set_yticks(range(len(classes)), counts)
    axes.set(xlabel="class of the answer", ylabel="class of the truth (steps)")
    axes.set_title(_title(evaluation), loc="left", color=INK, fontsize=11)
    save_figure(figure, path)


def _plot_trips(evaluation: Evaluation, path: Path) -> None:
    """Draw the best and the worst trips; of equal ones the longer."""
    draw = evaluation.draw
    accuracy = evaluation.metrics.accuracy
    usable = np.flatnonzero(~np.isnan(accuracy))
    order = usable[np.lexsort([-np.diff(draw.offsets)[usable], -accuracy[usable]])]
    worst_first = usable[np.lexsort([-np.diff(draw.offsets)[usable], accuracy[usable]])]
    columns = min(SHOWN, len(usable))
    figure = Figure(figsize=(4.6 * columns, 9.6), dpi=DPI, facecolor=PAPER)
    for row, trips in enumerate((order[:columns], worst_first[:columns])):
        for column, trip in enumerate(trips.tolist()):
            axes = figure.add_axes(((column + 0.02) / columns, 0.49 - 0.47 * row, 0.96 / columns, 0.42))
            _draw_trip(axes, evaluation, draw, trip)
            axes.set_title(
                f"{'best' if row == 0 else 'worst'}: accuracy {accuracy[trip]:.2f}, "
                f"{draw.offsets[trip + 1] - draw.offsets[trip]} steps",
                loc="left", fontsize=9, color=INK,
            )  # fmt: skip
    handles = [
        Line2D([], [], color=TRUTH, linewidth=3, label="truth"),
        Line2D([], [], color=RECOVERED, linewidth=3, label="recovered step"),
        Line2D([], [], color=SPARSE, linewidth=3, label="observed fix"),
    ]  # fmt: skip
    figure.legend(handles=handles, loc="upper right", ncols=3, frameon=False, labelcolor=INK)
    figure.suptitle(_title(evaluation), x=0.01, ha="left", color=INK, fontsize=11)
    save_figure(figure, path)


def _draw_trip(axes: Axes, evaluation: Evaluation, draw: Draw, number: int) -> None:
    network, steps = draw.dataset.network, evaluation.steps
    if steps is None:
        return
    rows = slice(draw.offsets[number], draw.offsets[number + 1])
    trip = draw.dataset.split(draw.split).trips([draw.number[number]])
    answered = steps.segment[rows] >= 0
    x, y = network.plane.to_xy(
        *network.point_at(steps.segment[rows][answered], steps.ratio[rows][answered].astype(np.float64))
    )
    seen = draw.observed[rows]
    fix_x, fix_y = network.plane.to_xy(trip.lon[seen], trip.lat[seen])
    true = trip.keep_fixes(truth_of(trip)[0] >= 0)
    true_x, true_y = network.plane.to_xy(*network.point_at(*truth_of(true)))
    box = frame_map(axes, box_around(np.concatenate([x, fix_x, true_x]), np.concatenate([y, fix_y, true_y])))
    draw_roads(axes, network, box, colour=STREETS)
    axes.add_collection(
        LineCollection(drawn_paths(network, true), colors=TRUTH, linewidths=3, alpha=0.6, zorder=4), autolim=False
    )
    axes.plot(x, y, "o", color=RECOVERED, markersize=4, zorder=5)
    axes.plot(fix_x, fix_y, "o", color=SPARSE, markersize=9, markerfacecolor="none", markeredgewidth=1.6, zorder=6)
    add_attribution(axes, network)


def _figure(columns: int) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(5 * columns, 3.8), dpi=DPI, facecolor=PAPER, layout="constrained")
    axes = list(figure.subplots(1, columns))
    for one in axes:
        one.set_facecolor(PAPER)
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.3)
    return figure, axes


def _title(evaluation: Evaluation) -> str:
    draw = evaluation.draw
    return f"{evaluation.method}, {len(draw):,} {draw.split} trips, keep {draw.keep}, {draw.rule}"
