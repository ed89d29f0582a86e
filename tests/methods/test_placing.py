import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, isotonic_regression, linprog, minimize

from tedtrajrec.evaluation.drivable import check_drives
from tedtrajrec.methods.placing import place
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid

CITY = make_grid()
ROUTER = Router(CITY)
STEP_S = 15
RATIO = st.floats(0, 1, width=32)


@st.composite
def drives(draw, most_steps=12):
    """Trips over the grid that turn at random, with rough ratios; some of their steps are nowhere."""
    segments, offsets = [], [0]
    for _ in range(draw(st.integers(1, 4))):
        here = draw(st.integers(0, len(CITY) - 1))
        for _ in range(draw(st.integers(1, most_steps))):
            for _ in range(draw(st.integers(0, 3))):
                here = int(draw(st.sampled_from(CITY.successors(here).tolist())))
            segments.append(here if draw(st.integers(0, 9)) else -1)
        offsets.append(len(segments))
    ratio = draw(st.lists(RATIO, min_size=len(segments), max_size=len(segments)))
    return np.array(offsets), np.array(segments, np.int32), np.array(ratio)


@settings(max_examples=80)
@given(trips=drives(), top_speed_mps=st.sampled_from([2.0, 8.0, 15.0, 40.0]))
def test_what_is_placed_can_be_driven_where_possible(trips, top_speed_mps):
    offsets, segment, ratio = trips
    placed = place(ROUTER, *trips, step_s=STEP_S, top_speed_mps=top_speed_mps)
    assert ((placed >= 0) & (placed <= 1)).all()
    np.testing.assert_array_equal(placed[segment < 0], ratio[segment < 0])
    checked = {"step_s": STEP_S, "top_speed_mps": top_speed_mps, "tolerance_m": 1e-6}
    before, after = (check_drives(ROUTER, offsets, segment, r, **checked) for r in (ratio, placed))
    assert (after.backward == 0).all()
    if top_speed_mps == 40:  # 600 m take one anywhere on three segments
        assert (after.breaks == 0).all()
    fine = (before.backward == 0) & (before.breaks == 0)
    same = np.repeat(fine, np.diff(offsets))
    np.testing.assert_allclose(placed[same], ratio[same], rtol=0, atol=1e-7)  # what is fine is so within the tolerance
    again = place(ROUTER, offsets, segment, placed, step_s=STEP_S, top_speed_mps=top_speed_mps)
    np.testing.assert_allclose(again, placed, atol=1e-9)


@settings(max_examples=50)
@given(ratio=st.lists(st.tuples(RATIO, st.floats(0.1, 10)), min_size=1, max_size=40))
def test_on_one_segment_it_is_isotonic_regression(ratio):
    y, weight = np.array(ratio).T
    segment = np.full(len(y), 7)
    placed = place(ROUTER, np.array([0, len(y)]), segment, y, step_s=STEP_S, weight=weight)
    np.testing.assert_allclose(placed, isotonic_regression(y, weights=weight).x, atol=1e-9)


@settings(max_examples=60)
@given(trips=drives(most_steps=8), top_speed_mps=st.sampled_from([7.0, 15.0, 40.0]), seed=st.integers(0, 99))
def test_no_other_ratios_are_nearer(trips, top_speed_mps, seed):
    """The same problem for general solvers: one for the least change, one for whether there is any solution."""
    offsets, segment, ratio = trips
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.5, 2, len(segment))
    bounded = rng.random(len(segment)) < 0.3  # some steps must stay near where they are, one to a segment at most
    bounded[1:] &= segment[1:] != segment[:-1]
    bounded[:-1] &= segment[1:] != segment[:-1]
    lowest = np.where(bounded, np.maximum(ratio - 0.2, 0), 0.0)
    highest = np.where(bounded, np.minimum(ratio + 0.1, 1), 1.0)
    placed = place(
        ROUTER, *trips, step_s=STEP_S, top_speed_mps=top_speed_mps, weight=weight, lowest=lowest, highest=highest
    )
    on_road = segment >= 0
    assert ((placed >= lowest - 1e-12) & (placed <= highest + 1e-12))[on_road].all()
    faults = check_drives(
        ROUTER, offsets, segment, placed, step_s=STEP_S, top_speed_mps=top_speed_mps, tolerance_m=1e-6
    )
    for trip, broken in enumerate(faults.breaks):
        on = offsets[trip] + np.flatnonzero(segment[offsets[trip] : offsets[trip + 1]] >= 0)
        if len(on) < 2:
            continue
        size = CITY.length_m[segment[on]]
        low, high = [], []
        for a, b in itertools.pairwise(on):
            reach = top_speed_mps * STEP_S * (b - a)
            stays = segment[a] == segment[b]
            gap = 0.0 if stays else ROUTER.distances(segment[a], 1.0, segment[b], 0.0)[0]
            low.append(0.0 if stays else -np.inf)
            high.append(reach if stays else reach - gap - CITY.length_m[segment[a]])
        step = np.eye(len(on))[1:] - np.eye(len(on))[:-1]
        bounds = list(zip(lowest[on] * size, highest[on] * size, strict=True))
        if broken:
            order = np.isfinite(low)
            found = linprog(
                np.zeros(len(on)), np.vstack([step, -step[order]]), [*high, *np.zeros(order.sum())], bounds=bounds
            )
            assert found.status == 2  # infeasible
            continue
        y, w, x = ratio[on] * size, weight[on], placed[on] * size
        answer = minimize(
            lambda x, y=y, w=w: (w * (x - y) ** 2).sum() / 1e3,
            x,
            jac=lambda x, y=y, w=w: 2 * w * (x - y) / 1e3,
            bounds=bounds,
            constraints=LinearConstraint(step, low, high),
            method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 300},
        )
        got = (w * (x - y) ** 2).sum()
        assert got <= answer.fun * 1e3 + 1e-4 * max(1.0, got)


