"""Look-up: what past trips teach, what it does without them, and what it reaches on real trips."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tedtrajrec.data.dataset import shards_of, write_dataset
from tedtrajrec.methods.lookup import Lookup, LookupConfig, most_voted
from tedtrajrec.methods.past.voting import Votes
from tedtrajrec.methods.route_hmm import RouteHmm
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import Trips, concat_trips
from tests.methods.past.test_straight import as_batch
from tests.methods.peers import metrics_on_peers_trips
from tests.trips.test_match import path, trip

STEP_S = 10
SETTINGS = LookupConfig(noise_m=5.0, route=0.2)


def driven(network: RoadNetwork, way: list[int], *, metres: float = 50.0, name: str = "a") -> Trips:
    """Return a trip over whole segments of 100 m, a step every ``metres``, whose fixes are exact."""
    along = np.arange(metres / 2, 100 * len(way), metres)
    segment, ratio = np.array(way, np.int32)[(along // 100).astype(int)], along % 100 / 100
    lon, lat = network.point_at(segment, ratio)
    time = 1_700_000_000 + STEP_S * np.arange(len(along))
    return Trips.from_columns(np.full(len(along), name), time, lon, lat, segment=segment, ratio=ratio)


def trained(folder: Path, network: RoadNetwork, trips: list[Trips], config: LookupConfig | None = SETTINGS) -> Lookup:
    """Return the method after training trips."""
    splits = {"train": shards_of(concat_trips(trips))}
    dataset = write_dataset(folder / "ds", network, splits, step_s=STEP_S, time_zone="UTC")
    method = Lookup(network, config)
    method.precompute(dataset)
    return method


def ends_only(trips: Trips) -> list[bool]:
    return [k in (0, trips.n_fixes - 1) for k in range(trips.n_fixes)]


@pytest.fixture
def detour(tiny_city: RoadNetwork) -> list[int]:
    """Return a way from (0, 0) to (3, 0) round two corners more than needed."""
    return path(tiny_city, (0, 0), (1, 0), (1, 1), (2, 1), (2, 0), (3, 0))


def test_past_trips_decide_the_way(tiny_city: RoadNetwork, detour: list[int], tmp_path: Path) -> None:
    method = trained(tmp_path, tiny_city, [driven(tiny_city, detour, name=f"past {k}") for k in range(5)])
    sought = driven(tiny_city, detour)
    found = method.recover(as_batch(sought, ends_only(sought), tiny_city))
    assert sought.segment is not None
    assert sought.ratio is not None
    assert found.segment[0].tolist() == sought.segment.tolist()
    np.testing.assert_allclose(found.ratio[0], sought.ratio, atol=0.01)
    assert (found.log_prob[0].exp() > 0.5).all()


def test_past_trips_decide_the_pace(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    """Everybody stands for a minute on the second segment, so the middle of the time is not the middle of the way."""
    way = path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (5, 0))
    places = [(0, 0.5), (1, 0.5), *[(1, 0.6)] * 6, (2, 0.5), (3, 0.5), (4, 0.5)]
    segment, ratio = np.array([way[i] for i, _ in places], np.int32), np.array([r for _, r in places])
    lon, lat = tiny_city.point_at(segment, ratio)
    time = 1_700_000_000 + STEP_S * np.arange(len(places))
    past = [
        Trips.from_columns(np.full(len(time), f"{k}"), time, lon, lat, segment=segment, ratio=ratio) for k in range(3)
    ]
    method = trained(tmp_path, tiny_city, past)
    found = method.recover(as_batch(past[0], ends_only(past[0]), tiny_city))
    assert found.segment[0].tolist() == segment.tolist()


def test_past_trips_decide_between_parallel_roads(tiny_city: RoadNetwork, tmp_path: Path) -> None:
    """A fix half way between two streets lies on the one from where past trips came."""
    way = path(tiny_city, (0, 1), (1, 1), (2, 1), (3, 1), (4, 1))
    method = trained(tmp_path, tiny_city, [driven(tiny_city, way, name=f"past {k}") for k in range(4)])
    fixes = trip([(0, 25, 100), (10, 0, 0), (20, 125, 56), (30, 0, 0), (40, 225, 100)])
    found = method.recover(as_batch(fixes, [True, False, True, False, True], tiny_city))
    assert found.segment[0].tolist() == [way[0], way[0], way[1], way[1], way[2]]


def test_without_past_trips_it_is_route_hmm(tiny_city: RoadNetwork, detour: list[int]) -> None:
    trips = driven(tiny_city, detour)
    batch = as_batch(trips, [k % 5 == 0 or k == trips.n_fixes - 1 for k in range(trips.n_fixes)], tiny_city)
    found, expected = Lookup(tiny_city, SETTINGS).recover(batch), RouteHmm(tiny_city).recover(batch)
    assert found.segment.tolist() == expected.segment.tolist()
    np.testing.assert_allclose(found.ratio, expected.ratio, atol=1e-6)


def test_unknown_steps_of_past_trips_have_no_vote(tiny_city: RoadNetwork, detour: list[int], tmp_path: Path) -> None:
    past = driven(tiny_city, detour, name="past")
    assert past.segment is not None
    assert past.ratio is not None
    past.segment[4:6], past.ratio[4:6] = -1, np.nan
    method = trained(tmp_path, tiny_city, [past])
    sought = driven(tiny_city, detour)
    batch = as_batch(sought, ends_only(sought), tiny_city)
    found = method.recover(batch)
    assert (found.segment >= 0).all()
    assert found.segment[0, 2:4].tolist() == detour[1:2] * 2
    votes = method.votes(batch, RouteHmm(tiny_city).drive(batch))
    assert (votes.segment >= 0).all()


def test_a_fix_far_from_all_roads(tiny_city: RoadNetwork, detour: list[int], tmp_path: Path) -> None:
    method = trained(tmp_path, tiny_city, [driven(tiny_city, detour, name="past")])
    fixes = trip([(0, 25, 0), (10, -5000, -5000), (20, 75, 0), (30, 110, 0)])
    found = method.recover(as_batch(fixes, [True, True, False, True], tiny_city))
    assert (found.segment >= 0).all()
    lost = trip([(0, -5000, -5000), (10, -5000, -5100)])
    assert (method.recover(as_batch(lost, [True, True], tiny_city)).segment >= 0).all()


def test_workers_do_not_matter(tiny_city: RoadNetwork, detour: list[int], tmp_path: Path) -> None:
    method = trained(tmp_path, tiny_city, [driven(tiny_city, detour, name=f"past {k}") for k in range(3)])
    one = driven(tiny_city, detour)
    many = concat_trips(
        [Trips(np.array([f"{k}"], one.traj_id.dtype), *list(vars(one).values())[1:]) for k in range(150)]
    )
    batch = as_batch(many, ends_only(one) * 150, tiny_city)
    route = RouteHmm(tiny_city).drive(batch)
    votes = [method.votes(batch, route, workers=workers) for workers in (1, 3)]
    for a, b in zip(*votes, strict=True):
        np.testing.assert_array_equal(a, b)
    single = method.votes(
        as_batch(one, ends_only(one), tiny_city), RouteHmm(tiny_city).drive(as_batch(one, ends_only(one), tiny_city))
    )
    np.testing.assert_array_equal(votes[0].share.reshape(150, -1), np.tile(single.share, (150, 1)))


def test_settings_are_chosen_on_training_trips(tiny_city: RoadNetwork, detour: list[int], tmp_path: Path) -> None:
    past = [driven(tiny_city, detour, name=f"past {k}") for k in range(12)]
    given = trained(tmp_path / "given", tiny_city, past).state()["chosen"]
    assert given.tolist() == [5.0, 0.2]
    chosen = trained(tmp_path / "chosen", tiny_city, past, LookupConfig()).state()["chosen"]
    assert (chosen > 0).all()


def test_the_most_voted_segment() -> None:
    votes = Votes(
        np.array([0, 2, 2, 4]), np.array([7, 3, 9, 4], np.int32), np.array([0.4, 0.6, 0.5, 0.5]), np.arange(4) / 4
    )
    segment, ratio, log_prob = most_voted(votes, 1)
    assert segment.tolist() == [[3], [-1], [4]]
    np.testing.assert_array_equal(ratio[:, 0], [0.25, np.nan, 0.75])
    np.testing.assert_allclose(np.exp(log_prob[:, 0]), [0.6, np.nan, 0.5])
    segment, ratio, log_prob = most_voted(votes, 3)
    assert segment.tolist() == [[3, 7, -1], [-1, -1, -1], [4, 9, -1]]
    np.testing.assert_array_equal(ratio[0], [0.25, 0.0, np.nan])
    np.testing.assert_allclose(np.exp(log_prob[0]), [0.6, 0.4, np.nan])


@pytest.mark.real
def test_real_trips(chengdu: RoadNetwork, data_dir: Path, peers_dir: Path, tmp_path: Path) -> None:
    """At least .75 accuracy and .81 F1 on the 828 trips and the fixed draw of the peers; asked for were .70 and .75."""
    metrics = metrics_on_peers_trips(Lookup(chengdu), data_dir, peers_dir, tmp_path)
    assert metrics.n_unanswered.sum() == 0
    assert metrics.accuracy.mean() >= 0.75
    assert metrics.f1.mean() >= 0.81
