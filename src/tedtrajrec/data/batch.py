"""Batches: trips as padded tensors, one definition for all methods."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tedtrajrec.data.clock import minute_of_day, weekday
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips, as_text


@dataclass(frozen=True, eq=False)
class FixCandidates:
    """The C segments around the fixes of a batch, ragged: those of fix j of trip i are found at row i x m + j."""

    radius_m: float  # how far was searched
    offset: Tensor  # [B*m+1] int64
    segment: Tensor  # [C] int64
    distance_m: Tensor  # [C] float32
    ratio: Tensor  # [C] float32, 0..1


@dataclass(frozen=True, eq=False)
class Batch:
    """B trips of up to m observed fixes and n target steps; what lies beyond a trip's own length is padding.

    Steps are ``step_s`` seconds apart and start with the trip. The true positions serve training and evaluation; a
    method must not look at them in ``recover``.
    """

    step_s: int
    start: Tensor  # [B] int64, epoch seconds of the first step
    weekday: Tensor  # [B] int64, local, Monday 0

    fix_mask: Tensor  # [B, m] bool, False for padding
    fix_xy: Tensor  # [B, m, 2] float32, metres on the network's plane
    fix_time: Tensor  # [B, m] float32, seconds from the start
    fix_minute: Tensor  # [B, m] float32, local minute of day
    fix_step: Tensor  # [B, m] int64, the step it was observed at

    step_mask: Tensor  # [B, n] bool, False for padding
    step_minute: Tensor  # [B, n] float32, local minute of day
    observed: Tensor  # [B, n] bool

    segment: Tensor  # [B, n] int64, the truth; -1 for unknown and padding
    ratio: Tensor  # [B, n] float32; 0 for unknown and padding

    candidates: FixCandidates | None = None
    number: Tensor | None = None  # [B] int64 of the trips in their split, where that is known
    lot: float | None = None  # in training, a random number from 0 to 1 for what is decided for the batch as a whole

    def __len__(self) -> int:
        return len(self.start)

    def to(self, device: torch.device | str) -> Batch:
        """Return the batch on a device."""
        return _on(self, torch.device(device))

    def fixes(self, network: RoadNetwork) -> Trips:
        """Return the observed fixes as trips, for methods that work on ragged arrays."""
        mask = self.fix_mask.cpu().numpy()
        x, y = self.fix_xy.cpu().numpy().astype(np.float64)[mask].T
        lon, lat = network.plane.to_lonlat(x, y)
        time = self.start.cpu().numpy()[:, None] + np.rint(self.fix_time.cpu().numpy()).astype(np.int64)
        return Trips(
            traj_id=as_text(np.arange(len(self))),
            offsets=np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64),
            time=time[mask],
            lon=lon,
            lat=lat,
        )

    def search(self, finder: CandidateFinder, network: RoadNetwork, radius_m: float, most: int) -> FixCandidates:
        """Return the segments within a radius of the fixes, at most so many of each."""
        fixes = self.fixes(network)
        rows = np.flatnonzero(self.fix_mask.cpu().numpy())
        b, m = self.fix_mask.shape
        return _candidates(finder, fixes, rows, (b, m), radius_m, most)

    def step_times(self, *, at_fixes: bool = False) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the epoch seconds of all target steps, ragged: offsets [B+1] and times [N].

        With ``at_fixes``, an observed step is when its fix was, up to half a step before or after.
        """
        mask, start = self.step_mask.cpu().numpy(), self.start.cpu().numpy()[:, None]
        time = start + np.arange(mask.shape[1]) * self.step_s
        if at_fixes:
            trip, fix = np.nonzero(self.fix_mask.cpu().numpy())
            since = np.rint(self.fix_time.cpu().numpy()).astype(np.int64)
            time[trip, self.fix_step.cpu().numpy()[trip, fix]] = (start + since)[trip, fix]
        return np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int64), time[mask]


