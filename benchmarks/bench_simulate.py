"""Simulate 150,000 trips on the network of Porto: time, memory, what the trips are like, and a picture of the traffic.

    python benchmarks/bench_simulate.py [--trips 150000] [--picture docs/img/traffic_porto.png]

Figures of the real trips of the same city stand beside the simulated ones. The last table shows that routes depend on
the clock: the same two areas, many drivers, three departures.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import time
import zoneinfo
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import chi2_contingency

from tedtrajrec.config import load_config
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.geodesy import short_distance_m
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.simulate import simulate_between, simulate_trips
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.simulation.world import World
from tedtrajrec.trips.table import Trips
from tedtrajrec.trips.traffic_plot import plot_traffic

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("TEDTRAJREC_DATA", ROOT.parent / "shared" / "data"))
CORE = (-8.69, 41.125, -8.555, 41.195)  # where the extract has all roads
PLACES = {"Foz": (-8.668, 41.153), "Antas": (-8.584, 41.161), "Gaia": (-8.606, 41.127), "Asprela": (-8.6015, 41.1795)}
CLOCKS = ("03:30", "08:30", "18:15")
SHARES = (5, 25, 50, 75, 95)


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trips", type=int, default=150_000)
    parser.add_argument("--workers", type=int)
    parser.add_argument("--picture", type=Path)
    arguments = parser.parse_args()
    network = RoadNetwork.from_osm(DATA / "porto" / "porto.osm.pbf")
    config = load_config(SimulationConfig, ROOT / "configs" / "porto-sim.toml")
    simulate_trips(network, trips=10, config=config)  # compiles
    before = peak_gb()
    start, start_cpu = time.perf_counter(), time.process_time()
    trips = simulate_trips(network, trips=arguments.trips, config=config, seed=1, workers=arguments.workers)
    seconds, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    print(f"{network}")
    print(f"{trips} in {seconds:.1f} s ({len(trips) / seconds:,.0f} trips/s), {cpu:.1f} s of processor time")
    print(f"peak memory {peak_gb():.2f} GB, of which {before:.2f} GB before the first trip")
    describe(network, trips)
    if arguments.picture:
        plot_traffic(network, trips, arguments.picture, config=config)
    del trips
    for a, b in (("Foz", "Antas"), ("Antas", "Foz"), ("Gaia", "Asprela")):
        compare_routes(network, config, a, b)


def peak_gb() -> float:
    """Return the most memory this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def describe(network: RoadNetwork, trips: Trips) -> None:
    """Print what trips are like, beside the real ones."""
    real = real_trips()
    finder = CandidateFinder(network)
    rows: dict[str, list[NDArray[np.float64]]] = {}
    for some in (trips, real):
        inner = np.diff(some.trip_of_fix) == 0
        step = short_distance_m(some.lon[:-1], some.lat[:-1], some.lon[1:], some.lat[1:])[inner]
        length = np.bincount(some.trip_of_fix[1:][inner], step, minlength=len(some))
        first, last = some.offsets[:-1], some.offsets[1:] - 1
        west, south, east, north = CORE
        core = (some.lon > west) & (some.lon < east) & (some.lat > south) & (some.lat < north)
        for name, values in {
            "fixes": some.lengths,
            "minutes": (some.lengths - 1) / 4,
            "length km": length / 1000,
            "straight km": short_distance_m(some.lon[first], some.lat[first], some.lon[last], some.lat[last]) / 1000,
            "km/h of trips": 3.6 * length / (15 * (some.lengths - 1)),
            "km/h of steps": 3.6 * step / 15,
            "m to nearest road": finder.nearest(some.lon[core], some.lat[core]).distance_m,
            "standing (step < 10 m)": (step < 10).astype(float),
        }.items():
            rows.setdefault(name, []).append(np.asarray(values, np.float64))
    print(f"\n{'':24}{'simulated:':>10}{''.join(f'p{p:<7}' for p in SHARES):>42}    real: mean, then the same")
    for name, (ours, theirs) in rows.items():
        print(f"{name:24}{quantiles(ours)}   {quantiles(theirs)}")
    away = short_distance_m(trips.lon, trips.lat, *true_points(network, trips))
    print(f"{'m from the truth':24}{quantiles(away)}")


