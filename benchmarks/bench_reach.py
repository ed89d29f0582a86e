"""Segments between fixes: share of missing true steps among them, how many they are, and gaps per second.

    python benchmarks/bench_reach.py out/chengdu_ds [out/porto_ds] [--trips 1000] [--city]

Trips of the validation split, thinned by the package's rule; pace and links from the training trips. With ``--city``
also simulated two-minute gaps of made-up cities of growing size. Times are CPU seconds of one thread, the median of
five runs, so that other work on the machine counts little.
"""

from __future__ import annotations

import argparse
import time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.links import find_links, with_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.near import near_table
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.reach import Band, Gaps, GapSearch, Reached
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RADIUS_M, MOST_ENDS, NOISE_M = 100.0, 8, 10.0
NAT_S = 8.0
"""Seconds that a position pays for each nat it is less likely: of 0.5 to 16, this finds the most steps."""

BANDS = (Band(60.0, 0.5), Band(100.0, 0.5), Band(150.0, 0.5), Band(150.0, 1.0), Band(300.0, 1.0))
MOST = (16, 32, 48, 64, 128)
TWO_MINUTES = (105, 150)


class Missing(NamedTuple):
    """Missing steps with their gaps."""

    gap: Ints
    segment: Ints


def learned(dataset: Dataset) -> tuple[RoadNetwork, Floats]:
    """Return the network with links and the seconds of each segment, from the training trips."""
    network = dataset.network
    drives = drives_of(network, dataset.split("train").trips())
    linked = with_links(network, find_links(drives))
    cost_s = linked.length_m / linked.speed_mps
    cost_s[: len(network)] = network.length_m * learn_pace(network, drives)
    return linked, cost_s


def gaps_of(network: RoadNetwork, trips: Trips, keep: str) -> tuple[Gaps, Missing]:
    """Return the gaps of thinned trips and the true segments, where known, of the steps that are missing.

    A fix far from all roads says nothing, so it ends no gap.
    """
    fix = np.flatnonzero(draw_observed(trips, keep, seed=0))
    finder = CandidateFinder(network)
    fix = fix[np.isfinite(finder.nearest(trips.lon[fix], trips.lat[fix], limit_m=RADIUS_M).distance_m)]
    found = finder.within(trips.lon[fix], trips.lat[fix], RADIUS_M, most=MOST_ENDS)
    extra_s = NAT_S * found.distance_m**2 / (2 * NOISE_M**2)
    trip = trips.trip_of_fix[fix]
    before = np.flatnonzero((np.diff(trip) == 0) & (np.diff(fix) > 1))  # no step is missing between neighbours

    def ends(which: Ints) -> tuple[Ints, NDArray[np.int32], Floats, Floats]:
        count = np.diff(found.offsets)[which]
        at = ranges(found.offsets[which], count)
        return np.concatenate([[0], np.cumsum(count)]), found.segment[at], found.ratio[at], extra_s[at]

    seconds = (trips.time[fix[before + 1]] - trips.time[fix[before]]).astype(np.float64)
    count = fix[before + 1] - fix[before] - 1
    segment = trips.segment[ranges(fix[before] + 1, count)].astype(np.int64)
    gap = np.repeat(np.arange(len(before)), count)
    return Gaps(seconds, *ends(before), *ends(before + 1)), Missing(gap[segment >= 0], segment[segment >= 0])


def recall(found: Reached, missing: Missing, n_segments: int) -> NDArray[np.bool_]:
    """Return which of the missing steps are on a segment that was found for their gap."""
    gap = np.repeat(np.arange(len(found.best_s)), np.diff(found.offset))
    pairs = np.unique(gap * n_segments + found.segment)
    return np.isin(missing.gap * n_segments + missing.segment, pairs)


def pick(gaps: Gaps, which: Ints) -> Gaps:
    """Return some of the gaps."""

    def ends(offset: Ints, *columns: Floats) -> tuple[Ints, ...]:
        count = np.diff(offset)[which]
        at = ranges(offset[which], count)
        return np.concatenate([[0], np.cumsum(count)]), *(column[at] for column in columns)

    return Gaps(gaps.seconds[which], *ends(*gaps[1:5]), *ends(*gaps[5:]))


def cpu_us(search: GapSearch, gaps: Gaps, most: int, band: Band) -> float:
    """Return the median CPU microseconds of a gap on one thread."""
    times = []
    for _ in range(5):
        start = time.thread_time()
        search.search(gaps, most=most, band=band, workers=1)
        times.append(time.thread_time() - start)
    return 1e6 * float(np.median(times)) / len(gaps.seconds)


