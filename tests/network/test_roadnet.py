import dataclasses
import json

import numpy as np
import pytest

from tedtrajrec.errors import InputError
from tedtrajrec.network.candidates import CandidateFinder
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid


def segment_between(network, a, b):
    return int(np.flatnonzero((network.seg_from == a) & (network.seg_to == b))[0])


def test_successors_start_where_a_segment_ends_and_leave_out_the_way_back(tiny_city):
    segment = segment_between(tiny_city, 7, 8)
    followers = tiny_city.successors(segment)
    assert sorted(tiny_city.seg_to[followers]) == [2, 9, 14]
    assert set(tiny_city.seg_from[followers]) == {8}


def test_u_turns_are_kept_when_asked_for():
    network = make_grid(u_turns=True)
    segment = segment_between(network, 7, 8)
    assert network.twin[segment] in network.successors(segment)


def test_a_dead_end_allows_the_u_turn_that_a_junction_does_not():
    network = make_grid(columns=3, rows=1, one_way_row=None)
    inward, outward = segment_between(network, 1, 2), segment_between(network, 2, 1)
    assert list(network.successors(inward)) == [outward]
    assert list(network.successors(segment_between(network, 0, 1))) == [inward]


def test_forbidden_turns_are_missing_successors_also_at_dead_ends():
    plain = make_grid()
    turn = (segment_between(plain, 7, 8), segment_between(plain, 8, 14))
    network = make_grid(forbidden_turns=np.array([turn]))
    assert turn[1] in plain.successors(turn[0])
    assert turn[1] not in network.successors(turn[0])
    dead_end = make_grid(columns=3, rows=1, one_way_row=None)
    back = (segment_between(dead_end, 1, 2), segment_between(dead_end, 2, 1))
    closed = make_grid(columns=3, rows=1, one_way_row=None, forbidden_turns=np.array([back]))
    assert len(closed.successors(back[0])) == 0


def test_predecessors_invert_successors(tiny_city):
    offset, pred = tiny_city.pred_csr
    forward = {(s, int(t)) for s in range(len(tiny_city)) for t in tiny_city.successors(s)}
    backward = {(int(p), s) for s in range(len(tiny_city)) for p in pred[offset[s] : offset[s + 1]]}
    assert forward == backward


def test_twins_pair_up_and_one_way_streets_have_none(tiny_city):
    has_twin = tiny_city.twin >= 0
    assert (~has_twin).sum() == 5
    np.testing.assert_array_equal(tiny_city.twin[tiny_city.twin[has_twin]], np.flatnonzero(has_twin))


def curved_pair():
    """Two parallel two-way roads between the same nodes, and a two-way loop at the first node."""
    north, south, loop = [(0.0, 0.0), (0.001, 0.001), (0.002, 0.0)], [(0.0, 0.0), (0.001, -0.001), (0.002, 0.0)], [
        (0.0, 0.0), (-0.001, 0.0), (-0.001, 0.001), (0.0, 0.0),
    ]  # fmt: skip
    lines = [north, south, north[::-1], south[::-1], loop, loop[::-1]]
    return RoadNetwork.build(
        node_lon=[0.0, 0.002],
        node_lat=[0.0, 0.0],
        node_id=["a", "b"],
        seg_from=[0, 0, 1, 1, 0, 0],
        seg_to=[1, 1, 0, 0, 0, 0],
        road_class=[0] * 6,
        speed_mps=[10] * 6,
        geom_offset=np.cumsum([0, *map(len, lines)]),
        geom_lon=np.concatenate([np.array(line)[:, 0] for line in lines]),
        geom_lat=np.concatenate([np.array(line)[:, 1] for line in lines]),
        geom_way_id=np.repeat([7, 8, 7, 8, 9, 9], list(map(len, lines))),
    )


def test_parallel_roads_and_loops_have_their_own_twins():
    network = curved_pair()
    assert network.twin.tolist() == [2, 3, 0, 1, 5, 4]
    assert set(network.successors(0)) == {3}  # back by the other road, not by the same
    assert set(network.successors(4)) == {0, 1, 4}  # round again, or on; not back along the loop


