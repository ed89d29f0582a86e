import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tedtrajrec.data.sampling import effective_share, keep_share, mean_fixes, thin_mask, thin_trips, trip_keys
from tedtrajrec.errors import ConfigError
from tedtrajrec.trips.table import Trips, as_text

RULES = ["exact", "bernoulli", "uniform"]


def offsets_of(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def thin(lengths, keep, *, seed=0, rule="exact", epoch=0, keys=None):
    keys = trip_keys(np.arange(len(lengths))) if keys is None else keys
    return thin_mask(offsets_of(lengths), keep, seed=seed, trip_key=keys, rule=rule, epoch=epoch)


def kept_per_trip(mask, lengths):
    return np.array([part.sum() for part in np.split(mask, np.cumsum(lengths)[:-1])])


# ---------------------------------------------------------------------- the share


@pytest.mark.parametrize(
    ("keep", "share"),
    [
        ("1/8", Fraction(1, 8)),
        (" 1 / 16 ", Fraction(1, 16)),
        ("0.125", Fraction(1, 8)),
        (0.1, Fraction(1, 10)),
        (1 / 3, Fraction(1, 3)),
        (np.float64(0.0625), Fraction(1, 16)),
        (1, Fraction(1)),
        (Fraction(3, 7), Fraction(3, 7)),
    ],
)
def test_the_share_is_read_as_an_exact_fraction(keep, share):
    assert keep_share(keep) == share


@pytest.mark.parametrize("keep", ["", "an eighth", "1/0", "1/2/3", "nan", "inf", float("nan"), "1:8"])
def test_what_is_no_share_is_refused_with_an_example(keep):
    with pytest.raises(ConfigError, match=r"write it as 1/8 or 0\.125"):
        keep_share(keep)


@pytest.mark.parametrize("keep", ["0", "-1/8", "9/8", 8, 1e-9])
def test_a_share_out_of_range_is_refused(keep):
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        keep_share(keep)


def test_an_unknown_rule_is_refused():
    with pytest.raises(ConfigError, match="exact, bernoulli, uniform"):
        thin([5], "1/8", rule="random")


def test_keys_must_fit_the_trips():
    with pytest.raises(ValueError, match="1 keys for 2 trips"):
        thin([5, 6], "1/8", keys=np.zeros(1, np.uint64))


# ---------------------------------------------------------------------- counts


@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=12),
    share=st.fractions(Fraction(1, 40), 1, max_denominator=40),
    seed=st.integers(-(2**70), 2**70),
)
@settings(max_examples=150, deadline=None)
def test_exact_and_uniform_keep_floor_of_the_share_and_both_ends(lengths, share, seed):
    for rule in ("exact", "uniform"):
        mask = thin(lengths, share, seed=seed, rule=rule)
        want = [n if n <= 2 else 2 + (n - 2) * share.numerator // share.denominator for n in lengths]
        assert kept_per_trip(mask, lengths).tolist() == want


@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=12), seed=st.integers(0, 9), rule=st.sampled_from(RULES)
)
@settings(max_examples=60, deadline=None)
def test_ends_and_short_trips_stay(lengths, seed, rule):
    for n, part in zip(
        lengths, np.split(thin(lengths, "1/16", seed=seed, rule=rule), np.cumsum(lengths)[:-1]), strict=True
    ):
        assert part.all() if n <= 2 else part[0] and part[-1]


@pytest.mark.parametrize("rule", RULES)
def test_a_share_of_one_keeps_all(rule):
    assert thin([0, 1, 2, 3, 50], 1, rule=rule).all()


def test_floor_is_exact_where_floats_are_not():
    assert (100 * 0.29) < 29  # the trap: 29 of 100 would become 28
    assert thin([102], "0.29").sum() == 31
    assert thin([102], 0.29).sum() == 31


def test_uniform_is_evenly_spaced():
    assert np.flatnonzero(thin([25], "1/8", rule="uniform")).tolist() == [0, 8, 16, 24]
    assert np.flatnonzero(thin([48], "1/8", rule="uniform")).tolist() == [0, 8, 16, 24, 31, 39, 47]


