"""Loads a real ``tedtrajrec serve`` on loopback below, at and at three times its capacity, and disturbs it meanwhile.

    python faults/load.py (MODEL | --network N.npz) [--seconds 200] [--workers 1] [--slow 200] [-o results/faults]

Capacity is measured first: the requests per second that are answered while 32 clients ask one after another. Then
requests arrive by the clock (an open load: a slow answer does not delay the next request) at 0.5, 1 and 3 times that,
each for ``--seconds``; 200 make a run of ten minutes. Afterwards, at half of it: with ``--slow`` connections that
dribble their headers and bodies; with a worker killed by SIGKILL (two workers); and with the folder of the model
replaced. Writes ``load.json`` and ``load.md``: offered and served requests per second, latency of those served, answers
of each status, whether each 429 and 503 had Retry-After, and memory of the service over time.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

CLIENTS = 32


@dataclass
class Asked:
    """What came of some requests."""

    seconds: list[float] = field(default_factory=list)  # of those answered with 200
    status: collections.Counter[str] = field(default_factory=collections.Counter)
    without_retry_after: int = 0
    memory_mib: list[int] = field(default_factory=list)


def bodies(network: Path | None, model: str | None) -> list[bytes]:
    """Return requests of one sparse trip each, simulated on the network."""
    from tedtrajrec.data.sampling import thin_trips
    from tedtrajrec.recovery.recoverer import Recoverer
    from tedtrajrec.trips.simulate import simulate_trips

    recoverer = Recoverer.load(model, network=network) if model else Recoverer.from_network(network or "")
    trips = thin_trips(simulate_trips(recoverer.network, trips=64, step_s=recoverer.step_s), "1/8")
    made = []
    for i in range(len(trips)):
        rows = range(trips.offsets[i], trips.offsets[i + 1])
        points = [{"lon": trips.lon[k], "lat": trips.lat[k], "timestamp": int(trips.time[k])} for k in rows]
        made.append(json.dumps({"trips": [{"traj_id": str(i), "points": points}]}).encode())
    return made


def serve(source: list[str], workers: int) -> tuple[subprocess.Popen[bytes], str]:
    """Start the service and wait until it is ready."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "tedtrajrec", "serve", *source, "--port", str(port), "--workers", str(workers)]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"
    while process.poll() is None:
        try:
            if httpx.get(f"{url}/healthz").status_code == 200:
                return process, url
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit("the service did not start")


def memory_mib(process: subprocess.Popen[bytes]) -> int:
    """Return the memory of the service and its workers."""
    here = psutil.Process(process.pid)
    total = 0
    for one in [here, *here.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total >> 20


async def _one(client: httpx.AsyncClient, body: bytes, asked: Asked) -> None:
    started = time.perf_counter()
    try:
        answer = await client.post("/v1/recover", content=body, headers={"Content-Type": "application/json"})
    except httpx.HTTPError as error:
        asked.status[type(error).__name__] += 1
        return
    asked.status[str(answer.status_code)] += 1
    if answer.status_code == 200:
        asked.seconds.append(time.perf_counter() - started)
    elif answer.status_code in {429, 503} and "retry-after" not in answer.headers:
        asked.without_retry_after += 1


async def _closed(url: str, made: list[bytes], seconds: float) -> Asked:
    asked = Asked()
    end = time.perf_counter() + seconds
    async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as client:

        async def ask(number: int) -> None:
            while time.perf_counter() < end:
                await _one(client, made[number % len(made)], asked)

        await asyncio.gather(*(ask(number) for number in range(CLIENTS)))
    return asked


async def _open(url: str, made: list[bytes], rate: float, seconds: float, process: subprocess.Popen[bytes]) -> Asked:
    """Offer requests by the clock."""
    asked = Asked()
    tasks: set[asyncio.Task[None]] = set()
    limits = httpx.Limits(max_connections=2000, max_keepalive_connections=200)
    async with httpx.AsyncClient(base_url=url, timeout=120, verify=False, limits=limits) as client:
        started = time.perf_counter()
        noted = 0.0
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, started + number / rate - time.perf_counter()))
            task = asyncio.create_task(_one(client, made[number % len(made)], asked))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            if time.perf_counter() - noted > seconds / 10:
                noted = time.perf_counter()
                asked.memory_mib.append(memory_mib(process))
        await asyncio.gather(*tasks)
    asked.memory_mib.append(memory_mib(process))
    return asked


