"""Metrics on networks one can draw, against sklearn, networkx and plain Python."""

import math

import networkx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score

from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.metrics import evaluate_trips, gaps_without_route
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid
from tests.network.test_routing import make_roads
from tests.trips.test_sequences import lcs_by_definition

GRID = make_grid(forbidden_turns=np.array([[0, 2], [3, 1]]))
ROUTER = Router(GRID)


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def draw(seed, lengths, *, unknown=0.0, unanswered=0.0, wrong=0.5):
    """Return offsets, truth, prediction and observed steps of random trips on the grid."""
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    truth = rng.integers(0, len(GRID), n)
    answer = np.where(rng.random(n) < wrong, rng.integers(0, len(GRID), n), truth)
    truth[rng.random(n) < unknown] = -1
    answer[rng.random(n) < unanswered] = -1
    true_ratio = np.where(truth < 0, np.nan, rng.random(n))
    ratio = np.where(answer < 0, np.nan, rng.random(n))
    return (offsets_of(lengths), truth, true_ratio, answer, ratio), rng.random(n) < 0.3


def assert_same(a, b, rows=slice(None)):
    for name, column in a.columns().items():
        np.testing.assert_array_equal(column, b.columns()[name][rows], err_msg=name)


lengths_of_trips = st.lists(st.integers(0, 9), min_size=1, max_size=6)
shares = st.sampled_from([0.0, 0.3, 1.0])


# ---------------------------------------------------------------------- by hand

# A one-way road of four segments of 100 m: 0, 1, 2, 3; and, a kilometre north of it, segment 4 that nothing leads to.
POINTS = [(0, 0), (100, 0), (200, 0), (300, 0), (400, 0), (0, 1000), (100, 1000)]
ROAD = make_roads(POINTS, [[0, 1], [1, 2], [2, 3], [3, 4], [5, 6]])


def test_an_example_worked_by_hand():
    nan = math.nan
    m = evaluate_trips(
        ROAD,
        [0, 6],
        [0, 0, 1, -1, 2, 3],
        [0.2, 0.6, 0.5, nan, 0.5, 0.5],
        [0, 1, 1, 2, 4, -1],
        [0.3, 0.1, 0.5, 0.0, 0.5, nan],
        observed=[True, False, False, False, False, True],
    )
    assert (m.n_steps, m.n_unknown, m.n_unanswered, m.n_observed, m.n_no_route) == (5, 1, 1, 2, 0)
    # Right at steps 1 and 3 of the five known ones; of the observed steps 1 and 6 only the first.
    assert (m.accuracy, m.accuracy_observed) == (2 / 5, 1 / 2)
    assert m.accuracy_missing == pytest.approx(1 / 3)
    assert np.isnan(m.accuracy_no_route)
    # Truth 0 1 2 3 and prediction 0 1 4 (the 2 stands where the truth is unknown) have 0 1 in common.
    assert (m.recall, m.set_recall) == (2 / 4, 2 / 4)
    assert m.precision == m.set_precision == pytest.approx(2 / 3)
    assert m.f1 == m.set_f1 == pytest.approx(4 / 7)
    # 10 m on one segment; 0.6 on segment 0 to 0.1 on segment 1 is 50 m; 0 m; unreachable; no answer.
    assert m.mae_m == pytest.approx((10 + 50 + 0 + 4000 + 4000) / 5, abs=0.01)
    assert m.rmse_m == pytest.approx(math.sqrt((10**2 + 50**2 + 4000**2 + 4000**2) / 5), abs=0.01)
    assert m.mae_uncapped_m == pytest.approx(20, abs=0.01)
    assert m.rmse_uncapped_m == pytest.approx(math.sqrt((10**2 + 50**2) / 3), abs=0.01)
    assert m.capped_share == 2 / 5
    across = math.hypot(200, 1000 * 110_574.3 / 111_319.49)  # a degree of latitude is shorter at the equator
    assert m.straight_mae_m == pytest.approx((10 + 50 + 0 + across + 4000) / 5, abs=0.01)
    assert m.straight_rmse_m == pytest.approx(math.sqrt((10**2 + 50**2 + across**2 + 4000**2) / 5), abs=0.01)


