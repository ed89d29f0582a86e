"""The road network as the simulation's kernels see it: levels, speeds, headings and waits at the end of segments."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.simulation.config import Crossing, SimulationConfig

Floats = NDArray[np.float64]

_LEVEL_OF_CLASS = np.array(
    [
        {"motorway": 0, "trunk": 0, "primary": 1, "secondary": 1, "tertiary": 2, "unclassified": 2}.get(
            name.removesuffix("_link"), 3
        )
        for name in ROAD_CLASSES
    ]
)


class Roads(NamedTuple):
    """S segments; coordinates in metres on the network's plane."""

    length: Floats  # [S] metres
    speed: Floats  # [S] m/s on an empty road
    level: NDArray[np.int64]  # [S] index into LEVELS
    area: NDArray[np.int64]  # [S] number of the area it lies in
    stop_share: Floats  # [S] how often one stops at its end
    wait_s: Floats  # [S] mean wait there
    from_x: Floats  # [S]
    from_y: Floats
    to_x: Floats
    to_y: Floats
    start_x: Floats  # [S] unit vector of the heading at the start
    start_y: Floats
    end_x: Floats  # [S] and at the end
    end_y: Floats
    twin: NDArray[np.int32]  # [S] the other direction of the same road, or -1
    succ_offset: NDArray[np.int64]  # [S+1]
    succ: NDArray[np.int32]
    connected: NDArray[np.bool_]  # [S] whether it lies in the largest strong component


def build_roads(network: RoadNetwork, config: SimulationConfig) -> Roads:
    """Derive from a network what the kernels need."""
    level = _LEVEL_OF_CLASS[network.road_class]
    x, y = network.geom_xy
    first, last = network.geom_offset[:-1], network.geom_offset[1:] - 1
    node_x, node_y = network.plane.to_xy(network.node_lon, network.node_lat)
    start_x, start_y = _unit(x[first + 1] - x[first], y[first + 1] - y[first])
    end_x, end_y = _unit(x[last] - x[last - 1], y[last] - y[last - 1])
    stop_share, wait_s = _crossings(network, level, config)
    cell_m = config.traffic.patch_m
    column = np.floor((x[first] + x[last]) / 2 / cell_m).astype(np.int64)
    row = np.floor((y[first] + y[last]) / 2 / cell_m).astype(np.int64)
    return Roads(
        length=np.maximum(network.length_m, 0.01),  # so that no ratio is 0 / 0
        speed=network.speed_mps * np.array(config.traffic.speed_share)[level],
        level=level,
        area=column * 100_003 + row,
        stop_share=stop_share,
        wait_s=wait_s,
        from_x=node_x[network.seg_from],
        from_y=node_y[network.seg_from],
        to_x=node_x[network.seg_to],
        to_y=node_y[network.seg_to],
        start_x=start_x,
        start_y=start_y,
        end_x=end_x,
        end_y=end_y,
        twin=network.twin,
        succ_offset=network.succ_offset,
        succ=network.succ,
        connected=strong_components(network) == 0,
    )


def _unit(dx: Floats, dy: Floats) -> tuple[Floats, Floats]:
    norm = np.maximum(np.hypot(dx, dy), 1e-9)
    return dx / norm, dy / norm


def _crossings(network: RoadNetwork, level: NDArray[np.int64], config: SimulationConfig) -> tuple[Floats, Floats]:
    """Return how often and how long one waits at the end of each segment.

    A junction is a node with three or more neighbours. What kind it is for a segment follows from the levels of the
    roads that meet there; motorways and trunk roads have no junctions in this sense.
    """
    s, n = network.n_segments, network.n_nodes
    ends = np.concatenate([network.seg_from, network.seg_to])
    others = np.concatenate([network.seg_to, network.seg_from])
    pairs = np.unique(np.column_stack([ends, others]), axis=0)
    junction = np.bincount(pairs[:, 0], minlength=n) >= 3
    legs = np.zeros((n, 4), np.int64)  # neighbours by the level of the best road to them
    best = np.full(n, 3)
    by_pair = np.lexsort([np.concatenate([level, level]), others, ends])
    new = np.ones(2 * s, bool)
    new[1:] = (np.diff(ends[by_pair]) != 0) | (np.diff(others[by_pair]) != 0)
    leg = by_pair[new]
    np.add.at(legs, (ends[leg], np.concatenate([level, level])[leg]), 1)
    np.minimum.at(best, ends, np.concatenate([level, level]))
    node = network.seg_to
    signals = (legs[node, 0] + legs[node, 1] >= 3) & (level >= 1)
    kinds: list[tuple[NDArray[np.bool_], Crossing]] = [
        (signals, config.driving.signals),
        (level > best[node], config.driving.give_way),
        (legs[node, level] <= 2, config.driving.priority),
        (np.ones(s, bool), config.driving.equal),
    ]
    conditions = [~junction[node] | (level == 0), *(condition for condition, _ in kinds)]
    share = np.select(conditions, [0.0, *(crossing.stop_share for _, crossing in kinds)])
    wait = np.select(conditions, [0.0, *(crossing.wait_s for _, crossing in kinds)])
    return share, wait
