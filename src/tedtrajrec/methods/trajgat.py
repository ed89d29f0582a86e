"""TrajGAT (Yao et al., KDD 2022), before MTrajRec's decoder: fixes that meet in the leaves of a quadtree.

    tree: a quadtree of the fixes of training trips, a leaf holds at most 80; E: node2vec over it, frozen
    graph of a trip: fix - its leaf, leaf - leaf (all), loops; no fix - fix
    x_fix  = W [x, y, 0, 0, time] + V p,   x_leaf = W [x, y, w, h, 0] + V p + U E_leaf
    p: 2nd to 9th eigenvector of I - D^-1/2 A D^-1/2 of the graph, their signs drawn at random in training
    a_ij = softmax over neighbours j of clamp(q_i . k_j / sqrt(c), -5, 5)
    x = BN(x + W_o [sum_j a_ij v_j of all heads]),  x = BN(x + FFN(x))        layers
    H = x of the fixes,  h_0 from the mean over fixes and leaves

Differences: the time of a fix is told, since the graph knows neither time nor order; the leaf of an unseen fix is the
one that contains it (the authors' code finds only fixes of the tree); the tree is made of at most 10,000 training trips
and goes down to 2^-20 of the city; E has 64 numbers and a linear map; norms do not count padding; signs are drawn in
training only; the softmax is plain (``twice_exp`` takes the exponential of its logits first, as the authors' code
does). The graphs of few fixes are so regular that their eigenvectors are not unique: nodes get a small weight that
grows with their order, so that p is the same on all machines. The loss is that of the decoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.more_inputs import PLAIN, MoreInputs
from tedtrajrec.methods.quadtree import boxes_of, leaf_of, make_quadtree
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import STEPS
from tedtrajrec.nn.masked_norm import MaskedNorm
from tedtrajrec.nn.node2vec import node2vec
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.tedformer import masked_mean

TREE = "tree."  # how names in the state begin
WAVES = 8  # eigenvectors
ORDER = 1e-3  # weight of the last node, which tells eigenvectors of the same value apart
STEEPEST = 5.0  # of a logit


@dataclass(frozen=True)
class TrajGatConfig(GruDecodedConfig):
    """Settings of TrajGAT."""

    layers: int = 2
    heads: int = 8
    leaf_fixes: int = 80  # that a leaf holds at most
    tree_trips: int = 10_000  # that the tree is made of
    tree_d: int = 64  # width of E
    walks: int = 5  # of node2vec, from each node of the tree
    walk_length: int = 20
    twice_exp: bool = False  # whether logits are exponentials of what they should be

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("heads", "leaf_fixes", "tree_trips", "tree_d", "walks"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.layers < 0 or self.walk_length < 10:
            raise ValueError("layers must be at least 0, walk_length at least 10")
        self.check_heads(self.heads)


class LeafInputs(MoreInputs):
    """A batch with the leaves of its fixes."""

    along_fixes: ClassVar[tuple[int, ...]] = (1, 1)

    @property
    def leaf(self) -> Tensor:
        """The leaf of each fix [B, m] int64."""
        return self[PLAIN]

    @property
    def waves(self) -> Tensor:
        """The p of each fix, and of its leaf where no earlier fix has the same one [B, m, 2, WAVES]."""
        return self[PLAIN + 1]


class TrajGat(GruDecodedMethod[TrajGatConfig, LeafInputs]):
    """Attention between fixes and the leaves of a quadtree that they lie in (TrajGAT + decoder)."""

    name: ClassVar[str] = "trajgat"
    Config: ClassVar[type[TrajGatConfig]] = TrajGatConfig
    PRESETS: ClassVar[dict[str, TrajGatConfig]] = {
        "default": TrajGatConfig(),
        "paper": TrajGatConfig(),
        "authors": TrajGatConfig(d=32, layers=3, dropout=0.01, tree_d=32, walks=10, walk_length=80, twice_exp=True),
    }
    leaf_box: Tensor
    leaf_vector: Tensor

    def __init__(self, network: RoadNetwork, config: TrajGatConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.from_place = nn.Linear(5, c.d)
        self.from_waves = nn.Linear(WAVES, c.d)
        self.from_tree = nn.Linear(c.tree_d, c.d)
        self.layers = nn.ModuleList(
            GraphLayer(c.d, c.heads, dropout=c.dropout, twice_exp=c.twice_exp) for _ in range(c.layers)
        )
        none = np.zeros(1, np.int64)
        self._use(none, none, np.zeros((1, c.tree_d), np.float32))

    def _use(self, start: NDArray[np.int64], depth: NDArray[np.int64], vector: NDArray[np.float32]) -> None:
        """Take these leaves, in the order of their codes: first codes, depths and vectors."""
        self._leaf_start, self._leaf_depth = start, depth
        device = self.table.device
        self.register_buffer("leaf_box", torch.from_numpy(boxes_of(start, depth)).to(device), persistent=False)
        self.register_buffer("leaf_vector", torch.from_numpy(vector).to(device), persistent=False)
        self._forget()

    def precompute(self, dataset: Dataset) -> None:
        """Make the tree of training fixes, and the vectors of its leaves."""
        c = self.config
        split = dataset.split("train")
        which = np.random.default_rng(0).permutation(len(split))[: c.tree_trips]
        trips = split.trips(np.sort(which))
        fixes = ~np.isnan(trips.lon)
        xy = np.stack(self.network.plane.to_xy(trips.lon[fixes], trips.lat[fixes]), axis=-1)
        tree = make_quadtree(self._scaled(xy), c.leaf_fixes)
        vector = node2vec(tree.edges, len(tree.parent), c.tree_d, walks=c.walks, length=c.walk_length)
        low, high = vector.min(axis=0), vector.max(axis=0)
        vector = (vector - low) / np.maximum(high - low, 1e-9)
        leaves = tree.leaves
        self._use(tree.start[leaves], tree.depth[leaves], vector[leaves])

    def _scaled(self, xy: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return places in metres as :class:`Inputs` has them."""
        scaled: NDArray[np.floating] = (xy - self._middle.numpy()) / self._extent
        return scaled

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> LeafInputs:
        """Return a batch with the leaves of its fixes."""
        mask = batch.fix_mask.cpu().numpy()
        leaf = np.where(mask, leaf_of(self._leaf_start, self._scaled(batch.fix_xy.cpu().numpy())), 0)
        more = (torch.from_numpy(part).to(batch.fix_mask.device) for part in (leaf, waves_of(leaf, mask)))
        return LeafInputs(*self.plain_inputs(batch, forced), *more)

    def fixes(self, inputs: LeafInputs, roads: Roads) -> FixStates:  # noqa: ARG002  (other encoders use it)
        """Return the last states of the fixes; the decoder starts from the mean over fixes and leaves."""
        fixes, waves = inputs.plain, inputs.waves
        if self.training:
            waves = waves * (2 * torch.randint(2, (len(waves), 1, 1, WAVES), device=waves.device) - 1)
        time = (fixes.fix_time / STEPS)[..., None]
        box = functional.embedding(inputs.leaf, self.leaf_box)
        place = torch.stack(
            [torch.cat([functional.pad(fixes.fix_xy, (0, 2)), time], dim=-1), functional.pad(box, (0, 1))], dim=1
        )  # [B, 2, m, 5]: fixes, then leaves
        x = self.from_place(place) + self.from_waves(waves.transpose(1, 2))
        known = self.from_tree(functional.embedding(inputs.leaf, self.leaf_vector))
        x = torch.cat([x[:, 0], x[:, 1] + known], dim=1)  # [B, 2m, d]
        mask, adjacent = graph_of(inputs.leaf, fixes.fix_mask)
        for layer in self.layers:
            x = layer(x, mask, adjacent)
        return FixStates(x[:, : fixes.fix_mask.shape[1]], masked_mean(x, mask))

    def state(self) -> Arrays:
        """Return the weights and the leaves."""
        leaves = {"start": self._leaf_start, "depth": self._leaf_depth, "vector": self.leaf_vector.cpu().numpy()}
        return super().state() | {TREE + name: array for name, array in leaves.items()}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        super().restore({name: array for name, array in state.items() if not name.startswith(TREE)})
        start, depth, vector = (state[TREE + name] for name in ("start", "depth", "vector"))
        if not (len(start) == len(depth) == len(vector) > 0 and vector.shape[1] == self.config.tree_d):
            raise ValueError("the leaves of the tree do not fit together")
        self._use(start.astype(np.int64), depth.astype(np.int64), vector.astype(np.float32))


