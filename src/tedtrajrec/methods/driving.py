"""From the likely candidates of all steps to a trip that can be driven, of the highest score.

A step's candidates count whose probability is not far below that of its best one. Among all paths through them the one
of the highest score is taken that can be driven (:mod:`tedtrajrec.methods.drivable_paths`): along the map, forwards,
within the top speed, and observed steps within 100 m of their fixes. A break is left only where there is no such path,
and ratios are moved as little as that takes (:mod:`tedtrajrec.methods.placing`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.drivable_paths import Lattice, drivable_paths
from tedtrajrec.methods.placing import TOP_SPEED_MPS, place
from tedtrajrec.network.near import NearTable, near_table
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.network.stretches import stretches

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Reals = NDArray[np.float32]

FAR_M = 99.0  # of the 100 m allowed: the plane and 32 bits are not exact


class Options(NamedTuple):
    """K candidates at each step of a batch, the likeliest first."""

    segment: Tensor  # [B, n, K] int64
    ratio: Tensor  # [B, n, K]
    log_prob: Tensor  # [B, n, K] minus infinity where there are fewer
    score: Tensor  # [B, n, K]
    move: Tensor  # [B, n, K, K] scores of coming from the candidates of the step before; nothing at the first


class Driven(NamedTuple):
    """A trip for each of a batch, at its N real steps."""

    choice: Ints  # [N] which of the options
    segment: Ints  # [N]
    ratio: Floats  # [N]
    broken: Bools  # [N] whether the move to the step cannot be driven


class Driver:
    """Makes trips that can be driven; may be used from several threads.

    Parameters
    ----------
    network
        The road network.
    step_s
        Seconds of a step.
    near
        What can be reached from the end of each segment within a step at the top speed; searched if not given.
    top_speed_mps
        What no move may exceed.
    """

    def __init__(
        self,
        network: RoadNetwork,
        step_s: float,
        *,
        near: NearTable | None = None,
        top_speed_mps: float = TOP_SPEED_MPS,
    ) -> None:
        self.network, self._step_s, self._top_speed_mps = network, step_s, top_speed_mps
        self.reach_m = top_speed_mps * step_s
        self.router = Router(network)
        self._near = near or near_table(network, self.reach_m)

    def drive(self, batch: Batch, options: Options, *, margins: tuple[float, ...]) -> Driven:
        """Return the best trips that can be driven.

        Parameters
        ----------
        batch
            The trips.
        options
            Their candidates.
        margins
            A candidate counts that is less likely than the best of its step by at most so many nats; trips that have a
            break then are searched again with the next margin.
        """
        mask = batch.step_mask.cpu().numpy()
        offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
        segment, ratio, log_prob, score, move = (part.cpu().numpy()[mask] for part in options)
        lowest, highest, far = self._stretches(batch, mask, segment)
        near_enough = np.where(far, -np.inf, log_prob)
        lost = near_enough.max(axis=1, keepdims=True) == -np.inf  # all are too far from the fix: any of them serves
        likely = np.where(lost, log_prob, near_enough)

        choice, broken = np.zeros(len(segment), np.int64), np.zeros(len(segment), np.bool_)
        trips = np.arange(len(mask))
        for margin in margins:
            rows, bounds = _steps_of(trips, offsets)
            least = likely[rows].max(axis=1, keepdims=True) - margin
            exists = (likely[rows] >= least) & (likely[rows] > -np.inf)
            k = 1 + int(np.max(np.nonzero(exists)[1], initial=0))
            seg = np.where(exists, segment[rows], -1)[:, :k]
            length = np.where(seg >= 0, self.network.length_m[seg], 0.0)
            lattice = Lattice(
                score=np.where(exists, score[rows], -np.inf)[:, :k].astype(np.float64),
                segment=seg,
                length_m=length,
                lowest_m=lowest[rows, :k] * length,
                highest_m=highest[rows, :k] * length,
                reach_m=np.full(len(rows), self.reach_m),
                gap_m=self._gaps(seg),
                move=move[rows, :k, :k],
            )
            choice[rows], broken[rows] = drivable_paths(bounds, lattice)
            trips = np.unique(np.searchsorted(offsets, np.flatnonzero(broken), side="right") - 1)
            if not len(trips):
                break
        row = np.arange(len(segment))
        at = row, choice
        placed = self._placed(offsets, segment[at], ratio[at], lowest[at], highest[at])
        return Driven(choice, segment[at], placed, broken)

    def place(self, batch: Batch, segment: Tensor, ratio: Tensor) -> Tensor:
        """Return the ratios [B, n] nearest to those given with which the segments [B, n] can be driven."""
        mask = batch.step_mask.cpu()
        offsets = np.concatenate([[0], np.cumsum(mask.sum(1).numpy())]).astype(np.int64)
        taken = segment[mask].numpy()
        lowest, highest, _ = self._stretches(batch, mask.numpy(), taken[:, None])
        out = torch.zeros_like(ratio)
        placed = self._placed(offsets, taken, ratio[mask].numpy(), lowest[:, 0], highest[:, 0])
        out[mask] = torch.from_numpy(placed).to(ratio.dtype)
        return out

    def _placed(self, offsets: Ints, segment: Ints, ratio: Reals, lowest: Floats, highest: Floats) -> Floats:
        return place(
            self.router,
            offsets,
            segment,
            ratio,
            step_s=self._step_s,
            top_speed_mps=self._top_speed_mps,
            lowest=lowest,
            highest=highest,
            gap_m=np.append(np.float32(np.inf), self._near.lookup(segment[:-1], segment[1:])[0])[: len(segment)],
        )

    def _gaps(self, segment: Ints) -> Reals:
        """Return the metres from the end of each choice of the step before to the start of each of a step [N, K, K]."""
        out = np.full((*segment.shape, segment.shape[1]), np.inf, np.float32)
        out[1:] = self._near.lookup(segment[:-1, :, None], segment[1:, None, :])[0]
        return out

    def _stretches(self, batch: Batch, mask: Bools, segment: Ints) -> tuple[Floats, Floats, Bools]:
        """Return where on each candidate its step must be, as ratios, and which are too far from their fix [N, K]."""
        lowest, highest, far = np.zeros(segment.shape), np.ones(segment.shape), np.zeros(segment.shape, np.bool_)
        fix_mask = batch.fix_mask.cpu().numpy()
        number = np.cumsum(mask).reshape(mask.shape) - 1  # of each step among the real ones
        step = number[np.nonzero(fix_mask)[0], batch.fix_step.cpu().numpy()[fix_mask]]
        x, y = batch.fix_xy.cpu().numpy().astype(np.float64)[fix_mask].repeat(segment.shape[1], axis=0).T
        near = stretches(self.network, segment[step].ravel(), x, y, FAR_M)
        away = near.distance_m > FAR_M
        shape = len(step), segment.shape[1]
        far[step] = away.reshape(shape)
        lowest[step] = np.where(away, 0.0, near.lowest).reshape(shape)
        highest[step] = np.where(away, 1.0, near.highest).reshape(shape)
        return lowest, highest, far


def _steps_of(trips: Ints, offsets: Ints) -> tuple[Ints, Ints]:
    """Return the rows of the steps of some trips, and where each trip begins among them."""
    count = np.diff(offsets)[trips]
    return ranges(offsets[trips], count), np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
