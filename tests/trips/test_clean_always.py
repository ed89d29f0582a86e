"""Cleaning: what holds for any trips and settings, and what real ones lose."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.trips.clean import CleanConfig, clean_trips
from tedtrajrec.trips.cleaning.rejects import WHOLE_TRIP, CleanSummary, Reason
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import concat_trips
from tests.trips.driven import make, same

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
