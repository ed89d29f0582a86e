"""The quadtree against one that is grown fix by fix."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.quadtree import DEPTH, boxes_of, codes_of, leaf_of, make_quadtree


def grown(xy: np.ndarray, most: int, x: float = 0.0, y: float = 0.0, size: float = 2.0, depth: int = 0) -> list[tuple]:
    """Return centre, size, depth and fixes of all leaves of a node, which is divided where it holds too many."""
    if len(xy) <= most or depth == DEPTH:
        return [(x, y, size, depth, len(xy))]
    leaves = []
    for up in (False, True):
        for right in (False, True):
            inside = ((xy[:, 0] >= x) == right) & ((xy[:, 1] >= y) == up)
            shift = size / 4
            leaves += grown(
                xy[inside], most, x + (shift if right else -shift), y + (shift if up else -shift), size / 2, depth + 1
            )
    return leaves


@given(st.integers(0, 2**32 - 1), st.integers(0, 60), st.integers(1, 9))
@settings(max_examples=40)
def test_leaves_are_those_of_a_tree_grown_fix_by_fix(seed: int, count: int, most: int) -> None:
    random = np.random.default_rng(seed)
    xy = random.normal(random.uniform(-0.5, 0.5, 2), random.choice([0.01, 0.3]), (count, 2)).clip(-1, 0.999)
    tree = make_quadtree(xy, most)
    leaves = tree.leaves
    boxes = boxes_of(tree.start[leaves], tree.depth[leaves])
    expected = sorted((x, y, size, depth) for x, y, size, depth, _ in grown(xy, most))
    found = sorted((*box[:3].tolist(), depth) for box, depth in zip(boxes, tree.depth[leaves].tolist(), strict=True))
    np.testing.assert_allclose(np.array(found), np.array(expected), atol=1e-6)

    held = leaf_of(tree.start[leaves], xy)
    assert (np.abs(xy - boxes[held, :2]) <= boxes[held, 2:] / 2 + 1e-6).all()
    assert (np.bincount(held, minlength=len(leaves)) <= most).all()
    new = random.uniform(-1, 1, (50, 2))  # places that the tree has not seen
    held = leaf_of(tree.start[leaves], new)
    assert (np.abs(new - boxes[held, :2]) <= boxes[held, 2:] / 2 + 1e-6).all()


def test_nodes_lie_within_those_above_them() -> None:
    xy = np.random.default_rng(1).normal(0, 0.2, (500, 2))
    tree = make_quadtree(xy, 10)
    boxes = boxes_of(tree.start, tree.depth)
    above = tree.parent[1:]
    assert tree.parent[0] == -1
    assert (tree.depth[1:] == tree.depth[above] + 1).all()
    assert (np.abs(boxes[1:, :2] - boxes[above, :2]) == boxes[1:, 2:] / 2).all()
    assert (np.bincount(above)[np.unique(above)] == 4).all()
    assert tree.edges.shape == (2, 2 * (len(tree.parent) - 1))


def test_places_outside_count_to_the_edge_and_equal_ones_end_at_the_bottom() -> None:
    assert codes_of(np.array([[-7.0, -1.5], [-1.0, -1.0]])).tolist() == [0, 0]
    assert codes_of(np.array([[3.0, 1.0]])).tolist() == [4**DEPTH - 1]
    tree = make_quadtree(np.full((5, 2), 0.123), 2)
    assert tree.depth.max() == DEPTH
    assert len(tree.leaves) == 3 * DEPTH + 1
