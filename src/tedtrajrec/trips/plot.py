"""Pictures of trips on the road network: all of them, and one from close by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.plot import (
    DPI,
    INK,
    PAPER,
    Box,
    add_attribution,
    add_legend,
    add_scale_bar,
    add_title,
    draw_roads,
    extent,
    frame_map,
    save_figure,
)
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import Trips

STREETS = "#d6d2c9"
TRUTH = "#2b6ca3"
SPARSE = "#c8372d"
LONGEST_DETOUR_M = 5000.0  # between two fixes; a longer way round would say more about the map than about the trip


def plot_trips(
    network: RoadNetwork,
    trips: Trips,
    path: str | Path,
    *,
    sparse: Trips | None = None,
    most: int = 300,
    width_px: int = 1800,
) -> None:
    """Draw trips over the network in grey, and beside it one of them from close by with every fix.

    Where trips are matched, they are drawn at their positions on the road, else at their fixes.

    Parameters
    ----------
    network
        The streets below.
    trips
        The dense trips.
    path
        The picture to write: .png, .svg or .pdf.
    sparse
        The same trips thinned, drawn as dots; they are found by ``traj_id``.
    most
        How many trips are drawn at most, spread evenly over all.
    width_px
        Width of the picture in pixels.

    Raises
    ------
    InputError
        If there is no trip with two fixes, the trips belong to another network, or ``sparse`` holds none of them.
    """
    can_be_drawn = np.flatnonzero(trips.lengths >= 2)
    if not len(can_be_drawn):
        raise InputError("there is no trip of at least two fixes to draw")
    chosen = can_be_drawn[np.linspace(0, len(can_be_drawn) - 1, min(most, len(can_be_drawn))).astype(np.int64)]
    drawn = trips.select(chosen)
    west, south, east, north = network.bbox
    if not ((drawn.lon >= west) & (drawn.lon <= east) & (drawn.lat >= south) & (drawn.lat <= north)).any():
        raise InputError("no trip comes near this road network", remedy="Give the network of their city.")
    dots = None if sparse is None else _matching(drawn, sparse)

    figure = Figure(figsize=(width_px / DPI, 0.58 * width_px / DPI), dpi=DPI, facecolor=PAPER)
    overview = figure.add_axes((0.005, 0.012, 0.56, 0.925))
    close_up = figure.add_axes((0.575, 0.012, 0.42, 0.925))
    _draw_all(overview, network, drawn, dots)
    count = f"{len(drawn):,} of them drawn" if len(drawn) < len(trips) else "all of them drawn"
    add_title(overview, f"{len(trips):,} trips, {trips.n_fixes:,} fixes", count)
    add_attribution(overview, network)
    trip = _telling_trip(drawn, dots)
    left, bottom, right, top = _draw_one(
        close_up, network, drawn.select([trip]), None if dots is None else dots.select([trip])
    )
    outline = Rectangle((left, bottom), right - left, top - bottom, fill=False, edgecolor=INK, linewidth=0.8, zorder=8)
    overview.add_patch(outline)
    save_figure(figure, path)


def _draw_all(axes: Axes, network: RoadNetwork, trips: Trips, dots: Trips | None) -> None:
    box = frame_map(axes, extent(network))
    draw_roads(axes, network, box, colour=STREETS)
    opacity = float(np.clip(6 / np.sqrt(len(trips)), 0.15, 0.9))
    lines = drawn_paths(network, trips)
    axes.add_collection(LineCollection(lines, colors=TRUTH, linewidths=1.1, alpha=opacity, zorder=3), autolim=False)
    if dots is not None:
        x, y = network.plane.to_xy(dots.lon, dots.lat)
        axes.plot(x, y, ".", color=SPARSE, markersize=2.5, alpha=min(1.0, 1.6 * opacity), zorder=4)
    add_scale_bar(axes, box)


def _draw_one(axes: Axes, network: RoadNetwork, trip: Trips, dots: Trips | None) -> Box:
    """Draw one trip with every fix and return what the map shows."""
    x, y = _places(network, trip)
    box = frame_map(axes, box_around(x, y))
    draw_roads(axes, network, box, colour=STREETS)
    what = "fix" if trip.segment is None else "position on the road"
    label = f"{what} every {np.median(np.diff(trip.time)):g} s ({trip.n_fixes})"
    lines = LineCollection(drawn_paths(network, trip), colors=TRUTH, linewidths=1.6, zorder=4)
    axes.add_collection(lines, autolim=False)
    handles = axes.plot(x, y, "o", color=TRUTH, markersize=4, zorder=4, label=label)
    if dots is not None:
        sparse_x, sparse_y = network.plane.to_xy(dots.lon, dots.lat)
        handles += axes.plot(
            sparse_x, sparse_y, linestyle=(0, (4, 3)), linewidth=1.1, color=SPARSE, marker="o", markersize=9,
            markerfacecolor="none", markeredgewidth=1.8, zorder=5, label=f"sparse fix ({dots.n_fixes})",
        )  # fmt: skip
    handles += axes.plot(x[:1], y[:1], "s", color=INK, markersize=7, zorder=6, label="start")
    add_legend(axes, handles)
    add_scale_bar(axes, box)
    name = str(trip.traj_id[0])
    name = name if len(name) <= 40 else f"{name[:39]}…"
    add_title(axes, f"Trip {name}", f"{(trip.time[-1] - trip.time[0]) / 60:.0f} minutes")
    axes.set_frame_on(True)
    for spine in axes.spines.values():
        spine.set(color=INK, linewidth=0.8)
    return box


def _places(network: RoadNetwork, trips: Trips) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where fixes are drawn, in metres: on the road where matched, else where GPS saw them."""
    lon, lat = trips.lon.copy(), trips.lat.copy()
    if trips.segment is not None and trips.ratio is not None:
        known = trips.segment >= 0
        if trips.segment.max(initial=-1) >= network.n_segments:
            raise InputError(
                f"segment {trips.segment.max()} is not in this network of {network.n_segments:,} segments",
                field="segment",
                remedy="Give the network that the trips were matched or simulated on.",
            )
        lon[known], lat[known] = network.point_at(trips.segment[known], trips.ratio[known])
    return network.plane.to_xy(lon, lat)