def graph_of(leaf: Tensor, fix_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the graph of each trip: which nodes are real [B, 2m] and which are neighbours [B, 2m, 2m].

    The first m nodes are fixes, the others their leaves; a leaf is real at the first fix that lies in it.
    """
    m = leaf.shape[1]
    same = (leaf[:, :, None] == leaf[:, None]) & fix_mask[:, :, None] & fix_mask[:, None]
    first = fix_mask & ~same.triu(1).any(1)
    loops = torch.eye(m, dtype=torch.bool, device=leaf.device).expand_as(same)
    up = same & first[:, None]
    across = (first[:, :, None] & first[:, None]) | loops
    above, below = torch.cat([loops, up], dim=2), torch.cat([up.transpose(1, 2), across], dim=2)
    return torch.cat([fix_mask, first], dim=1), torch.cat([above, below], dim=1)


def waves_of(leaf: NDArray[np.int64], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return p of the nodes of each trip's graph [B, m, 2, WAVES], those of fixes and of leaves as :func:`graph_of`.

    Parameters
    ----------
    leaf, mask
        Leaf of each fix and whether it is one [B, m].
    """
    b, m = leaf.shape
    real, adjacent = (part.numpy() for part in graph_of(torch.from_numpy(leaf), torch.from_numpy(mask)))
    out = np.zeros((b, 2 * m, WAVES), np.float32)
    count = real.sum(axis=1)
    order = np.argsort(~real, axis=1, kind="stable")  # real nodes first
    for size in np.unique(count[count > 1]).tolist():  # at once for all trips of as many nodes
        which = np.flatnonzero(count == size)
        nodes = order[which, :size]
        graph = adjacent[which[:, None, None], nodes[:, :, None], nodes[:, None]].astype(np.float64)
        out[which[:, None], nodes] = _waves(graph)
    return np.ascontiguousarray(out.reshape(b, 2, m, WAVES).transpose(0, 2, 1, 3))


def _waves(adjacent: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the eigenvectors of graphs of N nodes each [., N, WAVES]; 0 where there are fewer."""
    size = adjacent.shape[1]
    norm = 1 / np.sqrt(adjacent.sum(axis=2))
    laplace = np.eye(size) - adjacent * norm[:, :, None] * norm[:, None]
    laplace += np.diag(np.arange(size) * (ORDER / size))
    vectors = np.linalg.eigh(laplace)[1][:, :, 1 : WAVES + 1]
    large = np.abs(vectors) >= 0.5 * np.abs(vectors).max(axis=1, keepdims=True)
    lead = np.take_along_axis(vectors, large.argmax(axis=1)[:, None], axis=1)
    return np.pad(vectors * np.sign(lead), ((0, 0), (0, 0), (0, WAVES - vectors.shape[2])))


class GraphLayer(nn.Module):
    """A Transformer layer over graphs, each node of which attends to its neighbours; norms over the batch."""

    def __init__(self, d: int, heads: int, *, dropout: float = 0.0, twice_exp: bool = False) -> None:
        super().__init__()
        self.heads, self.twice_exp = heads, twice_exp
        self.query_key_value = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.feed = nn.Sequential(nn.Linear(d, 2 * d), nn.ReLU(), nn.Dropout(dropout), nn.Linear(2 * d, d))
        self.norm1, self.norm2 = MaskedNorm(d), MaskedNorm(d)
        self.dropout = nn.Dropout(dropout)
        for name, weight in self.named_parameters():
            if name.endswith("weight"):
                nn.init.xavier_uniform_(weight)

    def forward(self, x: Tensor, mask: Tensor, adjacent: Tensor) -> Tensor:
        """Return the layer's output for nodes [B, N, d]; which are real [B, N], and which are neighbours [B, N, N]."""
        b, n, d = x.shape
        query, key, value = (
            part.view(b, n, self.heads, d // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        logit = (query @ key.transpose(2, 3) / math.sqrt(d // self.heads)).clamp(-STEEPEST, STEEPEST)
        if self.twice_exp:
            logit = logit.exp()
        weight = torch.softmax(logit.masked_fill(~adjacent[:, None], -torch.inf), dim=-1)  # all have a loop
        read = (weight @ value).transpose(1, 2).reshape(b, n, d)
        x = self.norm1(x + self.out(self.dropout(read)), mask)
        out: Tensor = self.norm2(x + self.dropout(self.feed(x)), mask)
        return out
