"""How alike trips are on the road network: LCSS and EDR distances between all of them, and the nearest ones.

Two steps match when they are on the same segment. With lengths m and n in steps,

lcss
    1 - L / min(m, n), where L is the length of the longest common subsequence.
edr
    E / max(m, n), where E is the least number of steps to insert, delete or replace that makes one trip of the other
    (edit distance on real sequences).

Both are exact, from 0 (for a trip and itself) to 1 (for trips without a common segment, so also for trips without
steps). All distances of T trips are T² numbers; they come in blocks of rows and are used at once, so that memory grows
with T and not with its square. On the CPU they are compiled and run on threads, on a device in torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array, csr_array
from torch import Tensor

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation.similarity_kernels import fill_rows
from tedtrajrec.evaluation.similarity_torch import device_blocks
from tedtrajrec.progress import progress
from tedtrajrec.threads import iter_parts

Ints = NDArray[np.int64]
Measure = Literal["lcss", "edr"]
MEASURES: tuple[Measure, ...] = get_args(Measure)

ROWS = 64  # of a block on the CPU
CPU = torch.device("cpu")


@dataclass(frozen=True, eq=False)
class Sequences:
    """T trips as sequences of segments, which are numbered anew from 0."""

    offsets: Ints  # [T+1] trip i has the values offsets[i]:offsets[i + 1]
    values: NDArray[np.int32]  # [F] 0..n_values - 1
    n_values: int

    @classmethod
    def of(cls, offsets: ArrayLike, segment: ArrayLike) -> Sequences:
        """Return trips as sequences; steps of unknown segment (-1) are no part of them.

        Parameters
        ----------
        offsets
            Steps of trip ``i`` are ``offsets[i]:offsets[i + 1]`` [T+1].
        segment
            The segment of each step [N].
        """
        bounds, segments = np.asarray(offsets, np.int64), np.asarray(segment)
        if not len(bounds) or bounds[0] != 0 or bounds[-1] != len(segments) or (np.diff(bounds) < 0).any():
            raise InputError(f"the offsets do not divide {len(segments)} steps among trips", field="offsets")
        known = segments >= 0
        before = np.concatenate([[0], np.cumsum(known)]).astype(np.int64)
        names, values = np.unique(segments[known], return_inverse=True)
        return cls(before[bounds], values.astype(np.int32), len(names))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __repr__(self) -> str:
        return f"Sequences({len(self)} trips, {len(self.values)} steps on {self.n_values} segments)"

    @property
    def lengths(self) -> Ints:
        """Number of steps of each trip [T]."""
        return np.diff(self.offsets)


@dataclass(frozen=True, eq=False)
class Neighbours:
    """What is kept of the distances between T trips."""

    nearest: Ints  # [T] the nearest other trip, the first of several; -1 where there is no other
    distance: NDArray[np.float64]  # [T] to it; NaN where there is no other
    tied: NDArray[np.bool_]  # [T] whether another one is as near
    rank: Ints | None  # [T] of a given other trip among all others by distance, from 1; equal ones by their number
    graph: csr_array  # [T, T] the distances that are at most a given one, each trip's own 0 among them


def distance_blocks(
    sequences: Sequences, measure: Measure, *, device: torch.device = CPU, workers: int | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield numbers of trips [R] and their distances to all trips [R, T] (float64), until every trip has come.

    A distance is one division of two integers, so equal fractions are equal numbers, and comparing with a decimal such
    as 0.45 is exact.

    Parameters
    ----------
    sequences
        The trips.
    measure
        ``lcss`` or ``edr``, see the module.
    device
        Where to compute; blocks are there too.
    workers
        Number of threads on the CPU; all processors if not given.
    """
    if measure not in MEASURES:
        raise ConfigError(f"The measure is '{measure}'; it must be one of {', '.join(MEASURES)}.")
    if device.type != "cpu":
        yield from device_blocks(sequences.offsets, sequences.values, edits=measure == "edr", device=device)
        return
    index_offsets, index = _trips_of_values(sequences)

    def fill(first: int) -> tuple[Tensor, Tensor]:
        out = np.empty((min(ROWS, len(sequences) - first), len(sequences)))
        fill_rows(first, sequences.offsets, sequences.values, index_offsets, index, measure == "edr", out)
        return torch.arange(first, first + len(out)), torch.from_numpy(out)

    yield from iter_parts(fill, range(0, len(sequences), ROWS), workers)


