"""Route + HMM: match the sparse fixes, then drive the route between them.

    a_1, .., a_m = matcher(fixes)                                positions
    route(a, b) = the way of least sum of -log p(next | current) + metres / 300 over its segments
    p(next | current) = share of the turns of training trips     smoothed; without trips, the matcher's own route
    step i is where (t_i - t_k) / (t_{k+1} - t_k) of the time of route(a_k, a_{k+1}) is over, at the learned pace

What training trips teach is optional: links where the map lacks a road, how fast each segment is driven, which turns
are popular. Without them the method drives the matcher's routes at free flow, and needs nothing but the map.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays, Method, Recovered, as_recovered
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.links import Links, find_links, off_links, with_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.methods.past.popular import PopularRouter, count_turns
from tedtrajrec.methods.past.straight import Straight, roads_along, straight_steps
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import MatchConfig, Matcher
from tedtrajrec.trips.resample import Tracks, positions_on_tracks, tracks_along, tracks_of
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Segments = NDArray[np.int32]
Preset = Literal["default", "nk09", "song12"]
Pace = Literal["constant", "class", "learned"]
Route = Literal["matched", "popular"]

FREE_FLOW = 1.25
"""Free flow is so much faster than the learned pace, which includes stops."""

LEAST_FIXES = 100
LEAST = float(np.finfo(np.float32).tiny)  # a probability that underflowed
NO_LINKS = Links(np.zeros(0, np.int32), np.zeros(0, np.int32))


@dataclass(frozen=True)
class RouteHmmConfig:
    """The settings of Route + HMM; what is learned takes effect once training trips were seen."""

    preset: Preset = "default"  # of the matcher
    pace: Pace = "learned"  # how time passes between two fixes: constant speed, free flow of the map, or learned pace
    route: Route = "popular"  # between two matched fixes: the matcher's own, or the most popular one
    links: bool = True  # learn roads that the map lacks


class Learned(NamedTuple):
    """What training trips taught of S segments and L links."""

    links: Links
    pace: Floats  # [S] seconds per metre
    turn_count: Ints  # [E] of the network with links
    noise_m: float  # of fixes across the road; NaN where there were too few to say


class Driven(NamedTuple):
    """F matched fixes of a batch and the N positions at its real steps, ragged and in order."""

    fix_segment: Segments  # [F] -1 where unmatched
    fix_ratio: Floats  # [F]
    fix_probability: Floats  # [F] of the segment; 0 where unmatched
    segment: Segments  # [N] -1 where no route was driven
    ratio: Floats  # [N]


class RouteHmm(Method[RouteHmmConfig]):
    """The sparse fixes matched to the map, and the route between them driven (Route + HMM).

    Where the matcher's chain breaks, or a trip's first or last fix is unmatched, a step gets the road along the
    straight line between its fixes.
    """

    name = "route_hmm"
    Config = RouteHmmConfig

    def __init__(self, network: RoadNetwork, config: RouteHmmConfig | None = None) -> None:
        super().__init__(network, config)
        self._finder = CandidateFinder(network)
        self._use(None)

    def precompute(self, dataset: Dataset) -> None:
        """Learn links, pace, turns and noise from the training trips."""
        trips = dataset.split("train").trips()
        drives = drives_of(self.network, trips)
        links = find_links(drives) if self.config.links else NO_LINKS
        turn_count = count_turns(with_links(self.network, links), drives, links)
        self._use(Learned(links, learn_pace(self.network, drives), turn_count, learn_noise(self.network, trips)))

    def state(self) -> Arrays:
        """Return links, pace, turns and noise; nothing without training trips."""
        if self._learned is None:
            return {}
        links, pace, turn_count, noise_m = self._learned
        return {
            "link_source": links.source,
            "link_target": links.target,
            "pace": pace,
            "turn_count": turn_count,
            "noise_m": np.array([noise_m]),
        }

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        if not state:
            self._use(None)
            return
        links = Links(state["link_source"], state["link_target"])
        self._use(Learned(links, state["pace"], state["turn_count"], float(state["noise_m"][0])))

    def _use(self, learned: Learned | None) -> None:
        self._learned = learned
        self._links = NO_LINKS if learned is None else learned.links
        self._roads = with_links(self.network, self._links)
        self._popular = None
        match = MatchConfig.preset(self.config.preset)
        if learned is not None:
            if match.noise_m is None and np.isfinite(learned.noise_m):
                match = dataclasses.replace(match, noise_m=learned.noise_m)
            if self.config.pace == "learned":
                speed = self._roads.speed_mps.copy()
                speed[: self.network.n_segments] = FREE_FLOW / learned.pace
                self._roads = dataclasses.replace(self._roads, speed_mps=speed)
            if self.config.route == "popular":
                self._popular = PopularRouter(self._roads, learned.turn_count)
        # Routes may use links; fixes are matched to roads only.
        self._matcher = Matcher(self._roads, match, near=self.network)
        self._metre_cost = 1 / self._roads.speed_mps.astype(np.float64)
        if self.config.pace == "constant":
            self._metre_cost[: self.network.n_segments] = 0.1  # the same for all; links stay next to nothing

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step; log_prob is the matcher's at observed steps, NaN elsewhere."""
        driven = self.drive(batch)
        segment, ratio = driven.segment.copy(), driven.ratio.copy()
        lost = np.flatnonzero(segment < 0)
        if len(lost):
            line = straight_steps(batch, self.network)
            segment[lost], ratio[lost] = roads_along(self._finder, Straight(*(column[lost] for column in line)))
        log_prob = np.full(len(segment), np.nan)
        known = driven.fix_segment >= 0
        log_prob[_step_of_fix(batch)[known]] = np.log(driven.fix_probability[known].clip(min=LEAST))
        return as_recovered(batch, segment, ratio, log_prob)

    def drive(self, batch: Batch, *, at_fixes: bool = False) -> Driven:
        """Match the fixes of a batch and drive the routes between them, where there are any.

        With ``at_fixes``, the position of an observed step is that of its fix.
        """
        fixes = batch.fixes(self.network)
        matched = self._matcher.match(fixes)
        tracks = tracks_of(fixes, matched)
        if self._popular is not None:
            tracks = _reroute(tracks, self._popular)
        at = positions_on_tracks(self._roads, tracks, *batch.step_times(at_fixes=at_fixes), metre_cost=self._metre_cost)
        n = self.network.n_segments
        fix_segment, fix_ratio = off_links(self._links, n, matched.segment, matched.ratio)
        return Driven(fix_segment, fix_ratio, matched.probability, *off_links(self._links, n, *at))


