"""A benchmark that is killed goes on, halves that were run apart are merged, and the report is the same."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tedtrajrec.cli import main
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.experiments.cells import run_plan
from tedtrajrec.experiments.plan import read_plan
from tedtrajrec.experiments.report import make_report
from tests.training.conftest import small_dataset  # noqa: F401  (a fixture)

PLAN = """
[datasets.city]
path = "nowhere"

[[cells]]
group = "performance"
methods = ["linear_hmm"]
datasets = ["city"]

[[cells]]
group = "performance"
methods = ["tedtrajrec"]
datasets = ["city"]
set = ["model.d=8", "model.heads=2", "model.width=8", "train.epochs=EPOCHS", "train.batch=8"]

[[cells]]
group = "robustness"
methods = ["linear_hmm"]
datasets = ["city"]
keeps = ["1/8", "1/4"]
"""
TIMES = {"date", "seconds", "recover_s", "trips_per_s", "trip_ms", "epoch_s"}
PLAIN, LEARNED = "performance-city-linear_hmm-1of8-0", "performance-city-tedtrajrec-1of8-0"


def write_plan(folder: Path, epochs: int) -> Path:
    (folder / "plan.toml").write_text(PLAN.replace("EPOCHS", str(epochs)))
    return folder / "plan.toml"


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def report_of(rows: Path, plan: Path, work: Path) -> str:
    """Return the report of a folder of rows, as it is apart from dates and times."""
    copy = work / "rows"
    shutil.copytree(rows / "trips", copy / "trips")
    for file in rows.glob("*.json"):
        (copy / file.name).write_text(json.dumps(without_times(json.loads(file.read_text()))))
    return make_report(copy, work / "report", plans=[plan]).with_suffix(".md").read_text("utf-8")


def benchmark(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 0
    return capsys.readouterr().out.splitlines()[0]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_benchmark_goes_on_and_ends_in_the_same_report(
    tmp_path: Path,
    in_threads: None,  # noqa: ARG001
    no_pictures: None,  # noqa: ARG001
    small_dataset: Dataset,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    plan = write_plan(tmp_path, epochs=10)
    words = ["benchmark", str(plan), "--dataset", f"city={small_dataset.path}", "--device", "cpu", "-o"]
    killed, whole = tmp_path / "killed" / "rows", tmp_path / "whole" / "rows"
    history = killed / "runs" / LEARNED / "metrics.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "tedtrajrec", *words, str(killed)], start_new_session=True, stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 300
    while not history.exists() or len(history.read_text().splitlines()) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # with the process of the cell
    process.wait()
    assert [file.stem for file in killed.glob("*.json")] == [PLAIN]
    before, begun = (killed / f"{PLAIN}.json").read_bytes(), history.read_text()
    assert 2 <= len(begun.splitlines()) < 10

    assert benchmark([*words, str(killed)], capsys) == "4 cells (1 equal to others), 2 to do"
    assert (killed / f"{PLAIN}.json").read_bytes() == before
    assert history.read_text().startswith(begun.splitlines()[0])  # with its time: it was not done again
    assert benchmark([*words, str(whole)], capsys) == "4 cells (1 equal to others), 3 to do"
    report = report_of(killed, plan, tmp_path / "a")
    assert report == report_of(whole, plan, tmp_path / "b")
    assert "4 of 4 cells computed" in report


def test_halves_that_were_run_in_two_places_are_merged_by_copying(
    tmp_path: Path,
    in_threads: None,  # noqa: ARG001
    no_pictures: None,  # noqa: ARG001
    small_dataset: Dataset,  # noqa: F811
) -> None:
    file = write_plan(tmp_path, epochs=1)
    plan = read_plan(file, {"city": str(small_dataset.path)})
    said: list[str] = []
    whole, one, other = (tmp_path / name / "rows" for name in ("whole", "one", "other"))
    for folder, cells in ((whole, plan.cells), (one, plan.cells[:2]), (other, plan.cells[2:])):
        run_plan(dataclasses.replace(plan, cells=cells), folder, device="cpu", say=said.append)
    both = make_report([one, other], tmp_path / "both", plans=[file]).with_suffix(".md").read_text("utf-8")
    assert "4 of 4 cells computed" in both
    shutil.copytree(other, one, dirs_exist_ok=True)
    rows = run_plan(plan, one, device="cpu", say=said.append)
    assert said[-1] == "4 cells (1 equal to others), 0 to do"
    assert [row["cell"]["keep"] for row in rows] == ["1/8", "1/8", "1/8", "1/4"]
    # What both halves computed is the same work: the copy has a row for each, the whole one for both.
    assert (one / "robustness-city-linear_hmm-1of8-0.json").exists()
    assert not (whole / "robustness-city-linear_hmm-1of8-0.json").exists()
    merged, alone = report_of(one, file, tmp_path / "a"), report_of(whole, file, tmp_path / "b")
    assert tables(merged, "Performance", "Robustness") == tables(alone, "Performance", "Robustness")


def tables(report: str, *chapters: str) -> list[list[str]]:
    """Return the lines of the tables of chapters, without the numbers of rows."""
    found = []
    for chapter in chapters:
        text = report.split(f"## {chapter}\n")[1].split("\n## ", maxsplit=1)[0]
        found.append([line.rsplit("|", 2)[0] for line in text.splitlines() if line.startswith("|")])
        assert found[-1]
    return found
