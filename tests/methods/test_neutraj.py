"""NeuTraj: reading and writing the memory against loops over its equations, one trip and one cell after another."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.methods import neutraj
from tedtrajrec.methods.neutraj import NeuTraj, NeuTrajConfig, Places, SamLstm, addressed
from tedtrajrec.nn.cells import Cells
from tests.conftest import make_grid
from tests.nn import literal

GRID = Cells(x=0.0, y=0.0, size=1.0, columns=5, rows=4)
SMALL = NeuTrajConfig(d=8, layers=2)


def made(width: int = 3, d: int = 4, *, gate_new: bool = False) -> SamLstm:
    torch.manual_seed(0)
    layer = SamLstm(width, d, 20, gate_new=gate_new).double()
    layer.memory.normal_()
    layer.memory[[1, 7, 12, 20]] = 0  # never written
    return layer


def step_by_hand(
    layer: SamLstm, x: Tensor, state: Tensor, cell: Tensor, cells: list[int]
) -> tuple[Tensor, Tensor, Tensor]:
    """Return h, c and the space gate of one fix of one trip."""
    rows = layer.from_input.weight @ x + layer.from_input.bias + layer.from_state.weight @ state
    i, f, o, s, g = rows.chunk(5)
    i, f, o, s = (1 / (1 + torch.exp(-gate)) for gate in (i, f, o, s))
    plain = f * cell + i * torch.tanh(g)
    asked = plain.detach()
    scores = {k: layer.memory[k] @ asked for k in cells if layer.memory[k].any()}
    total = sum(torch.exp(score) for score in scores.values())
    mixed = torch.zeros_like(cell)
    for k, score in scores.items():
        mixed = mixed + torch.exp(score) / total * layer.memory[k]
    said = torch.tanh(layer.history.weight @ torch.cat([mixed, asked]) + layer.history.bias)
    cell = plain + s * said
    return o * torch.tanh(cell), cell, s


def around(column: int, row: int, w: int) -> list[int]:
    return [
        r * GRID.columns + c
        for r in range(row - w, row + w + 1)
        for c in range(column - w, column + w + 1)
        if 0 <= r < GRID.rows and 0 <= c < GRID.columns
    ]


@pytest.mark.parametrize("gate_new", [False, True])
def test_reading_and_writing_are_those_of_the_equations(gate_new: bool) -> None:
    layer, twin = made(gate_new=gate_new).train(), made(gate_new=gate_new)
    random = torch.Generator().manual_seed(5)
    x = torch.randn(3, 4, 3, generator=random, dtype=torch.float64)
    at = torch.tensor(
        [[[0, 0], [1, 0], [1, 0], [4, 3]], [[2, 2], [2, 2], [0, 0], [0, 0]], [[2, 3], [2, 2], [9, 9], [0, 1]]]
    )
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 1]]).bool()
    found = layer(x, addressed(GRID, at + 0.5, mask, 1))

    states, cells = [torch.zeros(4, dtype=torch.float64)] * 3, [torch.zeros(4, dtype=torch.float64)] * 3
    rows: list[list[Tensor]] = [[], [], []]
    for t in range(4):  # all trips read before any of them writes
        writes: dict[int, list[Tensor]] = {}
        for b in range(3):
            if not mask[b, t]:
                continue
            column, row = min(int(at[b, t, 0]), 4), min(int(at[b, t, 1]), 3)  # places outside count to the edge
            states[b], cells[b], s = step_by_hand(twin, x[b, t], states[b], cells[b], around(column, row, 1))
            rows[b].append(states[b])
            k = row * GRID.columns + column
            old, new = twin.memory[k], cells[b].detach()
            writes.setdefault(k, []).append((1 - s) * old + s * new if gate_new else s * old + (1 - s) * new)
        for k, wanted in writes.items():
            twin.memory[k] = (sum(wanted) / len(wanted)).detach()

    torch.testing.assert_close(layer.memory[:20], twin.memory[:20])
    expected = [torch.stack(part) for part in rows]
    for b, part in enumerate(expected):
        torch.testing.assert_close(found[b, : len(part)], part)
    slopes = torch.autograd.grad((found * mask[..., None]).sin().sum(), list(layer.parameters()))
    others = torch.autograd.grad(sum(part.sin().sum() for part in expected), list(twin.parameters()))
    for a, c in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, c)


def test_two_trips_in_a_cell_leave_their_mean_and_nothing_is_written_in_use() -> None:
    layer = made()
    before = layer.memory.clone()
    gate, cell = torch.rand(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    layer.write(torch.tensor([6, 3, 6]), gate, cell)
    wanted = gate * before[[6, 3, 6]] + (1 - gate) * cell
    torch.testing.assert_close(layer.memory[6], (wanted[0] + wanted[2]) / 2)
    torch.testing.assert_close(layer.memory[3], wanted[1])
    rest = [k for k in range(21) if k not in {3, 6}]
    assert torch.equal(layer.memory[rest], before[rest])

    kept = layer.memory.clone()
    places = Places(torch.tensor([[5, 6]]), torch.tensor([[[4, 5], [5, 6]]]), torch.ones(1, 2, 2, dtype=torch.bool))
    layer.eval()(torch.ones(1, 2, 3, dtype=torch.float64), places)
    assert torch.equal(layer.memory, kept)


def test_nothing_is_read_where_nothing_was_written_or_beyond_the_edge() -> None:
    layer = made()
    query = torch.ones(2, 4, dtype=torch.float64)
    near = torch.tensor([[1, 7], [2, 3]])
    found = layer.read(query, near, torch.tensor([[True, True], [True, False]]))
    assert torch.equal(found[0], torch.zeros(4, dtype=torch.float64))
    torch.testing.assert_close(found[1], layer.memory[2])


def test_training_fills_the_memory_and_a_saved_run_keeps_it() -> None:
    network = make_grid(3, 3)
    torch.manual_seed(1)
    method = NeuTraj(network, SMALL).train()
    inputs = literal.made_inputs(network.n_segments, 4)
    method.loss(inputs)
    own = addressed(method.grid, inputs.fix_xy, inputs.fix_mask, 2).own
    written = sorted(set(own[inputs.fix_mask].tolist()))
    state = method.state()
    for k in range(2):
        assert state[f"layers.{k}.memory.cells"].tolist() == written
        assert state[f"layers.{k}.memory"].shape == (len(written), 8)
    again = NeuTraj(network, SMALL)
    again.restore(state)
    for k in range(2):
        assert np.array_equal(again.layers[k].memory[:-1], method.layers[k].memory[:-1])
    assert again.layers[0].memory.any()
    with pytest.raises(KeyError):
        again.restore({name: array for name, array in state.items() if not name.endswith(".cells")})


def test_cells_are_larger_where_there_would_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    network = make_grid(3, 3)  # 200 m by 200 m
    assert NeuTraj(network, SMALL).grid[3:] == (4, 4)
    monkeypatch.setattr(neutraj, "MOST_CELLS", 10)
    assert NeuTraj(network, SMALL).grid[3:] == (2, 2)


def test_settings_that_make_no_sense_are_refused() -> None:
    for change in ({"layers": 0}, {"cell_m": 0.0}, {"around": -1}):
        with pytest.raises(ValueError, match="must"):
            dataclasses.replace(SMALL, **change)
