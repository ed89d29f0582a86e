"""The batches of an epoch: drawn and thinned by seed and epoch alone, so that any of them can be made again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, Split
from tedtrajrec.data.sampling import draw_observed, trip_keys
from tedtrajrec.splitmix import STEP, mixed, unit
from tedtrajrec.threads import in_order, processors
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.distributed import ALONE, Ranks
from tedtrajrec.trips.table import Trips

T = TypeVar("T")
POOL = 50  # batches that are sorted by length together
AHEAD = 3  # batches that are ready or waited for beside those being made


def epoch_order(lengths: NDArray[np.int64], size: int, seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Return the trips of each batch of an epoch: random, but of similar length, to save padding."""
    random = np.random.default_rng((seed, epoch, 1))
    order = random.permutation(len(lengths))
    pools = [order[first : first + POOL * size] for first in range(0, len(order), POOL * size)]
    batches = []
    for pool in pools:
        by_length = pool[np.argsort(lengths[pool], kind="stable")]
        batches += [by_length[first : first + size] for first in range(0, len(by_length), size)]
    return [batches[k] for k in random.permutation(len(batches))]


def training_batch(
    dataset: Dataset,
    split: Split,
    which: NDArray[np.int64],
    config: TrainConfig,
    epoch: int,
    ranks: Ranks = ALONE,
) -> tuple[Batch, torch.Tensor]:
    """Return a batch of training trips, and the steps whose truth is fed to the next one [B, n].

    Parameters
    ----------
    dataset, split
        Where the trips come from.
    which
        Their numbers.
    config
        How they are thinned and how often the truth is fed.
    epoch
        Counts from 0.
    ranks
        The processes between which the trips are divided; a rank for which none is left gets one without its truth,
        which counts nothing.
    """
    mine = ranks.share(which)
    is_left_out = len(mine) == 0
    if is_left_out:
        mine = which[:1]
    trips = split.trips(mine)
    if is_left_out:
        trips = trips.replace(segment=np.full(trips.n_fixes, -1, np.int32), ratio=np.full(trips.n_fixes, np.nan))
    batch = make_batch(
        trips,
        thin(trips, config, epoch if config.redraw else 0),
        dataset.network,
        step_s=dataset.info.step_s,
        time_zone=dataset.info.time_zone,
    )
    # That of the first trip serves for all, on all ranks.
    lot = float(trip_numbers(split.trips(which[:1]), (config.seed, epoch, 5), 1)[0, 0])
    batch = dataclasses.replace(batch, number=torch.from_numpy(np.asarray(mine, np.int64)), lot=lot)
    share = config.forcing * config.forcing_decay**epoch
    draws = trip_numbers(trips, (config.seed, epoch, 2), batch.step_mask.shape[1])
    return batch, torch.from_numpy(draws < share)


def thin(trips: Trips, config: TrainConfig, epoch: int) -> NDArray[np.bool_]:
    """Return the observed steps of training trips [N]; each trip has one of the shares of the settings."""
    draws = [draw_observed(trips, keep, seed=config.seed, rule=config.rule, epoch=epoch) for keep in config.keep]
    if len(draws) == 1:
        return draws[0]
    chosen = (trip_numbers(trips, (config.seed, epoch, 3), 1)[:, 0] * len(draws)).astype(np.int64)
    return np.stack(draws)[np.repeat(chosen, trips.lengths), np.arange(trips.n_fixes)]


def trip_numbers(trips: Trips, seed: tuple[int, ...], count: int) -> NDArray[np.float64]:
    """Return random numbers from 0 to 1 for each trip [T, count]; they do not depend on the other trips."""
    start = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    return _numbers(trip_keys(trips.traj_id) ^ start, count)


@njit(cache=True, nogil=True)
def _numbers(keys: NDArray[np.uint64], count: int) -> NDArray[np.float64]:  # pragma: no cover  (compiled)
    numbers = np.empty((len(keys), count))
    for i in range(len(keys)):
        start = mixed(keys[i])
        for k in range(count):
            numbers[i, k] = unit(mixed(start + np.uint64(k) * STEP))
    return numbers


def ahead(make: Callable[[int], T], numbers: Sequence[int], makers: int = 1) -> Generator[T]:
    """Yield ``make(k)`` for all numbers in order, made on other threads a little ahead of their use.

    The first one is made alone, as that makes what is kept for the others.

    Parameters
    ----------
    make
        May be called from so many threads at once.
    numbers
        What to call it with.
    makers
        Number of threads.
    """
    with ThreadPoolExecutor(makers) as pool:
        for part in (numbers[:1], numbers[1:]):
            yield from in_order(pool, make, part, makers + AHEAD)


def makers() -> int:
    """Return how many threads make batches: each uses all processors in part, and a device waits for the slowest."""
    return max(1, min(4, processors() // 4))
