"""Whole journeys, a block at a time: ends, route, drive and GPS errors of each trip, from its number alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.clock import Clock
from tedtrajrec.trips.simulation.demand import Demand, draw_ends
from tedtrajrec.trips.simulation.driving import Manner, Plan, drive
from tedtrajrec.trips.simulation.noise import Gps, draw_errors
from tedtrajrec.trips.simulation.roads import Roads
from tedtrajrec.trips.simulation.routes import Scratch, Taste, find_route

Floats = NDArray[np.float64]

TRIES = 200
"""Pairs of ends looked at for one trip before the network is called hopeless."""


class Given(NamedTuple):
    """Trips whose ends and departures are given; an array of each, empty where trips are drawn."""

    origin: NDArray[np.int64]
    origin_ratio: Floats
    destination: NDArray[np.int64]
    destination_ratio: Floats
    departure: NDArray[np.int64]


class Block(NamedTuple):
    """Room for the trips of one block; flat over all steps of all trips."""

    lengths: NDArray[np.int64]  # [trips] number of steps; 0 where no trip could be made
    departure: NDArray[np.int64]  # [trips] epoch seconds
    segment: NDArray[np.int32]
    ratio: Floats
    east: Floats  # GPS error in metres
    north: Floats


def new_block(trips: int, most_steps: int) -> Block:
    """Return room for trips of up to ``most_steps`` steps."""
    room = trips * most_steps
    return Block(
        np.zeros(trips, np.int64),
        np.zeros(trips, np.int64),
        np.empty(room, np.int32),
        np.empty(room),
        np.empty(room),
        np.empty(room),
    )


@njit(cache=True, nogil=True)
def departure_time(clock: Clock, share: float) -> int:  # pragma: no cover  (compiled)
    """Return the time before which ``share`` of all trips depart."""
    slot = int(np.searchsorted(clock.departed, share, side="right")) - 1
    slot = min(slot, len(clock.row) - 1)
    width = clock.departed[slot + 1] - clock.departed[slot]
    into = (share - clock.departed[slot]) / width if width > 0 else 0.0
    return clock.start + slot * clock.slot_s + int(min(into, 1.0) * clock.slot_s)


@njit(cache=True, nogil=True)
def simulate_block(
    roads: Roads,
    clock: Clock,
    demand: Demand,
    load: NDArray[np.float32],
    taste: Taste,
    manner: Manner,
    gps: Gps,
    given: Given,
    seed: int,
    first: int,
    total: int,
    step_s: int,
    least_steps: int,
    most_steps: int,
    scratch: Scratch,
    plan: Plan,
    block: Block,
) -> int:  # pragma: no cover  (compiled)
    """Fill ``block`` with the trips from number ``first`` on, and return how many steps they have together."""
    filled = 0
    search = 0
    stream = np.zeros(1, np.uint64)
    for k in range(len(block.lengths)):
        trip = chance.mix(chance.mix(np.uint64(seed), 0), first + k)
        taste_key = chance.mix(trip, chance.TASTE)
        if len(given.departure):
            departure = given.departure[k]
        else:
            stream[0] = chance.mix(trip, chance.DEPARTURE)
            departure = departure_time(clock, (first + k + chance.uniform(stream)) / total)
        block.departure[k] = departure
        slot = (departure - clock.start) // clock.slot_s
        row, day_load = clock.row[slot], clock.day_load[slot]
        stream[0] = chance.mix(trip, chance.JOURNEY)
        for _ in range(1 if len(given.departure) else TRIES):
            if len(given.departure):
                a, p, b, q = (
                    given.origin[k],
                    given.origin_ratio[k],
                    given.destination[k],
                    given.destination_ratio[k],
                )
            else:
                a, p, b, q = draw_ends(demand, roads, row, stream)
                if a < 0:
                    continue
            search += 1
            n = find_route(roads, load[row], day_load, taste, taste_key, (a, p), (b, q), scratch, search)
            if n == 0:
                continue
            steps = drive(
                roads,
                load,
                clock,
                manner,
                scratch.route,
                n,
                p,
                q,
                departure,
                step_s,
                stream,
                plan,
                block.segment[filled : filled + most_steps],
                block.ratio[filled : filled + most_steps],
            )
            if steps >= least_steps:
                stream[0] = chance.mix(trip, chance.GPS)
                draw_errors(gps, stream, block.east[filled : filled + steps], block.north[filled : filled + steps])
                block.lengths[k] = steps
                filled += steps
                break
        if block.lengths[k] == 0:
            break  # the network is hopeless: no need to look at the other trips
    return filled
