"""Feasible decoding: of the likely segments of all steps, the most likely trip that can be driven.

A method that answers each step by itself may leap between roads. Here it gives several segments e_i of each step with
their probabilities, and the trip is taken that makes

    sum_i log p(e_i) - sum_i metres(e_i, e_{i+1}) / scale

greatest among those that can be driven: every move leads along the map, forwards, within the top speed, and observed
steps stay within 100 m of their fixes (:mod:`tedtrajrec.methods.drivable_paths`). Where no such trip exists, it has as
few breaks as possible; links that past trips show are breaks too, for the map does not have them. Ratios are moved as
little as that takes (:mod:`tedtrajrec.methods.placing`).

Its probabilities are what the method gave to the segments taken. Those of a chain with these scores and moves are worse
(``docs/log.md``): each step already knows of all fixes, so the chain would count the same evidence many times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays, Choices, Method, Recovered, as_recovered
from tedtrajrec.methods.drivable_paths import BREAK, Lattice, drivable_paths
from tedtrajrec.methods.placing import TOP_SPEED_MPS, place
from tedtrajrec.network.near import NearTable, find_near, near_table
from tedtrajrec.network.routing import Router
from tedtrajrec.network.stretches import stretches
from tedtrajrec.threads import map_parts

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

CHOICES = 12
SCALE_M = 400.0
MARGIN = 3.0
FAR_M = 99.0  # of the 100 m allowed: the plane and 32 bits are not exact
STEPS_PER_PART = 1024


class Placed(NamedTuple):
    """A trip that can be driven, for each of the N steps of some trips."""

    segment: Ints  # [N] -1 where there was no choice
    ratio: Floats  # [N]
    log_prob: Floats  # [N]
    broken: Bools  # [N] whether the move to the step cannot be driven


class Feasible(Method[Any]):
    """A method whose answers are made trips that can be driven; it has its name, and is saved as it.

    A method that gives one segment a step keeps these, and only its ratios are changed.

    Parameters
    ----------
    method
        The method, ready for use.
    choices
        Segments of each step, at most.
    scale_m
        Driving so many metres more must make a trip e times as likely.
    margin
        Segments that are less likely than the best one of their step by more are no choices; nats.
    top_speed_mps
        What no move may exceed.
    """

    def __init__(
        self,
        method: Method[Any],
        *,
        choices: int = CHOICES,
        scale_m: float = SCALE_M,
        margin: float = MARGIN,
        top_speed_mps: float = TOP_SPEED_MPS,
    ) -> None:
        super().__init__(method.network, method.config)
        self.method, self.choices, self.scale_m, self.margin = method, choices, scale_m, margin
        self.top_speed_mps = top_speed_mps
        self.name = method.name  # type: ignore[misc]
        one_answer = type(method).best is Method.best
        self.decoding = "feasible ratios" if one_answer else "feasible"
        self._router = Router(method.network)
        self._near: tuple[float, NearTable] | None = None

    def precompute(self, dataset: Dataset) -> None:
        """Have the method learn."""
        self.method.precompute(dataset)

    def state(self) -> Arrays:
        """Return what the method learned."""
        return self.method.state()

    def restore(self, state: Arrays) -> None:
        """Have the method take over what :meth:`state` returned."""
        self.method.restore(state)

    def recover(self, batch: Batch) -> Recovered:
        """Return the most likely trips that can be driven."""
        placed = self.drive(batch, self.method.best(batch, self.choices))
        return as_recovered(batch, placed.segment.astype(np.int32), placed.ratio, placed.log_prob)

    def drive(self, batch: Batch, choices: Choices) -> Placed:
        """Return the most likely trips that can be driven among the choices of the steps of a batch."""
        mask = batch.step_mask.cpu().numpy()
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
        segment, ratio, log_prob = (part.cpu().numpy()[mask] for part in choices)
        best = np.fmax.reduce(log_prob, axis=1, keepdims=True)
        exists = (segment >= 0) & ~(log_prob < best - self.margin)
        near, reach_m = self._table(batch.step_s), self.top_speed_mps * batch.step_s
        lowest, highest, far = self._stretches(batch, segment, exists)

        some = np.flatnonzero(exists.any(axis=1))  # steps without any choice are left out
        bounds = np.searchsorted(some, offsets)
        starts = np.zeros(len(some), np.bool_)
        starts[bounds[:-1][np.diff(bounds) > 0]] = True
        seg, at = np.where(exists, segment, -1)[some], ratio[some].astype(np.float64)
        length = np.where(seg >= 0, self.network.length_m[seg], 0.0)
        gap = _gaps(near, seg, starts)
        metres = _metres(seg, at * length, length, gap)
        lattice = Lattice(
            score=np.where(exists, np.where(np.isnan(log_prob), 0, log_prob) - BREAK * far, -np.inf)[some],
            segment=seg,
            length_m=length,
            lowest_m=lowest[some] * length,
            highest_m=highest[some] * length,
            reach_m=reach_m * np.diff(some, prepend=0),
            gap_m=gap,
            move=-metres / np.float32(self.scale_m),
        )
        choice, broken = drivable_paths(np.unique(bounds), lattice)

        out = Placed(
            np.full(len(segment), -1),
            np.zeros(len(segment)),
            np.full(len(segment), np.nan),
            np.zeros(len(segment), bool),
        )
        row = np.arange(len(some))
        out.segment[some], out.broken[some] = seg[row, choice], broken
        out.log_prob[some] = log_prob[some, choice]
        proposed, low, high = (np.zeros(len(segment)) for _ in range(3))
        proposed[some], low[some], high[some] = at[row, choice], lowest[some, choice], highest[some, choice]
        way = np.full(len(segment), np.inf)
        way[some] = gap[row, np.roll(choice, 1), choice]
        out.ratio[:] = place(
            self._router,
            offsets,
            out.segment,
            proposed,
            step_s=batch.step_s,
            top_speed_mps=self.top_speed_mps,
            lowest=low,
            highest=high,
            gap_m=way,
        )
        return out

    def _table(self, step_s: float) -> NearTable:
        """Return what can be reached in a step."""
        if self._near is None or self._near[0] != step_s:
            self._near = step_s, near_table(self.network, self.top_speed_mps * step_s)
        return self._near[1]

    def _stretches(self, batch: Batch, segment: Ints, exists: Bools) -> tuple[Floats, Floats, Bools]:
        """Return where on each choice its step must be, as ratios, and which choices are too far from their fix."""
        lowest, highest, far = np.zeros(segment.shape), np.ones(segment.shape), np.zeros(segment.shape, np.bool_)
        mask, fix_mask = batch.step_mask.cpu().numpy(), batch.fix_mask.cpu().numpy()
        number = np.cumsum(mask).reshape(mask.shape) - 1  # of each step among the real ones
        trip = np.nonzero(fix_mask)[0]
        step = number[trip, batch.fix_step.cpu().numpy()[fix_mask]]
        fix, which = np.nonzero(exists[step])
        x, y = batch.fix_xy.cpu().numpy().astype(np.float64)[fix_mask][fix].T
        near = stretches(self.network, segment[step[fix], which], x, y, FAR_M)
        away = near.distance_m > FAR_M
        at = step[fix], which
        far[at] = away
        lowest[at], highest[at] = np.where(away, 0.0, near.lowest), np.where(away, 1.0, near.highest)
        return lowest, highest, far


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
                if place >= 0:
                    out[i, c, d] = metres[place]


def _metres(segment: Ints, at_m: Floats, length: Floats, gap: Reals) -> Reals:
    """Return the metres that are driven from each choice of the step before to each of a step [N, K, K].

    Where there is no way they are 0: nothing is known of them.
    """
    before = np.roll(np.arange(len(segment)), 1)
    here, there = at_m.astype(np.float32), (length - at_m).astype(np.float32)
    metres = there[before][:, :, None] + gap + here[:, None, :]
    ahead = np.maximum(here[:, None, :] - here[before][:, :, None], 0)
    metres = np.where(segment[before][:, :, None] == segment[:, None, :], ahead, metres)
    out: Reals = np.where(np.isfinite(metres), metres, np.float32(0))
    return out
