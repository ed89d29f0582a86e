"""Preparing in a process of its own that is killed (SIGKILL) again and again, and then goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.writers import write_trips

# Dies after some seconds, and before the n-th time that it does something to the disk that fits the pattern.
CHILD = """
import os, re, signal, sys, threading
from pathlib import Path
from tedtrajrec.data import prepare

folder, output, workers = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
seconds, pattern, times = float(sys.argv[4]), sys.argv[5], int(sys.argv[6])
prepare.CHUNK_FIXES = 400
config = prepare.PrepareConfig(time_zone="Europe/Berlin", truth=prepare.TruthConfig(source="match"))

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def watch(event, args):
    global times
    writes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir") or (event == "open" and args[2] & os.O_CREAT)
    if writes and str(folder) in str(args[0]) and re.search(pattern, f"{event} {args[0]}"):
        times -= 1
        if times == 0:
            die()

sys.addaudithook(watch)
if seconds:
    threading.Timer(seconds, die).start()
prepare.prepare_dataset(folder / "trips.parquet", folder / "city.npz", folder / output, config, workers=workers)
os._exit(0)
"""


def run(folder: Path, output: str, workers: int, seconds: float = 0.0, pattern: str = "", times: int = 0) -> bool:
    """Return whether the child came to the end."""
    command = [sys.executable, "-c", CHILD, str(folder), output, str(workers), str(seconds), pattern, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_at_any_moment_the_bytes_are_the_same(tmp_path: Path) -> None:
    city = synthetic_city(size="small")
    city.save(tmp_path / "city.npz")
    write_trips(simulate_trips(city, trips=60, step_s=15, seed=2, workers=1), tmp_path / "trips.parquet")
    assert run(tmp_path, "whole", workers=2)

    draw = random.Random(7)
    assert not run(tmp_path, "killed", 2, pattern="npz", times=draw.randint(2, 8))  # within or between parts
    run(tmp_path, "killed", 1, seconds=draw.uniform(0.02, 0.2))  # anywhere
    assert not run(tmp_path, "killed", 2, pattern=r"dataset/\w+/00000/", times=draw.randint(2, 20))  # in the last step
    assert not run(tmp_path, "killed", 1, pattern=r"rename .*work/dataset$", times=1)  # with all done but for the name
    assert not run(tmp_path, "killed", 2, pattern="remove .*recipe", times=1)  # with nothing left but to tidy up
    assert run(tmp_path, "killed", 1)

    files = {
        name: {str(p.relative_to(tmp_path / name)): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("whole", "killed")
    }
    assert files["killed"] == files["whole"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["city.npz", "killed", "trips.parquet", "whole"]
