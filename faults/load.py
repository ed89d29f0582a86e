"""Loads a real ``tedtrajrec serve`` on loopback below, at and at three times its capacity, and disturbs it meanwhile.

    python faults/load.py (MODEL | --network N.npz) [--seconds 200] [--workers 1] [--slow 200] [-o results/faults]

Capacity is measured first: the requests per second that are answered while 32 clients ask one after another. Then
requests arrive by the clock (an open load: a slow answer does not delay the next request) at 0.5, 1 and 3 times that,
each for ``--seconds``; 200 make a run of ten minutes. Afterwards, at half of it: by itself; with ``--slow`` connections
that dribble their headers and bodies; with the folder of the model replaced by a copy (the model is copied first); and
with a worker killed by SIGKILL (two workers). Writes ``load.json`` and ``load.md``: requests per second that were
offered and served, latency of those served, answers of each status, whether each 429 and 503 had Retry-After, and the
memory of the service over time. The client takes part of the machine too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

from load_client import Asked, Client, slow_clients  # lies beside this file

from serving import bodies_of, serving  # of the benchmarks

CLIENTS = 32
MOST_S = 30.0  # of what follows the long phases

Row = dict[str, Any]


def make_bodies(model: str | None, network: Path | None) -> list[bytes]:
    """Return requests of one sparse trip each, simulated on the network."""
    from tedtrajrec.data.sampling import thin_trips
    from tedtrajrec.recovery.recoverer import Recoverer
    from tedtrajrec.trips.simulate import simulate_trips

    recoverer = Recoverer.load(model, network=network) if model else Recoverer.from_network(network or "")
    return bodies_of(thin_trips(simulate_trips(recoverer.network, trips=64, step_s=recoverer.step_s), "1/8"))


def memory_mib(process: int) -> int:
    """Return the memory of a process and those that it started."""
    here = psutil.Process(process)
    total = 0
    for one in [here, *here.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            total += one.memory_info().rss
    return total >> 20


def row_of(what: str, asked: Asked) -> Row:
    """Return a row of the table."""
    p50, p99 = (1e3 * np.quantile(asked.seconds, [0.5, 0.99])) if asked.seconds else (float("nan"),) * 2
    row = {
        "what": what,
        "seconds": round(asked.took_s, 1),
        "offered_per_s": round(asked.sent / asked.offered_s, 1),
        "served_per_s": round(len(asked.seconds) / asked.took_s, 1),
        "p50_ms": round(float(p50)),
        "p99_ms": round(float(p99)),
        "status": dict(asked.status),
        "errors": sum(times for status, times in asked.status.items() if status not in {"200", "429", "503"}),
        "without_retry_after": asked.without_retry_after,
        "memory_mib": asked.memory_mib,
    }
    print(json.dumps(row), flush=True)
    return row


def table(rows: list[Row]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "| load | s | offered/s | served/s | p50 ms | p99 ms | 429 / 503 | other errors | no Retry-After | MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        refused = f"{row['status'].get('429', 0)} / {row['status'].get('503', 0)}"
        memory = f"{row['memory_mib'][0]} to {max(row['memory_mib'])}" if row["memory_mib"] else ""
        lines.append(
            f"| {row['what']} | {row['seconds']:.0f} | {row['offered_per_s']} | {row['served_per_s']} |"
            f" {row['p50_ms']} | {row['p99_ms']} | {refused} | {row['errors']} | {row['without_retry_after']} |"
            f" {memory} |"
        )
    return "\n".join(lines) + "\n"


def run(source: list[str], bodies: list[bytes], seconds: float, slow: int, workers: int) -> Iterator[Row]:
    """Load the service in all ways and yield the rows."""
    short = min(seconds, MOST_S)
    with serving(source, workers) as (process, url):
        client = Client(url, bodies)

        def offer(what: str, rate: float, time_s: float) -> Row:
            return row_of(what, asyncio.run(client.by_the_clock(rate, time_s, lambda: memory_mib(process.pid))))

        asyncio.run(client.one_after_another(CLIENTS, min(seconds, 5)))
        asked = asyncio.run(client.one_after_another(CLIENTS, min(seconds, 20)))
        capacity = len(asked.seconds) / asked.took_s
        yield row_of(f"capacity: {CLIENTS} clients, one request after another", asked)
        for factor in (0.5, 1.0, 3.0):
            yield offer(f"{factor:g} x capacity", factor * capacity, seconds)
        yield offer("0.5 x capacity, after that", 0.5 * capacity, short)
        with slow_clients(url, slow):
            yield offer(f"0.5 x capacity, {slow} slow clients", 0.5 * capacity, short)
        if source and (folder := Path(source[0])).is_dir():
            replace_folder(folder)
            yield offer("0.5 x capacity, model folder replaced", 0.5 * capacity, short)
    with serving(source, 2) as (process, url):
        client = Client(url, bodies)
        asyncio.run(client.one_after_another(CLIENTS, min(seconds, 5)))
        offered = client.by_the_clock(0.5 * capacity, short, lambda: memory_mib(process.pid))
        asked = asyncio.run(_with_a_worker_killed(offered, process.pid, short / 3))
        yield row_of("0.5 x capacity, one of 2 workers killed", asked)


def replace_folder(folder: Path) -> None:
    """Put a copy in the place of a folder."""
    old = folder.with_name(folder.name + ".old")
    folder.rename(old)
    shutil.copytree(old, folder)
    shutil.rmtree(old)


async def _with_a_worker_killed(offered: Awaitable[Asked], parent: int, after_s: float) -> Asked:
    async def kill() -> None:
        await asyncio.sleep(after_s)
        children = psutil.Process(parent).children()
        workers = [child.pid for child in children if "spawn_main" in " ".join(child.cmdline())]
        os.kill(workers[0], signal.SIGKILL)

    asked, _ = await asyncio.gather(offered, kill())
    return asked


def main() -> None:
    """Load the service and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?", help="run folder; it is copied")
    parser.add_argument("--network", type=Path)
    parser.add_argument("--seconds", type=float, default=200)
    parser.add_argument("--slow", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("results/faults"))
    given = parser.parse_args()
    if given.model is None and given.network is None:
        parser.error("give a model or --network")
    bodies = make_bodies(given.model, given.network)
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-load-") as place:
        source = [] if given.network is None else ["--network", str(given.network)]
        if given.model is not None:
            source.insert(0, str(shutil.copytree(given.model, Path(place) / "model")))
        rows = list(run(source, bodies, given.seconds, given.slow, given.workers))
    what = Path(given.model or given.network).name
    about = f"{what}, workers: {given.workers}, cores: {os.cpu_count()}, Python {platform.python_version()}"
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "load.json").write_text(json.dumps({"of": about, "rows": rows}, indent=1) + "\n")
    (given.output / "load.md").write_text(f"{table(rows)}\nOf {about}; the client ran on the same machine.\n")
    print(table(rows))


if __name__ == "__main__":
    main()
