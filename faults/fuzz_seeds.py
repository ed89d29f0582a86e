"""Good inputs of every format that is fuzzed, made from a small city and a few trips."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tedtrajrec.network.roadnet import RoadNetwork
    from tedtrajrec.trips.table import Trips

Seeds = dict[str, list[bytes]]

TINY = ["d=16", "heads=2", "width=16", "hidden=16", "encoder_layers=1", "step_layers=1", "road_layers=1", "most=32"]
OTHER_CSV = b"traj_id;time;longitude;latitude\na;2013-07-01 00:00:58;-8.6;41.1\nb;2013-07-01 00:01:13;-8.6;41.2\n"
PORTO_CSV = (
    b"TRIP_ID,TAXI_ID,TIMESTAMP,MISSING_DATA,POLYLINE\n"
    b'"1",7,1372636858,False,"[[-8.61,41.14],[-8.62,41.15]]"\n"2",7,1372637858,False,"[[-8.61,41.14]]"\n'
)
PLAN = (
    b'[datasets.city]\npath = "dataset"\n[[cells]]\ngroup = "g"\nmethods = ["route_hmm"]\ndatasets = ["city"]\n'
    b'keeps = ["1/8"]\nseeds = [0, 1]\nset = ["noise_m=5"]\nvariants.a = []\nvariants.b = ["noise_m=9"]\n'
)
SETTINGS = [
    b'step_s = 15\ntime_zone = "Europe/Lisbon"\n[clean]\nmax_gap_s = 300\n[columns]\nlon = "X"\n[split]\nby = "day"\n',
    b'time_zone = "UTC"\nclean.max_speed_mps = 50\n',
]


def make_seeds(place: Path) -> Seeds:
    """Return good inputs of every format; kernels are compiled on the way."""
    from tedtrajrec.network.synthetic import synthetic_city
    from tedtrajrec.trips.simulate import simulate_trips

    city = synthetic_city(size="small")
    trips = simulate_trips(city, trips=12, step_s=15, seed=1, workers=1)
    seeds = {"trips CSV of Porto": [PORTO_CSV], "plan TOML": [PLAN], "settings TOML": SETTINGS}
    corner = city.subset(np.arange(24))  # so that one input takes little time
    return seeds | _trips(place, trips.select([0, 1])) | _roads(place, corner) | _saved(place, city, trips)


def _trips(place: Path, trips: Trips) -> Seeds:
    """Return files of trips, and the same as bodies of requests."""
    from tedtrajrec.trips.writers import write_trips

    files = {}
    for name in ("CSV", "CSV.gz", "Parquet", "GeoParquet", "GPX", "GeoJSON"):
        path = place / f"t.{name.lower()}"
        write_trips(trips, path)
        files[name] = [path.read_bytes()]
    files["CSV"].append(OTHER_CSV)
    points = [
        {"lon": float(trips.lon[k]), "lat": float(trips.lat[k]), "timestamp": int(trips.time[k])} for k in range(4)
    ]
    body = {"trips": [{"traj_id": "a", "points": points}], "step_s": 15, "alternatives": 1, "timezone": "UTC"}
    read = {f"trips {name}": content for name, content in files.items() if name != "GeoJSON"}
    posted = {f"body {name}": files[name] for name in ("GeoJSON", "CSV", "GPX")}
    return read | posted | {"body JSON": [json.dumps(body).encode()]}


def _roads(place: Path, network: RoadNetwork) -> Seeds:
    """Return a network in all formats that networks come in."""
    import osmium
    import polars as pl

    (place / "t.osm").write_text(_osm_xml(network))
    with osmium.SimpleWriter(str(place / "t.osm.pbf")) as writer:
        for entity in osmium.FileProcessor(str(place / "t.osm")):
            writer.add(entity)
    ends = np.column_stack([network.seg_from, network.seg_to])
    lines = np.stack([network.node_lon[ends], network.node_lat[ends]], axis=-1).tolist()
    features = [
        {
            "type": "Feature",
            "properties": {"u": u, "v": v, "highway": "primary", "edge_id": number},
            "geometry": {"type": "LineString", "coordinates": line},
        }
        for number, ((u, v), line) in enumerate(zip(ends.tolist(), lines, strict=True))
    ]
    (place / "e.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    wkt = ["LINESTRING (" + ", ".join(f"{x} {y}" for x, y in line) + ")" for line in lines]
    frame = pl.DataFrame({"u": network.seg_from, "v": network.seg_to, "geometry": wkt})
    frame.write_csv(place / "e.csv")
    frame.write_parquet(place / "e.parquet")
    network.save(place / "n.npz")
    names = {
        "OSM XML": "t.osm", "OSM PBF": "t.osm.pbf", "edges GeoJSON": "e.geojson", "edges CSV": "e.csv",
        "edges GeoParquet": "e.parquet", "network npz": "n.npz",
    }  # fmt: skip
    return {name: [(place / file).read_bytes()] for name, file in names.items()}


def _saved(place: Path, city: RoadNetwork, trips: Trips) -> Seeds:
    """Return a dataset, a model trained on it for an epoch, and that model exported; folders as archives."""
    from tedtrajrec.data.dataset import write_dataset
    from tedtrajrec.data.pack import pack_dataset
    from tedtrajrec.evaluation.export import export_model
    from tedtrajrec.training.train import train_method

    splits = {"train": [trips.select(np.arange(8))], "valid": [trips.select([8, 9])], "test": [trips.select([10, 11])]}
    dataset = write_dataset(place / "dataset", city, splits, step_s=15, time_zone="Europe/Berlin")
    pack_dataset(dataset, place / "packed.zip")
    overrides = [*(f"model.{setting}" for setting in TINY), "train.batch=8", "train.epochs=1"]
    train_method("tedtrajrec_parallel", dataset, place / "run", overrides=overrides, device="cpu")
    export_model(place / "run", place / "model")
    read = ("config.json", "model.safetensors", "network.npz", "profile.json", "card.json")
    return {
        "packed dataset": [(place / "packed.zip").read_bytes()],
        "dataset folder": [_zipped(place / "dataset")],
        "run folder (JSON, safetensors)": [_zipped(place / "run", read), _zipped(place / "model", read)],
    }


def _zipped(folder: Path, names: tuple[str, ...] = ()) -> bytes:
    """Return the files of a folder, or those of some names, as an archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and (not names or path.name in names) and path.parent.name != "last":
                archive.write(path, str(path.relative_to(folder)))
    return out.getvalue()


def _osm_xml(network: RoadNetwork) -> str:
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
