"""Methods that are an encoder before MTrajRec's decoder: all that they share but the encoder.

A subclass has ``fixes(inputs, roads)``: H of the fixes and what the decoder starts from. Segments have a learned vector
each, unless ``vectors`` makes them from something else.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.methods.learned import I, Inputs, LearnedConfig
from tedtrajrec.methods.stepwise import StepwiseMethod, plain
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import Cells, cells_over
from tedtrajrec.nn.decoder import Encoded
from tedtrajrec.nn.gru_decoder import GruDecoder, HourStart, road_facts
from tedtrajrec.nn.roads import Roads


@dataclass(frozen=True)
class GruDecodedConfig(LearnedConfig):
    """Settings of methods before MTrajRec's decoder."""

    road_d: int | None = None  # width of the vectors of segments; None: d

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.road_d is not None and self.road_d <= 0:
            raise ValueError("road_d must be positive")

    @property
    def road_width(self) -> int:
        """Width of the vectors of segments."""
        return self.d if self.road_d is None else self.road_d


GruSettings = TypeVar("GruSettings", bound=GruDecodedConfig)


class FixStates(NamedTuple):
    """What an encoder says of the fixes."""

    states: Tensor  # [B, m, d] H; what lies in the padding has no meaning
    start: Tensor  # [B, d] of the trip


class GruDecodedMethod(StepwiseMethod[GruSettings, I], Generic[GruSettings, I]):
    """An encoder of fixes before MTrajRec's decoder."""

    facts: Tensor

    def __init__(self, network: RoadNetwork, config: GruSettings | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.table = nn.Parameter(torch.randn(network.n_segments, c.road_width) / math.sqrt(c.road_width))
        self.register_buffer("facts", road_facts(network), persistent=False)
        self.start_state = HourStart(c.d)
        self.decoder = self.make_decoder()

    def make_decoder(self) -> GruDecoder:
        """Return the decoder."""
        c = self.config
        return GruDecoder(self.network.n_segments, c.d, c.road_width, dropout=c.dropout)

    @abstractmethod
    def fixes(self, inputs: I, roads: Roads) -> FixStates:
        """Return the representation of the fixes."""

    def vectors(self) -> Tensor:
        """Return X [S, road_width] of the segments."""
        return self.table

    def roads(self) -> Roads:
        """Return [X || f] of the segments, at all times the same."""
        return Roads(torch.cat([self.vectors(), self.facts], dim=1), None, None)

    def encode(self, inputs: I, roads: Roads) -> Encoded:
        """Return the encoded fixes and the first state of the decoder."""
        return self.encoded(plain(inputs), self.fixes(inputs, roads))

    def encoded(self, inputs: Inputs, fixes: FixStates) -> Encoded:
        """Return the encoded fixes for the decoder: nothing in the padding, and a first state that knows the hour."""
        mask = inputs.fix_mask
        start = self.start_state(fixes.start, inputs.fix_minute, mask)
        return Encoded(fixes.states * mask[..., None], start, inputs.fix_time, mask)

    def cells(self, size_m: float) -> Cells:
        """Return cells of a size over the network, to be asked for places as :class:`Inputs` has them."""
        xy = (np.stack(self.network.geom_xy, axis=-1) - self._middle.numpy()) / self._extent
        return cells_over(xy, size_m / self._extent)
