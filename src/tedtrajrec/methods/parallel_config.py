"""Settings of ``tedtrajrec_parallel``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tedtrajrec.methods.learned import LearnedConfig
from tedtrajrec.nn.road_gnn import Gnn, Rhythm
from tedtrajrec.nn.time_attention import Activation, Kind

Decoding = Literal["drivable", "viterbi", "marginal", "greedy"]
"""How a trip is read from the chain: the best one that can be driven (:mod:`~tedtrajrec.methods.chain_options`); the
likeliest one; the likeliest candidate of each step; or that of the best score of its own."""


@dataclass(frozen=True)
class ParallelConfig(LearnedConfig):
    """Settings; the switches are those of the ablation."""

    heads: int = 8
    width: int = 512
    encoder_layers: int = 2
    step_layers: int = 2
    road_layers: int = 2
    gnn: Gnn = "gatv2"
    rhythm: Rhythm = "dynamic"
    attention: Kind = "ted"
    activation: Activation = "lecun"
    gamma_m: float = 30.0
    hidden: int = 128  # width of the network over features of candidates
    most: int = 48  # candidates of a step
    remembered: int = 300  # past drives over each segment at most
    among: bool = True  # steps attend to each other
    geometry: bool = True  # features of map and past trips
    chain: bool = True  # trained as a chain, not step by step
    table: bool = True  # a learned vector for each segment
    unknown: float = 0.1  # share of training batches seen as if the city were new: no table, no place, no past trips
    decode: Decoding = "drivable"
    margin: float = 3.0  # for "drivable", candidates count that are less likely than their step's best by so many nats
    error_m: float = 150.0  # and an expected error of so many metres weighs as much as one nat; see SEARCHES for these
    voted: float = 0.0  # and votes of lookup have this share in the probabilities of steps
    bridged: bool = True  # where the map is whole, breaks are driven around along other roads
    enforced: bool = False  # any map, and all that can be: trips take detours, and roads beside those of their fixes

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("heads", "width", "gamma_m", "hidden", "most", "remembered", "margin", "error_m"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive")
        self.check_heads(self.heads)
        if min(self.encoder_layers, self.step_layers, self.road_layers) < 0:
            raise ValueError("there cannot be fewer than 0 layers")
        for name in ("unknown", "voted"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1")
