import json
import shutil

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tedtrajrec.data.dataset import SHARD_TRIPS, SPLITS, Dataset, shards_of, write_dataset
from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.files import replacing_folder
from tedtrajrec.trips.table import concat_trips
from tests.conftest import make_grid
from tests.data.made_trips import STEP_S, any_trips, made_trips

GRID = make_grid()
COLUMNS = ("traj_id", "offsets", "time", "lon", "lat", "segment")


def write(folder, splits, **more):
    return write_dataset(folder, GRID, splits, step_s=STEP_S, time_zone="Europe/Lisbon", **more)


def assert_same(a, b):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_array_equal(a.ratio, b.ratio.astype(np.float32))


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_written_is_read_in_any_order(tmp_path_factory, data):
    trips = data.draw(any_trips(GRID, most=10))
    dataset = write(tmp_path_factory.mktemp("any") / "a", {"valid": shards_of(trips, data.draw(st.integers(1, 4)))})
    split = dataset.split("valid")
    assert (len(split), split.n_steps) == (len(trips), trips.n_fixes)
    np.testing.assert_array_equal(split.lengths, trips.lengths)
    assert_same(split.trips(), trips)
    if len(trips):
        which = data.draw(st.lists(st.integers(0, len(trips) - 1)))
        assert_same(split.trips(which), trips.select(np.array(which, np.int64)))
    shards = list(split.shards())
    if shards:
        assert_same(concat_trips(shards), trips)
    assert len(dataset.split("train")) == len(dataset.split("test")) == 0


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_part_of_the_training_trips(tmp_path_factory, data):
    trips = data.draw(any_trips(GRID, most=10).filter(len))
    splits = {"train": shards_of(trips, data.draw(st.integers(1, 4))), "test": shards_of(trips)}
    whole = write(tmp_path_factory.mktemp("part") / "a", splits)
    numbers = st.lists(st.integers(0, len(trips) - 1), unique=True, min_size=1)
    which = np.array(data.draw(numbers), np.int64)
    few = whole.with_train(which)
    wanted = trips.select(which)
    split = few.split("train")
    assert (len(split), split.n_steps) == (len(wanted), wanted.n_fixes)
    assert few.info == whole.info
    np.testing.assert_array_equal(split.lengths, wanted.lengths)
    assert_same(split.trips(), wanted)
    assert_same(concat_trips(list(split.shards())), wanted)
    assert_same(split.trips([len(which) - 1, 0]), wanted.select([len(which) - 1, 0]))
    assert_same(split.part([0]).trips(), wanted.select([0]))  # a part of a part
    with pytest.raises(IndexError, match=f"0 to {len(which) - 1}"):
        split.trips([len(which)])
    assert_same(few.split("test").trips(), trips)
    assert_same(whole.split("train").trips(), trips)  # is left as it was


def test_a_dataset_opened_again_says_the_same(tmp_path):
    facts = {"dropped": {"too_short": 2}, "config": {"clean": {"min_fixes": 5}, "name": "ã"}, "source": "trips.csv"}
    dataset = write(tmp_path / "a", {"train": [made_trips(GRID, [5, 6])]}, **facts)
    again = Dataset(tmp_path / "a")
    assert again.info == dataset.info
    assert again.network.hash == GRID.hash
    assert {name: getattr(again.info, name) for name in facts} == facts
    assert repr(again).endswith("trips: 2 train, 0 valid, 0 test)")
    write(tmp_path / "b", {"train": [made_trips(GRID, [5, 6])]}, **facts)
    for file in (path for path in (tmp_path / "a").rglob("*") if path.is_file()):
        assert file.read_bytes() == (tmp_path / "b" / file.relative_to(tmp_path / "a")).read_bytes()