@given(n=st.integers(3, 300), share=st.fractions(Fraction(1, 40), 1, max_denominator=40))
@settings(max_examples=100, deadline=None)
def test_uniform_gaps_differ_by_at_most_one(n, share):
    gaps = np.diff(np.flatnonzero(thin([n], share, rule="uniform")))
    assert gaps.max() - gaps.min() <= 1


# ---------------------------------------------------------------------- what a draw depends on


@pytest.mark.parametrize("rule", ["exact", "bernoulli"])
def test_a_trip_is_drawn_alike_alone_among_others_and_in_any_order(rule):
    rng = np.random.default_rng(3)
    lengths = rng.integers(0, 60, 200)
    keys = trip_keys([f"trip {i}" for i in range(200)])
    parts = np.split(thin(lengths, "1/8", seed=7, rule=rule, keys=keys), np.cumsum(lengths)[:-1])
    order = rng.permutation(200)
    for chunk in np.array_split(order, 13):
        mask = thin(lengths[chunk], "1/8", seed=7, rule=rule, keys=keys[chunk])
        assert np.array_equal(mask, np.concatenate([parts[i] for i in chunk]))


@pytest.mark.parametrize("rule", ["exact", "bernoulli"])
def test_seed_epoch_key_and_length_each_change_the_draw(rule):
    lengths = np.full(50, 60)
    base = thin(lengths, "1/4", rule=rule, seed=1, epoch=2)
    assert np.array_equal(base, thin(lengths, "1/4", rule=rule, seed=1, epoch=2))
    others = [
        thin(lengths, "1/4", rule=rule, seed=2, epoch=1),
        thin(lengths, "1/4", rule=rule, seed=1, epoch=3),
        thin(lengths, "1/4", rule=rule, seed=1, epoch=2, keys=trip_keys(np.arange(50) + 50)),
        thin(lengths + 1, "1/4", rule=rule, seed=1, epoch=2).reshape(50, 61)[:, :60].ravel(),
    ]
    for other in others:
        # Of 58 inner fixes a quarter is kept: two independent draws agree on (1/4)^2 + (3/4)^2 = 62.5 % of them.
        agree = (base == other).reshape(50, 60)[:, 1:59].mean()
        assert 0.58 < agree < 0.67


def test_draws_do_not_change_between_versions():
    """Published figures rest on these draws; a change here is a change of every test set."""
    keys = trip_keys(["a", "b", "1372636858620000589"])
    assert keys.tolist() == [198367012849983736, 4482684837372322821, 11331014522662393213]
    mask = thin_mask(offsets_of([26, 40, 26]), "1/8", seed=1, trip_key=keys)
    assert [np.flatnonzero(part).tolist() for part in np.split(mask, [26, 66])] == [
        [0, 21, 23, 24, 25],
        [0, 2, 28, 36, 38, 39],
        [0, 1, 6, 13, 25],
    ]


# ---------------------------------------------------------------------- keys


def test_keys_of_text_and_integers_agree_and_tell_ids_apart():
    ids = np.arange(100_000)
    keys = trip_keys(ids)
    assert keys.dtype == np.uint64
    assert len(np.unique(keys)) == len(ids)
    assert np.array_equal(keys, trip_keys(as_text(ids)))
    assert np.array_equal(keys[[5, 2]], trip_keys(["5", "2"]))
    assert len(trip_keys([])) == 0


def test_keys_take_any_text():
    ids = ["", "a\0b", "ab", "Porto", "porto", "成都", "成 都", "é", "e", "ÿ", "a" * 500, "a" * 501]
    keys = trip_keys(ids)
    assert len(set(keys.tolist())) == len(ids)
    assert [trip_keys([one])[0] for one in ids] == keys.tolist()


# ---------------------------------------------------------------------- statistics