def learn_noise(network: RoadNetwork, trips: Trips) -> float:
    """Return the noise of fixes across the road, from their distances to the true positions; NaN for few fixes.

    It is what the distance that 90 % stay within would be for a normal: the matcher must live with the far ones.
    """
    if trips.segment is None or trips.ratio is None:
        raise ValueError("the trips carry no positions")
    known = (trips.segment >= 0) & np.isfinite(trips.lon)
    if known.sum() < LEAST_FIXES:
        return float("nan")
    x, y = network.plane.to_xy(trips.lon[known], trips.lat[known])
    true_x, true_y = network.plane.to_xy(*network.point_at(trips.segment[known], trips.ratio[known]))
    far = np.quantile(np.hypot(x - true_x, y - true_y), 0.9) / 1.645
    return float(np.clip(far, MatchConfig.least_noise_m, MatchConfig.most_noise_m))


def _reroute(tracks: Tracks, router: PopularRouter) -> Tracks:
    """Return tracks whose ways between knots are the router's; what stays on one segment stays."""
    joined = np.diff(tracks.piece, prepend=-1) == 0
    after = np.flatnonzero(joined)
    before = after - 1
    stays = tracks.place[after] == tracks.place[before]
    ratio = np.where(stays, np.maximum(tracks.ratio[before], tracks.ratio[after]), tracks.ratio[after])
    routes = router.routes(tracks.segment[before], tracks.ratio[before], tracks.segment[after], ratio)
    return tracks_along(tracks.offsets, tracks.time, tracks.segment, tracks.ratio, joined, routes)


def _step_of_fix(batch: Batch) -> Ints:
    """Return where among the real steps of a batch each of its fixes was observed [F]."""
    mask = batch.fix_mask.cpu().numpy()
    first = np.cumsum([0, *batch.step_mask.sum(dim=1).tolist()])[:-1]
    step: Ints = (batch.fix_step.cpu().numpy() + first[:, None])[mask]
    return step
