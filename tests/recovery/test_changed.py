"""Models on a newer version of their map."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest

from tedtrajrec import Recoverer
from tedtrajrec.data.dataset import Dataset, write_dataset
from tedtrajrec.errors import InputError
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.registry import load_method
from tedtrajrec.methods.tedtrajrec_parallel import TedTrajRecParallel
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.recovery.changed import find_change, renumbered
from tedtrajrec.training.profile import write_profile
from tedtrajrec.training.train import train_method
from tedtrajrec.trips.table import Trips
from tests.conftest import published_trips
from tests.recovery.test_recoverer import assert_sound, sparse_trips


def reordered(network: RoadNetwork, order: np.ndarray) -> RoadNetwork:
    """Return the same network with its segments in another order."""
    new = np.argsort(order)
    per_segment = ("seg_from", "seg_to", "length_m", "road_class", "speed_mps", "source_id")
    vertices = ranges(network.geom_offset[order], np.diff(network.geom_offset)[order])
    followers = [np.sort(new[network.successors(int(s))]) for s in order]
    return dataclasses.replace(
        network,
        **{name: getattr(network, name)[order] for name in per_segment},
        geom_offset=np.concatenate([[0], np.cumsum(np.diff(network.geom_offset)[order])]).astype(np.int64),
        **{name: getattr(network, name)[vertices] for name in ("geom_lon", "geom_lat", "geom_way_id")},
        succ_offset=np.concatenate([[0], np.cumsum([len(f) for f in followers])]).astype(np.int64),
        succ=np.concatenate(followers).astype(np.int32),
    )


@pytest.fixture(scope="module")
def order(recovery_dataset: Dataset) -> np.ndarray:
    return np.random.default_rng(2).permutation(len(recovery_dataset.network))


def test_segments_are_found_in_any_order(recovery_dataset: Dataset, order: np.ndarray) -> None:
    network = recovery_dataset.network
    change = find_change(network, reordered(network, order))
    np.testing.assert_array_equal(change.old, order)
    np.testing.assert_array_equal(change.new, np.argsort(order))
    assert str(change) == f"0 of {len(network)} segments are new and 0 are gone"


def test_what_is_gone_and_what_is_new(recovery_dataset: Dataset) -> None:
    network = recovery_dataset.network
    some, others = network.subset(np.arange(0, 400)), network.subset(np.arange(100, len(network)))
    change = find_change(some, others)
    assert (change.new[:100] == -1).all()
    np.testing.assert_array_equal(change.new[100:], np.arange(300))
    np.testing.assert_array_equal(change.old[:300], np.arange(100, 400))
    assert (change.old[300:] == -1).all()
    assert str(change) == f"{len(network) - 400} of {len(network) - 100} segments are new and 100 are gone"


def test_moved_segments_are_others(tiny_city: RoadNetwork) -> None:
    metre = 1 / 111_074.0
    for metres, same in ((3.0, True), (8.0, False)):
        moved = dataclasses.replace(
            tiny_city, node_lat=tiny_city.node_lat + metres * metre, geom_lat=tiny_city.geom_lat + metres * metre
        )
        change = find_change(tiny_city, moved)
        assert (change.old == (np.arange(len(tiny_city)) if same else -1)).all()


def state_learned(network: RoadNetwork, trips: Trips, folder: Path, **settings: float) -> Arrays:
    """Return the state of a parallel method that has seen past trips, and is not trained."""
    dataset = write_dataset(folder, network, {"train": [trips]}, step_s=15, time_zone="Europe/Berlin")
    method = TedTrajRecParallel(network, ParallelConfig(d=8, heads=2, width=8, hidden=8, **settings))
    method.precompute(dataset)
    return method.state()


def assert_same_past(network: RoadNetwork, trips: Trips, order: np.ndarray, folder: Path) -> Arrays:
    """Check that a renumbered state is what the method would have learned on the new map; return that."""
    there = reordered(network, order)
    moved = trips.replace(segment=np.append(np.argsort(order), -1)[trips.segment].astype(np.int32))
    state = state_learned(network, trips, folder / "old", voted=0.3)
    learned = state_learned(there, moved, folder / "new", voted=0.3)
    found = renumbered(state, find_change(network, there), network, there)
    expected = {name: array for name, array in learned.items() if name.startswith("past.")}
    assert {name for name in found if name.startswith("past.")} == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-6, atol=1e-4, err_msg=name)
        assert found[name].dtype == array.dtype
    np.testing.assert_array_equal(found["road_gnn.table"], state["road_gnn.table"][order])
    return expected


def test_past_trips_are_what_they_would_have_been_on_the_new_map(
    recovery_dataset: Dataset, order: np.ndarray, tmp_path: Path
) -> None:
    """Numbering aside, nothing differs from learning on the new map; there are too few trips for any to be left out."""
    trips = recovery_dataset.split("train").trips()
    expected = assert_same_past(recovery_dataset.network, trips, order, tmp_path)
    assert expected["past.lookup.route.turn_count"].sum() > 100


@pytest.mark.real
def test_links_keep_their_turns(data_dir: Path, chengdu: RoadNetwork, tmp_path: Path) -> None:
    """In a map that lacks roads."""
    trips = published_trips(data_dir, chengdu)
    drawn = np.random.default_rng(3).permutation(len(chengdu))
    expected = assert_same_past(chengdu, trips.select(np.arange(250)), drawn, tmp_path)
    assert len(expected["past.lookup.route.link_source"]) > 5


def test_what_is_gone_is_nowhere_for_those_who_vote(recovery_dataset: Dataset, tmp_path: Path) -> None:
    network, trips = recovery_dataset.network, recovery_dataset.split("train").trips()
    state = state_learned(network, trips, tmp_path / "old", voted=0.3)
    driven = state["past.lookup.past.segment"]
    gone = np.unique(driven[driven >= 0])[::3]
    smaller = network.subset(np.setdiff1d(np.arange(len(network)), gone))
    change = find_change(network, smaller)
    found = renumbered(state, change, network, smaller)
    np.testing.assert_array_equal(found["past.lookup.past.segment"] == -1, (driven < 0) | np.isin(driven, gone))
    assert 0 < found["past.lookup.route.turn_count"].sum() < state["past.lookup.route.turn_count"].sum()
    method = TedTrajRecParallel(smaller, ParallelConfig(d=8, heads=2, width=8, hidden=8, voted=0.3))
    method.restore(found)
    recoverer, sparse = Recoverer(method, step_s=15, time_zone="Europe/Berlin"), sparse_trips(recovery_dataset)
    assert_sound(recoverer.recover_trips(sparse), sparse, recoverer, 15)


@pytest.fixture(scope="module")
def stepwise(recovery_dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("changed") / "run"
    tiny = ["model.d=8", "model.heads=2", "model.width=8", "model.encoder_layers=1", "train.batch=10", "train.epochs=1"]
    train_method("tedtrajrec", recovery_dataset, path, overrides=tiny, device="cpu")
    return path


@pytest.mark.parametrize("kind", ["run", "stepwise"])
def test_a_map_in_another_order_changes_nothing(
    kind: str, recovery_dataset: Dataset, order: np.ndarray, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(kind)
    sparse = sparse_trips(recovery_dataset)
    old = Recoverer.load(folder, device="cpu").recover_trips(sparse)
    recoverer = Recoverer.load(folder, network=reordered(recovery_dataset.network, order), device="cpu")
    new = recoverer.recover_trips(sparse)
    np.testing.assert_array_equal(new.time, old.time)
    # Of equally good candidates and ways the one of the lower number is taken, which is now another one.
    assert (order[new.segment] == old.segment).mean() > 0.9
    assert np.abs(new.probability - old.probability).mean() < 0.02
    (note,) = recoverer.notes
    assert note.startswith("The model was trained on an older map: 0 of")


@pytest.mark.parametrize("kind", ["run", "stepwise"])
def test_a_map_with_roads_less_and_more(
    kind: str, recovery_dataset: Dataset, order: np.ndarray, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    network = recovery_dataset.network
    folder: Path = request.getfixturevalue(kind)
    sparse = sparse_trips(recovery_dataset)
    old = Recoverer.load(folder, device="cpu").recover_trips(sparse)
    driven = np.unique(old.segment)
    unused = np.setdiff1d(order, driven)[:20]
    smaller = network.subset(np.setdiff1d(np.arange(len(network)), unused))
    recoverer = Recoverer.load(folder, network=smaller, device="cpu")
    recovered = recoverer.recover_trips(sparse)
    assert_sound(recovered, sparse, recoverer, 15)
    assert f"{len(unused)} are gone" in recoverer.notes[0]
    same = find_change(network, smaller).old[recovered.segment] == old.segment
    assert same.mean() > 0.6
    larger = tmp_path / "larger"  # as if the model had been trained on the smaller one
    shutil.copytree(folder, larger)
    recoverer.method.save(larger)
    smaller.save(larger / "network.npz")
    grown = Recoverer.load(larger, network=network, device="cpu")
    assert f"{len(unused)} of {len(network)} segments are new and 0 are gone" in grown.notes[0]
    assert_sound(grown.recover_trips(sparse), sparse, grown, 15)


def test_weights_from_another_city_know_no_places_on_a_newer_map_either(run: Path, tmp_path: Path) -> None:
    city = synthetic_city(size="small", seed=9)
    method = load_method(run, city)
    assert method.origin is not None
    method.save(tmp_path)
    city.save(tmp_path / "network.npz")
    shutil.copyfile(run / "profile.json", tmp_path / "profile.json")
    newer = reordered(city, np.random.default_rng(0).permutation(len(city)))
    there = Recoverer.load(tmp_path, network=newer, device="cpu")
    assert there.method.origin == method.origin
    assert "trained on another network" in " ".join(there.notes)


def test_another_city_is_no_newer_map(run: Path, stepwise: Path) -> None:
    city = synthetic_city(size="small", seed=9)
    assert "trained on another network" in Recoverer.load(run, network=city, device="cpu").notes[0]
    with pytest.raises(InputError, match="holds for the segments of one network only"):
        Recoverer.load(stepwise, network=city)


def test_tables_of_one_network_stay_there(recovery_dataset: Dataset, order: np.ndarray, tmp_path: Path) -> None:
    lookup = Lookup(recovery_dataset.network)
    lookup.precompute(recovery_dataset)
    lookup.save(tmp_path)
    write_profile(tmp_path, recovery_dataset, ["1/8"])
    assert Recoverer.load(tmp_path).method.name == "lookup"
    with pytest.raises(InputError, match="lookup knows one network only"):
        Recoverer.load(tmp_path, network=reordered(recovery_dataset.network, order))
