"""What TRMMA sees of a batch: the segments around the fixes, and a route for each gap between two of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.past.planner import Planner, Ragged
from tedtrajrec.methods.past.step_routes import StepRoutes, step_routes
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.routing import Router
from tedtrajrec.nn.mma import candidate_features

Ints = NDArray[np.int64]

RADIUS_M, WIDER_M = 50.0, 10.0  # candidates are searched so far; where there are none, so much farther each time


class MatchInputs(NamedTuple):
    """The fixes of a batch with the K segments around them; for the matcher, fixes are the steps."""

    fix_mask: Tensor  # [B, m] bool
    fix_xy: Tensor  # [B, m, 2] from the middle of the network, half its extent is 1
    fix_step: Tensor  # [B, m] int64
    near_segment: Tensor  # [B, m, K] int64
    near_ratio: Tensor  # [B, m, K]
    near_features: Tensor  # [B, m, K, 9]
    near_exists: Tensor  # [B, m, K] bool

    @property
    def step_mask(self) -> Tensor:
        """What has an answer [B, m]."""
        return self.fix_mask

    def to(self, device: torch.device) -> MatchInputs:
        """Return the tensors on a device."""
        return MatchInputs(*(part.to(device, non_blocking=True) for part in self))

    def pin(self) -> MatchInputs:
        """Return the tensors in memory that can be copied to a device while other work goes on."""
        return MatchInputs(*(part.pin_memory() for part in self))

    def rounded(self, fixes: int = 4) -> MatchInputs:
        """Return the batch with more padding, up to a multiple of this, so that few shapes occur."""
        more = -self.fix_mask.shape[1] % fixes
        return MatchInputs(*(functional.pad(part, [0, 0] * (part.ndim - 2) + [0, more]) for part in self))


class TrmmaInputs(NamedTuple):
    """A batch with the routes of its gaps; gap g is that between fix g and the next one, the last has none."""

    fix_mask: Tensor
    fix_xy: Tensor
    fix_step: Tensor
    near_segment: Tensor
    near_ratio: Tensor
    near_features: Tensor
    near_exists: Tensor
    near_true: Tensor  # [B, m, K] bool, the truth
    fix_ratio: Tensor  # [B, m] on the first segment of the gap's route, and on the last one of the gap before
    route: Tensor  # [B, m, R] int64; -1 for padding
    gap_place: Tensor  # [B, m, L] int64, the truth at its steps: place on the route; -1 for unknown and padding
    gap_ratio: Tensor  # [B, m, L] likewise
    gap_forced: Tensor  # [B, m, L] bool, steps whose truth is fed to the next one in training
    step_mask: Tensor  # [B, n] bool
    before: Tensor  # [B, n] int64, the last fix up to the step
    hour: Tensor  # [B, 1] int64, of the day, and 24 later at the weekend

    def to(self, device: torch.device) -> TrmmaInputs:
        """Return the tensors on a device."""
        return TrmmaInputs(*(part.to(device, non_blocking=True) for part in self))

    def pin(self) -> TrmmaInputs:
        """Return the tensors in memory that can be copied to a device while other work goes on."""
        return TrmmaInputs(*(part.pin_memory() for part in self))

    def rounded(self, fixes: int = 4, steps: int = 8, route: int = 16) -> TrmmaInputs:
        """Return the batch with more padding, up to multiples of these, so that few shapes occur."""
        multiple = {"route": (fixes, route), "gap": (fixes, steps), "step": (steps,), "before": (steps,), "hour": ()}
        padded = {}
        for name, value in self._asdict().items():
            sizes = multiple.get(name.split("_")[0], (fixes,))
            pads = [0, 0] * (value.ndim - 1 - len(sizes))
            for axis in range(len(sizes), 0, -1):
                pads += [0, -value.shape[axis] % sizes[axis - 1]]
            padded[name] = functional.pad(value, pads, value=-1 if name in ("route", "gap_place") else 0)
        return TrmmaInputs(**padded)

    @property
    def match(self) -> MatchInputs:
        """What the matcher sees."""
        return MatchInputs(*self[: len(MatchInputs._fields)])


def match_inputs(batch: Batch, finder: CandidateFinder, fix_xy: Tensor, most: int) -> MatchInputs:
    """Return what the matcher sees of a batch on the CPU.

    Parameters
    ----------
    batch
        The trips.
    finder
        Search of segments around fixes.
    fix_xy
        Places of the fixes as the network is told them [B, m, 2].
    most
        K.
    """
    network = finder.network
    fixes = batch.fixes(network)
    nearest = finder.nearest(fixes.lon, fixes.lat).distance_m
    reach = np.maximum(RADIUS_M, np.ceil(nearest / WIDER_M) * WIDER_M)
    found = finder.within(fixes.lon, fixes.lat, reach, most=most)
    fix = np.repeat(np.arange(fixes.n_fixes), np.diff(found.offsets))

    xy = np.stack(network.plane.to_xy(fixes.lon, fixes.lat), axis=-1)
    moves = np.zeros((fixes.n_fixes + 1, 2))
    moves[1:-1] = np.diff(xy, axis=0)
    moves[fixes.offsets[:-1]] = 0.0  # from another trip
    first, last = network.geom_offset[:-1], network.geom_offset[1:] - 1
    vertex = np.stack(network.geom_xy, axis=-1)
    place = np.stack(network.plane.to_xy(found.lon, found.lat), axis=-1)
    start, end = vertex[first[found.segment]], vertex[last[found.segment]]
    features = candidate_features(xy[fix], moves[fix + 1], moves[fix], start, end, place, found.distance_m)

    shape = (*batch.fix_mask.shape, most)
    rank = np.arange(len(fix)) - found.offsets[fix]
    rows = np.flatnonzero(batch.fix_mask.numpy())[fix] * most + rank

    def pad(values: NDArray[np.generic]) -> Tensor:
        out = np.zeros((shape[0] * shape[1] * most, *values.shape[1:]), values.dtype)
        out[rows] = values
        return torch.from_numpy(out).view(*shape, *values.shape[1:])

    return MatchInputs(
        batch.fix_mask,
        fix_xy,
        batch.fix_step,
        pad(found.segment.astype(np.int64)),
        pad(found.ratio.astype(np.float32)),
        pad(features),
        pad(np.ones(len(fix), np.bool_)),
    )


def pad_routes(routes: Ragged, rows: Ints, shape: torch.Size) -> Tensor:
    """Return routes as a tensor [B, m, R] with -1 for padding; rows says where in [B * m] each of them goes."""
    count = np.diff(routes.offsets)
    out = np.full((shape[0] * shape[1], max(1, count.max(initial=0))), -1, np.int64)
    which = np.repeat(np.arange(len(count)), count)
    out[rows[which], np.arange(len(which)) - routes.offsets[which]] = routes.segment
    return torch.from_numpy(out).view(*shape, -1)


def gap_steps(batch: Batch) -> Tensor:
    """Return how many steps there are between each fix and the next [B, m]; 0 for the last and for padding."""
    inside = functional.pad(batch.fix_step.diff(dim=1) - 1, (0, 1))
    return inside * functional.pad(batch.fix_mask[:, 1:], (0, 1))


def in_gaps(batch: Batch, values: Tensor, fill: float) -> Tensor:
    """Return values of steps [B, n] as those of the steps inside of gaps [B, m, L]; a fill where there are none."""
    inside = gap_steps(batch)
    slot = torch.arange(max(1, int(inside.max())) if inside.numel() else 1)
    step = (batch.fix_step[..., None] + 1 + slot).clamp_max(values.shape[1] - 1)
    found = values.gather(1, step.flatten(1)).view(step.shape)
    return torch.where(slot < inside[..., None], found, fill)


class GapRoutes(NamedTuple):
    """The routes of the gaps of a batch, and where on them the steps are."""

    route: Tensor  # [B, m, R] int64; -1 for padding
    place: Tensor  # [B, m, L] int64; -1 where unknown


def true_gaps(batch: Batch, router: Router, longest: int) -> GapRoutes:
    """Return what trips drove in their gaps; nothing where an end is not known, or where that is too long."""
    driven, offsets = _driven(batch, router)
    gap, _, low, high = _ends(batch, offsets)
    count = driven.at[high] - driven.at[low] + 1
    good = (driven.at[low] >= 0) & (driven.at[high] >= 0) & (count <= longest)
    gap, low, count = gap[good], low[good], count[good]
    routes = Ragged(np.concatenate([[0], np.cumsum(count)]), driven.segment[ranges(driven.at[low], count)])
    route = pad_routes(routes, gap, batch.fix_mask.shape)
    at = torch.full(batch.step_mask.shape, -1)
    at[batch.step_mask] = torch.from_numpy(driven.at)
    place = in_gaps(batch, at, -1) - at.gather(1, batch.fix_step)[..., None]
    inside = (in_gaps(batch, at, -1) >= 0) & (route[..., :1] >= 0)
    return GapRoutes(route, torch.where(inside, place, -1))


def planned_gaps(batch: Batch, planner: Planner, router: Router) -> GapRoutes:
    """Return planned routes between the true positions of fixes; the trips' own drives do not count for them."""
    driven, offsets = _driven(batch, router)
    gap, trip, low, high = _ends(batch, offsets)
    good = (driven.at[low] >= 0) & (driven.at[high] >= 0)
    gap, trip, low, high = gap[good], trip[good], low[good], high[good]
    size = np.diff(driven.offsets)[trip]
    own = Ragged(np.concatenate([[0], np.cumsum(size)]), driven.segment[ranges(driven.offsets[trip], size)])
    a, b = driven.segment[driven.at[low]], driven.segment[driven.at[high]]
    ratio = batch.ratio.numpy()[batch.step_mask.numpy()]
    route = pad_routes(planner.routes(a, ratio[low], b, ratio[high], own), gap, batch.fix_mask.shape)
    is_there = in_gaps(batch, batch.segment, -1)[..., None] == route[:, :, None]  # [B, m, L, R]
    is_there &= (route >= 0)[:, :, None]
    return GapRoutes(route, torch.where(is_there.any(-1), is_there.int().argmax(-1), -1))


