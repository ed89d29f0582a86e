import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.links import Links, find_links, with_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.landmarks import landmark_heights
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.reach import GAPS_PER_PART, Band, Gaps, GapSearch
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.readers import read_trips
from tests.conftest import make_grid
from tests.network.test_near import broken_grid, gap_costs


def one_gap(a, b, seconds=120.0):
    """Return a single gap between positions (segment, ratio, extra seconds)."""
    columns = []
    for ends in (a, b):
        segment, ratio, extra = zip(*[(*end, 0.0)[:3] for end in ends], strict=True)
        columns += [np.array([0, len(ends)]), np.array(segment, np.int32), np.array(ratio), np.array(extra, float)]
    return Gaps(np.array([float(seconds)]), *columns)


def random_gaps(n_segments, n, rng, ends=3):
    columns = []
    for _ in range(2):
        offset = np.concatenate([[0], np.cumsum(rng.integers(1, ends + 1, n))])
        size = offset[-1]
        columns += [offset, rng.integers(0, n_segments, size).astype(np.int32), rng.random(size), 30 * rng.random(size)]
    return Gaps(rng.uniform(30, 200, n), *columns)


def ends_of(gaps, g):
    a, b = slice(*gaps.a_offset[g : g + 2]), slice(*gaps.b_offset[g : g + 2])
    return (
        list(zip(gaps.a_segment[a], gaps.a_ratio[a], gaps.a_extra_s[a], strict=True)),
        list(zip(gaps.b_segment[b], gaps.b_ratio[b], gaps.b_extra_s[b], strict=True)),
    )


def best_ways(network, cost, gap, a, b, back_m):
    """Return the total of the best way over each segment [S], from the definition."""
    n = len(network)
    came, goes = np.full(n, np.inf), np.full(n, np.inf)
    for segment, ratio, extra in a:
        came = np.minimum(came, (1 - ratio) * cost[segment] + extra + gap[segment])
    for segment, ratio, extra in b:
        goes = np.minimum(goes, ratio * cost[segment] + extra + gap[:, segment])
    total = came + cost + goes
    for segment, ratio, extra in a:
        total[segment] = min(total[segment], (1 - ratio) * cost[segment] + extra + goes[segment])
    for segment, ratio, extra in b:
        total[segment] = min(total[segment], came[segment] + ratio * cost[segment] + extra)
    for segment, ratio, extra in a:
        for other, other_ratio, other_extra in b:
            if segment == other and (ratio - other_ratio) * network.length_m[segment] <= back_m:
                drive = max((other_ratio - ratio) * cost[segment], 0)
                total[segment] = min(total[segment], drive + extra + other_extra)
    return total


@settings(max_examples=60)
@given(st.integers(0, 10_000), st.sampled_from([3, 10, 1000]), st.sampled_from([0.0, 20.0, 90.0]))
def test_the_segments_of_a_gap_are_those_of_the_definition(seed, most, band_s):
    rng = np.random.default_rng(seed)
    network = broken_grid(seed)
    cost = network.length_m * rng.uniform(0.05, 0.5, len(network))
    gaps = random_gaps(len(network), 20, rng)
    band = Band(band_s=band_s, band_share=0.3, horizon_s=100.0, horizon_share=1.0, slack_m=10_000.0)
    found = GapSearch(network, cost).search(gaps, most=most, band=band)
    gap = gap_costs(network, cost)
    for g in range(20):
        a, b = ends_of(gaps, g)
        total = best_ways(network, cost, gap, a, b, band.back_m)
        horizon = 100 + gaps.seconds[g] + min(end[2] for end in a) + min(end[2] for end in b)
        part = slice(*found.offset[g : g + 2])
        if total.min() > horizon:
            assert np.isinf(found.best_s[g])
            assert (found.reached[part] < 3).all()
            continue
        best = total.min()
        limit = min(best + max(band_s, 0.3 * best), horizon)
        assert found.best_s[g] == pytest.approx(best)
        assert (found.reached[part] == 3).all()
        # All segments of one way have the same total up to rounding: their order says nothing.
        segment = found.segment[part]
        assert len(np.unique(segment)) == len(segment)
        assert min(most, (total < limit - 1e-6).sum()) <= len(segment) <= min(most, (total < limit + 1e-6).sum())
        np.testing.assert_allclose(total[segment], np.sort(total)[: len(segment)], rtol=1e-9, atol=1e-6)
        drive = found.before_s[part] + cost[segment] + found.after_s[part]
        still = np.intersect1d([end[0] for end in a], [end[0] for end in b])
        on_the_way = ~np.isin(segment, still)  # standing still a little backwards counts as no time
        np.testing.assert_allclose(drive[on_the_way], total[segment][on_the_way], rtol=1e-5, atol=1e-4)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_metres_are_those_of_the_same_way_and_ends_are_named(seed):
    rng = np.random.default_rng(seed)
    network = broken_grid(seed)
    cost = network.length_m / 10  # so that metres follow from seconds
    gaps = random_gaps(len(network), 20, rng)
    found = GapSearch(network, cost).search(gaps)
    gap_of = np.repeat(np.arange(20), np.diff(found.offset))
    whole = found.reached == 3
    a, b = gaps.a_offset[gap_of] + found.from_a, gaps.b_offset[gap_of] + found.from_b
    assert (a < gaps.a_offset[gap_of + 1]).all()
    assert (b < gaps.b_offset[gap_of + 1]).all()
    np.testing.assert_allclose(found.before_m[whole], 10 * (found.before_s - gaps.a_extra_s[a])[whole], atol=0.01)
    np.testing.assert_allclose(found.after_m[whole], 10 * (found.after_s - gaps.b_extra_s[b])[whole], atol=0.01)
    # The way from the end that is named takes what is said, unless one stands on the segment.
    came = np.flatnonzero((found.before_s > gaps.a_extra_s[a]) & (found.reached & 1 > 0))
    route = Router(network).distances(gaps.a_segment[a[came]], gaps.a_ratio[a[came]], found.segment[came], 0.0)
    np.testing.assert_allclose(found.before_m[came], route, atol=0.01)


