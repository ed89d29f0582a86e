"""What recovery, matching and training cost on networks of 5,000 to a million segments.

    python benchmarks/scale.py [--tiles 0 1 6 22 110] [--only match route_hmm] [-o rows.jsonl]   # use, on the processor
    python benchmarks/scale.py --train [--only tedtrajrec] [--device cuda] [--tiles 1 22]   # a training step

The network is a made-up city of some 9,200 segments, over and over, with a road from each tile to the next; 0 tiles are
a city of some 5,100, with drives of its own. For every 10,000 segments, 500 past drives are known.

In use, 64 random drives through the city, 72 steps of 15 s with a fix at every 8th, are laid into tiles all over the
network: the same work on every network. Each network has a process of its own, with one thread, which stays. Round by
round they are asked in turn to recover or match all trips, so that a slow minute of the machine falls on all; growth is
the median over the rounds of the time of a network by that of the smallest in the same round, with its quartiles.
Working memory is the most that is allocated while a process goes through all trips, less what was before; it has done
so before. A second thread reads it from the C library every fifth of a millisecond, and the most of five times counts.
Beside it stands the peak of the process as the system sees it, with what the C library keeps of freed memory, which
differs by a half from one process to the next. What is held of a network is stated in bytes per segment: the network
itself, and all that a method keeps of it in use.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from memory_use import allocated, forget_peak, memory, most_allocated
from parallel_speed import EVERY, STEP_S, STEPS, batch_of, city_of, drives
from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.experiments.provenance import machine
from tedtrajrec.methods import parallel_inputs, reachable
from tedtrajrec.methods.lattice import WITHIN_S, Past
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.past.links import Links
from tedtrajrec.methods.past.pairs import learn_pairs
from tedtrajrec.methods.past.passing import index_passing
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.route_hmm import RouteHmm
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.classes import class_numbers
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.threads import THREADS
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.loop import choose_device
from tedtrajrec.training.trainer import Trainer
from tedtrajrec.trips.match import Matcher
from tedtrajrec.trips.table import Trips

TILE_M, GAP_M = 3500.0, 600.0
SMALL_M = 2600.0  # of a city with some 5,000 segments
PAST_PER_10K = 500
TRIPS = 64
LEAST_S = 30.0  # of rounds: what is fast is asked more often
TRAINED = "tedtrajrec_parallel"  # unless another one is asked for
REPEATS = 5  # of a training step, and of the peak of memory
GROWING = ("ms", "ms_in_a_row", "cpu_ms", "working_gib")  # figures of a training step that are compared
WARM, IN_A_ROW = 4, 20  # training steps: before those that are timed, and those that are timed together

Floats = NDArray[np.float64]


class City(NamedTuple):
    """A city, and where it is laid down again and again."""

    one: RoadNetwork
    columns: int  # tiles of a row
    shift: Floats  # [tiles, 2] degrees of longitude and latitude


def city_in_tiles(tiles: int) -> City:
    """Return a city that many times, in rows of about as many; 0: a smaller one, once."""
    one, tiles = city_of(TILE_M if tiles else SMALL_M), max(tiles, 1)
    x, y = one.plane.to_xy(one.node_lon, one.node_lat)
    columns = int(np.ceil(np.sqrt(tiles)))
    step = 2 * TILE_M + GAP_M
    # Moved by degrees, not by metres: at the same latitude all tiles are alike.
    by_lon = step * (one.node_lon[x.argmax()] - one.node_lon[x.argmin()]) / np.ptp(x)
    by_lat = step * (one.node_lat[y.argmax()] - one.node_lat[y.argmin()]) / np.ptp(y)
    place = np.stack([np.arange(tiles) % columns, np.arange(tiles) // columns], axis=1)
    return City(one, columns, place * [by_lon, by_lat])


def tiled(city: City) -> RoadNetwork:
    """Return the network of all tiles, joined by two-way roads."""
    one, columns, shift = city
    tiles = len(shift)
    x, y = one.plane.to_xy(one.node_lon, one.node_lat)
    n, s, g = one.n_nodes, one.n_segments, len(one.geom_lon)

    def laid(lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
        return (lon + shift[:, :1]).ravel(), (lat + shift[:, 1:]).ravel()

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


def trips_in(city: City) -> Trips:
    """Return the same drives in every network of tiles, laid into tiles all over it."""
    of_one = drives(city.one, TRIPS, 2)
    tile = (np.arange(TRIPS) * len(city.shift) // TRIPS)[of_one.trip_of_fix]
    assert of_one.segment is not None
    return of_one.replace(
        lon=of_one.lon + city.shift[tile, 0],
        lat=of_one.lat + city.shift[tile, 1],
        segment=(of_one.segment + city.one.n_segments * tile).astype(np.int32),
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


def paper_for(network: RoadNetwork) -> TedTrajRec:
    """Return the paper's model with random weights, which scores the segments that a trip may have used."""
    return TedTrajRec(network, TedTrajRecConfig(scored="reachable"))


