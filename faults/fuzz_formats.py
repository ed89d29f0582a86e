"""The formats that are fuzzed: how inputs of each are made, and what reads them."""

from __future__ import annotations

import io
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz_damage import Mutate, archives, json_values, members, packed_again, plain, run_files  # lies beside this file


@dataclass(frozen=True)
class Format:
    """A format: its name, how inputs of it are made, and what reads them."""

    name: str
    mutate: Mutate
    read: Callable[[bytes, Path], Any]


def _trips(name: str) -> Callable[[bytes, Path], Any]:
    def read(data: bytes, folder: Path) -> None:
        from tedtrajrec.trips.readers import RejectedRows, read_trips

        path = folder / name
        path.write_bytes(data)
        read_trips(path, timezone="Europe/Lisbon", rejects=RejectedRows())
        read_trips(path, timezone="Europe/Lisbon")

    return read


def _network(name: str, constructor: str) -> Callable[[bytes, Path], Any]:
    def read(data: bytes, folder: Path) -> None:
        from tedtrajrec.network.roadnet import RoadNetwork

        path = folder / name
        path.write_bytes(data)
        getattr(RoadNetwork, constructor)(path)

    return read


def _packed(data: bytes, folder: Path) -> None:
    from tedtrajrec.data.pack import unpack_dataset

    (folder / "packed.zip").write_bytes(data)
    shutil.rmtree(folder / "dataset", ignore_errors=True)
    unpack_dataset(folder / "packed.zip", folder / "dataset")


def _unfolded(data: bytes, folder: Path) -> Path:
    place = folder / "unfolded"
    shutil.rmtree(place, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(place)
    return place


def _run(data: bytes, folder: Path) -> None:
    from tedtrajrec.recovery.recoverer import Recoverer

    Recoverer.load(_unfolded(data, folder), device="cpu")


def _dataset(data: bytes, folder: Path) -> None:
    from tedtrajrec.data.dataset import Dataset

    place = _unfolded(data, folder)
    dataset = Dataset(place)
    for name in ("train", "valid", "test"):
        list(dataset.split(name).shards())


def _plan(data: bytes, folder: Path) -> None:
    from tedtrajrec.experiments.plan import read_plan

    (folder / "plan.toml").write_bytes(data)
    read_plan(folder / "plan.toml")


def _settings(data: bytes, folder: Path) -> None:
    from tedtrajrec.config import load_config
    from tedtrajrec.data.preparing.config import PrepareConfig

    (folder / "settings.toml").write_bytes(data)
    load_config(PrepareConfig, folder / "settings.toml")


def _body(media_type: str) -> Callable[[bytes, Path], Any]:
    def read(data: bytes, _: Path) -> None:
        from tedtrajrec.server.inputs import parse
        from tedtrajrec.server.schemas import Options, RecoverRequest
        from tedtrajrec.server.settings import Limits

        parse(data, media_type, RecoverRequest, Options(timezone="Europe/Lisbon"), Limits())

    return read


_ALL = [
    Format("trips CSV", plain("text"), _trips("t.csv")),
    Format("trips CSV.gz", packed_again("text"), _trips("t.csv.gz")),
    Format("trips CSV of Porto", plain("text"), _trips("t.csv")),
    Format("trips Parquet", plain("binary"), _trips("t.parquet")),
    Format("trips GeoParquet", plain("binary"), _trips("t.geoparquet")),
    Format("trips GPX", plain("xml"), _trips("t.gpx")),
    Format("OSM XML", plain("xml"), _network("t.osm", "from_osm")),
    Format("OSM PBF", plain("binary"), _network("t.osm.pbf", "from_osm")),
    Format("edges CSV", plain("text"), _network("t.csv", "from_table")),
    Format("edges GeoJSON", json_values, _network("t.geojson", "from_table")),
    Format("edges GeoParquet", plain("binary"), _network("t.parquet", "from_table")),
    Format("network npz", archives, _network("t.npz", "load")),
    Format("packed dataset", archives, _packed),
    Format("dataset folder", members, _dataset),
    Format("run folder (JSON, safetensors)", run_files, _run),
    Format("plan TOML", plain("toml"), _plan),
    Format("settings TOML", plain("toml"), _settings),
    Format("body JSON", json_values, _body("application/json")),
    Format("body GeoJSON", json_values, _body("application/geo+json")),
    Format("body CSV", plain("text"), _body("text/csv")),
    Format("body GPX", plain("xml"), _body("application/gpx+xml")),
]
FORMATS = {form.name: form for form in _ALL}
