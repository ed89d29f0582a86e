"""One run at a time on an output, whatever became of earlier ones."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tedtrajrec.errors import OutputError
from tedtrajrec.work import WorkFolder, only_run

HOLDER = """
import sys, time
from pathlib import Path
from tedtrajrec.work import only_run
with only_run(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_told_who_has_the_output_and_a_dead_one_holds_nothing(tmp_path: Path) -> None:
    output = tmp_path / "new" / "recovered.parquet"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(output)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        told = rf"recovered.parquet is being made by another run \(process {holder.pid}\); wait"
        with pytest.raises(OutputError, match=told), only_run(output):
            pass
        with only_run(output.with_name("other.parquet")):  # another output is no concern of it
            pass
        holder.kill()
    with only_run(output):
        assert (output.parent / ".recovered.parquet.lock").read_text() == str(os.getpid())
    assert list(output.parent.iterdir()) == []


def test_right_after_a_kill_the_output_is_free(tmp_path: Path) -> None:
    """A killed process keeps its lock until its memory is taken apart, some 15 ms, though nobody waits for it."""
    output = tmp_path / "recovered.parquet"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(output)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        holder.kill()
        with only_run(output):  # before anyone has asked whether it has ended
            pass


def test_an_output_that_becomes_free_in_time_is_waited_for(tmp_path: Path) -> None:
    held, ended = threading.Event(), threading.Event()

    def hold() -> None:
        with only_run(tmp_path / "a.csv"):
            held.set()
            time.sleep(0.3)
            ended.set()

    other = threading.Thread(target=hold)
    other.start()
    held.wait()
    with only_run(tmp_path / "a.csv"):
        assert ended.is_set()
    other.join()


def test_an_error_within_gives_the_output_free(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), only_run(tmp_path / "a.csv"):
        raise ZeroDivisionError
    with only_run(tmp_path / "a.csv"), pytest.raises(OutputError, match="another run"), only_run(tmp_path / "a.csv"):
        pass


def test_a_place_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"), only_run(tmp_path / "file" / "a.csv"):
        pass


def test_parts_of_another_recipe_go_and_foreign_files_stay(tmp_path: Path) -> None:
    folder = tmp_path / "out.parts"
    work = WorkFolder(folder, {"step": 15}, ours=r"\d\.json")
    assert (work.is_new, work.was_other, work.all_read) == (True, False, None)
    (folder / "1.json").touch()
    work.note_all_read({"rows": 3})
    again = WorkFolder(folder, {"step": 15}, ours=r"\d\.json")
    assert (again.is_new, again.all_read) == (False, {"rows": 3})
    other = WorkFolder(folder, {"step": 30}, ours=r"\d\.json")
    assert (other.is_new, other.was_other, other.all_read) == (True, True, None)
    assert [path.name for path in folder.iterdir()] == ["recipe.json"]
    (folder / "thesis.doc").touch()
    with pytest.raises(OutputError, match="not ours"):
        WorkFolder(folder, {"step": 60}, ours=r"\d\.json")
    assert (folder / "thesis.doc").exists()
