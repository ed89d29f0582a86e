"""Draws what recovery, matching and training cost against the size of the network, from rows of ``scale.py``.

    python benchmarks/plot_scale.py [results/scale.jsonl] [-o docs/img/scale.png]

Of rows for the same work on the same network, the latest counts.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tedtrajrec.network.plot import DPI, INK, PAPER, save_figure

ROOT = Path(__file__).parents[1]
WIDTH_IN, HEIGHT_IN = 10.0, 6.4


class Line(NamedTuple):
    """One line of a picture."""

    label: str
    of: dict[str, Any]  # what its rows have
    figure: str
    colour: str
    dashes: str = "-"


USES = {"tedtrajrec_parallel": "#2b6ca3", "tedtrajrec": "#8a5bb0", "match": "#5b8a72", "route_hmm": "#d9722e"}
TRAIN = {"what": "train", "device": "cuda", "batch": 64, "method": None}  # of the default one


def uses(figure: str) -> list[Line]:
    """Return the lines of recovery and matching, one trip at a time and 16 at once."""
    return [
        Line(f"{what}, {name}", {"what": what, "batch": count}, figure, colour, dashes)
        for what, colour in USES.items()
        for count, name, dashes in ((1, "one trip", "-"), (16, "16 at once", "--"))
    ]


PANELS = {
    "recovery and matching, ms a trip": uses("ms_per_trip"),
    "the same, working memory in MiB": uses("working_mib"),
    "training step of 64 trips on an H200, ms": [
        Line("alone", TRAIN, "ms", "#2b6ca3"),
        Line("in a row", TRAIN, "ms_in_a_row", "#2b6ca3", "--"),
    ],
    "the same, working memory in GiB": [Line("", TRAIN, "working_gib", "#2b6ca3")],
}


def latest(rows: list[dict[str, Any]], line: Line) -> dict[int, float]:
    """Return the figure of a line by the number of segments."""
    found: dict[int, float] = {}
    for row in rows:
        if all(row.get(name) == value for name, value in line.of.items()) and row.get(line.figure) is not None:
            found[row["segments"]] = row[line.figure]
    return dict(sorted(found.items()))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw the picture; an older row comes before a newer one."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=DPI, facecolor=PAPER, layout="constrained")
    for k, (title, lines) in enumerate(PANELS.items(), 1):
        axes: Axes = figure.add_subplot(2, 2, k, facecolor=PAPER)
        for line in lines:
            points = latest(rows, line)
            axes.plot(
                list(points), list(points.values()), color=line.colour, linestyle=line.dashes,
                marker="o", markersize=4, label=line.label,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xlim(4000, 1.3e6)
        if lines[0].of is TRAIN:
            axes.set_ylim(0, 1.2 * axes.get_ylim()[1])
            axes.set_xlabel("segments of the network", color=INK)
        else:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.set_ylim(low, high * 40 if k == 1 else high)  # above the lines there is room for their names
        axes.set_title(title, color=INK, fontsize=10, loc="left")
        axes.grid(alpha=0.3)
        if k % 2:
            axes.legend(fontsize=7, ncols=2, frameon=False, loc="upper left")
    save_figure(figure, path)


def main() -> None:
    """Draw the picture of a file of rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("rows", type=Path, nargs="?", default=ROOT / "results" / "scale.jsonl")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "img" / "scale.png")
    arguments = parser.parse_args()
    rows = [json.loads(line) for line in arguments.rows.read_text("utf-8").splitlines()]
    # Rows that have no date are of old and only repeat others.
    draw(sorted((row for row in rows if "date" in row), key=lambda row: str(row["date"])), arguments.output)


if __name__ == "__main__":
    main()
