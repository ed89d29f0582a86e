"""Driving: a car moved along its route second by second, with traffic, junctions, turns and halts."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.clock import Clock
from tedtrajrec.trips.simulation.config import DrivingConfig
from tedtrajrec.trips.simulation.roads import Roads

Floats = NDArray[np.float64]

MOST_HASTE = 1.3
"""No driver is faster than this multiple of the usual speed of an empty road."""

_LEAST_HASTE = 0.4


class Manner(NamedTuple):
    """The numbers of :class:`DrivingConfig` that the kernel uses."""

    driver_sigma: float
    speed_sigma: float
    speed_keep: float  # correlation of the speed's variation from one second to the next
    accelerate: float
    brake: float
    u_turn: float
    wait_load: float
    queue_m: float
    halts_per_m: float
    halt_s: float
    longest_wait_s: float


class Plan(NamedTuple):
    """Working memory for one route: what the driver has to heed on each of its segments."""

    stop_at: Floats  # [S + 1] metres along the segment where the car stops; infinite where it does not
    wait_s: Floats  # [S + 1] for how long on an empty road
    end_speed: Floats  # [S + 1] the speed that may be had at the end of the segment


def build_manner(config: DrivingConfig) -> Manner:
    """Return what the kernel needs of the settings."""
    return Manner(
        driver_sigma=config.driver_sigma,
        speed_sigma=config.speed_sigma,
        speed_keep=math.exp(-1.0 / config.speed_tau_s),
        accelerate=config.accelerate_mps2,
        brake=config.brake_mps2,
        u_turn=config.u_turn_mps,
        wait_load=config.wait_load,
        queue_m=config.queue_m,
        halts_per_m=config.halts_per_km / 1000,
        halt_s=config.halt_s,
        longest_wait_s=config.longest_wait_s,
    )


def new_plan(roads: Roads) -> Plan:
    """Return working memory for routes on ``roads``."""
    n = len(roads.length) + 1
    return Plan(np.empty(n), np.empty(n), np.empty(n))


@njit(cache=True, nogil=True)
def _make_plan(
    roads: Roads, route: NDArray[np.int32], n: int, goal_m: float, manner: Manner, stream: chance.Stream, plan: Plan
) -> None:  # pragma: no cover  (compiled)
    """Decide where the car stops, and from the last segment back how fast it may leave each one."""
    for i in range(n):
        segment = route[i]
        plan.stop_at[i] = np.inf
        if i < n - 1 and chance.uniform(stream) < roads.stop_share[segment]:
            setback = min(3.0 + chance.exponential(stream, manner.queue_m), 0.7 * roads.length[segment])
            plan.stop_at[i] = roads.length[segment] - setback
            plan.wait_s[i] = chance.exponential(stream, roads.wait_s[segment])
    plan.stop_at[n - 1] = goal_m
    plan.wait_s[n - 1] = 0.0
    plan.end_speed[n - 1] = 0.0
    for i in range(n - 2, -1, -1):
        a, b = route[i], route[i + 1]
        if plan.stop_at[i + 1] < np.inf:
            onward = math.sqrt(2.0 * manner.brake * plan.stop_at[i + 1])
        else:
            onward = math.sqrt(plan.end_speed[i + 1] ** 2 + 2.0 * manner.brake * roads.length[b])
        cosine = roads.end_x[a] * roads.start_x[b] + roads.end_y[a] * roads.start_y[b]
        half_sine = math.sqrt(max(0.5 * (1.0 - cosine), 0.0025))
        plan.end_speed[i] = min(onward, manner.u_turn / half_sine)


@njit(cache=True, nogil=True)
def drive(
    roads: Roads,
    load: NDArray[np.float32],
    clock: Clock,
    manner: Manner,
    route: NDArray[np.int32],
    n: int,
    start_ratio: float,
    goal_ratio: float,
    departure: int,
    step_s: int,
    stream: chance.Stream,
    plan: Plan,
    segments: NDArray[np.int32],
    ratios: Floats,
) -> int:  # pragma: no cover  (compiled)
    """Drive a route and write the position at every step; return the number of steps, or 0 if they do not suffice.

    The first position is the origin at departure, the last one the destination at the first step on or after arrival.
    A car that stands before a junction takes the segment's load then as the measure of its wait.
    """
    goal_m = goal_ratio * roads.length[route[n - 1]]
    _make_plan(roads, route, n, goal_m, manner, stream, plan)
    driver = math.exp(manner.driver_sigma * chance.normal(stream))
    fresh = manner.speed_sigma * math.sqrt(1.0 - manner.speed_keep**2)
    mood = manner.speed_sigma * chance.normal(stream)
    i = 0
    segment = route[0]
    at = start_ratio * roads.length[segment]
    if at > plan.stop_at[0]:
        plan.stop_at[0] = np.inf
    speed, waiting, halting = 0.0, 0.0, False
    step, second = 0, 0
    while True:
        if second % step_s == 0:
            if step == len(segments):
                return 0
            segments[step] = segment
            ratios[step] = min(at / roads.length[segment], 1.0)
            step += 1
            if i == n - 1 and at >= goal_m - 1e-9:
                ratios[step - 1] = goal_ratio
                return step
        elif i == n - 1 and at >= goal_m - 1e-9:
            second += 1  # it stands at its destination until the next step
            continue
        slot = min((departure + second - clock.start) // clock.slot_s, len(clock.row) - 1)
        jam = clock.day_load[slot] * load[clock.row[slot], segment]
        second += 1
        mood = manner.speed_keep * mood + fresh * chance.normal(stream)
        if waiting >= 1.0:
            waiting -= 1.0
            continue
        if halting and speed == 0.0:
            halting = False
            waiting = min(chance.exponential(stream, manner.halt_s), manner.longest_wait_s)
            continue
        haste = min(max(driver * (1.0 + mood), _LEAST_HASTE), MOST_HASTE)
        wanted = 0.0 if halting else haste * roads.speed[segment] / (1.0 + jam)
        stops = plan.stop_at[i] < np.inf
        room = max((plan.stop_at[i] if stops else roads.length[segment]) - at, 0.0)
        last = 0.0 if stops else plan.end_speed[i]
        braked = math.sqrt(last * last + 2.0 * manner.brake * room)
        speed = min(max(wanted, speed - manner.brake), speed + manner.accelerate, max(braked, 0.5))
        if not halting and chance.uniform(stream) < manner.halts_per_m * speed:
            halting = True
        at += speed
        while True:
            if at >= plan.stop_at[i]:
                at = plan.stop_at[i]
                speed = 0.0
                if i < n - 1:
                    waiting = min(plan.wait_s[i] * (1.0 + manner.wait_load * jam), manner.longest_wait_s)
                    plan.stop_at[i] = np.inf
                break
            if at < roads.length[segment] or i == n - 1:
                break
            at -= roads.length[segment]
            i += 1
            segment = route[i]