@settings(max_examples=20)
@given(st.integers(0, 10_000))
def test_differences_of_heights_are_at_most_the_cost_of_a_way(seed):
    network = broken_grid(seed)
    cost = network.length_m * np.random.default_rng(seed).uniform(0.05, 0.5, len(network))
    height = landmark_heights(network, cost, 5).astype(float)
    gap = gap_costs(network, cost)
    np.fill_diagonal(gap, np.minimum(np.diag(gap), -cost))
    for s in range(len(network)):
        bound = (height - height[s]).max(axis=1)
        assert (bound <= cost[s] + gap[s] + 1e-9).all()


# Node (column, row) of the grid has the number 6 * row + column; streets are 100 m long and take 10 s.


def street(network, a, b):
    """Return the segment from node a to node b."""
    return int(np.flatnonzero((network.seg_from == a) & (network.seg_to == b))[0])


def cost_of(network):
    return np.full(len(network), 10.0)


def as_table(found, g=0):
    """Return before and after in seconds of each segment of a gap."""
    part = slice(*found.offset[g : g + 2])
    columns = found.segment[part].tolist(), found.before_s[part].tolist(), found.after_s[part].tolist()
    return {segment: (before, after) for segment, before, after in zip(*columns, strict=True)}


def test_along_one_street_the_clock_runs_from_the_earlier_fix(tiny_city):
    s01, s12, s23 = street(tiny_city, 0, 1), street(tiny_city, 1, 2), street(tiny_city, 2, 3)
    gaps = one_gap([(s01, 0.25)], [(s23, 0.5)])
    found = GapSearch(tiny_city, cost_of(tiny_city)).search(gaps, band=Band(band_s=1.0, band_share=0.0))
    assert found.best_s[0] == pytest.approx(22.5)
    table = as_table(found)
    assert set(table) == {s01, s12, s23}
    assert table[s01] == pytest.approx((-2.5, 15.0))  # its start lies 2.5 s behind; then s12, and half of s23
    assert table[s12] == pytest.approx((7.5, 5.0))
    assert table[s23] == pytest.approx((17.5, -5.0))


def test_a_detour_within_the_band_brings_further_segments_the_nearest_first(tiny_city):
    a, b = street(tiny_city, 0, 1), street(tiny_city, 2, 3)
    search = GapSearch(tiny_city, cost_of(tiny_city))
    narrow = search.search(one_gap([(a, 0.5)], [(b, 0.5)]), band=Band(band_s=19.9, band_share=0.0))
    wide = search.search(one_gap([(a, 0.5)], [(b, 0.5)]), band=Band(band_s=20.1, band_share=0.0))
    assert len(narrow.segment) == 3
    around = {street(tiny_city, 1, 7), street(tiny_city, 7, 8), street(tiny_city, 8, 2)}
    assert set(wide.segment[:3].tolist()) == set(narrow.segment.tolist())
    assert around <= set(wide.segment[3:].tolist())
    assert len(search.search(one_gap([(a, 0.5)], [(b, 0.5)]), most=2).segment) == 2


