import csv
import json
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.config import from_dict, to_dict
from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.cleaning.rejects import WHOLE_TRIP, CleanSummary, Reason, RejectsFile, write_rejects
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import NULLABLE_TEXT, Trips, as_text, concat_trips

PLANE = LocalPlane(-8.62, 41.15)
START = 1_400_000_000
LOOSE = CleanConfig(
    max_gap_s=0, max_speed_mps=0, stop_min_s=0, crop_distance_m=0, min_fixes=0, min_duration_s=0, min_length_m=0
)


def make(*trips, **extra):
    """Return trips from lists of (seconds, metres east[, metres north]); ``extra`` is per fix over all of them."""
    rows = [(t, x, *rest) if rest else (t, x, 0.0) for trip in trips for t, x, *rest in trip]
    time, x, y = np.array(rows, float).reshape(-1, 3).T
    lon, lat = PLANE.to_lonlat(x, y)
    offsets = np.concatenate([[0], np.cumsum([len(trip) for trip in trips])]).astype(np.int64)
    return Trips(
        as_text([chr(ord("a") + i) for i in range(len(trips))]),
        offsets,
        START + time.astype(np.int64),
        lon,
        lat,
        segment=np.arange(len(time), dtype=np.int32),
        ratio=np.linspace(0, 1, len(time)),
        extra={"row": np.arange(len(time)), **extra},
        trip_extra={"taxi": np.arange(len(trips)) * 10},
    )


def drive(n, step_s=15, speed=10.0, start_s=0, start_m=0.0):
    return [(start_s + i * step_s, start_m + i * step_s * speed) for i in range(n)]


def rows(cleaned):
    """Return the input rows of every clean trip."""
    return {
        str(name): part.tolist()
        for name, part in zip(
            cleaned.trips.traj_id,
            np.split(cleaned.trips.extra["row"], cleaned.trips.offsets[1:-1]),
            strict=True,
        )
    }


def listed(cleaned):
    return [
        (str(name), int(position), Reason(int(reason)).text)
        for name, position, reason in zip(
            cleaned.rejects.traj_id, cleaned.rejects.position, cleaned.rejects.reason, strict=True
        )
    ]


# ---------------------------------------------------------------------- order and duplicates


def test_fixes_are_put_in_order_of_time_and_late_ones_counted():
    trips = make([(0, 0), (30, 300), (15, 150), (45, 450)], drive(3, 60))
    cleaned = clean_trips(trips, LOOSE)
    assert rows(cleaned) == {"a": [0, 2, 1, 3], "b": [4, 5, 6]}
    assert cleaned.summary.fixes_reordered == 1
    assert len(cleaned.rejects) == 0
    assert (np.diff(cleaned.trips.time)[[0, 1, 2]] > 0).all()


def test_late_fixes_can_be_dropped_instead():
    trips = make([(0, 0), (30, 300), (15, 150), (20, 200), (45, 450)])
    cleaned = clean_trips(trips, replace(LOOSE, out_of_order="drop"))
    assert rows(cleaned) == {"a": [0, 1, 4]}
    assert listed(cleaned) == [("a", 2, "out_of_order"), ("a", 3, "out_of_order")]


def test_duplicates_and_conflicts_are_told_apart_and_the_first_stays():
    trips = make([(0, 0), (15, 150), (0, 0), (15, 700), (15, 150), (30, 300)])
    cleaned = clean_trips(trips, LOOSE)
    assert rows(cleaned) == {"a": [0, 1, 5]}
    assert listed(cleaned) == [("a", 2, "duplicate"), ("a", 3, "same_time"), ("a", 4, "duplicate")]
    assert cleaned.summary.fixes_dropped == {"duplicate": 2, "same_time": 1}
    assert clean_trips(trips, replace(LOOSE, drop_duplicates=False)).trips.n_fixes == 6


def test_equal_times_of_neighbouring_trips_are_no_duplicates():
    assert len(clean_trips(make([(0, 0), (15, 5)], [(15, 5), (30, 5)]), LOOSE).rejects) == 0