def test_a_speeding_step_gives_way():
    east = [0, 2, 4, 6]  # 100 m each, one after another
    segment, ratio = np.array([0, 6]), np.array([0.0, 1.0])
    assert [list(CITY.successors(a)).count(b) for a, b in itertools.pairwise(east)] == [1, 1, 1]
    way = CITY.length_m[east].sum()
    placed = place(ROUTER, np.array([0, 2]), segment, ratio, step_s=10, top_speed_mps=36)
    size = CITY.length_m[segment]
    np.testing.assert_allclose(placed * size, [(way - 360) / 2, size[1] - (way - 360) / 2])
    heavy = place(ROUTER, np.array([0, 2]), segment, ratio, step_s=10, top_speed_mps=36, weight=[1e9, 1])
    np.testing.assert_allclose(heavy * size, [0, size[1] - (way - 360)], atol=1e-4)
    no_way = place(ROUTER, np.array([0, 2]), segment, ratio, step_s=10, top_speed_mps=15)
    np.testing.assert_array_equal(no_way, ratio)  # 150 m do not even cover the two segments between


def test_steps_keep_to_their_stretch():
    trip, ratio = (np.array([0, 3]), np.array([0, 0, 0])), np.array([0.5, 0.6, 0.2])
    bounds = {"lowest": [0.45, 0.0, 0.0], "highest": [0.55, 1.0, 1.0]}
    np.testing.assert_allclose(place(ROUTER, *trip, ratio, step_s=STEP_S), np.full(3, ratio.mean()))
    np.testing.assert_allclose(place(ROUTER, *trip, ratio, step_s=STEP_S, **bounds), 0.45)
    # Speed gives way to a stretch, and a stretch to the driving order.
    slow = place(
        ROUTER, *trip, np.array([0.1, 0.1, 0.9]), step_s=1, top_speed_mps=10, lowest=[0, 0, 0.8], highest=[0.2, 0.2, 1]
    )
    np.testing.assert_allclose(slow, [0.1, 0.1, 0.9])
    against = place(ROUTER, *trip, ratio, step_s=STEP_S, lowest=[0.5, 0, 0], highest=[1, 1, 0.3])
    np.testing.assert_allclose(against, 0.5)
    with pytest.raises(ValueError, match="ends before"):
        place(ROUTER, *trip, ratio, step_s=STEP_S, lowest=[0.5, 0, 0], highest=[0.4, 1, 1])


def test_gaps_may_be_given():
    segment, ratio = np.array([0, 6, 6]), np.array([0.0, 1.0, 0.5])
    gap = np.array([np.nan, ROUTER.distances(0, 1.0, 6, 0.0)[0], np.nan])
    told = place(ROUTER, np.array([0, 3]), segment, ratio, step_s=10, top_speed_mps=36, gap_m=gap)
    np.testing.assert_array_equal(told, place(ROUTER, np.array([0, 3]), segment, ratio, step_s=10, top_speed_mps=36))


def test_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    offsets = np.arange(0, 2001, 20)
    segment, ratio = np.repeat(rng.integers(0, len(CITY), 1000), 2), rng.random(2000)
    whole = place(ROUTER, offsets, segment, ratio, step_s=STEP_S, workers=1)
    monkeypatch.setattr("tedtrajrec.methods.placing.STEPS_PER_PART", 50)
    np.testing.assert_array_equal(place(ROUTER, offsets, segment, ratio, step_s=STEP_S, workers=3), whole)
    assert (whole != ratio).any()


def test_nothing_to_place():
    assert place(ROUTER, np.array([0]), np.zeros(0, np.int32), np.zeros(0), step_s=STEP_S).shape == (0,)
    nowhere = place(ROUTER, np.array([0, 2]), np.array([-1, -1]), np.array([0.0, 0.3]), step_s=STEP_S)
    assert nowhere.tolist() == [0.0, 0.3]
    with pytest.raises(ValueError, match="positive"):
        place(ROUTER, np.array([0, 1]), np.array([0]), np.array([0.5]), step_s=STEP_S, weight=[0.0])
