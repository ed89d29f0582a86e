"""A real ``tedtrajrec serve`` on loopback in a process of its own, and requests for it."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx

from tedtrajrec.trips.table import Trips


def bodies_of(trips: Trips) -> list[bytes]:
    """Return one request for each trip."""
    bodies = []
    for i in range(len(trips)):
        rows = range(trips.offsets[i], trips.offsets[i + 1])
        points = [{"lon": trips.lon[k], "lat": trips.lat[k], "timestamp": int(trips.time[k])} for k in rows]
        bodies.append(json.dumps({"trips": [{"traj_id": str(trips.traj_id[i]), "points": points}]}).encode())
    return bodies


@contextlib.contextmanager
def serving(source: list[str], workers: int = 1) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Yield the process of a service that is ready, and its address; it is stopped when the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "tedtrajrec", "serve", *source, "--port", str(port), "--workers", str(workers)]
    process = subprocess.Popen(line, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        while not _is_ready(url):
            if process.poll() is not None:
                raise SystemExit("the service did not start")
            time.sleep(0.2)
        yield process, url
    finally:
        process.terminate()
        process.wait(60)


def _is_ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz").status_code == 200
    except httpx.HTTPError:
        return False
