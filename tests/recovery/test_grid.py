"""Fixes on the step grid: every fix is used or rejected with a reason, and fixes on steps give the usual batch."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.data.batch import make_batch
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery import grid
from tedtrajrec.recovery.grid import Pieces, batch_of, canonical_batches, lay_out
from tedtrajrec.recovery.recovered import NO_TIME, Rejects
from tedtrajrec.trips.table import Trips, as_text
from tests.conftest import make_grid
from tests.data.made_trips import made_trips

START = 1_404_400_000
CITY = make_grid()
FINDER = CandidateFinder(CITY)


def fixes_at(*times: list[float], lon: float = -8.619, lat: float = 41.1501) -> Trips:
    """Return trips "0", "1", ... with fixes at one place of the grid, at times from the start."""
    flat = np.array([time for trip in times for time in trip], np.int64)
    offsets = np.concatenate([[0], np.cumsum([len(trip) for trip in times])]).astype(np.int64)
    return Trips(
        as_text([str(k) for k in range(len(times))]),
        offsets,
        START + flat,
        np.full(len(flat), lon),
        np.full(len(flat), lat),
    )


def listed(rejects: Rejects) -> list[tuple[str, int | None, str]]:
    """Return rejects with times from the start."""
    return [
        (traj_id, None if time == NO_TIME else time - START, reason)
        for traj_id, time, reason in zip(
            rejects.traj_id.tolist(), rejects.time.tolist(), rejects.reason.tolist(), strict=True
        )
    ]


def test_fixes_on_steps_give_the_batch_of_an_evaluation() -> None:
    trips = made_trips(CITY, [12, 30, 5, 2, 90], missing=0.0)
    observed = draw_observed(trips, "1/4", seed=1)
    sparse = trips.keep_fixes(observed).replace(segment=None, ratio=None)
    expected = make_batch(trips.replace(segment=None, ratio=None), observed, CITY, step_s=15, time_zone="Europe/Lisbon")
    pieces, rejects = lay_out(sparse, FINDER, 15)
    assert len(rejects) == 0
    for exact in (True, False):
        batch = batch_of(sparse, pieces, np.arange(5), CITY, step_s=15, time_zone="Europe/Lisbon", exact=exact)
        for item in dataclasses.fields(batch):
            mine, theirs = getattr(batch, item.name), getattr(expected, item.name)
            assert torch.equal(mine, theirs) if isinstance(theirs, torch.Tensor) else mine == theirs


def test_each_fix_belongs_to_the_nearest_step() -> None:
    pieces, rejects = lay_out(fixes_at([0, 22, 23, 61, 100]), FINDER, 15)
    assert pieces.step.tolist() == [0, 1, 2, 4, 7]  # 22 s is nearer to 15 s, 23 s to 30 s
    assert pieces.steps.tolist() == [8]
    assert len(rejects) == 0


def test_two_fixes_of_one_step() -> None:
    pieces, rejects = lay_out(fixes_at([0, 28, 31, 58, 62, 90]), FINDER, 15)
    assert pieces.step.tolist() == [0, 2, 4, 6]
    assert (pieces.fix.tolist()) == [0, 2, 3, 5]  # the nearer one; of two as near the first
    assert listed(rejects) == [("0", 28, "shares its step"), ("0", 62, "shares its step")]


def test_every_reason_is_told() -> None:
    trips = fixes_at([0, 60, 50, 60, 120], [0, 60, 2000, 5000, 5060], [], [7], [0, 3], [0, 60, 120])
    lon = trips.lon.copy()
    lon[trips.offsets[5]], lon[trips.offsets[5] + 1] = np.nan, 5.0
    pieces, rejects = lay_out(trips.replace(lon=lon), FINDER, 15)
    alone, few = "no fix of another step within 1,800 s", "fewer than two fixes that can be used"
    assert listed(rejects) == [
        ("0", 50, "not after the fix before"),
        ("0", 60, "not after the fix before"),
        ("1", 2000, alone),
        ("2", None, "has no fixes"),
        ("3", None, few),
        ("3", 7, alone),
        ("4", None, few),
        ("4", 0, alone),
        ("4", 3, "shares its step"),
        ("5", None, few),
        ("5", 0, "has no position on Earth"),
        ("5", 60, "no road within 1 km"),
        ("5", 120, alone),
    ]
    assert pieces.trip.tolist() == [0, 1, 1]
    assert pieces.stretch.tolist() == [0, 1, 2]
    assert pieces.steps.tolist() == [9, 5, 5]


def test_a_fix_that_cannot_be_used_does_not_order_the_others() -> None:
    trips = fixes_at([0, 900, 60, 120])
    lat = trips.lat.copy()
    lat[1] = 50.0
    pieces, _ = lay_out(trips.replace(lat=lat), FINDER, 15)
    assert pieces.fix.tolist() == [0, 2, 3]


def test_long_stretches_are_cut_at_fixes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MOST_STEPS", 10)
    trips = fixes_at([0, 60, 140, 200, 278, 281, 400, 2000], [0, 60])
    pieces, rejects = lay_out(trips, FINDER, 15)
    assert pieces.trip.tolist() == [0, 0, 0, 0, 1]
    assert pieces.stretch.tolist() == [0, 0, 0, 0, 1]
    of_piece = [pieces.fix[a:b].tolist() for a, b in zip(pieces.offsets[:-1], pieces.offsets[1:], strict=True)]
    # 278 s and 281 s share a step of the second piece; the third begins with the fix that lost there.
    assert of_piece == [[0, 1, 2], [2, 3, 4], [5, 6], [6, 7], [8, 9]]
    assert pieces.steps.tolist() == [10, 10, 9, 108, 5]
    assert len(rejects) == 0


def test_long_stretches_of_many_fixes_are_cut_into_more_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MOST_PAIRS", 100)
    dense, sparse = lay_out(fixes_at(range(0, 600, 15)), FINDER, 15)[0], lay_out(fixes_at([0, 300, 600]), FINDER, 15)[0]
    assert dense.steps.tolist() == [10, 10, 10, 10, 4]  # 10 fixes each, but the last
    assert dense.stretch.tolist() == [0] * 5
    assert sparse.steps.tolist() == [21, 21]
    ends = dense.offsets[1:-1]
    assert dense.fix[ends].tolist() == dense.fix[ends - 1].tolist()  # shared


@st.composite
def any_fixes(draw: st.DrawFn) -> Trips:
    """Return fixes at times in nearly any order, on and off the road."""
    trips = [
        draw(st.lists(st.one_of(st.integers(0, 300), st.integers(0, 6000)), max_size=12))
        for _ in range(draw(st.integers(1, 4)))
    ]
    made = fixes_at(*[[float(t) for t in (sorted(trip) if draw(st.booleans()) else trip)] for trip in trips])
    lon = made.lon.copy()
    lon[draw(st.lists(st.booleans(), min_size=len(lon), max_size=len(lon)).map(np.array)).astype(bool)] += draw(
        st.sampled_from([0.0, 1.0, np.nan, 400.0])
    )
    return made.replace(lon=lon)


@given(any_fixes(), st.sampled_from([1, 7, 15, 60]))
@settings(max_examples=150)
def test_every_fix_is_used_or_rejected(trips: Trips, step_s: int) -> None:
    pieces, rejects = lay_out(trips, FINDER, step_s)
    of_fix = rejects.time != NO_TIME
    assert len(np.unique(pieces.fix)) + of_fix.sum() == trips.n_fixes
    without = set(range(len(trips))) - set(pieces.trip.tolist())
    assert sorted(int(i) for i in rejects.traj_id[~of_fix].tolist()) == sorted(without)
    assert (pieces.lengths >= 2).all()
    time = trips.time[pieces.fix]
    start = np.repeat(time[pieces.offsets[:-1]], pieces.lengths)
    assert (2 * np.abs(time - start - pieces.step * step_s) <= step_s).all()
    rises = np.diff(pieces.step)[np.diff(np.repeat(np.arange(len(pieces)), pieces.lengths)) == 0]
    assert (rises > 0).all()


def test_batches_are_the_same_for_any_order_of_trips(tiny_city: RoadNetwork) -> None:
    rng = np.random.default_rng(0)
    trips = made_trips(tiny_city, rng.integers(2, 40, 200).tolist(), missing=0.0).replace(segment=None, ratio=None)
    order = rng.permutation(200)
    named = []
    for one in (trips, trips.select(order)):
        pieces, _ = lay_out(one, FINDER, 15)
        named.append([one.traj_id[pieces.trip[which]].tolist() for which in canonical_batches(one, pieces)])
    assert named[0] == named[1]
    assert max(len(batch) for batch in named[0]) == 64
    assert sorted(itertools.chain(*named[0])) == sorted(trips.traj_id.tolist())


@pytest.mark.parametrize(
    ("steps", "fixes", "expected"),
    [(4000, 2, [3] * 10), (4000, 4000, [1] * 30), (100, 100, [3] * 10), (100, 10, [30])],
    ids=["long", "long and dense", "dense", "as usual"],
)
def test_batches_of_long_or_dense_pieces_are_small(steps: int, fixes: int, expected: list[int]) -> None:
    count = 30
    seen = np.linspace(0, steps - 1, fixes).astype(np.int64)
    pieces = Pieces(
        trip=np.arange(count),
        stretch=np.arange(count),
        offsets=np.arange(count + 1) * fixes,
        fix=np.arange(fixes * count),
        step=np.tile(seen, count),
    )
    trips = fixes_at(*[(15 * seen).tolist()] * count)
    assert [len(which) for which in canonical_batches(trips, pieces)] == expected


def test_batches_are_padded_to_the_most_fixes_of_any_piece() -> None:
    """Pieces are in the order of their steps: the most fixes may be those of an earlier one."""
    fixes = [np.arange(99), *[np.array([0, 99])] * 5]
    pieces = Pieces(
        trip=np.arange(6),
        stretch=np.arange(6),
        offsets=np.concatenate([[0], np.cumsum([len(some) for some in fixes])]),
        fix=np.arange(sum(len(some) for some in fixes)),
        step=np.concatenate(fixes),
    )
    trips = fixes_at(*[(15 * some).tolist() for some in fixes])
    assert [len(which) for which in canonical_batches(trips, pieces)] == [3, 3]
