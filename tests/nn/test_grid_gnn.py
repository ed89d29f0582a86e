"""GridGNN: the cells of segments against shapely, the vectors against a plain loop."""

from __future__ import annotations

import numpy as np
import shapely
import torch
from torch import Tensor

from tedtrajrec.network.synthetic import synthetic_city
from tedtrajrec.nn.cells import cells_over
from tedtrajrec.nn.grid_gnn import GridGnn, crossed_cells
from tests.conftest import make_grid
from tests.methods.mtrajrec_literal import gru

CELL_M = 50.0


def test_cells_are_those_that_lines_cross() -> None:
    network = synthetic_city(size="small")
    offset, number = crossed_cells(network, CELL_M)
    x, y = network.geom_xy
    cells = cells_over(np.stack([x, y], axis=-1), CELL_M)
    for e in range(0, network.n_segments, 7):
        vertices = slice(network.geom_offset[e], network.geom_offset[e + 1])
        line = shapely.LineString(np.stack([x[vertices], y[vertices]], axis=-1))
        found = number[offset[e] : offset[e + 1]]
        assert (found[1:] != found[:-1]).all()

        def box(cell: int) -> shapely.Polygon:
            west, south = cells.x + cell % cells.columns * CELL_M, cells.y + cell // cells.columns * CELL_M
            return shapely.box(west, south, west + CELL_M, south + CELL_M)

        assert all(box(int(cell)).distance(line) < 0.5 for cell in found)  # the sphere is not quite the plane
        for cell in range(cells.columns * cells.rows):
            if box(cell).intersection(line).length > CELL_M / 9:
                assert cell in found
        at = [line.project(shapely.centroid(box(int(cell)).intersection(line))) for cell in found[[0, -1]]]
        assert at[0] <= at[1]  # in driving order


def attended(layer: torch.nn.Module, x: Tensor, sources: list[list[int]]) -> Tensor:
    """Return one layer of GAT, node by node: sources are those each node hears, itself among them."""
    parts = dict(layer.named_parameters())
    heads, c = parts["att_src"].shape[-2:]
    projected = (x @ parts["lin.weight"].T).view(len(x), heads, c)
    out = []
    for i, heard in enumerate(sources):
        logit = torch.stack(
            [
                (parts["att_src"].view(heads, c) * projected[j]).sum(-1)
                + (parts["att_dst"].view(heads, c) * projected[i]).sum(-1)
                for j in heard
            ]
        )
        weight = torch.softmax(torch.where(logit > 0, logit, 0.2 * logit), dim=0)
        out.append(sum(weight[k][:, None] * projected[j] for k, j in enumerate(heard)).flatten())  # type: ignore[union-attr]
    return torch.stack(out) + parts["bias"]


def test_vectors_are_those_of_the_equations() -> None:
    network = make_grid(3, 3, spacing_m=130.0)
    torch.manual_seed(0)
    gnn = GridGnn(network, 8, layers=2, heads=2, cell_m=CELL_M).double()
    for weight in gnn.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    ids = torch.randn(network.n_segments, 8, dtype=torch.float64, requires_grad=True)
    offset, number = crossed_cells(network, CELL_M)
    known = sorted(set(number.tolist()))
    rows = []
    for e in range(network.n_segments):
        state = torch.zeros(8, dtype=torch.float64)
        for cell in number[offset[e] : offset[e + 1]]:
            state = gru(gnn.along, gnn.table[known.index(cell)], state)
        rows.append(torch.nn.functional.leaky_relu(ids[e] + state))
    x = torch.stack(rows)
    near = [
        sorted(
            {e, *network.successors(e).tolist()} | {o for o in range(network.n_segments) if e in network.successors(o)}
        )
        for e in range(network.n_segments)
    ]
    for layer in gnn.layers:
        x = torch.nn.functional.leaky_relu(attended(layer, x, near))
    found = gnn(ids)
    torch.testing.assert_close(found, x)
    towards = torch.randn_like(x)
    weights = [ids, *gnn.parameters()]
    for a, b in zip(
        torch.autograd.grad((found * towards).sum(), weights),
        torch.autograd.grad((x * towards).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b)
