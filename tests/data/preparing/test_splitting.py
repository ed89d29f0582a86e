"""Splits: every trip in exactly one, exact shares, and stability."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tedtrajrec.data.preparing.splitting import (
    NO_SPLIT,
    exact_counts,
    split_by_day,
    split_by_trip,
    split_by_words,
)
from tedtrajrec.errors import InputError

SHARES = (0.7, 0.1, 0.2)
ids = st.lists(st.text(max_size=6), min_size=1, max_size=60, unique=True)


def counts(codes: np.ndarray) -> list[int]:
    return np.bincount(codes, minlength=3).tolist()


@pytest.mark.parametrize(("total", "expected"), [(10, [7, 1, 2]), (0, [0, 0, 0]), (1, [1, 0, 0]), (15, [11, 1, 3])])
def test_counts(total: int, expected: list[int]) -> None:
    assert exact_counts(total, SHARES) == expected


@given(st.integers(0, 10_000))
def test_counts_are_the_shares_to_less_than_one_trip(total: int) -> None:
    found = exact_counts(total, SHARES)
    assert sum(found) == total
    assert all(abs(n - total * share) < 1 for n, share in zip(found, SHARES, strict=True))


@example(["", "\0", "0"], 0, Random(1))
@given(ids, st.integers(), st.randoms(use_true_random=False))
def test_by_trip_depends_on_ids_alone(names: list[str], seed: int, random: object) -> None:
    codes = split_by_trip(names, SHARES, seed)
    assert counts(codes) == exact_counts(len(names), SHARES)
    order = list(range(len(names)))
    random.shuffle(order)  # type: ignore[attr-defined]
    assert split_by_trip([names[i] for i in order], SHARES, seed).tolist() == codes[order].tolist()


@given(ids, st.text(min_size=7, max_size=9), st.integers(0, 99))
def test_another_trip_moves_at_most_one_trip_at_each_border(names: list[str], other: str, seed: int) -> None:
    before = split_by_trip(names, SHARES, seed)
    after = split_by_trip([*names, other], SHARES, seed)[:-1]
    assert (before != after).sum() <= 2


def test_another_seed_gives_another_split() -> None:
    names = [str(i) for i in range(100)]
    assert (split_by_trip(names, SHARES, 0) != split_by_trip(names, SHARES, 1)).any()


@given(st.lists(st.integers(1, 40), min_size=3, max_size=25), st.integers(0, 99))
@settings(max_examples=60)
def test_by_day(sizes: list[int], seed: int) -> None:
    day = np.repeat(np.arange(len(sizes)) + 19_000, sizes)
    codes = split_by_day(day, SHARES, seed)
    assert all(len(set(codes[day == d].tolist())) == 1 for d in np.unique(day))
    assert min(counts(codes)) > 0
    off = np.abs(np.array(counts(codes)) - np.array(SHARES) * len(day))
    # Moving any one day cannot help, so no split is off by more than the largest day, but for splits of one day.
    assert (off <= 2 * max(sizes)).all()
    order = np.random.default_rng(seed).permutation(len(day))
    assert split_by_day(day[order], SHARES, seed).tolist() == codes[order].tolist()


def test_by_day_meets_the_shares_where_days_allow() -> None:
    day = np.repeat(np.arange(20), 10)
    assert counts(split_by_day(day, SHARES, 3)) == [140, 20, 40]
    assert (split_by_day(day, SHARES, 3) != split_by_day(day, SHARES, 4)).any()


def test_by_day_needs_days() -> None:
    with pytest.raises(InputError, match="2 days, too few for 3 splits"):
        split_by_day([1, 1, 2], SHARES, 0)
    assert counts(split_by_day([1, 1, 2], (0.7, 0.0, 0.3), 0)) == [2, 0, 1]


def test_by_words() -> None:
    codes, wrong = split_by_words(["train", "VAL", " valid", "Validation", "test", "", None])
    assert codes.tolist() == [0, 1, 1, 1, 2, NO_SPLIT, NO_SPLIT]
    assert wrong is None
    assert split_by_words(["train", "holdout", "other"])[1] == "holdout"
