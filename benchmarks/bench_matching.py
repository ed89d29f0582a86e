"""Accuracy and speed of the map matcher: porto500 and the Kubicka tracks with their given scripts, beside fastmm.

    python benchmarks/bench_matching.py [--data FOLDER] [--fastmm SITE_PACKAGES] [--only porto500 kubicka chengdu ...]

fastmm is run where it can be imported; ``--fastmm`` names the site-packages folder of an environment that has it. One
process and one thread, process time of the match calls alone. Kubicka networks name no speed, so that 130 km/h stands
for "unknown", and U-turns are allowed at every node. The last table matches simulated trips on the Porto extract.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import itertools
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import MatchConfig, Matcher
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))
LEVELS = ("100", "25", "12")
FASTMM_AROUND_M = 1500.0
FASTMM_GAP_M = 4500.0
FASTMM = {"max_candidates": 8, "candidate_search_radius": 50.0, "gps_error": 10.0}
# Its own defaults; without a tolerance it makes a loop of every backward jitter (12 % to 1,000 % mismatch).
FASTMM_TRACKS = {
    "max_candidates": 8,
    "candidate_search_radius": 50.0,
    "gps_error": 50.0,
    "reverse_tolerance": 100.0,
}
MatchTrack = Callable[[Any, Any, Any, Any, Any, float], tuple[list[int], Any]]


# ---------------------------------------------------------------------- porto500


def porto500_network(folder: Path) -> RoadNetwork:
    """Return the network of porto500 with its own segment numbers."""
    segments = pd.read_parquet(folder / "segments.parquet")
    nodes = pd.read_parquet(folder / "nodes.parquet").set_index("node_id")
    ids = np.unique(np.concatenate([segments.u, segments.v]))
    along = np.concatenate(segments.nodes.to_numpy())
    return RoadNetwork.build(
        node_lon=nodes.lon[ids].to_numpy(),
        node_lat=nodes.lat[ids].to_numpy(),
        node_id=ids,
        seg_from=np.searchsorted(ids, segments.u),
        seg_to=np.searchsorted(ids, segments.v),
        road_class=np.full(len(segments), 11),
        speed_mps=segments.speed_kph.to_numpy() / 3.6,
        geom_offset=np.concatenate([[0], np.cumsum(segments.nodes.map(len))]),
        geom_lon=nodes.lon[along].to_numpy(),
        geom_lat=nodes.lat[along].to_numpy(),
    )


def run_porto500(peers: Path, fastmm: Any) -> None:  # noqa: ANN401
    """Match all levels of porto500 and print the table of its evaluate.py."""
    common = importlib.import_module("common")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "porto500"
        shutil.copytree(peers / "porto500", work)
        work.chmod(0o755)
        network = porto500_network(work)
        for name in ("ours", "ours, no clock") + (("fastmm",) if fastmm else ()):
            for level in LEVELS:
                rows = pd.read_parquet(work / "trips.parquet")
                rows = rows[rows[common.LEVELS[level]]]
                if name == "fastmm":
                    points, routes, seconds = _porto500_fastmm(fastmm, common.Set(str(work)), level, folder)
                else:
                    config = MatchConfig(noise_m=10.0)
                    if name != "ours":
                        config = dataclasses.replace(config, fast_weight=0.0, too_fast=np.inf, speed_power=0.0)
                    points, routes, seconds = _porto500_ours(network, rows, config)
                common.save(name, level, str(work), points, routes, {"match_s": seconds})
        command = [sys.executable, str(peers / "evaluate.py"), str(work)]
        subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(peers)})


def _porto500_ours(network: RoadNetwork, rows: pd.DataFrame, config: MatchConfig) -> tuple[list[Any], list[Any], float]:
    trips = Trips.from_columns(
        rows.trip_id.to_numpy(), rows.t.round().astype(int).to_numpy(), rows.lon.to_numpy(), rows.lat.to_numpy()
    )
    Matcher(network, config).match(trips.select([0, 1]), workers=1)  # compiled by now
    times = []
    for _ in range(3):
        matcher = Matcher(network, config)  # nothing remembered
        start = time.process_time()
        matched = matcher.match(trips, workers=1)
        times.append(time.process_time() - start)
    points = list(zip(rows.trip_id, rows.idx, matched.segment.tolist(), matched.ratio.tolist(), strict=True))
    trip = np.repeat(np.arange(len(trips)), np.diff(matched.route_offsets[matched.piece_offsets]))
    number = np.arange(len(trip)) - matched.route_offsets[matched.piece_offsets[trip]]
    ids = trips.traj_id.astype(int)[trip]
    return points, list(zip(ids, number, matched.route_segment.tolist(), strict=True)), float(np.median(times))


def _porto500_fastmm(fastmm: Any, work: Any, level: str, folder: str) -> tuple[list[Any], list[Any], float]:  # noqa: ANN401
    roads = fastmm.Network()
    for number, (u, v, line) in enumerate(zip(work.seg.u, work.seg.v, work.geom, strict=True)):
        roads.add_edge(number, int(u), int(v), list(line.coords))
    roads.finalize()
    matcher = fastmm.FastMapMatch(
        roads, fastmm.TransitionMode.SHORTEST, max_distance_between_candidates=4000.0, cache_dir=folder
    )
    points, routes, seconds = [], [], 0.0
    for trip, fixes in work.obs(level):
        tuples = list(zip(fixes.x, fixes.y, fixes.t, strict=True))
        start = time.process_time()
        result = matcher.match(fastmm.Trajectory.from_xyt_tuples(tuples), **FASTMM)
        seconds += time.process_time() - start
        found, route = _read_fastmm(result)
        index = fixes.idx.to_numpy()
        points += [(trip, index[i], s, min(offset / work.L[s], 1.0)) for i, (s, offset) in sorted(found.items())]
        routes += [(trip, k, s) for k, s in enumerate(route)]
    return points, routes, seconds


def _read_fastmm(result: Any) -> tuple[dict[int, tuple[int, float]], list[int]]:  # noqa: ANN401
    """Return segment and offset of each fix, and the route."""
    found: dict[int, tuple[int, float]] = {}
    route: list[int] = []
    for part in result.subtrajectories:
        for k, piece in enumerate(part.segments, part.start_index):
            edges = [edge.edge_id for edge in piece.edges]
            found[k] = edges[0], piece.p0.offset_from_start_of_edge
            found[k + 1] = edges[-1], piece.p1.offset_from_start_of_edge
            route += edges if not route or route[-1] != edges[0] else edges[1:]
    return found, route


# ---------------------------------------------------------------------- Kubicka


def prepare_ours(net: Any) -> Matcher:  # noqa: ANN401
    """Return a matcher for the network of one track; every distinct arc is a segment."""
    arcs = np.unique(net.canon)
    arcs = arcs[net.a[arcs] != net.b[arcs]]
    a, b = net.a[arcs], net.b[arcs]
    network = RoadNetwork.build(
        node_lon=net.lon,
        node_lat=net.lat,
        node_id=np.arange(len(net.lon)),
        seg_from=a,
        seg_to=b,
        road_class=np.full(len(a), 11),
        speed_mps=np.full(len(a), 130 / 3.6),
        source_id=arcs,
        geom_offset=2 * np.arange(len(a) + 1),
        geom_lon=np.column_stack([net.lon[a], net.lon[b]]).ravel(),
        geom_lat=np.column_stack([net.lat[a], net.lat[b]]).ravel(),
        u_turns=True,
    )
    matcher = Matcher(network)
    matcher.match(Trips.from_columns([0, 0], [0, 9], net.lon[a[:2]], net.lat[a[:2]]), workers=1)  # compiled by now
    return matcher


def match_ours(matcher: Matcher, net: Any, lon: Any, lat: Any, t: Any, step: float) -> tuple[list[int], int]:  # noqa: ANN401, ARG001
    """Match one track; the number of parts is that of our pieces."""
    trips = Trips.from_columns(np.zeros(len(t), int), np.round(t).astype(int), lon, lat)
    matched = matcher.match(trips, workers=1)
    return matcher.network.source_id[matched.route_segment].tolist(), len(matched.piece_ends)


def fastmm_functions(fastmm: Any, folder: str) -> tuple[Callable[[Any], Any], MatchTrack]:  # noqa: ANN401
    """Return prepare and match of fastmm for the given script."""

    def prepare(net: Any) -> Any:  # noqa: ANN401
        # Arcs are joined to chains between junctions, and what is far from the track is left out: its table of node
        # pairs would not fit otherwise.
        roads = fastmm.Network()
        chains: list[tuple[Any, Any]] = []  # arcs of each edge, and metres to their ends
        track = np.column_stack(net.xy(net.track[:, 0], net.track[:, 1]))
        near = cKDTree(track).query(np.column_stack([net.x, net.y]), distance_upper_bound=FASTMM_AROUND_M)[0] < np.inf
        for nodes, two_way in net.chains(near):
            for line in (nodes, nodes[::-1]) if two_way else (nodes,):
                roads.add_edge(len(chains), line[0], line[-1], [(net.x[n], net.y[n]) for n in line])
                arcs = np.array([net.id[pair] for pair in itertools.pairwise(line)])
                piece = np.hypot(np.diff(net.x[line]), np.diff(net.y[line]))
                chains.append((arcs, np.concatenate([[0.0], np.cumsum(piece)])))
        roads.finalize()
        matcher = fastmm.FastMapMatch(
            roads, fastmm.TransitionMode.SHORTEST, max_distance_between_candidates=FASTMM_GAP_M, cache_dir=folder
        )
        return matcher, chains, roads  # which the matcher reads but does not keep

    def match(context: Any, net: Any, lon: Any, lat: Any, t: Any, step: float) -> tuple[list[int], Any]:  # noqa: ANN401, ARG001
        matcher, chains, _ = context
        x, y = net.xy(lon, lat)
        trajectory = fastmm.Trajectory.from_xyt_tuples(list(zip(x, y, t, strict=True)))
        start = time.process_time()
        result = matcher.match(trajectory, **FASTMM_TRACKS)
        seconds = time.process_time() - start
        route: list[int] = []
        for part in result.subtrajectories:
            for piece in part.segments:
                edges = [edge.edge_id for edge in piece.edges]
                for k, edge in enumerate(edges):
                    arcs, along = chains[edge]
                    low = piece.p0.offset_from_start_of_edge if k == 0 else 0.0
                    high = piece.p1.offset_from_start_of_edge if k == len(edges) - 1 else along[-1]
                    route += arcs[(along[1:] > low) & (along[:-1] < high)].tolist()
        return route, (len(result.subtrajectories), seconds)

    return prepare, match


def run_kubicka(fastmm: Any) -> None:  # noqa: ANN401
    """Print route mismatch by interval, and the paired difference with a bootstrap over tracks."""
    kubicka = importlib.import_module("kubicka")
    tracks = range(50)
    cases = kubicka.build_cases(tracks)[0]
    rows = {"ours": kubicka.evaluate(match_ours, "ours", tracks, prepare=prepare_ours, cases=cases, out=False)}
    if fastmm:
        with tempfile.TemporaryDirectory() as folder:
            prepare, match = fastmm_functions(fastmm, folder)
            rows["fastmm"] = kubicka.evaluate(match, "fastmm", tracks, prepare=prepare, cases=cases, out=False)
    print("Kubicka, route mismatch in %; routes that are not one chain, and those of them that were not reported so")
    print(f"{'':8}{'interval':>9}{'total':>8}{'median':>8}{'routes':>8}{'broken':>8}{'unreported':>12}{'fixes/s':>10}")
    for name, found in rows.items():
        for step in kubicka.INTERVALS:
            chosen = [row for row in found if row["T"] == step]
            mismatch = _by_track(chosen)
            broken = sum(row["breaks"] > 0 for row in chosen)
            unreported = sum(row["breaks"] > max(row["parts"] - 1, 0) for row in chosen)
            speed = sum(row["n"] for row in chosen) / sum(row["cpu"] for row in chosen)
            total, median = mismatch[:, 0].sum() / mismatch[:, 1].sum(), np.median(mismatch[:, 0] / mismatch[:, 1])
            print(
                f"{name:8}{step:7} s{100 * total:8.2f}{100 * median:8.2f}{len(chosen):8}{broken:8}{unreported:12}"
                f"{speed:10,.0f}"
            )
        errors = {row["error"] for row in found if row["error"]}
        if errors:
            print(f"{name}: {errors}")
    if fastmm:
        for step in kubicka.INTERVALS:
            low, middle, high = _paired(rows["ours"], rows["fastmm"], step)
            print(f"{step:4} s: ours minus fastmm {100 * middle:+.2f} points ({100 * low:+.2f} to {100 * high:+.2f})")


def _by_track(rows: list[dict[str, Any]]) -> NDArray[np.float64]:
    """Return metres of mismatch and of true route for each track."""
    tracks = sorted({row["tid"] for row in rows})
    table = np.zeros((len(tracks), 2))
    for row in rows:
        table[tracks.index(row["tid"])] += row["err"], row["truth"]
    return table


def _paired(ours: list[dict[str, Any]], other: list[dict[str, Any]], step: int) -> tuple[float, float, float]:
    """Return 2.5 %, the value itself and 97.5 % of the difference in total mismatch, tracks drawn with replacement."""
    mine, theirs = (_by_track([row for row in rows if row["T"] == step]) for rows in (ours, other))
    table = np.column_stack([mine[:, 0] - theirs[:, 0], mine[:, 1]])
    draws = np.random.default_rng(1).integers(len(table), size=(10_000, len(table)))
    sums = table[draws].sum(axis=1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    total = table.sum(axis=0)
    return float(low), float(total[0] / total[1]), float(high)


# ---------------------------------------------------------------------- Chengdu


def run_chengdu(data: Path) -> None:
    """Print how many observed fixes of the 828 sparse Chengdu trips are on the published segment, and what the rest is.

    The published segments are another group's matching of the dense trips on a map that lacks links.
    """
    network = RoadNetwork.from_table(data / "chengdu" / "network.geojson.gz")
    drawn = json.loads((data.parent / "peers" / "chengdu828.json").read_text())["trips"]
    rows = pd.read_csv(data / "chengdu" / "trips.csv.gz")
    rows = rows[rows.traj_id.isin(drawn.keys())]
    number = rows.groupby("traj_id").cumcount()
    last = number == rows.groupby("traj_id").traj_id.transform("size") - 1
    keeps = {
        keep: pd.MultiIndex.from_arrays([rows.traj_id, number]).isin(
            [(trip, k) for trip, kept in drawn.items() for k in kept[keep]]
        )
        for keep in ("1/8", "1/16")
    }
    keeps["every 8th"] = ((number % 8 == 0) | last).to_numpy()
    segment_of = dict(zip(network.source_id.tolist(), range(len(network)), strict=True))
    print(
        "Chengdu, observed fixes: share on the published segment, against it (over 90 degrees), next to it, elsewhere"
    )
    for keep, kept in keeps.items():
        seen = rows[kept]
        true = np.array([segment_of[int(edge)] for edge in seen.edge_id])
        trips = Trips.from_columns(
            seen.traj_id.to_numpy(str), seen.timestamp, seen.lon, seen.lat, segment=true, ratio=seen.ratio
        )
        matched = Matcher(network).match(trips, workers=1)
        right = matched.segment == trips.segment
        found = matched.segment >= 0
        turn = np.zeros(len(right))
        turn[found] = _heading(network, matched.segment[found], matched.ratio[found])
        turn -= _heading(network, trips.segment, trips.ratio)
        against = found & ~right & (np.cos(turn) < 0)
        next_to = (network.seg_to[matched.segment] == network.seg_from[trips.segment]) | (
            network.seg_from[matched.segment] == network.seg_to[trips.segment]
        )
        next_to &= found & ~right & ~against
        other = found & ~right & ~against & ~next_to
        print(
            f"{keep:>10}: {right.mean():.4f}, {against.mean():.4f}, {next_to.mean():.4f}, {other.mean():.4f}, "
            f"unmatched {1 - found.mean():.4f}; {len(matched.piece_ends) - len(trips)} breaks in {len(trips)} trips"
        )


def _heading(network: RoadNetwork, segment: Any, ratio: Any) -> NDArray[np.float64]:  # noqa: ANN401
    """Return the direction of the road at positions, in radians."""
    ends = (network.plane.to_xy(*network.point_at(segment, np.clip(ratio + d, 0, 1))) for d in (-0.01, 0.01))
    (x0, y0), (x1, y1) = ends
    return np.arctan2(y1 - y0, x1 - x0)


# ---------------------------------------------------------------------- Porto extract


def run_extract(data: Path) -> None:
    """Print fixes per second on simulated trips over the Porto extract, at three intervals."""
    network = RoadNetwork.from_osm(data / "porto" / "porto.osm.pbf")
    trips = simulate_trips(network, trips=1500, seed=1)
    number = np.arange(trips.n_fixes) - trips.offsets[:-1][trips.trip_of_fix]
    last = np.zeros(trips.n_fixes, bool)
    last[trips.offsets[1:] - 1] = True
    for every in (1, 4, 8):
        kept = trips.keep_fixes((number % every == 0) | last)
        matcher = Matcher(network)
        matcher.match(kept.select([0, 1]), workers=1)
        start = time.process_time()
        matched = matcher.match(kept, workers=1)
        seconds = time.process_time() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        right = np.mean(matched.segment == kept.segment) if kept.segment is not None else np.nan
        print(
            f"extract of {len(network)} segments, every {every}th fix: {kept.n_fixes / seconds:,.0f} fixes/s, "
            f"accuracy {right:.3f}, {len(matched.piece_ends) - len(kept)} breaks, peak {peak:.0f} MB"
        )


def main() -> None:
    """Run the benchmarks asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--fastmm", type=Path, help="site-packages folder that has fastmm")
    parser.add_argument("--only", nargs="*", default=["porto500", "kubicka", "chengdu", "extract"])
    arguments = parser.parse_args()
    peers = arguments.data.parent / "peers"
    sys.path.insert(0, str(peers))
    if arguments.fastmm:
        sys.path.append(str(arguments.fastmm))
    try:
        fastmm = importlib.import_module("fastmm")
    except ModuleNotFoundError:
        fastmm = None
        print("fastmm cannot be imported: only ours is run")
    if "porto500" in arguments.only:
        run_porto500(peers, fastmm)
    if "kubicka" in arguments.only:
        run_kubicka(fastmm)
    if "chengdu" in arguments.only:
        run_chengdu(arguments.data)
    if "extract" in arguments.only:
        run_extract(arguments.data)


if __name__ == "__main__":
    main()
