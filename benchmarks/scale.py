"""What recovery, matching and training cost on networks of 10,000 to a million segments.

    python benchmarks/scale.py [--tiles 1 6 22 110] [--only match route_hmm] [-o rows.jsonl]     # use, on the processor
    python benchmarks/scale.py --train [--device cuda] [--tiles 1 22]        # a training step of tedtrajrec_parallel

The network is a made-up city of some 9,200 segments, over and over, with a road from each tile to the next. Trips are
random drives, 72 steps of 15 s with a fix at every 8th: the same work on every network, but in other places. For every
10,000 segments, 500 past drives are known. Each network has a process of its own. Times are medians of five runs;
working memory is the peak of the process during one call less what it held before it, after two calls to warm up. What
is held of a network is stated in bytes per segment: the network itself, and all that a method keeps of it in use.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import gc
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from parallel_speed import STEP_S, batch_of, city_of, drives
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.methods import parallel_inputs
from tedtrajrec.methods.lattice import WITHIN_S, Past
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.pairs import learn_pairs
from tedtrajrec.methods.past.passing import index_passing
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.route_hmm import RouteHmm
from tedtrajrec.methods.tedtrajrec_parallel import ParallelConfig, TedTrajRecParallel
from tedtrajrec.network.classes import class_numbers
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import Trainer, choose_device
from tedtrajrec.trips.match import Matcher

TILE_M, GAP_M = 3500.0, 600.0
PAST_PER_10K = 500
REPEATS = 5

Floats = NDArray[np.float64]


def tiled(tiles: int) -> RoadNetwork:
    """Return a city that many times, in rows of about as many, joined by two-way roads."""
    one = city_of(TILE_M)
    x, y = one.plane.to_xy(one.node_lon, one.node_lat)
    columns = int(np.ceil(np.sqrt(tiles)))
    step = 2 * TILE_M + GAP_M
    place = np.stack([np.arange(tiles) % columns, np.arange(tiles) // columns], axis=1)
    # Moved by degrees, not by metres: at the same latitude all tiles are alike.
    by_lon = step * (one.node_lon[x.argmax()] - one.node_lon[x.argmin()]) / np.ptp(x)
    by_lat = step * (one.node_lat[y.argmax()] - one.node_lat[y.argmin()]) / np.ptp(y)
    n, s, g = one.n_nodes, one.n_segments, len(one.geom_lon)

    def laid(lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
        return (lon + by_lon * place[:, :1]).ravel(), (lat + by_lat * place[:, 1:]).ravel()

    lon, lat = laid(one.node_lon, one.node_lat)
    geom_lon, geom_lat = laid(one.geom_lon, one.geom_lat)
    number = np.arange(tiles)[:, None]
    here = np.arange(tiles)
    east, north = here[(here % columns < columns - 1) & (here + 1 < tiles)], here[here + columns < tiles]
    start = np.concatenate([n * east + x.argmax(), n * north + y.argmax()])
    end = np.concatenate([n * (east + 1) + x.argmin(), n * (north + columns) + y.argmin()])
    start, end = np.concatenate([start, end]), np.concatenate([end, start])
    ends = np.stack([start, end], axis=1).ravel()
    offset = np.concatenate([(one.geom_offset[:-1] + g * number).ravel(), g * tiles + 2 * np.arange(len(start) + 1)])
    return RoadNetwork.build(
        node_lon=lon,
        node_lat=lat,
        node_id=np.arange(n * tiles),
        seg_from=np.concatenate([(one.seg_from + n * number).ravel(), start]),
        seg_to=np.concatenate([(one.seg_to + n * number).ravel(), end]),
        road_class=np.concatenate([np.tile(one.road_class, tiles), np.repeat(class_numbers(["primary"]), len(start))]),
        speed_mps=np.concatenate([np.tile(one.speed_mps, tiles), np.full(len(start), 20.0)]),
        geom_offset=offset,
        geom_lon=np.concatenate([geom_lon, lon[ends]]),
        geom_lat=np.concatenate([geom_lat, lat[ends]]),
        meta={"source": f"{tiles} tiles of {s} segments"},
    )


def parallel_for(network: RoadNetwork) -> TedTrajRecParallel:
    """Return a method with random weights that knows past drives."""
    method = TedTrajRecParallel(network, ParallelConfig())
    pace = 2 / network.speed_mps.astype(np.float64)
    trips = PAST_PER_10K * network.n_segments // 10_000
    n = network.n_segments
    visits = visits_of(network, drives(network, trips, 1), pace * network.length_m)
    none = np.zeros(0, np.int32)
    passing = index_passing(visits, np.arange(trips), n)
    method.use(Past(Links(none, none), pace, learn_pairs(visits, n, within_s=WITHIN_S), passing), STEP_S)
    return method


MAKERS: dict[str, Callable[[RoadNetwork], Any]] = {
    "tedtrajrec_parallel": parallel_for,
    "match": Matcher,
    "route_hmm": RouteHmm,
}


def memory(peak: bool = False) -> int:
    """Return the bytes that the process holds, or the most it held since :func:`forget_peak`."""
    name = "VmHWM" if peak else "VmRSS"
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(name))


def forget_peak() -> None:
    """Give back what is not used, and count the peak of memory from here on."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", "ascii")


