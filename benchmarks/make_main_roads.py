"""Trips on a map that lacks roads, without real trips: the main roads of an extract, driven whole, recovered in part.

    python benchmarks/make_main_roads.py porto.osm.pbf -o porto-main/ [--trips 14000]

Cars drive on the main roads and the links between them, in ``driven.npz``. The map that a model gets, ``network.npz``,
has no links and lacks one segment in a hundred besides, like many maps made of main roads alone; the truth is what the
matcher makes of dense fixes there, with breaks where roads are missing. Writes ``trips.parquet`` and the prepared
``dataset/`` too. A stage whose output is there is not run again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.prepare import PrepareConfig, TruthConfig, prepare_dataset
from tedtrajrec.network.classes import CLASS_NUMBER
from tedtrajrec.network.connectivity import largest_component, strong_components
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.stages import simulate_file

ROADS = [CLASS_NUMBER[name] for name in ("motorway", "trunk", "primary", "secondary", "tertiary")]
LINKS = [CLASS_NUMBER[f"{name}_link"] for name in ("motorway", "trunk", "primary", "secondary", "tertiary")]
MISSING = 0.01  # of the segments
PREPARE = PrepareConfig(step_s=15, time_zone="Europe/Lisbon", truth=TruthConfig(source="match"))


def make_main_roads(source: Path, folder: Path, trips: int) -> Dataset:
    """Make the dataset, or what is missing of it, and return it."""
    names = ("driven.npz", "network.npz", "trips.parquet", "dataset")
    driven, network, raw, dataset = (folder / name for name in names)
    folder.mkdir(parents=True, exist_ok=True)
    if not driven.exists():
        whole = largest_component(RoadNetwork.from_osm(source))
        largest_component(whole.subset(np.isin(whole.road_class, ROADS + LINKS))).save(driven)
    if not network.exists():
        roads = RoadNetwork.load(driven)
        missing = np.random.default_rng(3).random(len(roads)) < MISSING
        roads.subset(np.isin(roads.road_class, ROADS) & ~missing).save(network)
    if not raw.exists():
        simulate_file(driven, raw, trips=trips, step_s=PREPARE.step_s, seed=11)
    if not dataset.exists():
        prepare_dataset(raw, network, dataset, PREPARE)
    return Dataset(dataset)


def main() -> None:
    """Make it and print what it holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="OSM extract")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for all files")
    parser.add_argument("--trips", type=int, default=14_000, help="to simulate")
    arguments = parser.parse_args()
    dataset = make_main_roads(arguments.source, arguments.output, arguments.trips)
    network = dataset.network
    joined = network.length_m[strong_components(network) == 0].sum() / network.length_m.sum()
    print(f"{len(network):,} segments, {joined:.2f} of their length mutually reachable")
    print(f"{len(dataset.split('train')):,} trips to train with")


if __name__ == "__main__":
    main()
