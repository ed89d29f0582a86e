"""Figures of trips against ones worked out by hand on the grid of streets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.recovery.summary import TRIP_SCHEMA, RecoverySummary, summarise_trips, write_trip_rows
from tedtrajrec.trips.table import as_text


def made(network: RoadNetwork, rows: list[tuple[str, int, float, float, bool]], **columns: object) -> RecoveredTrips:
    """Return trips from rows of trip, segment, ratio, probability and break, 15 s apart."""
    ids, segment, ratio, probability, broken = zip(*rows, strict=True)
    names = list(dict.fromkeys(ids))
    count = [ids.count(name) for name in names]
    lon, lat = network.point_at(segment, ratio)
    return RecoveredTrips(
        traj_id=as_text([name.rstrip("'") for name in names]),
        offsets=np.concatenate([[0], np.cumsum(count)]).astype(np.int64),
        time=1_500_000_000 + 15 * np.concatenate([np.arange(n) for n in count]),
        lon=lon,
        lat=lat,
        segment=np.array(segment, np.int32),
        ratio=np.array(ratio),
        osm_way_id=np.zeros(len(rows), np.int64),
        observed=np.array([i % 2 == 0 for i in range(len(rows))]),
        probability=np.array(probability, np.float32),
        broken=np.array(broken),
        **columns,  # type: ignore[arg-type]
    )


def test_kilometres_speed_confidence_and_breaks(tiny_city: RoadNetwork) -> None:
    east, on = 0, int(tiny_city.successors(0)[0])
    far = tiny_city.n_segments - 1
    length = tiny_city.length_m
    recovered = made(
        tiny_city,
        [
            ("a", east, 0.2, 0.9, False),
            ("a", east, 0.7, 0.8, False),  # half of the segment
            ("a", east, 0.6999999, 0.7, False),  # standing, a hair back: nothing, and not once round the block
            ("a", on, 0.5, np.nan, False),  # the rest of it and half of the next
            ("a", far, 0.5, 0.9, True),  # leapt, not driven
            ("b", east, 0.5, np.nan, False),  # a trip of one row
            ("a'", east, 0.0, 0.1, False),  # an alternative of a, which does not count
            ("a'", on, 1.0, 0.1, False),
        ],
        rank=np.array([0, 0, 1], np.int16),
        share=np.array([0.7, 1.0, 0.3], np.float32),
    )
    rows = summarise_trips(recovered, Router(tiny_city))
    assert rows["traj_id"].to_list() == ["a", "b"]
    km = (0.5 * length[east] + 0.3 * length[east] + 0.5 * length[on]) / 1000
    assert rows["km"].to_list() == [round(km, 3), 0.0]
    assert rows["minutes"].to_list() == [0.75, 0.0]  # without the leap
    assert rows["break_minutes"].to_list() == [0.25, 0.0]
    assert rows["mean_kmh"].to_list() == [pytest.approx(km * 80, abs=0.05), None]
    assert rows["steps"].to_list() == [5, 1]
    assert rows["observed"].to_list() == [3, 0]
    assert rows["confident"].to_list() == [0.6, None]  # of all five steps, though one has no probability
    assert rows["breaks"].to_list() == [1, 0]


def test_a_day_of_one_vehicle_is_as_fast_as_its_drives(tiny_city: RoadNetwork) -> None:
    day = made(
        tiny_city,
        [
            ("a", 0, 0.2, 0.9, False),
            ("a", 0, 0.7, 0.9, False),
            ("a", 0, 0.2, 0.9, True),  # the night lies between
            ("a", 0, 0.7, 0.9, False),
            ("a", 0, 0.2, 0.9, True),
            ("b", 0, 0.2, 0.9, True),  # a break that leads from no row, as files of others may have
            ("b", 0, 0.7, 0.9, False),
        ],
    )
    day.time[2:5] += 36_000
    rows = summarise_trips(day, Router(tiny_city))
    assert rows["minutes"].to_list() == [0.5, 0.25]
    assert rows["break_minutes"].to_list() == [600.5, 0.0]
    kmh = 0.5 * tiny_city.length_m[0] / 15 * 3.6
    assert rows["mean_kmh"].to_list() == [pytest.approx(kmh, abs=0.05)] * 2


def test_confident_is_of_all_steps_and_of_nothing_where_most_have_no_probability(tiny_city: RoadNetwork) -> None:
    nan = np.nan
    chances = {"most": [0.9, 0.9, nan], "half": [0.9, 0.9, nan, nan], "few": [0.9, nan, nan], "unsure": [0.1, 0.2]}
    rows = [(name, 0, 0.5, chance, False) for name, some in chances.items() for chance in some]
    trips = summarise_trips(made(tiny_city, rows), Router(tiny_city))
    assert trips["confident"].to_list() == [0.6667, None, None, 0.0]
    assert trips["rated"].to_list() == [2, 2, 1, 2]
    assert trips["sure"].to_list() == [2, 2, 1, 0]


def test_no_trips(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    none = made(tiny_city, [("a", 0, 0.5, 1.0, False)]).select(np.zeros(0, np.int64))
    rows = summarise_trips(none, Router(tiny_city))
    assert len(rows) == 0
    write_trip_rows([rows], tmp_path / "s.csv")
    header = "traj_id,start,end,km,minutes,mean_kmh,steps,observed,confident,breaks,break_minutes\n"
    assert (tmp_path / "s.csv").read_text() == header
    write_trip_rows([], tmp_path / "s.parquet")
    assert pl.read_parquet(tmp_path / "s.parquet").equals(rows.select(TRIP_SCHEMA.names()))


TOTAL = RecoverySummary(
    trips_in=1200,
    trips=1100,
    fixes_in=5000,
    fixes_used=4000,
    rows_unreadable=3,
    rejects={"no road within 1 km": 900, "shares its step": 100, "row, column 'taxi': there is no trip id": 3},
    steps=40000,
    km=1234.5,
    hours=50.0,
    confident=0.5,
    breaks=7,
    rejects_file="r.rejects.csv",
)


def test_the_total_in_words() -> None:
    assert str(TOTAL) == (
        "1,100 of 1,200 trips recovered from 4,000 of 5,000 fixes: 40,000 steps\n"
        "1,234.5 km in 50.0 h, 24.7 km/h on average; 7 breaks; 50.0% of the steps are confident "
        "(probability 0.8 or more)\n"
        "Not used, listed in r.rejects.csv:\n"
        "         900  no road within 1 km\n"
        "         100  shares its step\n"
        "           3  row, column 'taxi': there is no trip id"
    )
    assert "km/h on average; 7 breaks, whose 1,500.2 h are left out; 50.0%" in str(replace(TOTAL, break_hours=1500.2))
    assert str(replace(TOTAL, break_hours=0.04)) == str(TOTAL)


def test_many_reasons_are_told_in_few_lines() -> None:
    many = {f"row: has {i} fields where the header has 4": 20 - i for i in range(5, 19)}
    told = str(replace(TOTAL, rejects=many)).splitlines()
    assert len(told) == 3 + 11
    assert told[-2:] == ["           6  row: has 14 fields where the header has 4", "          14  for other reasons"]
