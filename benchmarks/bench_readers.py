"""How fast trip files are read, and that memory stays flat on a file ten times larger.

    python benchmarks/bench_readers.py [--fixes 2000000] [--runs 5]

Every figure comes from a fresh process, so that its peak memory is its own (Linux). Beside each time stands that of
polars reading the same CSV with inferred types, without any check: the ratio is the price of naming bad rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import polars as pl

TASKS = {
    "polars": "import polars as pl; fixes = len(pl.read_csv(path)); trips = 0",
    "read": "t = read_trips(path); trips, fixes = len(t), t.n_fixes",
    "stream": "n = [(len(c), c.n_fixes) for c in iter_trips(path)]; trips, fixes = (sum(x) for x in zip(*n))",
    "nothing": "trips = fixes = 0",
}
PROGRAM = """
import json, re, sys, time
from pathlib import Path
from tedtrajrec.trips.readers import iter_trips, read_trips
path = sys.argv[1]
start = time.perf_counter()
{task}
seconds = time.perf_counter() - start
# Not ru_maxrss, which a process inherits from the one that started it.
peak = int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
print(json.dumps(dict(seconds=seconds, peak_mib=peak, trips=trips, fixes=fixes)))
"""


def main() -> None:
    """Make the files, read them, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fixes", type=int, default=2_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(f"{'file':<34}{'how':<10}{'median s':>10}{'fixes/s':>12}{'peak MiB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        small = Path(folder) / "trips.csv"
        write_csv(small, options.fixes)
        report("nothing", small, 1)
        for how in ("polars", "read", "stream"):
            report(how, small, options.runs)
        mixed = Path(folder) / "interleaved.csv"
        pl.read_csv(small).sort("timestamp", maintain_order=True).write_csv(mixed)
        for how in ("read", "stream"):
            report(how, mixed, 3)
        parquet = Path(folder) / "trips.parquet"
        pl.read_csv(small).write_parquet(parquet)
        for how in ("read", "stream"):
            report(how, parquet, 3)
        large = Path(folder) / "trips-x10.csv"
        write_csv(large, 10 * options.fixes)
        report("stream", large, 1)
        large_mixed = Path(folder) / "interleaved-x10.csv"
        pl.scan_csv(large).sort("timestamp", maintain_order=True).sink_csv(large_mixed)
        large.unlink()
        report("stream", large_mixed, 1)


def write_csv(path: Path, fixes: int) -> None:
    """Write trips of 50 fixes, 15 s apart, with two extra columns."""
    rng = np.random.default_rng(1)
    per_trip, chunk = 50, 2_000_000
    with path.open("wb") as file:
        for first in range(0, fixes, chunk):
            trip = (first + np.arange(min(chunk, fixes - first))) // per_trip
            n = len(trip)
            frame = pl.DataFrame(
                {
                    "traj_id": "trip-" + pl.Series(trip).cast(pl.String),
                    "timestamp": 1_540_000_000 + trip % 86_400 + 15 * (np.arange(n) % per_trip),
                    "lon": np.round(104 + rng.random(n) / 10, 6),
                    "lat": np.round(30 + rng.random(n) / 10, 6),
                    "speed": np.round(30 * rng.random(n), 1),
                    "occupied": rng.random(n) < 0.5,
                }
            )
            file.write(frame.write_csv(include_header=first == 0).encode())


def report(how: str, path: Path, runs: int) -> None:
    """Read a file some times, each in a process of its own, and print the median."""
    results = []
    for _ in range(runs):
        command = [sys.executable, "-c", PROGRAM.format(task=TASKS[how]), str(path)]
        results.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    seconds = statistics.median(result["seconds"] for result in results)
    peak = max(result["peak_mib"] for result in results)
    fixes = results[0]["fixes"]
    size = path.stat().st_size / 2**20
    rate = f"{fixes / seconds:>12,.0f}" if fixes else f"{'':>12}"
    print(f"{f'{path.name} ({size:.0f} MiB)':<34}{how:<10}{seconds:>10.2f}{rate}{peak:>10.0f}", flush=True)


if __name__ == "__main__":
    main()
