"""From the likely segments of all steps to trips that can be driven.

A step's choices count whose probability is not far below that of its best one. Among all paths through them the one of
the highest score is taken that can be driven (:mod:`tedtrajrec.methods.drivable_paths`): every move leads along the
map, forwards, within the top speed, and observed steps stay within 100 m of their fixes. Where there is none, it has as
few breaks as possible, and in a map that is whole these are driven around along the map's shortest way
(:mod:`tedtrajrec.methods.bridging`), which leaves those for which fixes would have to be far from the roads that they
were seen on. Where that is enforced, in any map, a break that is left cannot be avoided by any trip past the fixes.
In a map that lacks roads such a way is a detour around a missing one, and a break is much nearer to the truth: Chengdu
would lose .1 of the accuracy (``docs/log.md``). Ratios are moved as little as that takes
(:mod:`tedtrajrec.methods.placing`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Choices
from tedtrajrec.methods.bridging import Steps, bridge
from tedtrajrec.methods.drivable_paths import BREAK, Lattice, drivable_paths, driven_metres
from tedtrajrec.methods.near_fixes import PRICE, Around, Fixes, Known, roads_around
from tedtrajrec.methods.past.drives import TOP_SPEED_MPS
from tedtrajrec.methods.placing import place
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.connectivity import is_whole
from tedtrajrec.network.near import NearTable, find_near, near_table
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.network.stretches import stretches
from tedtrajrec.threads import map_parts

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

FAR_M = 99.0  # of the 100 m allowed: the plane and 32 bits are not exact
FAR = BREAK / 100  # what a choice beyond loses: it is better than a break, and nothing else
STEPS_PER_PART = 1024


class Driven(NamedTuple):
    """A trip for each of a batch, at its N real steps."""

    segment: Ints  # [N] -1 where there was no choice
    ratio: Floats  # [N]
    log_prob: Floats  # [N]
    broken: Bools  # [N] whether the move to the step cannot be driven


class Driver:
    """Makes trips that can be driven.

    Parameters
    ----------
    network
        The road network.
    margin
        A choice counts that is less likely than the best of its step by at most so many nats.
    scale_m
        Driving so many metres more takes 1 off the score.
    top_speed_mps
        What no move may exceed.
    near
        What can be reached in a step from the end of each segment; searched at first use if not given.
    bridged
        Whether breaks are driven around along other roads than those chosen; where the map lacks no roads to speak of
        (:func:`is_whole`) if not given.
    enforced
        Whether breaks are avoided wherever that is possible at all, at whatever price.
    """

    def __init__(
        self,
        network: RoadNetwork,
        *,
        margin: float,
        scale_m: float = np.inf,
        top_speed_mps: float = TOP_SPEED_MPS,
        near: NearTable | None = None,
        bridged: bool | None = None,
        enforced: bool = False,
    ) -> None:
        self.network, self.margin, self.scale_m, self.top_speed_mps = network, margin, scale_m, top_speed_mps
        self.router = Router(network)
        self._near = near
        self._bridged = is_whole(network) if bridged is None else bridged
        self._price = np.inf if enforced else PRICE
        self._finder: CandidateFinder | None = None  # made at first use

    def drive(
        self,
        batch: Batch,
        choices: Choices,
        score: Tensor | None = None,
        move: Tensor | None = None,
        *,
        bridged: bool = True,
        margin: float | None = None,
    ) -> Driven:
        """Return the best trips that can be driven among the choices of the steps of a batch.

        Parameters
        ----------
        batch
            The trips.
        choices
            Of their steps.
        score
            Of the first k choices of each step [B, n, k]; the logarithms of all probabilities if not given.
        move
            Scores of coming to them from those of the step before [B, n, k, k]; none if not given.
        bridged
            False to leave breaks that the driver would drive around.
        margin
            In place of the driver's own.
        """
        mask = batch.step_mask.cpu().numpy()
        segment, ratio, log_prob = (part.cpu().numpy()[mask] for part in choices)
        known = np.nan_to_num(log_prob)
        value, moves = (None if part is None else part.cpu().numpy()[mask] for part in (score, move))
        fix = _steps_of_fixes(batch, mask)
        lowest, highest, far = self._stretches(batch, fix, segment)
        chance = np.where(segment >= 0, known, -np.inf)
        likely = np.where(far, -np.inf, chance)
        lost = likely.max(axis=1, keepdims=True) == -np.inf  # where all are too far from the fix, any serves
        likely = np.where(lost, chance, likely)

        some = np.flatnonzero((segment >= 0).any(axis=1))  # steps without any choice are left out
        trip = np.repeat(np.arange(len(mask)), mask.sum(axis=1))[some]
        margin = self.margin if margin is None else margin
        exists = (segment[some] >= 0) & (likely[some] >= likely[some].max(axis=1, keepdims=True) - margin)
        k = 1 + int(np.nonzero(exists.any(axis=0))[0].max(initial=0))  # behind these, none counts
        if value is not None:
            k = min(k, value.shape[1])
        exists = exists[:, :k]
        seg = np.where(exists, segment[some, :k], -1)
        length = np.where(exists, self.network.length_m[seg], 0.0)
        starts = np.diff(trip, prepend=-1) != 0
        gap = _gaps(self._table(batch.step_s), seg, starts)
        lattice = Lattice(
            score=np.where(exists, (known if value is None else value)[some, :k] - FAR * far[some, :k], -np.inf),
            segment=seg,
            length_m=length,
            lowest_m=lowest[some, :k] * length,
            highest_m=highest[some, :k] * length,
            reach_m=self.top_speed_mps * batch.step_s * np.diff(some, prepend=0),
            gap_m=gap,
            move=self._moves(seg, ratio[some, :k] * length, length, gap, None if moves is None else moves[some]),
        )
        choice, broken = drivable_paths(np.append(np.flatnonzero(starts), len(some)), lattice)

        at = some, choice
        n = len(segment)
        out = Driven(np.full(n, -1), np.zeros(n), np.full(n, np.nan), np.zeros(n, np.bool_))
        out.segment[some], out.log_prob[some], out.broken[some] = segment[at], log_prob[at], broken
        low, high, way = np.zeros(n), np.ones(n), np.zeros(n)
        out.ratio[some], low[some], high[some] = ratio[at], lowest[at], highest[at]
        way[some[1:]] = self._table(batch.step_s).lookup(segment[at][:-1], segment[at][1:])[0]
        offsets = np.append(0, np.cumsum(mask.sum(axis=1)))
        out.ratio[:] = self._placed(offsets, out, low, high, batch.step_s, way)
        if bridged and self._bridged and out.broken.any():
            steps = Steps(out.segment, out.ratio, low, high, out.broken)
            ratios = np.clip(ratio, lowest, highest)[fix]
            moved = self._bridge(batch, offsets, fix, Known(segment[fix], ratios, known[fix], far[fix]), steps)
            same = segment[moved] == out.segment[moved, None]
            worst = np.where(segment[moved] >= 0, log_prob[moved], np.inf).min(axis=1)  # of those not among the choices
            worst[np.isinf(worst)] = np.nan  # of a step without any choice nobody has said how likely it is
            out.log_prob[moved] = np.where(same.any(axis=1), np.where(same, log_prob[moved], 0).sum(axis=1), worst)
            out.ratio[:] = self._placed(offsets, out, low, high, batch.step_s)
        return out

    def _placed(
        self, offsets: Ints, trips: Driven, low: Floats, high: Floats, step_s: int, gap_m: Floats | None = None
    ) -> Floats:
        """Return the ratios of trips moved as little as driving takes."""
        return place(
            self.router,
            offsets,
            trips.segment,
            trips.ratio,
            step_s=step_s,
            top_speed_mps=self.top_speed_mps,
            lowest=low,
            highest=high,
            gap_m=gap_m,
            broken=trips.broken,
        )

    def _bridge(self, batch: Batch, offsets: Ints, fix: Ints, known: Known, steps: Steps) -> Bools:
        """Drive around breaks where the map has a way, and return which steps were changed."""
        place = batch.fixes(self.network)

        def around(few: Ints) -> Around:
            if self._finder is None:
                self._finder = CandidateFinder(self.network)
            chosen = Known(known.segment[few], known.ratio[few], known.log_prob[few], known.far[few])
            return roads_around(self._finder, place.lon[few], place.lat[few], FAR_M, chosen)

        fixes = Fixes(fix, np.searchsorted(offsets, fix, side="right") - 1)
        return bridge(self.router, fixes, around, self.top_speed_mps * batch.step_s, self._price, steps)

    def _moves(self, segment: Ints, at_m: Floats, length: Floats, gap: Reals, given: Reals | None) -> Reals:
        """Return the scores of moves from each choice of the step before to each of a step [N, K, K]."""
        k = segment.shape[1]
        out = np.zeros_like(gap) if given is None else np.ascontiguousarray(given[:, :k, :k])
        if np.isfinite(self.scale_m):
            out = out - driven_metres(segment, at_m, length, gap) / np.float32(self.scale_m)
        return out

    def _table(self, step_s: float) -> NearTable:
        """Return what can be reached in a step."""
        if self._near is None or self._near.radius_m != self.top_speed_mps * step_s:
            self._near = near_table(self.network, self.top_speed_mps * step_s)
        return self._near

    def _stretches(self, batch: Batch, step: Ints, segment: Ints) -> tuple[Floats, Floats, Bools]:
        """Return where on each choice its step must be, as ratios, and which choices are too far from their fix."""
        lowest, highest, far = np.zeros(segment.shape), np.ones(segment.shape), np.zeros(segment.shape, np.bool_)
        fix_mask = batch.fix_mask.cpu().numpy()
        fix, which = np.nonzero(segment[step] >= 0)
        x, y = batch.fix_xy.cpu().numpy().astype(np.float64)[fix_mask][fix].T
        at = step[fix], which
        near = stretches(self.network, segment[at], x, y, FAR_M)
        far[at] = near.distance_m > FAR_M
        lowest[at], highest[at] = np.where(far[at], 0.0, near.lowest), np.where(far[at], 1.0, near.highest)
        return lowest, highest, far


def _steps_of_fixes(batch: Batch, mask: Bools) -> Ints:
    """Return the step of each fix of a batch among all real steps [F]."""
    fix_mask = batch.fix_mask.cpu().numpy()
    number = np.cumsum(mask).reshape(mask.shape) - 1
    found: Ints = number[np.nonzero(fix_mask)[0], batch.fix_step.cpu().numpy()[fix_mask]]
    return found


def _gaps(near: NearTable, segment: Ints, starts: Bools) -> Reals:
    """Return the metres from the end of each choice of the step before to the start of each of a step [N, K, K]."""
    n, k = segment.shape
    out = np.full((n, k, k), np.inf, np.float32)

    def fill(first: int) -> None:
        _fill_gaps(near.offsets, near.target, near.metres, segment, starts, first, min(first + STEPS_PER_PART, n), out)

    map_parts(fill, range(0, n, STEPS_PER_PART), None)
    return out


@njit(cache=True, nogil=True)
def _fill_gaps(
    offsets: Ints,
    target: NDArray[np.int32],
    metres: Reals,
    segment: Ints,
    starts: Bools,
    first: int,
    last: int,
    out: Reals,
) -> None:  # pragma: no cover  (compiled)
    for i in range(first, last):
        if starts[i]:
            continue
        for c in range(segment.shape[1]):
            for d in range(segment.shape[1]):
                place = find_near(offsets, target, segment[i - 1, c], segment[i, d])
                if place >= 0 and segment[i - 1, c] != segment[i, d]:
                    out[i, c, d] = metres[place]
