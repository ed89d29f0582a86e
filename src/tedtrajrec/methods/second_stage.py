"""The second stage of two-stage methods: points that the first made at every step, matched to the map."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Recovered, as_recovered
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import MatchConfig, Matcher
from tedtrajrec.trips.table import Trips, as_text

Floats = NDArray[np.float64]
Preset = Literal["default", "nk09", "song12"]
"""Of the matcher; the paper matches as Song et al. 2012."""


class SecondStage:
    """Matches a point at every step; steps that the matcher leaves out get the nearest segment.

    Parameters
    ----------
    network
        The road network.
    preset
        Of the matcher.
    """

    def __init__(self, network: RoadNetwork, preset: Preset) -> None:
        self._matcher = Matcher(network, MatchConfig.preset(preset))
        self._finder = CandidateFinder(network)
        self.n_unmatched = 0  # steps left out, over all calls

    def recover(self, batch: Batch, lon: Floats, lat: Floats) -> Recovered:
        """Return the positions of points [N] at the real steps of a batch, in order.

        log_prob is the matcher's, NaN where it left the step out.
        """
        offsets, time = batch.step_times()
        matched = self._matcher.match(Trips(as_text(np.arange(len(batch))), offsets, time, lon, lat))
        segment, ratio = matched.segment.copy(), matched.ratio.copy()
        left_out = np.flatnonzero(segment < 0)
        self.n_unmatched += len(left_out)
        nearest = self._finder.nearest(lon[left_out], lat[left_out])
        segment[left_out], ratio[left_out] = nearest.segment, nearest.ratio
        log_prob = np.log(matched.probability, out=np.full(len(segment), np.nan), where=matched.probability > 0)
        return as_recovered(batch, segment, ratio, log_prob)
