"""Edge tables: the same network from any format, and what rows and columns mean."""

from __future__ import annotations

import gzip
from pathlib import Path

import geopandas
import numpy as np
import pandas
import pytest
import scipy.sparse
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import InputError
from tedtrajrec.network.classes import OSM_ATTRIBUTION, ROAD_CLASSES
from tedtrajrec.network.edge_table import read_edge_table
from tedtrajrec.network.roadnet import RoadNetwork
from tests.network.edge_rows import GOOD, WGS84, A, B, C, feature, read_features, write_geojson


def write_all_formats(frame: geopandas.GeoDataFrame, folder: Path) -> list[Path]:
    """Write one table as GeoJSON, GeoParquet, CSV and TSV, text also gzipped."""
    frame = frame.reset_index(drop=True)
    frame.to_parquet(folder / "e.parquet")
    (folder / "e.geojson").write_text(frame.to_json(), encoding="utf-8")
    text = pandas.DataFrame(frame.drop(columns="geometry")).assign(wkt=shapely.to_wkt(frame.geometry, -1))
    text.to_csv(folder / "e.csv", index=False)
    text.to_csv(folder / "e.tsv", index=False, sep="\t")
    for name in ("e.geojson", "e.csv", "e.tsv"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    return sorted(folder.iterdir())


def test_all_formats_give_the_same_network(tmp_path, tiny_city):
    paths = write_all_formats(tiny_city.to_geodataframe(), tmp_path)
    assert len(paths) == 7
    for path in paths:
        network = read_edge_table(path, u_turns=False)
        np.testing.assert_array_equal(network.node_id[network.seg_from], tiny_city.node_id[tiny_city.seg_from])
        np.testing.assert_array_equal(network.node_id[network.seg_to], tiny_city.node_id[tiny_city.seg_to])
        for name in ("source_id", "road_class", "speed_mps", "geom_lon", "geom_lat", "geom_offset", "succ", "length_m"):
            np.testing.assert_array_equal(getattr(network, name), getattr(tiny_city, name), err_msg=f"{path} {name}")
        assert network.meta["source"] == path.name


@pytest.mark.real
def test_chengdu_is_as_its_readme_says(chengdu, data_dir):
    assert (chengdu.n_segments, chengdu.n_nodes) == (3046, 1895)
    by_node = scipy.sparse.csr_array((np.ones(3046), (chengdu.seg_from, chengdu.seg_to)), shape=(1895, 1895))
    _, label = scipy.sparse.csgraph.connected_components(by_node, connection="strong")
    assert np.bincount(label).max() == 1031
    frame = geopandas.read_file(f"/vsigzip/{data_dir / 'chengdu' / 'network.geojson.gz'}")
    np.testing.assert_array_equal(chengdu.source_id, frame["edge_id"])
    np.testing.assert_array_equal(chengdu.osm_way_id, frame["osm_way_id"])
    np.testing.assert_array_equal(np.array(ROAD_CLASSES)[chengdu.road_class], frame["highway"].astype(str))
    np.testing.assert_array_equal(
        np.column_stack([chengdu.geom_lon, chengdu.geom_lat]), shapely.get_coordinates(frame.geometry)
    )
    utm = frame.to_crs(frame.estimate_utm_crs()).length
    np.testing.assert_allclose(chengdu.length_m, utm, rtol=1e-3)  # UTM itself is off by up to .04 %
    twins = np.flatnonzero(chengdu.twin >= 0)
    assert len(twins) > 500
    assert all(chengdu.twin[i] in chengdu.successors(i) for i in twins), "U-turns of edge tables are kept"
    assert chengdu.meta["attribution"] == OSM_ATTRIBUTION


@pytest.mark.real
def test_porto_as_a_table_and_back(tmp_path, porto):
    porto.to_geodataframe().to_parquet(tmp_path / "porto.parquet")
    network = read_edge_table(tmp_path / "porto.parquet", u_turns=False)
    np.testing.assert_array_equal(network.node_id[network.seg_from], porto.node_id[porto.seg_from])
    for name in ("geom_offset", "geom_lon", "geom_lat", "road_class", "speed_mps", "succ_offset", "succ"):
        np.testing.assert_array_equal(getattr(network, name), getattr(porto, name), err_msg=name)
    assert network.meta["segments_added_backwards"] == 0


@pytest.mark.real
def test_a_table_of_others_with_repeated_rows(peers_dir):
    path = peers_dir / "porto500" / "segments.parquet"
    table = pandas.read_parquet(path).set_index("seg_id")
    network = read_edge_table(path)
    assert network.meta["rows_repeated"] == table.duplicated(["u", "v", "wkt"]).sum() == 14
    assert network.n_segments == len(table) - 14
    assert network.length_m.sum() / 1000 == pytest.approx(177.43, rel=1e-3)  # as its own description says
    # Its own column of the segments that run back agrees with ours, once repeated ids stand for the ids kept.
    kept = {int(dropped): keep for dropped, keep in network.meta["repeated_ids"].items()}
    back = table["reverse_seg"].map(lambda i: kept.get(i, i)).loc[network.source_id].to_numpy()
    np.testing.assert_array_equal(np.where(network.twin < 0, -1, network.source_id[network.twin]), back)


@pytest.mark.real
def test_without_u_turns_they_remain_at_dead_ends_only(data_dir):
    network = read_edge_table(data_dir / "chengdu" / "network.geojson.gz", u_turns=False)
    for i in np.flatnonzero(network.twin >= 0):
        followers = network.successors(i)
        assert network.twin[i] not in followers or len(followers) == 1


@pytest.mark.parametrize(
    ("u", "v"), [("from", "to"), ("Source", "Target"), ("START_NODE", "END_NODE"), ("from_node", "to_node")]
)
@pytest.mark.parametrize("geometry", ["WKT", "the_geom", "geometry"])
def test_usual_column_names_are_recognised(tmp_path, u, v, geometry):
    path = tmp_path / "e.csv"
    path.write_text(f'{u},{v},{geometry}\n1,2,"LINESTRING (-8.62 41.15, -8.61 41.15)"\n', encoding="utf-8")
    network = read_edge_table(path)
    assert network.node_id.tolist() == [1, 2]
    assert network.node_lon.tolist() == [-8.62, -8.61]


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([1.0, 2.0, 3.0], [1, 2, 3]),
        (["1", "2", "3"], [1, 2, 3]),
        (["a", "b", "c"], ["a", "b", "c"]),
        (["7", "007", "c"], ["7", "007", "c"]),
        (["1", "01", "2"], ["1", "01", "2"]),
        ([1, "n2", 3], ["1", "n2", "3"]),
        ([1, 1.5, 3], ["1.0", "1.5", "3.0"]),
        ([10**25, 2, 3], [str(10**25), "2", "3"]),
    ],
)
def test_node_ids_are_integers_or_text(tmp_path, ids, expected):
    a, b, c = ids
    assert read_features(tmp_path, [feature(a, b, [A, B]), feature(b, c, [B, C])]).node_id.tolist() == expected


