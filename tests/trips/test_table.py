import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.errors import InputError
from tedtrajrec.trips.table import Trips, concat_trips, group_rows


def make(ids, **columns):
    n = len(ids)
    return Trips.from_columns(np.array(ids), np.arange(n), np.arange(n) * 0.1, np.arange(n) * 0.2, **columns)


@given(st.lists(st.sampled_from("abcde"), max_size=30))
def test_rows_of_a_trip_come_together_in_their_own_order(ids):
    order, offsets, first = group_rows(np.array(ids, dtype="U1"))
    expected = list(dict.fromkeys(ids))
    assert [ids[i] for i in first] == expected
    for k, name in enumerate(expected):
        rows = order[offsets[k] : offsets[k + 1]]
        assert rows.tolist() == [i for i, value in enumerate(ids) if value == name]
    assert offsets[-1] == len(ids)


def test_columns_follow_their_fixes():
    trips = make(["b", "a", "b"], segment=[5, -1, 7], ratio=[0.1, np.nan, 0.3], extra={"speed": np.array([10, 20, 30])})
    assert trips.traj_id.tolist() == ["b", "a"]
    assert trips.time.tolist() == [0, 2, 1]
    assert trips.extra["speed"].tolist() == [10, 30, 20]
    assert trips.segment.tolist() == [5, 7, -1]
    assert trips.lengths.tolist() == [2, 1]
    assert trips.trip_of_fix.tolist() == [0, 0, 1]


def test_select_and_keep_fixes():
    trips = make(list("aabbbc"), extra={"k": np.arange(6)}).replace(trip_extra={"taxi": np.array([1, 2, 3])})
    chosen = trips.select([2, 0])
    assert chosen.traj_id.tolist() == ["c", "a"]
    assert chosen.extra["k"].tolist() == [5, 0, 1]
    assert chosen.trip_extra["taxi"].tolist() == [3, 1]
    assert trips.select(np.array([False, True, False])).time.tolist() == [2, 3, 4]
    thinned = trips.keep_fixes(np.array([1, 0, 1, 0, 1, 0], bool))
    assert thinned.lengths.tolist() == [1, 2, 0]
    assert thinned.extra["k"].tolist() == [0, 2, 4]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(1, 5))
def test_parts_join_to_the_whole(lengths, cut):
    ids = [f"t{i}" for i, n in enumerate(lengths) for _ in range(n)]
    if not ids:
        return
    speed = np.ma.MaskedArray(np.arange(len(ids)), np.arange(len(ids)) % 3 == 0)
    trips = make(ids, extra={"speed": speed})
    whole = concat_trips([trips.select(np.arange(min(cut, len(trips)))), trips.select(np.arange(cut, len(trips)))])
    np.testing.assert_array_equal(whole.time, trips.time)
    np.testing.assert_array_equal(whole.offsets, trips.offsets)
    assert whole.extra["speed"].tolist() == speed.tolist()


def test_columns_must_agree():
    with pytest.raises(InputError, match="column 'lon': it has 1 values for 2 fixes"):
        Trips(np.array(["a"]), np.array([0, 2]), np.zeros(2, np.int64), np.zeros(1), np.zeros(2))
    with pytest.raises(InputError, match="do not divide 2 fixes among 1 trips"):
        Trips(np.array(["a"]), np.array([0, 1]), np.zeros(2, np.int64), np.zeros(2), np.zeros(2))
    with pytest.raises(InputError, match="do not divide 2 fixes among 2 trips"):
        Trips(np.array(["a", "b"]), np.array([0, 3, 2]), np.zeros(2, np.int64), np.zeros(2), np.zeros(2))
    with pytest.raises(InputError, match="different columns"):
        concat_trips([make(["a"]), make(["a"], extra={"x": np.zeros(1)})])
    with pytest.raises(InputError, match="no trips to join"):
        concat_trips([])
