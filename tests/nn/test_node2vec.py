"""node2vec: walks along edges, and vectors that tell what is near."""

from __future__ import annotations

import numpy as np
import torch

from tedtrajrec.nn.node2vec import node2vec, walk


def two_rings(count: int) -> np.ndarray:
    """Return the edges of two rings of so many nodes each, both ways, in no order."""
    node = np.arange(count)
    one = np.stack([node, (node + 1) % count])
    edges = np.concatenate([one, one + count], axis=1)
    edges = np.concatenate([edges, edges[::-1]], axis=1)
    return edges[:, np.random.default_rng(0).permutation(edges.shape[1])]


def test_walks_go_along_edges_to_any_neighbour_alike() -> None:
    first, to = torch.tensor([0, 3, 4, 5, 6, 6]), torch.tensor([1, 2, 3, 0, 0, 0])  # a star, and a node alone
    torch.manual_seed(0)
    walks = walk(first, to, torch.tensor([0] * 6000 + [4, 4]), 3)
    assert walks.shape == (6002, 4)
    star, alone = walks[:-2], walks[-2:]
    assert (alone == 4).all()
    assert (star[:, [0, 2]] == 0).all()
    for column in (1, 3):
        shares = star[:, column].bincount(minlength=4) / len(star)
        torch.testing.assert_close(shares, torch.tensor([0, 1, 1, 1]) / 3, rtol=0, atol=0.03)


def test_a_graph_without_edges() -> None:
    assert node2vec(np.zeros((2, 0), np.int64), 3, 4).shape == (3, 4)


def test_nodes_that_walks_meet_together_are_alike_and_the_seed_decides() -> None:
    edges = two_rings(30)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    found = node2vec(edges, 60, 16, epochs=30)
    assert torch.equal(torch.get_rng_state(), before)
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    alike = unit @ unit.T
    near = alike[edges[0], edges[1]]
    assert near.mean() > 0.8
    assert alike[:30, 30:].max() < near.min()  # of the other ring
    np.testing.assert_array_equal(node2vec(edges, 60, 16, epochs=1), node2vec(edges, 60, 16, epochs=1))
    assert not np.array_equal(node2vec(edges, 60, 16, epochs=1), node2vec(edges, 60, 16, epochs=1, seed=1))
