"""GTS (Han et al., KDD 2021), before MTrajRec's decoder: a graph network over points of the roads, and an LSTM.

    POIs: the nodes of the network, and cuts every 100 m along its roads; edges along roads, weight exp(-metres / 100)
    X = node2vec of this graph                                 what the vectors of the POIs start from
    Z = ReLU(A X W)                                            A: its weights with loops, normed on both sides
    z_i = ReLU(W [Z_p(i) || mean of Z_p(j)])                   p(i): POI nearest to fix i; over other fixes j of the
                                                               trip that lie within k edges of it, 0 if there is none
    H = LSTM([z_i || time_i]),  h_0 from the last of H

The authors' code was not found; the POIs are those of RNTrajRec's adaptation, node2vec and the graph network those of a
third party's. Differences: walks do not depend on trips (in GTS they are drawn to where trips pass); what fixes of the
same trip say to each other is our reading of "neighbouring POIs within the same trajectory"; the loss is that of the
decoder, not the similarity of pairs; a fix is also told by its time, which GTS does not know; the LSTM has two layers,
reads forwards only, and its states are not pooled, since the decoder attends to all of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.more_inputs import PLAIN, MoreInputs
from tedtrajrec.network.polylines import ranges
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import STEPS
from tedtrajrec.nn.node2vec import node2vec
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import last_real

REACH_M = 100.0  # an edge of this length weighs 1/e


@dataclass(frozen=True)
class GtsConfig(GruDecodedConfig):
    """Settings of GTS."""

    layers: int = 2  # of the LSTM
    poi_d: int = 64  # width of X
    cut_m: float = 100.0  # POIs lie at most so far apart along a road
    hops: int = 5  # k
    walks: int = 5  # of node2vec, from each POI; 0: X starts from random numbers

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.poi_d > 0 and self.cut_m > 0 and self.layers > 0):
            raise ValueError("poi_d, cut_m and layers must be positive")
        if min(self.hops, self.walks) < 0:
            raise ValueError("hops and walks must not be negative")


class PoiInputs(MoreInputs):
    """A batch with the POIs of its fixes."""

    along_fixes: ClassVar[tuple[int, ...]] = (1, 2)

    @property
    def poi(self) -> Tensor:
        """The one nearest to each fix [B, m] int64."""
        return self[PLAIN]

    @property
    def related(self) -> Tensor:
        """Which other fixes of the trip have theirs within k edges of it [B, m, m] bool."""
        return self[PLAIN + 1]


class Gts(GruDecodedMethod[GtsConfig, PoiInputs]):
    """A graph network over intersections and points between them, and an LSTM (GTS + decoder)."""

    name: ClassVar[str] = "gts"
    Config: ClassVar[type[GtsConfig]] = GtsConfig
    PRESETS: ClassVar[dict[str, GtsConfig]] = {
        "default": GtsConfig(),
        "paper": GtsConfig(),
        "authors": GtsConfig(d=128, layers=1, walks=10),
    }
    edges: Tensor
    weight: Tensor

    def __init__(self, network: RoadNetwork, config: GtsConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.pois = make_pois(network, c.cut_m)
        edges, weight = gcn_norm(
            torch.from_numpy(self.pois.edges),
            torch.from_numpy(np.exp(-self.pois.length_m / REACH_M).astype(np.float32)),
            num_nodes=len(self.pois.xy),
        )
        self.register_buffer("edges", edges, persistent=False)
        self.register_buffer("weight", weight, persistent=False)
        self.poi_table = nn.Parameter(torch.randn(len(self.pois.xy), c.poi_d) / c.poi_d**0.5)
        self.graph = GCNConv(c.poi_d, c.d, normalize=False)
        self.mix = nn.Linear(2 * c.d, c.d)
        self.encoder = nn.LSTM(c.d + 1, c.d, c.layers, batch_first=True)
        self.dropout = nn.Dropout(c.dropout)

    def precompute(self, dataset: Dataset) -> None:  # noqa: ARG002  (it is all in the map)
        """Learn vectors of the POIs, where training starts from."""
        c = self.config
        if c.walks:
            made = node2vec(self.pois.edges, len(self.pois.xy), c.poi_d, walks=c.walks)
            size = np.linalg.norm(made, axis=1).mean()  # as long as random ones
            with torch.no_grad():
                self.poi_table.copy_(torch.from_numpy(made / max(size, 1e-9)))

    def roads(self) -> Roads:
        """Return the segments, and beside them Z [P, d] of the POIs."""
        spread = functional.relu(self.graph(self.poi_table, self.edges, self.weight))
        return super().roads()._replace(more=spread)

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> PoiInputs:
        """Return a batch with the POIs of its fixes."""
        mask = batch.fix_mask.cpu().numpy()
        poi = np.zeros(mask.shape, np.int64)
        poi[mask] = self._tree.query(batch.fix_xy.cpu().numpy()[mask])[1]
        related = self.related(poi) & mask[:, :, None] & mask[:, None]
        more = (torch.from_numpy(part).to(batch.fix_mask.device) for part in (poi, related))
        return PoiInputs(*self.plain_inputs(batch, forced), *more)

    def related(self, poi: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which other fixes of a trip have a POI within k edges of that of a fix [B, m, m]."""
        b, m = poi.shape
        known, place = np.unique(poi, return_inverse=True)
        reached = scipy.sparse.csr_array(
            (np.ones(len(known), bool), (np.arange(len(known)), known)), shape=(len(known), len(self.pois.xy))
        )
        for _ in range(self.config.hops):
            reached = reached @ self._steps
        rows = np.broadcast_to(place.reshape(b, m, 1), (b, m, m)).ravel()
        columns = np.broadcast_to(poi[:, None], (b, m, m)).ravel()
        near = reached[rows, columns].reshape(b, m, m).astype(bool)
        return near & ~np.eye(m, dtype=bool)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.pois.xy)

    @cached_property
    def _steps(self) -> scipy.sparse.csr_array:
        """Where one gets from a POI along at most one edge."""
        count = len(self.pois.xy)
        loops = np.tile(np.arange(count), (2, 1))
        edges = np.concatenate([self.pois.edges, loops], axis=1)
        return scipy.sparse.csr_array((np.ones(edges.shape[1], bool), tuple(edges)), shape=(count, count))

    def fixes(self, inputs: PoiInputs, roads: Roads) -> FixStates:
        """Return the states of the LSTM; the decoder starts from the last."""
        fixes, all_pois = inputs.plain, roads.more
        if all_pois is None:
            raise ValueError("these roads have no POIs")
        own = functional.embedding(inputs.poi, all_pois)  # [B, m, d]
        others = inputs.related.to(own.dtype)
        heard = others @ own / others.sum(-1, keepdim=True).clamp_min(1)
        point = self.dropout(functional.relu(self.mix(torch.cat([own, heard], dim=-1))))
        time = (fixes.fix_time / STEPS).to(own.dtype)[..., None]
        states, _ = self.encoder(torch.cat([point, time], dim=-1))
        return FixStates(states, last_real(states, fixes.fix_mask))


