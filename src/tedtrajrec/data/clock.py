"""Local time of day and weekday of many times at once."""

from __future__ import annotations

import datetime
import zoneinfo

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import ConfigError

_GRAIN_S = 900  # clocks change at full quarters of an hour, UTC


def local_seconds(time: ArrayLike, time_zone: str) -> NDArray[np.int64]:
    """Return times as a local clock shows them, in seconds since 1970-01-01 00:00 of that clock.

    Parameters
    ----------
    time
        Epoch seconds, UTC, of any shape.
    time_zone
        IANA name such as ``Europe/Lisbon``.
    """
    zone = load_zone(time_zone)
    times = np.asarray(time, np.int64)
    quarter, place = np.unique(times // _GRAIN_S, return_inverse=True)
    ahead = [
        datetime.datetime.fromtimestamp(q * _GRAIN_S, zone).utcoffset() or datetime.timedelta()
        for q in quarter.tolist()
    ]
    offset = np.array([d.total_seconds() for d in ahead], np.int64)
    return times + offset[place].reshape(times.shape)


def minute_of_day(time: ArrayLike, time_zone: str) -> NDArray[np.float32]:
    """Return the local time of day in minutes, 0 to below 1440, with fractions."""
    return (local_seconds(time, time_zone) % 86_400 / 60).astype(np.float32)


def weekday(time: ArrayLike, time_zone: str) -> NDArray[np.int64]:
    """Return the local day of the week, Monday 0 to Sunday 6."""
    return (local_seconds(time, time_zone) // 86_400 + 3) % 7  # 1970-01-01 was a Thursday


def load_zone(time_zone: str) -> zoneinfo.ZoneInfo:
    """Return a time zone by its IANA name."""
    try:
        return zoneinfo.ZoneInfo(time_zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ConfigError(f"There is no time zone '{time_zone}'; use an IANA name such as Europe/Lisbon.") from error
