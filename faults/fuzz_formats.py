"""The formats that are fuzzed: a few good inputs of each, how they are damaged, and what reads them."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Mutate = Callable[[random.Random, list[bytes]], bytes]

NUMBERS = [
    b"0",
    b"-1",
    b"1e308",
    b"-1e999",
    b"nan",
    b"NaN",
    b"Infinity",
    b"9" * 30,
    b"1" * 400,
    b"0.1.2",
    b"-0",
    b"181",
]
NUMBERS += [b"9223372036854775807", b"9223372036854775808", b"4294967296", b"1e-320", b"0x10", b"1_0", b"null", b"\xff"]
TOKENS = {
    "text": [
        b",",
        b'"',
        b"\n",
        b"\r",
        b"\x00",
        b"'",
        b";",
        b"\t",
        b"\xef\xbb\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x9f\x9a\x95",
    ],
    "xml": [
        b"<",
        b">",
        b"&amp;",
        b"&lol;",
        b"<!DOCTYPE x [<!ENTITY lol 'x'>]>",
        b"<![CDATA[",
        b"]]>",
        b"<trk>",
        b"<way>",
    ],
    "json": [b"[", b"]", b"{", b"}", b":", b",", b'"', b"\\u0000", b"\\ud800", b"null", b"true", b"[" * 2000, b"{}"],
    "binary": [b"\x00" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"PAR1", b"PK\x03\x04", b"\x1f\x8b", b"\x80\x04\x95"],
    "toml": [
        b"[",
        b"]",
        b"=",
        b'"""',
        b"\n[[cells]]\n",
        b"1979-05-27",
        b"inf",
        b"{a=1}",
        b"'",
        b"set = 3\n",
        b"\\u0000",
    ],
}


@dataclass(frozen=True)
class Format:
    """A format: its name, how inputs of it are made, and what reads them."""

    name: str
    mutate: Mutate
    read: Callable[[bytes, Path], Any]


def damage(draw: random.Random, data: bytes, tokens: list[bytes], others: list[bytes]) -> bytes:
    """Return data with one to six random changes."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 1, 2, 3, 6])):
        at = draw.randrange(len(changed) + 1)
        size = min(len(changed) - at, int(draw.expovariate(0.1)) + 1)
        kind = draw.randrange(8)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << draw.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = draw.randrange(256)
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size] * draw.choice([1, 2, 50])
        elif kind == 4:
            changed[at:at] = draw.choice(tokens)
        elif kind == 5:
            del changed[at:]
        elif kind == 6:
            other = draw.choice(others)
            start = draw.randrange(len(other) + 1)
            changed[at : at + size] = other[start : start + draw.randrange(1, 200)]
        else:
            numbers = list(re.finditer(rb"-?\d+(\.\d+)?", bytes(changed[:20_000])))
            if numbers:
                found = draw.choice(numbers)
                changed[found.start() : found.end()] = draw.choice(NUMBERS)
    return bytes(changed)


def plain(kind: str) -> Mutate:
    """Return what damages bytes with the signs of a kind of file."""
    return lambda draw, seeds: damage(draw, draw.choice(seeds), TOKENS[kind], seeds)


def packed_again(kind: str) -> Mutate:
    """Return what damages the text within a gzip file, or now and then the file itself."""

    def mutate(draw: random.Random, seeds: list[bytes]) -> bytes:
        data = draw.choice(seeds)
        if draw.random() < 0.3:
            return damage(draw, data, TOKENS["binary"], seeds)
        text = gzip.decompress(data)
        return gzip.compress(damage(draw, text, TOKENS[kind], [text]), 1, mtime=0)

    return mutate


def archives(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return a damaged ZIP archive, or one with a damaged member."""
    if draw.random() < 0.2:
        return damage(draw, draw.choice(seeds), TOKENS["binary"], seeds)
    return members(draw, seeds)