def in_use(tiles: int, trips: tuple[int, ...], only: list[str]) -> list[dict[str, Any]]:
    """Return the rows of one network: for each of some methods and number of trips at once."""
    network = tiled(tiles)
    size = sum(array.nbytes for array in network.arrays().values())
    for b in trips:
        batch_of(network, b)
    rows = []

    def measure(what: str, b: int, work: Callable[[], object], per_segment: float) -> None:
        for _ in range(2):
            work()
        forget_peak()
        held = memory()
        work()
        working = memory(peak=True) - held
        times = []
        for _ in range(REPEATS):
            began = time.perf_counter(), time.process_time()
            work()
            times.append((time.perf_counter() - began[0], time.process_time() - began[1]))
        wall, cpu = (1e3 * statistics.median(column) / b for column in zip(*times, strict=True))
        rows.append(
            {"what": what, "tiles": tiles, "segments": network.n_segments, "batch": b, "ms_per_trip": round(wall, 3)}
            | {"cpu_ms_per_trip": round(cpu, 3), "working_mib": round(working / 2**20, 1)}
            | {"network_bytes_per_segment": round(size / network.n_segments)}
            | {"held_bytes_per_segment": round(per_segment), "device": "cpu", "threads": torch.get_num_threads()}
            | machine()
        )
        print(json.dumps(rows[-1]), flush=True)

    for what in only:
        make = MAKERS[what]
        forget_peak()
        before, began = memory(), time.perf_counter()
        method = make(network)
        name = "match" if what == "match" else "recover"
        asked: dict[int, Any] = {b: batch_of(network, b) for b in trips}
        if what == "match":
            asked = {b: batch.fixes(network) for b, batch in asked.items()}
        work = {b: functools.partial(getattr(method, name), of) for b, of in asked.items()}
        work[trips[0]]()
        forget_peak()
        held = (memory() - before) / network.n_segments
        print(f"{what} is ready after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for b in trips:
            measure(what, b, work[b], held)
        del method, work
    return rows


def in_training(tiles: int, trips: int, device: torch.device, whole: bool) -> dict[str, Any]:
    """Return the row of one training step; of the whole network, or of the part that a batch touches."""
    if whole:
        vars(parallel_inputs)["LARGE"] = sys.maxsize
    network = tiled(tiles)
    method = parallel_for(network).to(device).train()
    batch = batch_of(network, trips)
    began = time.perf_counter()
    inputs = method.inputs(batch, torch.zeros_like(batch.step_mask))
    made_ms = 1e3 * (time.perf_counter() - began)
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    trainer = Trainer(method, TrainConfig(batch=trips), 1000)
    sent, progress = trainer.shape(inputs), Progress()
    times = []
    for k in range(REPEATS + 3):
        if device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        trainer(sent, progress)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if k >= 3:
            times.append(time.perf_counter() - began)
    row: dict[str, Any] = {"what": "train", "tiles": tiles, "segments": network.n_segments, "batch": trips}
    row |= {"touched": len(inputs.part_segment) or network.n_segments, "ms": 1e3 * statistics.median(times)}
    row |= {"inputs_ms": made_ms, "device": str(device)}
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated()
        tables = 3 * sum(weight.nbytes for weight in method.parameters())  # the gradient and two means
        row |= {"peak_gib": peak / 2**30, "working_gib": (peak - held - tables) / 2**30}
    return row | machine()


def growth(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return how much the same work costs on each network by what it costs on the smallest."""
    found = []
    for what, b in dict.fromkeys((row["what"], row["batch"]) for row in rows):
        same = sorted(
            (row for row in rows if (row["what"], row["batch"]) == (what, b)), key=lambda row: row["segments"]
        )
        names = [
            name for name in ("ms_per_trip", "cpu_ms_per_trip", "working_mib", "ms", "working_gib") if name in same[0]
        ]
        ratio: dict[str, list[float]] = {
            name: [round(row[name] / same[0][name], 2) for row in same] for name in names if same[0][name] > 0
        }
        found.append({"growth": what, "batch": b, "segments": [row["segments"] for row in same], **ratio})
    return found


def main() -> None:
    """Print a row of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--tiles", type=int, nargs="+")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--only", nargs="+", choices=MAKERS, default=list(MAKERS), help="what is used")
    parser.add_argument("--train", action="store_true", help="a training step, in place of use")
    parser.add_argument("--whole", action="store_true", help="train on the whole network, however large")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--here", action="store_true", help="one network in this process")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    tiles = arguments.tiles or ([1, 22] if arguments.train else [1, 6, 22, 110])
    if arguments.here and arguments.train:
        torch.set_float32_matmul_precision("high")
        device = choose_device(arguments.device)
        print(json.dumps(in_training(tiles[0], arguments.batch[-1], device, arguments.whole)))
        return
    if arguments.here:
        in_use(tiles[0], tuple(arguments.batch), arguments.only)
        return
    rows: list[dict[str, Any]] = []
    options = ["--device", arguments.device, "--batch", *map(str, arguments.batch), "--only", *arguments.only]
    options += [f"--{name}" for name in ("train", "whole") if getattr(arguments, name)]
    for count in tiles:
        command = [sys.executable, __file__, "--here", "--tiles", str(count), *options]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout or ():
                print(line, end="", flush=True)
                rows.append(json.loads(line))
        if process.returncode:
            raise SystemExit(process.returncode)
    rows += growth(rows)
    print("\n".join(json.dumps(row) for row in rows if "growth" in row))
    if arguments.output is not None:
        arguments.output.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")


if __name__ == "__main__":
    main()
