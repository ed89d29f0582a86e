"""From a file of trips to a dataset, on a made-up city."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tedtrajrec.config import load_config
from tedtrajrec.data import prepare
from tedtrajrec.data.dataset import SPLITS, Dataset
from tedtrajrec.data.prepare import PrepareConfig, prepare_dataset
from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, as_text, concat_trips
from tedtrajrec.trips.writers import write_trips

TRIPS = 90


@pytest.fixture(scope="module")
def city() -> RoadNetwork:
    return synthetic_city(size="small")


@pytest.fixture(scope="module")
def driven(city: RoadNetwork) -> Trips:
    return simulate_trips(city, trips=TRIPS, step_s=15, seed=1, workers=1)


@pytest.fixture(scope="module")
def trip_file(driven: Trips, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trips") / "trips.parquet"
    write_trips(driven, path)
    return path


@pytest.fixture(autouse=True)
def many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "CHUNK_FIXES", 700)


def settings(*overrides: str) -> PrepareConfig:
    return load_config(PrepareConfig, None, ["time_zone=Europe/Berlin", *overrides])


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def all_trips(dataset: Dataset) -> dict[str, Trips]:
    return {
        name: trips.select([i])
        for split in SPLITS
        for trips in [dataset.split(split).trips()]
        for i, name in enumerate(trips.traj_id.tolist())
    }


def test_given_truth_is_kept_as_it_is(city: RoadNetwork, driven: Trips, trip_file: Path, tmp_path: Path) -> None:
    summary = prepare_dataset(trip_file, city, tmp_path / "ds", settings())
    dataset = Dataset(tmp_path / "ds")
    found = all_trips(dataset)
    assert dataset.network.hash == city.hash
    assert summary.splits == dataset.info.splits
    assert dataset.info.source == "trips.parquet"
    sizes = [len(dataset.split(name)) for name in SPLITS]
    assert sum(sizes) == len(found) > 0.8 * TRIPS
    np.testing.assert_allclose(sizes, np.array([0.7, 0.1, 0.2]) * sum(sizes), atol=1)
    of_id = {name: driven.select([i]) for i, name in enumerate(driven.traj_id.tolist())}
    for name, trip in found.items():
        source = of_id[name.partition("#")[0]]
        rows = np.searchsorted(source.time, trip.time)
        assert source.time[rows].tolist() == trip.time.tolist()
        has_fix = np.isfinite(trip.lon)
        assert source.lon[rows][has_fix].tolist() == trip.lon[has_fix].tolist()
        known = np.asarray(trip.segment) >= 0
        assert known[[0, -1]].all()
        assert has_fix[[0, -1]].all()
        assert np.asarray(source.segment)[rows][known].tolist() == np.asarray(trip.segment)[known].tolist()


def test_matched_truth_is_near_the_true_one(city: RoadNetwork, trip_file: Path, tmp_path: Path) -> None:
    prepare_dataset(trip_file, city, tmp_path / "given", settings())
    prepare_dataset(trip_file, city, tmp_path / "match", settings("truth.source=match"))
    given, match = (all_trips(Dataset(tmp_path / name)) for name in ("given", "match"))
    both = given.keys() & match.keys()
    assert len(both) > 0.8 * TRIPS
    right = total = 0
    for name in both:
        a, b = given[name], match[name]
        times, i, j = np.intersect1d(a.time, b.time, return_indices=True)
        right += int((np.asarray(a.segment)[i] == np.asarray(b.segment)[j]).sum())
        total += len(times)
    assert right / total > 0.85


def test_every_trip_is_accounted_for(city: RoadNetwork, driven: Trips, tmp_path: Path) -> None:
    # Besides good trips: one far away, one too short, one repeated under another name.
    far = driven.select([0]).replace(traj_id=as_text(["far"]), lon=driven.select([0]).lon + 3)
    short = driven.select([1]).replace(traj_id=as_text(["short"]))
    short = short.keep_fixes(np.arange(short.n_fixes) < 3)
    again = driven.select([2]).replace(traj_id=as_text(["again"]))
    source = tmp_path / "trips.csv"
    write_trips(concat_trips([driven, far, short, again]), source)
    summary = prepare_dataset(source, city, tmp_path / "ds", settings("truth.source=match"))
    kept = sum(split.trips for split in summary.splits.values())
    assert summary.cleaned.trips_in == TRIPS + 3
    assert TRIPS + 3 + sum(summary.cleaned.cuts.values()) == kept + sum(summary.dropped.values())
    assert "repeated trip" in str(summary)
    with (tmp_path / "ds" / "rejects.csv").open() as file:
        rows = list(csv.DictReader(file))
    trips = [row for row in rows if row["position"] == "-1"]
    assert Counter(row["reason"] for row in trips) == Counter(summary.dropped)
    assert {row["traj_id"]: row["reason"] for row in trips if row["traj_id"] in ("far", "short", "again")} == {
        "far": "nothing_left",
        "short": "below_min_duration",
        "again": "repeated_trip",
    }
    assert Counter(row["reason"] for row in rows if row["position"] != "-1") == Counter(summary.cleaned.fixes_dropped)


def test_training_trips_that_share_fixes_with_others_go(city: RoadNetwork, driven: Trips, tmp_path: Path) -> None:
    longest = np.argsort(-driven.lengths, kind="stable")[:12]
    trips = driven.select(np.sort(longest))
    split = np.array(["train"] * 6 + ["valid"] * 3 + ["test"] * 3)
    test = trips.select([11])
    # Two training trips made of a test trip: one shares all but its first fixes, one shares four.
    near = test.keep_fixes(np.arange(test.n_fixes) >= 2).replace(traj_id=as_text(["near"]))
    far = test.replace(traj_id=as_text(["far"]), lon=np.where(np.arange(test.n_fixes) < 4, test.lon, test.lon + 1e-5))
    joined = concat_trips([trips, near, far])
    words = as_text(np.concatenate([split, ["train", "train"]]))
    source = tmp_path / "trips.parquet"
    write_trips(joined.replace(trip_extra={"part": words}), source)
    config = settings("split.by=column", "split.column=part", "drop.max_unknown=1.0")
    summary = prepare_dataset(source, city, tmp_path / "ds", config)
    dataset = Dataset(tmp_path / "ds")
    ids = {name: set(dataset.split(name).trips().traj_id.tolist()) for name in SPLITS}
    assert summary.dropped == {"shared_fixes": 1}
    assert "near" not in ids["train"]
    assert "far" in ids["train"]
    assert (len(ids["train"]), len(ids["valid"]), len(ids["test"])) == (7, 3, 3)


def test_edge_ids_and_filling(city: RoadNetwork, driven: Trips, tmp_path: Path) -> None:
    keep = np.arange(driven.n_fixes) % 9 != 4
    edge = np.ma.MaskedArray(city.source_id[np.asarray(driven.segment)], ~keep)
    ratio = np.where(keep, driven.ratio, np.nan)
    source = tmp_path / "trips.csv"
    write_trips(driven.replace(segment=None, ratio=ratio, extra={"edge": edge}), source)
    unknown = {}
    for rematch in ("false", "true"):
        config = settings("truth.edge_column=edge", f"truth.rematch={rematch}")
        prepare_dataset(source, city, tmp_path / rematch, config)
        found = concat_trips(list(all_trips(Dataset(tmp_path / rematch)).values()))
        unknown[rematch] = (np.asarray(found.segment) < 0).mean()
    assert 0.08 < unknown["false"] < 0.14
    assert unknown["true"] < 0.01


def test_by_day(city: RoadNetwork, driven: Trips, tmp_path: Path) -> None:
    noon = 1_700_049_600
    at_noon = driven.time - driven.time[driven.offsets[:-1]][driven.trip_of_fix] + noon
    day = np.arange(len(driven)) % 10
    write_trips(driven.replace(time=at_noon + day[driven.trip_of_fix] * 86_400), tmp_path / "ten.parquet")
    write_trips(driven.replace(time=at_noon), tmp_path / "one.parquet")
    prepare_dataset(tmp_path / "ten.parquet", city, tmp_path / "ds", settings("split.by=day", "split.seed=4"))
    dataset = Dataset(tmp_path / "ds")
    days = [set((dataset.split(name).trips().time // 86_400).tolist()) for name in SPLITS]
    assert [len(of_split) for of_split in days] == [7, 1, 2]
    assert len(set.union(*days)) == 10
    with pytest.raises(InputError, match="too few for 3 splits"):
        prepare_dataset(tmp_path / "one.parquet", city, tmp_path / "one", settings("split.by=day"))


class _Interrupted(BaseException):
    """Stands for the end of the process."""


def test_interrupted_after_any_part_the_bytes_are_the_same(
    city: RoadNetwork, trip_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings("truth.source=match")
    prepare_dataset(trip_file, city, tmp_path / "whole", config, workers=2)
    expected = bytes_of(tmp_path / "whole")
    output = tmp_path / "ds"
    steps: list[str] = []

    def stop_once(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            steps.append(name)
            if steps.count(name) in (1, 3):
                raise _Interrupted
            return result

        monkeypatch.setattr(owner, name, call)

    stop_once(prepare.Work, "save")
    stop_once(prepare.Work, "note_all_read")
    stop_once(prepare, "assemble")
    stop_once(prepare, "_put_in_place")
    for run in range(1, 20):
        try:
            summary = prepare_dataset(trip_file, city, output, config, workers=run % 2 + 1)
        except _Interrupted:
            continue
        break
    assert run == 6
    assert summary.notes == (f"{output} is there already",)
    assert bytes_of(output) == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ds", "whole"]


def test_a_finished_dataset_is_not_made_again(city: RoadNetwork, trip_file: Path, tmp_path: Path) -> None:
    output = tmp_path / "ds"
    first = prepare_dataset(trip_file, city, output, settings())
    before = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    again = prepare_dataset(trip_file, city, output, settings())
    assert (again.splits, again.dropped) == (first.splits, first.dropped)
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == before
    with pytest.raises(OutputError, match="other settings"):
        prepare_dataset(trip_file, city, output, settings("split.seed=1"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    with pytest.raises(OutputError, match="is no dataset"):
        prepare_dataset(trip_file, city, tmp_path / "full", settings())


def test_parts_of_other_settings_are_not_used(
    city: RoadNetwork, trip_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(prepare, "assemble", lambda *_: (_ for _ in ()).throw(_Interrupted))
        with pytest.raises(_Interrupted):
            prepare_dataset(trip_file, city, tmp_path / "ds", settings("truth.max_distance_m=1"))
    summary = prepare_dataset(trip_file, city, tmp_path / "ds", settings())
    assert "started over" in summary.notes[0]
    prepare_dataset(trip_file, city, tmp_path / "straight", settings())
    assert bytes_of(tmp_path / "ds") == bytes_of(tmp_path / "straight")


def test_no_place_and_no_time_in_the_dataset(city: RoadNetwork, trip_file: Path, tmp_path: Path) -> None:
    prepare_dataset(trip_file, city, tmp_path / "ds", settings(), rejects=tmp_path / "lost" / "list.csv")
    text = (tmp_path / "ds" / "dataset.json").read_text()
    assert str(tmp_path) not in text
    assert json.loads(text)["config"]["split"] == {
        "by": "trip",
        "column": "split",
        "shares": [0.7, 0.1, 0.2],
        "seed": 0,
    }
    assert (tmp_path / "lost" / "list.csv").exists()
    assert not (tmp_path / "ds" / "rejects.csv").exists()


def test_unreadable_rows_are_listed_only_when_asked_for(city: RoadNetwork, trip_file: Path, tmp_path: Path) -> None:
    source = tmp_path / "trips.csv"
    write_trips(read_trips(trip_file), source)
    lines = source.read_text().splitlines()
    lines.insert(3, "sim-000000,never,1,1,0,0.5")
    source.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match="row 3"):
        prepare_dataset(source, city, tmp_path / "ds", settings())
    prepare_dataset(source, city, tmp_path / "ds", settings(), rejects=tmp_path / "list.csv")
    with (tmp_path / "list.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["row"]]
    assert [row["row"] for row in rows] == ["3"]


def test_impossible_requests(city: RoadNetwork, trip_file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="time zone of the trips is not given"):
        prepare_dataset(trip_file, city, tmp_path / "ds", PrepareConfig())
    with pytest.raises(ConfigError, match="no time zone 'Mars'"):
        prepare_dataset(trip_file, city, tmp_path / "ds", PrepareConfig(time_zone="Mars"))
    with pytest.raises(InputError, match="no trip is left"):
        prepare_dataset(trip_file, city, tmp_path / "ds", settings("drop.min_steps=9999"))
    plain = tmp_path / "plain.csv"
    write_trips(read_trips(trip_file).replace(segment=None, ratio=None), plain)
    with pytest.raises(InputError, match="no column segment"):
        prepare_dataset(plain, city, tmp_path / "ds2", settings("truth.source=given"))
    with pytest.raises(OutputError, match="also the file of trips"):
        prepare_dataset(plain, city, tmp_path / "ds3", settings(), rejects=plain)
    with pytest.raises(OutputError, match="in the dataset"):
        prepare_dataset(plain, city, tmp_path / "ds3", settings(), rejects=tmp_path / "ds3" / "rejects.csv")
    assert not list(tmp_path.glob("ds*/dataset.json"))


def test_fixes_too_sparse_to_learn_from_are_told(city: RoadNetwork, driven: Trips, tmp_path: Path) -> None:
    told = "A dataset is made of past trips with a fix every step or two"
    dense = np.isin(driven.trip_of_fix, np.argsort(-driven.lengths)[:10])
    every_eighth = np.arange(driven.n_fixes) % 8 == 0
    for kept, name in ((every_eighth | dense, "some"), (every_eighth, "none")):
        trips = driven.keep_fixes(kept).replace(segment=None, ratio=None)
        write_trips(trips, tmp_path / f"{name}.csv")
    summary = prepare_dataset(tmp_path / "some.csv", city, tmp_path / "dataset", settings())
    assert summary.dropped["unknown_truth"] > TRIPS / 2
    assert told in str(summary)
    with pytest.raises(InputError, match=told):
        prepare_dataset(tmp_path / "none.csv", city, tmp_path / "nothing", settings())
