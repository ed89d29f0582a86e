"""What a road network holds, in figures: the answer of ``tedtrajrec network info``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tedtrajrec.network.bbox import BBox
from tedtrajrec.network.classes import ROAD_CLASSES
from tedtrajrec.network.connectivity import LostPiece, lost_pieces, strong_components
from tedtrajrec.network.roadnet import RoadNetwork


@dataclass(frozen=True)
class ClassInfo:
    """One road class of a network."""

    name: str
    n_segments: int
    km: float  # of directed segments
    one_way_share: float  # of the roads of the class, by length
    mean_speed_kmh: float  # of a drive over all of it at the limit


@dataclass(frozen=True)
class NetworkInfo:
    """A road network in figures; ``str()`` of it is the text of ``network info``.

    A road is a one-way segment, or both segments of a two-way street taken once.
    """

    hash: str
    source: str
    attribution: str | None
    n_segments: int
    n_nodes: int
    n_vertices: int
    segment_km: float  # of directed segments
    road_km: float  # of roads
    one_way_share: float  # of roads, by length
    classes: tuple[ClassInfo, ...]  # those that occur, in the order of ROAD_CLASSES
    median_length_m: float
    longest_m: float
    n_components: int  # strong components of the segment graph
    largest_segments: int  # segments of the longest component
    largest_share: float  # of segments, by length
    lost: tuple[LostPiece, ...]  # the longest pieces outside it
    mean_roads_per_node: float  # road ends that meet at a node
    n_cul_de_sacs: int  # nodes with one road end
    mean_successors: float
    n_without_successor: int  # segments where every trip ends
    n_without_predecessor: int
    bbox: BBox
    width_km: float
    height_km: float
    n_bytes: int  # of the arrays in memory

    def __str__(self) -> str:
        west, south, east, north = self.bbox
        lines = {
            "network": self.hash,
            "source": self.source,
            "attribution": self.attribution or "none given",
            "segments": f"{self.n_segments:,} directed, {self.segment_km:,.1f} km",
            "lengths": f"median {self.median_length_m:.0f} m, longest {self.longest_m:,.0f} m",
            "roads": f"{self.road_km:,.1f} km (two-way ones counted once), {self.one_way_share:.1%} one-way",
            "nodes": f"{self.n_nodes:,}, {self.n_cul_de_sacs:,} of them cul-de-sacs",
            "degree": f"{self.mean_roads_per_node:.2f} road ends at a node",
            "successors": f"{self.mean_successors:.2f} each; {self.n_without_successor:,} segments have none,"
            f" {self.n_without_predecessor:,} no predecessor",
            "connected": f"{self.largest_segments:,} segments, {self.largest_share:.2%} of length, reach each other",
            "components": f"{self.n_components:,} (strong)",
            "extent": f"{west:.5f},{south:.5f},{east:.5f},{north:.5f}",
            "size": f"{self.width_km:.1f} x {self.height_km:.1f} km",
            "memory": f"{self.n_bytes / 1e6:,.1f} MB, {self.n_vertices:,} vertices",
        }
        text = [f"{name:<12} {value}" for name, value in lines.items()]
        text += ["", f"{'class':<16}{'segments':>10}{'km':>10}{'one-way':>10}{'km/h':>8}"]
        text += [
            f"{c.name:<16}{c.n_segments:>10,}{c.km:>10,.1f}{c.one_way_share:>10.1%}{c.mean_speed_kmh:>8.0f}"
            for c in self.classes
        ]
        if self.lost:
            text += ["", "longest pieces outside the connected part", f"{'segments':>10}{'km':>9}  can be"]
            text += [f"{p.n_segments:>10,}{p.km:>9.2f}  {_reached(p)}{_at(p)}" for p in self.lost]
        return "\n".join(text)


def describe(network: RoadNetwork) -> NetworkInfo:
    """Return the figures of a network."""
    length, is_road, one_way = network.length_m, network.is_road, network.twin < 0
    road_m = np.where(is_road, length, 0.0)
    component = strong_components(network)
    largest = component == 0
    road_ends = np.bincount(
        np.concatenate([network.seg_from[is_road], network.seg_to[is_road]]), minlength=network.n_nodes
    )
    west, south, east, north = network.bbox
    x, y = network.plane.to_xy(np.array([west, east]), np.array([south, north]))
    followers = np.diff(network.succ_offset)

    def one_way_share(chosen: np.ndarray) -> float:
        return _share(float(road_m[chosen & one_way].sum()), float(road_m[chosen].sum()))

    classes = []
    for number in np.unique(network.road_class):
        chosen = network.road_class == number
        metres = float(length[chosen].sum())
        hours_at_limit = float((length[chosen] / network.speed_mps[chosen]).sum()) / 3600
        classes.append(
            ClassInfo(
                name=ROAD_CLASSES[number],
                n_segments=int(chosen.sum()),
                km=metres / 1000,
                one_way_share=one_way_share(chosen),
                mean_speed_kmh=_share(metres / 1000, hours_at_limit),
            )
        )
    return NetworkInfo(
        hash=network.hash,
        source=str(network.meta.get("source", "not given")),
        attribution=network.meta.get("attribution"),
        n_segments=network.n_segments,
        n_nodes=network.n_nodes,
        n_vertices=len(network.geom_lon),
        segment_km=float(length.sum()) / 1000,
        road_km=float(road_m.sum()) / 1000,
        one_way_share=one_way_share(np.ones(network.n_segments, bool)),
        classes=tuple(classes),
        median_length_m=float(np.median(length)),
        longest_m=float(length.max()),
        n_components=int(component.max()) + 1,
        largest_segments=int(largest.sum()),
        largest_share=_share(float(length[largest].sum()), float(length.sum())),
        lost=tuple(lost_pieces(network)),
        mean_roads_per_node=float(road_ends.mean()),
        n_cul_de_sacs=int((road_ends == 1).sum()),
        mean_successors=float(followers.mean()),
        n_without_successor=int((followers == 0).sum()),
        n_without_predecessor=int((np.diff(network.pred_csr[0]) == 0).sum()),
        bbox=network.bbox,
        width_km=float(x[1] - x[0]) / 1000,
        height_km=float(y[1] - y[0]) / 1000,
        n_bytes=sum(array.nbytes for array in network.arrays().values()),
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


def _reached(piece: LostPiece) -> str:
    return {
        (True, True): "entered and left, but not joined",
        (True, False): "entered, not left",
        (False, True): "left, not entered",
        (False, False): "neither entered nor left",
    }[piece.way_in, piece.way_out]


def _at(piece: LostPiece) -> str:
    return f" (OSM way {piece.osm_way_id})" if piece.osm_way_id else f" (segment {piece.segment})"