def test_steps_are_mapped_not_loaded(tmp_path):
    split = write(tmp_path / "a", {"train": [made_trips(GRID, [50])]}).split("train")
    assert isinstance(split._shards[0]["lon"].base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        split._shards[0]["lon"][0] = 0.0


def test_a_trip_that_is_not_there(tmp_path):
    split = write(tmp_path / "a", {"train": [made_trips(GRID, [5, 6])]}).split("train")
    for which in ([2], [-1]):
        with pytest.raises(IndexError, match="0 to 1"):
            split.trips(which)


def test_shards_have_the_size_asked_for():
    trips = made_trips(GRID, [1] * 10)
    assert [len(part) for part in shards_of(trips, 4)] == [4, 4, 2]
    assert [len(part) for part in shards_of(trips)] == [10]
    assert list(shards_of(trips.select([]))) == []
    assert SHARD_TRIPS > 1000


def test_trips_that_are_not_prepared_leave_nothing_behind(tmp_path):
    trips = made_trips(GRID, [5, 6])
    late = trips.time.copy()
    late[3] += 1
    empty = trips.keep_fixes(np.arange(11) < 5)
    for bad, problem in (
        (trips.replace(segment=None), "segment"),
        (trips.replace(time=late), "15 s apart"),
        (empty, "one step"),
    ):
        with pytest.raises(ValueError, match=problem):
            write(tmp_path / "a", {"train": [trips], "test": [bad]})
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "a", {name: [made_trips(GRID, [5, 60])] for name in SPLITS})
    return tmp_path / "a"


def test_folders_that_are_no_datasets(tmp_path, folder):
    with pytest.raises(InputError, match="no such folder"):
        Dataset(tmp_path / "none")
    with pytest.raises(InputError, match=r"dataset\.json"):
        Dataset(folder / "train")


@pytest.mark.parametrize("name", ["lon", "segment", "start", "offset", "id_text"])
def test_a_damaged_array_is_named(folder, name):
    file = folder / "test" / "00000" / f"{name}.npy"
    whole = file.read_bytes()
    for damage in (whole[:-1], whole[:20], b"", b"not an array" * 20):
        file.write_bytes(damage)
        with pytest.raises(InputError, match=f"{name}.npy"):
            Dataset(folder)
    file.unlink()
    with pytest.raises(InputError, match=f"{name}.npy"):
        Dataset(folder)


def test_arrays_of_another_type_or_size(folder):
    file = folder / "train" / "00000" / "lon.npy"
    lon = np.load(file)
    np.save(file, lon.astype(np.float32))
    with pytest.raises(InputError, match="float32"):
        Dataset(folder)
    np.save(file, lon[:-1])
    with pytest.raises(InputError, match="do not fit together"):
        Dataset(folder)
    np.save(file, np.array([{}] * len(lon), object), allow_pickle=True)
    with pytest.raises(InputError, match=r"lon\.npy"):
        Dataset(folder)


def test_another_network_or_split_is_noticed(folder):
    make_grid(3, 3).save(folder / "network.npz")
    with pytest.raises(InputError, match="was made with"):
        Dataset(folder).network  # noqa: B018
    shutil.copytree(folder / "train" / "00000", folder / "train" / "00001")
    info = json.loads((folder / "dataset.json").read_text())
    info["splits"]["train"]["shards"] = 2
    (folder / "dataset.json").write_text(json.dumps(info))
    with pytest.raises(InputError, match="4 trips and 130 steps, not 2 and 65"):
        Dataset(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 1}', '{"schema": 99}', '{"schema": 1, "splits": 3}'])
def test_descriptions_that_say_nothing(folder, text):
    (folder / "dataset.json").write_text(text)
    with pytest.raises(InputError, match=r"dataset\.json"):
        Dataset(folder)


# ---------------------------------------------------------------------- folders that are whole or absent


def test_a_folder_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "new" / "dataset"
    with replacing_folder(path) as beside:
        (beside / "part").write_text("x")
        assert beside.parent == path.parent
        assert not path.exists()
    assert (path / "part").read_text() == "x"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_a_folder_that_fails_leaves_nothing(tmp_path, fault):
    def fail():
        with replacing_folder(tmp_path / "a") as beside:
            (beside / "deep").mkdir()
            raise fault

    with pytest.raises(fault):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_places_that_are_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    with replacing_folder(tmp_path / "empty") as beside:
        (beside / "x").write_text("x")
    assert (tmp_path / "empty" / "x").exists()
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "empty", tmp_path / "file"):
        with pytest.raises(OutputError, match="exists already"), replacing_folder(path):
            pass
    assert (tmp_path / "file").read_text() == "kept"
    with pytest.raises(OutputError, match="cannot be written"), replacing_folder(tmp_path / "file" / "below"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]