def test_ids_ways_classes_and_speeds(tmp_path):
    features = [
        feature(1, 2, [A, B], edge_id=10, osmid=[5, 6], highway=["residential", "secondary"], maxspeed="30 mph"),
        feature(2, 1, [B, A], edge_id=12, osmid=7, highway="steps", maxspeed=["50", "30"]),
        feature(2, 3, [B, C], edge_id=11, osmid=None, highway=None, maxspeed=None),
        feature(3, 2, [C, B], edge_id=13, osmid="way/8", highway="Primary", maxspeed="signals"),
        feature(1, 3, [A, B, C], edge_id=14, osmid=9.0, highway="primary", maxspeed="fast", speed_kmh=72),
    ]
    network = read_features(tmp_path, features)
    assert network.source_id.tolist() == [10, 12, 11, 13, 14]
    assert network.osm_way_id.tolist() == [5, 7, 0, 8, 9]
    classes = [ROAD_CLASSES[c] for c in network.road_class]
    assert classes == ["secondary", "road", "road", "primary", "primary"]
    np.testing.assert_allclose(network.speed_mps * 3.6, [48.28032, 40, 40, 50, 72], rtol=1e-6)
    assert network.meta["unknown_classes"] == {"steps": 1}
    assert network.meta["unread_speeds"] == 1


def test_speed_in_metres_per_second(tmp_path):
    network = read_features(tmp_path, [feature(1, 2, [A, B], speed_mps=12.5)])
    assert network.speed_mps.tolist() == [12.5]


def test_text_ids_of_segments(tmp_path):
    network = read_features(tmp_path, [feature(1, 2, [A, B], id="x"), feature(2, 1, [B, A], id="y7")])
    assert network.source_id.tolist() == ["x", "y7"]
    network.save(tmp_path / "n.npz")
    assert RoadNetwork.load(tmp_path / "n.npz").source_id.tolist() == ["x", "y7"]


def test_near_ends_are_moved_onto_the_node_and_counted(tmp_path):
    near = (B[0] + 5e-6, B[1])  # 0.42 m
    network = read_features(tmp_path, [feature(1, 2, [A, B]), feature(2, 3, [near, C])])
    assert network.geometry(1)[0][0] == B[0]
    assert network.meta["ends_moved"] == 1


def test_repeated_rows_are_dropped_and_counted(tmp_path):
    bow = [A, (-8.6195, 41.1502), B]
    rows = [feature(1, 2, [A, B]), feature(1, 2, bow), feature(1, 2, [A, B]), feature(1, 2, bow), feature(2, 1, [B, A])]
    network = read_features(tmp_path, rows)
    assert network.n_segments == 3, "parallel roads stay"
    assert network.meta["rows_repeated"] == 2
    assert network.meta["repeated_ids"] == {"2": 0, "3": 1}


def test_rows_of_zero_length_stay_where_they_connect(tmp_path):
    rows = [feature(1, 2, [A, B]), feature(2, 3, [B, B]), feature(3, 4, [B, C]), feature(4, 4, [C, C])]
    network = read_features(tmp_path, rows)
    assert network.length_m[1] == 0
    assert [network.successors(i).tolist() for i in range(3)] == [[1], [2], []]
    assert network.meta["segments_of_zero_length"] == 1
    assert network.meta["rows_without_extent"] == 1


