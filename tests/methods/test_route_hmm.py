"""Route + HMM: what it drives without and with training trips, and what it reaches on real trips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.errors import ConfigError
from tedtrajrec.methods.registry import make_method
from tedtrajrec.methods.route_hmm import RouteHmm, RouteHmmConfig, learn_noise
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips, concat_trips
from tests.conftest import make_grid
from tests.methods.past.test_drives import steps
from tests.methods.past.test_links import ends, island
from tests.methods.past.test_straight import as_batch
from tests.methods.peers import metrics_on_peers_trips
from tests.trips.test_match import path, trip


def trained(path: Path, network: RoadNetwork, trips: Trips, config: RouteHmmConfig | None = None) -> RouteHmm:
    """Return the method after training trips."""
    dataset = write_dataset(path / "ds", network, {"train": shards_of(trips)}, step_s=10, time_zone="UTC")
    method = RouteHmm(network, config)
    method.precompute(dataset)
    return method


def test_the_route_is_driven_at_free_flow_without_training(tiny_city: RoadNetwork) -> None:
    way = path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0))
    trips = trip([(0, 50, 3), (10, 0, 0), (20, 250, -3)])
    found = RouteHmm(tiny_city).recover(as_batch(trips, [True, False, True], tiny_city))
    assert found.segment[0].tolist() == way
    np.testing.assert_allclose(found.ratio[0], 0.5, atol=0.01)
    assert found.log_prob[0, [0, 2]].isfinite().all()
    assert found.log_prob[0, 1].isnan()


def test_learned_pace_moves_the_steps(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    a, b, c = path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0))
    slow = [(a, 0.0), (b, 0.0), (b, 0.25), (b, 0.5), (b, 0.75), (c, 0.0), (c, 0.9)]
    trips = concat_trips([steps(*slow, name=str(i)) for i in range(300)])
    batch = as_batch(trip([(0, 10, 0), (10, 0, 0), (20, 0, 0), (30, 290, 0)]), [True, False, False, True], tiny_city)
    constant = trained(tmp_path / "1", tiny_city, trips, RouteHmmConfig(pace="constant")).recover(batch)
    learned = trained(tmp_path / "2", tiny_city, trips).recover(batch)
    assert constant.segment[0].tolist() == [a, b, b, c] or constant.segment[0].tolist() == [a, b, c, c]
    assert learned.segment[0].tolist() == [a, b, b, c]
    assert learned.ratio[0, 2] < constant.ratio[0, 2]


def test_the_popular_way_is_taken(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    batch = as_batch(trip([(0, 60, 0), (10, 0, 0), (20, 0, 0), (30, 200, 240)]), [True, False, False, True], tiny_city)
    for k, corner in enumerate([(1, 2), (2, 0)]):
        way = path(tiny_city, (0, 0), (1, 0), *([(1, 1), corner] if k == 0 else [corner, (2, 1)]), (2, 2), (2, 3))
        trips = concat_trips([steps(*((s, 0.5) for s in way), name=str(i)) for i in range(20)])
        found = trained(tmp_path / str(k), tiny_city, trips).recover(batch)
        assert set(found.segment[0].tolist()) <= set(way)
        matched = RouteHmmConfig(route="matched")
        same = trained(tmp_path / f"m{k}", tiny_city, trips, matched).recover(batch).segment
        assert (same[0, [0, 3]] == found.segment[0, [0, 3]]).all()


def test_a_road_that_the_map_lacks(tmp_path: Path) -> None:
    network = island()
    a, b = ends(network)
    trips = concat_trips([steps((a, 0.1), (a, 0.9), (b, 0.5), name=str(i)) for i in range(5)])
    batch = as_batch(trip([(0, 110, 0), (10, 0, 0), (20, 0, 0), (30, 390, 0)]), [True, False, False, True], network)
    method = trained(tmp_path / "links", network, trips)
    driven = method.drive(batch)
    assert driven.segment.tolist() == [a, a, b, b] or driven.segment.tolist() == [a, a, a, b]
    without = trained(tmp_path / "none", network, trips, RouteHmmConfig(links=False))
    assert without.drive(batch).segment.tolist() == [a, -1, -1, b]
    assert (without.recover(batch).segment >= 0).all()


def test_steps_in_a_break_follow_the_straight_line() -> None:
    network = make_grid(columns=40, rows=2, one_way_row=None)
    # Too fast for any car, so the chain breaks; the answer is the road along the line, in its direction.
    batch = as_batch(trip([(0, 50, 0), (10, 0, 0), (20, 3850, 0)]), [True, False, True], network)
    found = RouteHmm(network).recover(batch)
    middle = int(found.segment[0, 1])
    assert network.seg_to[middle] == network.seg_from[middle] + 1
    assert network.seg_from[middle] in (18, 19, 20)


def test_noise_is_learned_from_the_distance_to_the_truth(tiny_city: RoadNetwork) -> None:
    rng = np.random.default_rng(0)
    n = 20_000
    segment, ratio = rng.integers(0, tiny_city.n_segments, n), rng.random(n)
    x, y = tiny_city.plane.to_xy(*tiny_city.point_at(segment, ratio))
    lon, lat = tiny_city.plane.to_lonlat(x + rng.normal(0, 7, n), y)
    trips = Trips.from_columns(np.zeros(n, int), np.arange(n), lon, lat, segment=segment, ratio=ratio)
    assert learn_noise(tiny_city, trips) == pytest.approx(7, rel=0.03)
    assert np.isnan(learn_noise(tiny_city, trips.keep_fixes(np.arange(n) < 50)))


def test_settings(tiny_city: RoadNetwork) -> None:
    with pytest.raises(ConfigError, match="must be one of 'constant', 'class', 'learned'"):
        make_method("route_hmm", tiny_city, ["pace=fast"])


@pytest.mark.real
def test_real_trips(chengdu: RoadNetwork, data_dir: Path, peers_dir: Path, tmp_path: Path) -> None:
    """At least .66 accuracy and .73 F1 on the 828 trips and the fixed draw of the peers."""
    metrics = metrics_on_peers_trips(RouteHmm(chengdu), data_dir, peers_dir, tmp_path)
    assert metrics.n_unanswered.sum() == 0
    assert metrics.accuracy.mean() >= 0.66
    assert metrics.f1.mean() >= 0.73