def drawn_paths(network: RoadNetwork, trips: Trips) -> list[NDArray[np.float64]]:
    """Return a line from each fix to the next, in metres: along the road where both are matched and a route exists."""
    points = np.column_stack(_places(network, trips))
    start = np.flatnonzero(np.diff(trips.trip_of_fix) == 0)
    lines = list(np.stack([points[start], points[start + 1]], axis=1))
    if trips.segment is None or trips.ratio is None:
        return lines
    matched = np.flatnonzero((trips.segment[start] >= 0) & (trips.segment[start + 1] >= 0))
    a, b = start[matched], start[matched] + 1
    routes = Router(network).routes(
        trips.segment[a], trips.ratio[a], trips.segment[b], trips.ratio[b], limit_m=LONGEST_DETOUR_M
    )
    offsets, lon, lat = routes.geometry(network)
    vertices = np.column_stack(network.plane.to_xy(lon, lat))
    for line, first, last in zip(matched, offsets[:-1], offsets[1:], strict=True):
        if last > first:
            lines[line] = vertices[first:last]
    return lines


def _matching(trips: Trips, sparse: Trips) -> Trips:
    """Return the sparse trips in the order of ``trips``; one that is missing has no fixes."""
    number = {str(name): i for i, name in enumerate(sparse.traj_id)}
    found = np.array([number.get(str(name), -1) for name in trips.traj_id])
    if (found < 0).all():
        raise InputError("the sparse trips have none of the ids of the trips", field="traj_id")
    present = found >= 0
    own = sparse.select(found[present])
    count = np.zeros(len(trips), np.int64)
    count[present] = own.lengths
    return Trips(
        traj_id=trips.traj_id,
        offsets=np.concatenate([[0], np.cumsum(count)]),
        time=own.time,
        lon=own.lon,
        lat=own.lat,
    )


def _telling_trip(trips: Trips, dots: Trips | None) -> int:
    """Return the trip to show from close by: one of the longer ones, with sparse fixes where there are any."""
    fit = np.arange(len(trips)) if dots is None else np.flatnonzero(dots.lengths > 0)
    by_length = fit[np.argsort(trips.lengths[fit], kind="stable")]
    return int(by_length[(3 * len(by_length)) // 4])


def box_around(x: NDArray[np.float64], y: NDArray[np.float64]) -> Box:
    """Return the box of some points with a margin."""
    margin = 0.08 * max(float(np.ptp(x)), float(np.ptp(y)), 200.0)
    return float(x.min()) - margin, float(y.min()) - margin, float(x.max()) + margin, float(y.max()) + margin