def report(dataset: Dataset, keep: str, n_trips: int, linked: RoadNetwork, search: GapSearch) -> None:
    """Print recall, number of segments and time of a gap by band and ``most``."""
    split = dataset.split("valid")
    gaps, missing = gaps_of(dataset.network, split.trips(np.arange(min(n_trips, len(split)))), keep)
    n = len(gaps.seconds)
    print(
        f"\n{dataset.path.name}: {len(dataset.network)} segments, {len(linked) - len(dataset.network)} links; "
        f"keep {keep}: {n} gaps of {gaps.seconds.mean():.0f} s, {len(missing.gap)} missing steps"
    )
    print("band                most   recall   with a way   segments   CPU us a gap")
    for band in BANDS:
        for most in MOST:
            found = search.search(gaps, most=most, band=band)
            hit, way = recall(found, missing, len(dataset.network)), np.isfinite(found.best_s)
            print(
                f"{band.band_s:5.0f} s or {band.band_share:4.0%}    {most:5d}   {hit.mean():.4f}"
                f"       {hit[way[missing.gap]].mean():.4f}   {len(found.segment) / n:8.1f}"
                f"       {cpu_us(search, gaps, most, band):8.1f}"
            )
    print(f"gaps without a way: {1 - way.mean():.4f}")
    two = np.flatnonzero((gaps.seconds >= TWO_MINUTES[0]) & (gaps.seconds < TWO_MINUTES[1]))
    taken = cpu_us(search, pick(gaps, two), 64, Band())
    print(f"{len(two)} gaps of about two minutes, defaults: {taken:.1f} CPU us a gap")


def report_cities() -> None:
    """Print the time of simulated gaps of two minutes in made-up cities of growing size."""
    for radius_m in (2600.0, 5200.0, 11_800.0):
        city = synthetic_city(config=CityConfig(radius_m=radius_m, block_m=115.0, river_m=100.0, radials=9))
        rng = np.random.default_rng(0)
        start = time.thread_time()
        search = GapSearch(city, 2 * city.length_m / city.speed_mps)
        built = time.thread_time() - start
        n = 2000
        a = rng.integers(0, len(city), n)
        x, y = city.plane.to_xy(*city.point_at(a, 0.5))
        angle = rng.uniform(0, 2 * np.pi, n)
        to = city.plane.to_lonlat(x + 600 * np.cos(angle), y + 600 * np.sin(angle))
        near = [
            CandidateFinder(city).within(lon, lat, RADIUS_M, most=MOST_ENDS) for lon, lat in (city.point_at(a, 0.5), to)
        ]
        ends = [(c.offsets, c.segment, c.ratio, NAT_S * c.distance_m**2 / (2 * NOISE_M**2)) for c in near]
        gaps = Gaps(np.full(n, 120.0), *ends[0], *ends[1])
        found = search.search(gaps)
        start = time.thread_time()
        table = near_table(city, 600.0, workers=1)
        near_s = time.thread_time() - start
        print(
            f"made-up city of {len(city)} segments: {cpu_us(search, gaps, 64, Band()):.1f} CPU us a gap, "
            f"{len(found.segment) / n:.1f} segments; built in {built:.2f} s; "
            f"near table of 600 m: {len(table) / len(city):.0f} a segment, {near_s:.2f} s"
        )


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", nargs="*", help="prepared datasets")
    parser.add_argument("--trips", type=int, default=1000, help="validation trips")
    parser.add_argument("--city", action="store_true", help="made-up cities too")
    arguments = parser.parse_args()
    for path in arguments.dataset:
        dataset = Dataset(path)
        linked, cost_s = learned(dataset)
        start = time.thread_time()
        search = GapSearch(linked, cost_s, n_roads=len(dataset.network))
        print(f"search built in {time.thread_time() - start:.2f} s")
        start = time.thread_time()
        table = near_table(linked, 600.0, cost_s, n_roads=len(dataset.network), workers=1)
        print(f"near table of 600 m: {len(table)} pairs, {time.thread_time() - start:.2f} s")
        for keep in ("1/8", "1/16"):
            report(dataset, keep, arguments.trips, linked, search)
    if arguments.city:
        report_cities()


if __name__ == "__main__":
    main()