def test_on_one_segment_forwards_is_a_drive_and_a_little_backwards_is_standing(tiny_city):
    s = street(tiny_city, 0, 1)
    search = GapSearch(tiny_city, cost_of(tiny_city))
    only = Band(band_s=0.5, band_share=0.0)
    forwards = search.search(one_gap([(s, 0.2)], [(s, 0.7)]), band=only)
    assert forwards.best_s[0] == pytest.approx(5)
    assert as_table(forwards) == {s: pytest.approx((-2.0, -3.0))}
    standing = search.search(one_gap([(s, 0.7, 1.0)], [(s, 0.2, 2.0)]), band=only)
    assert standing.best_s[0] == pytest.approx(3)  # what the positions pay
    assert list(standing.segment) == [s]


def test_far_backwards_on_one_segment_is_a_way_round_the_block(tiny_city):
    s = street(tiny_city, 0, 1)
    found = GapSearch(tiny_city, cost_of(tiny_city)).search(
        one_gap([(s, 0.9)], [(s, 0.1)]), band=Band(band_s=0.5, band_share=0.0)
    )
    assert found.best_s[0] == pytest.approx(1 + 30 + 1)
    assert set(found.segment.tolist()) == {
        s,
        street(tiny_city, 1, 7),
        street(tiny_city, 7, 6),
        street(tiny_city, 6, 0),
    }


def test_one_way_streets_are_driven_one_way(tiny_city):
    a, b = street(tiny_city, 14, 15), street(tiny_city, 12, 13)  # the row that runs east only; b lies behind
    found = GapSearch(tiny_city, cost_of(tiny_city)).search(one_gap([(a, 0.5)], [(b, 0.5)]))
    assert found.best_s[0] == pytest.approx(5 + 50 + 5)  # up or down, three blocks back, and again


def test_an_unlikely_position_pays_and_is_taken_only_where_that_is_worth_it(tiny_city):
    a, far, b = street(tiny_city, 0, 1), street(tiny_city, 1, 2), street(tiny_city, 2, 3)
    search = GapSearch(tiny_city, cost_of(tiny_city))
    for extra, end, best in ((8.0, 1, 18.0), (12.0, 0, 20.0)):
        found = search.search(one_gap([(a, 0.5), (far, 0.5, extra)], [(b, 0.5)]), band=Band(0.5, 0.0))
        assert found.best_s[0] == pytest.approx(best)
        assert found.from_a[found.segment == b] == end


def two_pieces():
    """Return three streets in a row without the middle one: segments 0 and 1, 100 m apart."""
    return make_grid(4, 1, one_way_row=None).subset([0, 4])


def test_without_a_way_each_side_is_searched_and_a_straight_line_stands_for_the_other():
    network = two_pieces()
    found = GapSearch(network, cost_of(network)).search(one_gap([(0, 0.5)], [(1, 0.5)]))
    assert np.isinf(found.best_s[0])
    assert sorted(zip(found.segment.tolist(), found.reached.tolist(), strict=True)) == [(0, 1), (1, 2)]
    at = found.segment == 0
    assert found.before_s[at] == pytest.approx(-5)
    assert found.after_m[at] == pytest.approx(1.3 * 150, abs=2)  # from the end of 0 to the middle of 1
    assert found.after_s[at] == pytest.approx(1.3 * 15, abs=0.2)


def test_a_way_that_needs_too_high_a_speed_is_none(tiny_city):
    a, b = street(tiny_city, 0, 1), street(tiny_city, 28, 29)
    search = GapSearch(tiny_city, cost_of(tiny_city))
    assert np.isfinite(search.search(one_gap([(a, 0.5)], [(b, 0.5)], seconds=10)).best_s[0])
    fast = search.search(one_gap([(a, 0.5)], [(b, 0.5)], seconds=3))  # 800 m are more than 3 s x 40 m/s + 500 m
    assert np.isinf(fast.best_s[0])
    assert (fast.reached < 3).all()


def test_links_carry_ways_but_belong_to_no_gap():
    network = with_links(two_pieces(), Links(np.array([0], np.int32), np.array([1], np.int32)))
    found = GapSearch(network, np.array([10.0, 10.0, 0.1]), n_roads=2).search(one_gap([(0, 0.5)], [(1, 0.5)]))
    assert found.best_s[0] == pytest.approx(10.1)
    assert set(found.segment.tolist()) == {0, 1}
    assert found.before_m[found.segment == 1] == pytest.approx(50 + network.length_m[2], abs=1)


def test_a_gap_without_positions_and_no_gaps_at_all(tiny_city):
    search = GapSearch(tiny_city, cost_of(tiny_city))
    empty = Gaps(np.array([60.0]), np.array([0, 0]), *[np.zeros(0)] * 3, np.array([0, 1]), *np.zeros((3, 1)))
    found = search.search(empty)
    assert list(found.offset) == [0, 0]
    assert np.isinf(found.best_s[0])
    none = search.search(Gaps(np.zeros(0), np.zeros(1, int), *[np.zeros(0)] * 3, np.zeros(1, int), *[np.zeros(0)] * 3))
    assert list(none.offset) == [0]


