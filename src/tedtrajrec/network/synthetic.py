"""A made-up city for tests and the demo: two gridded banks of a river, quays, bridges, radial roads and two rings.

Streets are drawn as whole lines across the city. Where two lines cross there is a node; the pieces between nodes become
segments. That gives what a real city has: odd blocks, bent streets, dead ends, one-way pairs, few ways over the water.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from tedtrajrec.network.classes import class_numbers, default_speed_mps
from tedtrajrec.network.connectivity import strong_components
from tedtrajrec.network.geodesy import LocalPlane
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Size = Literal["small", "medium", "large"]

ORIGIN = LocalPlane(10.0, 50.0)  # farmland and forest in Franconia
VERTEX_M = 30.0  # distance between the vertices of a street
SNAP_M = 22.0  # crossings nearer than this to each other are one junction
CARRIAGEWAYS_M = 50.0  # between the two directions of the outer ring
RANK = ("trunk", "primary", "secondary", "tertiary", "residential")  # of two streets in the same place the first stays


@dataclass(frozen=True)
class CityConfig:
    """What a synthetic city looks like; lengths in metres."""

    radius_m: float = 2200.0
    block_m: float = 150.0  # between parallel streets
    river_m: float = 110.0  # width of the water
    radials: int = 7  # main roads out of the centre; those to the south are bridges
    one_way_share: float = 0.2  # of residential streets
    missing_share: float = 0.08  # of residential pieces left out, which makes blocks of unlike shape
    dead_end_share: float = 0.03  # of residential pieces that stop half-way
    crescent_share: float = 0.03  # of residential pieces that have a bent second road between the same junctions

    def __post_init__(self) -> None:
        if not 300 <= self.radius_m <= 20_000 or not 60 <= self.block_m <= self.radius_m / 4:
            raise ValueError("radius_m must be 300 to 20000 and block_m 60 to a quarter of it")
        if not 0 < self.river_m < self.radius_m / 4 or not 3 <= self.radials <= 12:
            raise ValueError("river_m must be less than a quarter of radius_m, and radials 3 to 12")
        shares = (self.one_way_share, self.missing_share, self.dead_end_share, self.crescent_share)
        if min(shares) < 0 or max(shares) > 0.5:
            raise ValueError("shares must be 0 to 0.5")


SIZES: dict[Size, CityConfig] = {
    "small": CityConfig(radius_m=950.0, block_m=140.0, river_m=70.0, radials=5),
    "medium": CityConfig(),
    "large": CityConfig(radius_m=5600.0, block_m=135.0, river_m=220.0, radials=9),
}


@dataclass(frozen=True)
class _Street:
    xy: Floats  # [V, 2] metres
    kind: str  # name of its road class
    one_way: bool  # in the order of its vertices

    @property
    def along(self) -> Floats:
        return np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(self.xy, axis=0).T))])


@dataclass(frozen=True)
class _Piece:
    xy: Floats  # [V, 2], ends at the junctions
    start: int
    end: int
    kind: str
    one_way: bool


def synthetic_city(*, size: Size = "small", seed: int = 0, config: CityConfig | None = None) -> RoadNetwork:
    """Return a made-up, strongly connected city; the same arguments give the same city.

    Parameters
    ----------
    size
        About 500 segments (``small``), 2,200 (``medium``) or 17,000 (``large``).
    seed
        Another number is another city of the same kind.
    config
        The city's measures, in place of those of ``size``.
    """
    if config is None:
        config = SIZES[size]
    rng = np.random.default_rng(seed)
    streets = _Plan(config, rng).streets()
    nodes, pieces = _cut(streets)
    pieces = _dress(pieces, nodes, config, rng)
    meta = {"source": "synthetic city (not a real place)", "seed": seed, "config": asdict(config)}
    return _build(nodes, pieces, meta)


class _Plan:
    """Lays out the streets of one city."""

    def __init__(self, config: CityConfig, rng: np.random.Generator) -> None:
        self.config = config
        self.rng = rng
        self.phase = rng.uniform(0, 2 * np.pi, 8)
        self.quay_m = config.river_m / 2 + 35.0
        self.reach = np.arange(-1.5 * config.radius_m, 1.5 * config.radius_m, VERTEX_M)

    def streets(self) -> list[_Street]:
        """Return all streets, the most important first."""
        return [*self._outer_ring(), *self._radials(), *self._inner_ring(), *self._quays(), *self._grids()]

    def _river(self, x: Floats) -> Floats:
        r = self.config.radius_m
        bend = 0.12 * np.sin(2 * np.pi * x / (2.2 * r) + self.phase[0])
        y: Floats = r * (bend + 0.03 * np.sin(2 * np.pi * x / (0.8 * r) + self.phase[1]) - 0.3)
        return y

    def _north_of_river(self, xy: Floats) -> Floats:
        return xy[:, 1] - self._river(xy[:, 0])

    def _outline(self, angle: Floats) -> Floats:
        wave = 0.10 * np.sin(2 * angle + self.phase[2]) + 0.06 * np.sin(3 * angle + self.phase[3])
        radius: Floats = self.config.radius_m * (1 + wave)
        return radius

    def _inside(self, xy: Floats, share: float = 1.0) -> NDArray[np.bool_]:
        inside: NDArray[np.bool_] = np.hypot(*xy.T) < share * self._outline(np.arctan2(xy[:, 1], xy[:, 0]))
        return inside

    def _warp(self, xy: Floats) -> Floats:
        """Bend straight lines a little: nobody surveyed this city."""
        wave = 2 * np.pi / (0.9 * self.config.radius_m)
        dx = np.sin(wave * xy[:, 1] + self.phase[4]) + 0.5 * np.sin(2.3 * wave * xy[:, 1] + self.phase[5])
        dy = np.sin(wave * xy[:, 0] + self.phase[6]) + 0.5 * np.sin(2.3 * wave * xy[:, 0] + self.phase[7])
        return xy + 0.3 * self.config.block_m * np.column_stack([dx, dy])

    def _ring(self, share: float, offset_m: float = 0.0) -> Floats:
        # It starts in the river and overlaps itself until past a radial, so that the piece over the seam is there too.
        n = max(24, int(2 * np.pi * share * self.config.radius_m / VERTEX_M))
        angle = 2 * np.pi * np.arange(int(n * (1 + 1.6 / self.config.radials))) / n - np.pi / 2
        radius = share * self._outline(angle) + offset_m
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])

    def _outer_ring(self) -> list[_Street]:
        outer, inner = self._ring(0.74, CARRIAGEWAYS_M / 2), self._ring(0.74, -CARRIAGEWAYS_M / 2)
        return [_Street(outer, "trunk", one_way=True), _Street(inner[::-1].copy(), "trunk", one_way=True)]

    def _radials(self) -> list[_Street]:
        n, radius = self.config.radials, self.config.radius_m
        angle = 2 * np.pi * (np.arange(n) + self.rng.uniform(-0.15, 0.15, n)) / n - np.pi / 2
        streets = []
        for a in angle:
            r = np.arange(0.2 * radius, 1.02 * float(self._outline(a)), VERTEX_M)
            turn = a + self.rng.uniform(-0.2, 0.2) * np.sin(r / radius * np.pi)
            xy = np.column_stack([r * np.cos(turn), r * np.sin(turn)])
            streets.append(_Street(xy, "primary", one_way=False))
        return streets

    def _inner_ring(self) -> list[_Street]:
        xy = self._ring(0.36)
        xy = xy[: int(len(xy) / (1 + 1.6 / self.config.radials))]  # its seam is in the water
        return self._clip(xy, self._north_of_river(xy) > self.quay_m - 15, "primary", one_way=False)

    def _quays(self) -> list[_Street]:
        streets = []
        for side in (1, -1):
            xy = np.column_stack([self.reach, self._river(self.reach) + side * self.quay_m])
            streets += self._clip(xy, self._inside(xy), "secondary", one_way=False)
        return streets

    def _grids(self) -> list[_Street]:
        """Return the grid of either bank, each turned its own way; two of every eight lines are a one-way pair."""
        streets = []
        n = int(1.5 * self.config.radius_m / self.config.block_m)
        for side, turn in ((1, self.rng.uniform(0.1, 0.3)), (-1, -self.rng.uniform(0.3, 0.5))):
            rotation = np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]])
            for axis in (0, 1):
                place = self.config.block_m * (np.arange(-n, n + 1) + self.rng.uniform(-0.18, 0.18, 2 * n + 1))
                for number, offset in enumerate(place):
                    line = np.column_stack([self.reach, np.full(len(self.reach), offset)])
                    xy = self._warp((line if axis == 0 else line[:, ::-1]) @ rotation)
                    inside = self._inside(xy, self.rng.uniform(0.93, 1.03)) & (
                        side * self._north_of_river(xy) > self.quay_m - 15
                    )
                    kind = {0: "secondary", 1: "secondary", 4: "tertiary"}.get(number % 8, "residential")
                    one_way = number % 8 < 2 or (
                        kind == "residential" and self.rng.random() < self.config.one_way_share
                    )
                    if number % 2:
                        xy, inside = xy[::-1], inside[::-1]
                    streets += self._clip(xy, inside, kind, one_way=one_way)
        return streets

    @staticmethod
    def _clip(xy: Floats, inside: NDArray[np.bool_], kind: str, *, one_way: bool) -> list[_Street]:
        """Return the runs of a line that lie inside."""
        edges = np.flatnonzero(np.diff(np.concatenate([[0], inside.astype(np.int8), [0]])))
        runs = zip(edges[::2], edges[1::2], strict=True)
        return [_Street(np.ascontiguousarray(xy[a:b]), kind, one_way) for a, b in runs if b - a > 3]


def _cut(streets: list[_Street]) -> tuple[Floats, list[_Piece]]:
    """Cross all streets with each other and return the junctions [N, 2] and the pieces between them."""
    street, along, xy = _crossings(streets)
    near = cKDTree(xy).query_pairs(SNAP_M, output_type="ndarray")
    links = coo_matrix((np.ones(len(near)), (near[:, 0], near[:, 1])), shape=(len(xy), len(xy)))
    n_nodes, node = connected_components(links, directed=False)
    members = np.bincount(node, minlength=n_nodes)
    nodes = np.column_stack([np.bincount(node, weights=xy[:, i], minlength=n_nodes) / members for i in (0, 1)])
    pieces: list[_Piece] = []
    order = np.lexsort([along, street])
    bounds = np.searchsorted(street[order], np.arange(len(streets) + 1))
    for number, line in enumerate(streets):
        stops = order[bounds[number] : bounds[number + 1]]
        for a, b in itertools.pairwise(stops):
            if node[a] != node[b]:
                between = (line.along > along[a] + SNAP_M / 2) & (line.along < along[b] - SNAP_M / 2)
                bent = np.vstack([nodes[node[a]], line.xy[between], nodes[node[b]]])
                pieces.append(_Piece(bent, int(node[a]), int(node[b]), line.kind, line.one_way))
    return nodes, pieces


def _crossings(streets: list[_Street]) -> tuple[Ints, Floats, Floats]:
    """Return every crossing once for each of its two streets: the street, the metres along it, and the point."""
    first = np.vstack([s.xy[:-1] for s in streets])
    step = np.vstack([np.diff(s.xy, axis=0) for s in streets])
    owner = np.repeat(np.arange(len(streets)), [len(s.xy) - 1 for s in streets])
    along = np.concatenate([s.along[:-1] for s in streets])
    length = np.hypot(*step.T)
    pairs = cKDTree(first + step / 2).query_pairs(float(length.max()) * 1.01, output_type="ndarray")
    trunk, primary = (np.array([s.kind == kind for s in streets])[owner] for kind in ("trunk", "primary"))
    a, b = pairs[np.lexsort([pairs[:, 1], pairs[:, 0]])].T
    # The outer ring is grade-separated: it meets only the main roads.
    meet = (owner[a] != owner[b]) & (~trunk[a] | primary[b]) & (~trunk[b] | primary[a])
    a, b = a[meet], b[meet]
    gap = first[b] - first[a]
    cross = _cross(step[a], step[b])
    with np.errstate(divide="ignore", invalid="ignore"):
        t, u = _cross(gap, step[b]) / cross, _cross(gap, step[a]) / cross
    hit = (t >= 0) & (t < 1) & (u >= 0) & (u < 1)
    a, b, t, u = a[hit], b[hit], t[hit], u[hit]
    point = first[a] + t[:, None] * step[a]
    return (
        np.concatenate([owner[a], owner[b]]),
        np.concatenate([along[a] + t * length[a], along[b] + u * length[b]]),
        np.vstack([point, point]),
    )


def _cross(a: Floats, b: Floats) -> Floats:
    return a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]


def _dress(pieces: list[_Piece], nodes: Floats, config: CityConfig, rng: np.random.Generator) -> list[_Piece]:
    """Keep one road between two junctions, leave some residential ones out, end some half-way, double some."""
    best: dict[tuple[int, int], _Piece] = {}
    for piece in sorted(pieces, key=lambda p: RANK.index(p.kind)):
        best.setdefault((min(piece.start, piece.end), max(piece.start, piece.end)), piece)
    dressed: list[_Piece] = []
    fate = rng.random(len(best))
    missing, dead_end = config.missing_share, config.missing_share + config.dead_end_share
    for piece, luck in zip(best.values(), fate, strict=True):
        if piece.kind != "residential" or luck >= dead_end + config.crescent_share:
            dressed.append(piece)
        elif missing <= luck < dead_end and len(piece.xy) > 3:
            dressed.append(_Piece(piece.xy[: len(piece.xy) // 2 + 1], piece.start, -1, piece.kind, one_way=False))
        elif luck >= dead_end:
            chord = nodes[piece.end] - nodes[piece.start]
            bow = np.sin(np.linspace(0, np.pi, 9))[:, None] * 0.3 * np.array([-chord[1], chord[0]])
            bent = nodes[piece.start] + np.linspace(0, 1, 9)[:, None] * chord + bow
            bent[-1] = nodes[piece.end]
            dressed += [piece, _Piece(bent, piece.start, piece.end, piece.kind, one_way=False)]
    return dressed


def _build(nodes: Floats, pieces: list[_Piece], meta: dict[str, object]) -> RoadNetwork:
    """Make directed segments of the pieces and keep the largest part in which every segment reaches every other."""
    ends = np.array([p.xy[-1] for p in pieces if p.end < 0]).reshape(-1, 2)
    points = np.round(np.column_stack(ORIGIN.to_lonlat(*np.vstack([nodes, ends]).T)), 7)
    dead_ends = iter(range(len(nodes), len(points)))
    start, end, kind, shape = [], [], [], []
    for piece in pieces:
        a, b = piece.start, next(dead_ends) if piece.end < 0 else piece.end
        line = np.round(np.column_stack(ORIGIN.to_lonlat(*piece.xy.T)), 7)
        line[0], line[-1] = points[a], points[b]
        for u, v, lonlat in ((a, b, line),) if piece.one_way else ((a, b, line), (b, a, line[::-1])):
            start.append(u)
            end.append(v)
            kind.append(piece.kind)
            shape.append(lonlat)
    seg_from, seg_to, road_class = np.array(start), np.array(end), class_numbers(kind)
    keep = np.arange(len(seg_from))
    while True:
        used, renumbered = np.unique(np.concatenate([seg_from[keep], seg_to[keep]]), return_inverse=True)
        geometry = [shape[i] for i in keep]
        lonlat = np.vstack(geometry)
        network = RoadNetwork.build(
            node_lon=points[used, 0],
            node_lat=points[used, 1],
            node_id=np.arange(1, len(used) + 1),
            seg_from=renumbered[: len(keep)],
            seg_to=renumbered[len(keep) :],
            road_class=road_class[keep],
            speed_mps=default_speed_mps(road_class[keep]),
            geom_offset=np.concatenate([[0], np.cumsum([len(g) for g in geometry])]),
            geom_lon=lonlat[:, 0],
            geom_lat=lonlat[:, 1],
            meta=meta,
        )
        largest = strong_components(network) == 0
        if largest.all():
            return network
        keep = keep[largest]
