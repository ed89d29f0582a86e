import json

import geopandas
import numpy as np
import polars as pl
import pytest
import shapely

from tedtrajrec.errors import OutputError
from tedtrajrec.network import polylines
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import ENDS, MatchConfig, match
from tedtrajrec.trips.route_files import RouteWriter, route_table
from tedtrajrec.trips.simulate import simulate_trips
from tedtrajrec.trips.table import Trips, as_text
from tests.conftest import make_grid


def trips_of(network, positions, *, step_s=30):
    """Return trips with their fixes at the given positions, each a list of (segment, ratio)."""
    segment, ratio = (np.array([p[i] for trip in positions for p in trip]) for i in (0, 1))
    lon, lat = network.point_at(segment.astype(int), ratio)
    lengths = [len(trip) for trip in positions]
    return Trips(
        traj_id=as_text([f"trip {i}" for i in range(len(positions))]),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        time=1_700_000_000 + step_s * np.arange(len(lon)),
        lon=lon,
        lat=lat,
    )


@pytest.fixture(scope="module")
def driven():
    """Return a network, trips on it with pieces of several kinds, and what the matcher found."""
    network = make_grid(12, 12, spacing_m=300)
    trips = simulate_trips(network, trips=60, seed=4)
    trips = trips.replace(segment=None, ratio=None, extra={}, trip_extra={})
    lon = trips.lon.copy()
    lon[trips.offsets[:20] + 5] += 1.0  # far off the map: trips are cut in two
    trips = trips.replace(lon=lon)
    return network, trips, match(trips, network, MatchConfig(most_skipped=0))


def line_of(network, route, begin, end):
    """Return the points of a route between two ratios, by a plain loop."""
    points = [tuple(map(float, network.point_at(route[0], begin)))]
    for number, segment in enumerate(route):
        part = slice(network.geom_offset[segment], network.geom_offset[segment + 1])
        along = network.geom_along[part]
        low = begin * along[-1] if number == 0 else 0.0
        high = end * along[-1] if number == len(route) - 1 else np.inf
        chosen = (along > low) & (along < high)
        points += zip(network.geom_lon[part][chosen], network.geom_lat[part][chosen], strict=True)
    return np.array([*points, tuple(map(float, network.point_at(route[-1], end)))])


def test_one_row_for_each_piece(driven):
    network, trips, found = driven
    rows = pl.DataFrame(route_table(network, trips, found))
    assert len(rows) == len(found.piece_ends) > len(trips)
    shapes = shapely.from_wkb(rows["geometry"].to_numpy())
    trip = np.repeat(np.arange(len(trips)), np.diff(found.piece_offsets))
    for p, row in enumerate(rows.iter_rows(named=True)):
        fixes = np.flatnonzero(found.piece == p)
        first, last = fixes[0], fixes[-1]
        assert row["traj_id"] == trips.traj_id[trip[p]]
        assert row["piece"] == p - found.piece_offsets[trip[p]]
        assert row["start_time"].timestamp() == trips.time[first]
        assert row["end_time"].timestamp() == trips.time[last]
        assert row["fixes"] == len(fixes)
        assert row["end_reason"] == ENDS[found.piece_ends[p]]
        assert row["segments"] == found.route(p).tolist()
        assert len(row["osm_way_ids"]) == len(row["enter"]) == len(row["leave"]) == len(row["segments"])
        assert (row["enter"][0], row["leave"][-1]) == (row["start_time"], row["end_time"])
        assert row["enter"][1:] == row["leave"][:-1]
        got = shapely.get_coordinates(shapes[p])
        np.testing.assert_allclose(
            got, line_of(network, row["segments"], found.ratio[first], found.ratio[last]), atol=1e-12
        )
        np.testing.assert_array_equal(got[[0, -1]], np.column_stack([found.lon, found.lat])[[first, last]])
        measured = polylines.measure(np.array([0, len(got)]), got[:, 0], got[:, 1])[-1]
        assert row["length_m"] == pytest.approx(measured, abs=0.01)
    assert {"off_map", "end_of_trip"} <= set(rows["end_reason"])


@pytest.mark.real
def test_geometries_of_bent_segments(porto):
    trips = simulate_trips(porto, trips=30, seed=1).replace(segment=None, ratio=None)
    found = match(trips, porto)
    rows = pl.DataFrame(route_table(porto, trips, found))
    for shape, length in zip(shapely.from_wkb(rows["geometry"].to_numpy()), rows["length_m"], strict=True):
        points = shapely.get_coordinates(shape)
        measured = polylines.measure(np.array([0, len(points)]), points[:, 0], points[:, 1])[-1]
        assert length == pytest.approx(measured, abs=0.05)
    assert set(np.concatenate(rows["osm_way_ids"].to_list())) <= set(porto.geom_way_id.tolist())


def test_a_piece_of_one_fix_and_one_that_goes_back(tiny_city):
    trips = trips_of(tiny_city, [[(0, 0.25)], [(0, 0.8), (0, 0.5)], [(0, 0.1), (0, 0.9)]])
    found = match(trips, tiny_city, MatchConfig.preset("song12"))
    assert found.segment.tolist() == [0] * 5
    rows = pl.DataFrame(route_table(tiny_city, trips, found))
    shapes = shapely.from_wkb(rows["geometry"].to_numpy())
    for shape, (first, last) in zip(shapes, [(0, 0), (1, 2), (3, 4)], strict=True):
        expected = np.column_stack([trips.lon, trips.lat])[[first, last]]
        np.testing.assert_allclose(shapely.get_coordinates(shape), expected, atol=1e-9)
    assert rows["length_m"].to_list() == pytest.approx([0, 30, 80], abs=0.2)


