"""Build the network of Porto from OpenStreetMap in a process of its own, and lay open what came out of it.

Prints wall time and peak memory, sizes, connectivity with the ten largest pieces that are cut off, the total length
beside pyproj's geodesics over the same ways, and what became of each turn restriction of the extract that has some.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import osmium
import pyproj
from scipy import sparse
from scipy.sparse import csgraph

from tedtrajrec.network.connectivity import lost_pieces, strong_components
from tedtrajrec.network.osm import Extract, read_extract
from tedtrajrec.network.osm_turns import Junctions
from tedtrajrec.network.roadnet import RoadNetwork

DATA = Path(os.environ.get("TEDTRAJREC_DATA", Path(__file__).parents[2] / "shared" / "data"))

BUILD = """
import json, resource, sys, time
from tedtrajrec.network.roadnet import RoadNetwork
begin = time.perf_counter()
network = RoadNetwork.from_osm(sys.argv[1], service=sys.argv[2] == "service")
seconds = time.perf_counter() - begin
network.save(sys.argv[3])
print(json.dumps({"build_s": seconds, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))
"""


def build_apart(source: Path, service: str, target: Path, runs: int) -> RoadNetwork:
    """Build in fresh processes, print the median of the times, and return the network that the last one wrote."""
    walls, builds, peaks = [], [], []
    for _ in range(runs):
        begin = time.perf_counter()
        command = [sys.executable, "-c", BUILD, str(source), service, str(target)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        walls.append(time.perf_counter() - begin)
        builds.append(json.loads(answer)["build_s"])
        peaks.append(json.loads(answer)["peak_mb"])
    print(
        f"{source.name}, {service}: {np.median(walls):.2f} s for the process with imports and saving, "
        f"{np.median(builds):.2f} s of it building (median of {runs}); peak memory {max(peaks):.0f} MB"
    )
    return RoadNetwork.load(target)


def node_share(network: RoadNetwork) -> float:
    """Return the share by length between nodes of the largest strong component of nodes, which knows no turn rules."""
    graph = sparse.csr_array((np.ones(len(network)), (network.seg_from, network.seg_to)), shape=(network.n_nodes,) * 2)
    label = csgraph.connected_components(graph, connection="strong")[1]
    inside = label == np.bincount(label).argmax()
    both = inside[network.seg_from] & inside[network.seg_to]
    return float(network.length_m[both].sum() / network.length_m.sum())


def geodesic_m(source: Path, extract: Extract) -> float:
    """Return the length of the ways of an extract by pyproj, each direction counted."""
    geod = pyproj.Geod(ellps="WGS84")
    directions = dict(
        zip(extract.way_id.tolist(), ((extract.forward_kmh > 0) * 1 + (extract.backward_kmh > 0)).tolist(), strict=True)
    )
    total = 0.0
    for way in osmium.FileProcessor(str(source)).with_locations():
        if way.is_way() and way.id in directions:
            lon, lat = [node.lon for node in way.nodes], [node.lat for node in way.nodes]
            total += directions[way.id] * geod.line_length(lon, lat)
    return total


def describe(network: RoadNetwork, source: Path, *, service: bool) -> None:
    """Print the facts of a network."""
    metres = network.length_m
    km = metres.sum() / 1000
    one_way = network.twin < 0
    print(f"  {network.n_segments} segments, {network.n_nodes} nodes, {km:.1f} km")
    print(f"  ways left out: {network.meta['ways_left_out']}")
    print(f"  one-way: {one_way.mean():.3f} of the segments, {metres[one_way].sum() / metres.sum():.3f} of the length")
    expected = geodesic_m(source, read_extract(source, service=service)) / 1000
    print(f"  geodesics over the same ways: {expected:.1f} km, ours differ by {100 * (km / expected - 1):+.5f} %")
    main = strong_components(network) == 0
    print(f"  largest strong component by length: {metres[main].sum() / metres.sum():.4f} under turn rules,")
    print(
        f"    {node_share(network):.4f} between nodes without them (an independent count: .961 without service roads)"
    )
    print("  the ten largest pieces outside it:")
    for piece in lost_pieces(network, 10):
        lon, lat = network.point_at(piece.segment, 0.5)
        doors = " and ".join(name for name, is_there in (("in", piece.way_in), ("out", piece.way_out)) if is_there)
        print(
            f"    {piece.km:5.2f} km, {piece.n_segments:2d} segments, way {doors or 'neither in nor out'}; "
            f"longest on OSM way {piece.osm_way_id} at {lon:.4f} {lat:.4f}"
        )


def restrictions(source: Path) -> None:
    """Print what became of every turn restriction."""
    network, extract = RoadNetwork.from_osm(source), read_extract(source)
    junctions = Junctions(*(getattr(network, field.name) for field in dataclasses.fields(Junctions)))
    graph_from = np.repeat(np.arange(len(network)), np.diff(network.succ_offset))
    weight = network.length_m[network.succ]
    graph = sparse.csr_array((weight, (graph_from, network.succ)), shape=(len(network),) * 2)
    print(f"{source.parent.name}: {len(extract.restrictions)} restrictions via a node, others {dict(extract.ignored)}")
    for rule in extract.restrictions:
        found = junctions.forbidden(rule)
        if isinstance(found, str):
            result = f"not applied: {found}"
        else:
            distance = csgraph.dijkstra(graph, indices=[a for a, _ in found])
            metres = [distance[row, b] - network.length_m[b] for row, (_, b) in enumerate(found)]
            round_trip = ", ".join("no way round" if np.isinf(m) else f"{m:.0f} m round" for m in metres)
            result = f"forbids {', '.join(f'{a}->{b}' for a, b in found)}: {round_trip}"
        turn = f"{rule.kind} from {rule.from_ways[0]} via {rule.via_node} to {rule.to_ways[0]}"
        print(f"  {rule.relation_id} {turn}: {result}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    source = DATA / "porto" / "porto.osm.pbf"
    with TemporaryDirectory() as folder:
        for service in ("no service roads", "service"):
            network = build_apart(source, service, Path(folder) / "porto.npz", runs)
            describe(network, source, service=service == "service")
    restrictions(DATA.parent / "peers" / "porto500" / "network.osm.pbf")


if __name__ == "__main__":
    main()
