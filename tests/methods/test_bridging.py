"""Breaks that the choices of steps leave are driven around along the map, where it has a way."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.bridging import Steps, bridge
from tedtrajrec.methods.near_fixes import PRICE, Around, Fixes
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.evaluation.drive_checker import NetworkxGaps, check_trip

CITY = make_grid()
GAPS = NetworkxGaps(CITY)
ROUTER = Router(CITY)
STEP_S = 15
REACH_M = 300.0
SHORT_M = 60.0  # what is far in steps of this length is far in most of the city


class Trip:
    """Random positions of fixes some steps apart with nothing sensible in between, all moves broken."""

    def __init__(self, rng, fixes):
        self.row = np.concatenate([[0], np.cumsum(rng.integers(1, 6, fixes - 1))])
        n = int(self.row[-1]) + 1
        broken = np.ones(n, bool)
        broken[0] = False
        self.steps = Steps(rng.integers(0, len(CITY), n), rng.random(n), np.zeros(n), np.ones(n), broken)

    def bridge(self, reach_m=REACH_M):
        return bridge(
            ROUTER, Fixes(self.row, np.zeros(len(self.row), int)), self.where_they_are, reach_m, PRICE, self.steps
        )

    def where_they_are(self, few):
        """Return that fixes may be where they are and nowhere else."""
        at = self.steps.ratio[self.row[few], None]
        segment = self.steps.segment[self.row[few], None]
        return Around(segment, at, at, at, np.zeros(at.shape), np.zeros(at.shape, bool))


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
    trip = Trip(np.random.default_rng(seed), fixes)
    segment, ratio, _, _, broken = trip.steps
    ends = segment[trip.row].copy(), ratio[trip.row].copy()
    trip.bridge()
    np.testing.assert_array_equal(segment[trip.row], ends[0])
    np.testing.assert_array_equal(ratio[trip.row], ends[1])
    way = ROUTER.distances(ends[0][:-1], ends[1][:-1], ends[0][1:], ends[1][1:])
    for gap, (first, last) in enumerate(itertools.pairwise(trip.row)):
        verdict = faults(segment[first : last + 1], ratio[first : last + 1])
        is_broken = broken[first + 1 : last + 1].any()
        assert verdict.drivable or is_broken
        assert is_broken == too_long(way[gap], last - first)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_only_the_step_that_is_astray_is_moved(seed):
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, len(CITY), 2), rng.random(2)
    metres = ROUTER.distances(ends[0][:1], ends[1][:1], ends[0][1:], ends[1][1:])[0]
    n = int(metres / (0.8 * SHORT_M)) + 2
    assume(4 <= n <= 30)
    trip = Trip(rng, 2)
    trip.row = np.array([0, n - 1])
    segment, ratio, broken = np.full(n, -1), np.zeros(n), np.arange(n) > 0  # so that the way leads from fix to fix
    segment[[0, -1]], ratio[[0, -1]] = ends
    trip.steps = Steps(segment, ratio, np.zeros(n), np.ones(n), broken)
    trip.bridge(SHORT_M)
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
    changed = trip.bridge(SHORT_M)
    assert not broken.any()
    assert np.flatnonzero(changed).tolist() == [astray]
    assert faults(segment, ratio, SHORT_M).drivable


def test_trips_do_not_mix():
    rng = np.random.default_rng(5)
    one, two = Trip(rng, 3), Trip(rng, 4)
    n = len(one.steps.segment)
    both = Trip(rng, 2)
    both.row = np.concatenate([one.row, two.row + n])
    both.steps = Steps(*(np.concatenate(parts) for parts in zip(one.steps, two.steps, strict=True)))
    bridge(ROUTER, Fixes(both.row, np.repeat([0, 1], [3, 4])), both.where_they_are, REACH_M, PRICE, both.steps)
    for case, rows in ((one, slice(0, n)), (two, slice(n, None))):
        case.bridge()
        for alone, joint in zip(case.steps, both.steps, strict=True):
            np.testing.assert_array_equal(alone, joint[rows])