def members(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return a ZIP archive with one member damaged, left out or replaced, and good checksums."""
    data = draw.choice(seeds)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice([*held, *(n for n in held if n.endswith(("json", "header.npy")) for _ in range(4))])
    kind = draw.randrange(6)
    if kind == 0:
        del held[name]
    elif kind == 1 and name.endswith(".npy"):
        held[name] = _other_array(draw, held[name])
    elif kind == 2 and name.endswith((".json", "header.npy")):
        held[name] = _other_json(draw, held[name])
    elif kind == 3:
        held[name] = held[draw.choice([*held])]
    else:
        held[name] = damage(draw, held[name], TOKENS["json" if name.endswith("json") else "binary"], [*held.values()])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, content in held.items():
            archive.writestr(member, content, draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    return out.getvalue()


def _other_array(draw: random.Random, data: bytes) -> bytes:
    """Return an array with other values, another type or another shape, which may claim far more than is there."""
    array = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    kind = draw.randrange(5)
    if kind == 0 and array.size:
        array = array.copy()
        array.flat[draw.randrange(array.size)] = draw.choice([0, 1, 127])
    elif kind == 1:
        array = array.astype(draw.choice(["f8", "i8", "i4", "u1", "U4", "?", "c8", "f2", "M8[s]"]))
    elif kind == 2:
        array = array[: draw.randrange(array.shape[0] + 1)] if array.ndim else array
    elif kind == 3:
        array = array.reshape(1, -1)
    out = io.BytesIO()
    np.lib.format.write_array(out, array, allow_pickle=False)
    text = out.getvalue()
    if kind == 4:
        text = re.sub(rb"'shape': \([^)]*\)", b"'shape': (%d,)" % draw.choice([10**6, 10**10, 10**18, -1]), text)
        if draw.random() < 0.2:
            text = text.replace(b"'<", b"'O", 1)
    return text


def _other_json(draw: random.Random, data: bytes) -> bytes:
    """Return JSON (or the header of a network, which is JSON as an array) with one value replaced."""
    as_array = data.startswith(b"\x93NUMPY")
    text = np.lib.format.read_array(io.BytesIO(data)).tobytes() if as_array else data
    changed = json.dumps(other_value(draw, json.loads(text))).encode()
    if not as_array:
        return changed
    out = io.BytesIO()
    np.lib.format.write_array(out, np.frombuffer(changed, np.uint8))
    return out.getvalue()


def other_value(draw: random.Random, value: Any) -> Any:
    """Return plain values with one of them replaced by a surprising one."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice([*value])
        if draw.random() < 0.1:
            return {name: item for name, item in value.items() if name != key}
        return {**value, key: other_value(draw, value[key])}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], other_value(draw, value[at]), *value[at + 1 :]]
    deep: Any = []
    for _ in range(draw.choice([1, 500])):
        deep = [deep]
    choices = [None, True, -1, 0, 1, 10**9, 10**12, 10**30, 1e308, float("nan"), "", "x", "../../etc/passwd", "\ud800"]
    return draw.choice([*choices, [], {}, deep, {"a": value}, [value] * 3, "a" * 10_000, "os:system", [1, 2, 3]])


