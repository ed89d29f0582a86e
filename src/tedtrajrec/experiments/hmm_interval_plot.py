"""The picture of the paper's first table: matching accuracy by interval."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from tedtrajrec.experiments.hmm_interval import PAPER as PUBLISHED
from tedtrajrec.experiments.hmm_interval import Row
from tedtrajrec.network.plot import DPI, INK, PAPER, save_figure

_STYLES = {
    "default": ("#2b6ca3", "o", "our matcher"),
    "nk09": ("#5b8a72", "s", "Newson and Krumm 2009"),
    "song12": ("#d9722e", "^", "Song et al. 2012"),
}


def plot_rows(rows: Sequence[Row], path: str | Path, *, title: str, width_px: int = 900) -> None:
    """Draw accuracy over interval, a line for each preset, and the paper's curve dotted.

    Parameters
    ----------
    rows
        What :func:`~tedtrajrec.experiments.hmm_interval.run` returned.
    path
        The picture to write: .png, .svg or .pdf.
    title
        Name of the dataset.
    width_px
        Its width in pixels.
    """
    width = width_px / DPI
    figure = Figure(figsize=(width, 0.62 * width), dpi=DPI, facecolor=PAPER, layout="constrained")
    axes = figure.add_subplot(facecolor=PAPER)
    axes.plot(
        list(PUBLISHED), list(PUBLISHED.values()), color=INK, linestyle=":", linewidth=1.4, marker=".",
        label="the paper: Song et al. 2012, Shanghai",
    )  # fmt: skip
    for preset in dict.fromkeys(row.preset for row in rows):
        colour, marker, label = _STYLES.get(preset, (None, "D", preset))
        line = sorted((row for row in rows if row.preset == preset), key=lambda row: row.interval_s)
        axes.errorbar(
            [row.interval_s for row in line],
            [row.accuracy for row in line],
            yerr=[1.96 * row.accuracy_se for row in line],
            color=colour, marker=marker, markersize=5, linewidth=1.8, capsize=3, label=label,
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    ticks = sorted({row.interval_s for row in rows} | set(PUBLISHED))
    axes.xaxis.set_major_locator(FixedLocator([float(tick) for tick in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds:g}"))
    axes.set_ylim(0, 1)
    axes.set_xlabel("seconds between fixes", color=INK)
    axes.set_ylabel("share of fixes on the true segment", color=INK)
    trips = max(row.trips for row in rows)
    axes.set_title(f"{title}: {trips:,} trips, mean over trips and 95 % interval", color=INK, fontsize=10, loc="left")
    axes.grid(color=INK, alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(colors=INK, labelsize=9)
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, loc="lower left")
    save_figure(figure, path)
