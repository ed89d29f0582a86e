"""What faults/fuzz.py has found, each as the smallest input that shows it; and archives that unpack to far too much."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.pack import unpack_dataset
from tedtrajrec.errors import InputError
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.readers import RejectedRows, read_trips


def repacked(source: Path, target: Path, member: str, content: bytes) -> None:
    """Write an archive again with one member replaced, and good checksums."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, content if name == member else old.read(name))


def array(header: bytes, data: bytes = b"") -> bytes:
    """Return an .npy file with any header."""
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


BAD_ARRAYS = {
    "header that is no Python": array(b"{'descr': '<f8', 'shape': (1,"),  # tokenize.TokenError
    "far more than there is": array(b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000,), }\n", bytes(8)),
    "pickled objects": array(b"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }\n", b"\x80\x04N."),
    "nothing": b"",
}


@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_bad_arrays_in_a_network(bad: str, inputs: Path, tmp_path: Path) -> None:
    repacked(inputs / "city.npz", tmp_path / "n.npz", "node_lon.npy", BAD_ARRAYS[bad])
    with pytest.raises(InputError, match="damaged or is not a road network"):
        RoadNetwork.load(tmp_path / "n.npz")


@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_bad_arrays_in_a_dataset(bad: str, inputs: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        for path in (inputs / "dataset").rglob("*.*"):
            archive.write(path, path.relative_to(inputs / "dataset"))
    zipfile.ZipFile(tmp_path / "d.zip").extractall(tmp_path / "dataset")
    (tmp_path / "dataset" / "test" / "00000" / "lon.npy").write_bytes(BAD_ARRAYS[bad])
    with pytest.raises(InputError, match=r"lon\.npy"):
        Dataset(tmp_path / "dataset").split("test")


def test_offsets_of_a_dataset_that_go_back(inputs: Path, tmp_path: Path) -> None:
    for path in (inputs / "dataset").rglob("*.*"):
        place = tmp_path / path.relative_to(inputs / "dataset")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(path.read_bytes())
    file = tmp_path / "test" / "00000" / "offset.npy"
    offset = np.load(file)
    offset[1], offset[2] = offset[2], offset[1]
    np.save(file, offset)
    with pytest.raises(InputError, match="do not fit together"):
        Dataset(tmp_path).split("test")


@pytest.mark.parametrize("value", ["inf", "-inf", "1e308"])
def test_segments_that_are_no_numbers(value: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        f"traj_id,timestamp,lon,lat,segment,ratio\na,1372636858,-8.6,41.1,{value},0.5\na,1372636873,-8.6,41.1,3,0.5\n"
    )
    with pytest.raises(InputError, match="row 1, column"):
        read_trips(tmp_path / "t.csv")


@pytest.mark.parametrize("rejects", [False, True])
def test_times_that_python_cannot_hold(rejects: bool, tmp_path: Path) -> None:
    frame = pl.DataFrame({"traj_id": ["a", "a"], "timestamp": [2**62, 1], "lon": [-8.6, -8.6], "lat": [41.1, 41.1]})
    frame.with_columns(pl.col("timestamp").cast(pl.Datetime("ms", "UTC"))).write_parquet(tmp_path / "t.parquet")
    with pytest.raises(InputError):  # and not a panic of polars
        read_trips(tmp_path / "t.parquet", rejects=RejectedRows() if rejects else None)


def test_names_of_columns_that_are_no_text(tmp_path: Path) -> None:
    frame = pl.DataFrame({"traj_id": ["a"], "timestamp": [1372636858], "lon": [-8.6], "lat": [41.1], "QQQQ": [1]})
    frame.write_parquet(tmp_path / "t.parquet")
    data = (tmp_path / "t.parquet").read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ")
    (tmp_path / "t.parquet").write_bytes(data)
    with pytest.raises(InputError, match=r"t\.parquet"):
        read_trips(tmp_path / "t.parquet")


def test_encodings_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "t.gpx").write_text('<?xml version="1.0" encoding="utf-9"?><gpx/>')
    with pytest.raises(InputError, match="the XML is broken"):
        read_trips(tmp_path / "t.gpx")


def test_huge_coordinates_in_an_edge_table(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text('u,v,geometry\n1,2,"LINESTRING (1e308 -1e999, 104.07 30.66)"\n')
    with pytest.raises(InputError, match="row 1"):
        RoadNetwork.from_table(tmp_path / "e.csv")


@pytest.mark.parametrize("value", ['"\\ud800"', "1" * 40, "[]", "1e308"])
def test_properties_of_edges_that_no_table_holds(value: str, tmp_path: Path) -> None:
    edge = (
        '{"type":"Feature","properties":{"u":1,"v":?},"geometry":{"type":"LineString","coordinates":[[1,1e999],[2,2]]}}'
    )
    text = f'{{"type":"FeatureCollection","features":[{edge.replace("?", value)}]}}'
    (tmp_path / "e.geojson").write_text(text)
    with pytest.raises(InputError, match=r"e\.geojson"):
        RoadNetwork.from_table(tmp_path / "e.geojson")


def test_archives_that_unpack_to_far_too_much(inputs: Path, tmp_path: Path) -> None:
    bomb = io.BytesIO()
    np.lib.format.write_array(bomb, np.zeros(20 << 20))
    repacked(inputs / "city.npz", tmp_path / "n.npz", "node_lon.npy", bomb.getvalue())
    assert (tmp_path / "n.npz").stat().st_size < 1 << 20
    with pytest.raises(InputError, match="far more than its size"):
        RoadNetwork.load(tmp_path / "n.npz")
    repacked(inputs / "packed.zip", tmp_path / "p.zip", "pack.json", b" " * (160 << 20))
    with pytest.raises(InputError, match="far more than its size"):
        unpack_dataset(tmp_path / "p.zip", tmp_path / "dataset")
    assert not (tmp_path / "dataset").exists()
