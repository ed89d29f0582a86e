"""Batches of an epoch: what they hold depends on seed, epoch and trips alone."""

from __future__ import annotations

import dataclasses
import threading
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.threads import THREADS
from tedtrajrec.training.batches import (
    AHEAD,
    ahead,
    epoch_order,
    makers,
    thin,
    training_batch,
    trip_numbers,
)
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.trips.table import Trips, as_text

MIXED = TrainConfig(forcing=0.5, keep=("1/2", "1/4", "1/8"), seed=3)


@given(
    lengths=st.lists(st.integers(2, 100), min_size=1, max_size=300),
    size=st.integers(1, 40),
    seed=st.integers(0, 2**31 - 1),
    epoch=st.integers(0, 100),
)
def test_every_trip_once_an_epoch(lengths: list[int], size: int, seed: int, epoch: int) -> None:
    order = epoch_order(np.array(lengths), size, seed, epoch)
    assert sorted(np.concatenate(order).tolist()) == list(range(len(lengths)))
    assert max(map(len, order)) <= size
    again = epoch_order(np.array(lengths), size, seed, epoch)
    assert all(np.array_equal(a, b) for a, b in zip(order, again, strict=True))


def test_epochs_and_seeds_differ_and_lengths_are_alike() -> None:
    lengths = np.random.default_rng(0).integers(10, 200, 1000)
    orders = [epoch_order(lengths, 20, *key) for key in ((0, 0), (0, 1), (1, 0))]
    flat = [np.concatenate(order).tolist() for order in orders]
    assert flat[0] != flat[1] != flat[2] != flat[0]
    spread = np.mean([np.ptp(lengths[batch]) for batch in orders[0]])
    assert spread < 10  # of 190
    assert not np.all(np.diff([lengths[batch].mean() for batch in orders[0]]) >= 0)  # but batches come mixed


def test_a_trip_is_drawn_the_same_in_any_batch(small_dataset: Dataset) -> None:
    split = small_dataset.split("train")
    for epoch in (0, 4):
        together, forced = training_batch(small_dataset, split, np.arange(20), MIXED, epoch)
        for which in ([7], [19, 3, 11]):
            batch, truth = training_batch(small_dataset, split, np.array(which), MIXED, epoch)
            for row, trip in enumerate(which):
                n = int(batch.step_mask[row].sum())
                assert torch.equal(batch.observed[row, :n], together.observed[trip, :n])
                assert torch.equal(truth[row, :n], forced[trip, :n])


def test_epochs_draw_anew_unless_told(small_dataset: Dataset) -> None:
    split = small_dataset.split("train")
    fixed = dataclasses.replace(MIXED, redraw=False)
    drawn = {
        (config.redraw, epoch): training_batch(small_dataset, split, np.arange(20), config, epoch)
        for config in (MIXED, fixed)
        for epoch in (0, 1)
    }
    observed = {key: batch.observed for key, (batch, _) in drawn.items()}
    assert not torch.equal(observed[True, 0], observed[True, 1])
    assert torch.equal(observed[False, 0], observed[False, 1])
    assert torch.equal(observed[False, 0], observed[True, 0])
    assert not torch.equal(drawn[False, 0][1], drawn[False, 1][1])  # what is fed is drawn each epoch in any case


def test_forcing_decays(small_dataset: Dataset) -> None:
    split = small_dataset.split("train")
    config = TrainConfig(forcing=0.8, forcing_decay=0.5)
    for epoch, share in ((0, 0.8), (1, 0.4), (3, 0.1)):
        _, forced = training_batch(small_dataset, split, np.arange(20), config, epoch)
        assert float(forced.float().mean()) == pytest.approx(share, abs=0.1)
    never = training_batch(small_dataset, split, np.arange(20), TrainConfig(forcing=0.0), 0)[1]
    always = training_batch(small_dataset, split, np.arange(20), TrainConfig(forcing=1.0), 0)[1]
    assert not never.any()
    assert always.all()


def many(n: int) -> Trips:
    """Return trips of 20 steps."""
    return Trips(
        traj_id=as_text(np.arange(n)),
        offsets=np.arange(n + 1) * 20,
        time=np.tile(np.arange(20), n),
        lon=np.zeros(20 * n),
        lat=np.zeros(20 * n),
    )


def test_each_trip_has_one_of_the_shares() -> None:
    trips = many(600)
    mask = thin(trips, MIXED, 2).reshape(600, 20)
    draws = [draw_observed(trips, keep, seed=3, epoch=2).reshape(600, 20) for keep in MIXED.keep]
    fits = np.array([(mask == draw).all(axis=1) for draw in draws])
    assert fits.any(axis=0).all()
    assert (np.abs(fits.mean(axis=1) - 1 / 3) < 0.08).all()
    one = dataclasses.replace(MIXED, keep=("1/4",))
    assert np.array_equal(thin(trips, one, 2).reshape(600, 20), draws[1])


def test_numbers_of_trips_are_even_and_independent() -> None:
    numbers = trip_numbers(many(400), (1, 2), 50)
    assert numbers.shape == (400, 50)
    assert 0 <= numbers.min() <= numbers.max() < 1
    assert np.abs(np.histogram(numbers, 10, (0, 1))[0] / numbers.size - 0.1).max() < 0.01
    assert np.abs(np.corrcoef(numbers.T) - np.eye(50)).max() < 0.3
    assert not np.array_equal(numbers, trip_numbers(many(400), (1, 3), 50))
    assert np.array_equal(numbers[:, :7], trip_numbers(many(400), (1, 2), 7))


@pytest.mark.parametrize("makers", [1, 3])
def test_made_ahead_in_order(makers: int) -> None:
    made: list[int] = []

    def make(k: int) -> int:
        made.append(k)
        time.sleep(0.001 * (k % 3))
        return k * k

    batches = ahead(make, range(50), makers)
    assert next(batches) == 0
    assert made == [0]  # alone
    assert next(batches) == 1
    time.sleep(0.05)
    assert len(made) <= 2 + makers + AHEAD
    assert list(batches) == [k * k for k in range(2, 50)]
    assert sorted(made) == list(range(50))
    assert list(ahead(make, [])) == []


def test_as_many_are_made_at_once_as_there_are_makers() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def make(k: int) -> int:
        if k in {1, 2, 3}:
            meeting.wait()
        return k

    assert list(ahead(make, range(8), 3)) == list(range(8))


@pytest.mark.parametrize("makers", [1, 3])
def test_an_error_comes_out_where_the_batch_is_used(makers: int) -> None:
    made: list[int] = []

    def make(k: int) -> int:
        made.append(k)
        if k == 3:
            raise ValueError("the third")
        return k

    batches = ahead(make, range(100), makers)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="the third"):
        next(batches)
    assert max(made) <= 4 + makers + AHEAD


def test_the_threads_end_when_nobody_listens() -> None:
    before = threading.active_count()
    batches = ahead(lambda k: k, range(1000), 2)
    next(batches)
    next(batches)
    assert threading.active_count() == before + 2
    batches.close()
    assert threading.active_count() == before


@pytest.mark.parametrize(("count", "threads"), [(1, 1), (2, 1), (7, 1), (8, 2), (16, 4), (64, 4)])
def test_makers_by_processors(count: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(THREADS, str(count))
    assert makers() == threads
