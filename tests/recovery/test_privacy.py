"""Trimmed ends and hashed ids, over made trips of every shape."""

from __future__ import annotations

import dataclasses
import string

import numpy as np
import pyproj
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.recovery.privacy import KEY_VARIABLE, find_key, hash_ids, metres, trim_ends, with_hashed_ids
from tedtrajrec.recovery.recovered import NO_TIME, RecoveredTrips, Rejects
from tedtrajrec.trips.table import Trips, as_text

GLOBE = pyproj.Geod(ellps="WGS84")
STEP_S = 15
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@st.composite
def drives(draw: st.DrawFn) -> tuple[RecoveredTrips, Trips]:
    """Make recovered trips that wander, pause and come back, anywhere on Earth, with the fixes they are from."""
    n = draw(st.integers(1, 4))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ids = [f"t{i}" for i in range(n)]
    ranks = [draw(st.integers(1, 3)) for _ in range(n)]
    lengths = [draw(st.integers(1, 60)) for _ in range(sum(ranks))]
    rows = sum(lengths)
    lat0, lon0 = draw(st.sampled_from([(41.15, -8.6), (-33.9, 179.99), (69.6, 18.9), (0.0, 0.0)]))
    pace = draw(st.sampled_from([0.0, 20.0, 150.0]))  # metres a step
    heading = np.cumsum(random.normal(0, 0.8, rows))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    x, y = (np.cumsum(part) for part in (pace * np.sin(heading), pace * np.cos(heading)))
    start = np.repeat(offsets[:-1], lengths)
    lat = lat0 + (y - y[start]) / 111_000
    lon = lon0 + (x - x[start]) / (111_000 * np.cos(np.radians(lat0)))
    lon = (lon + 180) % 360 - 180
    row = np.arange(rows) - start
    gap = np.where(random.random(rows) < 0.05, 3600, 0)
    recovered = RecoveredTrips(
        traj_id=as_text([name for name, count in zip(ids, ranks, strict=True) for _ in range(count)]),
        offsets=offsets,
        time=1_500_000_000 + STEP_S * row + np.cumsum(gap),
        lon=lon,
        lat=lat,
        segment=np.arange(rows, dtype=np.int32),
        ratio=random.random(rows),
        osm_way_id=np.zeros(rows, np.int64),
        observed=random.random(rows) < 0.2,
        probability=random.random(rows).astype(np.float32),
        broken=(random.random(rows) < 0.1) & (row > 0),
        rank=np.concatenate([np.arange(count) for count in ranks]).astype(np.int16),
        share=np.full(sum(ranks), 0.5, np.float32),
        rejects=Rejects(as_text(["lost"]), np.array([NO_TIME]), as_text(["why"])),
    )
    fixes = Trips(
        traj_id=as_text(ids),
        offsets=np.arange(n + 1) * 2,
        time=np.arange(2 * n),
        lon=np.full(2 * n, lon0) + random.normal(0, 1e-3, 2 * n) % 1e-3,
        lat=np.full(2 * n, lat0) + random.normal(0, 1e-3, 2 * n),
    )
    return recovered, fixes


def ends_of(recovered: RecoveredTrips, fixes: Trips, name: str) -> list[tuple[float, float]]:
    """Return all ends of a trip, row by row."""
    found = []
    for i in range(len(recovered)):
        if recovered.traj_id[i] == name:
            first, end = recovered.offsets[i], recovered.offsets[i + 1]
            for row in range(first, end):
                before = row == first or recovered.time[row] - recovered.time[row - 1] > STEP_S
                after = row == end - 1 or recovered.time[row + 1] - recovered.time[row] > STEP_S
                if before or after:
                    found.append((recovered.lon[row], recovered.lat[row]))
    for i in range(len(fixes)):
        if fixes.traj_id[i] == name:
            found += [(fixes.lon[j], fixes.lat[j]) for j in (fixes.offsets[i], fixes.offsets[i + 1] - 1)]
    return found