def matched_gaps(batch: Batch, planner: Planner, segment: Tensor, ratio: Tensor) -> GapRoutes:
    """Return planned routes between matched fixes, whose positions these are [B, m]; nothing is known of the steps."""
    gap = np.flatnonzero(gap_steps(batch).numpy())
    a, r = segment.flatten().numpy(), ratio.flatten().numpy()
    route = pad_routes(planner.routes(a[gap], r[gap], a[gap + 1], r[gap + 1]), gap, batch.fix_mask.shape)
    return GapRoutes(route, in_gaps(batch, torch.full_like(batch.segment, -1), -1))


def _driven(batch: Batch, router: Router) -> tuple[StepRoutes, Ints]:
    """Return what the trips of a batch drove, and the offsets of their steps."""
    mask = batch.step_mask.numpy()
    offsets = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64)
    segment, ratio = batch.segment.numpy()[mask].astype(np.int32), batch.ratio.numpy()[mask].astype(np.float64)
    return step_routes(router, offsets, segment, ratio, batch.step_s), offsets


def _ends(batch: Batch, offsets: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the gaps that have steps: their numbers in [B * m], their trips, and the steps of both fixes."""
    gap = np.flatnonzero(gap_steps(batch).numpy())
    trip = gap // batch.fix_mask.shape[1]
    step = batch.fix_step.flatten().numpy()
    return gap, trip, offsets[trip] + step[gap], offsets[trip] + step[gap + 1]
