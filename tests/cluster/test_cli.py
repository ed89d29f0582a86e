"""The option --ray and folders of parts on the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tedtrajrec.cli import main
from tedtrajrec.cluster import pool as pools
from tedtrajrec.cluster.pool import RayPool


@pytest.fixture(autouse=True)
def joined(pool: RayPool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the option lead to the cluster that is there, and return the addresses asked for."""
    asked: list[str] = []

    @contextlib.contextmanager
    def connect(address: str) -> Iterator[RayPool]:
        asked.append(address)
        yield pool

    monkeypatch.setattr(pools, "ray_pool", connect)
    return asked


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_stages_here_and_on_ray(
    joined: list[str], network_file: Path, trip_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ("--network", network_file)
    for name, ray in {"here": [], "there": ["--ray", "head:6379"]}.items():
        assert run("match", trip_folder, *network, "-o", tmp_path / name / "matched", *ray) == 0
        assert run("recover", trip_folder, *network, "-o", tmp_path / name / "recovered", *ray) == 0
        data = ("--timezone", "Europe/Berlin", "-o", tmp_path / name / "dataset")
        assert run("prepare", trip_folder, *network, *data, *ray) == 0
    assert joined == ["head:6379"] * 3
    files = [path.relative_to(tmp_path / "here") for path in (tmp_path / "here").rglob("*") if path.is_file()]
    assert len(files) > 15
    for file in files:
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes(), file
    told = capsys.readouterr().out
    assert told.count("60 trips; fixes:") == 2


def test_what_cannot_be(
    network_file: Path, trip_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network = ("--network", network_file, "-o", tmp_path / "out")
    assert run("match", trip_folder, *network, "--routes", tmp_path / "routes.csv") == 2
    assert "leave out --routes" in capsys.readouterr().err
    assert run("recover", trip_folder, *network, "--summary", tmp_path / "trips.csv") == 2
    assert "is a folder of parts" in capsys.readouterr().err
    assert run("recover", trip_folder, *network, "--ray", "local", "--device", "cuda") == 2
    assert "On Ray, trips are recovered on processors" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
