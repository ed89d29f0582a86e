"""The batches of an epoch: drawn and thinned by seed and epoch alone, so that any of them can be made again."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset, Split
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.trips.table import Trips

T = TypeVar("T")
POOL = 50  # batches that are sorted by length together


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
    dataset: Dataset, split: Split, which: NDArray[np.int64], config: TrainConfig, epoch: int
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
    """
    trips = split.trips(which)
    batch = make_batch(
        trips,
        thin(trips, config, epoch if config.redraw else 0),
        dataset.network,
        step_s=dataset.info.step_s,
        time_zone=dataset.info.time_zone,
    )
    share = config.forcing * config.forcing_decay**epoch
    random = np.random.default_rng((config.seed, epoch, 2, int(which[0])))
    forced = torch.from_numpy(random.random(tuple(batch.step_mask.shape)) < share)
    return batch, forced


def thin(trips: Trips, config: TrainConfig, epoch: int) -> NDArray[np.bool_]:
    """Return the observed steps of training trips [N]; each trip has one of the shares of the settings."""
    draws = [draw_observed(trips, keep, seed=config.seed, rule=config.rule, epoch=epoch) for keep in config.keep]
    if len(draws) == 1:
        return draws[0]
    random = np.random.default_rng((config.seed, epoch, 3, len(trips), trips.n_fixes))
    chosen = np.repeat(random.integers(len(draws), size=len(trips)), trips.lengths)
    return np.choose(chosen, draws)


def ahead(make: Callable[[int], T], numbers: Sequence[int], depth: int = 4) -> Iterator[T]:
    """Yield ``make(k)`` for all numbers in order, made on another thread a little ahead of their use."""
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    stop = threading.Event()

    def work() -> None:
        for k in numbers:
            if stop.is_set():
                return
            try:
                item: tuple[T | None, BaseException | None] = (make(k), None)
            except BaseException as error:  # noqa: BLE001  (it is raised where the item is used)
                item = (None, error)
            while not stop.is_set():
                try:
                    ready.put(item, timeout=0.1)
                    break
                except queue.Full:
                    continue

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        for _ in numbers:
            value, error = ready.get()
            if error is not None:
                raise error
            yield value  # type: ignore[misc]
    finally:
        stop.set()
        thread.join()
