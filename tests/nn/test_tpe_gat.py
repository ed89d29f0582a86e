"""TPE-GAT against a loop over its equation, and the shares of turns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch_geometric.nn import GATConv

from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.tpe_gat import TpeGat, turn_shares, turns
from tests.conftest import make_grid


@pytest.fixture(scope="module")
def grid() -> RoadNetwork:
    return make_grid(3, 3)


def attended(layer: GATConv, grid: RoadNetwork, x: Tensor, share: Tensor) -> Tensor:
    """Return one layer, segment by segment and head by head."""
    into: list[list[tuple[int, float | Tensor]]] = [[(j, 0.0)] for j in range(grid.n_segments)]
    for (i, j), p in zip(turns(grid).T.tolist(), share, strict=True):
        into[j].append((i, p))
    heads, c = layer.heads, layer.out_channels
    mapped = x @ layer.lin.weight.T
    rows = []
    for j in range(grid.n_segments):
        parts = []
        for h in range(heads):
            part = slice(h * c, (h + 1) * c)
            scores = []
            for i, p in into[j]:
                s = layer.att_src[0, h] @ mapped[i, part] + layer.att_dst[0, h] @ mapped[j, part]
                s = s + layer.att_edge[0, h] @ layer.lin_edge.weight[part, 0] * p
                scores.append(torch.exp(torch.where(s > 0, s, 0.2 * s)))
            total = sum(scores)
            parts.append(sum(s / total * mapped[i, part] for s, (i, _) in zip(scores, into[j], strict=True)))
        joined = torch.cat(parts) if layer.concat else sum(parts) / heads
        rows.append(joined + layer.res.weight @ x[j] + layer.bias)
    return torch.stack(rows)


def test_layers_follow_the_equation(grid: RoadNetwork) -> None:
    torch.manual_seed(0)
    module = TpeGat(grid, 5, 6, (2, 3)).double()
    count = np.random.default_rng(1).integers(0, 9, len(grid.succ))
    module.share.copy_(torch.from_numpy(turn_shares(grid, count)))
    x = torch.randn(grid.n_segments, 5, dtype=torch.float64, requires_grad=True)
    found = module(x)
    first, last = module.layers
    middle = attended(first, grid, x, module.share)
    expected = attended(last, grid, torch.where(middle > 0, middle, torch.exp(middle) - 1), module.share)
    torch.testing.assert_close(found, expected)
    variables = [x, first.att_edge, last.lin_edge.weight]
    slopes, others = (torch.autograd.grad(out.sin().sum(), variables) for out in (found, expected))
    for a, b in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, b)
        assert a.abs().sum() > 0


def test_shares_of_turns(grid: RoadNetwork) -> None:
    source, target = turns(grid)
    assert all(target[source == i].tolist() == grid.successors(i).tolist() for i in range(grid.n_segments))
    count = np.arange(len(source))
    count[target == target[0]] = 0  # nobody drove onto that one
    onto, off = turn_shares(grid, count), turn_shares(grid, count, by_source=True)
    for e in range(len(source)):
        assert onto[e] == pytest.approx(count[e] / max(1, count[target == target[e]].sum()))
        assert off[e] == pytest.approx(count[e] / max(1, count[source == source[e]].sum()))


def test_unlike_turns_make_unlike_segments(grid: RoadNetwork) -> None:
    torch.manual_seed(0)
    module = TpeGat(grid, 5, 6, (2, 1))
    x = torch.randn(grid.n_segments, 5)
    before = module(x)
    module.share[0] = 1.0
    changed = (module(x) != before).any(1)
    assert changed[turns(grid)[1, 0]]
    assert not changed.all()
