"""Can this trip be driven? The rules once more, plain and slow, with nothing of the package but the network.

A trip is a list of positions, one every step: segment (None where there is none) and metres along it, with the fix
where the step was observed. Ways are searched by scipy (a graph whose nodes are segments and whose edges are turns) or,
on small networks, by networkx.
"""

import math
from dataclasses import dataclass

import networkx
import numpy as np
import scipy.sparse


@dataclass
class Verdict:
    moves: int = 0
    breaks: int = 0
    no_path: int = 0
    backward: int = 0
    far: int = 0
    unplaced: int = 0

    @property
    def drivable(self):
        return self.breaks == self.backward == self.far == self.unplaced == 0


class ScipyGaps:
    """Metres from the end of one segment to the start of another, by scipy."""

    def __init__(self, network):
        turns = [(a, int(b)) for a in range(len(network)) for b in network.successors(a)]
        # Entering b costs its length; scipy takes an edge of weight 0 for none, so it gets next to nothing.
        weights = [max(float(network.length_m[b]), 1e-9) for _, b in turns]
        a, b = np.array(turns).T
        self.graph = scipy.sparse.csr_array((weights, (a, b)), shape=(len(network), len(network)))
        self.length = network.length_m
        self.known = {}

    def __call__(self, a, b):
        if a not in self.known:
            self.known[a] = scipy.sparse.csgraph.dijkstra(self.graph, indices=a)
        return self.known[a][b] - self.length[b]


class NetworkxGaps:
    """The same by networkx."""

    def __init__(self, network):
        self.graph = networkx.DiGraph()
        self.graph.add_nodes_from(range(len(network)))
        for a in range(len(network)):
            for b in network.successors(a):
                self.graph.add_edge(a, int(b), metres=float(network.length_m[b]))
        self.length = network.length_m

    def __call__(self, a, b):
        try:
            metres = networkx.dijkstra_path_length(self.graph, a, b, weight="metres")
        except networkx.NetworkXNoPath:
            return math.inf
        return metres - self.length[b]


def check_trip(network, gaps, segments, ratios, fixes, *, step_s, top_speed_mps, tolerance_m=1.0, far_m=100.0):
    """Return the faults of one trip; ``fixes`` has (lon, lat) or None for each step."""
    verdict = Verdict()
    last = None
    for step, (segment, ratio, fix) in enumerate(zip(segments, ratios, fixes, strict=True)):
        if segment is None or segment < 0:
            verdict.unplaced += 1
            continue
        length = float(network.length_m[segment])
        here = float(ratio) * length
        if fix is not None:
            lon, lat = network.point_at([segment], [ratio])
            verdict.far += _metres(float(lon[0]), float(lat[0]), *fix) > far_m
        if last is not None:
            before, was, when = last
            verdict.moves += 1
            allowed = top_speed_mps * step_s * (step - when) + tolerance_m
            if segment == before:
                verdict.backward += here < was - tolerance_m
                verdict.breaks += here - was > allowed
            else:
                gap = gaps(before, segment)
                verdict.breaks += float(network.length_m[before]) - was + gap + here > allowed
                verdict.no_path += math.isinf(gap)
        last = segment, here, step
    return verdict


def _metres(lon0, lat0, lon1, lat1):
    """Return the distance of two near points on a sphere (haversine)."""
    a, b = math.radians(lat0), math.radians(lat1)
    half = math.sin((b - a) / 2) ** 2 + math.cos(a) * math.cos(b) * math.sin(math.radians(lon1 - lon0) / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(math.sqrt(half))
