"""The lattice of a batch: candidates of all steps, and that nothing but what is given decides them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.lattice import CLOCK, FACTS, STATIC, Lattice, LatticeBuilder
from tedtrajrec.methods.lattices.features import Clock, FixColumn, GapColumn
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.taught import learn_past
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.table import Trips
from tests.conftest import make_grid, published_trips
from tests.methods.lattices.cities import (
    STEP_S,
    batch_of,
    city,
    city_batch,
    city_builder,
    drive,
    driven,
    every_seventh,
    no_past,
    past_of,
)


def assert_same(one: Lattice, other: Lattice) -> None:
    for name in Lattice._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def check(lattice: Lattice, batch: Batch, most: int) -> None:
    """Check what holds of every lattice."""
    (b, m), n = batch.fix_mask.shape, batch.step_mask.shape[1]
    lists = max(2 * m - 1, 1)
    shapes = {
        "segment": ((b, lists, most), np.int64),
        "exists": ((b, lists, most), np.bool_),
        "static": ((b, lists, most, STATIC), np.float32),
        "clock": ((b, lists, most, CLOCK), np.float32),
        "way": ((b, 3 * m, most, most), np.int16),
        "slot": ((b, n), np.int64),
        "previous": ((b, n), np.int64),
        "following": ((b, n), np.int64),
        "since": ((b, n), np.float32),
        "gap": ((b, n), np.float32),
        "facts": ((b, n, FACTS), np.float32),
        "votes": ((b, n, most), np.float32),
    }
    for name, (shape, kind) in shapes.items():
        array = getattr(lattice, name)
        assert (array.shape, array.dtype) == (shape, kind), name
        assert np.isfinite(array).all(), name
    count = lattice.exists.sum(axis=2)
    assert (lattice.exists == (np.arange(most) < count[..., None])).all()  # the first places
    for name in ("segment", "static", "clock"):
        assert not getattr(lattice, name)[~lattice.exists].any(), name
    for row, size in zip(lattice.segment.reshape(-1, most), count.ravel(), strict=True):
        assert len(set(row[:size])) == size
    fixes = batch.fix_mask.numpy().sum(axis=1)
    assert (count[:, ::2][:, :m] > 0).sum() == fixes.sum()
    # A posterior is a distribution over the candidates of each fix, and votes one over those of a gap.
    sums = lattice.static[:, ::2, :, FixColumn.POSTERIOR].sum(axis=2)[:, :m]
    np.testing.assert_allclose(sums[batch.fix_mask.numpy()], 1, rtol=1e-5)
    assert not lattice.votes[batch.observed.numpy() | ~batch.step_mask.numpy()].any()
    cast = lattice.votes.sum(axis=2)
    assert (np.isclose(cast, 1, rtol=1e-5) | (cast == 0)).all()
    trip, step = np.nonzero(cast)
    assert not lattice.votes[trip, step][~lattice.exists[trip, lattice.slot[trip, step]]].any()


@pytest.mark.parametrize("most", [1, 2, 5, 8, 9, 16, 48, 300])
def test_lists_of_any_length(most: int) -> None:
    batch = city_batch(list(range(5)))
    builder = LatticeBuilder(city(), city_builder().past, most=most)
    lattice = builder.build(batch)
    check(lattice, batch, most)
    assert lattice.exists[:, 1::2].sum(axis=2).max() <= most
    assert lattice.votes.any()
    if most == 300:  # beyond the band of the default, but not all of the city
        assert lattice.exists.sum(axis=2).max() > 100


def test_before_and_after_are_distances_of_the_router() -> None:
    grid = make_grid(7, 7)  # at 10 m/s everywhere
    # Fixes in the middle of streets, so that both directions are equally likely and nothing else is.
    trips = drive(grid, [(0, 0.5)] * 3 + [(30, 0.5)] * 4 + [(61, 0.5)] * 4, [(40, 0.5)] * 4 + [(6, 0.5)])
    batch = batch_of(grid, trips, np.isin(np.arange(trips.n_fixes), [0, 5, 10, 11, 15]))
    lattice = LatticeBuilder(grid, no_past(grid), most=200).build(batch)
    router, seen = Router(grid), 0
    for b, g in np.argwhere(batch.fix_mask.numpy()[:, 1:]):
        here = lattice.exists[b, 2 * g + 1]
        segment, clock = lattice.segment[b, 2 * g + 1, here], lattice.clock[b, 2 * g + 1, here]
        static = lattice.static[b, 2 * g + 1, here]
        before, after = np.full(len(segment), np.inf), np.full(len(segment), np.inf)
        for k in range(2):
            first, last = lattice.segment[b, 2 * g, k], lattice.segment[b, 2 * g + 2, k]
            before = np.minimum(before, router.distances(first, 0.5, segment, 0.0) / 10)
            before[segment == first] = -0.5 * grid.length_m[first] / 10
            after = np.minimum(after, router.distances(segment, 1.0, last, 0.5) / 10)
            after[segment == last] = -0.5 * grid.length_m[last] / 10
        whole = grid.length_m[segment] / 10
        seconds = float(batch.fix_time[b, g + 1] - batch.fix_time[b, g])
        np.testing.assert_allclose(clock[:, Clock.BEFORE], before, atol=0.02)
        np.testing.assert_allclose(clock[:, Clock.AFTER], after, atol=0.02)
        np.testing.assert_allclose(clock[:, Clock.WHOLE], whole, rtol=1e-6)
        np.testing.assert_allclose(static[:, GapColumn.BEFORE], (before / seconds).clip(-1, 3), atol=1e-3)
        np.testing.assert_allclose(static[:, GapColumn.BEFORE_KM], before / 100, atol=1e-3)
        total = before + whole + after
        np.testing.assert_allclose(static[:, GapColumn.LATER], (total - total.min()) / 60, atol=2e-3)
        np.testing.assert_allclose(static[:, GapColumn.BEST], total.min() / seconds, atol=1e-3)
        assert (static[:, [GapColumn.HAS_BEFORE, GapColumn.HAS_AFTER, GapColumn.IS_GAP]] == 1).all()
        np.testing.assert_array_equal(static[:, GapColumn.OF_FIRST], before < 0)
        # Nobody drove here: times are those of the map.
        np.testing.assert_array_equal(clock[:, [Clock.ARRIVE, Clock.LEAVE]], clock[:, [Clock.BEFORE, Clock.AFTER]])
        assert not static[:, [GapColumn.CAME, GapColumn.GOES, GapColumn.VISITS]].any()
        seen += len(segment)
    assert seen > 100


def test_features_of_fixes_by_hand(tiny_city: RoadNetwork) -> None:
    # East along the street at the bottom, 100 m in a minute.
    trips = drive(tiny_city, [(0, 0.5), (0, 0.75), (2, 0.0), (2, 0.25), (2, 0.5)])
    batch = batch_of(tiny_city, trips, np.array([1, 0, 0, 0, 1], bool))
    visits = visits_of(tiny_city, trips, tiny_city.length_m / 10)
    known = LatticeBuilder(tiny_city, past_of(tiny_city, visits)).build(batch)
    row = {int(s): known.static[0, 0, k] for k, s in enumerate(known.segment[0, 0, :2])}
    east, west = row[0], row[1]
    assert [east[FixColumn.DISTANCE], east[FixColumn.CLOSE]] == pytest.approx([0, 1], abs=1e-6)
    assert east[FixColumn.WEIGHT] == pytest.approx(0.5, abs=1e-4)
    assert [east[FixColumn.COSINE_AFTER], west[FixColumn.COSINE_AFTER]] == pytest.approx([1, -1], abs=1e-5)
    assert [east[FixColumn.COSINE_BEFORE], west[FixColumn.COSINE_BEFORE]] == [0, 0]  # there is none
    assert sorted([east[FixColumn.RANK], west[FixColumn.RANK]]) == [0, 1 / 8]
    assert [east[FixColumn.LENGTH], east[FixColumn.SPEED]] == pytest.approx([np.log(1.05), 0.5], abs=1e-3)
    assert [east[FixColumn.VISITS], west[FixColumn.VISITS]] == pytest.approx([np.log(2), 0])
    # One trip drove from here to one of the two likely candidates of the next fix.
    assert [east[FixColumn.GOES], west[FixColumn.GOES]] == pytest.approx([np.log(1.5), 0], abs=1e-4)
    assert 0 < east[FixColumn.GOES_FITTING] <= east[FixColumn.GOES]
    assert east[FixColumn.CAME] == 0
    assert east[FixColumn.POSTERIOR] > 0.9
    assert east[FixColumn.LOG_POSTERIOR] == pytest.approx(np.log(east[FixColumn.POSTERIOR] + 1e-4) / 4, abs=1e-6)
    later = {int(s): known.static[0, 2, k] for k, s in enumerate(known.segment[0, 2, :2])}
    assert [later[2][FixColumn.COSINE_BEFORE], later[2][FixColumn.COSINE_AFTER]] == pytest.approx([1, 0], abs=1e-5)
    assert later[2][FixColumn.CAME] == pytest.approx(np.log(1.5), abs=1e-4)
    # The drive votes for where it was at each step.
    place = {int(s): k for k, s in enumerate(known.segment[0, 1, known.exists[0, 1]])}
    assert [known.votes[0, 1, place[0]], known.votes[0, 3, place[2]]] == pytest.approx([1, 1])
    np.testing.assert_allclose(known.clock[0, 0, :2, Clock.RATIO], 0.5, atol=1e-5)
    # Left out, it has never been.
    left_out = LatticeBuilder(tiny_city, past_of(tiny_city, visits)).build(batch, visits)
    never = LatticeBuilder(tiny_city, no_past(tiny_city)).build(batch)
    assert_same(left_out, never)


@pytest.mark.parametrize("numbers", [[0, 1, 2], [79]])
def test_a_trip_left_out_is_as_if_it_had_never_been(numbers: list[int]) -> None:
    trips, visits = driven()
    batch = city_batch(numbers)
    found = city_builder().build(batch, visits.select(np.array(numbers)))
    for k, number in enumerate(numbers):
        others = visits.select(np.delete(np.arange(len(trips)), number))
        wanted = LatticeBuilder(city(), past_of(city(), others)).build(city_batch([number]))
        m, n = wanted.segment.shape[1], wanted.slot.shape[1]
        np.testing.assert_array_equal(found.segment[k, :m], wanted.segment[0])
        np.testing.assert_allclose(found.static[k, :m], wanted.static[0], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(found.clock[k, :m], wanted.clock[0], rtol=1e-3, atol=0.05)
        np.testing.assert_allclose(found.votes[k, :n], wanted.votes[0], rtol=1e-4, atol=1e-6)
    assert np.abs(found.votes - city_builder().build(batch).votes).max() > 0.1


@settings(max_examples=10)
@given(st.lists(st.integers(0, 79), min_size=2, max_size=6, unique=True))
def test_a_trip_is_the_same_alone_and_among_others(numbers: list[int]) -> None:
    together = city_builder().build(city_batch(numbers))
    check(together, city_batch(numbers), city_builder().most)
    for k, number in enumerate(numbers):
        alone = city_builder().build(city_batch([number]))
        for name in Lattice._fields:
            one, among = getattr(alone, name)[0], getattr(together, name)[k]
            np.testing.assert_array_equal(among[: len(one)], one, err_msg=name)
            if name not in ("slot", "previous", "following", "way"):
                assert not among[len(one) :].any(), name
            elif name == "way":
                assert (among[len(one) :] == -1).all()


def test_workers_and_parts_do_not_matter() -> None:
    batch = city_batch(list(range(80)))
    visits = driven()[1]
    for taken_out in (None, visits):
        assert_same(
            city_builder().build(batch, taken_out, workers=1), city_builder().build(batch, taken_out, workers=4)
        )


def test_the_truth_is_not_looked_at() -> None:
    batch = city_batch(list(range(10)))
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(batch.segment.numel(), generator=generator)
    other = dataclasses.replace(
        batch,
        segment=batch.segment.flatten()[order].view_as(batch.segment),
        ratio=torch.rand(batch.ratio.shape, generator=generator),
    )
    assert not torch.equal(batch.segment, other.segment)
    assert_same(city_builder().build(batch), city_builder().build(other))


def far_away(trips: Trips) -> Trips:
    lat = trips.lat.copy()
    lat[[0, 3]] += [1.0, 0.05]
    return trips.replace(lat=lat)


def test_trips_of_few_steps_and_fixes_anywhere(tiny_city: RoadNetwork) -> None:
    trips = drive(
        tiny_city,
        [(0, 0.5), (0, 0.7), (2, 0.5), (2, 0.9)],  # two of its fixes will be far from every road
        [(4, 0.5)],  # a single step
        [(6, 0.1), (6, 0.2), (6, 0.3)],  # all observed
        [(8, 0.2), (8, 0.4), (8, 0.6)],  # one fix
        [(1, 0.2), (1, 0.2), (1, 0.2), (1, 0.2)],  # stands
    )
    observed = np.array([1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1], bool)
    batch = batch_of(tiny_city, far_away(trips), observed)
    for past in (no_past(tiny_city), past_of(tiny_city, visits_of(tiny_city, trips, tiny_city.length_m / 10))):
        lattice = LatticeBuilder(tiny_city, past).build(batch)
        check(lattice, batch, 48)
    assert lattice.exists[1, 1:].sum() == 0
    assert lattice.exists[0, [0, 2]].sum(axis=1).tolist() == [1, 1]
    assert (lattice.static[1, 0, :, FixColumn.POSTERIOR].argmax(), lattice.votes[4].any()) == (0, True)


def test_fixes_of_the_same_time_and_trips_without_fixes(tiny_city: RoadNetwork) -> None:
    trips = drive(tiny_city, [(0, 0.5), (0, 0.7), (2, 0.5), (2, 0.9)], [(4, 0.5), (4, 0.6)])
    batch = batch_of(tiny_city, trips, np.array([1, 0, 1, 1, 0, 0], bool))
    batch = dataclasses.replace(batch, fix_time=torch.zeros_like(batch.fix_time))
    builder = LatticeBuilder(tiny_city, past_of(tiny_city, visits_of(tiny_city, trips, tiny_city.length_m / 10)))
    lattice = builder.build(batch)
    check(lattice, batch, 48)
    assert not lattice.exists[1].any()
    nothing = batch_of(tiny_city, trips, np.zeros(6, bool))
    check(builder.build(nothing), nothing, 48)


def test_a_batch_of_no_trips(tiny_city: RoadNetwork) -> None:
    trips = drive(tiny_city, [(0, 0.5), (0, 0.7)]).select(np.zeros(0, np.int64))
    batch = batch_of(tiny_city, trips, np.zeros(0, bool))
    lattice = LatticeBuilder(tiny_city, no_past(tiny_city)).build(batch)
    check(lattice, batch, 48)
    assert len(lattice.segment) == 0


def test_a_gap_without_a_way_has_candidates_and_a_link_makes_one() -> None:
    # A street of three segments, one way; nobody may turn from the first onto the second.
    cut = make_grid(4, 1, one_way_row=0, forbidden_turns=np.array([[0, 1]]))
    assert np.diff(cut.succ_offset).tolist() == [0, 1, 0]
    trips = drive(cut, [(0, 0.5), (0, 0.9), (1, 0.5), (2, 0.5)])
    batch = batch_of(cut, trips, np.array([1, 0, 0, 1], bool))
    without = LatticeBuilder(cut, no_past(cut)).build(batch)
    check(without, batch, 48)
    here = without.exists[0, 1]
    assert here.any()
    both = without.static[0, 1, here][:, [GapColumn.HAS_BEFORE, GapColumn.HAS_AFTER]]
    assert not both.all(axis=1).any()
    links = Links(np.array([0], np.int32), np.array([1], np.int32))
    linked = LatticeBuilder(cut, no_past(cut)._replace(links=links)).build(batch)
    check(linked, batch, 48)
    segment = linked.segment[0, 1, linked.exists[0, 1]]
    assert sorted(segment) == [0, 1, 2]  # never the link itself
    assert linked.static[0, 1, :3, GapColumn.HAS_AFTER].all()


def test_segments_that_only_past_drives_know() -> None:
    # A past drive goes round the block so far that the map's band does not reach there.
    grid = make_grid(12, 12)
    start, end = 0, 2
    there = Router(grid).routes([start], [0.5], [grid.n_segments - 1], [0.5])
    back = Router(grid).routes([grid.n_segments - 1], [0.5], [end], [0.5])
    road = np.concatenate([there.segment, back.segment[1:]])
    trips = drive(grid, [(int(s), 0.5) for s in road])
    visits = visits_of(grid, trips, grid.length_m / 10)
    seconds = STEP_S * (len(road) - 1)
    asking = drive(grid, [(start, 0.5)] * (len(road) - 1) + [(end, 0.5)])
    observed = np.isin(np.arange(len(road)), [0, len(road) - 1])
    batch = batch_of(grid, asking, observed)
    lattice = LatticeBuilder(grid, past_of(grid, visits), most=24).build(batch)
    check(lattice, batch, 24)
    more = lattice.exists[0, 1] & (lattice.static[0, 1, :, GapColumn.HAS_BEFORE] == 0)
    assert more.sum() == 8
    assert set(lattice.segment[0, 1, more]) <= set(road)
    clock = lattice.clock[0, 1, more]
    np.testing.assert_allclose(clock[:, :3].sum(axis=1), seconds, rtol=1e-5)
    place = {int(s): k for k, s in enumerate(road)}
    enter = [STEP_S * (place[int(s)] - 0.5) for s in lattice.segment[0, 1, more]]
    np.testing.assert_allclose(clock[:, Clock.ARRIVE], enter, atol=1.5)  # of the drive, cut in the middle of visits
    assert (lattice.votes[0].max(axis=1) > 0.99).sum() >= 8


def test_wrong_settings_and_batches_are_refused(tiny_city: RoadNetwork) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LatticeBuilder(tiny_city, no_past(tiny_city), most=0)
    batch = dataclasses.replace(city_batch([0]), number=None)
    with pytest.raises(ValueError, match="numbers"):
        city_builder().build(batch, driven()[1].select(np.array([0])))


def recall(lattice: Lattice, batch: Batch) -> tuple[float, float]:
    """Return the share of missing and of observed steps whose true segment is a candidate."""
    truth, observed = batch.segment.numpy(), batch.observed.numpy()
    trip = np.arange(len(truth))[:, None]
    hit = ((lattice.segment[trip, lattice.slot] == truth[..., None]) & lattice.exists[trip, lattice.slot]).any(axis=2)
    return float(hit[(truth >= 0) & ~observed].mean()), float(hit[(truth >= 0) & observed].mean())


def test_true_segments_of_simulated_trips_are_candidates() -> None:
    batch = city_batch(list(range(80)))
    missing, observed = recall(city_builder().build(batch, driven()[1]), batch)
    assert missing > 0.97
    assert observed > 0.99
    assert every_seventh(driven()[0]).mean() < 0.25


@pytest.mark.real
def test_true_segments_of_chengdu_are_candidates(data_dir: Path, chengdu: RoadNetwork) -> None:
    """Validation trips at keep 1/8, with the published positions as they are; prepared ones are some .006 better."""
    trips = published_trips(data_dir, chengdu)
    split = trips.extra["split"][trips.offsets[:-1]]
    assert set(split) == {"train", "valid", "test"}

    _, past = learn_past(chengdu, trips.select(split == "train"), most=300)
    valid = trips.select(np.flatnonzero(split == "valid")[:500])
    batch = batch_of(chengdu, valid, draw_observed(valid, "1/8"))
    lattice = LatticeBuilder(chengdu, past).build(batch)
    check(lattice, batch, 48)
    missing, observed = recall(lattice, batch)
    assert missing > 0.975
    assert observed > 0.995
