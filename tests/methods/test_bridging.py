"""Breaks that the choices of steps leave are driven around along the map, where it has a way."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
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
SHORT_M = 60.0  # what is far in steps of this length is far in most of the city


def trip_of(rng, fixes, choices):
    """Return random positions of fixes some steps apart with nothing sensible in between, all moves broken."""
    row = np.concatenate([[0], np.cumsum(rng.integers(1, 6, fixes - 1))])
    n = int(row[-1]) + 1
    segment = np.stack([rng.choice(len(CITY), choices, replace=False) for _ in range(n)])
    ratio = rng.random((n, choices))
    likely = -np.sort(rng.random((n, choices)), axis=1)
    broken = np.ones(n, bool)
    broken[0] = False
    return row, Positions(segment, ratio, likely), segment[:, 0].copy(), ratio[:, 0].copy(), broken


def too_long(metres, steps):
    """Return whether a way does not fit into the time; cases in which the tolerance decides are left out."""
    assume(not REACH_M * steps < metres <= (REACH_M + 1) * steps)
    return metres > REACH_M * steps


def faults(segment, ratio, reach_m=REACH_M):
    none = [None] * len(segment)
    places = [int(s) for s in segment], [float(r) for r in ratio]
    return check_trip(CITY, GAPS, *places, none, step_s=STEP_S, top_speed_mps=reach_m / STEP_S)


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
        is_broken = broken[first + 1 : last + 1].any()
        assert verdict.drivable or is_broken
        assert is_broken == too_long(way[gap], last - first)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fixes=st.integers(2, 5), choices=st.integers(1, 4))
def test_other_positions_of_fixes_leave_as_few_gaps_broken_as_any(seed, fixes, choices):
    row, positions, segment, ratio, broken = trip_of(np.random.default_rng(seed), fixes, choices)
    bridge(ROUTER, Fixes(row, np.zeros(fixes, int)), positions, REACH_M, segment, ratio, broken)
    left = sum(broken[first + 1 : last + 1].any() for first, last in itertools.pairwise(row))
    assert left == fewest(row, positions)
    verdict = faults(segment, ratio, REACH_M - 0.5)  # the checker is more tolerant by half a metre
    assert verdict.breaks + verdict.backward == broken.sum()


def fewest(row, positions):
    """Return in how many gaps the best of all combinations of positions has no way, by trying one after another."""
    best = dict.fromkeys(range(positions.segment.shape[1]), 0)
    for first, last in itertools.pairwise(row):
        here, there = positions.segment[first], positions.segment[last]
        at, goal = positions.ratio[first], positions.ratio[last]
        best = {
            b: min(
                cost + too_long(ROUTER.distances(here[a], at[a], there[b], goal[b])[0], last - first)
                for a, cost in best.items()
            )
            for b in best
        }
    return min(best.values())


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fixes=st.integers(2, 4), choices=st.integers(1, 3))
def test_no_more_fixes_are_moved_than_that_takes(seed, fixes, choices):
    rng = np.random.default_rng(seed)
    row, positions, _, _, broken = trip_of(rng, fixes, choices)
    taken = rng.integers(0, choices, len(broken)), rng.random(len(broken))  # not the likeliest, and placed elsewhere
    segment, ratio = positions.segment[np.arange(len(broken)), taken[0]], taken[1]
    before = segment.copy(), ratio.copy()
    here = [
        [(s, ratio[i] if s == segment[i] else r) for s, r in zip(positions.segment[i], positions.ratio[i], strict=True)]
        for i in row
    ]
    least = min(
        (
            sum(
                too_long(ROUTER.distances(*a, *b)[0], last - first)
                for (a, b), (first, last) in zip(itertools.pairwise(chosen), itertools.pairwise(row), strict=True)
            ),
            sum(place[0] != before[0][i] for place, i in zip(chosen, row, strict=True)),
        )
        for chosen in itertools.product(*here)
    )
    bridge(ROUTER, Fixes(row, np.zeros(fixes, int)), positions, REACH_M, segment, ratio, broken)
    left = sum(broken[first + 1 : last + 1].any() for first, last in itertools.pairwise(row))
    stayed = segment[row] == before[0][row]
    assert (left, int((~stayed).sum())) == least
    np.testing.assert_array_equal(ratio[row][stayed], before[1][row][stayed])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_only_the_step_that_is_astray_is_moved(seed):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, len(CITY), 2), rng.random(2)
    metres = ROUTER.distances(ends[0][:1], ends[1][:1], ends[0][1:], ends[1][1:])[0]
    n = int(metres / (0.8 * SHORT_M)) + 2
    assume(4 <= n <= 30)
    segment, ratio, broken = np.full(n, ends[0][0]), np.full(n, ends[1][0]), np.ones(n, bool)
    segment[-1], ratio[-1], broken[0] = ends[0][1], ends[1][1], False
    fixes = Fixes(np.array([0, n - 1]), np.zeros(2, int))
    positions = Positions(segment[:, None], ratio[:, None], np.zeros((n, 1)))
    segment[1:-1] = -1  # so that the way leads from fix to fix
    bridge(ROUTER, fixes, positions, SHORT_M, segment, ratio, broken)
    assume(not broken.any())
    good = segment.copy(), ratio.copy()
    astray = int(rng.integers(1, n - 1))
    segment[astray], ratio[astray] = rng.integers(0, len(CITY)), rng.random()
    here = np.full(n, segment[astray]), np.full(n, ratio[astray])
    steps = np.abs(np.arange(n) - astray)
    to, back = ROUTER.distances(*good, *here), ROUTER.distances(*here, *good)
    far = np.where(np.arange(n) < astray, to, back) > SHORT_M * steps + 1
    assume(far[steps > 0].all())
    broken[[astray, astray + 1]] = True
    changed = bridge(ROUTER, fixes, positions, SHORT_M, segment, ratio, broken)
    assert not broken.any()
    assert np.flatnonzero(changed).tolist() == [astray]
    assert faults(segment, ratio, SHORT_M).drivable


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
