import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.clock import minute_of_day, weekday
from tedtrajrec.data.sampling import draw_observed, thin_mask, trip_keys
from tedtrajrec.network.candidates import CandidateFinder
from tests.conftest import make_grid
from tests.data.made_trips import STEP_S, made_trips

GRID = make_grid()
FINDER = CandidateFinder(GRID)
ZONE = "Europe/Lisbon"
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=6)


def batch_of(trips, observed, **more) -> Batch:
    return make_batch(trips, observed, GRID, step_s=STEP_S, time_zone=ZONE, **more)


def drawn(lengths, seed=0, **gaps):
    trips = made_trips(GRID, lengths, seed=seed, **gaps)
    return trips, draw_observed(trips, "1/4", seed=seed)


@settings(max_examples=40)
@given(LENGTHS, st.integers(0, 5))
def test_rows_hold_the_steps_and_fixes_of_their_trip_and_then_padding(lengths, seed):
    trips, observed = drawn(lengths, seed)
    batch = batch_of(trips, observed)
    assert len(batch) == len(lengths)
    assert batch.step_mask.shape == (len(lengths), max(lengths))
    for i in range(len(trips)):
        one = slice(trips.offsets[i], trips.offsets[i + 1])
        n, seen = lengths[i], np.flatnonzero(observed[one])
        m = len(seen)
        assert batch.step_mask[i].tolist() == [j < n for j in range(max(lengths))]
        assert batch.fix_mask[i].tolist() == [j < m for j in range(batch.fix_mask.shape[1])]
        np.testing.assert_array_equal(batch.segment[i, :n], trips.segment[one])
        np.testing.assert_array_equal(batch.ratio[i, :n], np.nan_to_num(trips.ratio[one]).astype(np.float32))
        np.testing.assert_array_equal(batch.observed[i, :n], observed[one])
        np.testing.assert_array_equal(batch.step_minute[i, :n], minute_of_day(trips.time[one], ZONE))
        np.testing.assert_array_equal(batch.fix_step[i, :m], seen)
        np.testing.assert_array_equal(batch.fix_time[i, :m], seen * STEP_S)
        np.testing.assert_array_equal(batch.fix_minute[i, :m], minute_of_day(trips.time[one][seen], ZONE))
        xy = np.stack(GRID.plane.to_xy(trips.lon[one][seen], trips.lat[one][seen]), axis=1)
        np.testing.assert_array_equal(batch.fix_xy[i, :m], xy.astype(np.float32))
        assert batch.start[i] == trips.time[one][0]
        assert batch.weekday[i] == weekday(trips.time[one][0], ZONE)
        assert (batch.segment[i, n:] == -1).all()
        for padded in (batch.ratio[i, n:], batch.observed[i, n:], batch.step_minute[i, n:], batch.fix_xy[i, m:]):
            assert not padded.any()
    assert not any(torch.isnan(getattr(batch, name)).any() for name in ("fix_xy", "ratio", "fix_time", "step_minute"))


@settings(max_examples=30)
@given(LENGTHS, st.integers(0, 5))
def test_fixes_and_times_come_back(lengths, seed):
    trips, observed = drawn(lengths, seed)
    batch = batch_of(trips, observed)
    fixes, truth = batch.fixes(GRID), trips.keep_fixes(observed)
    np.testing.assert_array_equal(fixes.offsets, truth.offsets)
    np.testing.assert_array_equal(fixes.time, truth.time)
    for a, b in zip(GRID.plane.to_xy(fixes.lon, fixes.lat), GRID.plane.to_xy(truth.lon, truth.lat), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)  # float32 metres
    offsets, times = batch.step_times()
    np.testing.assert_array_equal(offsets, trips.offsets)
    np.testing.assert_array_equal(times, trips.time)


def test_steps_can_be_when_their_fixes_were():
    trips, observed = drawn([9, 5])
    batch = batch_of(trips, observed)
    late = torch.where(batch.fix_mask & (batch.fix_step > 0), 6.6, 0.0)
    batch = dataclasses.replace(batch, fix_time=batch.fix_time + late)
    _, times = batch.step_times(at_fixes=True)
    later = observed & ~np.isin(np.arange(len(observed)), trips.offsets[:-1])
    np.testing.assert_array_equal(times, trips.time + 7 * later)
    np.testing.assert_array_equal(batch.step_times()[1], trips.time)