def test_standing_still_is_no_duplicate():
    assert clean_trips(make([(0, 0), (15, 0), (30, 0)]), LOOSE).trips.n_fixes == 3


def test_fixes_without_a_position_are_dropped():
    trips = make(drive(5))
    lon, lat = trips.lon.copy(), trips.lat.copy()
    lon[1], lat[2], lon[3] = np.nan, 91.0, np.inf
    cleaned = clean_trips(trips.replace(lon=lon, lat=lat), LOOSE)
    assert rows(cleaned) == {"a": [0, 4]}
    assert cleaned.summary.fixes_dropped == {"no_position": 3}


# ---------------------------------------------------------------------- jumps, gaps, stays


def test_an_outlier_goes_and_the_trip_stays_whole():
    fixes = drive(20)
    fixes[7] = (7 * 15, 90_000)
    cleaned = clean_trips(make(fixes))
    assert rows(cleaned) == {"a": [*range(7), *range(8, 20)]}
    assert listed(cleaned) == [("a", 7, "jump")]
    assert cleaned.summary.cuts == {}


def test_a_change_of_place_cuts():
    cleaned = clean_trips(make(drive(20) + drive(20, start_s=300, start_m=90_000)))
    assert rows(cleaned) == {"a#1": list(range(20)), "a#2": list(range(20, 40))}
    assert cleaned.summary.cuts == {"jump": 1}
    assert cleaned.summary.fixes_dropped == {}


def test_far_apart_after_a_gap_is_a_gap_not_a_jump():
    cleaned = clean_trips(make(drive(20) + drive(3, start_s=2000, start_m=900_000, step_s=60)))
    assert rows(cleaned) == {"a#1": list(range(20)), "a#2": [20, 21, 22]}
    assert cleaned.summary.cuts == {"gap": 1}


def test_a_gap_that_an_outlier_hid_is_cut_too():
    fixes = [*drive(10), (500, 90_000), *drive(10, start_s=1000, start_m=5000)]
    cleaned = clean_trips(make(fixes), CleanConfig(max_gap_s=600))
    assert rows(cleaned) == {"a#1": list(range(10)), "a#2": list(range(11, 21))}
    assert cleaned.summary.cuts == {"gap": 1}
    assert cleaned.summary.fixes_dropped == {"jump": 1}


def test_a_gap_of_just_the_limit_does_not_cut():
    trips = make([(0, 0), (600, 3000), (1201, 6000), (1300, 7000)])
    assert rows(clean_trips(trips)) == {"a#1": [0, 1], "a#2": [2, 3]}


def test_a_stay_cuts_and_its_fixes_are_standing():
    there = drive(20)
    stay = [(300 + i * 60, 3000 + (i % 2) * 5) for i in range(12)]
    on = drive(20, start_s=1020, start_m=3010)
    cleaned = clean_trips(make(there + stay + on))
    assert rows(cleaned) == {"a#1": list(range(21)), "a#2": [32, *range(33, 52)]}
    assert cleaned.summary.fixes_dropped == {"standing": 11}
    assert cleaned.summary.cuts == {"standing": 1}


def test_a_parked_vehicle_leaves_nothing():
    cleaned = clean_trips(make([(i * 60, i % 3) for i in range(100)], drive(10)))
    assert rows(cleaned) == {"b": list(range(100, 110))}
    assert cleaned.summary.trips_dropped == {"nothing_left": 1}
    assert cleaned.summary.fixes_dropped == {"standing": 100}
    assert listed(cleaned)[0] == ("a", WHOLE_TRIP, "nothing_left")


# ---------------------------------------------------------------------- ignition and occupancy


def active(column, **settings):
    n = len(column)
    config = replace(LOOSE, active_column="on", **settings)
    return clean_trips(make(drive(n), on=column), config)