def row_of(what: str, asked: Asked, offered: float, seconds: float) -> dict[str, Any]:
    """Return a row of the table."""
    p50, p99 = (1e3 * np.quantile(asked.seconds, [0.5, 0.99])) if asked.seconds else (float("nan"),) * 2
    errors = sum(times for status, times in asked.status.items() if status not in {"200", "429", "503"})
    return {
        "what": what,
        "seconds": round(seconds),
        "offered_per_s": round(offered, 1),
        "served_per_s": round(len(asked.seconds) / seconds, 1),
        "p50_ms": round(float(p50)),
        "p99_ms": round(float(p99)),
        "status": dict(asked.status),
        "errors": errors,
        "without_retry_after": asked.without_retry_after,
        "memory_mib": asked.memory_mib,
    }


def slow_clients(url: str, count: int) -> list[socket.socket]:
    """Open connections that never finish a request: some silent, some within the headers, some within the body."""
    host, port = url.removeprefix("http://").split(":")
    head = b"POST /v1/recover HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sent = (b"", head[:30], head + b'Content-Length: 100\r\n\r\n{"trips"')
    held = []
    for number in range(count):
        connection = socket.create_connection((host, int(port)))
        connection.sendall(sent[number % 3])
        held.append(connection)
    return held


def table(rows: list[dict[str, Any]]) -> str:
    """Return the rows as a table of Markdown."""
    lines = [
        "| load | s | offered/s | served/s | p50 ms | p99 ms | 429 / 503 | other errors | no Retry-After | MiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        refused = f"{row['status'].get('429', 0)} / {row['status'].get('503', 0)}"
        memory = f"{row['memory_mib'][0]} to {max(row['memory_mib'])}" if row["memory_mib"] else ""
        lines.append(
            f"| {row['what']} | {row['seconds']} | {row['offered_per_s']} | {row['served_per_s']} | {row['p50_ms']} |"
            f" {row['p99_ms']} | {refused} | {row['errors']} | {row['without_retry_after']} | {memory} |"
        )
    return "\n".join(lines) + "\n"


def run(source: list[str], made: list[bytes], seconds: float, slow: int, workers: int) -> list[dict[str, Any]]:
    """Load the service in all ways and return the rows."""
    process, url = serve(source, workers)
    rows = []
    try:
        asyncio.run(_closed(url, made, min(seconds, 5)))
        capacity_s = min(seconds, 20)
        asked = asyncio.run(_closed(url, made, capacity_s))
        capacity = len(asked.seconds) / capacity_s
        rows.append(row_of(f"capacity: {CLIENTS} clients", asked, capacity, capacity_s))
        for factor in (0.5, 1.0, 3.0):
            asked = asyncio.run(_open(url, made, factor * capacity, seconds, process))
            rows.append(row_of(f"{factor:g} x capacity", asked, factor * capacity, seconds))
        asked = asyncio.run(_open(url, made, 0.5 * capacity, min(seconds, 30), process))
        rows.append(row_of("0.5 x capacity, after that", asked, 0.5 * capacity, min(seconds, 30)))
        held = slow_clients(url, slow)
        asked = asyncio.run(_open(url, made, 0.5 * capacity, min(seconds, 30), process))
        rows.append(row_of(f"0.5 x capacity, {slow} slow clients", asked, 0.5 * capacity, min(seconds, 30)))
        for connection in held:
            connection.close()
        if (folder := Path(source[0])).is_dir():
            replaced = folder.with_name(folder.name + ".old")
            folder.rename(replaced)
            shutil.copytree(replaced, folder)
            asked = asyncio.run(_open(url, made, 0.5 * capacity, min(seconds, 30), process))
            rows.append(row_of("0.5 x capacity, model folder replaced", asked, 0.5 * capacity, min(seconds, 30)))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    rows.append(_worker_killed(source, made, capacity, min(seconds, 30)))
    return rows


def _worker_killed(source: list[str], made: list[bytes], capacity: float, seconds: float) -> dict[str, Any]:
    process, url = serve(source, 2)

    async def both() -> Asked:
        async def kill() -> None:
            await asyncio.sleep(seconds / 3)
            workers = [
                child for child in psutil.Process(process.pid).children() if "spawn_main" in " ".join(child.cmdline())
            ]
            os.kill(workers[0].pid, signal.SIGKILL)

        asked, _ = await asyncio.gather(_open(url, made, 0.5 * capacity, seconds, process), kill())
        return asked

    try:
        asked = asyncio.run(both())
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    return row_of("0.5 x capacity, one of 2 workers killed", asked, 0.5 * capacity, seconds)


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
    made = bodies(given.network, given.model)
    with tempfile.TemporaryDirectory(prefix="tedtrajrec-load-") as place:
        source = [] if given.network is None else ["--network", str(given.network)]
        if given.model is not None:
            folder = Path(place) / "model"
            shutil.copytree(given.model, folder)
            source = [str(folder), *source]
        rows = run(source, made, given.seconds, given.slow, given.workers)
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "load.json").write_text(json.dumps(rows, indent=1) + "\n")
    (given.output / "load.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