def distance_matrix(
    sequences: Sequences, measure: Measure, *, device: torch.device = CPU, workers: int | None = None
) -> NDArray[np.float32]:
    """Return all distances at once [T, T], 4 bytes each; see :func:`distance_blocks`."""
    out = np.empty((len(sequences), len(sequences)), np.float32)
    for rows, distances in distance_blocks(sequences, measure, device=device, workers=workers):
        out[rows.cpu().numpy()] = distances.float().cpu().numpy()
    return out


def find_neighbours(
    sequences: Sequences,
    measure: Measure,
    *,
    radius: float,
    target: Ints | None = None,
    device: torch.device = CPU,
    workers: int | None = None,
    show_progress: bool = False,
) -> Neighbours:
    """Return each trip's nearest other one, the rank of a given one, and all within a radius.

    Parameters
    ----------
    sequences, measure, device, workers
        See :func:`distance_blocks`.
    radius
        The largest distance in the graph.
    target
        For each trip another one whose rank is wanted [T].
    show_progress
        Whether to show a bar.
    """
    n = len(sequences)
    if not n:
        raise InputError("there are no trips to compare")
    nearest, distance, tied = np.full(n, -1), np.full(n, np.nan), np.zeros(n, np.bool_)
    rank = None if target is None else np.empty(n, np.int64)
    sought = None if target is None else torch.from_numpy(target).to(device)
    number = torch.arange(n, device=device)
    near: list[tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]] = []
    blocks = distance_blocks(sequences, measure, device=device, workers=workers)
    total = -(-n // ROWS) if device.type == "cpu" else None
    for rows, distances in progress(blocks, measure, total=total, unit="block") if show_progress else blocks:
        here = rows.cpu().numpy()
        row, column = (distances <= radius).nonzero(as_tuple=True)
        values = distances[row, column]
        near.append((rows[row].int().cpu().numpy(), column.int().cpu().numpy(), values.cpu().numpy()))
        distances[number[: len(rows)], rows] = torch.inf  # a trip is not among its own neighbours
        if n > 1:
            least, at = distances.min(1)
            nearest[here], distance[here] = at.cpu().numpy(), least.cpu().numpy()
            tied[here] = ((distances == least[:, None]).sum(1) > 1).cpu().numpy()
        if rank is not None and sought is not None:
            wanted = sought[rows, None]
            bound = distances.gather(1, wanted)
            before = (distances < bound) | ((distances == bound) & (number < wanted))
            rank[here] = before.sum(1).cpu().numpy() + 1
    first, second, values_near = (np.concatenate(column) for column in zip(*near, strict=True))
    # Distances of 0 are stored like all others; without them alike trips would not be neighbours.
    graph = coo_array((values_near, (first, second)), shape=(n, n)).tocsr()
    return Neighbours(nearest, distance, tied, rank, graph)


def recall_at(rank: Ints, k: int) -> float:
    """Return the share of trips whose target is among the k nearest (R@k)."""
    return float((rank <= k).mean())


def _trips_of_values(sequences: Sequences) -> tuple[Ints, NDArray[np.int32]]:
    """Return for each value the trips that have it, each once."""
    trip = np.repeat(np.arange(len(sequences)), sequences.lengths)
    pairs = np.unique(sequences.values.astype(np.int64) * len(sequences) + trip)
    value, trips = np.divmod(pairs, max(1, len(sequences)))
    offsets = np.searchsorted(value, np.arange(sequences.n_values + 1))
    return offsets.astype(np.int64), trips.astype(np.int32)
