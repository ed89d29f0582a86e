"""Pictures of road networks, and the map that pictures of trips are drawn on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from tedtrajrec.errors import OutputError
from tedtrajrec.files import replacing
from tedtrajrec.network.classes import CLASS_NUMBER
from tedtrajrec.network.roadnet import RoadNetwork

Box = tuple[float, float, float, float]  # left, bottom, right, top in metres on the network's plane

PAPER = "#fbfaf7"
INK = "#33312e"
DPI = 100

ROAD_STYLES: tuple[tuple[str, str, float, tuple[str, ...]], ...] = (
    ("other", "#c9c5bc", 0.6, ("service", "road")),
    ("living street", "#bcb7ad", 0.6, ("living_street",)),
    ("residential", "#a39d93", 0.7, ("unclassified", "residential")),
    ("tertiary", "#7d766c", 1.1, ("tertiary", "tertiary_link")),
    ("secondary", "#d9a441", 1.6, ("secondary", "secondary_link")),
    ("primary", "#d9722e", 2.1, ("primary", "primary_link")),
    ("trunk", "#c2412d", 2.6, ("trunk", "trunk_link")),
    ("motorway", "#8e2f5c", 2.8, ("motorway", "motorway_link")),
)
"""Label, colour, width in pixels and classes of each kind of road, in the order of drawing."""

LINKS = [number for name, number in CLASS_NUMBER.items() if name.endswith("_link")]
"""Slip roads, drawn narrower."""

FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}
"""Pictures by suffix, each with the entry of its metadata that is left out so that equal pictures are equal files."""


def plot_network(network: RoadNetwork, path: str | Path, *, width_px: int = 1600) -> None:
    """Draw the network as a map: roads by class, a scale bar, a legend, and whose data it is.

    Parameters
    ----------
    network
        What to draw.
    path
        The picture to write: .png, .svg or .pdf.
    width_px
        Its width in pixels (in an .svg, in units of 1/100 inch); the height follows from the shape of the city.
    """
    figure, axes, box = new_map(extent(network), width_px=width_px)
    drawn = draw_roads(axes, network, box)
    road_km = network.length_m[network.is_road].sum() / 1000
    title = f"{network.n_segments:,} segments, {network.n_nodes:,} nodes, {road_km:,.0f} km of road"
    add_title(axes, str(network.meta.get("source", "")), title)
    handles = [
        Line2D([], [], color=colour, linewidth=2.2, label=label)
        for label, colour, _, _ in reversed(ROAD_STYLES)
        if label in drawn
    ]
    add_legend(axes, handles)
    add_scale_bar(axes, box)
    add_attribution(axes, network)
    save_figure(figure, path)


# ---------------------------------------------------------------------- parts that maps are made of


def extent(network: RoadNetwork) -> Box:
    """Return the bounding box of the network with a small margin."""
    x, y = network.geom_xy
    margin = 0.02 * max(np.ptp(x), np.ptp(y), 100.0)
    return float(x.min() - margin), float(y.min() - margin), float(x.max() + margin), float(y.max() + margin)


def new_map(box: Box, *, width_px: int) -> tuple[Figure, Axes, Box]:
    """Return a figure as wide as asked for, axes in metres with room for a title above, and what they show."""
    left, bottom, right, top = box
    width = width_px / DPI
    height = width * float(np.clip((top - bottom) / (right - left), 0.4, 1.6))
    headroom = 0.55  # inches
    figure = Figure(figsize=(width, height + headroom), dpi=DPI, facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, height / (height + headroom)))
    return figure, axes, frame_map(axes, box)


def frame_map(axes: Axes, box: Box) -> Box:
    """Make ``axes`` a map in metres at one scale that shows ``box`` in the middle; return all that it shows."""
    left, bottom, right, top = box
    window = axes.get_window_extent()
    metres_per_px = max((right - left) / window.width, (top - bottom) / window.height)
    x, y = (left + right) / 2, (bottom + top) / 2
    half_width, half_height = window.width * metres_per_px / 2, window.height * metres_per_px / 2
    shown = (x - half_width, y - half_height, x + half_width, y + half_height)
    axes.set(xlim=(shown[0], shown[2]), ylim=(shown[1], shown[3]), xticks=[], yticks=[], facecolor=PAPER)
    axes.set_frame_on(False)
    return shown


def draw_roads(axes: Axes, network: RoadNetwork, box: Box, *, colour: str | None = None) -> set[str]:
    """Draw the roads that touch ``box``, each class in its style or all in one ``colour``; return the kinds drawn."""
    roads = np.flatnonzero(network.is_road & _touches(network, box))
    x, y = network.geom_xy
    vertices = np.column_stack([x, y])
    scale = width_scale(axes)
    drawn = set()
    for level, (label, own_colour, width, names) in enumerate(ROAD_STYLES):
        chosen = roads[np.isin(network.road_class[roads], [CLASS_NUMBER[name] for name in names])]
        if not len(chosen):
            continue
        drawn.add(label)
        lines = [vertices[network.geom_offset[i] : network.geom_offset[i + 1]] for i in chosen.tolist()]
        share = np.where(np.isin(network.road_class[chosen], LINKS), 0.6, 1.0)
        collection = LineCollection(
            lines,
            colors=colour or own_colour,
            linewidths=share * width * scale * 72 / DPI,
            capstyle="round",
            joinstyle="round",
            zorder=1 + level / 10,
        )
        axes.add_collection(collection, autolim=False)
    return drawn


def width_scale(axes: Axes) -> float:
    """Return how much wider than usual lines are drawn on these axes: more on a map of few streets."""
    metres_per_px = np.ptp(axes.get_xlim()) / axes.get_window_extent().width
    return float(np.clip((10.0 / metres_per_px) ** 0.4, 0.7, 3.0))


def add_title(axes: Axes, name: str, text: str) -> None:
    """Put a name in bold and a text above the map."""
    axes.annotate(
        name, (0, 1), xycoords="axes fraction", xytext=(14, 25), textcoords="offset points", color=INK,
        fontsize=13, fontweight="bold", va="center", annotation_clip=False,
    )  # fmt: skip
    axes.annotate(
        text, (0, 1), xycoords="axes fraction", xytext=(14, 9), textcoords="offset points", color=INK,
        fontsize=10, va="center", annotation_clip=False,
    )  # fmt: skip


def add_legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """Put a legend at the upper right."""
    legend = axes.legend(
        handles=handles, loc="upper right", fontsize=9, frameon=True, framealpha=0.85, edgecolor="none",
        facecolor=PAPER, labelcolor=INK, borderpad=0.7,
    )  # fmt: skip
    legend.set_zorder(10)


def add_scale_bar(axes: Axes, box: Box) -> None:
    """Draw a bar of a round number of metres at the lower left of a map that shows ``box``."""
    left, bottom, right, _ = box
    length = round_length(right - left)
    metres_per_px = (right - left) / axes.get_window_extent().width
    x, y = left + 20 * metres_per_px, bottom + 22 * metres_per_px
    axes.plot([x, x + length], [y, y], color=INK, linewidth=2.5, solid_capstyle="butt", zorder=9)
    label = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    axes.text(x + length / 2, y + 6 * metres_per_px, label, color=INK, fontsize=9, ha="center", va="bottom", zorder=9)


def round_length(width_m: float) -> float:
    """Return the largest of 1, 2, 5 times a power of ten that is at most a sixth of ``width_m``."""
    target = width_m / 6
    power = 10.0 ** np.floor(np.log10(target))
    return float(power * max(step for step in (1, 2, 5) if step * power <= target))


def add_attribution(axes: Axes, network: RoadNetwork) -> None:
    """Say whose data the map shows, if the network knows."""
    text = network.meta.get("attribution")
    if text:
        axes.text(
            0.995, 0.008, str(text), transform=axes.transAxes, ha="right", va="bottom", fontsize=8, color=INK, zorder=9,
            bbox={"facecolor": PAPER, "edgecolor": "none", "alpha": 0.8, "pad": 2},
        )  # fmt: skip


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure to a .png, .svg or .pdf file, whole or not at all; the same figure gives the same bytes."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise OutputError(
            f"{path}: a picture is written as {', '.join(FORMATS)}; give a name that ends in one of them."
        )
    with replacing(path) as beside, mpl.rc_context({"svg.hashsalt": "tedtrajrec"}):
        figure.savefig(beside, dpi=DPI, facecolor=figure.get_facecolor(), metadata={FORMATS[suffix]: None})


def _touches(network: RoadNetwork, box: Box) -> NDArray[np.bool_]:
    """Return the segments whose bounding boxes meet ``box`` [S]."""
    (x, y), start = network.geom_xy, network.geom_offset[:-1]
    left, bottom, right, top = box
    return (
        (np.maximum.reduceat(x, start) >= left)
        & (np.minimum.reduceat(x, start) <= right)
        & (np.maximum.reduceat(y, start) >= bottom)
        & (np.minimum.reduceat(y, start) <= top)
    )
