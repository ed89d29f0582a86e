"""The figures of the report, each as PNG and SVG of the same picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from tedtrajrec.data.sampling import keep_share
from tedtrajrec.experiments.reporting.page import Picture
from tedtrajrec.experiments.reporting.paper import METRICS, Metric, label_of, order_of
from tedtrajrec.experiments.reporting.results import Result, Spread
from tedtrajrec.network.plot import DPI, INK, PAPER, save_figure

FOLDER = "figures"
Point = tuple[float, Spread]  # x and what is drawn there

_COLOURS = (
    "#1f5a8c", "#d9722e", "#4d8a5b", "#8e2f5c", "#b08a1e", "#5a5a5a", "#6f4fa0",
    "#2e9aa0", "#a83232", "#7a5c3e", "#c45a9b", "#16324f", "#93a83a", "#e0855f",
)  # fmt: skip
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "*")


def robustness_figure(folder: Path, name: str, results: Sequence[Result], caption: str) -> Picture:
    """Draw the six metrics over the keep ratio, a line for each method."""
    figure, spaces = _figure(3, 2)
    methods = list(dict.fromkeys(result.method for result in results if result.rows))
    keeps = sorted({float(keep_share(result.keep)) for result in results if result.rows}, reverse=True)
    for axes, metric in zip(spaces, METRICS, strict=True):
        for method in methods:
            points = [
                (float(keep_share(one.keep)), value)
                for one in results
                if one.method == method and (value := one.metric(metric.name)) is not None
            ]
            _line(axes, points, order_of(method), label_of(method))
        axes.set_xscale("log", base=2)
        axes.invert_xaxis()
        _ticks(axes, keeps, [f"1/{round(1 / keep)}" for keep in keeps])
        axes.set_xlabel("share of steps kept")
        axes.set_title(_arrow(metric), loc="left", fontsize=10)
    _legend(figure, spaces[0])
    words = f"Lines of {_listed(label_of(method) for method in methods)} over keep ratios"
    return _save(figure, folder, name, caption, f"{words}, six panels, one for each metric.")


def cost_figure(
    folder: Path, name: str, costs: Mapping[str, Sequence[tuple[str, float, Spread]]], caption: str
) -> Picture:
    """Draw accuracy against costs: for each kind of cost the name of a method, what it costs and its accuracy."""
    figure, spaces = _figure(len(costs), 1)
    methods = list(dict.fromkeys(name for points in costs.values() for name, _, _ in points))
    for axes, (cost, points) in zip(spaces, costs.items(), strict=True):
        for method, x, accuracy in points:
            _line(axes, [(x, accuracy)], order_of(method), label_of(method))
        axes.set_xscale("log")
        values = [x for _, x, _ in points]
        axes.set_xlim(min(values) / 1.6, max(values) * 1.6)  # wide enough for a tick at 1, 2 or 5
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(FuncFormatter(_plain))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel(cost)
        axes.set_ylabel("accuracy")
    _legend(figure, spaces[0])
    return _save(figure, folder, name, caption, f"Points of {_listed(map(label_of, methods))}: accuracy against cost.")


def ablation_figure(folder: Path, name: str, bars: Sequence[tuple[str, Result, Result]], caption: str) -> Picture:
    """Draw how accuracy, F1 and MAE differ from those of the whole method; bars are name, variant and whole."""
    chosen = [metric for metric in METRICS if metric.name in ("accuracy", "f1", "mae_m")]
    figure, spaces = _figure(3, 1, height=1.2 + 0.34 * len(bars))
    for axes, metric in zip(spaces, chosen, strict=True):
        change, error = [], []
        for _, variant, whole in bars:
            a, b = variant.metric(metric.name), whole.metric(metric.name)
            change.append(np.nan if a is None or b is None else a.mean - b.mean)
            error.append(_standard_error(variant, whole, metric))
        worse = [(value < 0) == metric.higher for value in change]
        colours = [_COLOURS[1] if bad else _COLOURS[0] for bad in worse]
        place = np.arange(len(bars))
        axes.barh(place, change, xerr=error, color=colours, height=0.62, error_kw={"ecolor": INK, "elinewidth": 1})
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(place, [bar for bar, _, _ in bars] if axes is spaces[0] else [""] * len(bars))
        axes.invert_yaxis()
        axes.set_title(f"change of {metric.label}", loc="left", fontsize=10)
    alt = f"Bars of {_listed(bar for bar, _, _ in bars)}: change against the whole method."
    return _save(figure, folder, name, caption, alt)


def sensitivity_figure(
    folder: Path, name: str, panels: Mapping[str, Sequence[tuple[str, Result]]], caption: str
) -> Picture:
    """Draw metrics over the values of settings; solid lines are better higher, dashed ones (right axis) lower."""
    figure, spaces = _figure(min(3, len(panels)), -(-len(panels) // 3))
    for axes, (setting, points) in zip(spaces, panels.items(), strict=False):
        right = axes.twinx()
        right.spines[["top"]].set_visible(False)
        place = np.arange(len(points), dtype=np.float64)
        for k, metric in enumerate(METRICS):
            drawn = [
                (x, value)
                for x, (_, result) in zip(place, points, strict=True)
                if (value := result.metric(metric.name)) is not None
            ]
            _line(axes if metric.higher else right, drawn, k, metric.label, style="-" if metric.higher else "--")
        _ticks(axes, place, [text for text, _ in points])
        axes.set_xlabel(setting)
        right.set_ylabel("m")
        if axes is spaces[0]:
            handles = [*axes.get_legend_handles_labels()[0], *right.get_legend_handles_labels()[0]]
            figure.legend(handles=handles, loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    for axes in spaces[len(panels) :]:
        axes.set_visible(False)
    alt = f"Six metrics over values of {_listed(panels)}."
    return _save(figure, folder, name, caption, alt)


def training_figure(folder: Path, name: str, results: Sequence[Result], caption: str) -> Picture:
    """Draw validation accuracy and training loss over epochs, a line for each row."""
    figure, spaces = _figure(2, 1)
    named = {"valid_accuracy": "validation accuracy", "loss_total": "training loss"}
    for k, result in enumerate(results):
        for i, row in enumerate(result.rows):
            history = row.content.get("training", {}).get("history", [])
            for axes, key in zip(spaces, named, strict=True):
                points = [(entry["epoch"] + 1, entry[key]) for entry in history if entry.get(key) is not None]
                axes.plot(
                    [x for x, _ in points], [y for _, y in points], color=_COLOURS[k % len(_COLOURS)], linewidth=1.2,
                    alpha=1.0 if i == 0 else 0.45, linestyle=("-", "--", ":", "-.")[k // len(_COLOURS) % 4],
                    label=result.label if i == 0 else None,
                )  # fmt: skip
    for axes, title in zip(spaces, named.values(), strict=True):
        axes.set_xlabel("epoch")
        axes.set_title(title, loc="left", fontsize=10)
    spaces[1].set_yscale("log")
    spaces[1].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    spaces[1].yaxis.set_major_formatter(FuncFormatter(_plain))
    spaces[1].yaxis.set_minor_formatter(NullFormatter())
    _legend(figure, spaces[0])
    alt = f"Validation accuracy and training loss over epochs of {_listed(result.label for result in results)}."
    return _save(figure, folder, name, caption, alt)


def learning_figure(
    folder: Path, name: str, curves: Mapping[str, Sequence[tuple[int, Result]]], labels: Mapping[int, str], caption: str
) -> Picture:
    """Draw accuracy, F1 and MAE over the number of training trips; labels are those of the numbers."""
    chosen = [metric for metric in METRICS if metric.name in ("accuracy", "f1", "mae_m")]
    figure, spaces = _figure(3, 1)
    for axes, metric in zip(spaces, chosen, strict=True):
        for k, (curve, points) in enumerate(curves.items()):
            drawn = [(float(x), value) for x, one in points if (value := one.metric(metric.name)) is not None]
            _line(axes, drawn, k, curve)
        axes.set_xscale("symlog", linthresh=50)
        _ticks(axes, list(labels), list(labels.values()))
        axes.set_xlabel("training trips")
        axes.set_title(_arrow(metric), loc="left", fontsize=10)
    _legend(figure, spaces[0])
    return _save(figure, folder, name, caption, f"Lines over the number of training trips: {_listed(curves)}.")


def coverage_figure(folder: Path, name: str, results: Sequence[Result], caption: str) -> Picture:
    """Draw the accuracy of the most confident steps over their share."""
    figure, (axes,) = _figure(1, 1, width=6.5)
    for result in results:
        k = order_of(result.method)
        points = [
            (share, value) for share in (50, 80, 95) if (value := result.metric(f"accuracy_at_{share}")) is not None
        ]
        _line(axes, points, k, result.label)
    axes.set_xlabel("most confident steps, %")
    axes.set_ylabel("share that is right")
    axes.legend(frameon=False, fontsize=8)
    alt = f"Accuracy of the most confident 50, 80 and 95 % of steps of {_listed(one.label for one in results)}."
    return _save(figure, folder, name, caption, alt)


def _standard_error(variant: Result, whole: Result, metric: Metric) -> float:
    """Return the standard error of the difference over trips: paired where trips were kept."""
    if variant.trips is not None and whole.trips is not None:
        difference = variant.trips.minus(whole.trips, metric)
        if difference is not None:
            return float(np.nanstd(difference, ddof=1) / np.sqrt(np.isfinite(difference).sum()))
    errors = [one.metric(f"{metric.name}_se") for one in (variant, whole)]
    return float(np.sqrt(sum(error.mean**2 for error in errors if error is not None)))


def _figure(
    columns: int, lines: int, *, width: float | None = None, height: float | None = None
) -> tuple[Figure, list[Axes]]:
    size = (width or max(7.0, 4.0 * columns), height or 3.4 * lines + 0.4)
    figure = Figure(figsize=size, dpi=DPI, facecolor=PAPER, layout="constrained")
    spaces = [axes for line in figure.subplots(lines, columns, squeeze=False) for axes in line]
    for axes in spaces:
        axes.set_facecolor(PAPER)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.tick_params(colors=INK, labelsize=9)
    return figure, spaces


def _line(axes: Axes, points: Iterable[Point], k: int, label: str, *, style: str = "-") -> None:
    ordered = sorted(points)
    deviations = [np.nan_to_num(value.deviation) for _, value in ordered]
    axes.errorbar(
        [x for x, _ in ordered], [value.mean for _, value in ordered], yerr=deviations,
        color=_COLOURS[k % len(_COLOURS)], marker=_MARKERS[(k + k // len(_COLOURS)) % len(_MARKERS)],
        linestyle=style, linewidth=1.6, markersize=5, capsize=3, label=label,
    )  # fmt: skip


def _ticks(axes: Axes, places: Iterable[float], labels: Sequence[str]) -> None:
    named = dict(zip(map(float, places), labels, strict=True))
    axes.xaxis.set_major_locator(FixedLocator(list(named)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: named.get(float(x), "")))


def _plain(value: float, _: int | None = None) -> str:
    return f"{value:g}"


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4), frameon=False, fontsize=9)


def _arrow(metric: Metric) -> str:
    return f"{metric.label} ({'higher' if metric.higher else 'lower'} is better)"


def _listed(names: Iterable[str]) -> str:
    found = list(names)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}" if found else "nothing"


def _save(figure: Figure, folder: Path, name: str, caption: str, alt: str) -> Picture:
    png, svg = Path(FOLDER) / f"{name}.png", Path(FOLDER) / f"{name}.svg"
    save_figure(figure, folder / png)
    figure.set_layout_engine("none")  # keeps the layout, which takes long to find
    save_figure(figure, folder / svg)
    return Picture(caption, alt, png, svg)