def json_values(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return JSON with one value replaced, or with damaged bytes."""
    data = draw.choice(seeds)
    if draw.random() < 0.5:
        return damage(draw, data, TOKENS["json"], seeds)
    return json.dumps(other_value(draw, json.loads(data))).encode("utf-8", "surrogatepass")


def run_files(draw: random.Random, seeds: list[bytes]) -> bytes:
    """Return the files of a run, packed into one, with one of them damaged."""
    with zipfile.ZipFile(io.BytesIO(seeds[0])) as archive:
        held = {name: archive.read(name) for name in archive.namelist()}
    name = draw.choice([n for n in held if not n.endswith(".npz")])
    if name.endswith(".json"):
        held[name] = json_values(draw, [held[name]])
    elif draw.random() < 0.7:
        size = struct.unpack("<Q", held[name][:8])[0]
        header = json_values(draw, [held[name][8 : 8 + size]])
        length = len(header) if draw.random() < 0.9 else draw.choice([0, 2**63, 10**9])
        held[name] = struct.pack("<Q", length) + header + held[name][8 + size :]
    else:
        held[name] = damage(draw, held[name], TOKENS["binary"], [held[name]])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for member, content in held.items():
            archive.writestr(member, content)
    return out.getvalue()


# ---------------------------------------------------------------------- readers


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
        list(dataset.split(name).shards())  # type: ignore[arg-type]


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


# ---------------------------------------------------------------------- good inputs


def _zipped(folder: Path) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, str(path.relative_to(folder)))
    return out.getvalue()


def _osm_xml(network: Any) -> str:
    """Return a road network as an OSM file, with the tags that matter."""
    nodes = "".join(
        f'<node id="{i + 1}" version="1" lat="{network.node_lat[i]:.7f}" lon="{network.node_lon[i]:.7f}"/>'
        for i in range(network.n_nodes)
    )
    tags = '<tag k="highway" v="residential"/><tag k="maxspeed" v="50"/><tag k="oneway" v="yes"/>'
    ways = "".join(
        f'<way id="{i + 1}" version="1">'
        f'<nd ref="{network.seg_from[i] + 1}"/><nd ref="{network.seg_to[i] + 1}"/>{tags}</way>'
        for i in range(network.n_segments)
    )
    turn = (
        '<relation id="1" version="1"><member type="way" ref="1" role="from"/><member type="node" ref="2" role="via"/>'
        '<member type="way" ref="3" role="to"/><tag k="type" v="restriction"/>'
        '<tag k="restriction" v="no_left_turn"/></relation>'
    )
    return f'<?xml version="1.0"?><osm version="0.6">{nodes}{ways}{turn}</osm>'


def make_seeds(place: Path) -> dict[str, list[bytes]]:
    """Return good inputs of every format; kernels are compiled on the way."""
    import osmium
    import polars as pl

    from tedtrajrec.data.dataset import write_dataset
    from tedtrajrec.data.pack import pack_dataset
    from tedtrajrec.network.synthetic import synthetic_city
    from tedtrajrec.training.train import train_method
    from tedtrajrec.trips.simulate import simulate_trips
    from tedtrajrec.trips.writers import write_trips

    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=12, step_s=15, seed=1, workers=1)
    few = trips.select(np.arange(2))
    for name in ("t.csv", "t.csv.gz", "t.parquet", "t.geoparquet", "t.gpx", "t.geojson"):
        write_trips(few, place / name)
    seeds = {
        f"trips {s}": [(place / f"t.{s.lower()}").read_bytes()] for s in ("CSV", "CSV.gz", "Parquet", "GeoParquet")
    }
    seeds["trips CSV"].append(
        b"traj_id;time;longitude;latitude\na;2013-07-01 00:00:58;-8.6;41.1\nb;2013-07-01 00:01:13;-8.6;41.2\n"
    )
    seeds["trips GPX"] = seeds["body GPX"] = [(place / "t.gpx").read_bytes()]
    porto = b'"1",7,1372636858,False,"[[-8.61,41.14],[-8.62,41.15]]"\n"2",7,1372637858,False,"[[-8.61,41.14]]"\n'
    seeds["trips CSV of Porto"] = [b"TRIP_ID,TAXI_ID,TIMESTAMP,MISSING_DATA,POLYLINE\n" + porto]
    text = _osm_xml(_corner(city))
    (place / "t.osm").write_text(text)
    with osmium.SimpleWriter(str(place / "t.osm.pbf")) as writer:
        for entity in osmium.FileProcessor(str(place / "t.osm")):
            writer.add(entity)
    seeds["OSM XML"], seeds["OSM PBF"] = [text.encode()], [(place / "t.osm.pbf").read_bytes()]
    corner = _corner(city)
    features = [
        {
            "type": "Feature",
            "properties": {
                "u": int(corner.seg_from[i]),
                "v": int(corner.seg_to[i]),
                "highway": "primary",
                "edge_id": i,
            },
            "geometry": {
                "type": "LineString",
                "coordinates": [
                    [float(corner.node_lon[n]), float(corner.node_lat[n])]
                    for n in (corner.seg_from[i], corner.seg_to[i])
                ],
            },
        }
        for i in range(corner.n_segments)
    ]
    seeds["edges GeoJSON"] = [json.dumps({"type": "FeatureCollection", "features": features}).encode()]
    rows = [
        (
            f["properties"]["u"],
            f["properties"]["v"],
            "LINESTRING (" + ", ".join(f"{x} {y}" for x, y in f["geometry"]["coordinates"]) + ")",
        )
        for f in features
    ]
    frame = pl.DataFrame(rows, schema=["u", "v", "geometry"], orient="row")
    seeds["edges CSV"] = [frame.write_csv().encode()]
    frame.write_parquet(place / "edges.parquet")
    seeds["edges GeoParquet"] = [(place / "edges.parquet").read_bytes()]
    corner.save(place / "n.npz")
    seeds["network npz"] = [(place / "n.npz").read_bytes()]
    splits = {"train": [trips.select(np.arange(8))], "valid": [trips.select([8, 9])], "test": [trips.select([10, 11])]}
    dataset = write_dataset(place / "dataset", city, splits, step_s=15, time_zone="Europe/Berlin")
    pack_dataset(dataset, place / "packed.zip")
    seeds["packed dataset"], seeds["dataset folder"] = (
        [(place / "packed.zip").read_bytes()],
        [_zipped(place / "dataset")],
    )
    tiny = ["d=16", "heads=2", "width=16", "hidden=16", "encoder_layers=1", "step_layers=1", "road_layers=1", "most=32"]
    overrides = [*(f"model.{setting}" for setting in tiny), "train.batch=8", "train.epochs=1"]
    train_method("tedtrajrec_parallel", dataset, place / "run", overrides=overrides, device="cpu")
    shutil.rmtree(place / "run" / "last", ignore_errors=True)
    for extra in (*(place / "run").glob("*.png"), *(place / "run").glob("*.jsonl")):
        extra.unlink()
    seeds["run folder (JSON, safetensors)"] = [_zipped(place / "run")]
    seeds["plan TOML"] = [
        (
            b'[datasets.city]\npath = "dataset"\n[[cells]]\ngroup = "g"\nmethods = ["route_hmm"]\ndatasets = ["city"]\n'
            b'keeps = ["1/8"]\nseeds = [0, 1]\nset = ["noise_m=5"]\nvariants.a = []\nvariants.b = ["noise_m=9"]\n'
        )
    ]
    seeds["settings TOML"] = [
        (
            b'step_s = 15\ntime_zone = "Europe/Lisbon"\n[clean]\nmax_gap_s = 300.0\n'
            b'[columns]\nlon = "X"\n[split]\nby = "day"\n'
        ),
        b'time_zone = "UTC"\nclean.max_speed_mps = 50\n',
    ]
    points = [{"lon": float(few.lon[k]), "lat": float(few.lat[k]), "timestamp": int(few.time[k])} for k in range(4)]
    body = {"trips": [{"traj_id": "a", "points": points}], "step_s": 15, "alternatives": 1, "timezone": "UTC"}
    seeds["body JSON"] = [json.dumps(body).encode()]
    seeds["body GeoJSON"] = [(place / "t.geojson").read_bytes()]
    seeds["body CSV"] = seeds["trips CSV"]
    return seeds


def _corner(city: Any) -> Any:
    """Return the first few segments of a city as a network of its own, so that one input takes little time."""
    from tedtrajrec.network.roadnet import RoadNetwork

    n = 24
    start, end = city.seg_from[:n], city.seg_to[:n]
    nodes, where = np.unique(np.concatenate([start, end]), return_inverse=True)
    lon, lat = city.node_lon[nodes], city.node_lat[nodes]
    a, b = where[:n], where[n:]
    return RoadNetwork.build(
        node_lon=lon,
        node_lat=lat,
        node_id=np.arange(len(nodes)),
        seg_from=a,
        seg_to=b,
        road_class=np.full(n, 11),
        speed_mps=np.full(n, 10.0),
        geom_offset=np.arange(n + 1) * 2,
        geom_lon=np.column_stack([lon[a], lon[b]]).ravel(),
        geom_lat=np.column_stack([lat[a], lat[b]]).ravel(),
        meta={"source": "fuzz"},
    )
