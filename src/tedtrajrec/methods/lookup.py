"""Look-up: past trips vote for where the vehicle was between two fixes.

There is no neural network in it, only a table of past trips (:mod:`tedtrajrec.methods.history`) and a chain over the
candidates of the fixes (:mod:`tedtrajrec.methods.voting`). Where nobody drove before, it is Route + HMM.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays, Method, Recovered, as_recovered
from tedtrajrec.methods.history import history_state, make_history, no_history, restored_history
from tedtrajrec.methods.route_hmm import Driven, RouteHmm
from tedtrajrec.methods.straight import Straight, roads_along, straight_steps
from tedtrajrec.methods.voting import Fixes, Steps, Votes, Weights, collect_votes
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts
from tedtrajrec.trips.matching.fixes import PRIOR_NOISE_M
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

TRIPS_PER_PART = 64
USUAL_FIXES = 20
ROUTE, PAST = "route.", "past."  # how names in the state begin
LEAST_LOG = -300.0  # of a likelihood, which must not vanish


@dataclass(frozen=True)
class LookupConfig:
    """The settings of the look-up."""

    radius_m: float = 100.0  # candidates of a fix lie within this distance
    most_candidates: int = 16  # of one fix; the nearest are kept
    noise: float = 1.6  # standard deviation of a fix across the road, in that of the training trips
    scale_s: float = 20.0  # a past sub-trip whose time differs by this weighs 1/e
    near_m: float = 100.0  # standard deviation of how far from a fix a past trip may start or end on its segment
    route: float = 0.05  # weight of the route that Route + HMM drives, in past sub-trips
    most_visits: int = 2000  # of one segment that are remembered


class Lookup(Method[LookupConfig]):
    """Votes of past trips between the same roads, and Route + HMM where there are none (look-up)."""

    name = "lookup"
    Config = LookupConfig

    def __init__(self, network: RoadNetwork, config: LookupConfig | None = None) -> None:
        super().__init__(network, config)
        self._route = RouteHmm(network)
        self._finder = CandidateFinder(network)
        self._history = no_history(network.n_segments)
        self._noise_m = PRIOR_NOISE_M

    def precompute(self, dataset: Dataset) -> None:
        """Remember the training trips, and learn what Route + HMM learns."""
        self._route.precompute(dataset)
        trips = dataset.split("train").trips()
        self._noise_m = learn_noise(self.network, trips)
        self._history = make_history(self.network, trips, most_visits=self.config.most_visits)

    def state(self) -> Arrays:
        """Return the past trips, the noise, and what Route + HMM learned."""
        route = {ROUTE + name: array for name, array in self._route.state().items()}
        past = {PAST + name: array for name, array in history_state(self._history).items()}
        return {"noise_m": np.array([self._noise_m]), **past, **route}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        self._noise_m = float(state["noise_m"][0])
        self._route.restore(_part(state, ROUTE))
        self._history = restored_history(_part(state, PAST), self.network.n_segments, self.config.most_visits)

    def recover(self, batch: Batch) -> Recovered:
        """Return the segment with most votes at every step, its mean ratio, and the log of its share of the votes."""
        driven = self._route.drive(batch)
        votes = self.votes(batch, driven)
        segment, ratio, log_prob = most_voted(votes)
        lost = np.flatnonzero(segment < 0)
        segment[lost], ratio[lost] = driven.segment[lost], driven.ratio[lost]
        lost = lost[segment[lost] < 0]
        if len(lost):
            line = straight_steps(batch, self.network)
            segment[lost], ratio[lost] = roads_along(self._finder, Straight(*(column[lost] for column in line)))
        return as_recovered(batch, segment, ratio, log_prob)

    def votes(self, batch: Batch, driven: Driven, *, workers: int | None = None) -> Votes:
        """Return the votes at the real steps of a batch.

        Parameters
        ----------
        batch
            The trips.
        driven
            What Route + HMM made of them.
        workers
            Number of threads; all processors if not given.
        """
        trips = batch.fixes(self.network)
        start = batch.start.cpu().numpy()
        fixes = self._fixes(trips, start, driven)
        offsets, time = batch.step_times()
        since = (time - np.repeat(start, np.diff(offsets))).astype(np.float64)
        weights = Weights(self.config.scale_s, self.config.near_m, self.config.route)

        def collect(part: slice) -> Votes:
            of_fix, of_step = fixes.offset[part.start : part.stop + 1], offsets[part.start : part.stop + 1]
            rows = slice(of_step[0], of_step[-1])
            steps = Steps(of_step - of_step[0], since[rows], driven.segment[rows], driven.ratio[rows])
            here = fixes._replace(offset=of_fix)
            return collect_votes(self._history, self.network.length_m, here, steps, weights)

        parts = [
            slice(first, min(first + TRIPS_PER_PART, len(batch))) for first in range(0, len(batch), TRIPS_PER_PART)
        ]
        return _joined(map_parts(collect, parts, workers))

    def _fixes(self, trips: Trips, start: Ints, driven: Driven) -> Fixes:
        """Return the fixes with their candidates, that of the matcher first; a fix without any is left out."""
        near = self._finder.within(trips.lon, trips.lat, self.config.radius_m, most=self.config.most_candidates)
        matched = np.flatnonzero(driven.fix_segment >= 0)
        fix_of = np.repeat(np.arange(trips.n_fixes), np.diff(near.offsets))
        other = near.segment != driven.fix_segment[fix_of]
        fix = np.concatenate([matched, fix_of[other]])
        order = np.argsort(fix, kind="stable")
        segment = np.concatenate([driven.fix_segment[matched], near.segment[other]])[order]
        ratio = np.concatenate([driven.fix_ratio[matched], near.ratio[other]])[order]
        count = np.bincount(fix, minlength=trips.n_fixes)
        some = count > 0
        to_x, to_y = self.network.plane.to_xy(*self.network.point_at(segment, ratio))
        x, y = self.network.plane.to_xy(trips.lon, trips.lat)
        z = np.hypot(to_x - x[fix[order]], to_y - y[fix[order]]) / (self.config.noise * self._noise_m)
        since = (trips.time - np.repeat(start, trips.lengths)).astype(np.float64)
        return Fixes(
            offset=np.concatenate([[0], np.cumsum(some)])[trips.offsets].astype(np.int64),
            time=since[some],
            candidate_offset=np.concatenate([[0], np.cumsum(count[some])]).astype(np.int64),
            segment=segment,
            ratio=ratio,
            likelihood=np.exp(np.maximum(-0.5 * z**2, LEAST_LOG)),
            chosen=np.where(driven.fix_segment >= 0, 0, -1)[some],
        )


def learn_noise(network: RoadNetwork, trips: Trips) -> float:
    """Return the noise of fixes, from their distances to the true positions.

    It is the standard deviation of a normal that 90 % stay as near as; few fixes are helped by some of usual noise.
    """
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no positions")
    known = (trips.segment >= 0) & np.isfinite(trips.lon)
    x, y = network.plane.to_xy(trips.lon[known], trips.lat[known])
    to_x, to_y = network.plane.to_xy(*network.point_at(trips.segment[known], trips.ratio[known]))
    usual = np.full(USUAL_FIXES, 1.645 * PRIOR_NOISE_M)
    return float(np.quantile(np.concatenate([np.hypot(x - to_x, y - to_y), usual]), 0.9) / 1.645)


def most_voted(votes: Votes) -> tuple[Segments, Floats, Floats]:
    """Return the segment with the largest share at each step [N], its ratio and the log of the share.

    Of equal shares the lower segment is taken. A step without votes has segment -1, and NaN for the others.
    """
    n_steps = len(votes.offset) - 1
    step = np.repeat(np.arange(n_steps), np.diff(votes.offset))
    best = np.lexsort((votes.segment, -votes.share, step))
    best = best[np.diff(step[best], prepend=-1) > 0]
    segment, ratio, log_prob = np.full(n_steps, -1, np.int32), np.full(n_steps, np.nan), np.full(n_steps, np.nan)
    voted = step[best]
    segment[voted], ratio[voted] = votes.segment[best], votes.ratio[best]
    log_prob[voted] = np.minimum(np.log(votes.share[best]), 0.0)
    return segment, ratio, log_prob


def _joined(parts: list[Votes]) -> Votes:
    """Return the votes of consecutive steps as one."""
    count = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offset) for part in parts)])
    return Votes(
        np.cumsum(count),
        np.concatenate([np.zeros(0, np.int32), *(part.segment for part in parts)]),
        np.concatenate([np.zeros(0), *(part.share for part in parts)]),
        np.concatenate([np.zeros(0), *(part.ratio for part in parts)]),
    )


def _part(state: Arrays, begin: str) -> Arrays:
    return {name.removeprefix(begin): array for name, array in state.items() if name.startswith(begin)}
