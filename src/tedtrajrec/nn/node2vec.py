"""node2vec (Grover and Leskovec, 2016): vectors of the nodes of a graph, such that walks meet nodes of similar ones.

The model and its loss are those of torch_geometric. Its walks need a compiled library that is not always there; with
p = q = 1, as all methods here have it, they go to any neighbour alike, and that is a few lines.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch_geometric.nn import Node2Vec

WINDOWS = 2048  # of walks, that are learned from at once
RATE = 0.01


def node2vec(
    edges: NDArray[np.int64],
    nodes: int,
    d: int,
    *,
    length: int = 20,
    context: int = 10,
    walks: int = 5,
    epochs: int = 1,
    seed: int = 0,
) -> NDArray[np.float32]:
    """Return vectors of nodes [nodes, d]; the same again for the same seed.

    Parameters
    ----------
    edges
        From node to node [2, E]; a walk goes along them. It stays where it is at nodes that have none.
    nodes, d
        How many nodes there are, and how wide the vectors.
    length, context
        Nodes of a walk, and how many of them that follow each other are seen as near.
    walks
        From each node, in each epoch.
    epochs, seed
        Of the training.
    """
    order = np.lexsort(edges[::-1])
    first = torch.from_numpy(np.searchsorted(edges[0][order], np.arange(nodes + 1)))
    per_batch = max(1, WINDOWS // (walks * (length + 1 - context)))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _Walking(first, torch.from_numpy(edges[1][order]), d, length, context, walks)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        for _ in range(epochs):
            for batch in torch.split(torch.randperm(nodes), per_batch):
                optimizer.zero_grad()
                model.loss(*model.sample(batch)).backward()
                optimizer.step()
    learned: NDArray[np.float32] = model.embedding.weight.detach().numpy()
    return learned


def walk(first: Tensor, to: Tensor, start: Tensor, steps: int) -> Tensor:
    """Return random walks [W, steps + 1] over the edges of nodes, ``to[first[i]:first[i + 1]]``, from nodes [W]."""
    visited = [start]
    for _ in range(steps):
        here = visited[-1]
        count = first[here + 1] - first[here]
        edge = first[here] + (torch.rand(len(here)) * count).long().minimum((count - 1).clamp_min(0))
        visited.append(torch.where(count > 0, to[edge.clamp_max(max(len(to) - 1, 0))], here) if len(to) else here)
    return torch.stack(visited, dim=1)


class _Walking(Node2Vec):  # type: ignore[misc]
    """torch_geometric's model, without the library that it asks for."""

    def __init__(self, first: Tensor, to: Tensor, d: int, length: int, context: int, walks: int) -> None:
        nn.Module.__init__(self)
        self.EPS = 1e-15
        self.num_nodes = len(first) - 1
        self.rowptr, self.col = first, to
        self.embedding_dim, self.walk_length, self.context_size = d, length - 1, context
        self.walks_per_node, self.num_negative_samples = walks, 1
        self.p = self.q = 1.0
        self.embedding = nn.Embedding(self.num_nodes, d)
        nn.init.uniform_(self.embedding.weight, -0.5 / d, 0.5 / d)

    def random_walk_fn(self, rowptr: Tensor, col: Tensor, start: Tensor, steps: int, p: float, q: float) -> Tensor:  # noqa: ARG002
        """Return random walks; p and q are 1."""
        return walk(rowptr, col, start, steps)
