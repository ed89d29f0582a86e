"""A city with its life: all that stays the same from trip to trip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.simulation.clock import Clock, build_clock
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.simulation.demand import Demand, Spots, build_demand, build_spots
from tedtrajrec.trips.simulation.driving import Manner, build_manner
from tedtrajrec.trips.simulation.roads import Roads, build_roads
from tedtrajrec.trips.simulation.routes import Taste, build_taste
from tedtrajrec.trips.simulation.traffic import build_load


@dataclass(frozen=True, eq=False)
class World:
    """Roads, hot spots, traffic and manners of one city."""

    network: RoadNetwork
    config: SimulationConfig
    roads: Roads
    clock: Clock
    spots: Spots
    demand: Demand
    load: NDArray[np.float32]  # [rows, S] see traffic.build_load
    taste: Taste
    manner: Manner

    @classmethod
    def build(cls, network: RoadNetwork, config: SimulationConfig) -> World:
        """Bring a network to life."""
        roads = build_roads(network, config)
        spots = build_spots(network, roads, config)
        return cls(
            network=network,
            config=config,
            roads=roads,
            clock=build_clock(config),
            spots=spots,
            demand=build_demand(roads, spots, config),
            load=build_load(roads, spots, config),
            taste=build_taste(config),
            manner=build_manner(config.driving),
        )