def test_order_matters_to_sequences_and_not_to_sets():
    m = evaluate_trips(ROAD, [0, 4], [0, 1, 0, 2], [0.5] * 4, [2, 0, 1, 1], [0.5] * 4)
    assert (m.recall, m.precision) == (2 / 4, 2 / 3)  # 0 1 of 0 1 0 2 and of 2 0 1
    assert (m.set_recall, m.set_precision, m.set_f1) == (1, 1, 1)


def test_the_shorter_direction_counts_also_where_it_is_against_the_traffic():
    behind = evaluate_trips(ROAD, [0, 1], [3], [0.5], [1], [0.5])
    ahead = evaluate_trips(ROAD, [0, 1], [1], [0.5], [3], [0.5])
    assert behind.mae_m == ahead.mae_m == pytest.approx(200, abs=0.01)
    assert behind.capped_share == 0


def test_the_cap_holds_for_far_pairs_on_one_segment_too():
    m = evaluate_trips(ROAD, [0, 2], [0, 3], [0.0, 0.5], [0, 1], [1.0, 0.5], cap_m=60)
    assert (m.mae_m, m.capped_share) == (60, 1)
    assert np.isnan(m.mae_uncapped_m)
    assert np.isnan(m.rmse_uncapped_m)


# ---------------------------------------------------------------------- what is undefined elsewhere


def test_trips_without_known_steps_have_no_metrics():
    m = evaluate_trips(GRID, [0, 0, 2, 3], [-1, -1, 5], [math.nan, math.nan, 0.5], [1, -1, 5], [0.5, math.nan, 0.5])
    assert m.n_steps.tolist() == [0, 0, 1]
    assert m.n_unknown.tolist() == [0, 2, 0]
    assert m.n_unanswered.tolist() == [0, 0, 0]
    for name, column in m.values().items():
        assert np.isnan(column[:2]).all(), name
    assert m.accuracy[2] == 1


def test_a_trip_without_any_answer_is_all_wrong():
    m = evaluate_trips(GRID, [0, 3], [1, 2, 3], [0.5] * 3, [-1] * 3, [math.nan] * 3)
    for name in ("accuracy", "recall", "precision", "f1", "set_recall", "set_precision", "set_f1"):
        assert getattr(m, name) == 0, name
    assert m.mae_m == m.rmse_m == m.straight_mae_m == m.straight_rmse_m == 4000
    assert m.capped_share == 1
    assert m.n_unanswered == 3
    assert np.isnan(m.mae_uncapped_m)


def test_no_answer_does_not_break_a_run_of_one_segment():
    m = evaluate_trips(GRID, [0, 3], [7, 7, 7], [0.1, 0.2, 0.3], [7, -1, 7], [0.1, math.nan, 0.3])
    assert (m.recall, m.precision, m.f1) == (1, 1, 1)
    assert m.accuracy == pytest.approx(2 / 3)


def test_no_trips_at_all():
    m = evaluate_trips(GRID, [0], [], [], [], [], observed=[])
    assert all(len(column) == 0 for column in m.columns().values())


def test_without_observed_steps_said_accuracy_by_kind_is_undefined():
    steps, observed = draw(3, [5, 7])
    m = evaluate_trips(ROUTER, *steps)
    assert np.isnan([m.accuracy_observed, m.accuracy_missing, m.accuracy_no_route]).all()
    assert m.n_observed.tolist() == [0, 0]
    everything = evaluate_trips(ROUTER, *steps, observed=np.ones_like(observed))
    np.testing.assert_array_equal(everything.accuracy_observed, everything.accuracy)
    assert np.isnan(everything.accuracy_missing).all()


# ---------------------------------------------------------------------- oracles


