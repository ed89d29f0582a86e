"""The routes of matched trips to files: GeoParquet, GeoJSON or CSV, chunk by chunk.

One row for each piece of a trip, from its first matched fix to its last. A file appears under its name only when it is
complete.
"""

from __future__ import annotations

import contextlib
import json
from abc import abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import shapely
from numpy.typing import NDArray

from tedtrajrec.errors import OutputError
from tedtrajrec.files import replacing
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.match import ENDS, Matched
from tedtrajrec.trips.table import Trips

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TIME = pa.timestamp("ms", "UTC")
_FIELDS = {
    "traj_id": pa.string(),
    "piece": pa.int32(),  # number within the trip; a trip has several where its chain broke
    "start_time": _TIME,  # of the first matched fix
    "end_time": _TIME,  # of the last
    "end_reason": pa.string(),  # one of ENDS of the matcher
    "fixes": pa.int32(),  # matched ones
    "length_m": pa.float64(),  # from the first position to the last
    "segments": pa.list_(pa.int32()),  # in driving order
    "osm_way_ids": pa.list_(pa.int64()),  # for each segment the way that covers most of it; 0 where unknown
    "enter": pa.list_(_TIME),  # for each segment
    "leave": pa.list_(_TIME),
    "geometry": pa.large_binary(),  # LineString from the first position to the last, as well-known binary
}

# GeoParquet 1.1; without a "crs" it is OGC:CRS84, longitude and latitude.
_GEO = {
    "version": "1.1.0",
    "primary_column": "geometry",
    "columns": {"geometry": {"encoding": "WKB", "geometry_types": ["LineString"]}},
}
_SCHEMA = pa.schema(_FIELDS, metadata={b"geo": json.dumps(_GEO).encode()})


class RouteWriter:
    """Writes routes chunk by chunk: ``with RouteWriter(path, network) as writer: writer.write(trips, matched)``.

    Parameters
    ----------
    path
        Ends in .parquet, .geoparquet (both with the metadata of GeoParquet), .geojson or .csv (geometry as WKT).
    network
        The network the trips were matched on.
    """

    def __init__(self, path: str | Path, network: RoadNetwork) -> None:
        self.path = Path(path)
        self.network = network
        self.pieces = 0  # written so far
        sink = _SINKS.get(self.path.suffix.lower())
        if sink is None:
            raise OutputError(f"{path} has no known ending for routes; use {', '.join(_SINKS)}.")
        self._make_sink = sink
        self._stack = contextlib.ExitStack()
        self._sink: _Sink | None = None

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            beside = stack.enter_context(replacing(self.path))
            self._sink = stack.enter_context(self._make_sink(beside))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)

    def write(self, trips: Trips, matched: Matched) -> None:
        """Write the routes of some trips, after those written before."""
        if self._sink is None:
            raise OutputError("Routes can be written only inside the with block of the writer.")
        table = route_table(self.network, trips, matched)
        self._sink.write(table)
        self.pieces += len(table)


def route_table(network: RoadNetwork, trips: Trips, matched: Matched) -> pa.Table:
    """Return one row for each piece of matched trips, with the route driven and its geometry."""
    n_pieces = len(matched.piece_ends)
    trip = np.repeat(np.arange(len(trips)), np.diff(matched.piece_offsets))
    fix = np.flatnonzero(matched.piece >= 0)
    bounds = np.searchsorted(matched.piece[fix], np.arange(n_pieces + 1))
    first, last = fix[bounds[:-1]], fix[bounds[1:] - 1]
    lines = route_lines(network, matched, first, last)
    route = pa.array(matched.route_offsets, pa.int32())

    def times(seconds: NDArray[Any]) -> pa.Array:
        return pa.array(np.rint(seconds * 1000).astype(np.int64), _TIME)

    columns = {
        "traj_id": pa.array(trips.traj_id[trip].tolist(), pa.string()),
        "piece": pa.array(np.arange(n_pieces) - matched.piece_offsets[:-1][trip], pa.int32()),
        "start_time": times(trips.time[first]),
        "end_time": times(trips.time[last]),
        "end_reason": pa.array(np.array(ENDS)[matched.piece_ends].tolist(), pa.string()),
        "fixes": pa.array(np.diff(bounds), pa.int32()),
        "length_m": pa.array(lines.length_m),
        "segments": pa.ListArray.from_arrays(route, pa.array(matched.route_segment, pa.int32())),
        "osm_way_ids": pa.ListArray.from_arrays(route, pa.array(network.osm_way_id[matched.route_segment])),
        "enter": pa.ListArray.from_arrays(route, times(matched.route_enter)),
        "leave": pa.ListArray.from_arrays(route, times(matched.route_leave)),
        "geometry": _to_wkb(lines),
    }
    return pa.table(columns, schema=_SCHEMA)


class Lines(NamedTuple):
    """Geometries of P pieces; piece p has the points offsets[p]:offsets[p + 1], at least two."""

    offsets: Ints  # [P+1]
    lon: Floats
    lat: Floats
    length_m: Floats  # [P]


