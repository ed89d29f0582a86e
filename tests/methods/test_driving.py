"""Trips from any choices: what is said to be driven can be driven."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.base import Choices
from tedtrajrec.methods.driving import Driven, Driver
from tedtrajrec.network.routing import Router
from tests.methods.lattices.cities import STEP_S, city, driven

TRIPS = 20


def some_batch(seed: int) -> Batch:
    trips, _ = driven()
    trips = trips.select(np.argsort(trips.lengths, kind="stable")[30 : 30 + TRIPS])
    observed = draw_observed(trips, ("1/8", "1/16", "1/4")[seed % 3], seed=seed)
    return make_batch(trips, observed, city(), step_s=STEP_S, time_zone="UTC")


def random_choices(batch: Batch, seed: int, k: int = 4) -> Choices:
    """Return segments from all over the city, that of the truth among them at six of ten steps, or none at all."""
    rng = np.random.default_rng(seed)
    shape = tuple(batch.segment.shape)
    segment = torch.from_numpy(rng.integers(city().n_segments, size=(*shape, k)))
    segment[(segment[..., :, None] == segment[..., None, :]).triu(1).any(-2)] = -1
    true = torch.from_numpy(rng.random(shape) < 0.6) & ~(segment == batch.segment[..., None]).any(-1)
    segment[..., 0] = torch.where(true, batch.segment, segment[..., 0])
    if seed % 2:
        segment[torch.from_numpy(rng.random((*shape, k)) < 0.3)] = -1
    log_prob = torch.from_numpy(np.sort(-rng.exponential(size=(*shape, k)))[..., ::-1].copy()).float()
    log_prob[segment < 0] = torch.nan
    return Choices(segment, torch.from_numpy(rng.random((*shape, k))).float(), log_prob)


def moves_of(batch: Batch, trips: Driven) -> tuple[np.ndarray, np.ndarray]:
    """Return which moves between steps with a position are said to be broken, and which cannot be driven."""
    lengths = batch.step_mask.sum(1).numpy()
    first = np.isin(np.arange(lengths.sum()), np.cumsum(lengths) - lengths)
    there = np.flatnonzero(~first)
    there = there[(trips.segment[there] >= 0) & (trips.segment[there - 1] >= 0)]
    here = trips.segment[there - 1], trips.ratio[there - 1]
    way = Router(city()).distances(*here, trips.segment[there], trips.ratio[there], limit_m=40 * STEP_S + 1.0)
    return trips.broken[there], np.isinf(way)


@pytest.mark.parametrize("enforced", [False, True])
@pytest.mark.parametrize("bridged", [False, True])
def test_what_is_said_to_be_driven_can_be(bridged: bool, enforced: bool) -> None:
    """Of two moves of which each can be driven, but not both, it is the same one in the search and on the road."""
    driver = Driver(city(), margin=3.0, bridged=bridged, enforced=enforced)
    for seed in range(12):
        batch = some_batch(seed)
        trips = driver.drive(batch, random_choices(batch, seed))
        said, cannot = moves_of(batch, trips)
        assert not (cannot & ~said).any(), seed
        assert not np.isposinf(trips.log_prob).any()
        assert ((trips.ratio >= 0) & (trips.ratio <= 1)).all()
        assert said.any() or bridged, seed