@pytest.mark.parametrize(
    "column",
    [
        np.array([False, True, True, False, False, True, True]),
        np.array([0, 1, 1, 0, 0, 1, 1]),
        np.array([0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0]),
        as_text(["off", "on", "ON", "off", "Off", " on ", "on"]),
        as_text(["0", "1", "1.0", "0.0", "0", "1", "1"]),
        np.array(["no", "yes", "yes", "no", "no", "yes", "yes"]),
        np.array(["false", "true", "true", "false", "false", "true", "true"], dtype=object),
    ],
)
def test_inactive_fixes_belong_to_no_trip(column):
    cleaned = active(column)
    assert rows(cleaned) == {"a#1": [1, 2], "a#2": [5, 6]}
    assert cleaned.summary.fixes_dropped == {"inactive": 3}
    assert cleaned.summary.cuts == {"inactive": 1}


@pytest.mark.parametrize(
    "column",
    [
        np.ma.array([9, 0, 9, 1, 9, 9, 0, 9], mask=[1, 0, 1, 0, 1, 1, 0, 1]),
        np.array([np.nan, 0, np.nan, 1, np.nan, np.nan, 0, np.nan]),
        np.array([None, "off", None, "on", None, None, "off", None], dtype=NULLABLE_TEXT),
        as_text(["", "off", "", "on", "", "", "off", ""]),
    ],
)
def test_a_missing_state_repeats_the_last_one_and_the_start_counts_as_active(column):
    assert rows(active(column)) == {"a#1": [0], "a#2": [3, 4, 5]}


def test_the_first_known_state_does_not_cut():
    assert rows(active(np.array([np.nan, np.nan, 1, 1]))) == {"a": [0, 1, 2, 3]}


def test_a_missing_state_does_not_repeat_that_of_the_trip_before():
    config = replace(LOOSE, active_column="on")
    column = np.ma.array([1, 0, 9, 9], mask=[0, 0, 1, 1])
    assert rows(clean_trips(make(drive(2), drive(2), on=column), config)) == {"a": [0], "b": [2, 3]}


def test_a_column_without_any_value_changes_nothing():
    assert rows(active(np.full(4, np.nan))) == {"a": [0, 1, 2, 3]}


def test_a_change_from_one_ride_to_the_next_cuts():
    cleaned = active(np.array([17, 17, 18, 18, 0, 19, 19]))
    assert rows(cleaned) == {"a#1": [0, 1], "a#2": [2, 3], "a#3": [5, 6]}
    assert cleaned.summary.cuts == {"activity_change": 1, "inactive": 1}


def test_long_numbers_of_rides_are_told_apart():
    ride = 2**60
    for column in (np.array([ride, ride, ride + 1]), as_text([str(ride), str(ride), str(ride + 1)])):
        assert rows(active(column)) == {"a#1": [0, 1], "a#2": [2]}


def test_words_of_ones_own():
    column = as_text(["free", "hired", "hired", "call", "hired", "free", "free"])
    assert rows(active(column, active_values=("Hired",))) == {"a#1": [1, 2], "a#2": [4]}
    with pytest.raises(InputError, match=r"column 'on': the value 'call' .* active_values"):
        active(column)


def test_a_missing_column_is_an_error_that_lists_the_others():
    with pytest.raises(InputError, match=r"column 'ignition'.*row"):
        clean_trips(make(drive(3)), CleanConfig(active_column="ignition"))


# ---------------------------------------------------------------------- the network


def test_fixes_off_the_network_cut_the_trip(tiny_city):
    """The streets cover 0..500 m east and north of the plane's origin."""
    inside = [(i * 15, 100.0 * i, 0.0) for i in range(6)]
    out = [(90, 700, 0.0), (105, 800, 0.0)]
    back = [(120 + i * 15, 500 - 100.0 * i, 100.0) for i in range(6)]
    config = replace(LOOSE, crop_distance_m=60)
    cleaned = clean_trips(make(inside + out + back), config, tiny_city)
    assert rows(cleaned) == {"a#1": [0, 1, 2, 3, 4, 5], "a#2": list(range(8, 14))}
    assert cleaned.summary.fixes_dropped == {"outside": 2}
    assert cleaned.summary.cuts == {"outside": 1}
    again = clean_trips(make(inside + out + back), config, CandidateFinder(tiny_city))
    assert rows(again) == rows(cleaned)
    assert len(clean_trips(make(inside + out + back), LOOSE, tiny_city).rejects) == 0


