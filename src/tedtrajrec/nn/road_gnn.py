"""PD-GNN: what a road segment is like at a time of day.

    S        a learned vector for each segment                                   [S, d]
    S_bar    P layers of a graph neural network over neighbouring segments
    S_hat    a linear map of S_bar: the part that does not change
    Omega    another one: the frequencies of the segment
    X(e, t) = t2v(t; Omega_e) + S_hat_e,   t2v(t; w)_0 = w_0 t + b_0,   t2v(t; w)_i = sin(w_i t + b_i)

The table is made once for a network; X is evaluated only at the (segment, time) pairs that are needed. Times are turned
into angles, one turn a day, so that a frequency of 1 is a daily rhythm and gradients have a sensible size.

Of a large network, training takes the part that a batch touches (:mod:`tedtrajrec.nn.touched`), and the table for use
is made some segments at a time, layer by layer: what a layer makes of edges would be several times as large as it.
"""

from __future__ import annotations

from functools import cached_property
from types import ModuleType
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv, GATv2Conv, GCNConv, GINConv, SAGEConv
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import softmax

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.kernels import kernels_for
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.segment_table import SegmentTable
from tedtrajrec.nn.touched import LARGE, Part, PartFinder

Gnn = Literal["gatv2", "gat", "gcn", "sage", "gin", "none"]
Rhythm = Literal["dynamic", "shared", "none"]

CHUNK = 16_384  # segments that a layer is made for at a time, of a large network in use


class RoadGnn(SegmentTable):
    """The periodic, dynamic-aware representation of a road network.

    Parameters
    ----------
    network
        The road network; its segments are the vertices, and those that may follow each other are neighbours.
    d, layers, heads
        Width, number of layers, heads of the attentive kinds.
    gnn
        ``gatv2`` (the paper), ``gat``, ``gcn``, ``sage``, ``gin``, or ``none``: a linear map instead.
    rhythm
        ``dynamic``: each segment has its own frequencies; ``shared``: all have the same; ``none``: no time.
    """

    edges: Tensor
    weight: Tensor

    def __init__(
        self,
        network: RoadNetwork,
        d: int,
        *,
        layers: int = 2,
        heads: int = 8,
        gnn: Gnn = "gatv2",
        rhythm: Rhythm = "dynamic",
    ) -> None:
        super().__init__(network.n_segments, d)
        self.rhythm = rhythm
        # Both directions of a pair are there, so turned round they are the same, but targets rise: kernels rely on it.
        edges = neighbours(network, loops=gnn in {"gatv2", "gat"}).flip(0)
        if gnn == "gcn":
            edges, weight = gcn_norm(edges, num_nodes=network.n_segments)
            self.register_buffer("weight", weight, persistent=False)
        self.register_buffer("edges", edges, persistent=False)
        self.layers = nn.ModuleList(_layer(gnn, d, heads) for _ in range(1 if gnn == "none" else layers))
        self.gnn = gnn
        self.to_static = nn.Linear(d, d)
        if rhythm == "dynamic":
            self.to_omega = nn.Linear(d, d)
        elif rhythm == "shared":
            self.omega = nn.Parameter(torch.randn(d))
        if rhythm != "none":
            self.phase = nn.Parameter(torch.randn(d))

    @cached_property
    def parts(self) -> PartFinder:
        """The search of parts of the network."""
        return PartFinder(self.edges, len(self.table))

    @property
    def hops(self) -> int:
        """How many hops away a segment may be that another one hears of."""
        return 0 if self.gnn == "none" else len(self.layers)

    def forward(self, start: Tensor | None = None, part: Part | None = None) -> Roads:
        """Return the whole network, or the segments asked for of a part, numbered as there.

        Parameters
        ----------
        start
            Vectors of the segments in place of the learned ones [S, d] or, of a part, [U, d].
        part
            The part; None for all.
        """
        if start is None:
            start = self.vectors(part)
        x: Tensor = start
        for k, layer in enumerate(self.layers, start=1):
            if part is None and len(x) > LARGE and not torch.is_grad_enabled():
                x = self._by_chunks(layer, x)
            elif part is not None and k == len(self.layers):
                x = self._last(layer, x, part)
            else:
                x = self._pass(layer, x, None if part is None else part.edges)
        static = self.to_static(x)
        if self.rhythm == "none":
            return Roads(static, None, None)
        return Roads(static, self.to_omega(x) if self.rhythm == "dynamic" else self.omega, self.phase)

    def _pass(self, layer: nn.Module, x: Tensor, edges: Tensor | None = None) -> Tensor:
        """Return one layer over some edges of a part, or over those of the whole network."""
        graph, kernels = self._graph(edges), _kernels_of(layer, x)
        return functional.leaky_relu(layer(x, *graph) if kernels is None else kernels.convolve(layer, x, *graph))

    def _last(self, layer: nn.Module, x: Tensor, part: Part) -> Tensor:
        """Return the last layer over a part, for the segments asked for."""
        return self._pass(layer, x, part.to_asked)[: len(part.asked)]

    def _by_chunks(self, layer: nn.Module, x: Tensor) -> Tensor:
        """Return one layer over all segments, made for some of them at a time from these and their neighbours."""
        out = torch.empty_like(x)
        for first in range(0, len(x), CHUNK):
            chunk = np.arange(first, min(first + CHUNK, len(x)))
            part = Part(*(tensor.to(x.device) for tensor in self.parts.around(chunk, min(self.hops, 1))[0]))
            out[first : first + len(chunk)] = self._last(layer, x[part.segment], part)
        return out

    def _graph(self, edges: Tensor | None) -> tuple[Tensor, ...]:
        if self.gnn == "none":
            return ()
        pairs = self.edges if edges is None else edges[:2]
        if self.gnn != "gcn":
            return (pairs,)
        return pairs, self.weight if edges is None else self.weight[edges[2]]


