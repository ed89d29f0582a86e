"""A picture of simulated traffic: trips under way and speeds by hour, and maps of congestion at three times of day."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.geodesy import short_distance_m
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
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.simulation.world import World
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]

LEVEL_STYLES = (
    ("motorway, trunk", "#8e2f5c"),
    ("primary, secondary", "#d9722e"),
    ("tertiary, unclassified", "#5b8a72"),
    ("residential and less", "#7d766c"),
)
DAY_STYLES = (("Monday to Friday", INK), ("weekend", "#4a7fb5"))
MAP_HOURS = (3.0, 8.5, 18.25)
SCALE = (0.25, 1.0)  # of the colours: speed as a share of that on empty roads


def plot_traffic(
    network: RoadNetwork, trips: Trips, path: str | Path, *, config: SimulationConfig, width_px: int = 1600
) -> None:
    """Draw the traffic of simulated trips by hour, and where roads are slow at night and in both rush hours.

    Parameters
    ----------
    network, trips, config
        What :func:`~tedtrajrec.trips.simulate.simulate_trips` was given and what it returned.
    path
        The picture to write: .png, .svg or .pdf.
    width_px
        Its width in pixels.
    """
    if trips.segment is None or trips.ratio is None or not len(trips):
        raise InputError("traffic is drawn from trips with segments and ratios, and there are none")
    world = World.build(network, config)
    lon, lat = network.point_at(trips.segment, trips.ratio)
    width, height = width_px / DPI, width_px / DPI * 0.62
    figure = Figure(figsize=(width, height), dpi=DPI, facecolor=PAPER)
    left, right = figure.add_axes((0.055, 0.57, 0.42, 0.33)), figure.add_axes((0.55, 0.57, 0.43, 0.33))
    hour, weekend = _local_hours(world, trips.time)
    _draw_under_way(left, world, hour, weekend, trips.time)
    weekdays = (np.diff(trips.trip_of_fix) == 0) & ~weekend[:-1]
    kmh = 3.6 * short_distance_m(lon[:-1], lat[:-1], lon[1:], lat[1:])[weekdays] / np.diff(trips.time)[weekdays]
    _draw_speeds(right, kmh, hour[:-1][weekdays], world.roads.level[trips.segment[:-1][weekdays]])
    for axes in (left, right):
        axes.set(xlim=(0, 24), xticks=range(0, 25, 3), xlabel="local hour", facecolor=PAPER)
        axes.set_ylim(bottom=0)
        axes.grid(color=INK, alpha=0.12, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(colors=INK, labelsize=9)
        axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    box = _middle(world)
    for number, at in enumerate(MAP_HOURS):
        axes = figure.add_axes((0.01 + 0.33 * number, 0.075, 0.32, 0.4))
        lines = _draw_congestion(axes, world, at, box)
    bar = figure.colorbar(lines, cax=figure.add_axes((0.36, 0.05, 0.28, 0.014)), orientation="horizontal")
    bar.set_label("speed as a share of that on the empty road; two-way roads: keep right", color=INK, fontsize=9)
    bar.ax.tick_params(labelsize=8, colors=INK)
    text = f"{len(trips):,} simulated trips, {config.calendar.days} days from {config.calendar.start}"
    figure.text(0.012, 0.965, "Traffic by hour", color=INK, fontsize=13, fontweight="bold", va="center")
    figure.text(0.012, 0.938, f"{text}, {config.calendar.time_zone}", color=INK, fontsize=10, va="center")
    save_figure(figure, path)


def _local_hours(world: World, time: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the local hour of each time, and whether its day is of the weekend."""
    row = world.clock.row[np.minimum((time - world.clock.start) // world.clock.slot_s, len(world.clock.row) - 1)]
    per_day = 86_400 // world.clock.slot_s
    return row % per_day * 24 // per_day, row >= per_day


def _draw_under_way(
    axes: Axes, world: World, hour: NDArray[np.int64], weekend: NDArray[np.bool_], time: NDArray[np.int64]
) -> None:
    step_s = int(time[1] - time[0])
    n_slots = (world.clock.end - world.clock.start) // world.clock.slot_s
    slots_weekend = world.clock.row[:n_slots] >= 86_400 // world.clock.slot_s
    for is_weekend, (label, colour) in enumerate(DAY_STYLES):
        days = (slots_weekend == bool(is_weekend)).sum() * world.clock.slot_s / 86_400
        if days:
            fixes = np.bincount(hour[weekend == bool(is_weekend)], minlength=24)
            _draw_by_hour(axes, fixes * step_s / 3600 / days, label, colour)
    axes.set_title("trips under way at a time", color=INK, fontsize=11, loc="left")


def _draw_speeds(axes: Axes, kmh: Floats, hour: NDArray[np.int64], level: NDArray[np.int64]) -> None:
    """Draw how fast cars get from one step to the next, halts included, by the level of the road they start it on."""
    for number, (label, colour) in enumerate(LEVEL_STYLES):
        chosen = level == number
        count = np.bincount(hour[chosen], minlength=24)
        total = np.bincount(hour[chosen], weights=kmh[chosen], minlength=24)
        _draw_by_hour(axes, np.where(count >= 20, total / np.maximum(count, 1), np.nan), label, colour)
    axes.set_title("mean speed on weekdays, halts included (km/h)", color=INK, fontsize=11, loc="left")


def _draw_by_hour(axes: Axes, values: Floats, label: str, colour: str) -> None:
    axes.plot(np.arange(24) + 0.5, values, color=colour, label=label, linewidth=2, marker="o", markersize=3.5)


def _middle(world: World) -> Box:
    """Return the box that holds nearly all ends of trips."""
    x, y = (world.roads.from_x + world.roads.to_x) / 2, (world.roads.from_y + world.roads.to_y) / 2
    left, right = np.quantile(x, (0.015, 0.985))
    bottom, top = np.quantile(y, (0.01, 0.99))
    return float(left), float(bottom), float(right), float(top)


def _draw_congestion(axes: Axes, world: World, hour: float, box: Box) -> LineCollection:
    network, roads = world.network, world.roads
    shown = frame_map(axes, box)
    draw_roads(axes, network, shown, colour="#e3dfd6")
    load = world.load[int(hour * 60) // world.config.traffic.slot_minutes]
    chosen = np.flatnonzero(roads.level <= 2)
    chosen = chosen[np.argsort(load[chosen], kind="stable")]  # the slowest on top
    x, y = network.geom_xy
    aside = 1.2 * (shown[2] - shown[0]) / axes.get_window_extent().width  # metres, so that both directions are seen
    lines = []
    for i in chosen.tolist():
        part = slice(network.geom_offset[i], network.geom_offset[i + 1])
        shift = aside if network.twin[i] >= 0 else 0.0
        lines.append(np.column_stack([x[part] + shift * roads.start_y[i], y[part] - shift * roads.start_x[i]]))
    collection = LineCollection(lines, array=1 / (1 + load[chosen]), cmap="RdYlGn", linewidths=1.1, zorder=3)
    collection.set_clim(*SCALE)
    axes.add_collection(collection, autolim=False)
    clock = f"{int(hour)}:{round(hour % 1 * 60):02d}"
    axes.set_title(f"congestion on a weekday at {clock}", color=INK, fontsize=11, loc="left")
    add_scale_bar(axes, shown)
    add_attribution(axes, network)
    return collection
