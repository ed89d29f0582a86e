"""Look-up: past trips vote for where the vehicle was between two fixes.

    w_s = exp(-|T_s - T| / 20 s)                                 of a past sub-trip s of T_s seconds in a gap of T
    q(a, b) = sum of w_s from a to b / sqrt(passes of a x passes of b)     a, b: candidates of the two fixes
    P(a_1, .., a_m) ~ prod_k exp(-dist(a_k)^2 / (2 noise^2)) prod_k q(a_k, a_{k+1})
    votes(i, e) = sum of P(s) over the sub-trips s that are on e at the proportional time of step i
    e_i = the segment with most votes, r_i = their weighted mean of the ratio, log_prob = log of its share

There is no neural network in it, only a table of past trips (:mod:`tedtrajrec.methods.past.history`) and a chain over
the candidates of the fixes (:mod:`tedtrajrec.methods.past.voting`). Where nobody drove before, it is Route + HMM.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.base import Arrays, Choices, Method, Recovered, as_recovered, part_of
from tedtrajrec.methods.past.history import history_state, make_history, no_history, order_of_past, restored_history
from tedtrajrec.methods.past.straight import Straight, roads_along, straight_steps
from tedtrajrec.methods.past.voting import Fixes, Steps, Votes, Weights, collect_votes
from tedtrajrec.methods.route_hmm import Driven, RouteHmm
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import map_parts
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]

TRIPS_PER_PART = 64
ROUTE, PAST = "route.", "past."  # how names in the state begin
REACH = 9.0  # nats; candidates that are less likely than the nearest by more are not considered

NOISES_M = (10.0, 7.0, 15.0, 20.0)  # to choose from; the first is taken where nothing speaks for another
ROUTES = (0.2, 0.05, 1.0)
SAMPLE_TRIPS = 800
SAMPLE_KEEP = "1/8"


@dataclass(frozen=True)
class LookupConfig:
    """The settings of the look-up."""

    radius_m: float = 100.0  # candidates of a fix lie within this distance
    most_candidates: int = 16  # of one fix; the nearest are kept
    noise_m: float | None = None  # standard deviation of a fix across the road; None: chosen on training trips
    route: float | None = None  # weight of the route of Route + HMM, in past sub-trips; None: chosen likewise
    scale_s: float = 20.0  # a past sub-trip whose time differs by this weighs 1/e
    near_m: float = 100.0  # standard deviation of how far from a fix a past trip may start or end on its segment
    most_visits: int = 2000  # of one segment that are remembered


class Chosen(NamedTuple):
    """The settings that training trips decide."""

    noise_m: float
    route: float


class Lookup(Method[LookupConfig]):
    """Votes of past trips between the same roads, and Route + HMM where there are none (look-up).

    Memory: 12 bytes on disk and 25 at work for each step of the training trips and each segment they entered; in
    recovery, for each thread up to 32 bytes x ``most_visits`` for each candidate of a trip.
    """

    name = "lookup"
    Config = LookupConfig

    def __init__(self, network: RoadNetwork, config: LookupConfig | None = None) -> None:
        super().__init__(network, config)
        self._route = RouteHmm(network)
        self._finder = CandidateFinder(network)
        self._history = no_history(network.n_segments)
        self._chosen = Chosen(self.config.noise_m or NOISES_M[0], self.config.route or ROUTES[0])

    def precompute(self, dataset: Dataset) -> None:
        """Remember the training trips, learn what Route + HMM learns, and choose noise and weight of the route."""
        self._route.precompute(dataset)
        trips = dataset.split("train").trips()
        self._history = make_history(self.network, trips, most_visits=self.config.most_visits)
        self._choose(trips, dataset.info.step_s, dataset.info.time_zone)

    def _choose(self, trips: Trips, step_s: int, time_zone: str) -> None:
        """Take the settings with which the most steps of thinned training trips, each left out, are right."""
        sample = trips.select(order_of_past(trips)[:SAMPLE_TRIPS])
        observed = draw_observed(sample, SAMPLE_KEEP)
        batch = make_batch(sample, observed, self.network, step_s=step_s, time_zone=time_zone)
        driven = self._route.drive(batch)
        truth = batch.segment[batch.step_mask].numpy()

        def right(chosen: Chosen) -> int:
            voted, _, _ = most_voted(self.votes(batch, driven, chosen, left_out=np.arange(len(sample))), 1)
            return int(((voted[:, 0] == truth) & (truth >= 0)).sum())

        if self.config.noise_m is None:
            self._chosen = max((self._chosen._replace(noise_m=noise_m) for noise_m in NOISES_M), key=right)
        if self.config.route is None:
            self._chosen = max((self._chosen._replace(route=route) for route in ROUTES), key=right)

    def state(self) -> Arrays:
        """Return the past trips, the settings chosen, and what Route + HMM learned."""
        route = {ROUTE + name: array for name, array in self._route.state().items()}
        past = {PAST + name: array for name, array in history_state(self._history).items()}
        return {"chosen": np.array(self._chosen), **past, **route}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        self._chosen = Chosen(*state["chosen"].tolist())
        self._route.restore(part_of(state, ROUTE))
        self._history = restored_history(part_of(state, PAST), self.network.n_segments, self.config.most_visits)

    def recover(self, batch: Batch) -> Recovered:
        """Return the segment with most votes at every step, its mean ratio, and the log of its share of the votes."""
        return Recovered(*(part[..., 0] for part in self.best(batch, 1)))

    def best(self, batch: Batch, k: int, *, at_fixes: bool = False) -> Choices:
        """Return the k segments with most votes at every step, likewise; ``at_fixes`` as for :meth:`votes`."""
        driven = self._route.drive(batch, at_fixes=at_fixes)
        segment, ratio, log_prob = most_voted(self.votes(batch, driven, self._chosen, at_fixes=at_fixes), k)
        lost = np.flatnonzero(segment[:, 0] < 0)
        segment[lost, 0], ratio[lost, 0] = driven.segment[lost], driven.ratio[lost]
        lost = lost[segment[lost, 0] < 0]
        if len(lost):
            line = straight_steps(batch, self.network)
            segment[lost, 0], ratio[lost, 0] = roads_along(self._finder, Straight(*(column[lost] for column in line)))
        return Choices(*as_recovered(batch, segment, ratio, log_prob))

    def votes(
        self,
        batch: Batch,
        driven: Driven,
        chosen: Chosen | None = None,
        *,
        left_out: Ints | None = None,
        at_fixes: bool = False,
        workers: int | None = None,
    ) -> Votes:
        """Return the votes at the real steps of a batch.

        Parameters
        ----------
        batch
            The trips.
        driven
            What Route + HMM made of them.
        chosen
            Settings instead of those that training trips decided.
        left_out
            For each trip the past trip that is itself, and so has no vote; -1 for none [B].
        at_fixes
            Whether observed steps are when their fixes were, as for methods that answer these (``answers_fixes``).
        workers
            Number of threads; all processors if not given.
        """
        chosen = chosen or self._chosen
        start = batch.start.cpu().numpy()
        fixes = self._fixes(batch.fixes(self.network), start, driven, chosen.noise_m, left_out)
        offsets, time = batch.step_times(at_fixes=at_fixes)
        since = (time - np.repeat(start, np.diff(offsets))).astype(np.float64)
        weights = Weights(self.config.scale_s, self.config.near_m, chosen.route)

        def collect(part: slice) -> Votes:
            bounds = offsets[part.start : part.stop + 1]
            rows = slice(bounds[0], bounds[-1])
            steps = Steps(bounds - bounds[0], since[rows], driven.segment[rows], driven.ratio[rows])
            here = fixes._replace(
                offset=fixes.offset[part.start : part.stop + 1], left_out=fixes.left_out[part.start : part.stop]
            )
            return collect_votes(self._history, self.network.length_m, here, steps, weights)

        parts = [
            slice(first, min(first + TRIPS_PER_PART, len(batch))) for first in range(0, len(batch), TRIPS_PER_PART)
        ]
        return _joined(map_parts(collect, parts, workers))

    def _fixes(self, trips: Trips, start: Ints, driven: Driven, noise_m: float, left_out: Ints | None) -> Fixes:
        """Return the fixes with their likely candidates, that of the matcher first; a fix without any is left out."""
        near = self._finder.within(trips.lon, trips.lat, self.config.radius_m, most=self.config.most_candidates)
        fix_of = np.repeat(np.arange(trips.n_fixes), np.diff(near.offsets))
        matched = np.flatnonzero(driven.fix_segment >= 0)
        at = self.network.plane.to_xy(*self.network.point_at(driven.fix_segment[matched], driven.fix_ratio[matched]))
        x, y = self.network.plane.to_xy(trips.lon[matched], trips.lat[matched])
        own_m = np.hypot(at[0] - x, at[1] - y)

        nearest_m = np.full(trips.n_fixes, np.inf)
        nearest_m[matched] = own_m
        np.minimum.at(nearest_m, fix_of, near.distance_m)
        log_likelihood = (nearest_m[fix_of] ** 2 - near.distance_m**2) / (2 * noise_m**2)
        other = (log_likelihood > -REACH) & (near.segment != driven.fix_segment[fix_of])
        own = np.maximum((nearest_m[matched] ** 2 - own_m**2) / (2 * noise_m**2), -REACH)

        fix = np.concatenate([matched, fix_of[other]])
        order = np.argsort(fix, kind="stable")
        count = np.bincount(fix, minlength=trips.n_fixes)
        some = count > 0
        since = (trips.time - np.repeat(start, trips.lengths)).astype(np.float64)
        return Fixes(
            offset=np.concatenate([[0], np.cumsum(some)])[trips.offsets].astype(np.int64),
            time=since[some],
            candidate_offset=np.concatenate([[0], np.cumsum(count[some])]).astype(np.int64),
            segment=np.concatenate([driven.fix_segment[matched], near.segment[other]])[order],
            ratio=np.concatenate([driven.fix_ratio[matched], near.ratio[other]])[order],
            likelihood=np.exp(np.concatenate([own, log_likelihood[other]])[order]),
            chosen=np.where(driven.fix_segment >= 0, 0, -1)[some],
            left_out=np.full(len(trips), -1) if left_out is None else left_out,
        )


def most_voted(votes: Votes, k: int) -> tuple[Segments, Floats, Floats]:
    """Return the k segments with the largest shares at each step [N, k], their ratios and the log of the shares.

    Of equal shares the lower segment comes first. Where fewer have votes, segment is -1 and the others are NaN.
    """
    n_steps = len(votes.offset) - 1
    step = np.repeat(np.arange(n_steps), np.diff(votes.offset))
    best = np.lexsort((votes.segment, -votes.share, step))
    rank = np.arange(len(step)) - votes.offset[step]  # steps are in order, so row i of the sorted is of step[i]
    best, at = best[rank < k], (step[rank < k], rank[rank < k])
    shape = (n_steps, k)
    segment, ratio, log_prob = np.full(shape, -1, np.int32), np.full(shape, np.nan), np.full(shape, np.nan)
    segment[at], ratio[at] = votes.segment[best], votes.ratio[best]
    log_prob[at] = np.minimum(np.log(votes.share[best]), 0.0)
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
