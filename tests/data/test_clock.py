import datetime
import zoneinfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.data.clock import load_zone, local_seconds, minute_of_day, weekday
from tedtrajrec.errors import ConfigError

ZONES = ("Europe/Lisbon", "Asia/Shanghai", "America/St_Johns", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC")
EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001  (as a local clock shows it)
CHANGES = {  # the last second of summer or winter time, UTC
    "Europe/Lisbon": (1396141199, 1414285199),  # 2014-03-30 00:59:59, 2014-10-26 00:59:59
    "America/St_Johns": (1394343000 - 1, 1414902600 - 1),
    "Australia/Lord_Howe": (1396710000 - 1, 1412436600 - 1),  # by half an hour
}


@given(st.lists(st.integers(0, 2**31), min_size=1), st.sampled_from(ZONES))
def test_clocks_agree_with_datetime(times, name):
    assert_as_datetime(times, name)


@pytest.mark.parametrize("name", CHANGES)
def test_the_nights_when_clocks_change(name):
    zone = zoneinfo.ZoneInfo(name)
    for change in CHANGES[name]:
        before, after = (datetime.datetime.fromtimestamp(change + s, zone).utcoffset() for s in (0, 1))
        assert before != after
        assert_as_datetime([*range(change - 4000, change + 4000, 7), change, change + 1], name)


def test_an_hour_that_comes_twice_and_one_that_never_comes():
    spring, autumn = CHANGES["Europe/Lisbon"]
    np.testing.assert_array_equal(minute_of_day([spring - 59, spring + 1], "Europe/Lisbon"), [59, 120])
    np.testing.assert_array_equal(minute_of_day([autumn - 59, autumn + 1], "Europe/Lisbon"), [119, 60])


def assert_as_datetime(times: list[int], name: str) -> None:
    zone = zoneinfo.ZoneInfo(name)
    local = [datetime.datetime.fromtimestamp(t, zone).replace(tzinfo=None) for t in times]
    np.testing.assert_array_equal(local_seconds(times, name), [(d - EPOCH).total_seconds() for d in local])
    np.testing.assert_array_equal(weekday(times, name), [d.weekday() for d in local])
    minutes = [60 * d.hour + d.minute + d.second / 60 for d in local]
    np.testing.assert_allclose(minute_of_day(times, name), minutes, rtol=1e-6)


@given(st.lists(st.integers(0, 2**31), min_size=6, max_size=6))
def test_shapes_stay_and_minutes_are_of_a_day(times):
    table = np.array(times).reshape(2, 3)
    assert weekday(table, "Asia/Shanghai").shape == (2, 3)
    minutes = minute_of_day(table, "Asia/Shanghai")
    assert minutes.dtype == np.float32
    assert ((minutes >= 0) & (minutes < 1440)).all()
    assert local_seconds(1_500_000_000, "Asia/Shanghai") == 1_500_000_000 + 8 * 3600
    assert local_seconds([], "Asia/Shanghai").shape == (0,)


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc", "/etc/passwd", "Europe"])
def test_unknown_zones(name):
    with pytest.raises(ConfigError, match="IANA"):
        load_zone(name)
