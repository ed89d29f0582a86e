"""The service at three times its capacity and among slow clients, with the load generator of faults/load.py."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from tedtrajrec.server.loading import load_served
from tedtrajrec.server.settings import Limits, ServerSettings
from tedtrajrec.trips.readers import read_trips
from tests.server.running import as_request, running

sys.path.insert(0, str(Path(__file__).parents[2] / "faults"))
from load_client import Asked, Client, slow_clients  # of the script beside which it lies


def rss_mib() -> int:
    return int(psutil.Process().memory_info().rss) >> 20


@pytest.fixture(scope="module")
def service(inputs: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Serve a small city with room for few waiting requests; return its address, and bodies of requests."""
    settings = ServerSettings(network=inputs / "city.npz", limits=Limits(waiting=4, batch_trips=4))
    served = load_served(settings)
    trips = read_trips(inputs / "sparse.csv")
    bodies = [json.dumps(as_request(trips.select([i]))).encode() for i in range(len(trips))]
    with running(settings, lambda _: served) as client:
        yield str(client.base_url), bodies


def run(work: Coroutine[Any, Any, Asked]) -> Asked:
    """Run it on a thread of its own: a browser of other tests may have left its event loop running on this one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def assert_all_answered(asked: Asked) -> None:
    assert asked.status.keys() <= {"200", "429", "503"}, asked.status  # no error, and nothing that hangs
    assert sum(asked.status.values()) == asked.sent
    assert asked.without_retry_after == 0


def test_three_times_its_capacity(service: tuple[str, list[bytes]]) -> None:
    client = Client(*service)
    warm = run(client.one_after_another(4, 1.5))
    assert warm.status.keys() == {"200"}
    before = rss_mib()
    asked = run(client.by_the_clock(3 * len(warm.seconds) / warm.took_s, 4.0, rss_mib))
    assert_all_answered(asked)
    assert asked.status["200"] > 0
    assert asked.status["429"] > 0
    assert max(asked.memory_mib) < before + 300
    after = run(client.one_after_another(2, 0.5))  # it has recovered by itself
    assert after.status.keys() == {"200"}


def test_slow_clients_hold_up_nobody(service: tuple[str, list[bytes]]) -> None:
    client = Client(*service)
    with slow_clients(service[0], 60):
        asked = run(client.one_after_another(2, 1.0))
    assert asked.status.keys() == {"200"}
