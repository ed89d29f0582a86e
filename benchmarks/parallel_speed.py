"""Speed and memory of tedtrajrec_parallel: candidates, training, recovery; against the size of the network.

    python benchmarks/parallel_speed.py [--device cuda] [--train 64] [--recover 1 512] [--sizes] [-o rows.jsonl]

The problem is that of the paper's model in ``model_speed.py``: some 8,800 segments, 72 steps of 15 s, 10 fixes, d 256.
Trips are random drives through a made-up city; the method has learned from 2,000 others. ``candidates`` is the part
on the processor (all cores), ``train`` and ``recover`` the part on the device with inputs that lie there (scores,
probabilities and the likeliest trip), and ``whole`` recovery from fixes to drivable positions, one batch after another.
Working memory is the peak less what is held between batches: network, weights, in training their gradients and means.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import gc
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.methods.lattice import WITHIN_S, Past
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.parallel_inputs import ParallelInputs
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.pairs import learn_pairs
from tedtrajrec.methods.past.passing import index_passing
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.trainer import Trainer
from tedtrajrec.trips.table import Trips, as_text

STEP_S, STEPS, EVERY = 15, 72, 8
PAST_TRIPS = 2000
RADIUS_M = {"5k": 2600.0, "9k": 3500.0, "20k": 5200.0, "100k": 11_800.0}


def city_of(radius_m: float) -> RoadNetwork:
    """Return a made-up city."""
    return synthetic_city(config=CityConfig(radius_m=radius_m, block_m=115.0, river_m=100.0, radials=9))


@functools.cache
def drives(network: RoadNetwork, trips: int, seed: int, steps: int = STEPS) -> Trips:
    """Return random drives that do not turn back, at half the free flow, with fixes 5 m off."""
    rng = np.random.default_rng(seed)
    cost = 2 * network.length_m / network.speed_mps
    first, count = network.succ_offset[:-1].astype(np.int64), np.diff(network.succ_offset)
    source = np.repeat(np.arange(network.n_segments), count)
    back = np.full(network.n_segments, np.iinfo(np.int64).max)  # place of the turn among what may follow
    turns = np.flatnonzero(network.succ == network.twin[source])
    back[source[turns]] = turns - first[source[turns]]
    ahead = np.maximum(count - (back < count), 1)
    back[count == 1] = np.iinfo(np.int64).max  # the end of a road
    at, time_s = rng.integers(network.n_segments, size=trips), np.zeros(trips)
    on, since = [at], [time_s]
    while time_s.min() < steps * STEP_S:
        time_s = time_s + cost[at]
        draw = rng.integers(ahead[at])
        at = network.succ[first[at] + draw + (draw >= back[at])].astype(np.int64)
        on.append(at)
        since.append(time_s)
    clock, never = STEP_S * np.arange(steps), 1e7
    apart = never * np.arange(trips)[:, None]  # so that the drives follow one another in one row
    entered, taken = np.stack(since, axis=1), np.stack(on, axis=1)
    place = np.searchsorted((np.minimum(entered, never / 2) + apart).ravel(), (clock + apart).ravel(), "right") - 1
    segment = taken.ravel()[place].astype(np.int32)
    ratio = ((clock - entered.ravel()[place].reshape(trips, steps)).ravel() / cost[segment]).clip(0, 1)
    lon, lat = network.point_at(segment, ratio)
    x, y = network.plane.to_xy(lon, lat)
    lon, lat = network.plane.to_lonlat(x + rng.normal(0, 5, len(x)), y + rng.normal(0, 5, len(y)))
    return Trips(
        traj_id=as_text(np.arange(trips)),
        offsets=np.arange(trips + 1) * steps,
        time=np.tile(1_700_000_000 + STEP_S * np.arange(steps), trips),
        lon=lon,
        lat=lat,
        segment=segment,
        ratio=ratio,
    )


@functools.lru_cache(maxsize=1)
def method_for(network: RoadNetwork, device: torch.device, config: ParallelConfig | None = None) -> TedTrajRecParallel:
    """Return a method with random weights that knows past drives."""
    method = TedTrajRecParallel(network, config or ParallelConfig())
    pace = 2 / network.speed_mps.astype(np.float64)
    visits = visits_of(network, drives(network, PAST_TRIPS, 1), pace * network.length_m)
    none = np.zeros(0, np.int32)
    n = network.n_segments
    passing = index_passing(visits, np.arange(PAST_TRIPS), n)
    method.use(Past(Links(none, none), pace, learn_pairs(visits, n, within_s=WITHIN_S), passing), STEP_S)
    return method.to(device)


def table_bytes(method: TedTrajRecParallel) -> int:
    """Return the size of what the method holds of the segments of the network on its device, in use."""
    sizes = {method.network.n_segments, method.road_gnn.edges.shape[1]}
    with torch.no_grad():
        held = [*method.parameters(), *method.buffers(), *(part for part in method.roads() if part is not None)]
    return sum(part.nbytes for part in held if sizes & set(part.shape))


@functools.lru_cache(maxsize=4)
def batch_of(network: RoadNetwork, trips: int, seed: int = 2) -> Batch:
    """Return trips with a fix at every 8th step and at the last."""
    step = np.tile(np.arange(STEPS), trips)
    observed = (step % EVERY == 0) | (step == STEPS - 1)
    return make_batch(drives(network, trips, seed), observed, network, step_s=STEP_S, time_zone="UTC")


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


def inputs_of(method: TedTrajRecParallel, trips: int, device: torch.device) -> ParallelInputs:
    """Return inputs on the device; a method in training takes the part of a large network that they touch."""
    batch = batch_of(method.network, trips)
    forced = torch.zeros_like(batch.step_mask) if method.training else None
    return method.inputs(batch, forced).rounded().to(device)


def measure(network: RoadNetwork, what: str, trips: int, device: torch.device) -> dict[str, Any]:
    """Return one row: ``recover`` is read as the likeliest trip with probabilities, ``whole`` is what users get."""
    method = method_for(network, device)
    method.config = dataclasses.replace(method.config, decode="viterbi" if what == "recover" else "drivable")
    per_segment = table_bytes(method)
    copies = 1
    method.train(what == "train").to(device)  # which forgets the graphs of earlier rows
    if what == "whole":
        # Makes what is kept of the network; of another shape, as what is recorded is part of the work to be measured.
        method.recover(batch_of(network, 2 if trips == 1 else 1))
    elif what != "train":
        method.decode(inputs_of(method, 1, device))
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    if what == "candidates":
        batch = batch_of(network, trips)
        took = seconds(lambda: method.inputs(batch), torch.device("cpu"))
    elif what == "train":
        inputs, progress = inputs_of(method, trips, device), Progress()
        trainer = Trainer(method, TrainConfig(batch=trips), 1000)
        took = seconds(lambda: trainer(inputs, progress), device)
        copies = 4  # the gradient and the two means of the optimizer are as large as the weights
    elif what == "recover":
        inputs = inputs_of(method, trips, device)
        decode = Recorded(method.decode, device) if device.type == "cuda" else method.decode
        took = seconds(lambda: decode(inputs), device)
    else:
        batch = batch_of(network, trips)
        took = seconds(lambda: method.recover(batch), device)
    row = {"what": what, "segments": network.n_segments, "batch": trips, "ms": 1e3 * took[0], "cpu_ms": 1e3 * took[1]}
    row |= {"trips_per_s": trips / took[0], "threads": torch.get_num_threads(), "device": str(device)}
    row |= {"table_bytes_per_segment": round(per_segment / network.n_segments)}
    if device.type == "cuda":
        more = (copies - 1) * sum(weight.nbytes for weight in method.parameters())
        peak = torch.cuda.max_memory_allocated()
        row |= {"peak_gib": peak / 2**30, "working_gib": (peak - held - more) / 2**30}
    for weight in method.parameters():
        weight.grad = None
    return row | machine()


def flatness(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how much time and working memory of the same work differ between networks: the largest by the least."""
    found = []
    for what, trips in dict.fromkeys((row["what"], row["batch"]) for row in rows):
        same = [row for row in rows if (row["what"], row["batch"]) == (what, trips)]
        ratio: dict[str, float] = {
            name: max(row[name] for row in same) / min(row[name] for row in same)
            for name in ("ms", "working_gib")
            if what != "candidates" or name == "ms"
            if name in same[0] and min(row[name] for row in same) > 0
        }
        if len(same) > 1:
            found.append({"flat": what, "batch": trips, "segments": [row["segments"] for row in same], **ratio})
    return found


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
            asked += [(other, what, b) for what in ("candidates", "recover", "whole") for b in (1, 64)]
            asked += [(other, "train", 64)]
    rows = []
    for network, what, trips in asked:
        rows.append(measure(network, what, trips, device))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.sizes:
        rows += flatness([row for row in rows if row["segments"] != city.n_segments])
        print("\n".join(json.dumps(row) for row in rows if "flat" in row))
    if arguments.output is not None:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
