"""Times of every usual form become the same epoch seconds as in the standard library."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import ConfigError
from tedtrajrec.trips.files.times import EARLIEST, LATEST, NaiveTimesError, TimeReader

MOMENT = 1_372_636_858  # 2013-07-01T00:00:58Z, 01:00:58 in Lisbon


def seconds_of(values: list[Any], timezone: str | None = None, dtype: Any = None) -> list[int]:
    seconds, problems = TimeReader(timezone).read(pl.Series(values, dtype=dtype))
    assert problems == []
    return seconds.tolist()


@pytest.mark.parametrize("per_second", [1, 1_000, 1_000_000, 1_000_000_000])
@pytest.mark.parametrize("form", [int, float, str])
def test_epoch_numbers_of_any_unit(per_second: int, form: type) -> None:
    assert seconds_of([form(MOMENT * per_second), form((MOMENT + 15) * per_second)]) == [MOMENT, MOMENT + 15]


@pytest.mark.parametrize(
    "text",
    [
        "2013-07-01T00:00:58Z", "2013-07-01 00:00:58Z", "2013-07-01T01:00:58+01:00", "2013-07-01T01:00:58+0100",
        "2013-06-30 19:00:58-05", "2013-07-01T00:00:58.000Z", "2013-07-01t00:00:58z", " 2013-07-01T00:00:58Z ",
        "2013-07-01T00:00:58.000000000+00:00",
    ],
)  # fmt: skip
def test_iso_with_offset(text: str) -> None:
    assert seconds_of([text]) == [MOMENT]
    assert seconds_of([text, "2013-07-01T00:01:13Z"]) == [MOMENT, MOMENT + 15]


@pytest.mark.parametrize("text", ["2013-07-01T01:00:58", "2013-07-01 01:00:58", "2013-07-01 01:00:58.0000000"])
def test_naive_text_needs_a_zone(text: str) -> None:
    assert seconds_of([text], "Europe/Lisbon") == [MOMENT]
    with pytest.raises(NaiveTimesError):
        TimeReader().read(pl.Series([text]))


def test_datetime_columns() -> None:
    aware = dt.datetime(2013, 7, 1, 0, 0, 58, tzinfo=dt.UTC)
    assert seconds_of([aware]) == [MOMENT]
    assert seconds_of([aware.astimezone(ZoneInfo("Asia/Shanghai"))], dtype=pl.Datetime("ms", "Asia/Shanghai")) == [
        MOMENT
    ]
    naive = dt.datetime(2013, 7, 1, 1, 0, 58)  # noqa: DTZ001  (that is the point)
    assert seconds_of([naive], "Europe/Lisbon") == [MOMENT]
    with pytest.raises(NaiveTimesError):
        TimeReader().read(pl.Series([naive]))


def test_mixed_zones_in_one_column() -> None:
    assert seconds_of(["2013-07-01T01:00:58", "2013-07-01T00:00:58Z"], "Europe/Lisbon") == [MOMENT, MOMENT]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1372636858.49", MOMENT),
        ("1372636858.5", MOMENT + 1),
        (1_372_636_858_499, MOMENT),
        (1_372_636_858_500, MOMENT + 1),
        ("2013-07-01T00:00:58.5Z", MOMENT + 1),
        ("2013-07-01T00:00:58.499999Z", MOMENT),
    ],
)
def test_fractions_are_rounded_halves_up(value: str | int, expected: int) -> None:
    assert seconds_of([value]) == [expected]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.datetimes(dt.datetime(1990, 1, 2), dt.datetime(2099, 12, 30)), min_size=1, max_size=20),  # noqa: DTZ001
    st.sampled_from(["UTC", "Europe/Lisbon", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe"]),
)
def test_same_as_the_standard_library(moments: list[dt.datetime], zone: str) -> None:
    moments = [moment.replace(microsecond=0) for moment in moments]
    seconds, problems = TimeReader(zone).read(pl.Series([moment.isoformat() for moment in moments]))
    unclear = np.zeros(len(moments), bool)
    for problem in problems:
        assert "clock change" in problem.reason
        unclear |= problem.rows
    for moment, second, skipped in zip(moments, seconds, unclear, strict=True):
        first, again = (moment.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1))
        assert skipped == (first.utcoffset() != again.utcoffset())
        if not skipped:
            assert second == first.timestamp()


@pytest.mark.parametrize("text", ["2024-10-27 01:30:00", "2024-03-31 01:30:00"])  # repeated, skipped
def test_clock_changes_are_not_guessed(text: str) -> None:
    seconds, problems = TimeReader("Europe/Lisbon").read(pl.Series(["2024-10-26 12:00:00", text]))
    assert [problem.rows.tolist() for problem in problems] == [[False, True]]
    assert "Europe/Lisbon" in problems[0].reason
    assert seconds[0] == dt.datetime(2024, 10, 26, 11, tzinfo=dt.UTC).timestamp()


@pytest.mark.parametrize(
    ("values", "bad", "reason", "remedy"),
    [
        ([MOMENT, MOMENT * 1000, MOMENT], 1, "epoch seconds", "looks like epoch milliseconds"),
        ([MOMENT * 1000, MOMENT, MOMENT * 1000], 1, "epoch milliseconds", "looks like epoch seconds"),
        ([MOMENT, 12, MOMENT], 1, "outside the years 1990 to 2099", "another column"),
        ([MOMENT, 20130701000058, MOMENT], 1, "outside the years 1990 to 2099", "dates written as digits"),
        ([EARLIEST, EARLIEST - 1, EARLIEST], 1, "outside the years 1990 to 2099", "another column"),
        ([LATEST - 1, LATEST, LATEST - 1], 1, "outside the years 1990 to 2099", "another column"),
        (["2013-07-01T00:00:58Z", "1970-01-01T00:00:00Z"], 1, "outside the years 1990 to 2099", "clock"),
        (["2013-07-01T00:00:58Z", "2013-02-30T00:00:00Z"], 1, "not a time", "ISO 8601"),
        (["01/07/2013 00:00", "2013-07-01T00:00:58Z"], 0, "not a time", "ISO 8601"),
        ([str(MOMENT), "noon"], 1, "not an epoch time", "ISO 8601"),
        ([str(MOMENT), None], 1, "there is no time", "set such rows aside"),
        ([str(MOMENT), "  "], 1, "there is no time", "set such rows aside"),
        ([float(MOMENT), float("nan")], 1, "there is no time", "set such rows aside"),
        ([float(MOMENT), float("inf")], 1, "not an epoch time", "ISO 8601"),
        (["2013-07-01T00:00:58Z", None], 1, "there is no time", "set such rows aside"),
        (
            [dt.datetime(2013, 7, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)],
            1,
            "1990 to 2099",
            "clock",
        ),
    ],
)
def test_bad_times_are_found_with_a_reason(values: list[Any], bad: int, reason: str, remedy: str) -> None:
    _, problems = TimeReader().read(pl.Series(values))
    assert [np.flatnonzero(problem.rows).tolist() for problem in problems] == [[bad]]
    assert reason in problems[0].reason
    assert remedy in problems[0].remedy


def test_column_that_holds_no_times() -> None:
    _, problems = TimeReader().read(pl.Series([True, False]))
    assert problems[0].rows.all()


def test_unit_is_that_of_the_first_block() -> None:
    reader = TimeReader()
    reader.read(pl.Series([MOMENT * 1000]))
    _, problems = reader.read(pl.Series([MOMENT]))
    assert "epoch milliseconds" in problems[0].reason


def test_unknown_zone() -> None:
    with pytest.raises(ConfigError, match="Unknown time zone 'Mars/Base'"):
        TimeReader("Mars/Base")
