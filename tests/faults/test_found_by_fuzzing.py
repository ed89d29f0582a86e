"""What faults/fuzz.py has found, each as the smallest input that shows it; and archives that unpack to far too much."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow
import pyarrow.parquet
import pytest

from tedtrajrec.config import load_config
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.pack import unpack_dataset
from tedtrajrec.data.preparing.config import PrepareConfig
from tedtrajrec.errors import ConfigError, InputError, TedtrajrecError
from tedtrajrec.methods.registry import load_method, make_method
from tedtrajrec.methods.shipped import read_card
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.training.profile import read_profile
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
    "a size beyond all numbers": array(
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000000000,), }".ljust(200) + b"\n"
    ),
    "an archive": b"PK\x05\x06" + bytes(18),
}


@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_bad_arrays_in_a_network(bad: str, inputs: Path, tmp_path: Path) -> None:
    repacked(inputs / "city.npz", tmp_path / "n.npz", "node_lon.npy", BAD_ARRAYS[bad])
    with pytest.raises(InputError, match="damaged or is not a road network"):
        RoadNetwork.load(tmp_path / "n.npz")


@pytest.fixture
def dataset(inputs: Path, tmp_path: Path) -> Path:
    """Return a dataset folder that may be damaged."""
    return Path(shutil.copytree(inputs / "dataset", tmp_path / "dataset"))


@pytest.mark.parametrize("bad", BAD_ARRAYS)
def test_bad_arrays_in_a_dataset(bad: str, dataset: Path) -> None:
    (dataset / "test" / "00000" / "lon.npy").write_bytes(BAD_ARRAYS[bad])
    with pytest.raises(InputError, match=r"lon\.npy"):
        Dataset(dataset)


def changed(file: Path, change: Callable[[Any], Any]) -> None:
    """Write the array or the JSON of a file again with a change."""
    if file.suffix == ".npy":
        np.save(file, change(np.load(file).copy()))
    else:
        file.write_text(json.dumps(change(json.loads(file.read_text()))))


def with_value(place: Any, value: Any) -> Callable[[Any], Any]:
    """Return what puts one value into an array or a dictionary."""

    def put(values: Any) -> Any:
        values[place] = value
        return values

    return put


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("offset", with_value(1, 10**9), "do not fit together"),
        ("offset", with_value(1, 2**63 - 1), "do not fit together"),
        ("offset", with_value(1, 0), "do not fit together"),
        ("id_offset", with_value(-1, 0), "do not fit together"),
        ("offset", lambda array: array[:0], "do not fit together"),
        ("id_text", with_value(0, 0xFF), "not UTF-8"),
        ("id_text", with_value(slice(2), (0xC3, 0xA9)), "not UTF-8"),  # one letter, of which the first id has a half
        ("start", with_value(0, 2**62), "no time of any calendar"),
        ("start", lambda array: array.astype("M8[s]"), "datetime64"),
        ("segment", lambda array: array.reshape(1, -1), "2 dimensions"),
    ],
)
def test_shards_that_do_not_keep_their_promises(
    name: str, change: Callable[[Any], Any], said: str, dataset: Path
) -> None:
    shard = dataset / "test" / "00000"
    if said == "not UTF-8":  # the first id ends behind one byte
        changed(shard / "id_offset.npy", with_value(1, 1))
    changed(shard / f"{name}.npy", change)
    with pytest.raises(InputError, match=said):
        Dataset(dataset)


def test_a_nan_of_other_bits_is_a_nan(dataset: Path) -> None:
    file = dataset / "test" / "00000" / "ratio.npy"
    np.save(file, np.full_like(np.load(file).view(np.uint32), 0x7F800001).view(np.float32))  # one that signals
    assert np.isnan(Dataset(dataset).split("test").trips().ratio).all()  # type: ignore[arg-type]


DEEP = "[" * 100_000
BAD_INFO = {
    "step_s": 0, "time_zone": 3, "config": 1, "dropped": "x", "source": "\ud800", "splits": [], "network_hash": None,
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_INFO)
def test_descriptions_of_datasets_with_other_types(name: str, dataset: Path, inputs: Path, tmp_path: Path) -> None:
    changed(dataset / "dataset.json", with_value(name, BAD_INFO[name]))
    with pytest.raises(InputError, match="does not describe a prepared dataset"):
        Dataset(dataset)
    header = json.loads(zipfile.ZipFile(inputs / "packed.zip").read("pack.json"))
    header["info"][name] = BAD_INFO[name]
    repacked(inputs / "packed.zip", tmp_path / "p.zip", "pack.json", json.dumps(header).encode())
    with pytest.raises(InputError, match="damaged or is not a packed dataset"):
        unpack_dataset(tmp_path / "p.zip", tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", {}),
        ("shards", {"train": 3, "valid": [], "test": []}),
        ("shards", {"train": [[1, 2]], "valid": [], "test": []}),
        ("shards", {"train": [[[3, 2], 1, 1]], "valid": [], "test": []}),  # arrays of two dimensions
        ("shards", {"train": [[True, 1.5, 1]], "valid": [], "test": []}),
        ("network_meta", "x"),
        ("format", None),
    ],
)
def test_headers_of_packed_datasets_with_other_types(name: str, value: Any, inputs: Path, tmp_path: Path) -> None:
    header = json.loads(zipfile.ZipFile(inputs / "packed.zip").read("pack.json"))
    header[name] = value
    repacked(inputs / "packed.zip", tmp_path / "p.zip", "pack.json", json.dumps(header).encode())
    with pytest.raises(InputError, match=r"p\.zip"):
        unpack_dataset(tmp_path / "p.zip", tmp_path / "unpacked")


@pytest.mark.parametrize("content", [DEEP, "3", "[]", '{"method": [], "network": "x", "config": {}}', "\xff", "{"])
def test_descriptions_of_models_that_are_none(content: str, inputs: Path, tmp_path: Path) -> None:
    network = RoadNetwork.load(inputs / "city.npz")
    make_method("route_hmm", network).save(tmp_path)
    for name, read in (
        ("config.json", lambda: load_method(tmp_path, network)),
        ("profile.json", lambda: read_profile(tmp_path)),
        ("card.json", lambda: read_card(tmp_path)),
    ):
        (tmp_path / name).write_text(content, "latin-1")
        with pytest.raises(InputError, match=name):
            read()


@pytest.mark.parametrize("setting", [{"step_layers": 10**9}, {"d": 1 << 40}, {"width": 1 << 40}])
def test_models_of_impossible_size(setting: dict[str, int], inputs: Path, tmp_path: Path) -> None:
    described = {"method": "tedtrajrec_parallel", "network": "x", "config": setting}
    (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(TedtrajrecError, match=r"must be at most|cannot be made"):  # and no hang
        load_method(tmp_path, RoadNetwork.load(inputs / "city.npz"))


@pytest.mark.parametrize("number", ["9" * 30, "1" * 400, "-" + "9" * 30])
@pytest.mark.parametrize("place", ["step_s", "clean.max_gap_s"])
def test_numbers_in_settings_that_64_bits_do_not_hold(number: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(f"{place} = {number}\n")
    with pytest.raises(ConfigError, match=place.rpartition(".")[2]):
        load_config(PrepareConfig, tmp_path / "s.toml")


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


@pytest.mark.parametrize("where", ["a column", "metadata"])
def test_edge_tables_with_names_that_are_no_text(where: str, tmp_path: Path) -> None:
    table = pyarrow.table({"u": [1, 2], "v": [2, 1], "geometry": ["LINESTRING (1 1, 2 2)", "LINESTRING (2 2, 1 1)"]})
    table = table.append_column("QQQQ", [[1, 2]]).replace_schema_metadata({"QQQQ": "x"})
    pyarrow.parquet.write_table(table.drop_columns(["QQQQ"]) if where == "metadata" else table, tmp_path / "e.parquet")
    data = (tmp_path / "e.parquet").read_bytes().replace(b"QQQQ", b"Q\xff\xfeQ")
    (tmp_path / "e.parquet").write_bytes(data)
    if where == "metadata":  # which nothing is taken from
        assert len(RoadNetwork.from_table(tmp_path / "e.parquet")) == 2
        return
    with pytest.raises(InputError, match=r"e\.parquet"):
        RoadNetwork.from_table(tmp_path / "e.parquet")


def test_encodings_nobody_knows(tmp_path: Path) -> None:
    (tmp_path / "t.gpx").write_text('<?xml version="1.0" encoding="utf-9"?><gpx/>')
    with pytest.raises(InputError, match="the XML is broken"):
        read_trips(tmp_path / "t.gpx")


def test_huge_coordinates_in_an_edge_table(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text('u,v,geometry\n1,2,"LINESTRING (1e308 -1e999, 104.07 30.66)"\n')
    with pytest.raises(InputError, match="row 1"):
        RoadNetwork.from_table(tmp_path / "e.csv")


@pytest.mark.parametrize(
    "value", ['"\\ud800"', '1}},{"type":"Feature","properties":{"u":2,"v":"\\ud800"', "1" * 40, "[]", "1e308"]
)
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