@settings(max_examples=60, deadline=None)
@given(made=drives(), distance=st.sampled_from([1.0, 200.0, 1000.0]))
def test_no_row_is_near_an_end_and_no_other_row_is_gone(made: tuple[RecoveredTrips, Trips], distance: float) -> None:
    recovered, fixes = made
    trimmed = trim_ends(recovered, fixes, distance, step_s=STEP_S)
    assert set(trimmed.lengths.tolist()) <= set(range(2, 100))
    kept = set(trimmed.segment.tolist())  # numbers of the rows in this test
    lost = trimmed.rejects.traj_id.tolist()[1:]
    for i in range(len(recovered)):
        name = recovered.traj_id[i]
        rows = np.arange(recovered.offsets[i], recovered.offsets[i + 1])
        ends = np.array(ends_of(recovered, fixes, name))
        away = np.array(
            [
                GLOBE.inv(np.full(len(ends), recovered.lon[r]), np.full(len(ends), recovered.lat[r]), *ends.T)[2].min()
                for r in rows
            ]
        )
        there = np.isin(rows, list(kept))
        assert (away[there] >= distance).all()
        if name not in lost and (away > 1.02 * distance).sum() >= 2:
            assert there[away > 1.02 * distance].all()
    # Every trip of which no two rows are left is a reject, once.
    assert sorted(lost) == sorted(set(recovered.traj_id.tolist()) - set(trimmed.traj_id[trimmed.rank == 0].tolist()))
    assert not set(lost) & set(trimmed.traj_id.tolist())


@settings(max_examples=60, deadline=None)
@given(made=drives())
def test_breaks_within_what_is_cut_are_not_forgotten(made: tuple[RecoveredTrips, Trips]) -> None:
    recovered, fixes = made
    trimmed = trim_ends(recovered, fixes, 200.0, step_s=STEP_S)
    for i in range(len(trimmed)):
        rows = trimmed.segment[trimmed.offsets[i] : trimmed.offsets[i + 1]]
        broken = trimmed.broken[trimmed.offsets[i] : trimmed.offsets[i + 1]]
        assert not broken[0]
        for k in range(1, len(rows)):
            assert broken[k] == recovered.broken[rows[k - 1] + 1 : rows[k] + 1].any()


def test_a_trip_that_comes_by_its_start_again_leaves_out_that_part() -> None:
    lon = np.concatenate([np.linspace(0, 0.01, 30), np.linspace(0.01, -0.01, 60)])
    n = len(lon)
    recovered = RecoveredTrips(
        traj_id=as_text(["a"]),
        offsets=np.array([0, n]),
        time=STEP_S * np.arange(n),
        lon=lon,
        lat=np.zeros(n),
        segment=np.arange(n, dtype=np.int32),
        ratio=np.zeros(n),
        osm_way_id=np.zeros(n, np.int64),
        observed=np.zeros(n, bool),
        probability=np.ones(n, np.float32),
        broken=np.zeros(n, bool),
    )
    fixes = Trips(as_text(["a"]), np.array([0, 2]), np.array([0, STEP_S * (n - 1)]), lon[[0, -1]], np.zeros(2))
    trimmed = trim_ends(recovered, fixes, 200.0, step_s=STEP_S)
    assert np.abs(trimmed.lon).min() * 111_320 > 200
    assert np.diff(trimmed.time).max() > 2 * STEP_S  # where it came by


def test_trips_of_nothing() -> None:
    none = _one_row()
    trimmed = trim_ends(none, Trips(as_text(["a"]), np.array([0, 0]), *(np.empty(0, k) for k in "idd")), 5, step_s=15)
    assert len(trimmed) == 0
    assert trimmed.rejects.reason.tolist() == ["nothing is left beyond 5 m of its ends"]
    assert len(trim_ends(trimmed, Trips.from_columns([], [], [], []), 5, step_s=15)) == 0