def make_batch(
    trips: Trips,
    observed: NDArray[np.bool_],
    network: RoadNetwork,
    *,
    step_s: int,
    time_zone: str,
    finder: CandidateFinder | None = None,
    radius_m: float = 100.0,
    most: int | None = None,
) -> Batch:
    """Make a batch of prepared trips.

    Parameters
    ----------
    trips
        Trips of a dataset, one row a step (:meth:`tedtrajrec.data.dataset.Split.trips`).
    observed
        Which steps are given to the method [N]; they have fixes.
    network
        The network of the dataset.
    step_s, time_zone
        Of the dataset.
    finder, radius_m, most
        Search candidates of the fixes within this radius, at most so many of each; none are searched without a finder.
    """
    fixes = trips.keep_fixes(observed)
    seen, shape = _places(fixes.offsets)
    steps, grid = _places(trips.offsets)
    first = trips.time[np.minimum(trips.offsets[:-1], max(trips.n_fixes - 1, 0))]
    x, y = network.plane.to_xy(fixes.lon, fixes.lat)
    known = np.zeros(trips.n_fixes, bool) if trips.segment is None else trips.segment >= 0
    step_of = np.arange(trips.n_fixes) - np.repeat(trips.offsets[:-1], trips.lengths)

    def pad(values: NDArray[np.generic], rows: NDArray[np.int64], size: tuple[int, int], fill: float = 0) -> Tensor:
        out = np.full((size[0] * size[1], *values.shape[1:]), fill, values.dtype)
        out[rows] = values
        return torch.from_numpy(out.reshape(*size, *values.shape[1:]))

    segment = np.full(trips.n_fixes, -1, np.int64)
    ratio = np.zeros(trips.n_fixes, np.float32)
    if trips.segment is not None and trips.ratio is not None:
        segment[known] = trips.segment[known]
        ratio[known] = trips.ratio[known]
    return Batch(
        step_s=step_s,
        start=torch.from_numpy(first.astype(np.int64)),
        weekday=torch.from_numpy(weekday(first, time_zone)),
        fix_mask=pad(np.ones(fixes.n_fixes, bool), seen, shape),
        fix_xy=pad(np.stack([x, y], axis=1).astype(np.float32), seen, shape),
        fix_time=pad((fixes.time - np.repeat(first, fixes.lengths)).astype(np.float32), seen, shape),
        fix_minute=pad(minute_of_day(fixes.time, time_zone), seen, shape),
        fix_step=pad(step_of[observed], seen, shape),
        step_mask=pad(np.ones(trips.n_fixes, bool), steps, grid),
        step_minute=pad(minute_of_day(trips.time, time_zone), steps, grid),
        observed=pad(np.asarray(observed, bool), steps, grid),
        segment=pad(segment, steps, grid, -1),
        ratio=pad(ratio, steps, grid),
        candidates=None if finder is None else _candidates(finder, fixes, seen, shape, radius_m, most),
    )


def _places(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], tuple[int, int]]:
    """Return the row of each ragged element in the padded array, and the shape of that array."""
    lengths = np.diff(offsets)
    width = int(lengths.max(initial=0))
    start = np.arange(len(lengths)) * width - offsets[:-1]
    return np.arange(offsets[-1]) + np.repeat(start, lengths), (len(lengths), width)


def _candidates(
    finder: CandidateFinder,
    fixes: Trips,
    rows: NDArray[np.int64],
    shape: tuple[int, int],
    radius_m: float,
    most: int | None,
) -> FixCandidates:
    found = finder.within(fixes.lon, fixes.lat, radius_m, most=most)
    count = np.zeros(shape[0] * shape[1], np.int64)
    count[rows] = np.diff(found.offsets)  # rows rise, so candidates stay in order
    return FixCandidates(
        radius_m=radius_m,
        offset=torch.from_numpy(np.concatenate([[0], np.cumsum(count)]).astype(np.int64)),
        segment=torch.from_numpy(found.segment.astype(np.int64)),
        distance_m=torch.from_numpy(found.distance_m.astype(np.float32)),
        ratio=torch.from_numpy(found.ratio.astype(np.float32)),
    )


T = TypeVar("T", "Batch", "FixCandidates")


def _on(part: T, device: torch.device) -> T:
    moved: dict[str, Any] = {}
    for item in dataclasses.fields(part):
        value = getattr(part, item.name)
        if isinstance(value, Tensor):
            moved[item.name] = value.to(device, non_blocking=True)
        elif isinstance(value, FixCandidates):
            moved[item.name] = _on(value, device)
    return dataclasses.replace(part, **moved)
