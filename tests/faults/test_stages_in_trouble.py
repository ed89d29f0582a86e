"""Two commands on one output, a full disk, an input that cannot be read, a clock that goes back: message and state."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tedtrajrec import work
from tedtrajrec.cli import main
from tedtrajrec.work import only_run
from tests.faults.conftest import STAGES, files_below, told, words_of

MUCH = 40_000  # more than a page, less than what most stages write


@pytest.mark.parametrize("stage", STAGES)
def test_two_commands_on_one_output_exclude_each_other(
    stage: str, inputs: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "PATIENCE_S", 0.0)
    output = tmp_path / STAGES[stage][1]
    with only_run(output):
        said = told(words_of(stage, inputs, tmp_path), capsys)
        left = files_below(tmp_path)
    assert f"{output} is being made by another run (process {os.getpid()}); wait for it" in said
    assert left == [str(output.with_name(f".{output.name}.lock").relative_to(tmp_path))]
    assert files_below(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a disk of 40 kB, or, where none can be mounted, one where no file may be larger."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={MUCH}", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    with contextlib.ExitStack() as stack:
        if mounted:
            stack.callback(subprocess.run, ["umount", "-l", str(folder)], check=True)
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (MUCH, hard))
            stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, (soft, hard))
        yield folder


FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EFBIG))


@pytest.mark.parametrize(
    "stage", ["network build", "simulate", "match", "thin", "prepare", "data unpack", "train", "evaluate", "recover"]
)
def test_a_full_disk_is_said_and_nothing_half_written_is_left(
    stage: str, inputs: Path, small_disk: Path, capsys
) -> None:
    (small_disk / "filler").write_bytes(bytes(MUCH - 8192))  # one page is left
    said = told(words_of(stage, inputs, small_disk), capsys)
    assert "cannot be written" in said
    assert any(reason in said for reason in FULL), said
    kept = (".work/", ".parts/")  # finished parts of the work, from which the next run goes on
    left = [name for name in files_below(small_disk) if not any(part in name for part in kept)]
    assert left == ["filler"]
    (small_disk / "filler").unlink()


def test_what_was_there_before_a_full_disk_stays(inputs: Path, small_disk: Path, capsys) -> None:
    old = small_disk / "trips.parquet"
    old.write_bytes(bytes(MUCH - 8192))
    assert "cannot be written" in told(words_of("simulate", inputs, small_disk), capsys)
    assert old.read_bytes() == bytes(MUCH - 8192)


@contextlib.contextmanager
def without_rights() -> Iterator[None]:
    """Be somebody who may not read everything, if the tests run as root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("trips.csv", "clean {0}/trips.csv -o {1}/c.csv"),
        ("trips.csv", "match {0}/trips.csv --network {0}/city.npz -o {1}/m.parquet"),
        ("trips.csv", "prepare {0}/trips.csv --network {0}/city.npz --timezone UTC -o {1}/dataset"),
        ("sparse.csv", "recover {0}/sparse.csv --network {0}/city.npz -o {1}/r.parquet"),
        ("city.npz", "simulate --network {0}/city.npz --trips 3 -o {1}/t.csv"),
        ("trips.csv", "network build {0}/trips.csv -o {1}/n.npz"),
        ("dataset/test/00000/lon.npy", "evaluate linear_hmm {0}/dataset -o {1}/metrics"),
        ("dataset/dataset.json", "data info {0}/dataset"),
        ("packed.zip", "data unpack {0}/packed.zip -o {1}/dataset"),
        ("plan.toml", "benchmark {0}/plan.toml -o {1}/rows"),
    ],
)
def test_an_input_that_cannot_be_read_is_named(file: str, command: str, inputs: Path, capsys) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder, output = Path(name) / "in", Path(name) / "out"
        subprocess.run(["cp", "-r", str(inputs), str(folder)], check=True)
        output.mkdir()
        for path in (Path(name), folder, *folder.rglob("*"), output):
            path.chmod(0o777)
        (folder / file).chmod(0)
        with without_rights():
            said = told([word.format(folder, output) for word in command.split()], capsys)
        assert Path(file).name in said.split(": ")[1]
        assert "Permission denied" in said or "cannot be read" in said or "damaged" in said
        assert "cannot be written" not in said
        assert files_below(output) == []


@pytest.mark.parametrize("stage", ["prepare", "recover", "data pack", "train", "clean"])
def test_a_clock_that_goes_back_changes_nothing(stage: str, inputs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    contents = []
    now = time.time()
    for name in ("before", "after"):
        output = tmp_path / name
        output.mkdir()
        with pytest.raises(SystemExit) as stop:
            main(words_of(stage, inputs, output))
        assert stop.value.code == 0, capsys.readouterr().err
        contents.append({path: (output / path).read_bytes() for path in files_below(output)})
        monkeypatch.setattr(time, "time", _earlier)
    assert contents[0] == contents[1]
    assert time.time() < now


_NOW = [1e9]


def _earlier() -> float:
    """Return a time that is an hour before the one returned last."""
    _NOW[0] -= 3600
    return _NOW[0]