def true_points(network: RoadNetwork, trips: Trips) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return lon and lat of the true positions."""
    return network.point_at(np.asarray(trips.segment), np.asarray(trips.ratio))


def quantiles(values: NDArray[np.float64]) -> str:
    """Return mean and percentiles as text."""
    return f"{values.mean():10.2f}" + "".join(f"{v:8.2f}" for v in np.percentile(values, SHARES))


def real_trips() -> Trips:
    """Return the real taxi trips of at least 3 and at most 30 minutes without jumps."""
    table = pl.read_csv(DATA / "porto" / "trips.csv.gz", schema_overrides={"TRIP_ID": pl.String})
    lines = [np.array(json.loads(line)) for line in table["POLYLINE"]]
    kept = [i for i, p in enumerate(lines) if 13 <= len(p) <= 121 and short_distance_m(*p[:-1].T, *p[1:].T).max() < 600]
    ids = np.repeat(table["TRIP_ID"].to_numpy()[kept].astype(str), [len(lines[i]) for i in kept])
    clock = np.concatenate([table["TIMESTAMP"][i] + 15 * np.arange(len(lines[i])) for i in kept])
    return Trips.from_columns(ids, clock, *np.vstack([lines[i] for i in kept]).T)


def compare_routes(network: RoadNetwork, config: SimulationConfig, a: str, b: str, drivers: int = 600) -> None:
    """Print by which way drivers cross the line half-way between two areas, at night and in both rush hours."""
    world = World.build(network, config)
    ax, ay, bx, by = (float(metres) for place in (a, b) for metres in network.plane.to_xy(*PLACES[place]))
    zone = zoneinfo.ZoneInfo(config.calendar.time_zone)
    day = datetime.date.fromisoformat(config.calendar.start) + datetime.timedelta(days=1)
    segments, offsets, minutes = [], [], []
    for number, clock in enumerate(CLOCKS):
        rng = np.random.default_rng(number)
        moment = datetime.datetime.combine(day, datetime.time.fromisoformat(clock), zone)
        trips = simulate_between(
            network,
            origin=ends_near(world, ax, ay, drivers, rng),
            destination=ends_near(world, bx, by, drivers, rng),
            departure=np.full(drivers, int(moment.timestamp())),
            step_s=3,
            seed=number,
            config=config,
        )
        x, y = network.plane.to_xy(*true_points(network, trips))
        ahead = (x - (ax + bx) / 2) * (bx - ax) + (y - (ay + by) / 2) * (by - ay)
        crosses = np.flatnonzero((ahead[:-1] < 0) & (ahead[1:] >= 0) & (np.diff(trips.trip_of_fix) == 0)) + 1
        crosses = crosses[np.unique(trips.trip_of_fix[crosses], return_index=True)[1]]  # once for each driver
        aside = (x - ax) * (by - ay) - (y - ay) * (bx - ax)
        segments.append(np.asarray(trips.segment)[crosses])
        offsets.append(aside[crosses] / np.hypot(bx - ax, by - ay))
        minutes.append(trips.lengths.mean() * 3 / 60)
    offset = np.concatenate(offsets)
    order = np.argsort(offset)
    corridor = np.empty(len(offset), np.int64)
    corridor[order] = np.concatenate([[0], np.cumsum(np.diff(offset[order]) > 120)])  # roads 120 m apart are two ways
    when = np.repeat(np.arange(len(CLOCKS)), [len(o) for o in offsets])
    counts = np.zeros((corridor.max() + 1, len(CLOCKS)), np.int64)
    np.add.at(counts, (corridor, when), 1)
    print(f"\nFrom {a} to {b}, {drivers} drivers each: where they cross the line half-way, by departure")
    print(f"{'metres right of the straight line, class':44}" + "".join(f"{clock:>8}" for clock in CLOCKS))
    segment = np.concatenate(segments)
    often = counts.sum(axis=1) >= 0.04 * counts.sum()
    for way in np.flatnonzero(often):
        usual = np.bincount(segment[corridor == way]).argmax()
        label = f"{np.median(offset[corridor == way]):+6.0f} m, {ROAD_CLASSES[network.road_class[usual]]}"
        print(f"{label:44}" + "".join(f"{share:8.0%}" for share in counts[way] / counts.sum(axis=0)))
    table = np.vstack([counts[often], counts[~often].sum(axis=0)])
    table = table[table.sum(axis=1) > 0]
    print(f"{'elsewhere':44}" + "".join(f"{share:8.0%}" for share in counts[~often].sum(axis=0) / counts.sum(axis=0)))
    print(f"{'mean minutes':44}" + "".join(f"{m:8.1f}" for m in minutes))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        test = chi2_contingency(table[:, [i, j]][table[:, [i, j]].sum(axis=1) > 0])
        print(f"{CLOCKS[i]} against {CLOCKS[j]}: chi2 {test.statistic:.1f}, {test.dof} degrees, p = {test.pvalue:.1e}")


def ends_near(
    world: World, x: float, y: float, n: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw positions on connected streets within 400 m of a point."""
    roads = world.roads
    away = np.hypot((roads.from_x + roads.to_x) / 2 - x, (roads.from_y + roads.to_y) / 2 - y)
    near = np.flatnonzero((away < 400) & roads.connected & (roads.level > 0))
    return rng.choice(near, n, p=roads.length[near] / roads.length[near].sum()), rng.uniform(0, 1, n)


if __name__ == "__main__":
    main()
