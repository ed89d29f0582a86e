import dataclasses
from pathlib import Path

import matplotlib.image
import pytest

from tedtrajrec.config import load_config
from tedtrajrec.errors import InputError, OutputError
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.simulation.config import SimulationConfig
from tedtrajrec.trips.traffic_plot import plot_traffic


@pytest.fixture(scope="module")
def traffic():
    config = load_config(SimulationConfig, Path(__file__).parents[2] / "configs" / "demo-sim.toml")
    network = synthetic_city(size="small")
    return network, simulate_trips(network, trips=300, config=config), config


def test_the_picture_shows_hours_levels_and_three_maps(traffic, tmp_path):
    network, trips, config = traffic
    plot_traffic(network, trips, tmp_path / "traffic.svg", config=config)
    text = (tmp_path / "traffic.svg").read_text()
    for words in (
        "300 simulated trips, 1 days",
        "trips under way",
        "at 3:00",
        "at 8:30",
        "at 18:15",
        "Monday to Friday",
    ):
        assert f"<!-- {words}" in text or words in text
    assert "weekend -->" not in text  # the demo has one day, a Tuesday


def test_its_width_is_as_asked(traffic, tmp_path):
    network, trips, config = traffic
    plot_traffic(network, trips, tmp_path / "traffic.png", config=config, width_px=900)
    assert matplotlib.image.imread(tmp_path / "traffic.png").shape[1] == 900


def test_trips_without_truth_and_other_formats_are_refused(traffic, tmp_path):
    network, trips, config = traffic
    with pytest.raises(InputError, match="segments and ratios"):
        plot_traffic(network, dataclasses.replace(trips, segment=None), tmp_path / "x.png", config=config)
    with pytest.raises(OutputError):
        plot_traffic(network, trips, tmp_path / "x.bmp", config=config)
