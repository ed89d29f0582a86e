"""Trimming and judging of trips."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.data.preparing.config import DropConfig
from tedtrajrec.data.preparing.drops import Drop, count_drops, judge, trimmed
from tedtrajrec.trips.table import Trips

OFF = DropConfig(min_steps=0, max_unknown=1.0, max_median_m=0.0)


def steps_of(*trips: str) -> Trips:
    """Return trips of steps 10 s apart: ``x`` has all, ``f`` a fix only, ``t`` the truth only, ``.`` nothing."""
    signs = np.array(list("".join(trips)))
    offsets = np.cumsum([0, *map(len, trips)]).astype(np.int64)
    count = np.arange(len(signs)) - np.repeat(offsets[:-1], np.diff(offsets))
    has_fix, known = np.isin(signs, ["x", "f"]), np.isin(signs, ["x", "t"])
    lon = np.where(has_fix, -8.6, np.nan)
    segment, ratio = np.where(known, 3, -1).astype(np.int32), np.where(known, 0.5, np.nan)
    return Trips(np.array([str(i) for i in range(len(trips))]), offsets, count * 10, lon, lon + 50, segment, ratio)


def why(trips: Trips, config: DropConfig, distance: float = 1.0, broken: bool = False) -> list[int]:
    known = np.isfinite(trips.lon) & (np.asarray(trips.segment) >= 0)
    return judge(trips, np.where(known, distance, np.nan), np.full(len(trips), broken), config).tolist()


@given(st.lists(st.text("xft.", max_size=8), max_size=5))
def test_trimming(trips: list[str]) -> None:
    steps = steps_of(*trips)
    kept = trimmed(steps)
    for i, text in enumerate(trips):
        mine = kept[steps.offsets[i] : steps.offsets[i + 1]]
        left = "".join(sign for sign, keep in zip(text, mine, strict=True) if keep)
        assert left == text.strip("ft.")


def test_one_reason_each() -> None:
    steps = steps_of("xxxxx", "", "x", "x...x")
    assert why(steps, OFF) == [0, Drop.NO_TRUTH, 0, 0]
    assert why(steps, DropConfig(min_steps=2, max_unknown=0.5)) == [
        0,
        Drop.NO_TRUTH,
        Drop.BELOW_MIN_STEPS,
        Drop.UNKNOWN_TRUTH,
    ]
    assert why(steps, DropConfig(min_steps=2, max_unknown=0.5), broken=True)[3] == Drop.BROKEN_ROUTE
    assert why(steps, DropConfig(min_steps=2, max_unknown=0.6), broken=True)[3] == 0


def test_durations() -> None:
    steps = steps_of("x" * 3, "x" * 4, "x" * 5)
    limits = DropConfig(min_steps=1, min_duration_s=30, max_duration_s=30)
    assert why(steps, limits) == [Drop.BELOW_MIN_DURATION, 0, Drop.ABOVE_MAX_DURATION]


def test_far_from_roads() -> None:
    steps = steps_of("xxx", "xttx")
    distance = np.array([1.0, 50, 60, 10, np.nan, np.nan, 20])
    limits = DropConfig(min_steps=1, max_median_m=30)
    assert judge(steps, distance, np.zeros(2, bool), limits).tolist() == [Drop.FAR_FROM_ROADS, 0]


def test_counts() -> None:
    codes = np.array([0, Drop.SHARED_FIXES, Drop.NO_TRUTH, Drop.SHARED_FIXES], np.uint8)
    assert count_drops(codes) == {"no_truth": 1, "shared_fixes": 2}


@pytest.mark.parametrize(
    ("name", "value"), [("min_steps", -1), ("max_unknown", 1.5), ("max_duration_s", np.inf), ("max_median_m", np.nan)]
)
def test_impossible_settings(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=name):
        DropConfig(**{name: value})