def test_a_single_part_and_a_third_coordinate_are_no_trouble(tmp_path):
    row = feature(1, 2, [])
    row["geometry"] = {"type": "MultiLineString", "coordinates": [[[*A, 80.0], [*B, 81.0]]]}
    network = read_features(tmp_path, [row])
    assert network.geometry(0)[0].tolist() == [A[0], B[0]]


def test_bbox_keeps_what_is_wholly_inside(tmp_path):
    rows = [feature(1, 2, [A, B]), feature(2, 3, [B, C])]
    network = read_features(tmp_path, rows, bbox=(-8.63, 41.149, -8.61, 41.1505))
    assert network.node_id.tolist() == [1, 2]
    assert network.meta["rows_outside_bbox"] == 1
    with pytest.raises(InputError, match=r"no row lies inside the bounding box; the table covers -8\.6200,41\.1500"):
        read_features(tmp_path, rows, bbox=(0, 0, 1, 1))
    with pytest.raises(InputError, match="is empty or not in degrees"):
        read_features(tmp_path, rows, bbox=(41.149, -8.63, 41.1505, -8.64))


def test_oneway_column_repeats_what_the_rows_of_both_directions_say(tmp_path):
    rows = [
        feature(1, 2, [A, B], oneway=False),
        feature(2, 1, [B, A], oneway=False),
        feature(2, 3, [B, C], oneway=True),
    ]
    assert read_features(tmp_path, rows).n_segments == 3


@pytest.mark.parametrize("no", [False, "no", 0, "f", "False"])
def test_two_way_rows_listed_once_are_driven_both_ways(tmp_path, no):
    bend = (-8.6195, 41.1502)
    rows = [feature(1, 2, [A, bend, B], id=4, oneway=no), feature(2, 3, [B, C], id=5, oneway="yes")]
    network = read_features(tmp_path, rows)
    assert network.source_id.tolist() == [4, 5, 4]
    assert network.node_id[network.seg_from].tolist() == [1, 2, 2]
    assert network.geometry(2)[0].tolist() == [B[0], bend[0], A[0]]
    assert network.twin.tolist() == [2, -1, 0]
    assert network.meta["segments_added_backwards"] == 1


def test_ewkt_and_blank_lines_and_other_separators(tmp_path):
    path = tmp_path / "e.csv"
    path.write_text("\ufeffu;v;wkt\n1;2;SRID=4326;\n", encoding="utf-8")
    with pytest.raises(InputError):
        read_edge_table(path)
    path.write_text('\ufeffu;v;wkt\n1;2;"SRID=4326;LINESTRING (-8.62 41.15, -8.61 41.15)"\n\n\n', encoding="utf-8")
    assert read_edge_table(path).node_id.tolist() == [1, 2]


@st.composite
def tables(draw):
    """Draw rows between a few places, with bends, parallels and loops."""
    n = draw(st.integers(2, 6))
    places = [(-8.6 + 0.01 * i, 41.1 + 0.003 * (i % 3)) for i in range(n)]
    rows = []
    for i in range(draw(st.integers(1, 12))):
        u, v = draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1))
        bends = [(-8.7 + 0.001 * i, 41.2 + 0.0001 * k) for k in range(draw(st.integers(1, 3)))]
        rows.append((f"n{u}", f"n{v}", [places[u], *bends, places[v]], draw(st.sampled_from(ROAD_CLASSES))))
    return rows


@settings(max_examples=40, deadline=None)
@given(tables())
def test_every_row_becomes_a_segment_that_leads_where_rows_say(tmp_path_factory, rows):
    network = read_features(
        tmp_path_factory.mktemp("t"), [feature(u, v, line, highway=kind) for u, v, line, kind in rows]
    )
    assert network.n_segments == len(rows)
    for i, (u, v, line, kind) in enumerate(rows):
        assert (network.node_id[network.seg_from[i]], network.node_id[network.seg_to[i]]) == (u, v)
        assert np.column_stack(network.geometry(i)).tolist() == [list(p) for p in line]
        assert ROAD_CLASSES[network.road_class[i]] == kind
        assert network.successors(i).tolist() == [k for k, row in enumerate(rows) if row[0] == v]


def test_crs_of_geojson_in_degrees_is_accepted(tmp_path):
    path = write_geojson(tmp_path / "e.json", [GOOD], crs={"type": "name", "properties": {"name": WGS84}})
    assert read_edge_table(path).n_segments == 1


def test_plain_parquet_with_wkt_and_lists_is_read(tmp_path):
    line = "LINESTRING (-8.62 41.15, -8.61 41.15)"
    frame = pandas.DataFrame({"u": [1], "v": [2], "osmid": [[3, 4]], "highway": [["primary", "trunk"]], "wkt": [line]})
    frame.to_parquet(tmp_path / "e.parquet")
    network = read_edge_table(tmp_path / "e.parquet")
    assert network.osm_way_id.tolist() == [3]
    assert ROAD_CLASSES[network.road_class[0]] == "trunk"
