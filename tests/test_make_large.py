"""The simulated dataset of the size of Shanghai-L: its settings, and all stages on a smaller city."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from tedtrajrec.config import load_config
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.pack import unpack_dataset
from tedtrajrec.network.synthetic import CityConfig, synthetic_city
from tedtrajrec.trips.simulation.config import SimulationConfig

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
make_large = importlib.import_module("make_large")


def test_the_city_is_as_large_as_the_papers() -> None:
    network = synthetic_city(seed=0, config=make_large.CITY)
    assert network.n_segments >= 35_000
    settings = load_config(SimulationConfig, make_large.SETTINGS)
    assert settings.demand.most_minutes <= 20
    assert settings.calendar.time_zone == make_large.PREPARE.time_zone


def test_all_stages_and_what_is_there_is_left(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(make_large, "CITY", CityConfig(radius_m=4000.0, block_m=400.0, river_m=200.0))
    dataset = make_large.make_large(tmp_path, 20)
    assert isinstance(dataset, Dataset)
    assert dataset.info.step_s == 10
    trips = [dataset.split(name).trips() for name in ("train", "valid", "test")]
    assert 17 <= sum(map(len, trips)) <= 20
    assert all(36 <= length <= 121 for part in trips for length in part.lengths.tolist())  # 6 to 20 minutes
    assert all((part.segment >= 0).all() for part in trips)
    unpack_dataset(tmp_path / "shanghai-like.pack", tmp_path / "again")
    assert Dataset(tmp_path / "again").network.hash == dataset.network.hash
    assert "there already" not in capsys.readouterr().out
    make_large.make_large(tmp_path, 20)
    assert capsys.readouterr().out.count("there already") == 4
