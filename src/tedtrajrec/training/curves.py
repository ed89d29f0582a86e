"""Training curves as a picture."""

from __future__ import annotations

import json
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from tedtrajrec.files import existing_file, replacing


def plot_curves(run: str | Path) -> Path:
    """Draw the losses and the validation accuracy of a run by epoch into its ``curves.png``."""
    text = existing_file(Path(run) / "metrics.jsonl", "the metrics of a run").read_text("utf-8")
    rows = [json.loads(line) for line in text.splitlines()]
    epoch = [row["epoch"] + 1 for row in rows]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    left.plot(epoch, [row["loss_segment"] for row in rows], label="segment (cross entropy)")
    left.plot(epoch, [row["loss_ratio"] for row in rows], label="ratio (squared error)")
    left.set(xlabel="epoch", ylabel="training loss", yscale="log")
    left.legend(frameon=False)
    accuracy = [row["valid_accuracy"] for row in rows]
    best = max(range(len(rows)), key=accuracy.__getitem__)
    right.plot(epoch, accuracy, color="C2")
    right.plot(epoch[best], accuracy[best], "o", color="C2")
    right.annotate(
        f"{accuracy[best]:.3f}", (epoch[best], accuracy[best]), xytext=(0, -14), textcoords="offset points", ha="center"
    )
    right.set(xlabel="epoch", ylabel="validation accuracy")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    path = Path(run) / "curves.png"
    with replacing(path) as beside:
        figure.savefig(beside, dpi=110)
    return path
