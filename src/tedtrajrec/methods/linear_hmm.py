"""Linear + HMM, the paper's first baseline: straight lines between the fixes, then map matching of every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Method, Recovered, as_recovered
from tedtrajrec.methods.past.straight import straight_steps
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import MatchConfig, Matcher
from tedtrajrec.trips.table import Trips, as_text


@dataclass(frozen=True)
class LinearHmmConfig:
    """The settings of Linear + HMM."""

    preset: Literal["default", "nk09", "song12"] = "song12"  # of the matcher; the paper matches as Song et al. 2012


class LinearHmm(Method[LinearHmmConfig]):
    """Straight lines between the fixes, then every step matched to the map (Linear + HMM of the paper).

    Steps that the matcher leaves out get the nearest segment; :attr:`n_unmatched` counts them over all calls.
    """

    name = "linear_hmm"
    Config = LinearHmmConfig

    def __init__(self, network: RoadNetwork, config: LinearHmmConfig | None = None) -> None:
        super().__init__(network, config)
        self._matcher = Matcher(network, MatchConfig.preset(self.config.preset))
        self._finder = CandidateFinder(network)
        self.n_unmatched = 0

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step; log_prob is the matcher's, NaN where it left the step out."""
        line = straight_steps(batch, self.network)
        offsets, time = batch.step_times()
        steps = Trips(as_text(np.arange(len(batch))), offsets, time, line.lon, line.lat)
        matched = self._matcher.match(steps)
        segment, ratio = matched.segment.copy(), matched.ratio.copy()
        left_out = np.flatnonzero(segment < 0)
        self.n_unmatched += len(left_out)
        nearest = self._finder.nearest(line.lon[left_out], line.lat[left_out])
        segment[left_out], ratio[left_out] = nearest.segment, nearest.ratio
        log_prob = np.log(matched.probability, out=np.full(len(segment), np.nan), where=matched.probability > 0)
        return as_recovered(batch, segment, ratio, log_prob)
