"""Cells over a city."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tedtrajrec.nn.cells import cells_over
from tedtrajrec.nn.sequences import last_real


@given(st.integers(0, 2**32 - 1), st.floats(0.05, 3.0))
def test_a_place_lies_in_its_cell(seed: int, size: float) -> None:
    random = np.random.default_rng(seed)
    box = random.normal(size=(5, 2))
    cells = cells_over(box, size)
    places = random.uniform(box.min(0), box.max(0), size=(20, 2))
    column, row = cells.at(torch.from_numpy(places))
    corner = np.stack([cells.x + column.numpy() * size, cells.y + row.numpy() * size], axis=1)
    assert (places >= corner - 1e-9).all()
    assert (places <= corner + size + 1e-9).all()
    number = cells.number(torch.from_numpy(places)).numpy()
    assert len(np.unique(number)) == len(np.unique(np.stack([column, row]), axis=1).T)
    assert ((number >= 0) & (number < cells.columns * cells.rows)).all()


def test_places_outside_count_to_the_edge() -> None:
    cells = cells_over(np.array([[0.0, 0.0], [10.0, 4.0]]), 2.0)
    assert (cells.columns, cells.rows) == (5, 2)
    outside = torch.tensor([[-3.0, 9.0], [10.0, 4.0], [99.0, -1.0]])
    assert [part.tolist() for part in cells.at(outside)] == [[0, 4, 4], [1, 1, 0]]


def test_the_same_cells_in_another_unit() -> None:
    random = np.random.default_rng(1)
    cells = cells_over(random.normal(size=(9, 2)), 0.3)
    places = torch.from_numpy(random.normal(size=(50, 2)))
    metres = cells.in_unit(6000.0, 5.0, -7.0)
    assert torch.equal(metres.number(places * 6000 + torch.tensor([5.0, -7.0])), cells.number(places))


def test_told_as_counts_or_scaled() -> None:
    cells = cells_over(np.array([[0.0, 0.0], [10.0, 4.0]]), 2.0)
    xy, step = torch.tensor([[1.0, 1.0], [9.0, 3.0]]), torch.tensor([0, 32])
    assert cells.told(xy, step, raw=True).tolist() == [[1, 1, 1], [5, 2, 33]]
    torch.testing.assert_close(cells.told(xy, step), torch.tensor([[-0.8, -0.5, 0.0], [0.8, 0.5, 0.5]]))


def test_last_real_element() -> None:
    x = torch.arange(12.0).view(3, 2, 2)
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    assert last_real(x, mask).tolist() == [[2, 3], [4, 5], [8, 9]]
