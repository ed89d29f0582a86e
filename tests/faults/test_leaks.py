"""What saved files tell of the machine and of people: no path, no trace, no raw id or key where ids are hashed."""

from __future__ import annotations

import gzip
import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow.parquet
import pytest

import tedtrajrec
from tedtrajrec.cli import main
from tedtrajrec.recovery import stream
from tedtrajrec.recovery.recoverer import Recoverer

KEY = "a key that no file may hold, 4711"
TINY = " ".join(
    f"--set {setting}"
    for setting in (
        *("model.d=16", "model.heads=2", "model.width=16", "model.hidden=16", "model.encoder_layers=1"),
        *("model.step_layers=1", "model.road_layers=1", "model.most=32", "train.batch=16", "train.epochs=1"),
    )
)
COMMANDS = f"""
clean {{0}}/trips.csv --rejects {{1}}/rejects.csv -o {{1}}/clean.csv.gz
match {{0}}/trips.csv --network {{0}}/city.npz --routes {{1}}/routes.geojson -o {{1}}/matched.parquet
thin {{0}}/trips.csv -o {{1}}/sparse.gpx
prepare {{0}}/trips.csv --network {{0}}/city.npz --timezone UTC -o {{1}}/prepared
data pack {{1}}/prepared -o {{1}}/packed.zip
train tedtrajrec_parallel {{0}}/dataset -o {{1}}/run --device cpu {TINY}
evaluate {{1}}/run {{0}}/dataset -o {{1}}/metrics --steps
report {{1}}/metrics -o {{1}}/report
export {{1}}/run --dataset {{0}}/dataset -o {{1}}/model
recover {{0}}/sparse.csv --model {{1}}/model --summary {{1}}/summary.csv -o {{1}}/recovered.parquet
map {{1}}/recovered.parquet --network {{0}}/city.npz --sparse {{0}}/sparse.csv -o {{1}}/map.html
"""


def unpacked(path: Path) -> bytes:
    """Return all that a file holds, archives and columns unpacked."""
    data = path.read_bytes()
    if data.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return b"\n".join([data, *(archive.read(name) for name in archive.namelist())])
    if data.startswith(b"\x1f\x8b"):
        return gzip.decompress(data)
    if path.suffix == ".parquet":
        metadata = str(pyarrow.parquet.read_metadata(path).metadata)
        return b"\n".join([data, metadata.encode(), pl.read_parquet(path).write_ndjson().encode()])
    return data


def run(line: str, *folders: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        main([word.format(*folders) for word in line.split()])
    assert stop.value.code == 0, line


def assert_tells_nothing_of(secrets: list[str], folder: Path) -> None:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        content = unpacked(path)
        for secret in secrets:
            assert secret.encode() not in content, f"{path.name} holds {secret}"


def test_saved_files_hold_no_path_of_this_machine(inputs: Path, tmp_path: Path) -> None:
    given, made = tmp_path / "somebodys-private-folder" / "in", tmp_path / "somebodys-private-folder" / "out"
    shutil.copytree(inputs, given)
    made.mkdir()
    for line in COMMANDS.strip().splitlines():
        run(line, given, made)
    places = [tmp_path, Path.cwd(), Path.home(), Path(tedtrajrec.__file__).parent]
    secrets = [str(place) for place in places if len(place.parts) > 2]  # the home of root is part of many words
    assert_tells_nothing_of([*secrets, "somebodys-private-folder", "site-packages", "Traceback"], made)


@pytest.fixture
def named(inputs: Path, tmp_path: Path) -> Path:
    """Return sparse trips whose ids and extra column name people, and rows that cannot be read."""
    trips = pl.read_csv(inputs / "sparse.csv", schema_overrides={"traj_id": pl.String})
    trips = trips.with_columns(pl.format("anna-{}", "traj_id").alias("traj_id"), pl.lit("berta-1").alias("driver"))
    path = tmp_path / "named.csv"
    path.write_text(trips.write_csv() + "anna-x,soon" + "," * (trips.width - 3) + ",berta-2\n")
    return path


@pytest.mark.parametrize("suffix", ["csv", "parquet", "geojson", "gpx", "geoparquet"])
def test_hashed_ids_leave_no_raw_one_in_any_output(
    suffix: str, inputs: Path, named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setenv("TEDTRAJREC_HASH_KEY", KEY)
    out = tmp_path / "out"
    out.mkdir()
    line = f"recover {named} --network {{0}}/city.npz --hash-ids --summary {{1}}/s.csv -o {{1}}/r.{suffix}"
    run(line, inputs, out)
    said = capsys.readouterr()
    for secret in ("anna", "berta", KEY):
        assert secret not in said.out + said.err
    assert_tells_nothing_of(["anna", "berta", KEY], out)


def test_hashed_ids_leave_no_raw_one_in_work_that_was_interrupted(
    inputs: Path, named: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CHUNK_FIXES", 20)
    recoverer = Recoverer.from_network(inputs / "city.npz")
    out = tmp_path / "out"
    calls = _failing_at(3, recoverer.recover_trips)
    monkeypatch.setattr(recoverer, "recover_trips", calls)
    with pytest.raises(InterruptedError):
        stream.recover_file(named, out / "r.csv", recoverer, hash_key=KEY)
    assert_tells_nothing_of(["anna", "berta", KEY], out)


def _failing_at(number: int, function: Callable[..., object]) -> Callable[..., object]:
    calls = iter(range(1, number + 1))

    def call(*args: object, **options: object) -> object:
        if next(calls) == number:
            raise InterruptedError
        return function(*args, **options)

    return call
