"""The picture of a case study: a map for each method, with the truth, the fixes and where it is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from tedtrajrec.evaluation.drivable import MOTORWAY_MPS
from tedtrajrec.evaluation.run import truth_of
from tedtrajrec.experiments.case_study_choice import Area, Case
from tedtrajrec.experiments.reporting.paper import label_of
from tedtrajrec.network.plot import (
    DPI,
    INK,
    PAPER,
    Box,
    add_attribution,
    add_scale_bar,
    draw_roads,
    frame_map,
    save_figure,
)
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.plot import STREETS

Floats = NDArray[np.float64]

TRUTH = "#9cc3e6"
SHIFTED = "#e0962e"
RIGHT = "#1d6b45"
WRONG = "#c8372d"
JUMP = (0, (1.5, 2.0))
COLUMNS = 3
PANEL_IN = 5.0  # width of a map in inches
HEAD_IN = 0.62  # above each map
FOOT_IN = 0.4  # below all, for each line of the legend
ASTRAY_M = 250.0  # answers farther outside of the truth do not widen the map

_FIX: dict[str, Any] = {"marker": "o", "color": INK, "markersize": 11, "markerfacecolor": "none", "mew": 1.6}
_RIGHT: dict[str, Any] = {"marker": "o", "color": RIGHT, "markersize": 5.5}
_SHIFTED: dict[str, Any] = {"marker": "D", "color": SHIFTED, "markersize": 5.5}
_WRONG: dict[str, Any] = {"marker": "x", "color": WRONG, "markersize": 7, "markeredgewidth": 2}


def plot_case(network: RoadNetwork, case: Case, files: Sequence[Path]) -> None:
    """Draw a case into one or several files of different formats."""
    n = len(case.methods)
    columns = min(COLUMNS, n) if n != 4 else 2  # four make a square
    lines = -(-n // columns)
    box = _shown(network, case)
    height = PANEL_IN * float(np.clip((box[3] - box[1]) / (box[2] - box[0]), 0.6, 1.3))
    handles = _handles()
    whole = lines * (height + HEAD_IN) + FOOT_IN * -(-len(handles) // (2 * columns))
    figure = Figure(figsize=(columns * PANEL_IN, whole), dpi=DPI, facecolor=PAPER)
    for k in range(n):
        line, column = divmod(k, columns)
        bottom = whole - (line + 1) * (height + HEAD_IN)
        axes = figure.add_axes(
            ((column + 0.015) / columns, bottom / whole, 0.97 / columns, height / whole), label=case.methods[k]
        )
        _draw_method(axes, network, case, k, box)
    add_attribution(figure.axes[-1], network)
    figure.legend(handles=handles, loc="lower center", ncols=2 * columns, frameon=False, labelcolor=INK, fontsize=10)
    for file in files:
        save_figure(figure, file)


def _draw_method(axes: Axes, network: RoadNetwork, case: Case, k: int, box: Box) -> None:
    shown = frame_map(axes, box)
    draw_roads(axes, network, shown, colour=STREETS)
    reach_m = MOTORWAY_MPS * case.step_s
    true, right, on_route = truth_of(case.trip), case.right[k], case.on_route[k]
    ways, _ = step_lines(network, *true, reach_m=reach_m)
    axes.add_collection(LineCollection(ways, colors=TRUTH, linewidths=9, capstyle="round", zorder=3), autolim=False)
    ways, driven = step_lines(network, case.segment[k], case.ratio[k], reach_m=reach_m)
    fine = on_route[:-1] & on_route[1:]
    for chosen, colour, style, width in (
        (driven & fine, RIGHT, "-", 2.6),
        (driven & ~fine, WRONG, "-", 2.6),
        (~driven, WRONG, JUMP, 1.5),
    ):
        some = [way for way, is_chosen in zip(ways, chosen, strict=True) if is_chosen]
        axes.add_collection(
            LineCollection(some, colors=colour, linestyles=[style], linewidths=width, capstyle="round", zorder=4),
            autolim=False,
        )
    x, y = network.plane.to_xy(*network.point_at(case.segment[k], case.ratio[k]))
    for chosen, look in ((right, _RIGHT), (on_route & ~right, _SHIFTED), (~on_route, _WRONG)):
        axes.plot(x[chosen], y[chosen], linestyle="none", zorder=6, **look)
    fix_x, fix_y = network.plane.to_xy(case.trip.lon[case.observed], case.trip.lat[case.observed])
    axes.plot(fix_x, fix_y, linestyle="none", zorder=7, **_FIX)
    axes.plot(fix_x[:1], fix_y[:1], "s", color=INK, markersize=5, zorder=7)
    for area in case.areas:
        _draw_area(axes, network, case, area, shown)
    _add_head(axes, case, k)
    if k == 0:
        add_scale_bar(axes, shown)
    axes.set_frame_on(True)
    for spine in axes.spines.values():
        spine.set(color=INK, linewidth=0.8)


def _draw_area(axes: Axes, network: RoadNetwork, case: Case, area: Area, shown: Box) -> None:
    left, bottom, right, top = _around(network, case, area, margin_m=0.025 * (shown[2] - shown[0]))
    left, right = max(left, shown[0]), min(right, shown[2])
    bottom, top = max(bottom, shown[1]), min(top, shown[3])
    axes.add_patch(
        Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor=INK, linewidth=1.3, zorder=8)
    )
    x, y = network.plane.to_xy(*network.point_at(*truth_of(case.trip)))
    at_left, at_right = (float(np.hypot(x - side, y - top).min()) for side in (left, right))
    side, align, shift = (left, "left", 2.5) if at_left >= at_right else (right, "right", -2.5)  # away from the trip
    axes.annotate(
        area.letter, (side, top), xytext=(shift, 4), textcoords="offset points", ha=align, va="bottom", fontsize=11,
        fontweight="bold", color=PAPER, zorder=9, bbox={"facecolor": INK, "edgecolor": "none", "pad": 2.5},
    )  # fmt: skip


def _add_head(axes: Axes, case: Case, k: int) -> None:
    """Put the method above its map, and how many of its steps are right and on the true route."""
    right, on_route = case.right[k], case.on_route[k]
    text = f"true segment {int(right.sum())} of {len(right)} steps, true route {int(on_route.sum())}"
    for words, place, size, weight in ((label_of(case.methods[k]), 24, 13, "bold"), (text, 9, 10, "normal")):
        axes.annotate(
            words, (0, 1), xycoords="axes fraction", xytext=(2, place), textcoords="offset points", color=INK,
            fontsize=size, fontweight=weight, va="center", annotation_clip=False,
        )  # fmt: skip


def step_lines(
    network: RoadNetwork, segment: NDArray[np.int32], ratio: Floats, *, reach_m: float
) -> tuple[list[Floats], NDArray[np.bool_]]:
    """Return a line from each step to the next in metres, and which of these can be driven.

    Parameters
    ----------
    network
        The road network.
    segment, ratio
        The positions at the steps [n].
    reach_m
        How far one drives in a step at most. Where the way is longer or there is none, and backwards on a segment, the
        line is straight.
    """
    points = np.column_stack(network.plane.to_xy(*network.point_at(segment, ratio)))
    lines = list(np.stack([points[:-1], points[1:]], axis=1))
    routes = Router(network).routes(segment[:-1], ratio[:-1], segment[1:], ratio[1:], limit_m=reach_m)
    back = (segment[1:] == segment[:-1]) & (ratio[1:] < ratio[:-1])
    offsets, lon, lat = routes.geometry(network)
    vertices = np.column_stack(network.plane.to_xy(lon, lat))
    driven = (np.diff(offsets) > 0) & ~back
    for k in np.flatnonzero(driven).tolist():
        lines[k] = vertices[offsets[k] : offsets[k + 1]]
    return lines, driven | back


def _shown(network: RoadNetwork, case: Case) -> Box:
    """Return what the maps show: truth and fixes, and answers not far astray."""
    true_x, true_y = network.plane.to_xy(*network.point_at(*truth_of(case.trip)))
    fix_x, fix_y = network.plane.to_xy(case.trip.lon[case.observed], case.trip.lat[case.observed])
    x, y = network.plane.to_xy(*network.point_at(case.segment.ravel(), case.ratio.ravel()))
    x = np.clip(x, true_x.min() - ASTRAY_M, true_x.max() + ASTRAY_M)
    y = np.clip(y, true_y.min() - ASTRAY_M, true_y.max() + ASTRAY_M)
    x, y = np.concatenate([true_x, fix_x, x]), np.concatenate([true_y, fix_y, y])
    return _box(x, y, 0.08 * max(float(np.ptp(x)), float(np.ptp(y)), 400.0))


def _around(network: RoadNetwork, case: Case, area: Area, *, margin_m: float) -> Box:
    """Return the box of an area: around the truth and the answers there."""
    segment, ratio = truth_of(case.trip)
    segments = np.concatenate([segment[area.steps], case.segment[:, area.steps].ravel()])
    ratios = np.concatenate([ratio[area.steps], case.ratio[:, area.steps].ravel()])
    return _box(*network.plane.to_xy(*network.point_at(segments, ratios)), margin_m)


def _box(x: Floats, y: Floats, margin_m: float) -> Box:
    return float(x.min()) - margin_m, float(y.min()) - margin_m, float(x.max()) + margin_m, float(y.max()) + margin_m


def _handles() -> list[Line2D]:
    return [
        Line2D([], [], linestyle="none", label="fix (the first filled)", **_FIX),
        Line2D([], [], color=TRUTH, linewidth=8, label="truth"),
        Line2D([], [], linewidth=2.6, label="true segment", **_RIGHT),
        Line2D([], [], linestyle="none", label="true route, early or late", **_SHIFTED),
        Line2D([], [], linewidth=2.6, label="off the true route", **_WRONG),
        Line2D([], [], color=WRONG, linewidth=1.5, linestyle=JUMP, label="cannot be driven in a step"),
    ]
