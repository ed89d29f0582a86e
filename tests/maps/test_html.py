"""Files of recovered trips to a map."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tedtrajrec.cli import app
from tedtrajrec.errors import InputError
from tedtrajrec.maps.html import map_file
from tedtrajrec.maps.trips_json import recovered_json
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.recovery.recovered import RecoveredTrips
from tedtrajrec.trips.readers import read_trips
from tedtrajrec.trips.table import Trips, as_text
from tedtrajrec.trips.writers import write_trips
from tests.conftest import make_grid
from tests.maps.made import drives, recovered, write_files


@pytest.fixture(scope="module")
def files(tiny_city: RoadNetwork, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_files(tiny_city, tmp_path_factory.mktemp("made"))


def data_of(path: Path) -> dict[str, Any]:
    text = re.search(r'id="packed-data">([^<]*)</script>', path.read_text())
    assert text is not None
    data: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(text[1])))
    return data


def test_all_that_was_given_is_in_the_file(tiny_city: RoadNetwork, files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "deep" / "trip.html"
    summary = map_file(
        [files["model.parquet"], files["other.parquet"]],
        output,
        network=files["network.npz"],
        sparse=files["sparse.csv"],
        truth=files["truth.csv"],
    )
    data = data_of(output)
    assert (summary.trips, summary.more) == (3, False)
    assert summary.size == output.stat().st_size
    assert [method["name"] for method in data["methods"]] == ["model", "other"]
    model = RecoveredTrips.from_trips(read_trips(files["model.parquet"]))
    assert data["methods"][0]["trips"] == recovered_json(model)
    assert data["methods"][1]["trips"][0]["probability"] == [None] * 14
    assert [len(one["lon"]) for one in data["fixes"]] == [4, 4, 4]
    assert data["truth"][2]["segment"] == model.segment[28:].tolist()
    assert len(data["network"]["features"]) == summary.segments == len(tiny_city)


def test_recovered_trips_keep_every_digit(tiny_city: RoadNetwork) -> None:
    trips = recovered(tiny_city, drives(tiny_city))
    found = recovered_json(trips)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert [trip["traj_id"] for trip in found] == ["drive 1", "drive 2", "drive 3"]
    for name, column in (("timestamp", "time"), ("lon", "lon"), ("segment", "segment"), ("break", "broken")):
        assert [value for trip in found for value in trip[name]] == getattr(trips, column).tolist()
    assert found[0]["probability"][:4] == [0.99, 0.9, 0.6, 0.3]
    assert (found[0]["rank"], found[0]["share"]) == (0, None)


def test_alternatives_are_trips_of_their_own(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    ways = drives(tiny_city)
    trips = recovered(
        tiny_city,
        ways[:2],
        traj_id=as_text(["one", "one"]),
        rank=np.array([0, 1], np.int16),
        share=np.array([0.7, 0.2], np.float32),
    )
    write_trips(trips.to_trips(), tmp_path / "alternatives.parquet")
    map_file(tmp_path / "alternatives.parquet", tmp_path / "trip.html")
    found = data_of(tmp_path / "trip.html")["methods"][0]["trips"]
    assert [(trip["traj_id"], trip["rank"], trip["share"]) for trip in found] == [("one", 0, 0.7), ("one", 1, 0.2)]


def test_only_the_first_trips_of_a_large_file_and_the_roads_around_them(tmp_path: Path) -> None:
    city = make_grid(60, 6, spacing_m=100.0, one_way_row=None)
    row = [[10 * i, 10 * i + 2] for i in range(12)]  # eastward segments of the bottom row, farther and farther away
    trips = recovered(city, row)
    write_trips(trips.to_trips(), tmp_path / "many.csv")
    summary = map_file(tmp_path / "many.csv", tmp_path / "trip.html", network=city, trips=2)
    data = data_of(tmp_path / "trip.html")
    assert summary.more
    assert "first 2 trips of the file" in str(summary)
    assert data["methods"][0]["notes"] == ["The first 2 trips of the file."]
    assert [trip["traj_id"] for trip in data["methods"][0]["trips"]] == ["drive 1", "drive 2"]
    shown = {feature["properties"]["segment"] for feature in data["network"]["features"]}
    assert set(np.ravel(row[:2])) <= shown
    assert len(shown) < len(city) / 2


def test_a_file_of_all_trips_says_nothing_of_more(files: dict[str, Path], tmp_path: Path) -> None:
    assert not map_file(files["model.parquet"], tmp_path / "trip.html", trips=3).more


def test_without_a_network_there_is_none_in_the_file(files: dict[str, Path], tmp_path: Path) -> None:
    summary = map_file(files["model.parquet"], tmp_path / "trip.html")
    assert data_of(tmp_path / "trip.html")["network"] is None
    assert str(summary).startswith("3 trips, no network")


def test_trips_that_are_not_recovered_are_refused(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"sparse\.csv.*not recovered trips.*tedtrajrec recover"):
        map_file(files["sparse.csv"], tmp_path / "trip.html")
    assert not (tmp_path / "trip.html").exists()


def test_the_network_must_be_that_of_the_trips(files: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"column 'segment'.*not in the network, which has 13\b"):
        map_file(files["model.parquet"], tmp_path / "trip.html", network=make_grid(2, 3))
    with pytest.raises(InputError, match=r"column 'segment'.*steps lie \d+ m from their segments"):
        map_file(files["model.parquet"], tmp_path / "trip.html", network=make_grid(7, 7))


def test_other_files_must_be_of_the_same_trips(files: dict[str, Path], tmp_path: Path) -> None:
    strange = Trips(as_text(["strange"]), np.array([0, 1]), np.array([10**9]), np.array([-8.6]), np.array([41.2]))
    write_trips(strange, tmp_path / "strange.csv")
    for option in ("sparse", "truth"):
        with pytest.raises(InputError, match=r"strange\.csv.*none of the trips shown, such as 'drive 1'"):
            map_file(files["model.parquet"], tmp_path / "trip.html", **{option: tmp_path / "strange.csv"})


def test_the_verb_says_what_it_wrote(files: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "trip.html"
    words = ["map", str(files["model.parquet"]), "--network", str(files["network.npz"]), "--trips", "2"]
    result = CliRunner().invoke(app, [*words, "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert "the first 2 trips of the file, 115 segments around them" in result.output.replace("\n", "")
    assert output.read_text().startswith("<!doctype html>")
