"""Linear + HMM, the paper's first baseline: straight lines between the fixes, then map matching of every step.

    p_i = p_a + (t_i - t_a) / (t_b - t_a) (p_b - p_a)            a, b: the fixes before and after step i
    (e_1, r_1), .., (e_n, r_n) = matcher(p_1, .., p_n)           that of Song et al., 2012

Steps that the matcher leaves out get the nearest segment.
"""

from __future__ import annotations

from dataclasses import dataclass

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Method, Recovered
from tedtrajrec.methods.past.straight import straight_steps
from tedtrajrec.methods.second_stage import Preset, SecondStage
from tedtrajrec.network.roadnet import RoadNetwork


@dataclass(frozen=True)
class LinearHmmConfig:
    """The settings of Linear + HMM."""

    preset: Preset = "song12"  # of the matcher


class LinearHmm(Method[LinearHmmConfig]):
    """Straight lines between the fixes, then every step matched to the map (Linear + HMM of the paper)."""

    name = "linear_hmm"
    Config = LinearHmmConfig

    def __init__(self, network: RoadNetwork, config: LinearHmmConfig | None = None) -> None:
        super().__init__(network, config)
        self.second = SecondStage(network, self.config.preset)

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step."""
        line = straight_steps(batch, self.network)
        return self.second.recover(batch, line.lon, line.lat)
