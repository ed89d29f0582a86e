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

# Dies before the n-th time that it touches the disk, or after some seconds; finishes with 0.
CHILD = """
import os, signal, sys, threading
from pathlib import Path
from tedtrajrec.data import prepare

folder, workers, touches, seconds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
prepare.CHUNK_FIXES = 400
config = prepare.PrepareConfig(time_zone="Europe/Berlin", truth=prepare.TruthConfig(source="match"))

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def watch(event, args):
    global touches
    writes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir") or (event == "open" and args[2] & os.O_CREAT)
    if writes and str(folder) in str(args[0]):
        touches -= 1
        if touches == 0:
            die()

if touches:
    sys.addaudithook(watch)
if seconds:
    threading.Timer(seconds, die).start()
prepare.prepare_dataset(folder / "trips.parquet", folder / "city.npz", folder / sys.argv[5], config, workers=workers)
os._exit(0)
"""


def run(folder: Path, output: str, *, workers: int = 1, touches: int = 0, seconds: float = 0.0) -> int:
    command = [sys.executable, "-c", CHILD, str(folder), str(workers), str(touches), str(seconds), output]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_at_any_moment_the_bytes_are_the_same(tmp_path: Path) -> None:
    city = synthetic_city(size="small")
    city.save(tmp_path / "city.npz")
    write_trips(simulate_trips(city, trips=60, step_s=15, seed=2, workers=1), tmp_path / "trips.parquet")
    assert run(tmp_path, "whole", workers=2) == 0
    draw = random.Random(7)
    deaths = 0
    for attempt in range(6):
        # Up to 12 touches: within a part or between two. Later ones die within the writing or the removal of the rest.
        touches = draw.randint(1, 12) if attempt < 2 else draw.randint(20, 60)
        moment = {"seconds": draw.uniform(0.1, 0.5)} if attempt == 1 else {"touches": touches}
        if run(tmp_path, "killed", workers=attempt % 2 + 1, **moment) == 0:  # type: ignore[arg-type]
            break
        deaths += 1
    else:
        assert run(tmp_path, "killed") == 0
    assert deaths >= 3
    files = {
        name: {str(p.relative_to(tmp_path / name)): p.read_bytes() for p in (tmp_path / name).rglob("*") if p.is_file()}
        for name in ("whole", "killed")
    }
    assert files["killed"] == files["whole"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["city.npz", "killed", "trips.parquet", "whole"]