@pytest.mark.parametrize(("unknown", "unanswered"), [(0, 0), (0.3, 0.2)])
def test_metrics_are_those_of_plain_python_and_sklearn(unknown, unanswered):
    lengths = [1, 2, 8, 30, 30, 30]
    steps, observed = draw(11, lengths, unknown=unknown, unanswered=unanswered)
    offsets, truth, true_ratio, answer, ratio = steps
    m = evaluate_trips(ROUTER, *steps, observed=observed)
    far = networkx_distances(truth, true_ratio, answer, ratio)
    for i in range(len(lengths)):
        part = np.arange(offsets[i], offsets[i + 1])
        part = part[truth[part] >= 0]
        if not len(part):
            continue
        for name, kind in (("", part), ("_observed", part[observed[part]]), ("_missing", part[~observed[part]])):
            expected = accuracy_score(truth[kind], answer[kind]) if len(kind) else math.nan
            assert getattr(m, f"accuracy{name}")[i] == pytest.approx(expected, nan_ok=True)
        a = collapsed(truth[part].tolist())
        b = collapsed([s for s in answer[part].tolist() if s >= 0])
        common = lcs_by_definition(tuple(a), tuple(b))
        assert m.recall[i] == pytest.approx(common / len(a))
        assert m.precision[i] == pytest.approx(common / len(b) if b else 0)
        assert m.f1[i] == pytest.approx(2 * common / (len(a) + len(b)))
        assert m.set_recall[i] == pytest.approx(len({*a} & {*b}) / len({*a}))
        assert m.set_precision[i] == pytest.approx(len({*a} & {*b}) / len({*b}) if b else 0)
        assert m.mae_m[i] == pytest.approx(far[part].mean())
        assert m.rmse_m[i] == pytest.approx(math.sqrt((far[part] ** 2).mean()))
        near = far[part][far[part] < 4000]
        assert m.capped_share[i] == pytest.approx(1 - len(near) / len(part))
        assert m.mae_uncapped_m[i] == pytest.approx(near.mean() if len(near) else math.nan, nan_ok=True)


def collapsed(values):
    return [v for i, v in enumerate(values) if i == 0 or v != values[i - 1]]


def networkx_distances(truth, true_ratio, answer, ratio):
    """Return the lesser distance of both directions, through a graph from the ends of segments to their successors."""
    graph = networkx.DiGraph()
    for segment in range(len(GRID)):
        for successor in GRID.successors(segment).tolist():
            graph.add_edge(segment, successor, length=GRID.length_m[successor])  # end to end
    between = dict(networkx.all_pairs_dijkstra_path_length(graph, weight="length"))

    def one_way(a, ratio_a, b, ratio_b):
        rest = (1 - ratio_a) * GRID.length_m[a]
        return rest + between[a].get(b, math.inf) - (1 - ratio_b) * GRID.length_m[b]

    out = np.full(len(truth), 4000.0)
    for i, (a, b) in enumerate(zip(truth.tolist(), answer.tolist(), strict=True)):
        if a == b:
            out[i] = abs(true_ratio[i] - ratio[i]) * GRID.length_m[a]
        elif a >= 0 and b >= 0:
            there, back = one_way(a, true_ratio[i], b, ratio[i]), one_way(b, ratio[i], a, true_ratio[i])
            out[i] = min(there, back, 4000.0)
    return out


# ---------------------------------------------------------------------- properties


@given(st.integers(0, 1000), lengths_of_trips)
@settings(max_examples=30)
def test_a_perfect_prediction_has_all_right_and_no_error(seed, lengths):
    (offsets, truth, true_ratio, _, _), observed = draw(seed, lengths, unknown=0.2)
    m = evaluate_trips(ROUTER, offsets, truth, true_ratio, truth, true_ratio, observed=observed)
    has_steps = m.n_steps > 0
    for name, column in m.values().items():
        is_error = name.endswith("_m") or name == "capped_share"
        defined = ~np.isnan(column)
        if not name.startswith("accuracy_"):
            np.testing.assert_array_equal(defined, has_steps, err_msg=name)
        assert (column[defined] == (0 if is_error else 1)).all(), name