def neighbours(network: RoadNetwork, *, loops: bool) -> Tensor:
    """Return the pairs of segments that may follow each other, in both directions, without repeats [2, E].

    With ``loops`` every segment is also its own neighbour, once; layers that add that themselves do not need it.
    """
    source = np.repeat(np.arange(network.n_segments), np.diff(network.succ_offset))
    pairs = np.stack([np.concatenate([source, network.succ]), np.concatenate([network.succ, source])])
    pairs = pairs[:, pairs[0] != pairs[1]]
    if loops:
        pairs = np.concatenate([pairs, np.tile(np.arange(network.n_segments), (2, 1))], axis=1)
    key = np.unique(pairs[0] * np.int64(network.n_segments) + pairs[1])  # much faster than to sort pairs
    return torch.from_numpy(np.stack(np.divmod(key, network.n_segments)))


class _Attentive(GATv2Conv):  # type: ignore[misc]
    """The layer of PyG, but for the way back it keeps two arrays of [E, d] where that keeps three."""

    def edge_update(self, x_j: Tensor, x_i: Tensor, index: Tensor, ptr: Tensor | None, dim_size: int | None) -> Tensor:
        """Return the attention of edges [E, heads]."""
        x = functional.leaky_relu_(x_i + x_j, self.negative_slope)
        share: Tensor = softmax((x * self.att).sum(dim=-1), index, ptr, dim_size)
        return share


def _layer(gnn: Gnn, d: int, heads: int) -> nn.Module:
    # Self-loops and norms come with the edges: a layer that adds them at each pass makes arrays whose size depends on
    # the data, and those cannot be recorded in a CUDA graph.
    if gnn == "gatv2":
        return _Attentive(d, d // heads, heads, add_self_loops=False)
    if gnn == "gat":
        return GATConv(d, d // heads, heads, add_self_loops=False)  # type: ignore[no-any-return]
    if gnn == "gcn":
        return GCNConv(d, d, normalize=False)  # type: ignore[no-any-return]
    if gnn == "sage":
        return SAGEConv(d, d)  # type: ignore[no-any-return]
    if gnn == "gin":
        return GINConv(nn.Sequential(nn.Linear(d, d), nn.ReLU(), nn.Linear(d, d)))  # type: ignore[no-any-return]
    return nn.Linear(d, d)


def _kernels_of(layer: nn.Module, x: Tensor) -> ModuleType | None:
    """Return :mod:`tedtrajrec.nn.gatv2_cuda` where it can do with a layer, else None."""
    if not isinstance(layer, GATv2Conv) or torch.is_autocast_enabled(x.device.type):
        return None
    kernels = kernels_for("gatv2_cuda", x)
    return kernels if kernels is not None and kernels.fits(layer) else None
