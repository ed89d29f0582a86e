"""Gaps without a way through the choices of their steps are driven along the map, where it has one."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.bridging import Fixes, Positions, bridge
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.evaluation.drive_checker import NetworkxGaps, check_trip

CITY = make_grid()
GAPS = NetworkxGaps(CITY)
ROUTER = Router(CITY)
STEP_S = 15
REACH_M = 300.0


def trip_of(rng, fixes, choices):
    """Return random positions of fixes some steps apart with nothing sensible in between, all moves broken."""
    row = np.concatenate([[0], np.cumsum(rng.integers(1, 6, fixes - 1))])
    n = int(row[-1]) + 1
    segment, ratio = rng.integers(0, len(CITY), (n, choices)), rng.random((n, choices))
    likely = -np.sort(rng.random((n, choices)), axis=1)
    broken = np.ones(n, bool)
    broken[0] = False
    return row, Positions(segment, ratio, likely), segment[:, 0].copy(), ratio[:, 0].copy(), broken


def faults(segment, ratio):
    none = [None] * len(segment)
    places = [int(s) for s in segment], [float(r) for r in ratio]
    return check_trip(CITY, GAPS, *places, none, step_s=STEP_S, top_speed_mps=REACH_M / STEP_S)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fixes=st.integers(2, 6))
def test_a_gap_is_driven_where_the_map_has_a_way_in_the_time(seed, fixes):
    row, positions, segment, ratio, broken = trip_of(np.random.default_rng(seed), fixes, 1)
    ends = segment[row].copy(), ratio[row].copy()
    bridge(ROUTER, Fixes(row, np.zeros(fixes, int)), positions, REACH_M, segment, ratio, broken)
    np.testing.assert_array_equal(segment[row], ends[0])
    np.testing.assert_array_equal(ratio[row], ends[1])
    way = ROUTER.distances(ends[0][:-1], ends[1][:-1], ends[0][1:], ends[1][1:])
    for gap, (first, last) in enumerate(itertools.pairwise(row)):
        verdict = faults(segment[first : last + 1], ratio[first : last + 1])
        if way[gap] <= REACH_M * (last - first):
            assert verdict.drivable
            assert not broken[first + 1 : last + 1].any()
        else:
            assert broken[first + 1 : last + 1].any()


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fixes=st.integers(2, 5), choices=st.integers(1, 4))
def test_other_positions_of_fixes_leave_as_few_gaps_broken_as_any(seed, fixes, choices):
    row, positions, segment, ratio, broken = trip_of(np.random.default_rng(seed), fixes, choices)
    bridge(ROUTER, Fixes(row, np.zeros(fixes, int)), positions, REACH_M, segment, ratio, broken)
    left = sum(broken[first + 1 : last + 1].any() for first, last in itertools.pairwise(row))
    assert left == fewest(row, positions)
    verdict = faults(segment, ratio)
    assert verdict.breaks + verdict.backward == broken.sum()


def fewest(row, positions):
    """Return in how many gaps the best of all combinations of positions has no way, by trying one after another."""
    best = dict.fromkeys(range(positions.segment.shape[1]), 0)
    for first, last in itertools.pairwise(row):
        here, there = positions.segment[first], positions.segment[last]
        at, goal = positions.ratio[first], positions.ratio[last]
        best = {
            b: min(
                cost + (ROUTER.distances(here[a], at[a], there[b], goal[b])[0] > REACH_M * (last - first))
                for a, cost in best.items()
            )
            for b in best
        }
    return min(best.values())


def test_trips_do_not_mix():
    rng = np.random.default_rng(5)
    one, two = trip_of(rng, 3, 2), trip_of(rng, 4, 2)
    n = len(one[2])
    row = np.concatenate([one[0], two[0] + n])
    positions = Positions(*(np.concatenate(parts) for parts in zip(one[1], two[1], strict=True)))
    both = [np.concatenate([one[k], two[k]]) for k in (2, 3, 4)]
    bridge(ROUTER, Fixes(row, np.repeat([0, 1], [3, 4])), positions, REACH_M, *both)
    for case, rows in ((one, slice(0, n)), (two, slice(n, None))):
        bridge(ROUTER, Fixes(case[0], np.zeros(len(case[0]), int)), case[1], REACH_M, *case[2:])
        for alone, joint in zip(case[2:], both, strict=True):
            np.testing.assert_array_equal(alone, joint[rows])