@given(st.integers(0, 1000), lengths_of_trips, shares, shares)
@settings(max_examples=50)
def test_bounds_and_orders_of_metrics(seed, lengths, unknown, unanswered):
    steps, observed = draw(seed, lengths, unknown=unknown, unanswered=unanswered)
    m = evaluate_trips(ROUTER, *steps, observed=observed)
    np.testing.assert_array_equal(m.n_steps + m.n_unknown, lengths)
    known = m.n_steps > 0
    for low, middle, high in ((m.recall, m.f1, m.precision), (m.set_recall, m.set_f1, m.set_precision)):
        assert (np.minimum(low, high)[known] <= middle[known] + 1e-12).all()
        assert (np.maximum(low, high)[known] >= middle[known] - 1e-12).all()
    for name, column in m.values().items():
        if not name.endswith("_m"):
            assert ((column >= 0) & (column <= 1) | np.isnan(column)).all(), name
    for mae, rmse in ((m.mae_m, m.rmse_m), (m.straight_mae_m, m.straight_rmse_m)):
        assert (mae[known] <= rmse[known] * (1 + 1e-12)).all()
    assert (m.rmse_m[known] <= 4000).all()
    assert (m.straight_mae_m[known] <= m.mae_m[known] * 1.002).all()  # no road is shorter than the straight line
    split = np.nan_to_num(m.accuracy_observed) * m.n_observed
    split += np.nan_to_num(m.accuracy_missing) * (m.n_steps - m.n_observed)
    np.testing.assert_allclose(split, np.nan_to_num(m.accuracy) * m.n_steps, atol=1e-9)


@given(st.integers(0, 1000), lengths_of_trips, st.randoms(use_true_random=False))
@settings(max_examples=30)
def test_permuting_trips_permutes_rows(seed, lengths, random):
    steps, observed = draw(seed, lengths, unknown=0.2, unanswered=0.2)
    order = [*range(len(lengths))]
    random.shuffle(order)
    offsets, *columns = steps
    into = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in order]).astype(np.int64)
    moved = evaluate_trips(
        ROUTER, offsets_of([lengths[i] for i in order]), *(c[into] for c in columns), observed=observed[into]
    )
    assert_same(moved, evaluate_trips(ROUTER, *steps, observed=observed), np.array(order))


@given(st.integers(0, 1000), st.lists(st.integers(1, 3), min_size=9, max_size=9))
@settings(max_examples=30)
def test_repeating_steps_changes_nothing_in_the_sequences(seed, repeats):
    (offsets, *columns), _ = draw(seed, [4, 5], unknown=0.1, unanswered=0.1)
    longer = offsets_of([sum(repeats[:4]), sum(repeats[4:])])
    plain = evaluate_trips(ROUTER, offsets, *columns)
    repeated = evaluate_trips(ROUTER, longer, *(np.repeat(c, repeats) for c in columns))
    for name in ("recall", "precision", "f1", "set_recall", "set_precision", "set_f1"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(repeated, name))


def test_steps_of_unknown_truth_count_like_steps_that_are_not_there():
    (offsets, *columns), observed = draw(5, [20, 1, 20], unknown=0.4)
    known = columns[0] >= 0
    fewer = np.concatenate([[0], np.cumsum(known)])[offsets]
    with_unknown = evaluate_trips(ROUTER, offsets, *columns, observed=observed)
    without = evaluate_trips(ROUTER, fewer, *(c[known] for c in columns), observed=observed[known])
    for name, column in without.values().items():
        np.testing.assert_array_equal(column, with_unknown.values()[name], err_msg=name)


def test_results_do_not_depend_on_workers_or_on_network_or_router():
    steps, observed = draw(6, [40] * 20, unanswered=0.1)
    one = evaluate_trips(GRID, *steps, observed=observed, workers=1)
    assert_same(one, evaluate_trips(ROUTER, *steps, observed=observed, workers=3))


# ---------------------------------------------------------------------- gaps for which the map has no route


def test_gaps_without_route_by_hand():
    truth = np.array([0, 4, 4, 1, 1, 2, 3, 0, 0, 0])
    observed = np.array([True, False, True, False, True, False, False, True, True, False])
    #     between    0      4      1            0                        -> 4 no, 4 -> 1 no, 1 -> 0 no; the last: no gap
    expected = [False, True, False, True, False, True, True, False, False, False]
    assert gaps_without_route(ROAD, [0, 10], truth, observed).tolist() == expected
    # Cut into two trips after the fifth step, what follows it has nothing before it.
    expected[5:7] = [False, False]
    assert gaps_without_route(ROAD, [0, 5, 10], truth, observed).tolist() == expected
    m = evaluate_trips(ROAD, [0, 5, 10], truth, [0.5] * 10, np.where(truth == 1, 1, 0), [0.5] * 10, observed=observed)
    assert m.n_no_route.tolist() == [2, 0]
    assert m.accuracy_no_route[0] == 1 / 2
    assert np.isnan(m.accuracy_no_route[1])


