import math

import numpy as np
import pytest
from scipy import stats

from tedtrajrec.errors import InputError
from tedtrajrec.evaluation.metrics import TripMetrics, evaluate_trips
from tedtrajrec.evaluation.summary import compare, summarise
from tests.evaluation.test_metrics import ROUTER, draw

LENGTHS = [3, 0, 8, 12, 5, 1, 20, 20, 7]


def evaluated(seed=0, wrong=0.5, lengths=LENGTHS):
    """Return metrics of a prediction whose truth does not depend on ``wrong``."""
    steps, observed = draw(seed, lengths, wrong=wrong)
    return evaluate_trips(ROUTER, *steps, observed=observed)


def with_values(**columns):
    n = len(next(iter(columns.values())))
    empty = evaluate_trips(ROUTER, np.zeros(n + 1, int), [], [], [], []).columns()
    return TripMetrics(**(empty | {name: np.asarray(column, float) for name, column in columns.items()}))


def test_the_summary_has_means_over_trips_and_standard_errors():
    m = evaluated()
    s = summarise(m)
    assert (s["n_trips"], s["n_steps"], s["n_observed"]) == (9, sum(LENGTHS), m.n_observed.sum())
    for name, column in m.values().items():
        value = column[~np.isnan(column)]
        assert s[f"{name}_trips"] == len(value)
        if name != "accuracy_no_route":  # from everywhere on the grid one can drive everywhere
            assert s[name] == pytest.approx(value.mean())
            assert s[f"{name}_se"] == pytest.approx(stats.sem(value))
    assert s["accuracy_trips"] == 8  # one trip is empty
    assert (s["n_no_route"], s["accuracy_no_route_trips"]) == (0, 0)
    assert math.isnan(s["accuracy_no_route"])
    assert all(type(value) is float for value in s.values())


def test_short_trips_weigh_as_much_as_long_ones():
    truth, answer = np.array([1, 1, 1, 1, 1]), np.array([1, 2, 2, 2, 2])
    m = evaluate_trips(ROUTER, [0, 1, 5], truth, np.full(5, 0.5), answer, np.full(5, 0.5))
    assert summarise(m)["accuracy"] == 0.5


def test_the_summary_of_no_trips_and_of_one():
    none = summarise(evaluated(lengths=[0]))
    assert math.isnan(none["accuracy"])
    assert none["accuracy_trips"] == 0
    one = summarise(evaluated(lengths=[4]))
    assert one["accuracy"] >= 0
    assert math.isnan(one["accuracy_se"])
    assert math.isnan(summarise(with_values(f1=[]))["f1"])


def test_comparison_is_the_paired_difference():
    good, bad = evaluated(wrong=0.2), evaluated(wrong=0.9)
    d = compare(good, bad)
    assert list(d) == list(good.values())
    for name, column in good.values().items():
        difference = column - bad.values()[name]
        assert d[name].n_trips == np.count_nonzero(~np.isnan(difference))
        if d[name].n_trips:
            assert d[name].mean == pytest.approx(np.nanmean(difference))
            assert d[name].se == pytest.approx(stats.sem(difference, nan_policy="omit"))
            assert d[name].low <= d[name].mean <= d[name].high
        else:
            assert np.isnan(d[name][:4]).all()
    assert d["accuracy"].low > 0
    assert d["mae_m"].high < 0


def test_exchanging_the_methods_changes_the_signs():
    a, b = evaluated(wrong=0.2), evaluated(wrong=0.9)
    ab, ba = compare(a, b), compare(b, a)
    for name in ("accuracy", "f1", "mae_m"):
        assert ab[name].mean == -ba[name].mean
        assert (ab[name].low, ab[name].high) == pytest.approx((-ba[name].high, -ba[name].low))


def test_a_method_against_itself_differs_by_nothing():
    m = evaluated()
    assert compare(m, m)["f1"][:4] == (0, 0, 0, 0)


def test_the_same_seed_gives_the_same_interval():
    a, b = evaluated(wrong=0.2), evaluated(wrong=0.6)
    assert compare(a, b, seed=3)["f1"] == compare(a, b, seed=3)["f1"]
    assert compare(a, b, seed=3)["mae_m"] != compare(a, b, seed=4)["mae_m"]


def test_the_interval_is_the_percentile_bootstrap_of_scipy():
    rng = np.random.default_rng(0)
    a, b = with_values(mae_m=rng.exponential(100, 300)), with_values(mae_m=rng.exponential(80, 300))
    oracle = stats.bootstrap(
        (a.mae_m - b.mae_m,), np.mean, n_resamples=20_000, method="percentile", confidence_level=0.9, rng=1
    ).confidence_interval
    got = compare(a, b, level=0.9, resamples=20_000)["mae_m"]
    width = oracle.high - oracle.low
    assert (got.low, got.high) == pytest.approx((oracle.low, oracle.high), abs=0.03 * width)


def test_trips_without_the_metric_are_left_out_of_the_pairs():
    a, b = with_values(f1=[0.5, math.nan, 0.75, 1.0]), with_values(f1=[0.25, 0.5, math.nan, 0.5])
    d = compare(a, b)["f1"]
    assert (d.mean, d.n_trips) == (0.375, 2)
    assert 0.25 <= d.low <= d.high <= 0.5


def test_metrics_of_other_trips_cannot_be_paired():
    with pytest.raises(InputError, match="9 trips cannot be paired with 2"):
        compare(evaluated(), evaluated(lengths=[3, 4]))
    with pytest.raises(InputError, match="trip 2 has another n_steps"):
        compare(evaluated(lengths=[3, 4]), evaluated(lengths=[3, 5]))


@pytest.mark.parametrize("options", [{"level": 0}, {"level": 1}, {"resamples": 0}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ValueError, match=r"level|resample"):
        compare(evaluated(), evaluated(), **options)
