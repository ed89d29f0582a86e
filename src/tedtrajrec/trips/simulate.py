"""Simulated trips with exact truth: the segment and ratio at every step, and a noisy fix for each.

The model and its settings are described in ``docs/simulator.md``. A trip depends on the network, the settings, the
seed, the number of trips and its own number, and on nothing else: neither the number of workers nor the size of chunks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.progress import progress
from tedtrajrec.threads import iter_parts, map_parts
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.simulation.driving import new_plan
from tedtrajrec.trips.simulation.journeys import TRIES, Given, new_block, simulate_block
from tedtrajrec.trips.simulation.noise import build_gps
from tedtrajrec.trips.simulation.routes import new_scratch
from tedtrajrec.trips.simulation.world import World
from tedtrajrec.trips.table import Trips, as_text, concat_trips

_BLOCK = 500  # trips that one thread makes at a time
_LONGEST_GIVEN_S = 7200  # given ends may be further apart than the settings let drawn ones be

_NOBODY = Given(np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.zeros(0, np.int64))


def simulate_trips(
    network: RoadNetwork,
    *,
    trips: int,
    step_s: int = 15,
    seed: int = 0,
    config: SimulationConfig | None = None,
    workers: int | None = None,
    show_progress: bool = False,
) -> Trips:
    """Return simulated trips in order of departure, with a fix, a segment and a ratio at every step.

    Parameters
    ----------
    network
        Where they drive; all ends lie in its largest strong component.
    trips
        How many.
    step_s
        Seconds between fixes.
    seed
        Another number gives other trips of the same city (``config.world_seed`` gives another life to the city).
    config
        The model's settings; see :class:`SimulationConfig`.
    workers
        Number of threads; all processors if not given. The result does not depend on it.
    show_progress
        Whether to show a progress bar.

    Raises
    ------
    InputError
        If the network and the settings do not go together, for example where no trip can last as long as asked for.
    """
    parts = simulate_chunks(
        network, trips=trips, step_s=step_s, seed=seed, config=config, workers=workers, show_progress=show_progress
    )
    return concat_trips(list(parts))


def simulate_chunks(
    network: RoadNetwork,
    *,
    trips: int,
    step_s: int = 15,
    seed: int = 0,
    config: SimulationConfig | None = None,
    chunk_trips: int = 10_000,
    workers: int | None = None,
    show_progress: bool = False,
) -> Iterator[Trips]:
    """Yield the trips of :func:`simulate_trips` in chunks of ``chunk_trips``, so that any number fits in memory."""
    config = config or SimulationConfig()
    _check(trips=trips, step_s=step_s, seed=seed, chunk_trips=chunk_trips)
    world = World.build(network, config)
    least = math.ceil(60 * config.demand.least_minutes / step_s) + 1
    most = math.floor(60 * config.demand.most_minutes / step_s) + 1
    starts = [
        (first, min(_BLOCK, chunk + chunk_trips - first, trips - first))
        for chunk in range(0, trips, chunk_trips)
        for first in range(chunk, min(chunk + chunk_trips, trips), _BLOCK)
    ]
    width = len(str(trips - 1))

    def make(task: tuple[int, int]) -> Trips:
        return _make(world, _NOBODY, *task, trips, seed, step_s, (least, most), width)

    def chunks() -> Iterator[Trips]:
        parts: list[Trips] = []
        made = iter_parts(make, starts, workers)
        for part in progress(made, "simulate", total=len(starts), unit="block") if show_progress else made:
            parts.append(part)
            if sum(map(len, parts)) == chunk_trips:
                yield concat_trips(parts)
                parts = []
        if parts:
            yield concat_trips(parts)

    return chunks()


def simulate_between(
    network: RoadNetwork,
    *,
    origin: tuple[ArrayLike, ArrayLike],
    destination: tuple[ArrayLike, ArrayLike],
    departure: ArrayLike,
    step_s: int = 15,
    seed: int = 0,
    config: SimulationConfig | None = None,
    workers: int | None = None,
) -> Trips:
    """Return one simulated trip for each given pair of positions and departure.

    Parameters
    ----------
    origin, destination
        Positions as (segment, ratio), arrays of one length.
    departure
        Epoch seconds, within the days of the settings' calendar.
    """
    config = config or SimulationConfig()
    _check(step_s=step_s, seed=seed)
    arrays = np.broadcast_arrays(*map(np.atleast_1d, (*origin, *destination, departure)))
    given = Given(
        np.array(arrays[0], np.int64),
        np.array(arrays[1], np.float64),
        np.array(arrays[2], np.int64),
        np.array(arrays[3], np.float64),
        np.array(arrays[4], np.int64),
    )
    world = World.build(network, config)
    _check_given(world, given)
    trips = len(given.departure)
    starts = [(first, min(_BLOCK, trips - first)) for first in range(0, trips, _BLOCK)]
    most = _LONGEST_GIVEN_S // step_s + 1
    width = len(str(trips - 1))

    def make(task: tuple[int, int]) -> Trips:
        part = slice(task[0], task[0] + task[1])
        mine = Given(
            given.origin[part],
            given.origin_ratio[part],
            given.destination[part],
            given.destination_ratio[part],
            given.departure[part],
        )
        return _make(world, mine, *task, trips, seed, step_s, (1, most), width)

    return concat_trips(map_parts(make, starts, workers))


def _check(**numbers: int) -> None:
    least = {"trips": 1, "step_s": 1, "seed": 0, "chunk_trips": 1}
    for name, number in numbers.items():
        if number < least[name]:
            raise InputError(f"{name} is {number}; it must be at least {least[name]}")
    if numbers.get("step_s", 1) > 600:
        raise InputError(f"step_s is {numbers['step_s']}; it must be at most 600 seconds")


def _check_given(world: World, given: Given) -> None:
    clock, n = world.clock, world.network.n_segments
    if not len(given.departure):
        raise InputError("there are no trips to simulate")
    for name, segment, ratio in (
        ("origin", given.origin, given.origin_ratio),
        ("destination", given.destination, given.destination_ratio),
    ):
        if segment.min() < 0 or segment.max() >= n:
            raise InputError(f"segments go from 0 to {n - 1}", field=name)
        if not ((ratio >= 0) & (ratio <= 1)).all():
            raise InputError("ratios go from 0 to 1", field=name)
    if given.departure.min() < clock.start or given.departure.max() >= clock.end:
        calendar = world.config.calendar
        raise InputError(
            f"a trip departs outside the {calendar.days} days from {calendar.start} on",
            field="departure",
            remedy="Set calendar.start and calendar.days to cover it.",
        )


def _make(
    world: World,
    given: Given,
    first: int,
    count: int,
    total: int,
    seed: int,
    step_s: int,
    steps: tuple[int, int],
    width: int,
) -> Trips:
    """Simulate ``count`` trips from number ``first`` on."""
    least, most = steps
    block = new_block(count, most)
    filled = simulate_block(
        world.roads,
        world.clock,
        world.demand,
        world.load,
        world.taste,
        world.manner,
        build_gps(world.config.noise, step_s),
        given,
        seed,
        first,
        total,
        step_s,
        least,
        most,
        new_scratch(world.roads),
        new_plan(world.roads),
        block,
    )
    failed = np.flatnonzero(block.lengths == 0)
    if len(failed):
        raise _hopeless(world, first + int(failed[0]), given=bool(len(given.departure)))
    offsets = np.concatenate([[0], np.cumsum(block.lengths)])
    segment, ratio = block.segment[:filled].copy(), block.ratio[:filled].copy()
    lon, lat = world.network.point_at(segment, ratio)
    east, north = world.network.plane.scale
    step = np.arange(filled) - np.repeat(offsets[:-1], block.lengths)
    return Trips(
        traj_id=as_text([f"sim-{number:0{width}d}" for number in range(first, first + count)]),
        offsets=offsets,
        time=np.repeat(block.departure, block.lengths) + step * step_s,
        lon=lon + block.east[:filled] / east,
        lat=lat + block.north[:filled] / north,
        segment=segment,
        ratio=ratio,
    )


def _hopeless(world: World, trip: int, *, given: bool) -> InputError:
    if given:
        return InputError(f"trip {trip}: no route leads from its origin to its destination within two hours")
    demand = world.config.demand
    return InputError(
        f"trip {trip}: of {TRIES} pairs of ends none gave a trip of {demand.least_m:g} to {demand.most_m:g} m as the "
        f"crow flies and {demand.least_minutes:g} to {demand.most_minutes:g} minutes on this road network",
        remedy="Set demand.least_m, distance_m, most_m, least_minutes and most_minutes to suit its size.",
    )
