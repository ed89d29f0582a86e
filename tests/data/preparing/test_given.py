"""Columns of the input: edge ids and splits, with faults named by file, row and column."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.preparing.given import EdgeIds, check_segments, splits_of
from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips

HEADER = "traj_id,timestamp,lon,lat,edge_id,ratio,split\n"


def read(path: Path, *rows: str) -> Trips:
    path.write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return read_trips(path)


@pytest.fixture
def network(tiny_city: RoadNetwork) -> RoadNetwork:
    """Return the grid with the edge ids 1000, 1010, ..., of which row 77 of the table repeated one."""
    ids = 1000 + 10 * np.arange(tiny_city.n_segments)
    return dataclasses.replace(tiny_city, source_id=ids, meta={"repeated_ids": {"77": 1020}})


def test_edge_ids_become_segments(network: RoadNetwork, tmp_path: Path) -> None:
    trips = read(
        tmp_path / "t.csv",
        "a,1700000000,-8.6,41.1,1010,0.5,train",
        "a,1700000015,-8.6,41.1,,,train",
        "a,1700000030,-8.6,41.1,77,0.5,train",
    )
    found = EdgeIds(network).with_segments(trips, "edge_id", tmp_path / "t.csv")
    assert np.asarray(found.segment).tolist() == [1, -1, 2]
    assert "edge_id" not in found.extra


def test_text_ids(network: RoadNetwork, tmp_path: Path) -> None:
    named = dataclasses.replace(network, source_id=np.array([f"e{i}" for i in range(network.n_segments)]))
    trips = read(tmp_path / "t.csv", "a,1700000000,-8.6,41.1,e7,0.5,train", "a,1700000015,-8.6,41.1,,0.5,train")
    found = EdgeIds(named).with_segments(trips, "edge_id", tmp_path / "t.csv")
    assert np.asarray(found.segment).tolist() == [7, -1]


@pytest.mark.parametrize(
    ("wrong", "problem"), [("1011", "is not an edge of the network"), ("1000", "several segments")]
)
def test_an_edge_that_is_none_or_several(network: RoadNetwork, tmp_path: Path, wrong: str, problem: str) -> None:
    ids = network.source_id.copy()
    ids[1] = 1000
    path = tmp_path / "t.csv"
    trips = read(path, "a,1700000000,-8.6,41.1,1030,0.5,train", f"a,1700000015,-8.6,41.1,{wrong},0.5,train")
    with pytest.raises(InputError, match=problem) as error:
        EdgeIds(dataclasses.replace(network, source_id=ids)).with_segments(trips, "edge_id", path)
    assert (error.value.file, error.value.row, error.value.field) == (str(path), 2, "edge_id")


def test_a_segment_beyond_the_network(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(
        "traj_id,timestamp,lon,lat,segment,ratio\na,1700000000,-8.6,41.1,3,0.5\na,1700000015,-8.6,41.1,115,0\n"
    )
    with pytest.raises(InputError, match="115 is not a segment of the network, which has 115") as error:
        check_segments(read_trips(path), tiny_city, "segment", path)
    assert (error.value.row, error.value.field) == (2, "segment")


def test_splits(tmp_path: Path) -> None:
    trips = read(
        tmp_path / "t.csv",
        "a,1700000000,-8.6,41.1,,,train",
        "a,1700000015,-8.6,41.1,,,train",
        "b,1700000000,-8.6,41.1,,,val",
        "c,1700000000,-8.6,41.1,,,",
    )
    assert splits_of(trips, "split", tmp_path / "t.csv").tolist() == [0, 1, -1]
    per_trip = trips.replace(extra={}, trip_extra={"split": trips.extra["split"][trips.offsets[:-1]]})
    assert splits_of(per_trip, "split", tmp_path / "t.csv").tolist() == [0, 1, -1]


def test_splits_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    trips = read(path, "a,1700000000,-8.6,41.1,,,train", "b,1700000015,-8.6,41.1,,,holdout")
    with pytest.raises(InputError, match="'holdout' is no split") as error:
        splits_of(trips, "split", path)
    assert (error.value.row, error.value.field) == (2, "split")
    trips = read(path, "a,1700000000,-8.6,41.1,,,train", "a,1700000015,-8.6,41.1,,,test")
    with pytest.raises(InputError, match="trip a has more than one value"):
        splits_of(trips, "split", path)