def test_a_trip_all_outside_is_lost(tiny_city):
    cleaned = clean_trips(make([(i * 60, 5000 + 100 * i) for i in range(5)]), network=tiny_city)
    assert len(cleaned.trips) == 0
    assert cleaned.summary.trips_dropped == {"nothing_left": 1}


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"min_fixes": 5}, "below_min_fixes"),
        ({"min_duration_s": 46}, "below_min_duration"),
        ({"max_duration_s": 44}, "above_max_duration"),
        ({"min_length_m": 451}, "below_min_length"),
    ],
)
def test_trips_of_the_wrong_size_are_dropped_with_their_fixes(setting, reason):
    cleaned = clean_trips(make(drive(4)), replace(LOOSE, **setting))
    assert len(cleaned.trips) == 0
    assert cleaned.summary.trips_dropped == {reason: 1}
    assert cleaned.summary.fixes_dropped == {reason: 4}
    assert listed(cleaned) == [("a", WHOLE_TRIP, reason), *(("a", i, reason) for i in range(4))]


def test_sizes_at_the_limit_are_kept():
    config = replace(LOOSE, min_fixes=4, min_duration_s=45, max_duration_s=45, min_length_m=449.99)
    assert len(clean_trips(make(drive(4)), config).trips) == 1


def test_a_trip_without_fixes_is_listed_as_empty():
    cleaned = clean_trips(make([], drive(6)))
    assert rows(cleaned) == {"b": list(range(6))}
    assert listed(cleaned) == [("a", WHOLE_TRIP, "empty")]
    assert np.isnan(cleaned.rejects.lon).all()


def test_no_trips_at_all_are_clean(tiny_city):
    cleaned = clean_trips(make(), CleanConfig(active_column="row"), tiny_city)
    assert len(cleaned.trips) == 0
    assert cleaned.summary == CleanSummary()
    cleaned = clean_trips(make([], []), CleanConfig(active_column="row"), tiny_city)
    assert cleaned.summary.trips_dropped == {"empty": 2}


# ---------------------------------------------------------------------- ids and columns


def test_only_what_is_left_in_several_pieces_is_numbered():
    one_left = [*drive(20), (2000, 0)]
    two_left = drive(20) + drive(20, start_s=2000)
    cleaned = clean_trips(make(one_left, two_left))
    assert cleaned.trips.traj_id.tolist() == ["a", "b#1", "b#2"]
    assert cleaned.summary.trips_dropped == {"below_min_fixes": 1}


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["x", "x#1", "x#2"], ["x##1", "x##2", "x#1", "x#2#1", "x#2#2"]),
        (["x", "x#", "x"], ["x#1", "x#2", "x#", "x#3", "x#4"]),
    ],
)
def test_ids_are_unique_whatever_names_were_there(ids, expected):
    cut = drive(20) + drive(20, start_s=2000)
    trips = make(cut, drive(20), cut).replace(traj_id=as_text(ids))
    assert clean_trips(trips).trips.traj_id.tolist() == expected


def test_names_that_collide_with_numbered_ones_of_another_trip_are_told_apart():
    cut = drive(20) + drive(20, start_s=2000)
    trips = make(cut, cut, drive(20)).replace(traj_id=as_text(["x", "x#", "x#1"]))
    names = clean_trips(trips).trips.traj_id.tolist()
    assert names[-1] == "x#1"
    assert len(set(names)) == 5


def test_columns_travel_along():
    trips = make(drive(20) + drive(20, start_s=2000), drive(10))
    cleaned = clean_trips(trips).trips
    row = cleaned.extra["row"]
    assert cleaned.trip_extra["taxi"].tolist() == [0, 0, 10]
    assert cleaned.segment is not None
    assert cleaned.ratio is not None
    for name in ("time", "lon", "lat", "segment", "ratio"):
        assert np.array_equal(getattr(cleaned, name), getattr(trips, name)[row])


