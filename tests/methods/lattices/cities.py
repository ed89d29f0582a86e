"""Trips and lattices that the tests of this folder share."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.methods.lattice import WITHIN_S, LatticeBuilder, Past
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.pairs import learn_pairs, no_pairs
from tedtrajrec.methods.past.passing import index_passing, no_passing
from tedtrajrec.methods.past.visits import Visits, visits_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips

STEP_S = 15
NO_LINKS = Links(np.zeros(0, np.int32), np.zeros(0, np.int32))


def no_past(network: RoadNetwork) -> Past:
    n = network.n_segments
    return Past(NO_LINKS, 1 / network.speed_mps.astype(np.float64), no_pairs(n), no_passing(n))


def past_of(network: RoadNetwork, visits: Visits) -> Past:
    """Return what visits teach, at the pace of the map, with none forgotten."""
    pairs = learn_pairs(visits, network.n_segments, within_s=WITHIN_S, most_targets=10**6)
    rank = np.arange(len(visits.offset) - 1)
    passing = index_passing(visits, rank, network.n_segments, most=10**6)
    return no_past(network)._replace(pairs=pairs, passing=passing)


@cache
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@cache
def driven() -> tuple[Trips, Visits]:
    """Return some trips of the city, and what they visited."""
    trips = simulate_trips(city(), trips=80, step_s=STEP_S, seed=3, workers=1)
    return trips, visits_of(city(), trips, city().length_m / city().speed_mps, workers=1)


@cache
def city_builder() -> LatticeBuilder:
    """Return one that knows the trips of the city."""
    return LatticeBuilder(city(), past_of(city(), driven()[1]))


def every_seventh(trips: Trips) -> NDArray[np.bool_]:
    """Return every seventh step of each trip, and the last."""
    step = np.arange(trips.n_fixes) - np.repeat(trips.offsets[:-1], trips.lengths)
    return (step % 7 == 0) | (step == np.repeat(trips.lengths - 1, trips.lengths))


def batch_of(network: RoadNetwork, trips: Trips, observed: NDArray[np.bool_]) -> Batch:
    batch = make_batch(trips, observed, network, step_s=STEP_S, time_zone="UTC")
    return dataclasses.replace(batch, number=torch.arange(len(trips)))


def city_batch(numbers: list[int]) -> Batch:
    """Return some trips of the city by number."""
    trips = driven()[0].select(np.array(numbers, np.int64))
    batch = batch_of(city(), trips, every_seventh(trips))
    return dataclasses.replace(batch, number=torch.tensor(numbers, dtype=torch.int64))


def drive(network: RoadNetwork, *trips: list[tuple[int, float]], every_s: int = STEP_S) -> Trips:
    """Return trips given by their positions (segment, ratio), one each step."""
    rows = [position for trip in trips for position in trip]
    segment, ratio = np.array([s for s, _ in rows], np.int32), np.array([r for _, r in rows], float)
    lon, lat = network.point_at(segment, ratio)
    return Trips.from_columns(
        [str(i) for i, trip in enumerate(trips) for _ in trip],
        [1_600_000_000 + every_s * k for trip in trips for k in range(len(trip))],
        lon,
        lat,
        segment=segment,
        ratio=ratio,
    )
