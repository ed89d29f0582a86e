"""The figures of a network, counted by hand on small ones and by other means on the real ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from tedtrajrec.network.describe import describe
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid


def test_a_grid_counted_by_hand():
    info = describe(make_grid(3, 3, one_way_row=1))
    assert (info.n_segments, info.n_nodes, info.n_vertices) == (22, 9, 44)
    assert info.segment_km == pytest.approx(2.2, rel=1e-3)
    assert info.road_km == pytest.approx(1.2, rel=1e-3), "twelve streets"
    assert info.one_way_share == pytest.approx(2 / 12, rel=1e-3)
    assert info.mean_roads_per_node == pytest.approx(24 / 9)
    assert (info.n_components, info.largest_segments, info.largest_share) == (1, 22, 1.0)
    assert info.lost == ()
    assert (info.n_cul_de_sacs, info.n_without_successor, info.n_without_predecessor) == (0, 0, 0)
    assert (info.width_km, info.height_km) == pytest.approx((0.2, 0.2), rel=1e-3)
    (residential,) = info.classes
    assert (residential.name, residential.n_segments) == ("residential", 22)
    assert residential.mean_speed_kmh == pytest.approx(36)


def crossing() -> RoadNetwork:
    """Return a two-way street 0-1, a one-way street on to 2, and a primary road of 72 km/h elsewhere."""
    lon = np.array([-8.62, -8.61, -8.60, -8.60, -8.59])
    lat = np.array([41.15, 41.15, 41.15, 41.16, 41.16])
    u, v = np.array([0, 1, 1, 3]), np.array([1, 0, 2, 4])
    return RoadNetwork.build(
        node_lon=lon,
        node_lat=lat,
        node_id=np.arange(5),
        seg_from=u,
        seg_to=v,
        road_class=[11, 11, 11, 4],
        speed_mps=[10, 10, 20, 20],
        geom_offset=np.arange(5) * 2,
        geom_lon=lon[np.column_stack([u, v])].ravel(),
        geom_lat=lat[np.column_stack([u, v])].ravel(),
        geom_way_id=[5, 5, 5, 5, 0, 0, 9, 9],
        u_turns=True,
        meta={"source": "by hand", "attribution": "ours"},
    )


def test_a_broken_network_counted_by_hand():
    info = describe(crossing())
    assert info.n_components == 3
    assert info.largest_segments == 2
    assert info.largest_share == pytest.approx(0.5, rel=1e-3)
    assert info.n_cul_de_sacs == 4
    assert info.n_without_successor == 2
    assert info.n_without_predecessor == 1, "the one-way street is led to by the street"
    assert info.one_way_share == pytest.approx(2 / 3, rel=1e-3)
    primary, residential = info.classes
    assert (primary.name, primary.one_way_share, primary.mean_speed_kmh) == ("primary", 1.0, pytest.approx(72))
    assert residential.one_way_share == pytest.approx(0.5)
    assert residential.mean_speed_kmh == pytest.approx(3.6 * 3 / (1 / 10 + 1 / 10 + 1 / 20)), "length over time"
    assert [piece.osm_way_id for piece in info.lost] == [0, 9]


def test_the_text_says_it_all():
    network = crossing()
    text = str(describe(network))
    for part in (
        network.hash,
        "by hand",
        "ours",
        "4 directed",
        "50.00% of length",
        "primary",
        "residential",
        "3 (strong)",
    ):
        assert part in text, part
    assert "entered, not left (segment 2)" in text
    assert "neither entered nor left (OSM way 9)" in text
    assert max(len(line) for line in text.splitlines()) <= 100


@pytest.mark.real
def test_chengdu(chengdu):
    info = describe(chengdu)
    assert (info.n_segments, info.n_nodes) == (3046, 1895)
    assert sum(c.n_segments for c in info.classes) == 3046
    assert sum(c.km for c in info.classes) == pytest.approx(info.segment_km)
    pairs = set(zip(chengdu.seg_from.tolist(), chengdu.seg_to.tolist(), strict=True))
    successors = scipy.sparse.csr_array(
        (np.ones(len(chengdu.succ)), chengdu.succ, chengdu.succ_offset), shape=(3046, 3046)
    )
    n_components, label = scipy.sparse.csgraph.connected_components(successors, connection="strong")
    assert info.n_components == n_components
    length = np.bincount(label, weights=chengdu.length_m)
    assert info.largest_share == pytest.approx(length.max() / length.sum())
    one_way = sum((v, u) not in pairs for u, v in pairs)
    assert one_way <= (chengdu.twin < 0).sum() <= one_way + 40, "parallel roads aside"
    assert info.width_km == pytest.approx(10.83, abs=0.01)
    assert info.n_bytes == sum(a.nbytes for a in chengdu.arrays().values())