class Pois(NamedTuple):
    """P points of a road network and the pieces of road between them."""

    xy: NDArray[np.float64]  # [P, 2] metres on the network's plane; first the nodes of the network
    edges: NDArray[np.int64]  # [2, E] both ways, each once
    length_m: NDArray[np.float64]  # [E], of the shortest where there are several


def make_pois(network: RoadNetwork, cut_m: float) -> Pois:
    """Return the nodes of a network, and cuts of its roads into equal pieces of at most ``cut_m``."""
    road = np.flatnonzero(network.is_road)
    pieces = np.maximum(np.ceil(network.length_m[road] / cut_m), 1).astype(np.int64)
    cuts = pieces - 1
    number = ranges(np.ones_like(cuts), cuts)  # 1 to cuts along each road
    x, y = network.plane.to_xy(network.node_lon, network.node_lat)
    cut_x, cut_y = network.plane.to_xy(*network.point_at(np.repeat(road, cuts), number / np.repeat(pieces, cuts)))

    # Along each road: its first node, its cuts, its last node.
    first_cut = network.n_nodes + np.cumsum(cuts) - cuts
    chain = ranges(first_cut - 1, pieces + 1)
    start = np.cumsum(pieces + 1) - (pieces + 1)
    chain[start], chain[start + pieces] = network.seg_from[road], network.seg_to[road]
    along = np.delete(np.arange(len(chain)), start + pieces)
    pairs = np.stack([chain[along], chain[along + 1]])
    length = np.repeat(network.length_m[road] / pieces, pieces)

    pairs, length = np.concatenate([pairs, pairs[::-1]], axis=1), np.tile(length, 2)
    order = np.lexsort([length, pairs[1], pairs[0]])
    order = order[pairs[0, order] != pairs[1, order]]  # a road may end where it begins
    edges, which = np.unique(pairs[:, order], axis=1, return_index=True)
    xy = np.concatenate([np.stack([x, y], axis=1), np.stack([cut_x, cut_y], axis=1)])
    return Pois(xy, edges.astype(np.int64), length[order][which])