def test_point_and_way_at_positions():
    network = curved_pair()
    lon, lat = network.point_at([0, 0, 0, 2], [0.0, 0.5, 1.0, 0.25])
    np.testing.assert_allclose(lon, [0.0, 0.001, 0.002, 0.0015], atol=1e-12)
    np.testing.assert_allclose(lat, [0.0, 0.001, 0.0, 0.0005], atol=1e-12)
    assert network.way_at([0, 1], 0.3).tolist() == [7, 8]
    assert network.osm_way_id.tolist() == [7, 8, 7, 8, 9, 9]
    with pytest.raises(IndexError, match="0 to 5"):
        network.point_at([6], [0.5])


def test_the_way_of_a_merged_segment_is_the_longest_but_way_at_is_exact():
    network = RoadNetwork.build(
        node_lon=[0.0, 0.003],
        node_lat=[0.0, 0.0],
        node_id=[1, 2],
        seg_from=[0],
        seg_to=[1],
        road_class=[0],
        speed_mps=[10],
        geom_offset=[0, 3],
        geom_lon=[0.0, 0.001, 0.003],
        geom_lat=[0.0, 0.0, 0.0],
        geom_way_id=[5, 3, 3],
    )
    assert network.osm_way_id.tolist() == [3]
    assert network.way_at(0, [0.1, 0.9]).tolist() == [5, 3]


def test_saving_and_loading_keeps_everything(tiny_city, tmp_path):
    path = tmp_path / "deep" / "network.npz"
    tiny_city.save(path)
    loaded = RoadNetwork.load(path)
    assert loaded.hash == tiny_city.hash
    assert loaded.meta == tiny_city.meta
    for name, array in tiny_city.arrays().items():
        np.testing.assert_array_equal(loaded.arrays()[name], array)
    assert [p.name for p in path.parent.iterdir()] == ["network.npz"]


def test_text_ids_survive(tmp_path):
    network = curved_pair()
    network.save(tmp_path / "n.npz")
    assert RoadNetwork.load(tmp_path / "n.npz").node_id.tolist() == ["a", "b"]


def test_hash_names_the_content_and_not_the_description(tiny_city):
    assert dataclasses.replace(tiny_city, meta={"name": "other"}).hash == tiny_city.hash
    faster = dataclasses.replace(tiny_city, speed_mps=tiny_city.speed_mps * np.float32(2))
    assert faster.hash != tiny_city.hash


def test_arrays_cannot_be_changed(tiny_city):
    with pytest.raises(ValueError, match="read-only"):
        tiny_city.length_m[0] = 1.0


def test_building_leaves_the_arrays_of_the_caller_alone():
    line = {"geom_lon": np.array([0.0, 0.001]), "geom_lat": np.zeros(2), "node_id": np.array([1, 2])}
    nodes = {"node_lon": line["geom_lon"], "node_lat": line["geom_lat"], "seg_from": np.zeros(1, np.int32)}
    rest = {"seg_to": [1], "road_class": [0], "speed_mps": [10], "geom_offset": [0, 2]}
    network = RoadNetwork.build(**line, **nodes, **rest)
    line["geom_lon"][1] = 5.0
    assert network.geom_lon.tolist() == [0.0, 0.001]
    assert all(array.flags.writeable for array in (*line.values(), *nodes.values()))


def test_subset_renumbers_and_keeps_connections(tiny_city):
    keep = np.flatnonzero((tiny_city.seg_from < 18) & (tiny_city.seg_to < 18))
    part = tiny_city.subset(keep).validate()
    assert len(part) == len(keep)
    for new, old in enumerate(keep):
        expected = [s for s in tiny_city.successors(old) if s in set(keep)]
        assert keep[part.successors(new)].tolist() == expected
        assert part.node_id[part.seg_from[new]] == tiny_city.node_id[tiny_city.seg_from[old]]
    np.testing.assert_array_equal(part.length_m, tiny_city.length_m[keep])


def swap_successors(network):
    """Return the successors with those of one segment in another order."""
    first = network.succ_offset[np.argmax(np.diff(network.succ_offset) > 1)]
    succ = network.succ.copy()
    succ[[first, first + 1]] = succ[[first + 1, first]]
    return succ