def test_masked_and_missing_columns_survive():
    trips = make(
        [(15, 150), (0, 0), (30, 300)],
        speed=np.ma.array([5.0, 6.0, 7.0], mask=[0, 1, 0]),
        note=np.array(["x", None, "z"], dtype=NULLABLE_TEXT),
    )
    cleaned = clean_trips(trips, LOOSE).trips
    assert cleaned.extra["speed"].mask.tolist() == [True, False, False]
    assert cleaned.extra["note"].tolist() == [None, "x", "z"]


# ---------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "setting",
    [
        {"max_gap_s": -1.0},
        {"max_speed_mps": float("nan")},
        {"stop_min_s": float("inf")},
        {"min_fixes": -1},
        {"out_of_order": "ignore"},
        {"max_duration_s": 10.0},
        {"active_values": ("on",)},
    ],
)
def test_impossible_settings_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        CleanConfig(**setting)


def test_settings_come_from_plain_values():
    config = CleanConfig(active_column="occupied", active_values=("hired",), max_gap_s=900)
    assert from_dict(CleanConfig, json.loads(json.dumps(to_dict(config)))) == config
    with pytest.raises(ConfigError, match="max_speed_mps is -3"):
        from_dict(CleanConfig, {"max_speed_mps": -3})


# ---------------------------------------------------------------------- what always holds

fix = st.tuples(
    st.sampled_from([-40, 0, 0, 1, 15, 15, 60, 240, 700]),  # seconds since the fix before
    st.sampled_from([0, 20, 40, 100, 150, 400, 3000, 90_000]),  # metres east
    st.sampled_from([0, 30, 100]),  # metres north
    st.sampled_from([0, 1, 1, 1, 2, 9]),  # state; 9 is missing
    st.booleans() | st.just(True),  # has a position
)
configs = st.builds(
    CleanConfig,
    out_of_order=st.sampled_from(["sort", "drop"]),
    drop_duplicates=st.booleans(),
    active_column=st.sampled_from(["", "state"]),
    max_gap_s=st.sampled_from([0, 100, 600]),
    max_speed_mps=st.sampled_from([0, 10, 50]),
    max_outliers=st.integers(0, 3),
    stop_radius_m=st.sampled_from([0, 50]),
    stop_min_s=st.sampled_from([0, 60, 300]),
    crop_distance_m=st.sampled_from([0, 60, 1000]),
    min_fixes=st.integers(0, 4),
    min_duration_s=st.sampled_from([0, 60]),
    max_duration_s=st.sampled_from([0, 600]),
    min_length_m=st.sampled_from([0, 100]),
)


def make_random(trips):
    made = make(
        *[
            [(t, x, y) for t, (_, x, y, _, _) in zip(np.cumsum([f[0] for f in trip]), trip, strict=True)]
            for trip in trips
        ],
        state=np.ma.masked_equal(np.array([f[3] for trip in trips for f in trip], int), 9),
    )
    located = np.array([f[4] for trip in trips for f in trip], bool)
    return made.replace(lon=np.where(located, made.lon, np.nan))


def same(left, right):
    """Return whether two sets of trips are equal in everything; as text, so that NaN equals NaN and masked is None."""

    def texts(trips):
        columns = {part.name: getattr(trips, part.name) for part in fields(Trips)}
        columns |= {**columns.pop("extra"), **columns.pop("trip_extra")}
        return {name: None if column is None else repr(column.tolist()) for name, column in columns.items()}

    return texts(left) == texts(right)