def test_a_route_on_the_way_of_traffic_exists_and_one_segment_is_one_road():
    observed = [True, False, True]
    assert not gaps_without_route(ROAD, [0, 3], [0, 1, 3], observed).any()
    assert not gaps_without_route(ROAD, [0, 3], [2, 2, 2], observed).any()
    assert gaps_without_route(ROAD, [0, 3], [3, 1, 0], observed).tolist() == [False, True, False]


def test_an_observed_step_of_unknown_truth_does_not_end_a_gap():
    got = gaps_without_route(ROAD, [0, 5], [0, -1, -1, 0, 4], [True, False, True, False, True])
    assert got.tolist() == [False, True, False, True, False]


def test_gaps_without_route_are_those_where_networkx_has_no_path():
    network = make_roads([(100 * i, 50 * (i % 3)) for i in range(12)], [[i, j] for i, j in random_pairs()])
    graph = networkx.DiGraph()
    graph.add_nodes_from(range(len(network)))
    graph.add_edges_from((s, t) for s in range(len(network)) for t in network.successors(s).tolist())
    rng = np.random.default_rng(2)
    truth = rng.integers(0, len(network), 300)
    observed = np.arange(300) % 3 == 0
    got = gaps_without_route(network, [0, 150, 300], truth, observed)
    expected = np.zeros(300, bool)
    for start in [*range(0, 145, 3), *range(150, 295, 3)]:
        expected[start + 1 : start + 3] = not networkx.has_path(graph, truth[start], truth[start + 3])
    np.testing.assert_array_equal(got, expected)
    assert 0 < got.mean() < 0.6


def random_pairs():
    rng = np.random.default_rng(1)
    return sorted({(int(a), int(b)) for a, b in rng.integers(0, 12, (22, 2)) if a != b})


def test_a_mask_of_gaps_can_be_given():
    steps, observed = draw(8, [10, 10])
    mask = np.arange(20) == 3
    m = evaluate_trips(ROUTER, *steps, observed=observed, no_route=mask)
    assert m.n_no_route.tolist() == [1, 0]
    assert m.accuracy_no_route[0] == (steps[1][3] == steps[3][3])


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": [0, 2]}, "column 'true_segment': it has the shape"),
        ({"offsets": [0, 4, 3]}, "never fall"),
        ({"offsets": []}, "start at 0"),
        ({"segment": [0, 1, 2, 0]}, "column 'segment': it has the shape"),
        ({"segment": [0.0, 1, 2]}, "not integers"),
        ({"segment": [0, 1, 5]}, "row 3, column 'segment': segment 5 is not on the network, which has 0 to 4"),
        ({"true_segment": [0, -2, 1]}, "row 2, column 'true_segment': segment -2"),
        ({"ratio": [0.1, math.nan, 0.2]}, "row 2, column 'ratio'"),
        ({"true_ratio": [math.nan, 0.1, 0.2]}, "row 1, column 'true_ratio'"),
        ({"observed": [0, 1, 0]}, "column 'observed': it holds int64, not booleans"),
        ({"no_route": [True]}, "column 'no_route'"),
    ],
)
def test_bad_input_is_named(change, message):
    good = {"offsets": [0, 3], "true_segment": [0, 1, 2], "true_ratio": [0.5] * 3}
    good |= {"segment": [0, 1, 2], "ratio": [0.5] * 3}
    with pytest.raises(InputError, match=message):
        evaluate_trips(ROAD, **(good | change))


def test_caps_and_routers_that_make_no_metres_are_refused():
    arguments = ([0, 1], [0], [0.5], [0], [0.5])
    for cap in (0, -1, math.inf, math.nan):
        with pytest.raises(ValueError, match="cap"):
            evaluate_trips(ROAD, *arguments, cap_m=cap)
    with pytest.raises(ValueError, match="metres"):
        evaluate_trips(Router(ROAD, cost=np.ones(len(ROAD))), *arguments)
