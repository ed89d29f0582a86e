"""Kills every stage with SIGKILL at random moments, gives the command again, and compares with an undisturbed run.

    python faults/kills.py [--kills 210] [--seed 0] [--stage NAME ...] [-o results/faults]

Each stage runs as a command in a process of its own. Half of the kills come after a random time, half before a random
operation on the disk (a file opened for writing, renamed, removed; a folder made), where a half-written file is most
likely. After every kill, each output that is there under its own name must be the one of the undisturbed run, byte for
byte (of a training run: must be readable). In the end the command is given once more: all files must be equal, nothing
may be left over, and the inputs must be as they were. Figures that say when or how long something ran are not compared.

Writes ``kills.json`` and ``kills.md``; the exit code is 1 if anything was lost.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TINY = [
    *("--set", "model.d=16", "--set", "model.heads=2", "--set", "model.width=16", "--set", "model.hidden=16"),
    *("--set", "model.encoder_layers=1", "--set", "model.step_layers=1", "--set", "model.road_layers=1"),
    *("--set", "model.most=32", "--set", "train.batch=16", "--set", "train.epochs=3"),
]
PLAN = """
[datasets.city]
path = "{0}/dataset"
[[cells]]
group = "kills"
methods = ["route_hmm", "trimpute_hmm"]
datasets = ["city"]
"""
MAKE_INPUTS = """
network build synthetic -o {0}/city.npz
simulate --network {0}/city.npz --trips 300 --seed 1 -o {0}/trips.csv
prepare {0}/trips.csv --network {0}/city.npz --timezone Europe/Berlin -o {0}/dataset
data pack {0}/dataset -o {0}/packed.zip
thin {0}/trips.csv -o {0}/sparse.csv
recover {0}/sparse.csv --network {0}/city.npz -o {0}/recovered.parquet
"""
STAGES = {
    "network build": "network build synthetic -o {1}/city.npz",
    "simulate": "simulate --network {0}/city.npz --trips 2000 --seed 1 -o {1}/trips.parquet",
    "clean": "clean {0}/trips.csv --rejects {1}/rejects.csv -o {1}/clean.csv.gz",
    "match": "match {0}/trips.csv --network {0}/city.npz --routes {1}/routes.geojson -o {1}/matched.parquet",
    "thin": "thin {0}/trips.csv -o {1}/sparse.gpx",
    "prepare": "prepare {0}/trips.csv --network {0}/city.npz --timezone Europe/Berlin -o {1}/dataset",
    "data pack": "data pack {0}/dataset -o {1}/packed.zip",
    "data unpack": "data unpack {0}/packed.zip -o {1}/dataset",
    "train": "train tedtrajrec_parallel {0}/dataset -o {1}/run --device cpu",
    "evaluate": "evaluate route_hmm {0}/dataset -o {1}/metrics --steps",
    "export": "export {0}/run -o {1}/model",
    "recover": "recover {0}/sparse.csv --network {0}/city.npz --summary {1}/s.csv -o {1}/recovered.parquet",
    "map": "map {0}/recovered.parquet --network {0}/city.npz --sparse {0}/sparse.csv -o {1}/map.html",
    "benchmark": "benchmark {0}/plan.toml -o {1}/results",
}
RECOVERY = {
    "prepare": "goes on from the finished parts",
    "recover": "goes on from the finished parts",
    "train": "goes on from the last checkpoint",
    "benchmark": "cells with a row are not run again",
}
TIMES = {"seconds", "recover_s", "trips_per_s", "date", "exported"}  # they differ from run to run


@dataclass
class Row:
    """What came of the kills of one stage."""

    stage: str
    kills: int = 0
    by_time: int = 0
    at_disk: int = 0
    ended_first: int = 0  # runs that came to their end before the kill
    series: int = 0  # folders that were worked on until they were whole
    faults: list[str] = field(default_factory=list)
    recovery: str = ""


def words_of(stage: str, inputs: Path, output: Path) -> list[str]:
    """Return the command of a stage."""
    words = [word.format(inputs, output) for word in STAGES[stage].split()]
    return words + (TINY if stage == "train" else [])


def start(words: list[str], log: Path, *, watched: Path | None = None, operation: int = 0) -> int:
    """Start a command in a process group of its own and return its id.

    Parameters
    ----------
    watched, operation
        The process kills itself before so many operations on the disk below this folder.
    """
    child = os.fork()
    if child:
        return child
    os.setsid()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    if watched is not None:
        _die_at(watched, operation)
    code = 1
    try:
        from tedtrajrec.cli import main

        main(words)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_at(folder: Path, operation: int) -> None:
    left = operation

    def watch(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        changes = event in {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.truncate"}
        changes = changes or (event == "open" and bool(args[2] & (os.O_CREAT | os.O_WRONLY | os.O_RDWR)))
        if changes and str(folder) in str(args[0]):
            left -= 1
            if left == 0:
                os.killpg(0, signal.SIGKILL)

    sys.addaudithook(watch)


def finish(words: list[str], log: Path) -> None:
    """Run a command to its end, which must be a good one."""
    _, status = os.waitpid(start(words, log), 0)
    if status:
        raise RuntimeError(f"{' '.join(words)} ended with {os.waitstatus_to_exitcode(status)}: {log.read_text()}")


def content(path: Path) -> str:
    """Return a hash of a file, without the times in it."""
    data = path.read_bytes()
    if path.suffix in {".json", ".jsonl"}:
        rows = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
        data = json.dumps([_timeless(json.loads(row)) for row in rows]).encode()
    elif path.suffix == ".safetensors":  # its header may hold what training has come to, with times
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        if progress := header.get("__metadata__", {}).get("progress"):
            header["__metadata__"]["progress"] = _timeless(json.loads(progress))
        data = json.dumps(header).encode() + data[8 + size :]
    return hashlib.sha256(data).hexdigest()


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in TIMES}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def files_of(folder: Path) -> dict[str, str]:
    """Return the content of all files below a folder, hidden ones included."""
    return {str(p.relative_to(folder)): content(p) for p in sorted(folder.rglob("*")) if p.is_file()}


def check_after_kill(stage: str, output: Path, whole: dict[str, str]) -> list[str]:
    """Return what is wrong with the files that stand under their own names."""
    from safetensors import safe_open

    faults = []
    for path in sorted(output.rglob("*")):
        name = str(path.relative_to(output))
        hidden = any(part.startswith(".") or part.endswith((".work", ".parts")) for part in Path(name).parts)
        if hidden or not path.is_file():
            continue
        if stage == "train":
            if path.suffix == ".safetensors":
                with safe_open(path, "np") as file:
                    list(file.keys())
            elif path.suffix in {".json", ".jsonl"}:
                content(path)
        elif whole.get(name) != content(path):
            faults.append(f"{stage}: {name} is not whole after a kill")
    return faults


class Trial:
    """The kills of one stage."""

    def __init__(self, stage: str, inputs: Path, work: Path, draw: random.Random) -> None:
        self.stage, self.inputs, self.draw = stage, inputs, draw
        self.log = work / "log.txt"
        self.whole, self.killed = work / stage / "whole", work / stage / "killed"
        self.row = Row(stage, recovery=RECOVERY.get(stage, "starts over; what was there before stays until then"))

    def run(self, kills: int) -> Row:
        """Kill the stage so many times."""
        for folder in (self.whole, self.killed):
            folder.mkdir(parents=True)
        before = files_of(self.inputs)
        finish(words_of(self.stage, self.inputs, self.whole), self.log)  # kernels are compiled
        expected = files_of(self.whole)
        shutil.rmtree(self.whole)
        self.whole.mkdir()
        started = time.monotonic()
        finish(words_of(self.stage, self.inputs, self.whole), self.log)
        seconds = time.monotonic() - started
        operations = 12
        if files_of(self.whole) != expected:
            self.row.faults.append(f"{self.stage}: two undisturbed runs differ")
        tries = 0
        while self.row.kills < kills and tries < 6 * kills + 20:
            tries += 1
            operations = self._kill_once(seconds, operations, expected)
        self._complete(expected)
        if files_of(self.inputs) != before:
            self.row.faults.append(f"{self.stage}: the inputs have changed")
        return self.row

    def _kill_once(self, seconds: float, operations: int, expected: dict[str, str]) -> int:
        words = words_of(self.stage, self.inputs, self.killed)
        by_time = self.draw.random() < 0.5
        if by_time:
            child = start(words, self.log)
            time.sleep(self.draw.uniform(0.02, seconds))
            os.kill(child, signal.SIGKILL)
        else:
            child = start(words, self.log, watched=self.killed, operation=self.draw.randint(1, operations))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == -signal.SIGKILL:
            self.row.kills += 1
            self.row.by_time += by_time
            self.row.at_disk += not by_time
            try:
                self.row.faults += check_after_kill(self.stage, self.killed, expected)
            except Exception as error:  # noqa: BLE001  (any is a fault)
                self.row.faults.append(f"{self.stage}: a file cannot be read after a kill: {error!r}")
            if self.draw.random() < 0.25:  # else the next kill hits the work that goes on
                self._complete(expected)
            return operations
        self.row.ended_first += 1
        if code:
            self.row.faults.append(f"{self.stage}: exit code {code} after a kill: {self.log.read_text()[-500:]}")
        self._compare(expected)
        return operations if by_time else max(2, operations * 3 // 4)

    def _complete(self, expected: dict[str, str]) -> None:
        for attempt in range(2):  # a process that ends with its parent may still be ending
            try:
                finish(words_of(self.stage, self.inputs, self.killed), self.log)
                break
            except RuntimeError as error:
                if attempt:
                    self.row.faults.append(f"{self.stage}: a rerun fails: {error}")
                elif "exists already" in str(error):  # killed when all was done but the exit code
                    break
                time.sleep(2)
        self._compare(expected)

    def _compare(self, expected: dict[str, str]) -> None:
        self.row.series += 1
        found = files_of(self.killed)
        for name in sorted(expected.keys() | found.keys()):
            if expected.get(name) != found.get(name):
                problem = "missing" if name not in found else "left over" if name not in expected else "different"
                self.row.faults.append(f"{self.stage}: {name} is {problem} after the rerun")
        shutil.rmtree(self.killed)
        self.killed.mkdir()


def make_inputs(folder: Path) -> None:
    """Make a small city with trips, a dataset, a run and recovered trips."""
    folder.mkdir()
    for line in MAKE_INPUTS.split("\n"):
        if line:
            finish([word.format(folder) for word in line.split()], folder.with_suffix(".log"))
    words = ["train", "tedtrajrec_parallel", f"{folder}/dataset", "-o", f"{folder}/run", "--device", "cpu", *TINY]
    finish(words, folder.with_suffix(".log"))
    (folder / "plan.toml").write_text(PLAN.format(folder))


def table(rows: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        (
            "| fault | stage | times tried | by time / at a disk operation | reruns compared | data lost"
            " | how it recovered |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| SIGKILL | {row.stage} | {row.kills} | {row.by_time} / {row.at_disk} | {row.series} | {len(row.faults)} |"
        f" {row.recovery} |"
        for row in rows
    ]
    total = Counter({"kills": sum(r.kills for r in rows), "faults": sum(len(r.faults) for r in rows)})
    lines.append(
        f"| | **all** | **{total['kills']}** | {sum(r.by_time for r in rows)} / {sum(r.at_disk for r in rows)} |"
        f" {sum(r.series for r in rows)} | **{total['faults']}** | |"
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Kill all stages and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--kills", type=int, default=210, help="of all stages together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stage", nargs="*", choices=[*STAGES], default=[*STAGES])
    parser.add_argument("-o", "--output", type=Path, default=Path("results/faults"))
    arguments = parser.parse_args()
    import tedtrajrec.evaluation.evaluate
    import tedtrajrec.experiments.cells
    import tedtrajrec.maps.html
    import tedtrajrec.recovery.stream
    import tedtrajrec.stages  # noqa: F401  (loaded once; children are forks)

    rows = []
    each = -(-arguments.kills // len(arguments.stage))
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-kills-") as name:
        make_inputs(Path(name) / "inputs")
        for stage in arguments.stage:
            draw = random.Random(f"{arguments.seed} {stage}")
            rows.append(Trial(stage, Path(name) / "inputs", Path(name), draw).run(each))
            print(json.dumps(asdict(rows[-1])), flush=True)
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "kills.json").write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    (arguments.output / "kills.md").write_text(table(rows))
    print(table(rows))
    sys.exit(any(row.faults for row in rows))


if __name__ == "__main__":
    main()
