"""Positions of fixes that leave as few gaps without a way as any, against linear programs for all combinations."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tedtrajrec.methods.bridging import Steps, bridge
from tedtrajrec.methods.near_fixes import DETOUR_M, PRICE, STAY, Around, Fixes, Known, choose_fixes, roads_around
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.evaluation.drive_checker import NetworkxGaps, check_trip

CITY = make_grid()
GAPS = NetworkxGaps(CITY)
ROUTER = Router(CITY)
STEP_S = 15
REACH_M = 120.0
SLACK_M = 0.25  # what the search tolerates


def around_of(rng, fixes, choices):
    """Return stretches of random segments for each fix of a trip; some are far, and some fixes have fewer."""
    segment = np.stack([rng.choice(len(CITY), choices, replace=False) for _ in range(fixes)])
    lowest, ratio, highest = np.sort(rng.random((3, fixes, choices)), axis=0)
    segment[:, 1:][rng.random((fixes, choices - 1)) < 0.2] = -1
    likely = -20 * rng.random((fixes, choices))
    return Around(segment, ratio, lowest, highest, likely, rng.random((fixes, choices)) < 0.2)


def metres_between(a, b):
    """Return the metres from the end of one segment to the start of another, or around to itself."""
    return GAPS(a, b) if a != b else min(CITY.length_m[s] + GAPS(int(s), a) for s in CITY.successors(a))


def can_be_driven(around, row, choice, joined):
    """Return whether ratios exist with which joined moves fit; a segment may be stayed on, or driven around to."""
    segment = around.segment[np.arange(len(row)), choice]
    length = CITY.length_m[segment]
    options = []
    for i in range(1, len(row)):
        reach, gap = REACH_M * (row[i] - row[i - 1]) + SLACK_M, metres_between(int(segment[i - 1]), int(segment[i]))
        around_to = ([-1.0], [1.0], reach - gap - length[i - 1])
        if not joined[i - 1]:
            options.append([None])
        elif segment[i] != segment[i - 1]:
            options.append([(i, around_to)])
        else:
            stay = (i, ([-1.0, 1.0], [1.0, -1.0], (reach, 0.0)))
            options.append([stay, (i, around_to)] if row[i] - row[i - 1] > 1 else [stay])
    bounds = [(around.lowest[i, c] * length[i], around.highest[i, c] * length[i]) for i, c in enumerate(choice)]
    for moves in itertools.product(*options):
        left, right = [], []
        for i, (before, here, most) in (move for move in moves if move is not None):
            for a, b, value in zip(before, here, np.atleast_1d(most), strict=True):
                line = np.zeros(len(row))
                line[i - 1], line[i] = a, b
                left.append(line)
                right.append(value)
        if not np.isfinite(right).all():
            continue
        found = linprog(np.zeros(len(row)), A_ub=left or None, b_ub=right or None, bounds=bounds)
        if found.status == 0:
            return True
    return False


def rank(around, choice, joined, segment, ratio):
    """Return what is to be least, in this order: breaks, far fixes, and what is unlikely or a long way."""
    taken = np.arange(len(choice)), choice
    chosen, stays = around.segment[taken], around.segment[taken] == segment
    at = np.where(stays, ratio, around.ratio[taken])
    way = [
        (at[i] - at[i - 1]) * CITY.length_m[chosen[i]]
        if chosen[i] == chosen[i - 1] and at[i] >= at[i - 1]
        else ROUTER.distances(chosen[i - 1], at[i - 1], chosen[i], at[i])[0] * (chosen[i] != chosen[i - 1])
        for i in range(1, len(choice))
        if joined[i - 1]
    ]
    cost = sum(way) / DETOUR_M - (around.likely[taken] + STAY * stays).sum()
    return sum(not move for move in joined), int(around.far[taken].sum()), float(cost)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fixes=st.integers(2, 4), choices=st.integers(1, 3))
def test_no_positions_leave_fewer_gaps_broken_or_are_better_otherwise(seed, fixes, choices):
    rng = np.random.default_rng(seed)
    around = around_of(rng, fixes, choices)
    row = np.concatenate([[0], np.cumsum(rng.integers(1, 6, fixes - 1))])
    segment, ratio = around.segment[np.arange(fixes), rng.integers(0, choices, fixes)], rng.random(fixes)
    chosen = choose_fixes(ROUTER, Fixes(row, np.zeros(fixes, int)), around, segment, ratio, REACH_M, np.inf)
    way = ROUTER.distances(chosen.segment[:-1], chosen.ratio[:-1], chosen.segment[1:], chosen.ratio[1:])
    joined = way <= REACH_M * np.diff(row) + SLACK_M + 1e-3
    choice = (around.segment == chosen.segment[:, None]).argmax(axis=1)
    breaks, far, cost = rank(around, choice, joined, segment, ratio)
    found = breaks, far, cost - 1e-3
    assert chosen.broken.tolist() == [False, *(~joined).tolist()]
    for other in itertools.product(*(np.flatnonzero(some >= 0) for some in around.segment)):
        for moves in itertools.product([True, False], repeat=fixes - 1):
            if rank(around, other, moves, segment, ratio) < found:
                assert not can_be_driven(around, row, other, moves), (seed, fixes, choices, found, other, moves)
    inside = around.lowest[np.arange(fixes), choice], around.highest[np.arange(fixes), choice]
    assert (chosen.ratio >= inside[0] - 1e-9).all()
    assert (chosen.ratio <= inside[1] + 1e-9).all()


def test_a_fix_is_moved_to_a_likely_road_and_not_to_an_unlikely_one():
    rows = np.array([0, 1])
    first = 0
    away = ROUTER.distances(first, 1.0, np.arange(len(CITY)), 0.0)
    far, near = int(np.argmax(np.where(np.isfinite(away), away, 0))), int(np.argmin(away))
    for likely, price, expected in ((-3.0, PRICE, near), (-PRICE - 10, PRICE, far), (-PRICE - 10, np.inf, near)):
        around = Around(
            np.array([[first, -1], [far, near]]),
            np.array([[0.9, 0.0], [0.5, 0.1]]),
            np.zeros((2, 2)),
            np.ones((2, 2)),
            np.array([[0.0, 0.0], [0.0, likely]]),
            np.zeros((2, 2), bool),
        )
        fixes = Fixes(rows, np.zeros(2, int))
        chosen = choose_fixes(ROUTER, fixes, around, np.array([first, far]), np.array([0.9, 0.5]), REACH_M, price)
        assert chosen.segment.tolist() == [first, expected]
        assert chosen.broken.tolist() == [False, expected == far]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), fixes=st.integers(2, 5), price=st.sampled_from([0.1, PRICE, np.inf]))
def test_trips_through_the_chosen_positions_pass_the_checker(seed, fixes, price):
    rng = np.random.default_rng(seed)
    around = around_of(rng, fixes, 3)
    row = np.concatenate([[0], np.cumsum(rng.integers(1, 6, fixes - 1))])
    n = int(row[-1]) + 1
    broken = np.arange(n) > 0
    steps = Steps(np.full(n, -1), np.zeros(n), np.zeros(n), np.ones(n), broken)
    steps.segment[row], steps.ratio[row] = around.segment[:, 0], around.ratio[:, 0]
    bridge(
        ROUTER,
        Fixes(row, np.zeros(fixes, int)),
        lambda few: Around(*(part[few] for part in around)),
        REACH_M,
        price,
        steps,
    )
    whole = [run for run in np.split(np.arange(n), np.flatnonzero(broken)) if (steps.segment[run] >= 0).all()]
    for run in whole:
        places = [int(s) for s in steps.segment[run]], [float(r) for r in steps.ratio[run]]
        assert check_trip(
            CITY, GAPS, *places, [None] * len(run), step_s=STEP_S, top_speed_mps=REACH_M / STEP_S
        ).drivable


def test_all_roads_near_a_fix_and_choices_beyond():
    finder = CandidateFinder(CITY)
    lon, lat = CITY.point_at([3], [0.4])
    near = finder.within(lon, lat, 99.0)
    first = int(near.segment[0])
    beyond = int(np.setdiff1d(np.arange(len(CITY)), near.segment)[0])
    known = Known(
        np.array([[first, beyond, -1]]),
        np.array([[0.4, 0.7, 0.0]]),
        np.array([[-0.1, -500.0, 0.0]]),
        np.array([[False, True, True]]),
    )
    around = roads_around(finder, lon, lat, 99.0, known)
    assert sorted(around.segment[around.segment >= 0].tolist()) == sorted([*near.segment.tolist(), beyond])
    assert around.likely[around.segment == first] == -0.1
    thought = np.isin(around.segment, [first, beyond])
    assert around.likely[(around.segment >= 0) & ~thought].max(initial=-25) <= -25
    assert around.likely[around.segment == beyond] == -21.0
    assert around.segment[around.far].tolist() == [beyond]
    for s, low, high in zip(around.segment[0], around.lowest[0], around.highest[0], strict=True):
        if s >= 0 and s != beyond:
            for place in (low, high):
                x, y = CITY.plane.to_xy(*CITY.point_at([s], [place]))
                at = CITY.plane.to_xy(lon, lat)
                assert np.hypot(x - at[0], y - at[1]) <= 99.0 + 1e-6
