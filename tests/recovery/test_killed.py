"""Recovering in a process of its own that is killed (SIGKILL) again and again, and then goes on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import as_text, concat_trips
from tedtrajrec.trips.writers import write_trips
from tests.recovery.made import sparse_trips

# Dies before the n-th time that it does something to the disk that fits the pattern.
CHILD = """
import os, re, signal, sys
from pathlib import Path
from tedtrajrec.recovery import stream
from tedtrajrec.network.roadnet import RoadNetwork
from tests.recovery.made import QuickRecoverer

folder, output, pattern, times = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
stream.CHUNK_FIXES = 50

def watch(event, args):
    global times
    writes = event in ("os.rename", "os.mkdir", "os.remove", "os.rmdir") or (event == "open" and args[2] & os.O_CREAT)
    if writes and str(folder) in str(args[0]) and re.search(pattern, f"{event} {args[0]}"):
        times -= 1
        if times == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(watch)
stream.recover_file(
    folder / "sparse.csv", folder / output / "r.parquet", QuickRecoverer(RoadNetwork.load(folder / "city.npz")),
    summary=folder / output / "s.csv", tell=print,
)
"""


@pytest.fixture(scope="module")
def folder(tiny_city: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a city and sparse trips, some of which cannot be recovered."""
    folder = tmp_path_factory.mktemp("killed")
    tiny_city.save(folder / "city.npz")
    sparse, alone = sparse_trips(tiny_city, 60), sparse_trips(tiny_city, 9, fixes=1)
    names = as_text([f"alone {i}" for i in range(9)])
    write_trips(concat_trips([sparse, alone.replace(traj_id=names)]), folder / "sparse.csv")
    return folder


def run(folder: Path, output: str, pattern: str = "", times: int = 0) -> tuple[bool, str]:
    """Return whether the child came to the end, and what it said."""
    command = [sys.executable, "-c", CHILD, str(folder), output, pattern, str(times)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == 0, done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_at_any_moment_the_bytes_are_the_same(folder: Path) -> None:
    assert run(folder, "whole")[0]
    draw = random.Random(7)
    # Within or between parts; while the parts are put together; with all done but for the name; while tidying up.
    for pattern, times in (
        (r"r\.parquet\.parts/", draw.randint(4, 20)),
        (r"rename .*/rejects\.csv$", 1),
        (r"rename .*/recovered\.parquet$", 1),
        (r"remove .*recipe", 1),
    ):
        ended, _ = run(folder, "killed", pattern, times)
        assert not ended, pattern
    ended, said = run(folder, "killed")
    assert ended
    assert "went on from 6 parts" in said  # the recipe goes first, and was about to
    files = {name: {p.name: p.read_bytes() for p in (folder / name).iterdir()} for name in ("whole", "killed")}
    assert files["killed"] == files["whole"]
    assert sorted(files["whole"]) == ["r.parquet", "r.rejects.csv", "s.csv"]
