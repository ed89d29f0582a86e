"""The kernels against brute force on small cases."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.network.geodesy import LocalPlane, metres_per_degree, short_distance_m
from tedtrajrec.trips.cleaning.motion import Track, find_jumps, find_late, find_stays, steps_m

PLANE = LocalPlane(-8.62, 41.15)
SPEED = 50.0


def make_track(offsets, time, lon, lat):
    return Track(offsets, np.asarray(time, np.int64), lon, lat, *metres_per_degree(lat))


def track_of(x, time, y=None):
    lon, lat = PLANE.to_lonlat(np.asarray(x, float), np.zeros(len(x)) if y is None else np.asarray(y, float))
    return make_track(np.array([0, len(x)]), np.asarray(time, np.int64), lon, lat)


def chain_cost(x, time, chosen, max_outliers):
    """Return (cost, metres) of a chain of fixes, or None if it leaves out too many in a row."""
    ends = [-1, *chosen, len(x)]
    if any(b - a - 1 > max_outliers for a, b in pairwise(ends)):
        return None
    cost, metres = len(x) - len(chosen), 0.0
    for a, b in pairwise(chosen):
        step = abs(x[b] - x[a])
        if step > SPEED * (time[b] - time[a]):
            cost += max_outliers + 1
        else:
            metres += step
    return cost, metres


@given(
    fixes=st.lists(
        st.tuples(st.sampled_from([0, 40, 400, 700, 1300, 9000]), st.integers(1, 20)), min_size=1, max_size=9
    ),
    max_outliers=st.integers(0, 4),
)
@settings(max_examples=300, deadline=None)
def test_jumps_leave_the_cheapest_chain(fixes, max_outliers):
    x = np.array([place for place, _ in fixes], float) * 1.01  # no step is exactly at the limit
    time = np.cumsum([wait for _, wait in fixes])
    keep, cut = find_jumps(track_of(x, time), SPEED, max_outliers)

    chains = ([i for i, take in enumerate(taken) if take] for taken in product([False, True], repeat=len(x)))
    costs = [chain_cost(x, time, chain, max_outliers) for chain in chains if chain]
    best = min(cost for cost in costs if cost is not None)
    chain = np.flatnonzero(keep).tolist()
    found = chain_cost(x, time, chain, max_outliers)
    assert found is not None
    assert found[0] == best[0]
    assert found[1] == pytest.approx(best[1], rel=1e-3, abs=1e-6)
    for a, b in pairwise(chain):
        assert cut[b] == (abs(x[b] - x[a]) > SPEED * (time[b] - time[a]))
    assert not cut[chain[0]]
    assert not cut[~keep].any()


def dropped(x, step_s=15, max_outliers=5, y=None):
    keep, cut = find_jumps(track_of(x, np.arange(len(x)) * step_s, y), SPEED, max_outliers)
    return np.flatnonzero(~keep).tolist(), np.flatnonzero(cut).tolist()


def straight(n):
    return np.arange(n) * 150.0  # 10 m/s at a fix every 15 s


def test_a_single_outlier_goes_and_the_good_fixes_after_it_stay():
    x = straight(20)
    x[7] += 5000
    assert dropped(x) == ([7], [])


def test_an_outlier_at_either_end_goes():
    x = straight(20)
    x[0] -= 5000
    assert dropped(x) == ([0], [])
    x = straight(20)
    x[-1] += 5000
    assert dropped(x) == ([19], [])


def test_several_outliers_in_a_row_go_together_or_apart():
    x = straight(30)
    x[10:14] += 8000  # together elsewhere
    assert dropped(x) == ([10, 11, 12, 13], [])
    x = straight(30)
    x[10:14] += [8000, -9000, 30000, -60000]
    assert dropped(x) == ([10, 11, 12, 13], [])


def test_a_change_of_place_is_a_cut_not_an_endless_drop():
    x = straight(40)
    x[20:] += 100_000
    assert dropped(x) == ([], [20])


def test_a_long_stretch_elsewhere_becomes_a_trip_of_its_own():
    x = straight(40)
    x[20:26] += 100_000
    assert dropped(x) == ([], [20, 26])
    x[25] -= 100_000
    assert dropped(x) == ([20, 21, 22, 23, 24], [])


def test_strays_at_a_change_of_place_go_too():
    x = straight(40)
    x[20:] += 100_000
    x[20] -= 40_000
    assert dropped(x) == ([20], [21])


def test_two_vehicles_under_one_id_are_not_mixed():
    x = straight(40)
    x[1::2] += 50_000
    gone, cuts = dropped(x)
    assert cuts == []
    assert gone in (list(range(1, 40, 2)), list(range(0, 40, 2)))


def test_of_two_suspects_the_one_more_astray_goes():
    """Only the step 5 -> 6 is too fast; leaving out either fix would do, and 6 is off the road."""
    x, y = straight(12), np.zeros(12)
    x[6] += 500
    y[6] = 500
    assert abs(x[6] - x[5] + 1j * y[6]) > 15 * SPEED
    assert dropped(x, y=y) == ([6], [])


def test_no_outliers_allowed_means_cuts_only():
    x = straight(9)
    x[4] += 5000
    assert dropped(x, max_outliers=0) == ([], [4, 5])


def test_runs_do_not_see_each_other():
    x = np.concatenate([straight(5), straight(5) + 90_000])
    lon, lat = PLANE.to_lonlat(x, np.zeros(10))
    track = make_track(np.array([0, 5, 5, 10]), np.arange(10) * 15, lon, lat)
    keep, cut = find_jumps(track, SPEED, 5)
    assert keep.all()
    assert not cut.any()


# ---------------------------------------------------------------------- stays


def stays_by_definition(x, time, radius, min_s):
    """Return the (first, last) fix of every stay, as the docstring says it."""
    stays, i = [], 0
    while i < len(x):
        j = i
        while j + 1 < len(x) and abs(x[j + 1] - x[i]) <= radius:
            j += 1
        if j > i and time[j] - time[i] >= min_s:
            stays.append((i, j))
            i = j
            if j == len(x) - 1:
                break
        else:
            i += 1
    return stays


@given(fixes=st.lists(st.tuples(st.sampled_from([0, 30, 60, 200]), st.sampled_from([1, 60, 200, 300])), max_size=14))
@settings(max_examples=300, deadline=None)
def test_stays_are_cut_out_as_defined(fixes):
    x = np.array([place for place, _ in fixes], float)
    time = np.cumsum([wait for _, wait in fixes]).astype(np.int64)
    keep, cut = find_stays(track_of(x, time), 50.0, 300.0)
    pieces, begin = [], 0
    for first, last in stays_by_definition(x, time, 50.0, 300.0):
        pieces.append(range(begin, first + 1) if first > begin else range(0))
        begin = last
    pieces.append(range(begin, len(x)) if begin < len(x) - 1 or begin == 0 else range(0))
    assert np.flatnonzero(keep).tolist() == [i for piece in pieces for i in piece]
    starts = [piece[0] for piece in pieces if len(piece)]
    assert np.flatnonzero(cut & keep).tolist() == [i for i in starts if i > 0]


def stay(x, step_s=60):
    keep, cut = find_stays(track_of(x, np.arange(len(x)) * step_s), 50.0, 300.0)
    return np.flatnonzero(~keep).tolist(), np.flatnonzero(cut & keep).tolist()


def test_the_trip_ends_where_the_stay_begins_and_the_next_begins_where_it_ends():
    assert stay([0, 500, 1000, 1010, 990, 1005, 1000, 1015, 1500, 2000]) == ([3, 4, 5, 6], [7])


def test_standing_at_the_start_and_at_the_end_belongs_to_no_trip():
    assert stay([0, 5, 0, 5, 0, 5, 500, 1000]) == ([0, 1, 2, 3, 4], [5])
    assert stay([1000, 500, 0, 5, 0, 5, 0, 5]) == ([3, 4, 5, 6, 7], [])
    assert stay([0, 5, 0, 5, 0, 5]) == ([0, 1, 2, 3, 4, 5], [])


def test_between_two_stays_side_by_side_there_is_no_trip():
    assert stay([0, 0, 0, 0, 0, 0, 40, 80, 80, 80, 80, 80, 500]) == ([*range(11)], [11])


def test_slow_traffic_and_short_stops_are_no_stays():
    assert stay(np.arange(30) * 15.0) == ([], [])  # 51 m are passed within 240 s
    assert stay([0, 500, 1000, 1000, 1000, 1000, 1000, 1500]) == ([], [])


# ---------------------------------------------------------------------- small ones


def test_late_fixes_are_those_older_than_any_before():
    assert find_late(np.array([0, 5, 5, 8]), np.array([10, 30, 20, 25, 40, 1, 3, 2])).tolist() == [
        *[False, False, True, True, False],
        *[False, False, True],
    ]


def test_steps_agree_with_short_distances_and_stop_at_runs():
    rng = np.random.default_rng(0)
    lon, lat = 104 + rng.uniform(0, 0.05, 20), 30.6 + rng.uniform(0, 0.05, 20)
    steps = steps_m(make_track(np.array([0, 12, 20]), np.arange(20), lon, lat))
    expected = np.concatenate([[0], short_distance_m(lon[:-1], lat[:-1], lon[1:], lat[1:])])
    expected[12] = 0
    assert np.allclose(steps, expected, rtol=1e-6)