MAKERS: dict[str, Callable[[RoadNetwork], Any]] = {
    "tedtrajrec_parallel": parallel_for,
    "tedtrajrec": paper_for,
    "match": Matcher,
    "route_hmm": RouteHmm,
}


class Use:
    """One network and what is measured on it, in a process of its own with one thread.

    Parameters
    ----------
    tiles
        Of the network.
    counts
        Numbers of trips at once.
    """

    def __init__(self, tiles: int, counts: tuple[int, ...]) -> None:
        os.environ[THREADS] = "1"
        torch.set_num_threads(1)
        city = city_in_tiles(tiles)
        self.network, self.tiles = tiled(city), tiles
        trips, step = trips_in(city), np.arange(STEPS)
        observed = (step % EVERY == 0) | (step == STEPS - 1)

        def batch(first: int, count: int) -> Batch:
            part = trips.select(np.arange(first, first + count))
            return make_batch(part, np.tile(observed, count), self.network, step_s=STEP_S, time_zone="UTC")

        self._batches = {count: [batch(first, count) for first in range(0, TRIPS, count)] for count in counts}
        self._work: dict[int, list[Callable[[], object]]] = {}

    def make(self, what: str) -> dict[str, Any]:
        """Make a method ready in place of the one before, and return what is held of the network."""
        self._work = {}
        forget_peak()
        before, began = memory(), time.perf_counter()
        method = MAKERS[what](self.network)
        for count, batches in self._batches.items():
            if isinstance(method, Matcher):
                self._work[count] = [functools.partial(method.match, batch.fixes(self.network)) for batch in batches]
            else:
                self._work[count] = [functools.partial(method.recover, batch) for batch in batches]
            self.call(count)
        forget_peak()
        held = memory() - before
        n, size = self.network.n_segments, sum(array.nbytes for array in self.network.arrays().values())
        print(f"{what}: {n:,} segments after {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        return {
            "what": what,
            "tiles": self.tiles,
            "segments": n,
            "network_bytes_per_segment": round(size / n),
            "held_bytes_per_segment": round(held / n),
        }

    def call(self, count: int) -> tuple[float, float]:
        """Go through all trips, so many at once, and return milliseconds a trip: by the clock and of the processor."""
        wall, cpu = time.perf_counter(), time.process_time()
        for work in self._work[count]:
            work()
        return 1e3 * (time.perf_counter() - wall) / TRIPS, 1e3 * (time.process_time() - cpu) / TRIPS

    def working(self, count: int) -> tuple[float, float]:
        """Return the MiB that going through all trips takes beside what is held: allocated, and of the process."""
        forget_peak()
        held, before = memory(), allocated()
        most = most_allocated(lambda: self.call(count))
        return (most - before) / 2**20, (memory(peak=True) - held) / 2**20


_use = functools.cache(Use)


class Process:
    """A process that stays, for the network of so many tiles; its methods are those of :class:`Use`."""

    def __init__(self, tiles: int, counts: tuple[int, ...]) -> None:
        self._arguments = tiles, counts
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def ask(self, name: str, *arguments: object) -> Any:  # noqa: ANN401  (what that method returns)
        """Return what a method of :class:`Use` returns there."""
        return self._pool.submit(_answer, self._arguments, name, *arguments).result()


def _answer(network: tuple[int, tuple[int, ...]], name: str, *arguments: object) -> Any:  # noqa: ANN401
    return getattr(_use(*network), name)(*arguments)