def route_lines(network: RoadNetwork, matched: Matched, first: Ints, last: Ints) -> Lines:
    """Return the geometries of routes from the position of their first fix to that of their last.

    Where the two are the same, the line has two equal points. Where the last lies behind the first on one and the same
    segment, it leads back.

    Parameters
    ----------
    network
        The network of the routes.
    matched
        What the matcher found.
    first, last
        First and last fix of each piece [P each].
    """
    n_pieces = len(first)
    segment, count = matched.route_segment, np.diff(matched.route_offsets)
    start, end = matched.route_offsets[:-1], matched.route_offsets[1:] - 1
    begins_at = matched.ratio[first] * network.length_m[segment[start]]
    ends_at = matched.ratio[last] * network.length_m[segment[end]]
    back = (count == 1) & (ends_at < begins_at)

    # Of every segment driven, its vertices between where the route enters it and where it leaves it. A node between two
    # segments is the last vertex of the one and the first of the other: the latter is left out.
    low, high = np.zeros(len(segment)), np.full(len(segment), np.inf)
    low[start], high[end] = np.where(back, ends_at, begins_at), np.where(back, begins_at, ends_at)
    n_vertices = np.diff(network.geom_offset)[segment]
    vertex = ranges(network.geom_offset[segment], n_vertices)
    along = network.geom_along[vertex]
    between = (along > np.repeat(low, n_vertices)) & (along < np.repeat(high, n_vertices))
    vertex = vertex[between]
    piece = np.repeat(np.repeat(np.arange(n_pieces), count), n_vertices)[between]

    inner = np.bincount(piece, minlength=n_pieces)
    offsets = np.concatenate([[0], np.cumsum(inner + 2)]).astype(np.int64)
    place = np.arange(len(vertex)) + 2 * piece + 1
    place = np.where(back[piece], offsets[piece] + offsets[piece + 1] - 1 - place, place)
    lon, lat = np.empty(offsets[-1]), np.empty(offsets[-1])
    for values, source, own in ((lon, network.geom_lon, matched.lon), (lat, network.geom_lat, matched.lat)):
        values[place] = source[vertex]
        values[offsets[:-1]], values[offsets[1:] - 1] = own[first], own[last]

    whole = np.bincount(np.repeat(np.arange(n_pieces), count), network.length_m[segment], n_pieces)
    length = np.abs(whole - begins_at - (network.length_m[segment[end]] - ends_at))
    return Lines(offsets, lon, lat, length)


def _to_wkb(lines: Lines) -> pa.Array:
    """Return lines as well-known binary: byte order, type and number of points, then the points."""
    count = np.diff(lines.offsets)
    offsets = 9 * np.arange(len(count) + 1) + 16 * lines.offsets
    head = np.empty(len(count), np.dtype([("order", "u1"), ("type", "<u4"), ("points", "<u4")]))
    head["order"], head["type"], head["points"] = 1, 2, count
    data = np.empty(offsets[-1], np.uint8)
    is_head = np.zeros(len(data), np.bool_)
    is_head[(offsets[:-1, None] + np.arange(9)).ravel()] = True
    data[is_head] = head.view(np.uint8)
    data[~is_head] = np.column_stack([lines.lon, lines.lat]).astype("<f8").view(np.uint8).ravel()
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(data)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(count), buffers)


# ---------------------------------------------------------------------- formats


class _Sink(contextlib.AbstractContextManager["_Sink"]):
    @abstractmethod
    def __init__(self, path: Path) -> None: ...

    @abstractmethod
    def write(self, table: pa.Table) -> None: ...


class _ParquetSink(_Sink):
    def __init__(self, path: Path) -> None:
        self._writer = pa.parquet.ParquetWriter(path, _SCHEMA, compression="zstd")

    def write(self, table: pa.Table) -> None:
        self._writer.write_table(table)

    def __exit__(self, *error: object) -> None:
        self._writer.close()


class _CsvSink(_Sink):
    """Lists are written with spaces between their values."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write((",".join(_FIELDS) + "\n").encode())

    def write(self, table: pa.Table) -> None:
        frame = _with_text_times(table)
        lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
        frame = frame.with_columns(
            pl.col(lists).list.eval(pl.element().cast(pl.String)).list.join(" "),
            geometry=pl.Series(shapely.to_wkt(shapely.from_wkb(table["geometry"].to_numpy()), 7).tolist()),
        )
        self._file.write(frame.write_csv(include_header=False).encode())

    def __exit__(self, *error: object) -> None:
        self._file.close()


class _GeoJsonSink(_Sink):
    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(b'{"type": "FeatureCollection", "features": [\n')
        self._first = True

    def write(self, table: pa.Table) -> None:
        shapes = shapely.to_geojson(shapely.from_wkb(table["geometry"].to_numpy()))
        rows = _with_text_times(table).drop("geometry").iter_rows(named=True)
        for shape, properties in zip(shapes, rows, strict=True):
            text = json.dumps(properties, ensure_ascii=False)
            self._file.write(b"" if self._first else b",\n")
            self._file.write(f'{{"type": "Feature", "geometry": {shape}, "properties": {text}}}'.encode())
            self._first = False

    def __exit__(self, *error: object) -> None:
        self._file.write(b"\n]}\n")
        self._file.close()


def _with_text_times(table: pa.Table) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    form = "%Y-%m-%dT%H:%M:%S%.3fZ"
    return frame.with_columns(
        pl.col("start_time", "end_time").dt.strftime(form),
        pl.col("enter", "leave").list.eval(pl.element().dt.strftime(form)),
    )


_SINKS: dict[str, type[_Sink]] = {
    ".parquet": _ParquetSink,
    ".geoparquet": _ParquetSink,
    ".geojson": _GeoJsonSink,
    ".csv": _CsvSink,
}
