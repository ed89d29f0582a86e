"""Peak memory does not grow with the file, measured in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import as_text
from tedtrajrec.trips.writers import TripWriter
from tests.recovery.made import sparse_trips

CHILD = """
import resource, sys
from pathlib import Path
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery import stream
from tests.recovery.made import QuickRecoverer

folder, name = Path(sys.argv[1]), sys.argv[2]
stream.CHUNK_FIXES = 2_000
city = RoadNetwork.load(folder / "city.npz")
done = stream.recover_file(folder / f"{name}.parquet", folder / f"{name}.out.parquet", QuickRecoverer(city))
print(done.steps, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
def test_memory_is_that_of_a_chunk(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    tiny_city.save(tmp_path / "city.npz")
    made = sparse_trips(tiny_city, 2_500, fixes=8)
    steps, peak = {}, {}
    for name, times in (("small", 1), ("large", 12)):
        with TripWriter(tmp_path / f"{name}.parquet") as writer:
            for i in range(times):
                writer.write(made.replace(traj_id=as_text([f"{i} {j}" for j in np.arange(len(made))])))
        command = [sys.executable, "-c", CHILD, str(tmp_path), name]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
        steps[name], peak[name] = map(int, done.stdout.split())
    assert steps["large"] == 12 * steps["small"]
    held = 2_500 * 12 * 8 * 7 * 100 / 2**20  # MiB of all rows at once, at some 100 bytes each
    assert peak["large"] - peak["small"] < held / 2, peak
