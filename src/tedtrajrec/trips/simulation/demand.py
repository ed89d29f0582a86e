"""Where trips start and end: hot spots of three kinds, whose pull changes with the hour."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.clock import wave
from tedtrajrec.trips.simulation.config import KINDS, SimulationConfig
from tedtrajrec.trips.simulation.roads import Roads

Floats = NDArray[np.float64]

_DRAWS = 40  # destinations looked at before another origin is drawn


class Spots(NamedTuple):
    """The hot spots of a city, in metres on the network's plane."""

    x: Floats
    y: Floats
    kind: NDArray[np.int64]  # index into KINDS
    radius: Floats
    weight: Floats


class Demand(NamedTuple):
    """What the kernel draws ends of trips from; the fourth kind of end is anywhere."""

    pull: Floats  # [4, S] cumulated share of ends on each segment, by kind
    origins: Floats  # [rows, 4] cumulated share of each kind among origins
    destinations: Floats  # [rows, 4] and among destinations
    distance_m: float
    distance_sigma: float
    least_m: float
    most_m: float


def build_spots(network: RoadNetwork, roads: Roads, config: SimulationConfig) -> Spots:
    """Return the hot spots that the settings give, or draw them where roads are dense."""
    demand = config.demand
    if demand.spots:
        x, y = network.plane.to_xy([s.lon for s in demand.spots], [s.lat for s in demand.spots])
        west, south, east, north = network.bbox
        for spot in demand.spots:
            if not (west <= spot.lon <= east and south <= spot.lat <= north):
                raise InputError(
                    f"hot spot ({spot.lon}, {spot.lat}) of the settings lies outside the road network",
                    remedy="Give settings made for this city, or remove demand.spots to have hot spots drawn.",
                )
        return Spots(
            np.asarray(x),
            np.asarray(y),
            np.array([KINDS.index(s.kind) for s in demand.spots]),
            np.array([s.radius_m for s in demand.spots]),
            np.array([s.weight for s in demand.spots]),
        )
    rng = np.random.default_rng([config.world_seed, 1])
    usable = roads.connected & (np.array(demand.by_level)[roads.level] > 0)
    _, area = np.unique(roads.area, return_inverse=True)
    density = np.bincount(area, weights=network.length_m * usable)[area]
    numbers = (demand.home_spots, demand.work_spots, demand.leisure_spots)
    chosen = []
    for number, crowding in zip(numbers, (0.3, 1.5, 1.5), strict=True):  # offices and bars crowd together, homes spread
        weight = network.length_m * usable * density**crowding
        if weight.sum() == 0:
            raise _hopeless("it has no connected roads of the levels that trips may start on")
        chosen.append(rng.choice(len(weight), number, p=weight / weight.sum()))
    where = np.concatenate(chosen)
    return Spots(
        (roads.from_x[where] + roads.to_x[where]) / 2,
        (roads.from_y[where] + roads.to_y[where]) / 2,
        np.repeat(np.arange(3), numbers),
        demand.radius_m * np.exp(rng.normal(0, 0.35, len(where))),
        rng.exponential(1.0, len(where)) + 0.3,
    )


