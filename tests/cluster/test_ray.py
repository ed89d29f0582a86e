"""The stages on a Ray cluster of two workers: the bytes of the local run, also where a worker is killed on the way."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

from tedtrajrec.cluster.parts import match_parts, recover_parts
from tedtrajrec.cluster.pool import RayPool, ray_pool
from tedtrajrec.config import load_config
from tedtrajrec.data import prepare
from tedtrajrec.data.prepare import PrepareConfig, prepare_dataset
from tedtrajrec.errors import ConfigError, InputError, OutputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery import stream
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.recovery.stream import recover_file
from tedtrajrec.stages import match_file
from tedtrajrec.threads import Over, processors
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.writers import write_trips

SETTINGS = load_config(PrepareConfig, None, ["time_zone=Europe/Berlin"])


class Deadly:
    """A function whose worker is killed (SIGKILL) in the midst of its third item, once."""

    def __init__(self, function: Callable[[Any], Any], marker: Path) -> None:
        self.function, self.marker = function, marker

    def __call__(self, item: Any) -> Any:
        result = self.function(item)
        begun = self.marker.with_name("begun")
        with begun.open("a") as file:
            file.write("x")
        if begun.stat().st_size >= 3 and not self.marker.exists():
            self.marker.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return result


def deadly(pool: RayPool, marker: Path) -> Over:
    def over(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        return pool.map(Deadly(function, marker), items)

    return over


@pytest.fixture
def over(pool: RayPool, tmp_path: Path) -> Iterator[Over]:
    """Go through items on the cluster, where a worker is killed on the way."""
    marker = tmp_path / "killed"
    yield deadly(pool, marker)
    assert int(marker.read_text()) != os.getpid()


@pytest.fixture(autouse=True)
def many_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "CHUNK_FIXES", 400)
    monkeypatch.setattr(stream, "CHUNK_FIXES", 400)


@pytest.fixture(scope="session")
def recoverer(city: RoadNetwork) -> Recoverer:
    return Recoverer.from_network(city, time_zone="Europe/Berlin")


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def same_parts(found: Path, expected: Path) -> None:
    """Check that folders have the same parts: rows, order and types."""
    names = sorted(path.name for path in expected.iterdir())
    assert sorted(path.name for path in found.iterdir()) == names
    for name in names:
        if name.endswith(".parquet"):
            one, two = pl.read_parquet(found / name), pl.read_parquet(expected / name)
            assert one.schema == two.schema
            assert one.equals(two)
        assert (found / name).read_bytes() == (expected / name).read_bytes()


def test_prepare_parts_with_a_worker_killed(over: Over, network_file: Path, trip_folder: Path, tmp_path: Path) -> None:
    here = prepare_dataset(trip_folder, network_file, tmp_path / "here", SETTINGS)
    there = prepare_dataset(trip_folder, network_file, tmp_path / "there", SETTINGS, over=over)
    assert sum(split.trips for split in there.splits.values()) > 40
    assert str(here) == str(there)
    assert bytes_of(tmp_path / "here") == bytes_of(tmp_path / "there")
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "there", "begun", "killed"}


def test_match_parts(pool: RayPool, network_file: Path, trip_folder: Path, tmp_path: Path) -> None:
    here = match_parts(trip_folder, tmp_path / "here", network=network_file)
    there = match_parts(trip_folder, tmp_path / "there", network=network_file, over=pool.map)
    assert (here.trips, str(here)) == (60, str(there))
    same_parts(tmp_path / "there", tmp_path / "here")
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == [f"part-{i}.parquet" for i in range(5)]


def test_recover_parts_with_a_worker_killed(
    over: Over, recoverer: Recoverer, trip_folder: Path, tmp_path: Path
) -> None:
    here = recover_parts(trip_folder, tmp_path / "here", recoverer, step_s=30)
    there = recover_parts(trip_folder, tmp_path / "there", recoverer, step_s=30, over=over)
    assert here.trips > 50
    assert str(here).replace("here", "there") == str(there)
    same_parts(tmp_path / "there", tmp_path / "here")


def test_one_file(pool: RayPool, recoverer: Recoverer, network_file: Path, trip_file: Path, tmp_path: Path) -> None:
    for name, over in {"here": map, "there": pool.map}.items():
        folder = tmp_path / name
        recover_file(trip_file, folder / "recovered.parquet", recoverer, summary=folder / "trips.csv", over=over)
        match_file(trip_file, folder / "matched.parquet", network=network_file, routes=folder / "r.csv", over=over)
        prepare_dataset(trip_file, network_file, folder / "dataset", SETTINGS, over=over)
    assert bytes_of(tmp_path / "here") == bytes_of(tmp_path / "there")
    assert len(bytes_of(tmp_path / "here")) >= 4


def test_a_part_is_that_of_its_file_alone(network_file: Path, trip_folder: Path, tmp_path: Path) -> None:
    match_parts(trip_folder, tmp_path / "all", network=network_file)
    match_file(trip_folder / "part-1.parquet", tmp_path / "one.parquet", network=network_file)
    assert (tmp_path / "all" / "part-1.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


def test_interrupted_it_goes_on(network_file: Path, trip_folder: Path, tmp_path: Path) -> None:
    done: list[object] = []

    def some(function: Callable[[Any], Any], items: Iterable[Any], /) -> Iterator[Any]:
        for item in items:
            if len(done) == 3:
                raise KeyboardInterrupt
            done.append(item)
            yield function(item)

    with pytest.raises(KeyboardInterrupt):
        match_parts(trip_folder, tmp_path / "out", network=network_file, over=some)
    assert not (tmp_path / "out").exists()
    done.clear()
    again = match_parts(trip_folder, tmp_path / "out", network=network_file, over=some)
    assert (again.trips, len(done)) == (60, 2)
    match_parts(trip_folder, tmp_path / "whole", network=network_file)
    same_parts(tmp_path / "out", tmp_path / "whole")
    with pytest.raises(OutputError, match="exists already"):
        match_parts(trip_folder, tmp_path / "out", network=network_file)


def test_faults_are_told_as_they_are_here(pool: RayPool, network_file: Path, driven: Trips, tmp_path: Path) -> None:
    parts = tmp_path / "parts"
    parts.mkdir()
    write_trips(driven.select([0, 1]), parts / "a.parquet")
    (parts / "b.parquet").write_text("no Parquet")
    told = []
    for over in (map, pool.map):
        with pytest.raises(InputError) as error:
            match_parts(parts, tmp_path / "out", network=network_file, over=over)
        told.append(str(error.value))
    assert told[0] == told[1]
    assert "b.parquet" in told[0]
    (parts / "b.parquet").unlink()
    write_trips(driven.select([2, 1]), parts / "c.parquet")
    with pytest.raises(InputError, match=r"c\.parquet: trip .* is in another part too"):
        prepare_dataset(parts, network_file, tmp_path / "dataset", SETTINGS)
    (parts / "a.parquet").unlink()
    (parts / "c.parquet").unlink()
    with pytest.raises(InputError, match="no Parquet file in this folder"):
        match_parts(parts, tmp_path / "out", network=network_file)


def test_items_are_taken_as_they_are_needed(pool: RayPool) -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for number in range(20):
            taken.append(number)
            yield number

    results = pool.map(str, items())
    assert next(results) == "0"
    assert len(taken) <= 2 * pool.processors
    assert list(results) == [str(number) for number in range(1, 20)]


def test_a_task_uses_one_processor(pool: RayPool) -> None:
    assert list(pool.map(lambda _: processors(), range(2))) == [1, 1]


def test_no_cluster_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**settings: object) -> None:
        raise ConnectionError(f"nobody answers at {settings['address']}")

    monkeypatch.setattr("tedtrajrec.cluster.pool.load_optional", lambda *_: SimpleNamespace(init=init))
    told = r"no Ray cluster at head:6379 \(nobody answers at head:6379\)\. Start one with"
    with pytest.raises(ConfigError, match=told), ray_pool("head:6379"):
        pass
