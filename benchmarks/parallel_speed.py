"""Speed and memory of tedtrajrec_parallel: candidates, training, recovery; against the size of the network.

    python benchmarks/parallel_speed.py [--device cuda] [--train 64] [--recover 1 512] [--sizes] [-o rows.jsonl]

The problem is that of the paper's model in ``model_speed.py``: some 8,800 segments, 72 steps of 15 s, 10 fixes, d 256.
Trips are random drives through a made-up city; the method has learned from 2,000 others. ``candidates`` is the part
on the processor (all cores), ``train`` and ``recover`` the part on the device with inputs that lie there, and ``whole``
recovery from fixes to drivable positions, one batch after another.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.experiments.cells import machine
from tedtrajrec.methods.lattice import WITHIN_S, Past
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.pairs import learn_pairs
from tedtrajrec.methods.past.passing import index_passing
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.tedtrajrec_parallel import ParallelConfig, TedTrajRecParallel
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import Trainer, choose_device
from tedtrajrec.trips.table import Trips, as_text

STEP_S, STEPS, EVERY = 15, 72, 8
PAST_TRIPS = 2000
RADIUS_M = {"5k": 2600.0, "9k": 3500.0, "20k": 5200.0, "100k": 11_800.0}


def city_of(radius_m: float) -> RoadNetwork:
    """Return a made-up city."""
    return synthetic_city(config=CityConfig(radius_m=radius_m, block_m=115.0, river_m=100.0, radials=9))


@functools.cache
def drives(network: RoadNetwork, trips: int, seed: int) -> Trips:
    """Return random drives that do not turn back, at half the free flow, with fixes 5 m off."""
    rng = np.random.default_rng(seed)
    cost = 2 * network.length_m / network.speed_mps
    segment, ratio = np.zeros((trips, STEPS), np.int32), np.zeros((trips, STEPS))
    for trip in range(trips):
        s, entered, step = int(rng.integers(network.n_segments)), 0.0, 0
        while step < STEPS:
            while step < STEPS and step * STEP_S < entered + cost[s]:
                segment[trip, step], ratio[trip, step] = s, (step * STEP_S - entered) / cost[s]
                step += 1
            entered += cost[s]
            after = network.succ[network.succ_offset[s] : network.succ_offset[s + 1]]
            ahead = after[after != network.twin[s]]
            s = int(rng.choice(ahead if len(ahead) else after))
    lon, lat = network.point_at(segment.ravel(), ratio.ravel())
    x, y = network.plane.to_xy(lon, lat)
    lon, lat = network.plane.to_lonlat(x + rng.normal(0, 5, len(x)), y + rng.normal(0, 5, len(y)))
    return Trips(
        traj_id=as_text(np.arange(trips)),
        offsets=np.arange(trips + 1) * STEPS,
        time=np.tile(1_700_000_000 + STEP_S * np.arange(STEPS), trips),
        lon=lon,
        lat=lat,
        segment=segment.ravel(),
        ratio=ratio.ravel(),
    )


def method_for(network: RoadNetwork, device: torch.device) -> TedTrajRecParallel:
    """Return a method with random weights that knows past drives."""
    method = TedTrajRecParallel(network, ParallelConfig())
    pace = 2 / network.speed_mps.astype(np.float64)
    visits = visits_of(network, drives(network, PAST_TRIPS, 1), pace * network.length_m)
    none = np.zeros(0, np.int32)
    n = network.n_segments
    passing = index_passing(visits, np.arange(PAST_TRIPS), n)
    method.use(Past(Links(none, none), pace, learn_pairs(visits, n, within_s=WITHIN_S), passing), STEP_S)
    return method.to(device)


def batch_of(network: RoadNetwork, trips: int) -> Batch:
    """Return trips with a fix at every 8th step and at the last."""
    step = np.tile(np.arange(STEPS), trips)
    observed = (step % EVERY == 0) | (step == STEPS - 1)
    return make_batch(drives(network, trips, 2), observed, network, step_s=STEP_S, time_zone="UTC")


def seconds(work: Callable[[], object], device: torch.device, repeats: int = 5) -> tuple[float, float]:
    """Return the median wall and processor time of some runs after two that do not count."""
    times = []
    for k in range(repeats + 2):
        _wait(device)
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        _wait(device)
        if k >= 2:
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (sorted(column)[len(times) // 2] for column in zip(*times, strict=True))
    return wall, cpu


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(network: RoadNetwork, what: str, trips: int, device: torch.device) -> dict[str, Any]:
    """Return one row."""
    method, batch = method_for(network, device), batch_of(network, trips)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    if what == "candidates":
        took = seconds(lambda: method.inputs(batch), torch.device("cpu"))
    elif what == "train":
        method.train()
        trainer = Trainer(method, TrainConfig(batch=trips), 1000)
        inputs, progress = method.inputs(batch).rounded().to(device), Progress()
        took = seconds(lambda: trainer(inputs, progress), device)
    else:
        method.eval()
        inputs = method.inputs(batch).rounded().to(device)
        decode = Recorded(method.decode, device) if device.type == "cuda" else method.decode
        method.recover(batch)
        took = seconds((lambda: method.recover(batch)) if what == "whole" else (lambda: decode(inputs)), device)
    row = {"what": what, "segments": network.n_segments, "batch": trips, "ms": 1e3 * took[0], "cpu_ms": 1e3 * took[1]}
    row |= {"trips_per_s": trips / took[0], "threads": torch.get_num_threads(), "device": str(device)}
    if device.type == "cuda":
        row |= {"peak_gib": torch.cuda.max_memory_allocated() / 2**30}
        row |= {"working_gib": (torch.cuda.max_memory_allocated() - before) / 2**30}
    return row | machine()


def main() -> None:
    """Print a row of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--train", type=int, nargs="*", default=[64, 512, 1024])
    parser.add_argument("--recover", type=int, nargs="*", default=[1, 64, 512, 2048])
    parser.add_argument("--sizes", action="store_true", help="also one trip and a batch of 64 on 5k to 100k segments")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    device = choose_device(arguments.device)
    torch.set_float32_matmul_precision("high")
    print(f"{os.cpu_count()} cores, {torch.get_num_threads()} threads of torch")
    city = city_of(RADIUS_M["9k"])
    asked = [(city, "candidates", b) for b in arguments.recover] + [(city, "train", b) for b in arguments.train]
    asked += [(city, what, b) for b in arguments.recover for what in ("recover", "whole")]
    if arguments.sizes:
        for name in ("5k", "20k", "100k"):
            other = city_of(RADIUS_M[name])
            asked += [(other, what, b) for what in ("candidates", "whole") for b in (1, 64)] + [(other, "train", 64)]
    rows = []
    for network, what, trips in asked:
        rows.append(measure(network, what, trips, device))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.output is not None:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
