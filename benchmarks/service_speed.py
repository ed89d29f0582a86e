"""Latency of the running service at 1, 8 and 32 clients, beside the method's own time for the same trips.

    python benchmarks/service_speed.py (MODEL | --network N.npz) [--trips sparse.csv] [--clients 1 8 32]
        [--requests 1000] [--errors 10000] [--workers 1] [-o results/service-speed.jsonl]

Each request has one sparse trip. ``own_ms`` is the time of ``Recoverer.recover_trips`` for one trip in a quiet process
before the service starts; ``ratio`` is the median latency of one client over it. With several clients the service
takes together what waits, so that ``trips_per_s`` may pass ``1000 / own_ms``. Clients run in one process of their own.
Without ``--trips``, trips are simulated on the network with a fix about every 1 to 2 minutes. ``--errors`` sends that
many more requests with 32 clients, and counts answers other than 200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from serving import bodies_of, serving  # lies beside this file
from tedtrajrec.data.sampling import thin_trips
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.recovery.recoverer import Recoverer
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips

MOST_TRIPS = 256


def own_ms(recoverer: Recoverer, trips: Trips, repeats: int) -> list[float]:
    """Return the time of the method for one trip after another, in milliseconds."""
    times = []
    for k in range(repeats + 10):
        one = trips.select(np.array([k % len(trips)]))
        started = time.perf_counter()
        recoverer.recover_trips(one)
        times.append(1e3 * (time.perf_counter() - started))
    return times[10:]


async def _ask(url: str, bodies: list[bytes], clients: int, requests: int) -> tuple[list[float], int, float]:
    times: list[float] = []
    errors = 0
    numbers = iter(range(requests))

    async def client() -> None:
        nonlocal errors
        async with httpx.AsyncClient(base_url=url, timeout=120, verify=False) as own:
            for number in numbers:
                started = time.perf_counter()
                try:
                    answer = await own.post(
                        "/v1/recover",
                        content=bodies[number % len(bodies)],
                        headers={"Content-Type": "application/json"},
                    )
                    bad = answer.status_code != 200 or not answer.json()["trips"]
                except (httpx.HTTPError, ValueError):
                    bad = True
                errors += bad
                times.append(1e3 * (time.perf_counter() - started))

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    return times, errors, time.perf_counter() - started


def ask(url: str, bodies: list[bytes], clients: int, requests: int) -> tuple[list[float], int, float]:
    """Return the latencies in milliseconds, the number of errors and the seconds of some requests."""
    return asyncio.run(_ask(url, bodies, clients, requests))


def main() -> None:
    """Print a row of JSON for each number of clients."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--network", type=Path)
    parser.add_argument("--trips", type=Path, help="sparse trips; simulated if not given")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 8, 32])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--errors", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    if arguments.model is None:
        recoverer = Recoverer.from_network(arguments.network)
        source = ["--network", str(arguments.network)]
    else:
        recoverer = Recoverer.load(arguments.model, network=arguments.network)
        source = [arguments.model] + ([] if arguments.network is None else ["--network", str(arguments.network)])
    if arguments.trips is None:
        trips = thin_trips(simulate_trips(recoverer.network, trips=MOST_TRIPS, step_s=recoverer.step_s), "1/8")
    else:
        trips = read_trips(arguments.trips)
        trips = trips.select(np.arange(min(len(trips), MOST_TRIPS)))
    bodies = bodies_of(trips)
    own = np.array(own_ms(recoverer, trips, min(arguments.requests, 200)))
    print(f"own: p50 {np.median(own):.1f} ms, p95 {np.quantile(own, 0.95):.1f} ms, {os.cpu_count()} cores")
    del recoverer
    rows: list[dict[str, Any]] = []
    with (
        serving(source, arguments.workers) as (_, url),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        pool.submit(ask, url, bodies, 8, 64).result()
        asked = [(clients, arguments.requests) for clients in arguments.clients]
        asked += [(32, arguments.errors)] if arguments.errors else []
        for clients, requests in asked:
            times, errors, seconds = pool.submit(ask, url, bodies, clients, requests).result()
            p50, p95, p99 = np.quantile(times, [0.5, 0.95, 0.99])
            rows.append(
                {
                    "what": "service",
                    "model": arguments.model or "route_hmm",
                    "clients": clients,
                    "requests": requests,
                    "errors": errors,
                    "p50_ms": round(float(p50), 2),
                    "p95_ms": round(float(p95), 2),
                    "p99_ms": round(float(p99), 2),
                    "own_ms": round(float(np.median(own)), 2),
                    "ratio": round(float(p50 / np.median(own)), 3),
                    "trips_per_s": round(requests / seconds, 1),
                    "own_trips_per_s": round(1e3 / float(own.mean()), 1),
                    "fixes_per_trip": round(trips.n_fixes / len(trips), 2),
                    "workers": arguments.workers,
                }
                | machine()
            )
            print(json.dumps(rows[-1]), flush=True)
    if arguments.output is not None:
        with arguments.output.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
