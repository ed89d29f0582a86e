"""Pictures of a prepared dataset: its trips on the map, and how long, how dense and at what time they are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.describe import Tally, join_tallies, tally_splits
from tedtrajrec.errors import InputError
from tedtrajrec.network.plot import (
    DPI,
    INK,
    PAPER,
    add_attribution,
    add_scale_bar,
    add_title,
    draw_roads,
    extent,
    new_map,
    save_figure,
    width_scale,
)
from tedtrajrec.network.roadnet import RoadNetwork

STREETS = "#e0dcd3"
BAR = "#4a7fb5"
WEEKEND = "#d9722e"
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHORTEST_M = 50.0  # traffic is a density; on shorter segments it would be chance


def plot_dataset(
    dataset: Dataset, folder: str | Path, *, tallies: Mapping[str, Tally] | None = None, width_px: int = 1600
) -> tuple[Path, Path]:
    """Draw a dataset: ``map.png``, the traffic on each segment, and ``trips.png``, histograms and times of day.

    Parameters
    ----------
    dataset
        What to draw, all splits together.
    folder
        Where the pictures are written.
    tallies
        What :func:`~tedtrajrec.data.describe.tally_splits` counted, if it is at hand.
    width_px
        Width of the pictures in pixels.

    Returns
    -------
    tuple of paths
        The two pictures.

    Raises
    ------
    InputError
        If the dataset has no trips.
    """
    counted = tally_splits(dataset) if tallies is None else tallies
    tally = join_tallies(list(counted.values()), dataset.network.n_segments)
    if not len(tally.steps):
        raise InputError("the dataset has no trips to draw", file=dataset.path)
    name = dataset.info.source or dataset.path.name
    files = Path(folder) / "map.png", Path(folder) / "trips.png"
    _draw_map(dataset.network, tally, name, files[0], width_px)
    _draw_trips(tally, dataset.info.step_s, f"{name}, {dataset.info.time_zone}", files[1], width_px)
    return files


def _draw_map(network: RoadNetwork, tally: Tally, name: str, path: Path, width_px: int) -> None:
    figure, axes, box = new_map(extent(network), width_px=width_px)
    draw_roads(axes, network, box, colour=STREETS)
    per_km = 1000 * tally.on_segment / np.maximum(network.length_m, SHORTEST_M)
    visited = np.flatnonzero(tally.on_segment)
    visited = visited[np.argsort(per_km[visited], kind="stable")]  # the busiest on top
    x, y = network.geom_xy
    vertices = np.column_stack([x, y])
    lines = [vertices[network.geom_offset[i] : network.geom_offset[i + 1]] for i in visited.tolist()]
    if lines:
        low, high = np.quantile(per_km[visited], (0.05, 0.995))
        norm = LogNorm(max(low, 1e-3), max(high, 2 * low))
        scale = width_scale(axes)
        collection = LineCollection(
            lines, array=per_km[visited], norm=norm, cmap="plasma_r", zorder=3, capstyle="round",
            linewidths=scale * (0.6 + 1.8 * np.clip(norm(per_km[visited]), 0, 1)),
        )  # fmt: skip
        axes.add_collection(collection, autolim=False)
        inch = 1 / figure.get_figheight()
        beside = figure.add_axes((0.72, 1 - 0.27 * inch, 0.265, 0.12 * inch))
        bar = figure.colorbar(collection, cax=beside, orientation="horizontal")
        bar.ax.tick_params(labelsize=8, colors=INK)
        figure.text(
            0.71, 1 - 0.21 * inch, "steps on a kilometre of road", ha="right", va="center", color=INK, fontsize=9
        )
    size = f"{len(tally.steps):,} trips, {int(tally.steps.sum()):,} steps"
    add_title(axes, name, f"{size}, on {len(visited):,} of {len(network):,} segments")
    add_scale_bar(axes, box)
    add_attribution(axes, network)
    save_figure(figure, path)


def _draw_trips(tally: Tally, step_s: int, name: str, path: Path, width_px: int) -> None:
    figure = Figure(figsize=(width_px / DPI, 0.58 * width_px / DPI), dpi=DPI, facecolor=PAPER)
    panels = figure.subplots(2, 3, gridspec_kw={"wspace": 0.24, "hspace": 0.42})
    figure.subplots_adjust(left=0.05, right=0.985, top=0.845, bottom=0.075)
    figure.text(0.012, 0.965, name, color=INK, fontsize=13, fontweight="bold", va="center")
    text = f"{len(tally.steps):,} trips, {int(tally.steps.sum()):,} steps of {step_s} s"
    figure.text(0.012, 0.93, text, color=INK, fontsize=10, va="center")

    seconds = (tally.steps - 1) * step_s
    _histogram(panels[0, 0], seconds / 60, "duration (minutes)", quantum=step_s / 60)
    _histogram(panels[0, 1], tally.metres / 1000, "length (km)")
    moving = seconds > 0
    _histogram(panels[0, 2], 3.6 * tally.metres[moving] / seconds[moving], "mean speed (km/h)")
    _draw_gaps(panels[1, 0], tally.gaps, step_s)
    hours = tally.hours.reshape(7, 24)
    _draw_hours(panels[1, 1], hours)
    panels[1, 2].bar(range(7), hours.sum(axis=1) / hours.sum(), color=[BAR] * 5 + [WEEKEND] * 2, width=0.8)
    panels[1, 2].set(xticks=range(7), xticklabels=DAYS)
    panels[1, 2].set_title("share of steps by local weekday", color=INK, fontsize=11, loc="left")
    for axes in panels.ravel():
        axes.set_facecolor(PAPER)
        axes.set_axisbelow(True)
        axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=9)
    for axes in panels[1]:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    save_figure(figure, path)


def _histogram(axes: Axes, values: NDArray[np.float64], what: str, *, quantum: float = 0.0) -> None:
    """Draw how many trips have each value, and the mean; the rare largest are counted in the last bar."""
    end = float(np.quantile(values, 0.995)) if len(values) else 1.0
    width = max(end, 1e-9) / 40
    if quantum:  # values are whole multiples: so are the bars
        width = quantum * max(1, round(width / quantum))
    edges = np.arange(0, int(np.ceil(max(end, 1e-9) / width)) + 2) * width - quantum / 2
    count, _ = np.histogram(np.minimum(values, edges[-1] - width / 2), edges)
    axes.bar(edges[:-1], count, width, align="edge", color=BAR, edgecolor=PAPER, linewidth=0.5)
    title = f"trips by {what}"
    if len(values):
        mean = float(values.mean())
        axes.axvline(mean, color=INK, linewidth=1.2, linestyle=(0, (4, 3)))
        title += f", mean {mean:.1f}"
    axes.set_title(title, color=INK, fontsize=11, loc="left")


def _draw_gaps(axes: Axes, gaps: NDArray[np.int64], step_s: int) -> None:
    """Draw how long after the one before fixes come; rare long gaps are counted in the last bar."""
    share = gaps / max(gaps.sum(), 1)
    most = 8
    shown = np.append(share[1:most], share[most:].sum())
    shown = np.pad(shown, (0, most - len(shown)))
    labels = [f"{n * step_s}" for n in range(1, most)] + [f"≥{most * step_s}"]
    axes.bar(range(most), shown, color=BAR, width=0.8)
    axes.set(xticks=range(most), xticklabels=labels)
    for place, value in enumerate(shown):
        if value > 0:
            axes.text(place, value, f"{value:.1%}", ha="center", va="bottom", fontsize=8, color=INK)
    axes.set_title("fixes by seconds after the one before", color=INK, fontsize=11, loc="left")


def _draw_hours(axes: Axes, hours: NDArray[np.int64]) -> None:
    week, weekend = hours[:5].sum(axis=0), hours[5:].sum(axis=0)
    for values, label, colour in ((week, "Monday to Friday", BAR), (weekend, "weekend", WEEKEND)):
        if values.sum():
            share = values / values.sum()
            axes.plot(np.arange(24) + 0.5, share, color=colour, linewidth=2, marker="o", markersize=3.5, label=label)
    axes.set(xlim=(0, 24), xticks=range(0, 25, 3))
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    axes.set_title("share of steps by local hour", color=INK, fontsize=11, loc="left")