def test_going_back_passes_the_vertices_in_turn():
    lon, lat = -8.62 + np.array([0, 1, 1, 2]) * 1e-3, 41.15 + np.array([0, 0, 1, 1]) * 1e-3
    bent = RoadNetwork.build(
        node_lon=lon[[0, 3]],
        node_lat=lat[[0, 3]],
        node_id=[1, 2],
        seg_from=[0],
        seg_to=[1],
        road_class=[11],
        speed_mps=[10.0],
        geom_offset=[0, 4],
        geom_lon=lon,
        geom_lat=lat,
    )
    trips = trips_of(bent, [[(0, 0.95), (0, 0.05)]])
    found = match(trips, bent, MatchConfig.preset("song12"))
    (shape,) = shapely.from_wkb(route_table(bent, trips, found)["geometry"].to_numpy())
    points = shapely.get_coordinates(shape)
    assert len(points) == 4
    np.testing.assert_array_equal(points[1:3], np.column_stack([lon, lat])[[2, 1]])


@pytest.mark.parametrize("name", ["routes.parquet", "routes.GEOPARQUET"])
def test_geopandas_reads_it_back(tmp_path, driven, name):
    network, trips, found = driven
    with RouteWriter(tmp_path / name, network) as writer:
        writer.write(trips, found)
    frame = geopandas.read_parquet(tmp_path / name)
    assert len(frame) == writer.pieces == len(found.piece_ends)
    assert frame.crs.equals("OGC:CRS84")
    assert str(frame["start_time"].dtype) == "datetime64[ms, UTC]"
    assert frame["segments"][3].tolist() == found.route(3).tolist()
    metres = frame.to_crs(frame.estimate_utm_crs()).length
    np.testing.assert_allclose(metres, frame["length_m"], rtol=2e-3)


def chunks(driven, n=4):
    network, trips, _ = driven
    for part in np.array_split(np.arange(len(trips)), n):
        chosen = trips.select(part)
        yield chosen, match(chosen, network, MatchConfig(most_skipped=0))


def test_chunks_do_not_matter(tmp_path, driven):
    network, trips, found = driven
    with RouteWriter(tmp_path / "a.parquet", network) as writer:
        for part in chunks(driven):
            writer.write(*part)
    whole = pl.DataFrame(route_table(network, trips, found))
    assert pl.read_parquet(tmp_path / "a.parquet").equals(whole)


def test_geojson(tmp_path, driven):
    network, trips, found = driven
    with RouteWriter(tmp_path / "routes.geojson", network) as writer:
        for part in chunks(driven):
            writer.write(*part)
    features = json.loads((tmp_path / "routes.geojson").read_text())["features"]
    rows = pl.DataFrame(route_table(network, trips, found))
    assert len(features) == len(rows)
    for feature, row in zip(features, rows.iter_rows(named=True), strict=True):
        line = shapely.geometry.shape(feature["geometry"])
        assert shapely.equals_exact(line, shapely.from_wkb(row["geometry"]), 1e-9)
        assert feature["properties"]["segments"] == row["segments"]
        assert feature["properties"]["end_time"] == row["end_time"].strftime("%Y-%m-%dT%H:%M:%S.000Z")


def test_csv(tmp_path, driven):
    network, trips, found = driven
    with RouteWriter(tmp_path / "routes.csv", network) as writer:
        for part in chunks(driven):
            writer.write(*part)
    got = pl.read_csv(tmp_path / "routes.csv")
    rows = pl.DataFrame(route_table(network, trips, found))
    assert got.columns == rows.columns
    assert got["traj_id"].to_list() == rows["traj_id"].to_list()
    assert [[int(s) for s in text.split()] for text in got["segments"].cast(pl.String)] == rows["segments"].to_list()
    assert got["enter"].str.split(" ").list.len().to_list() == rows["enter"].list.len().to_list()
    lines = shapely.from_wkt(got["geometry"].to_numpy())
    assert shapely.equals_exact(lines, shapely.from_wkb(rows["geometry"].to_numpy()), 1e-6).all()


@pytest.mark.parametrize("ending", ["parquet", "geojson", "csv"])
def test_no_routes(tmp_path, tiny_city, ending):
    path = tmp_path / f"routes.{ending}"
    trips = trips_of(tiny_city, [[(0, 0.5), (0, 0.6)]])
    far = trips.replace(lat=trips.lat + 1)
    with RouteWriter(path, tiny_city) as writer:
        writer.write(far, match(far, tiny_city))
    assert writer.pieces == 0
    if ending == "geojson":
        assert json.loads(path.read_text())["features"] == []
    else:
        assert len(pl.read_parquet(path) if ending == "parquet" else pl.read_csv(path)) == 0


def test_a_failure_leaves_no_file(tmp_path, driven):
    network, trips, found = driven

    def fail():
        with RouteWriter(tmp_path / "routes.parquet", network) as writer:
            writer.write(trips, found)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_where_routes_cannot_be_written(tmp_path, driven):
    network, trips, found = driven
    with pytest.raises(OutputError, match=r"no known ending for routes; use \.parquet"):
        RouteWriter(tmp_path / "routes.gpx", network)
    with pytest.raises(OutputError, match="inside the with block"):
        RouteWriter(tmp_path / "routes.csv", network).write(trips, found)