def _one_row() -> RecoveredTrips:
    floats = {name: np.zeros(1) for name in ("lon", "lat", "ratio")}
    flags = {name: np.zeros(1, bool) for name in ("observed", "broken")}
    return RecoveredTrips(
        traj_id=as_text(["a"]),
        offsets=np.array([0, 1]),
        time=np.zeros(1, np.int64),
        segment=np.zeros(1, np.int32),
        osm_way_id=np.zeros(1, np.int64),
        probability=np.zeros(1, np.float32),
        **floats,
        **flags,
    )


# ---------------------------------------------------------------------- ids


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(names, max_size=20), keys=st.lists(st.text(string.hexdigits, min_size=32, max_size=64), min_size=2))
def test_equal_ids_have_equal_hashes_and_others_do_not(ids: list[str], keys: list[str]) -> None:
    column = as_text(ids)
    one = hash_ids(column, keys[0]).tolist()
    assert hash_ids(column, keys[0]).tolist() == one
    assert hash_ids(column[::-1], keys[0]).tolist() == one[::-1]  # the place in a file does not matter
    assert dict(zip(ids, one, strict=True)).keys() == set(ids)
    assert len(set(one)) == len(set(ids))
    assert all(len(name) == 32 and set(name) <= set("0123456789abcdef") for name in one)
    if keys[1] != keys[0]:
        assert not set(one) & set(hash_ids(column, keys[1]).tolist())


@settings(max_examples=20, deadline=None)
@given(number=st.integers(0, 999))
def test_trying_all_ids_finds_none_without_the_key(number: int) -> None:
    """Ids are often short numbers: a hash without a key could be looked up in a table of all of them."""
    hashed = hash_ids(as_text([str(number)]), find_key().text).tolist()[0]
    everyone = as_text([str(i) for i in range(1_000)])
    for guess in ("", "0" * 32, "tedtrajrec"):
        assert hashed not in set(hash_ids(everyone, guess).tolist())


def test_rejects_are_hashed_as_trips_are() -> None:
    one = dataclasses.replace(_one_row(), rejects=Rejects(as_text(["a", "b"]), np.array([3, 4]), as_text(["x", "y"])))
    hashed = with_hashed_ids(one, "k" * 16)
    assert hashed.rejects.traj_id[0] == hashed.traj_id[0] != hashed.rejects.traj_id[1]
    assert hashed.rejects.reason.tolist() == ["x", "y"]


def test_where_keys_come_from(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)
    fresh, other = find_key(), find_key()
    assert fresh.is_fresh
    assert fresh.text != other.text
    assert len(fresh.text) == 64
    monkeypatch.setenv(KEY_VARIABLE, "e" * 20)
    assert find_key() == ("e" * 20, False)
    (tmp_path / "key").write_text(fresh.text + "\n")
    assert find_key(tmp_path / "key") == (fresh.text, False)  # a file goes before the environment
    (tmp_path / "key").write_text("secret")
    with pytest.raises(ConfigError, match="has 6 bytes; give 16 to 64"):
        find_key(tmp_path / "key")
    (tmp_path / "key").write_bytes(b"\xff" * 32)
    with pytest.raises(InputError, match="not text"):
        find_key(tmp_path / "key")
    with pytest.raises(InputError, match="no such file"):
        find_key(tmp_path / "no")


@pytest.mark.parametrize(("text", "distance"), [("200m", 200), ("200", 200), ("0.5km", 500), (" 12.5 m ", 12.5)])
def test_distances(text: str, distance: float) -> None:
    assert metres(text) == distance


@pytest.mark.parametrize("text", ["", "m", "-5m", "2 miles", "1e3", "nan", "inf", "٣m"])
def test_what_is_no_distance(text: str) -> None:
    with pytest.raises(ConfigError, match="is not a distance; give one such as 200m"):
        metres(text)