def test_exact_takes_every_choice_equally_often():
    """All 56 ways to take 3 of 8 inner fixes, over 56,000 trips."""
    mask = thin(np.full(56_000, 10), "3/8", seed=5).reshape(-1, 10)[:, 1:9]
    code = mask @ (1 << np.arange(8))
    _, counts = np.unique(code, return_counts=True)
    assert len(counts) == 56
    assert stats.chisquare(counts).pvalue > 0.001


@pytest.mark.parametrize("rule", ["exact", "bernoulli"])
def test_every_inner_fix_is_as_likely_over_epochs(rule):
    """One trip drawn anew each epoch, as in training."""
    n, epochs = 42, 3_000
    total = sum(thin([n], "1/8", seed=11, rule=rule, epoch=e)[1:-1].astype(int) for e in range(epochs))
    share = 5 / 40 if rule == "exact" else 1 / 8
    z = (total - epochs * share) / np.sqrt(epochs * share * (1 - share))
    assert stats.kstest(z, "norm").pvalue > 0.001


def test_bernoulli_counts_are_binomial():
    counts = kept_per_trip(thin(np.full(20_000, 26), "1/8", seed=2, rule="bernoulli"), np.full(20_000, 26)) - 2
    bins = np.arange(8)
    expected = stats.binom.pmf(bins, 24, 1 / 8) * 20_000
    observed = np.array([(counts == b).sum() for b in bins], float)
    expected, observed = np.append(expected, 20_000 - expected.sum()), np.append(observed, 20_000 - observed.sum())
    assert stats.chisquare(observed, expected).pvalue > 0.001


# ---------------------------------------------------------------------- whole trips


def test_thinned_trips_keep_ids_columns_and_ends():
    n = np.array([0, 1, 2, 30, 17])
    offsets = offsets_of(n)
    trips = Trips(
        as_text(["e", "a", "b", "c", "d"]),
        offsets,
        np.arange(50),
        np.arange(50) / 10,
        np.arange(50) / 20,
        extra={"speed": np.arange(50) * 2},
        trip_extra={"taxi": np.arange(5)},
    )
    thinned = thin_trips(trips, "1/8", seed=3)
    assert thinned.traj_id.tolist() == ["e", "a", "b", "c", "d"]
    assert thinned.lengths.tolist() == [0, 1, 2, 5, 3]
    assert np.array_equal(thinned.extra["speed"], thinned.time * 2)
    assert thinned.trip_extra["taxi"].tolist() == [0, 1, 2, 3, 4]
    assert thinned.time[[3, 7, 8, 10]].tolist() == [3, 32, 33, 49]


def test_effective_share_and_mean_number_of_fixes():
    lengths = np.array([26, 10, 0, 2])
    offsets = offsets_of(lengths)
    mask = thin(lengths, "1/8")
    assert effective_share(mask, offsets) == pytest.approx(np.mean([5 / 26, 3 / 10, 1]))
    assert mean_fixes(mask, offsets) == pytest.approx((5 + 3 + 0 + 2) / 4)
    assert np.isnan(effective_share(np.zeros(0, bool), np.zeros(1, np.int64)))
    assert np.isnan(mean_fixes(np.zeros(0, bool), np.zeros(1, np.int64)))


@pytest.mark.real
def test_chengdu_at_an_eighth_keeps_4_3_fixes(peers_dir):
    """The numbers of fixes of the published draw on the 828 test trips, and the figure of the design."""
    import polars

    draw = json.loads((peers_dir / "chengdu828.json").read_text())["trips"]
    table = polars.read_csv(peers_dir.parent / "data" / "chengdu" / "trips.csv.gz", columns=["traj_id"])
    sizes = dict(table.group_by("traj_id").len().iter_rows())
    lengths = np.array([sizes[trip] for trip in draw])
    for keep in ("1/8", "1/16"):
        mask = thin(lengths, keep, seed=1, keys=trip_keys(list(draw)))
        assert kept_per_trip(mask, lengths).tolist() == [len(fixes[keep]) for fixes in draw.values()]
    mask = thin(lengths, "1/8", seed=1)
    assert round(mean_fixes(mask, offsets_of(lengths)), 1) == 4.3
    assert round(effective_share(mask, offsets_of(lengths)), 2) == 0.18
