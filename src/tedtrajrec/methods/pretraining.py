"""Pre-training of encoders that were made for it, on the paths of training trips.

A path is a trip as it was driven: the first step on each segment, with its fix and time. A batch of paths looks like
any other, but that the only candidate of a fix is its true segment. What serves pre-training alone, such as the map
from states to segments, is thrown away after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch, FixCandidates, make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.learned import I, LearnedMethod
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips

BATCH = 64
CLIP = 5.0


def pretrain(
    method: LearnedMethod[Any, I],
    dataset: Dataset,
    task: nn.Module,
    loss: Callable[[I], Tensor],
    *,
    epochs: int,
    lr: float = 1e-3,
) -> list[float]:
    """Train the weights of a method with a task of its own; return the mean loss of each epoch.

    Numbers are drawn from torch's generator, so the seed that made the weights makes this too. It runs on the GPU where
    there is one; the method is left where it was.

    Parameters
    ----------
    method, dataset
        The method, and whose training trips it learns from.
    task
        What serves this alone, and is trained with the method.
    loss
        Of a batch, whose tensors are where the method is.
    epochs, lr
        How long, and how fast.
    """
    home, training = method.device, method.training
    device = torch.device("cuda" if torch.cuda.is_available() else home)
    method.to(device).train()
    weights = [*method.parameters(), *task.to(device).train().parameters()]
    optimizer = torch.optim.AdamW(weights, lr=lr)
    means = []
    for _ in range(epochs):
        losses = []
        for batch in path_batches(dataset, method.network):
            optimizer.zero_grad()
            value = loss(method.inputs(batch).to(device))
            value.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(weights, CLIP)
            optimizer.step()
            losses.append(value.detach())
        means.append(float(torch.stack(losses).mean()))
    optimizer.zero_grad()
    method.to(home).train(training)
    return means


def path_batches(dataset: Dataset, network: RoadNetwork) -> Iterator[Batch]:
    """Yield the paths of all training trips that have one, in random order."""
    split = dataset.split("train")
    for which in torch.split(torch.randperm(len(split)), BATCH):
        trips = split.trips(which.numpy())
        first = first_on_segment(trips)
        long = np.bincount(trips.trip_of_fix[first], minlength=len(trips)) > 1
        if not long.any():
            continue
        trips = trips.select(np.flatnonzero(long))
        info = dataset.info
        yield known_roads(
            make_batch(trips, first_on_segment(trips), network, step_s=info.step_s, time_zone=info.time_zone)
        )


def first_on_segment(trips: Trips) -> NDArray[np.bool_]:
    """Return the steps [N] with a fix that are the first such one on a segment, or again on it."""
    if trips.segment is None:
        raise ValueError("the trips carry no positions")
    usable = np.flatnonzero((trips.segment >= 0) & np.isfinite(trips.lon))
    trip, segment = trips.trip_of_fix[usable], trips.segment[usable]
    new = np.ones(len(usable), bool)
    new[1:] = (trip[1:] != trip[:-1]) | (segment[1:] != segment[:-1])
    out = np.zeros(trips.n_fixes, bool)
    out[usable[new]] = True
    return out


def known_roads(batch: Batch) -> Batch:
    """Return a training batch in which the only candidate of each fix is the segment that it was on."""
    real = batch.fix_mask.flatten()
    segment, ratio = (part.gather(1, batch.fix_step).flatten()[real] for part in (batch.segment, batch.ratio))
    offset = functional.pad(real.cumsum(0), (1, 0))
    return replace(batch, candidates=FixCandidates(np.inf, offset, segment, torch.zeros_like(ratio), ratio))


def drawn_spans(mask: Tensor, share: float, length: int) -> Tensor:
    """Return which fixes are hidden [B, m]: spans that begin anywhere, so that about this share of fixes is in one.

    Parameters
    ----------
    mask
        Whether a fix is one [B, m].
    share
        Of the fixes.
    length
        Of a span.
    """
    begins = (torch.rand(mask.shape, device=mask.device) < share / length).float()
    covered = functional.pad(begins, (length - 1, 0)).unfold(1, length, 1).amax(-1) > 0
    return covered & mask


def guess_loss(scores: nn.Linear, states: Tensor, segment: Tensor, hidden: Tensor) -> Tensor:
    """Return the mean cross entropy of the segments [B, m] of hidden fixes, guessed from states [B, m, d]."""
    known = hidden & (segment >= 0)
    sums = functional.cross_entropy(scores(states[known]), segment[known], reduction="sum")
    return sums / known.sum().clamp_min(1)