@given(trips=st.lists(st.lists(fix, max_size=14), max_size=5), config=configs, crop=st.booleans())
@settings(max_examples=300, deadline=None)
def test_cleaning_keeps_account_changes_no_input_and_is_done_once(tiny_city, trips, config, crop):
    trips = make_random(trips)
    network = tiny_city if crop else None
    arrays = [trips.time, trips.lon, trips.lat, trips.offsets, trips.traj_id, *trips.extra.values()]
    for array in arrays:
        array.flags.writeable = False  # writing to the input would raise
    cleaned = clean_trips(trips, config, network)
    summary, rejects = cleaned.summary, cleaned.rejects

    # Every input fix is either in the result or listed once.
    of_fix = rejects.position != WHOLE_TRIP
    assert summary.fixes_in == trips.n_fixes == summary.fixes_out + sum(summary.fixes_dropped.values())
    assert summary.fixes_out == cleaned.trips.n_fixes
    trip_number = {str(name): i for i, name in enumerate(trips.traj_id)}
    gone = [
        int(trips.offsets[trip_number[str(name)]] + position)
        for name, position in zip(rejects.traj_id[of_fix], rejects.position[of_fix], strict=True)
    ]
    assert sorted([*gone, *cleaned.trips.extra["row"].tolist()]) == list(range(trips.n_fixes))
    for column in ("time", "lon", "lat"):
        assert np.array_equal(
            getattr(rejects, column)[of_fix], getattr(trips, column)[gone], equal_nan=column != "time"
        )
    # The summary counts what the list holds.
    for counts, rows_of in ((summary.fixes_dropped, of_fix), (summary.trips_dropped, ~of_fix)):
        texts = [Reason(int(code)).text for code in rejects.reason[rows_of]]
        assert counts == {text: texts.count(text) for text in counts}
        assert sum(counts.values()) == len(texts)
    assert summary.trips_in == len(trips)
    assert summary.trips_out == len(cleaned.trips)
    assert summary.trips_in + sum(summary.cuts.values()) == summary.trips_out + sum(summary.trips_dropped.values())
    # Fixes of a trip are in order of time, ids unique.
    within = np.diff(cleaned.trips.trip_of_fix) == 0
    assert (np.diff(cleaned.trips.time)[within] >= (1 if config.drop_duplicates else 0)).all()
    assert len(set(cleaned.trips.traj_id.tolist())) == len(cleaned.trips)
    # Clean trips stay as they are.
    again = clean_trips(cleaned.trips, config, network)
    assert same(again.trips, cleaned.trips)
    assert len(again.rejects) == 0
    assert again.summary.cuts == {}


@given(trips=st.lists(st.lists(fix, max_size=10), min_size=1, max_size=6), config=configs)
@settings(max_examples=60, deadline=None)
def test_chunks_add_up_to_the_whole(trips, config):
    trips = make_random(trips)
    whole = clean_trips(trips, config)
    parts = [clean_trips(trips.select([i]), config) for i in range(len(trips))]
    assert same(concat_trips([part.trips for part in parts]), whole.trips)
    assert sum((part.summary for part in parts), CleanSummary()) == whole.summary
    for name in ("traj_id", "position", "reason"):
        joined = np.concatenate([getattr(part.rejects, name) for part in parts])
        assert joined.tolist() == getattr(whole.rejects, name).tolist()


# ---------------------------------------------------------------------- the account on paper


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


# ---------------------------------------------------------------------- real data


@pytest.mark.real
def test_the_default_leaves_chengdu_as_it_is(data_dir, chengdu):
    trips = read_trips(data_dir / "chengdu" / "trips.csv.gz")
    assert (len(trips), trips.n_fixes) == (9_890, 254_122)
    assert same(clean_trips(trips).trips, trips)
    cropped = clean_trips(trips, network=chengdu).summary
    assert set(cropped.fixes_dropped) <= {"outside", "below_min_fixes", "below_min_duration", "below_min_length"}
    assert cropped.fixes_out > 0.999 * cropped.fixes_in


@pytest.mark.real
def test_the_default_keeps_porto(data_dir, porto):
    trips = read_trips(data_dir / "porto" / "trips.csv.gz")
    cleaned = clean_trips(trips)
    assert cleaned.summary == CleanSummary(
        trips_in=1_786,
        fixes_in=82_365,
        trips_out=1_744,
        fixes_out=78_022,
        fixes_dropped={
            "jump": 365,
            "standing": 3_665,
            "below_min_fixes": 11,
            "below_min_duration": 153,
            "below_min_length": 149,
        },
        trips_dropped={"below_min_fixes": 11, "below_min_duration": 50, "below_min_length": 11},
        cuts={"standing": 30},
    )
    assert same(clean_trips(cleaned.trips).trips, cleaned.trips)
    cropped = clean_trips(trips, network=porto).summary
    assert 0.06 < cropped.fixes_dropped["outside"] / cropped.fixes_in < 0.12  # trips that leave the extract
