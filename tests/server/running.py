"""A real service on loopback in a thread of the test."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import uvicorn

from tedtrajrec.server.app import create_app
from tedtrajrec.server.loading import Served, load_served
from tedtrajrec.server.run import config_for
from tedtrajrec.server.settings import ServerSettings
from tedtrajrec.trips.table import Trips


@contextlib.contextmanager
def running(
    settings: ServerSettings, load: Callable[[ServerSettings], Served] = load_served, *, wait: bool = True
) -> Iterator[httpx.Client]:
    """Yield a client of a running service; it has stopped gracefully when the block ends."""
    with socket.create_server((settings.host, 0)) as listening:
        url = f"http://{settings.host}:{listening.getsockname()[1]}"
        server = uvicorn.Server(config_for(settings, partial(create_app, settings, load=load)))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            until(lambda: server.started)
            with client_of(url) as client:
                if wait:
                    until(lambda: client.get("/healthz").status_code == 200)
                yield client
        finally:
            server.should_exit = True
            thread.join(60)
        assert not thread.is_alive()


def client_of(url: str) -> httpx.Client:
    """Return a client; it does not load the certificates that only https needs."""
    return httpx.Client(base_url=url, timeout=60, verify=False)


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def as_request(trips: Trips, **options: Any) -> dict[str, Any]:
    """Return the JSON of a request."""
    return {
        "trips": [
            {
                "traj_id": str(trips.traj_id[i]),
                "points": [
                    {"lon": float(trips.lon[k]), "lat": float(trips.lat[k]), "timestamp": int(trips.time[k])}
                    for k in range(trips.offsets[i], trips.offsets[i + 1])
                ],
            }
            for i in range(len(trips))
        ],
        **options,
    }