def in_use(tiles: list[int], counts: tuple[int, ...], only: list[str], rounds: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of some methods: for each number of trips at once, and each network."""
    processes = [Process(count, counts) for count in tiles]
    for what in only:
        facts = [process.ask("make", what) for process in processes]
        for count in counts:
            for process in processes:
                process.ask("call", count)
            working = np.array([[process.ask("working", count) for _ in range(REPEATS)] for process in processes])
            times = _in_turn(processes, count, rounds)
            least, (wall, cpu) = times[..., 0].min(axis=0), np.median(times, axis=0).T
            growth = times / times[:, :1]
            peak = working[..., 0].max(axis=1)
            for i, fact in enumerate(facts):
                yield {
                    **fact,
                    "batch": count,
                    "rounds": len(times),
                    "ms_per_trip": _rounded(wall[i]),
                    "cpu_ms_per_trip": _rounded(cpu[i]),
                    "least_ms_per_trip": _rounded(least[i]),
                    "growth": _rounded(np.median(growth[:, i, 0])),
                    "growth_quartiles": [_rounded(part) for part in np.quantile(growth[:, i, 0], [0.25, 0.75])],
                    "cpu_growth": _rounded(np.median(growth[:, i, 1])),
                    "least_growth": _rounded(least[i] / least[0]),
                    "working_mib": _rounded(peak[i]),
                    "working_growth": _rounded(peak[i] / peak[0]),
                    "process_mib": _rounded(np.median(working[i, :, 1])),
                    "device": "cpu",
                    "threads": 1,
                } | machine()


def _in_turn(processes: list[Process], count: int, least: int) -> Floats:
    """Return the milliseconds of a trip in each round and process, by the clock and of the processor [R, P, 2]."""
    times: list[Floats] = []
    began = time.perf_counter()
    while len(times) < least or time.perf_counter() - began < LEAST_S:
        found = np.empty((len(processes), 2))
        for i in range(len(processes))[:: 1 - 2 * (len(times) % 2)]:  # there and back: who is asked first is no matter
            found[i] = processes[i].ask("call", count)
        times.append(found)
    return np.stack(times)


def _rounded(value: float) -> float:
    return round(float(value), 3)


def synchronise(device: torch.device) -> None:
    """Wait until a device has done all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def in_training(tiles: int, trips: int, device_name: str, whole: bool, what: str = TRAINED) -> dict[str, Any]:
    """Return the row of one training step; of the whole network, or of the part that a batch touches."""
    torch.set_float32_matmul_precision("high")
    device = choose_device(device_name)
    if whole:
        for module in (parallel_inputs, reachable):
            vars(module)["LARGE"] = sys.maxsize
    network = tiled(city_in_tiles(tiles))
    method = MAKERS[what](network).to(device).train()
    # In turn, so that rows of the table have been left alone when they are read.
    batches = [batch_of(network, trips, seed) for seed in (2, 3)]
    inputs, made = [], []
    for k in range(REPEATS + 2):  # the first ones make what is kept of the network
        batch = batches[k % 2]
        began = time.perf_counter()
        inputs.append(method.inputs(batch, torch.zeros_like(batch.step_mask)))
        made.append(time.perf_counter() - began)
    inputs, made_ms = inputs[:2], 1e3 * statistics.median(made[2:])
    held = torch.cuda.memory_allocated() if device.type == "cuda" else 0
    trainer = Trainer(method, TrainConfig(batch=trips), 1000)
    sent, progress = [trainer.shape(part) for part in inputs], Progress()
    working = 0
    if device.type == "cuda":
        # Graphs take their memory while they are recorded and keep it. There are gradients by then, but no means yet.
        for part in sent:
            trainer.prepare(part)
        gradients = sum(weight.grad.nbytes for weight in method.parameters() if weight.grad is not None)
        working = torch.cuda.max_memory_allocated() - held - gradients

    def steps(count: int) -> tuple[float, float]:
        """Make steps without waiting between them; return milliseconds of one, by the clock and of the processor."""
        synchronise(device)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            trainer(sent[progress.step % len(sent)], progress)
            progress.step += 1
        synchronise(device)
        return 1e3 * (time.perf_counter() - wall) / count, 1e3 * (time.process_time() - cpu) / count

    steps(WARM)
    peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    wall, cpu = (statistics.median(column) for column in zip(*(steps(1) for _ in range(REPEATS)), strict=True))
    row: dict[str, Any] = {"what": "train", "tiles": tiles, "segments": network.n_segments, "batch": trips}
    row |= {} if what == TRAINED else {"method": what}
    part = inputs[0].part
    row |= {"touched": network.n_segments if part is None else len(part.segment), "ms": wall, "cpu_ms": cpu}
    row |= {"inputs_ms": made_ms, "device": str(device)}
    if device.type == "cuda":
        row["ms_in_a_row"] = statistics.median(steps(IN_A_ROW)[0] for _ in range(REPEATS))
        most = torch.cuda.max_memory_allocated()
        working += most - torch.cuda.memory_allocated()  # of what is not recorded
        row |= {"peak_gib": max(peak, most) / 2**30, "working_gib": working / 2**30}
    return row | machine()


def trained(tiles: list[int], trips: int, device: str, whole: bool, what: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a training step on each network, each in a process of its own."""
    first: dict[str, Any] | None = None
    for count in tiles:
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            row = pool.submit(in_training, count, trips, device, whole, what).result()
        first = first or row
        grown = {f"{name}_growth": row[name] / first[name] for name in GROWING if name in row}
        yield row | grown


def main() -> None:
    """Print a row of JSON for each measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--tiles", type=int, nargs="+", help="cities side by side; 0: one of half the size")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16], help="trips at once")
    parser.add_argument("--only", nargs="+", choices=MAKERS, help="what is used, or trained")
    parser.add_argument("--rounds", type=int, default=15, help="of use, at least")
    parser.add_argument("--train", action="store_true", help="a training step, in place of use")
    parser.add_argument("--whole", action="store_true", help="train on the whole network, however large")
    parser.add_argument("--device", default="auto", help="of training")
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    tiles = arguments.tiles or ([1, 22] if arguments.train else [0, 1, 6, 22, 110])
    if arguments.train:
        what = (arguments.only or [TRAINED])[0]
        rows = trained(tiles, arguments.batch[-1], arguments.device, arguments.whole, what)
    else:
        rows = in_use(tiles, tuple(arguments.batch), arguments.only or list(MAKERS), arguments.rounds)
    lines = []
    for row in rows:
        lines.append(json.dumps(row) + "\n")
        print(lines[-1], end="", flush=True)
    if arguments.output is not None:
        arguments.output.write_text("".join(lines), "utf-8")


if __name__ == "__main__":
    main()
