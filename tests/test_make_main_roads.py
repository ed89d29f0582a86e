"""Simulated trips on a map that lacks roads, from the real extract of Porto."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.roadnet import RoadNetwork

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
make_main_roads = importlib.import_module("make_main_roads")


def test_cars_drive_on_roads_that_the_map_lacks(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = data_dir / "porto" / "porto.osm.pbf"
    dataset = make_main_roads.make_main_roads(source, tmp_path, 40)
    driven, known = RoadNetwork.load(tmp_path / "driven.npz"), dataset.network
    assert (strong_components(driven) == 0).all()
    assert {ROAD_CLASSES[kind] for kind in np.unique(known.road_class)} == {
        "motorway", "trunk", "primary", "secondary", "tertiary",
    }  # fmt: skip
    links = np.char.endswith(np.array(ROAD_CLASSES)[driven.road_class], "_link")
    assert len(known) == pytest.approx(0.99 * (~links).sum(), rel=0.005)
    assert (strong_components(known) == 0).mean() < 0.9
    trips = [dataset.split(name).trips() for name in ("train", "valid", "test")]
    assert 30 <= sum(map(len, trips)) <= 40
    for name in ("from_osm", "load"):  # what is there is not made again
        monkeypatch.setattr(RoadNetwork, name, None)
    monkeypatch.setattr(make_main_roads, "simulate_file", None)
    monkeypatch.setattr(make_main_roads, "prepare_dataset", None)
    assert make_main_roads.make_main_roads(source, tmp_path, 40).path == dataset.path