def test_the_result_does_not_depend_on_workers_or_on_other_gaps():
    network = make_grid(12, 12)
    rng = np.random.default_rng(0)
    cost = network.length_m * rng.uniform(0.05, 0.5, len(network))
    gaps = random_gaps(len(network), 12 * GAPS_PER_PART, rng)
    search = GapSearch(network, cost)
    one, three = (search.search(gaps, most=20, workers=workers) for workers in (1, 3))
    for name, column in one._asdict().items():
        np.testing.assert_array_equal(column, getattr(three, name))
    a, b = ends_of(gaps, 200)
    alone = search.search(one_gap(a, b, gaps.seconds[200]), most=20)
    np.testing.assert_array_equal(alone.segment, one.segment[slice(*one.offset[200:202])])


def test_bad_arguments_are_named(tiny_city):
    cost = cost_of(tiny_city)
    with pytest.raises(ValueError, match="cost_s has shape"):
        GapSearch(tiny_city, cost[:3])
    with pytest.raises(ValueError, match="finite and not negative"):
        GapSearch(tiny_city, -cost)
    with pytest.raises(ValueError, match="n_roads is 9999"):
        GapSearch(tiny_city, cost, n_roads=9999)
    search, gaps = GapSearch(tiny_city, cost, n_roads=50), one_gap([(0, 0.5)], [(1, 0.5)])
    for field, value, problem in (
        ("seconds", np.array([-1.0]), "seconds of a gap"),
        ("a_offset", np.array([1, 1]), "rise from 0"),
        ("a_ratio", np.zeros(2), "as many segments"),
        ("b_segment", np.array([50]), "from 0 to 49"),
        ("b_ratio", np.array([np.nan]), "not a number"),
        ("b_extra_s", np.array([-1.0]), "negative"),
    ):
        with pytest.raises((ValueError, IndexError), match=problem):
            search.search(gaps._replace(**{field: value}))
    with pytest.raises(ValueError, match="most is 0"):
        search.search(gaps, most=0)


@pytest.mark.real
def test_nearly_all_missing_steps_of_chengdu_are_found(data_dir, chengdu):
    table = read_trips(data_dir / "chengdu" / "trips.csv.gz", timezone="Asia/Shanghai")
    order = np.argsort(chengdu.source_id)
    ids = np.ma.filled(table.extra["edge_id"], -1)
    segment = order[np.searchsorted(chengdu.source_id, ids, sorter=order).clip(max=len(order) - 1)]
    trips = table.replace(segment=np.where(chengdu.source_id[segment] == ids, segment, -1).astype(np.int32))
    drives = drives_of(chengdu, trips.select(np.arange(5000)))
    network = with_links(chengdu, find_links(drives))
    cost = network.length_m / network.speed_mps
    cost[: len(chengdu)] = chengdu.length_m * learn_pace(chengdu, drives)

    some = trips.select(np.arange(5000, 5150))
    fix = np.flatnonzero(draw_observed(some, "1/8"))
    finder = CandidateFinder(chengdu)
    fix = fix[finder.nearest(some.lon[fix], some.lat[fix]).distance_m <= 100]  # others say nothing
    near = finder.within(some.lon[fix], some.lat[fix], 100, most=8)
    before = np.flatnonzero(np.diff(some.trip_of_fix[fix]) == 0)
    columns = []
    for which in (before, before + 1):
        count = np.diff(near.offsets)[which]
        at = ranges(near.offsets[which], count)
        extra = 8 * near.distance_m[at] ** 2 / 200
        columns += [np.concatenate([[0], np.cumsum(count)]), near.segment[at], near.ratio[at], extra]
    seconds = (some.time[fix[before + 1]] - some.time[fix[before]]).astype(float)
    found = GapSearch(network, cost, n_roads=len(chengdu)).search(Gaps(seconds, *columns))
    assert found.segment.max() < len(chengdu)

    missing = fix[before + 1] - fix[before] - 1
    truth = some.segment[ranges(fix[before] + 1, missing)].astype(np.int64)
    gap = np.repeat(np.arange(len(before)), missing)
    pairs = np.repeat(np.arange(len(before)), np.diff(found.offset)) * len(chengdu) + found.segment
    hit = np.isin(gap * len(chengdu) + truth, pairs)[truth >= 0]
    assert len(hit) > 2000
    assert hit.mean() > 0.96