def build_demand(roads: Roads, spots: Spots, config: SimulationConfig) -> Demand:
    """Turn hot spots and the waves of the day into tables to draw from."""
    demand, calendar = config.demand, config.calendar
    middle_x, middle_y = (roads.from_x + roads.to_x) / 2, (roads.from_y + roads.to_y) / 2
    ready = roads.length * np.array(demand.by_level)[roads.level] * roads.connected
    if ready.sum() == 0:
        raise _hopeless("it has no connected roads of the levels that trips may start on")
    pull = np.empty((4, len(ready)))
    for kind in range(3):
        bell = np.zeros(len(ready))
        for i in np.flatnonzero(spots.kind == kind):
            square = (middle_x - spots.x[i]) ** 2 + (middle_y - spots.y[i]) ** 2
            bell += spots.weight[i] / spots.radius[i] ** 2 * np.exp(-0.5 * square / spots.radius[i] ** 2)
        pull[kind] = ready * bell
        if pull[kind].sum() == 0:
            raise _hopeless(f"no road lies near any {KINDS[kind]} spot")
    pull[3] = ready
    pull = np.cumsum(pull, axis=1)
    pull /= pull[:, -1:]
    minutes = config.traffic.slot_minutes
    morning, evening, night = (wave(p, minutes) for p in (calendar.morning, calendar.evening, calendar.night))
    still = np.ones_like(morning)
    return Demand(
        pull=pull,
        origins=_mix(
            still + demand.flow * morning, still + demand.flow * evening, still + demand.flow * night, demand.everywhere
        ),
        destinations=_mix(
            still + demand.flow * (evening + night),
            still + demand.flow * morning,
            still + demand.flow * evening / 2,
            demand.everywhere,
        ),
        distance_m=demand.distance_m,
        distance_sigma=demand.distance_sigma,
        least_m=demand.least_m,
        most_m=demand.most_m,
    )


def _mix(home: Floats, work: Floats, leisure: Floats, everywhere: float) -> Floats:
    kinds = np.column_stack([home, work, leisure])
    kinds *= (1 - everywhere) / kinds.sum(axis=1, keepdims=True)
    cumulated = np.cumsum(np.column_stack([kinds, np.full(len(kinds), everywhere)]), axis=1)
    cumulated[:, -1] = 1.0
    return cumulated


def _hopeless(why: str) -> InputError:
    return InputError(
        f"trips cannot be simulated on this road network: {why}",
        remedy="Build the network with --largest-component, or change demand in the settings.",
    )


@njit(cache=True, nogil=True)
def _draw_end(pull: Floats, mix: Floats, stream: chance.Stream) -> tuple[int, float]:  # pragma: no cover  (compiled)
    kind = min(int(np.searchsorted(mix, chance.uniform(stream), side="right")), 3)
    segment = int(np.searchsorted(pull[kind], chance.uniform(stream), side="right"))
    return min(segment, pull.shape[1] - 1), chance.uniform(stream)


@njit(cache=True, nogil=True)
def _right_side(
    roads: Roads, segment: int, ratio: float, dx: float, dy: float
) -> tuple[int, float]:  # pragma: no cover  (compiled)
    """Return the position or the one across the road: passengers get in and out where the car need not turn round."""
    along = (roads.to_x[segment] - roads.from_x[segment]) * dx + (roads.to_y[segment] - roads.from_y[segment]) * dy
    if along < 0.0 and roads.twin[segment] >= 0 and roads.connected[roads.twin[segment]]:
        return roads.twin[segment], 1.0 - ratio
    return segment, ratio


@njit(cache=True, nogil=True)
def draw_ends(
    demand: Demand, roads: Roads, row: int, stream: chance.Stream
) -> tuple[int, float, int, float]:  # pragma: no cover  (compiled)
    """Return origin and destination as (segment, ratio, segment, ratio); segments are -1 where no pair was accepted."""
    a, p = _draw_end(demand.pull, demand.origins[row], stream)
    ax = roads.from_x[a] + p * (roads.to_x[a] - roads.from_x[a])
    ay = roads.from_y[a] + p * (roads.to_y[a] - roads.from_y[a])
    for _ in range(_DRAWS):
        b, q = _draw_end(demand.pull, demand.destinations[row], stream)
        bx = roads.from_x[b] + q * (roads.to_x[b] - roads.from_x[b])
        by = roads.from_y[b] + q * (roads.to_y[b] - roads.from_y[b])
        distance = math.hypot(bx - ax, by - ay)
        if distance < demand.least_m or distance > demand.most_m:
            continue
        off = math.log(max(distance, 1.0) / demand.distance_m) / demand.distance_sigma
        if chance.uniform(stream) < math.exp(-0.5 * off * off):
            a, p = _right_side(roads, a, p, bx - ax, by - ay)
            b, q = _right_side(roads, b, q, bx - ax, by - ay)
            return a, p, b, q
    return -1, 0.0, -1, 0.0