BROKEN = {
    "lengths are finite": {"length_m": lambda n: np.where(np.arange(len(n)) == 3, np.nan, n.length_m)},
    "speeds are positive": {"speed_mps": lambda n: n.speed_mps * np.float32(0)},
    "classes are known": {"road_class": lambda n: n.road_class + np.uint8(99)},
    "join known nodes": {"seg_to": lambda n: n.seg_to + np.int32(100)},
    "does not start where": {"succ": lambda n: n.succ[::-1].copy()},
    "known segments": {"succ": lambda n: n.succ + np.int32(9999)},
    "not sorted": {"succ": swap_successors},
    "degrees away from its node": {"node_lon": lambda n: n.node_lon + 0.01},
    "in degrees": {"geom_lat": lambda n: n.geom_lat * 100},
    "geom_offset": {"geom_offset": lambda n: n.geom_offset[::-1].copy()},
    "has shape": {"source_id": lambda n: n.source_id[:-1]},
    "holds float64, not int32": {"seg_from": lambda n: n.seg_from.astype(float)},
    "not integers or text": {"node_id": lambda n: n.node_id.astype(float)},
}


@pytest.mark.parametrize("message", BROKEN)
def test_validate_names_the_broken_promise(tiny_city, message):
    change = {name: make(tiny_city) for name, make in BROKEN[message].items()}
    with pytest.raises(InputError, match=message):
        dataclasses.replace(tiny_city, **change).validate()


def test_a_changed_file_does_not_agree_with_its_hash(tiny_city, tmp_path):
    header = {"format": "tedtrajrec-network", "version": 1, "hash": "0" * 16, "meta": {}}
    text = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(tmp_path / "n.npz", header=text, **tiny_city.arrays())
    with pytest.raises(InputError, match=r"n\.npz: the content does not agree with its hash"):
        RoadNetwork.load(tmp_path / "n.npz")


def test_a_folder_is_mapped_and_holds_the_same(tiny_city, tmp_path):
    path = tmp_path / "deep" / "city.network"
    tiny_city.save(path)
    loaded = RoadNetwork.load(path)
    assert loaded.hash == tiny_city.hash
    assert loaded.meta == tiny_city.meta
    for name, array in tiny_city.arrays().items():
        found = loaded.arrays()[name]
        np.testing.assert_array_equal(found, array)
        assert found.dtype == array.dtype
        assert type(found) is np.ndarray
        assert isinstance(found.base, np.memmap)
        assert not found.flags.writeable
    lon, lat = loaded.geom_lon[:3], loaded.geom_lat[:3]
    np.testing.assert_array_equal(
        CandidateFinder(loaded).nearest(lon, lat).segment, CandidateFinder(tiny_city).nearest(lon, lat).segment
    )
    loaded.save(tmp_path / "again.npz")
    assert RoadNetwork.load(tmp_path / "again.npz").hash == tiny_city.hash


def test_a_damaged_folder_is_an_error(tiny_city, tmp_path):
    def saved(name):
        tiny_city.save(tmp_path / f"{name}.network")
        return tmp_path / f"{name}.network"

    cut = saved("cut")
    (cut / "geom_lon.npy").write_bytes((cut / "geom_lon.npy").read_bytes()[:-8])
    missing = saved("missing")
    (missing / "succ.npy").unlink()
    unread = saved("unread")
    (unread / "header.json").write_text("[]")
    for path in (cut, missing, unread):
        with pytest.raises(InputError, match="the folder is damaged or is not a road network"):
            RoadNetwork.load(path)
    wrong = saved("wrong")
    np.save(wrong / "succ.npy", tiny_city.succ + np.int32(1))
    with pytest.raises(InputError, match="the road network is inconsistent"):
        RoadNetwork.load(wrong)
    other = saved("other")
    (other / "header.json").write_text(json.dumps({"format": "tedtrajrec-network", "version": 99}))
    with pytest.raises(InputError, match="version 99, expected"):
        RoadNetwork.load(other)
    with pytest.raises(InputError, match="this is a folder"):
        RoadNetwork.load(tmp_path)
    with pytest.raises(InputError, match=r"ends in \.npz"):
        tiny_city.save(tmp_path / "city.zip")
