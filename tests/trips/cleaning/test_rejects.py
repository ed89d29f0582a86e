"""What cleaning drops, as a file and as a summary."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from tedtrajrec.trips.clean import clean_trips
from tedtrajrec.trips.cleaning.rejects import RejectsFile, write_rejects
from tedtrajrec.trips.table import as_text
from tests.trips.driven import START, drive, make


def test_rejects_are_written_as_csv(tmp_path):
    fixes = drive(12)
    fixes[5] = (75, 90_000)
    trips = make(fixes, [], [(0, 0), (5, 50)])
    trips = trips.replace(
        traj_id=as_text(['say "a", b', "é", "c"]), lat=np.where(trips.extra["row"] == 3, np.nan, trips.lat)
    )
    cleaned = clean_trips(trips)
    write_rejects(cleaned.rejects, tmp_path / "deep" / "rejects.csv")
    with (tmp_path / "deep" / "rejects.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [(row["traj_id"], row["position"], row["timestamp"], row["reason"]) for row in table] == [
        ('say "a", b', "3", str(START + 45), "no_position"),
        ('say "a", b', "5", str(START + 75), "jump"),
        ("é", "-1", "", "empty"),
        ("c", "-1", str(START), "below_min_duration"),
        ("c", "0", str(START), "below_min_duration"),
        ("c", "1", str(START + 5), "below_min_duration"),
    ]
    assert table[0]["lat"] == ""
    assert float(table[1]["lon"]) == trips.lon[5]
    assert table[2]["lon"] == ""


def test_rejects_of_chunks_go_to_one_file_that_is_whole_or_absent(tmp_path):
    short = clean_trips(make([(0, 0), (5, 50)])).rejects
    with RejectsFile(tmp_path / "r.csv") as file:
        file.add(short)
        file.add(short)
        file.add_rows([(7, "lon", "west", "not a number")])
    lines = (tmp_path / "r.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * 3 + 1
    assert lines[-1] == ",,,,,not a number,7,lon,west"
    with pytest.raises(AttributeError), RejectsFile(tmp_path / "half.csv") as file:
        file.add(None)
    assert [path.name for path in tmp_path.iterdir()] == ["r.csv"]


def test_summaries_add_up_and_read_well():
    one = clean_trips(make(drive(20) + drive(20, start_s=2000), [(0, 0), (5, 50)], [(0, 0), (30, 9), (15, 5)])).summary
    both = one + one
    assert both.fixes_in == 90
    assert both.cuts == {"gap": 2}
    assert both.trips_dropped == {"below_min_duration": 4}
    text = str(one)
    assert "3 -> 2" in text
    assert "45 -> 40" in text
    assert "below min duration" in text
    assert "fixes put in order" in text
