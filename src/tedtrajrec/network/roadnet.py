"""The road network: directed segments as a struct of arrays, immutable, kept in one file or folder."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tedtrajrec.errors import InputError
from tedtrajrec.network import polylines, storage, turns
from tedtrajrec.network.bbox import BBox
from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.network.validation import check_network

if TYPE_CHECKING:
    import geopandas
    import networkx

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RoadNetwork:
    """A road network of N nodes and S directed segments with G geometry vertices.

    A segment is an integer 0..S-1. A two-way road is two segments. Where to drive next is said by the successors alone:
    turn restrictions and forbidden U-turns are successors that are missing. Build one with :meth:`from_osm`,
    :meth:`from_table`, :meth:`from_osmnx` or :meth:`load`; two networks are the same when their :attr:`hash` is.
    """

    node_lon: Floats  # [N] degrees, EPSG:4326
    node_lat: Floats  # [N]
    node_id: NDArray[Any]  # [N] id in the source: int64 or text
    seg_from: NDArray[np.int32]  # [S] node where the segment starts
    seg_to: NDArray[np.int32]  # [S] node where it ends
    length_m: Floats  # [S] along the geometry
    road_class: NDArray[np.uint8]  # [S] index into ROAD_CLASSES
    speed_mps: NDArray[np.float32]  # [S] speed limit, or the default of the class
    source_id: NDArray[Any]  # [S] id in the source (edge table: its id; osmnx: the key): int64 or text
    geom_offset: NDArray[np.int64]  # [S+1]
    geom_lon: Floats  # [G] first and last vertex of a segment are its nodes
    geom_lat: Floats  # [G]
    geom_way_id: NDArray[
        np.int64
    ]  # [G] OSM way of the piece that starts at the vertex (the last one repeats); 0 unknown
    succ_offset: NDArray[np.int64]  # [S+1]
    succ: NDArray[np.int32]  # segments that may follow, sorted within each segment
    meta: Mapping[str, Any] = field(default_factory=dict)  # plain JSON: source, attribution, how it was built

    def __post_init__(self) -> None:
        for array in self.arrays().values():
            array.setflags(write=False)

    # ------------------------------------------------------------------ sizes and derived arrays

    @property
    def n_nodes(self) -> int:
        """Number of nodes N."""
        return len(self.node_lon)

    @property
    def n_segments(self) -> int:
        """Number of directed segments S."""
        return len(self.seg_from)

    def __len__(self) -> int:
        return self.n_segments

    def __repr__(self) -> str:
        km = self.length_m.sum() / 1000
        return f"RoadNetwork({self.n_segments} segments, {self.n_nodes} nodes, {km:.1f} km, {self.hash})"

    @cached_property
    def bbox(self) -> BBox:
        """West, south, east, north of the geometry in degrees."""
        return (
            float(self.geom_lon.min()),
            float(self.geom_lat.min()),
            float(self.geom_lon.max()),
            float(self.geom_lat.max()),
        )

    @cached_property
    def plane(self) -> LocalPlane:
        """The plane all metric work on this network is done in; it touches the middle of the bounding box."""
        west, south, east, north = self.bbox
        return LocalPlane((west + east) / 2, (south + north) / 2)

    @cached_property
    def geom_xy(self) -> tuple[Floats, Floats]:
        """Geometry vertices in metres on :attr:`plane`."""
        return self.plane.to_xy(self.geom_lon, self.geom_lat)

    @cached_property
    def geom_along(self) -> Floats:
        """Metres from the start of the segment to each geometry vertex [G]; the last one is the segment's length."""
        return polylines.measure(self.geom_offset, self.geom_lon, self.geom_lat)

    @cached_property
    def pred_csr(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Predecessors: offsets [S+1] and the segments that may come before."""
        count = np.bincount(self.succ, minlength=self.n_segments)
        offset = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        source = np.repeat(np.arange(self.n_segments, dtype=np.int32), np.diff(self.succ_offset))
        return offset, source[np.argsort(self.succ, kind="stable")]

    @cached_property
    def twin(self) -> NDArray[np.int32]:
        """For each segment the one that runs back along the same geometry, or -1 [S]."""
        return turns.find_twins(self.seg_from, self.seg_to, self.geom_offset, self.geom_lon, self.geom_lat)

    @cached_property
    def is_road(self) -> NDArray[np.bool_]:
        """Which segments stand for a road: all one-way ones, and one of each two that are twins [S]."""
        return (self.twin < 0) | (np.arange(self.n_segments) < self.twin)

    @cached_property
    def osm_way_id(self) -> NDArray[np.int64]:
        """The OSM way that covers most of each segment [S]; 0 where unknown. :meth:`way_at` is exact."""
        segment = np.repeat(np.arange(self.n_segments), np.diff(self.geom_offset))
        piece = np.diff(self.geom_along, append=0.0)
        piece[self.geom_offset[1:] - 1] = 0.0
        pair, inverse = np.unique(np.column_stack([segment, self.geom_way_id]), axis=0, return_inverse=True)
        share = np.bincount(inverse.ravel(), weights=piece, minlength=len(pair))
        order = np.lexsort([pair[:, 1], -share, pair[:, 0]])
        first = np.unique(pair[order, 0], return_index=True)[1]
        way: NDArray[np.int64] = pair[order, 1][first]
        return way

    # ------------------------------------------------------------------ questions

    def successors(self, segment: int) -> NDArray[np.int32]:
        """Return the segments that may follow ``segment``."""
        return self.succ[self.succ_offset[segment] : self.succ_offset[segment + 1]]

    def point_at(self, segment: ArrayLike, ratio: ArrayLike) -> tuple[Floats, Floats]:
        """Return lon and lat of positions (segment, ratio); a ratio outside 0..1 is taken as the nearer end."""
        vertex, share = self._locate(segment, ratio)
        lon = self.geom_lon[vertex] + share * (self.geom_lon[vertex + 1] - self.geom_lon[vertex])
        lat = self.geom_lat[vertex] + share * (self.geom_lat[vertex + 1] - self.geom_lat[vertex])
        return lon, lat

    def way_at(self, segment: ArrayLike, ratio: ArrayLike) -> NDArray[np.int64]:
        """Return the OSM way at positions (segment, ratio); 0 where unknown."""
        return self.geom_way_id[self._locate(segment, ratio)[0]]

    def _locate(self, segment: ArrayLike, ratio: ArrayLike) -> tuple[NDArray[np.int64], Floats]:
        which, where = np.broadcast_arrays(np.asarray(segment, np.int64), np.asarray(ratio, np.float64))
        if which.size and (which.min() < 0 or which.max() >= self.n_segments):
            raise IndexError(f"segments go from 0 to {self.n_segments - 1}")
        vertex, share = polylines.locate(self.geom_offset, self.geom_along, which.ravel(), where.ravel())
        return vertex.reshape(which.shape), share.reshape(which.shape)

    def geometry(self, segment: int) -> tuple[Floats, Floats]:
        """Return lon and lat of the vertices of one segment."""
        part = slice(self.geom_offset[segment], self.geom_offset[segment + 1])
        return self.geom_lon[part], self.geom_lat[part]

    # ------------------------------------------------------------------ making and changing

    @classmethod
    def build(
        cls,
        *,
        node_lon: ArrayLike,
        node_lat: ArrayLike,
        node_id: ArrayLike,
        seg_from: ArrayLike,
        seg_to: ArrayLike,
        road_class: ArrayLike,
        speed_mps: ArrayLike,
        geom_offset: ArrayLike,
        geom_lon: ArrayLike,
        geom_lat: ArrayLike,
        geom_way_id: ArrayLike | None = None,
        source_id: ArrayLike | None = None,
        u_turns: bool = False,
        forbidden_turns: ArrayLike | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> RoadNetwork:
        """Make a network from nodes and segments: measure them, and connect each segment to those that may follow.

        Parameters
        ----------
        u_turns
            Whether a segment may be followed by its twin everywhere (True) or only at dead ends, where nothing else may
            follow (False).
        forbidden_turns
            Pairs of segments [K, 2] that must not follow each other.
        meta
            Plain values that say where the network comes from.
        """
        # All arrays are copied: the network makes its own ones read-only.
        offset = np.array(geom_offset, np.int64)
        lon, lat = np.array(geom_lon, np.float64), np.array(geom_lat, np.float64)
        start, end = np.array(seg_from, np.int32), np.array(seg_to, np.int32)
        n_segments = len(start)
        network = cls(
            node_lon=np.array(node_lon, np.float64),
            node_lat=np.array(node_lat, np.float64),
            node_id=np.array(node_id),
            seg_from=start,
            seg_to=end,
            length_m=polylines.lengths(offset, polylines.measure(offset, lon, lat)),
            road_class=np.array(road_class, np.uint8),
            speed_mps=np.array(speed_mps, np.float32),
            source_id=np.arange(n_segments) if source_id is None else np.array(source_id),
            geom_offset=offset,
            geom_lon=lon,
            geom_lat=lat,
            geom_way_id=np.zeros(len(lon), np.int64) if geom_way_id is None else np.array(geom_way_id, np.int64),
            succ_offset=np.zeros(n_segments + 1, np.int64),
            succ=np.zeros(0, np.int32),
            meta=dict(meta or {}),
        )
        succ_offset, succ = turns.connect(start, end, network.twin, u_turns=u_turns, forbidden_turns=forbidden_turns)
        return dataclasses.replace(network, succ_offset=succ_offset, succ=succ).validate()

    def subset(self, segments: ArrayLike) -> RoadNetwork:
        """Return the network of the given segments only (indices or a mask), renumbered in their old order."""
        keep = np.zeros(self.n_segments, bool)
        keep[np.asarray(segments)] = True
        old = np.flatnonzero(keep)
        new_segment = np.full(self.n_segments, -1, np.int32)
        new_segment[old] = np.arange(len(old))
        nodes = np.unique(np.concatenate([self.seg_from[old], self.seg_to[old]]))
        new_node = np.full(self.n_nodes, -1, np.int32)
        new_node[nodes] = np.arange(len(nodes))
        vertices = polylines.ranges(self.geom_offset[old], np.diff(self.geom_offset)[old])
        followers = new_segment[self.succ[polylines.ranges(self.succ_offset[old], np.diff(self.succ_offset)[old])]]
        owner = np.repeat(np.arange(len(old)), np.diff(self.succ_offset)[old])[followers >= 0]
        return RoadNetwork(
            node_lon=self.node_lon[nodes],
            node_lat=self.node_lat[nodes],
            node_id=self.node_id[nodes],
            seg_from=new_node[self.seg_from[old]],
            seg_to=new_node[self.seg_to[old]],
            length_m=self.length_m[old],
            road_class=self.road_class[old],
            speed_mps=self.speed_mps[old],
            source_id=self.source_id[old],
            geom_offset=np.concatenate([[0], np.cumsum(np.diff(self.geom_offset)[old])]).astype(np.int64),
            geom_lon=self.geom_lon[vertices],
            geom_lat=self.geom_lat[vertices],
            geom_way_id=self.geom_way_id[vertices],
            succ_offset=np.searchsorted(owner, np.arange(len(old) + 1)).astype(np.int64),
            succ=followers[followers >= 0],
            meta=self.meta,
        )

    @classmethod
    def from_osm(
        cls,
        path: str | Path,
        *,
        bbox: BBox | None = None,
        service: bool = False,
        country: str | None = None,
    ) -> RoadNetwork:
        """Build the drivable network of an OpenStreetMap extract (``.osm.pbf``, ``.osm``, ``.osm.gz``, ``.osm.bz2``).

        Parameters
        ----------
        path
            The extract.
        bbox
            West, south, east, north in degrees; what lies outside is left out.
        service
            Whether service roads (car parks, drives) belong to the network.
        country
            ISO 3166 code that decides default speed limits such as ``PT:urban`` where a way names none.
        """
        from tedtrajrec.network.osm import read_osm  # noqa: PLC0415  (geo libraries only when asked for)

        return read_osm(path, bbox=bbox, service=service, country=country)

    @classmethod
    def from_table(
        cls,
        path: str | Path,
        *,
        bbox: BBox | None = None,
        u_turns: bool = True,
    ) -> RoadNetwork:
        """Build a network from an edge table (GeoJSON, GeoParquet, CSV with WKT; also .gz) with u, v and geometry."""
        from tedtrajrec.network.edge_table import read_edge_table  # noqa: PLC0415

        return read_edge_table(path, bbox=bbox, u_turns=u_turns)

    @classmethod
    def from_osmnx(cls, graph: networkx.MultiDiGraph[Any], *, u_turns: bool = False) -> RoadNetwork:
        """Build a network from an osmnx graph (unprojected)."""
        from tedtrajrec.network.interop import from_osmnx  # noqa: PLC0415

        return from_osmnx(graph, u_turns=u_turns)

    def to_osmnx(self) -> networkx.MultiDiGraph[Any]:
        """Return the network as an osmnx graph; turn restrictions have no place there and are lost."""
        from tedtrajrec.network.interop import to_osmnx  # noqa: PLC0415

        return to_osmnx(self)

    def to_geodataframe(self) -> geopandas.GeoDataFrame:
        """Return one row per segment with its geometry (EPSG:4326) and attributes, indexed by segment."""
        from tedtrajrec.network.interop import to_geodataframe  # noqa: PLC0415

        return to_geodataframe(self)

    # ------------------------------------------------------------------ checks and files

    def validate(self) -> RoadNetwork:
        """Check every promise of the class and return the network, or raise :class:`InputError` on the first broken."""
        check_network(self)
        return self

    @cached_property
    def hash(self) -> str:
        """Sixteen hexadecimal digits that name the content (not its description)."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            digest.update(f"{name}:{array.dtype.str}:{array.shape};".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:16]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all arrays by name, in the order of the file format."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "meta"}

    def save(self, path: str | Path) -> None:
        """Write the network to one ``.npz`` file, or to a folder that ends in ``.network`` and opens at once."""
        storage.write(path, self.arrays(), self.meta, self.hash)

    @classmethod
    def load(cls, path: str | Path) -> RoadNetwork:
        """Read a network written by :meth:`save`; a damaged or foreign file is an :class:`InputError`.

        A folder is mapped into memory. It is checked as a file is, but its hash is believed.
        """
        found = storage.read(path, [f.name for f in dataclasses.fields(cls) if f.name != "meta"])
        network = cls(**found.arrays, meta=found.meta)
        try:
            network.validate()
        except InputError as error:
            raise InputError(error.problem, file=path, remedy=storage.REMEDY) from error
        if found.mapped:
            network.__dict__["hash"] = found.hash  # a cached property
        if network.hash != found.hash:
            raise InputError("the content does not agree with its hash", file=path, remedy=storage.REMEDY)
        return network
