"""Time in the simulation: slots of some minutes with their departures, their place in the day and the day's traffic."""

from __future__ import annotations

import datetime
import math
import zoneinfo
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.trips.simulation import chance
from tedtrajrec.trips.simulation.config import Peak, SimulationConfig

Floats = NDArray[np.float64]


class Clock(NamedTuple):
    """The simulated period in slots, from local midnight to local midnight and a little beyond for the last trips.

    Rows are the slots of a weekday followed by those of a day of the weekend, by local time. Slots follow UTC, so that
    days with a change of the clocks have 23 or 25 hours, as they should.
    """

    start: int  # epoch seconds of slot 0
    end: int  # epoch seconds of the midnight after the last day; slots beyond have no departures
    slot_s: int
    row: NDArray[np.int64]  # [slots] row of each slot
    day_load: Floats  # [slots] how much more (or less) traffic than usual that day has
    departed: Floats  # [slots + 1] share of all trips that depart before each slot


def build_clock(config: SimulationConfig) -> Clock:
    """Lay the simulated period out in slots."""
    calendar, slot_s = config.calendar, 60 * config.traffic.slot_minutes
    zone = zoneinfo.ZoneInfo(calendar.time_zone)
    first = datetime.date.fromisoformat(calendar.start)
    start, end = (_midnight(first + datetime.timedelta(days=d), zone) for d in (0, calendar.days))
    beyond = 60 * config.demand.most_minutes + 2 * slot_s
    n_slots = math.ceil((end - start + beyond) / slot_s)
    per_day = 86_400 // slot_s
    row, departures, day_load = np.zeros(n_slots, np.int64), np.zeros(n_slots), np.zeros(n_slots)
    key = np.uint64(chance.mix(config.world_seed, 17))
    for slot in range(n_slots):
        epoch = start + slot * slot_s
        local = datetime.datetime.fromtimestamp(epoch, zone)
        weekend = local.weekday() >= 5
        row[slot] = (per_day if weekend else 0) + (local.hour * 3600 + local.minute * 60) // slot_s
        day_load[slot] = math.exp(
            config.traffic.day_sigma * chance.keyed_normal(key, local.toordinal()) - config.traffic.day_sigma**2 / 2
        )
        if epoch < end:
            departures[slot] = (calendar.weekend if weekend else calendar.weekday)[local.hour]
    departed = np.concatenate([[0.0], np.cumsum(departures) / departures.sum()])
    return Clock(start, end, slot_s, row, day_load, departed)


def wave(peak: Peak, slot_minutes: int) -> Floats:
    """Return the height of a daily wave in every row."""
    per_day = 1440 // slot_minutes
    hour = (np.arange(per_day) + 0.5) * slot_minutes / 60
    apart = np.abs(hour - peak.hour)
    apart = np.minimum(apart, 24 - apart)
    bell = np.exp(-0.5 * (apart / peak.width_h) ** 2)
    return np.concatenate([peak.weekday * bell, peak.weekend * bell])


def _midnight(day: datetime.date, zone: zoneinfo.ZoneInfo) -> int:
    return int(datetime.datetime.combine(day, datetime.time(), zone).timestamp())
