import json
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tedtrajrec.data.dataset import SPLITS, Dataset, shards_of, write_dataset
from tedtrajrec.data.pack import FORMAT, pack_dataset, unpack_dataset
from tedtrajrec.data.packing import positions, range_coder
from tedtrajrec.errors import InputError, OutputError
from tests.conftest import make_grid
from tests.data.made_trips import STEP_S, any_trips, made_trips

GRID = make_grid()


def write(folder, train, *others, network=GRID, size=4):
    splits = dict(zip(SPLITS, ([*shards_of(trips, size)] for trips in (train, *others)), strict=False))
    facts = {"dropped": {"too_short": 3}, "config": {"seed": 1, "ways": [1, 2]}, "source": "häuser.csv"}
    return write_dataset(folder, network, splits, step_s=STEP_S, time_zone="Europe/Lisbon", **facts)


def assert_alike(before: Dataset, after: Dataset) -> None:
    """Check that all is exact but fixes, to half a microdegree, and ratios, to 0.1 m."""
    assert after.info == before.info
    assert after.network.hash == before.network.hash
    assert dict(after.network.meta) == dict(before.network.meta)
    for name in SPLITS:
        for a, b in zip(before.split(name).shards(), after.split(name).shards(), strict=True):
            for exact in ("traj_id", "offsets", "time", "segment"):
                np.testing.assert_array_equal(getattr(b, exact), getattr(a, exact))
            np.testing.assert_allclose(b.lon, a.lon, rtol=0, atol=0.5001e-6)
            np.testing.assert_allclose(b.lat, a.lat, rtol=0, atol=0.5001e-6)
            metres = (b.ratio - a.ratio) * before.network.length_m[a.segment]
            np.testing.assert_array_equal(np.isnan(b.ratio), a.segment < 0)
            assert np.abs(metres[a.segment >= 0]).max(initial=0) <= 0.1001
            ends = (a.ratio == 0) | (a.ratio == 1)
            np.testing.assert_array_equal(b.ratio[ends], a.ratio[ends])


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_dataset_comes_back_and_packs_to_the_same_bytes(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    dataset = write(folder / "a", *(data.draw(any_trips(GRID)) for _ in SPLITS), size=data.draw(st.integers(1, 4)))
    pack_dataset(dataset, folder / "a.pack")
    again = unpack_dataset(folder / "a.pack", folder / "b")
    assert_alike(dataset, again)
    pack_dataset(again, folder / "b.pack")
    assert (folder / "b.pack").read_bytes() == (folder / "a.pack").read_bytes()
    for file in (folder / "b").rglob("*"):
        assert file.is_dir() or (folder / "a" / file.relative_to(folder / "b")).is_file()


def test_what_was_unpacked_unpacks_to_the_same_folder(tmp_path):
    dataset = write(tmp_path / "a", made_trips(GRID, [30, 1, 12]), made_trips(GRID, [5], seed=1))
    pack_dataset(dataset, tmp_path / "a.pack")
    unpack_dataset(tmp_path / "a.pack", tmp_path / "b")
    unpack_dataset(tmp_path / "a.pack", tmp_path / "c")
    names = sorted(p.relative_to(tmp_path / "b") for p in (tmp_path / "b").rglob("*") if p.is_file())
    assert names == sorted(p.relative_to(tmp_path / "a") for p in (tmp_path / "a").rglob("*") if p.is_file())
    assert all((tmp_path / "b" / n).read_bytes() == (tmp_path / "c" / n).read_bytes() for n in names)


def test_trips_that_drive_about_take_few_bytes(tmp_path):
    trips = made_trips(GRID, [50] * 600, missing=0.0, unknown=0.0)
    dataset = write(tmp_path / "a", trips, size=200)
    pack_dataset(dataset, tmp_path / "a.pack")
    with zipfile.ZipFile(tmp_path / "a.pack") as archive:
        size = {"heads": 0, "positions": 0, "fixes": 0}
        for member in archive.infolist():
            if member.filename.startswith("train/"):
                size[member.filename.split("/")[-1]] += member.file_size
    # A ratio drawn evenly of 500 parts (9 bits), 1 of 3 successors in 7 of 10 steps (2 bits), and two errors that are
    # normal with a deviation of 50 microdegrees (7.7 bits each): no code is shorter, ours is hardly longer.
    assert 11.0 < 8 * size["positions"] / trips.n_fixes < 12.5
    assert 15.3 < 8 * size["fixes"] / trips.n_fixes < 17.5
    assert size["heads"] < 7 * len(trips)


def test_trips_that_go_on_over_many_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("tedtrajrec.data.pack._STEPS_AT_ONCE", 64)
    dataset = write(tmp_path / "a", made_trips(GRID, [200, 1, 3, 60, 90, 2, 500]), made_trips(GRID, [], seed=2))
    pack_dataset(dataset, tmp_path / "a.pack")
    assert_alike(dataset, unpack_dataset(tmp_path / "a.pack", tmp_path / "b"))


def test_a_segment_with_more_followers_than_are_remembered(tmp_path):
    assert GRID.n_segments > positions._LONGEST
    far = made_trips(GRID, [2] * 600, missing=0.0, unknown=0.0)
    segment = far.segment.copy()
    segment[0::2], segment[1::2] = 7, np.resize(np.arange(GRID.n_segments, dtype=np.int32), 600)
    dataset = write(tmp_path / "a", far.replace(segment=segment), size=1000)
    pack_dataset(dataset, tmp_path / "a.pack")
    assert_alike(dataset, unpack_dataset(tmp_path / "a.pack", tmp_path / "b"))


def test_every_damaged_file_is_refused_or_says_the_same(tmp_path):
    dataset = write(tmp_path / "a", made_trips(GRID, [20, 8]), made_trips(GRID, [3], seed=1))
    pack_dataset(dataset, tmp_path / "a.pack")
    whole = (tmp_path / "a.pack").read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    places = rng.choice(len(whole), 150, replace=False).tolist()
    for number, place in enumerate(places):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        (tmp_path / "bad.pack").write_bytes(damaged)
        try:
            again = unpack_dataset(tmp_path / "bad.pack", tmp_path / f"bad{number}")
        except InputError as error:
            assert "bad.pack" in str(error)  # noqa: PT017
            assert not (tmp_path / f"bad{number}").exists()
            refused += 1
        else:  # a bit that means nothing, such as the version of ZIP that made the file
            assert_alike(dataset, again)
    assert refused > 100


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_file_is_refused(tmp_path, kept):
    pack_dataset(write(tmp_path / "a", made_trips(GRID, [20])), tmp_path / "a.pack")
    whole = (tmp_path / "a.pack").read_bytes()
    (tmp_path / "cut.pack").write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(InputError, match=r"cut\.pack"):
        unpack_dataset(tmp_path / "cut.pack", tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_other_files_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        unpack_dataset(tmp_path / "none.pack", tmp_path / "b")
    GRID.save(tmp_path / "network.npz")
    with pytest.raises(InputError, match="not a packed dataset"):
        unpack_dataset(tmp_path / "network.npz", tmp_path / "b")
    with zipfile.ZipFile(tmp_path / "new.pack", "w") as archive:
        archive.writestr("pack.json", json.dumps({"format": FORMAT, "version": 99}))
    with pytest.raises(InputError, match="version 99"):
        unpack_dataset(tmp_path / "new.pack", tmp_path / "b")


def forge(source, target, change):
    """Write an archive again with other messages, and checksums that fit them."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for member in old.infolist():
            new.writestr(member, change(member.filename, old.read(member)))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_forged_message_breaks_nothing(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("forged")
    pack_dataset(write(folder / "a", made_trips(GRID, [20, 8])), folder / "a.pack")
    part = data.draw(st.sampled_from(["heads", "positions", "fixes"]))
    noise = data.draw(st.binary(max_size=80))
    forge(folder / "a.pack", folder / "b.pack", lambda name, old: noise if name.endswith(part) else old)
    try:
        dataset = unpack_dataset(folder / "b.pack", folder / "b")
    except InputError:
        return
    trips = dataset.split("train").trips()
    assert trips.segment.max() < GRID.n_segments
    assert not ((trips.ratio < 0) | (trips.ratio > 1)).any()


def test_a_forged_size_is_refused(tmp_path):
    pack_dataset(write(tmp_path / "a", made_trips(GRID, [20, 8])), tmp_path / "a.pack")

    def more(name, old):
        if name != "pack.json":
            return old
        header = json.loads(old)
        header["shards"]["train"][0][1] += 1
        return json.dumps(header)

    forge(tmp_path / "a.pack", tmp_path / "b.pack", more)
    with pytest.raises(InputError, match="damaged"):
        unpack_dataset(tmp_path / "b.pack", tmp_path / "b")


@pytest.mark.parametrize(
    ("field", "value"), [("segment", GRID.n_segments), ("ratio", 1.5), ("ratio", np.nan), ("lat", np.nan), ("lon", 999)]
)
def test_a_dataset_that_breaks_its_promises_is_not_packed(tmp_path, field, value):
    trips = made_trips(GRID, [6, 9], missing=0.0, unknown=0.0)
    column = getattr(trips, field).copy()
    column[8] = value
    dataset = write(tmp_path / "a", trips.replace(**{field: column}))
    with pytest.raises(InputError, match=r"trip-0001.*Prepare"):
        pack_dataset(dataset, tmp_path / "a.pack")
    assert not (tmp_path / "a.pack").exists()


def test_a_folder_that_exists_is_not_written_over(tmp_path):
    pack_dataset(write(tmp_path / "a", made_trips(GRID, [6])), tmp_path / "a.pack")
    with pytest.raises(OutputError, match="exists already"):
        unpack_dataset(tmp_path / "a.pack", tmp_path / "a")


def test_a_network_with_names_as_ids(tmp_path):
    network = make_grid()
    arrays = network.arrays() | {"node_id": np.array([f"ö{k}" for k in range(network.n_nodes)])}
    named = type(network)(**arrays, meta={"attribution": "© someone"})
    dataset = write(tmp_path / "a", made_trips(named, [6]), network=named)
    pack_dataset(dataset, tmp_path / "a.pack")
    assert_alike(dataset, unpack_dataset(tmp_path / "a.pack", tmp_path / "b"))


# ---------------------------------------------------------------------- the range coder


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(2**40) + 1, 2**40 - 1))), st.lists(st.integers(1, 2**40)))
@settings(max_examples=100)
def test_numbers_come_back(values, counts):
    def both_ways(coder, given):
        coder = range_coder.with_room(coder, (len(values) + len(counts)) * range_coder.INT_BYTES)
        slots = range_coder.new_slots(4 * range_coder.INT_SLOTS)
        found = [range_coder.code_int(coder, slots, c * range_coder.INT_SLOTS, v if given else 0) for c, v in values]
        return coder, found + [range_coder.code_below(coder, n, n // 3 if given else 0) for n in counts]

    coder, told = both_ways(range_coder.writer(), given=True)
    assert told == [v for _, v in values] + [n // 3 for n in counts]
    assert both_ways(range_coder.reader(range_coder.written(coder)), given=False)[1] == told


def test_a_coin_that_is_rarely_heads_costs_its_entropy():
    rng = np.random.default_rng(1)
    coder = range_coder.with_room(range_coder.writer(), 20_000 * range_coder.BIT_BYTES)
    slots = range_coder.new_slots(1)
    for bit in (rng.random(20_000) < 0.02).tolist():
        range_coder.code_bit(coder, slots, 0, bit)
    bits = 8 * len(range_coder.written(coder)) / 20_000
    entropy = -0.02 * np.log2(0.02) - 0.98 * np.log2(0.98)
    assert 0.95 * entropy < bits < 1.08 * entropy


def test_a_message_without_room_is_not_returned():
    coder = range_coder.writer()
    for _ in range(20):
        range_coder.code_below(coder, 1000, 7)
    with pytest.raises(RuntimeError, match="room"):
        range_coder.written(coder)


def test_the_format_stays_what_it_is(tmp_path):
    """If this fails, files packed before can no longer be read: raise VERSION, or find out why machines differ."""
    dataset = write(tmp_path / "a", made_trips(GRID, [30] * 20), made_trips(GRID, [9] * 5, seed=1))
    pack_dataset(dataset, tmp_path / "a.pack")
    with zipfile.ZipFile(tmp_path / "a.pack") as archive:
        messages = [archive.read(name) for name in archive.namelist() if name.split("/")[0] in SPLITS]
    assert (len(messages), zlib.crc32(b"".join(messages))) == (21, 4291094246)
