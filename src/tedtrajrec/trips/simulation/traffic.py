"""Congestion: how much longer each segment takes in each slot of the day."""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.clock import wave
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.simulation.demand import Spots
from tedtrajrec.trips.simulation.roads import Roads

Floats = NDArray[np.float64]


def build_load(roads: Roads, spots: Spots, config: SimulationConfig) -> NDArray[np.float32]:
    """Return the load [rows, S]: extra travel time of a segment as a share of its free travel time, on a usual day."""
    traffic, calendar = config.traffic, config.calendar
    middle_x, middle_y = (roads.from_x + roads.to_x) / 2, (roads.from_y + roads.to_y) / 2
    busy = np.flatnonzero(spots.kind > 0)  # homes draw no traffic jams
    crowd = np.zeros(len(roads.length))
    for i in busy:
        reach = spots.radius[i] + traffic.centre_radius_m
        square = (middle_x - spots.x[i]) ** 2 + (middle_y - spots.y[i]) ** 2
        crowd += spots.weight[i] * np.exp(-0.5 * square / reach**2)
    crowd /= max(np.quantile(crowd, 0.98), 1e-300)  # 0 where nearly all roads are very far away
    where = traffic.outskirts + (1 - traffic.outskirts) * np.minimum(crowd, 1.0)
    inbound = _inbound(roads, spots, traffic.centre_radius_m)
    exposure = traffic.strength * np.array(traffic.exposure)[roads.level] * where
    load = np.zeros((2 * 1440 // traffic.slot_minutes, len(exposure)), np.float32)
    for number, (peak, way) in enumerate(((calendar.morning, 1), (calendar.midday, 0), (calendar.evening, -1))):
        unlike = _unlike(roads.area, np.uint64(chance.mix(config.world_seed, 100 + number)), traffic.patch_sigma)
        key = np.uint64(chance.mix(config.world_seed, 200 + number))
        unlike *= _unlike(np.arange(len(exposure)), key, traffic.segment_sigma)
        share = exposure * unlike * (1 + way * traffic.direction * inbound)
        load += np.outer(wave(peak, traffic.slot_minutes), share).astype(np.float32)
    return load


def _inbound(roads: Roads, spots: Spots, radius_m: float) -> Floats:
    """Return how much each segment leads to the places of work: 1 straight there, -1 straight away, 0 amidst them."""
    work = spots.kind == 1
    to_x = np.average(spots.x[work], weights=spots.weight[work]) - (roads.from_x + roads.to_x) / 2
    to_y = np.average(spots.y[work], weights=spots.weight[work]) - (roads.from_y + roads.to_y) / 2
    far = np.hypot(to_x, to_y)
    along_x, along_y = roads.to_x - roads.from_x, roads.to_y - roads.from_y
    cosine = (along_x * to_x + along_y * to_y) / np.maximum(np.hypot(along_x, along_y) * far, 1e-9)
    inbound: Floats = cosine * far / (far + radius_m / 2)
    return inbound


@njit(cache=True, nogil=True)
def _unlike(numbers: NDArray[np.int64], key: np.uint64, sigma: float) -> Floats:  # pragma: no cover  (compiled)
    """Return a lognormal factor of mean 1 for each number, the same for the same number."""
    factor = np.empty(len(numbers))
    for i in range(len(numbers)):
        factor[i] = math.exp(sigma * chance.keyed_normal(key, numbers[i]) - sigma * sigma / 2)
    return factor