@settings(max_examples=20)
@given(LENGTHS, st.integers(0, 5), st.sampled_from([None, 3]))
def test_candidates_are_found_at_the_row_of_their_fix(lengths, seed, most):
    trips, observed = drawn(lengths, seed)
    batch = batch_of(trips, observed, finder=FINDER, radius_m=60.0, most=most)
    found = batch.candidates
    assert found.radius_m == 60.0
    assert len(found.offset) == batch.fix_mask.numel() + 1
    alone = FINDER.within(trips.lon[observed], trips.lat[observed], 60.0, most=most)
    count = torch.diff(found.offset).reshape(batch.fix_mask.shape)
    assert not count[~batch.fix_mask].any()
    np.testing.assert_array_equal(count[batch.fix_mask], np.diff(alone.offsets))
    np.testing.assert_array_equal(found.segment, alone.segment)
    np.testing.assert_allclose(found.distance_m, alone.distance_m, rtol=1e-6)
    np.testing.assert_allclose(found.ratio, alone.ratio, rtol=1e-6)
    again = batch.search(FINDER, GRID, 60.0, most or GRID.n_segments)
    assert again.offset.shape == found.offset.shape
    assert (torch.diff(again.offset).reshape(count.shape)[~batch.fix_mask] == 0).all()


def test_a_batch_padded_wider_than_its_trips_finds_the_same():
    trips, observed = drawn([6, 30, 9])
    batch = batch_of(trips, observed)
    rows = torch.tensor([0, 2])
    narrow = dataclasses.replace(
        batch,
        **{
            f.name: getattr(batch, f.name)[rows]
            for f in dataclasses.fields(batch)
            if f.name not in {"step_s", "candidates", "number", "lot"}
        },
    )
    whole, part = (b.search(FINDER, GRID, 60.0, 8) for b in (batch, narrow))
    m = batch.fix_mask.shape[1]
    for row, own in enumerate(rows.tolist()):
        a = whole.segment[whole.offset[own * m] : whole.offset[(own + 1) * m]]
        b = part.segment[part.offset[row * m] : part.offset[(row + 1) * m]]
        np.testing.assert_array_equal(a, b)
        assert len(a)


@settings(max_examples=30)
@given(LENGTHS, st.data())
def test_a_trip_has_the_same_row_in_any_batch(lengths, data):
    trips, observed = drawn(lengths, missing=0.3)
    which = data.draw(st.integers(0, len(lengths) - 1))
    alone = trips.select([which])
    one = draw_observed(alone, "1/4", seed=0)
    np.testing.assert_array_equal(one, observed[trips.offsets[which] : trips.offsets[which + 1]])
    together, lone = batch_of(trips, observed), batch_of(alone, one)
    for field in dataclasses.fields(Batch):
        value = getattr(lone, field.name)
        if isinstance(value, torch.Tensor):
            row = getattr(together, field.name)[which]
            row = row[: value.shape[1]] if value.ndim > 1 else row
            np.testing.assert_array_equal(row, value[0], err_msg=field.name)


def test_no_trips_and_trips_without_fixes():
    trips, _ = drawn([5, 3])
    batch = batch_of(trips, np.zeros(8, bool), finder=FINDER)
    assert batch.fix_mask.shape == (2, 0)
    assert batch.fixes(GRID).n_fixes == 0
    assert batch.candidates.offset.tolist() == [0]
    empty = trips.select([])
    assert len(batch_of(empty, np.zeros(0, bool))) == 0


def test_a_batch_moves_with_its_candidates():
    trips, observed = drawn([5, 3])
    batch = batch_of(trips, observed, finder=FINDER)
    moved = batch.to("meta")
    tensors = [v for v in (*vars(moved).values(), *vars(moved.candidates).values()) if isinstance(v, torch.Tensor)]
    assert len(tensors) == 16
    assert all(t.device.type == "meta" for t in tensors)
    assert moved.step_s == batch.step_s
    assert batch.to("cpu").fix_xy.device.type == "cpu"


# ---------------------------------------------------------------------- which steps are observed


@settings(max_examples=60)
@given(
    LENGTHS, st.sampled_from(["1/8", "1/4", "1"]), st.sampled_from(["exact", "bernoulli", "uniform"]), st.integers(0, 9)
)
def test_observed_steps_are_drawn_among_those_with_a_fix(lengths, keep, rule, seed):
    trips = made_trips(GRID, lengths, seed=seed, missing=0.4)
    mask = draw_observed(trips, keep, seed=seed, rule=rule, epoch=3)
    has_fix = ~np.isnan(trips.lon)
    assert not (mask & ~has_fix).any()
    seen = trips.keep_fixes(has_fix)
    expected = thin_mask(seen.offsets, keep, seed=seed, trip_key=trip_keys(trips.traj_id), rule=rule, epoch=3)
    np.testing.assert_array_equal(mask[has_fix], expected)
    for first, end in zip(trips.offsets[:-1], trips.offsets[1:], strict=True):
        own = np.flatnonzero(has_fix[first:end])
        if len(own):
            assert mask[first:end][own[[0, -1]]].all()
        if keep == "1":
            assert mask[first:end].sum() == len(own)


@pytest.mark.parametrize("missing", [0.0, 1.0])
def test_all_fixes_or_none(missing):
    trips = made_trips(GRID, [40, 2, 1], missing=missing)
    assert draw_observed(trips, "1/8").sum() == (0 if missing else 4 + 2 + 2 + 1)
