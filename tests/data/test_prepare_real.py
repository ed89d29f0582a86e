"""Real Porto and Chengdu trips become datasets."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.config import load_config
from tedtrajrec.data.dataset import SPLITS, Dataset
from tedtrajrec.data.prepare import PrepareConfig, prepare_dataset
from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import concat_trips

pytestmark = pytest.mark.real

CONFIGS = Path(__file__).parents[2] / "configs"


def config(city: str, *overrides: str) -> PrepareConfig:
    return load_config(PrepareConfig, CONFIGS / f"{city}.toml", overrides)


def test_porto(data_dir: Path, porto: RoadNetwork, tmp_path: Path) -> None:
    with gzip.open(data_dir / "porto" / "trips.csv.gz", "rt") as file:
        lines = file.readlines()
    source = tmp_path / "some.csv"
    source.write_text("".join(lines[:301]))
    summary = prepare_dataset(source, porto, tmp_path / "ds", config("porto"))
    dataset = Dataset(tmp_path / "ds")
    steps = concat_trips([dataset.split(name).trips() for name in SPLITS])
    kept = len(steps)
    assert kept > 200
    assert kept + sum(summary.dropped.values()) == 300 + sum(summary.cleaned.cuts.values())
    assert (steps.lengths >= 16).all()
    assert np.isfinite(steps.lon).mean() > 0.99
    known = np.asarray(steps.segment) >= 0
    assert known.mean() > 0.97
    x, y = porto.plane.to_xy(steps.lon, steps.lat)
    at_x, at_y = porto.plane.to_xy(*porto.point_at(steps.segment[known], steps.ratio[known]))  # type: ignore[index]
    assert np.nanmedian(np.hypot(x[known] - at_x, y[known] - at_y)) < 5


@pytest.fixture(scope="module")
def chengdu_source(data_dir: Path, peers_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return some trips of each split, and the test trips that the peers were measured on."""
    fixes = pl.read_csv(data_dir / "chengdu" / "trips.csv.gz")
    peers = json.loads((peers_dir / "chengdu828.json").read_text())["trips"]
    trips = fixes.group_by("traj_id", maintain_order=True).agg(pl.col("split").first())
    some = trips.group_by("split", maintain_order=True).head(150)["traj_id"]
    path = tmp_path_factory.mktemp("chengdu") / "some.csv"
    fixes.filter(pl.col("traj_id").is_in([*some.to_list(), *peers])).write_csv(path)
    return path


def test_chengdu_with_its_split(chengdu: RoadNetwork, chengdu_source: Path, peers_dir: Path, tmp_path: Path) -> None:
    prepare_dataset(chengdu_source, chengdu, tmp_path / "ds", config("chengdu"))
    dataset = Dataset(tmp_path / "ds")
    source = pl.read_csv(chengdu_source)
    split_of = dict(source.group_by("traj_id").agg(pl.col("split").first()).iter_rows())
    for name in SPLITS:
        ids = dataset.split(name).trips().traj_id.tolist()
        assert {split_of[traj_id.partition("#")[0]] for traj_id in ids} == {name}
    test = dataset.split("test").trips()
    peers = json.loads((peers_dir / "chengdu828.json").read_text())["trips"]
    place = {traj_id: i for i, traj_id in enumerate(test.traj_id.tolist())}
    assert peers.keys() <= place.keys()
    fixes = dict(source.group_by("traj_id").len().iter_rows())
    assert all(test.lengths[place[traj_id]] == fixes[traj_id] for traj_id in peers)
    one = next(iter(peers))
    given = source.filter(pl.col("traj_id") == one)
    steps = test.select([place[one]])
    assert chengdu.source_id[np.asarray(steps.segment)].tolist() == given["edge_id"].to_list()
    np.testing.assert_allclose(np.asarray(steps.ratio), given["ratio"].to_numpy(), atol=1e-6)


def test_chengdu_matched_again_knows_more(chengdu: RoadNetwork, chengdu_source: Path, tmp_path: Path) -> None:
    known = {}
    for rematch in ("true", "false"):
        output = tmp_path / rematch
        prepare_dataset(chengdu_source, chengdu, output, config("chengdu", f"truth.rematch={rematch}"))
        steps = concat_trips([Dataset(output).split(name).trips() for name in SPLITS])
        known[rematch] = int((np.asarray(steps.segment) >= 0).sum())
    assert known["true"] > known["false"]


def test_an_edge_of_another_network(chengdu: RoadNetwork, chengdu_source: Path, tmp_path: Path) -> None:
    smaller = chengdu.subset(np.arange(100, chengdu.n_segments))
    with pytest.raises(InputError, match="is not an edge of the network") as error:
        prepare_dataset(chengdu_source, smaller, tmp_path / "ds", config("chengdu"))
    row = pl.read_csv(chengdu_source)[error.value.row - 1]  # type: ignore[operator]
    assert error.value.field == "edge_id"
    assert row["edge_id"].item() in chengdu.source_id[:100]
