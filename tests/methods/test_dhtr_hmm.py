"""DHTR against its equations written out, and what methods of cells see of a batch."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import Tensor

from tedtrajrec.data.batch import make_batch
from tedtrajrec.methods.cell_stage import CellInputs, road_cells
from tedtrajrec.methods.dhtr_hmm import DhtrConfig, DhtrHmm
from tedtrajrec.methods.learned import Losses
from tedtrajrec.methods.registry import method_class
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import concat_trips
from tests.conftest import make_grid
from tests.methods.cells_literal import made_cells, trip_of
from tests.methods.recordable import run_recordable
from tests.trips.test_match import trip

SMALL = DhtrConfig(d=8, around=5, dropout=0.0, cell_m=80.0, ratio_weight=2.0)


def made(grid: RoadNetwork, **settings: object) -> DhtrHmm:
    torch.manual_seed(2)
    return DhtrHmm(grid, dataclasses.replace(SMALL, **settings)).double()


def literal_states(method: DhtrHmm, one: CellInputs) -> list[Tensor]:
    """Return h of the steps of one trip without padding."""
    scale = 80.0 / method._extent
    centres = method.centres.tolist()
    s = method.encoder(one.fix_place * scale, one.fix_mask)[0]
    h, memory = s[-1], torch.zeros_like(s[-1])
    last = centres[int(one.fix_cell[0, 0])]
    states = []
    for i in range(one.step_mask.shape[1]):
        logits = []
        for k in range(len(s)):
            far = min(int(math.dist(last, centres[int(one.fix_cell[0, k])])), 1023)
            lag = abs(i - int(one.fix_step[0, k]))
            hidden = method.of_state(h) + method.of_fix(s[k])
            hidden = hidden + method.of_time(method.in_time[lag]) + method.of_space(method.in_space[far])
            logits.append((method.attention.weight[0] * torch.tanh(hidden)).sum())
        weight = torch.softmax(torch.stack(logits), dim=0)
        read = sum((weight[k] * s[k] for k in range(len(s))), torch.zeros_like(h))
        near = torch.cat([one.fix_place[0, one.before[0, i]], one.fix_place[0, one.after[0, i]]]) * scale
        fed = method.fed(torch.cat([torch.tensor(last, dtype=torch.float64) * scale, method.around(near)]))
        h, memory = method.cell(torch.cat([fed, read]), (h, memory))
        states.append(h)
        if one.observed[0, i]:
            last = centres[int(one.fix_cell[0, one.before[0, i]])]
        elif one.forced[0, i]:
            last = centres[int(one.cell[0, i])]
        else:
            last = centres[int((method.score.weight @ h + method.score.bias).argmax())]
    return states


def literal_places(method: DhtrHmm, one: CellInputs, states: list[Tensor]) -> list[Tensor]:
    """Return the filtered places of one trip."""
    phi, psi = torch.eye(4).double() + torch.diag(torch.ones(2).double(), 2), torch.eye(4).double()[:2]
    m = torch.diag(method.process.exp()[[0, 0, 1, 1]])
    g, spread, out = torch.zeros(4).double(), torch.zeros(4, 4).double(), []
    for i, h in enumerate(states):
        p = torch.softmax(method.score(h), dim=0)
        if one.observed[0, i]:
            z, n = one.fix_place[0, one.before[0, i]], (15 / 80) ** 2 * torch.eye(2).double()
        else:
            z = (p[:, None] * method.centres).sum(0)
            n = torch.eye(2).double() / 12
            for c, centre in enumerate(method.centres):
                n = n + p[c] * torch.outer(centre - z, centre - z)
        if i == 0:
            g = torch.cat([z, torch.zeros(2).double()])
            spread = torch.block_diag(n, 4.0 * torch.eye(2).double())
        else:
            g, spread = phi @ g, phi @ spread @ phi.T + m
            gain = spread @ psi.T @ torch.linalg.inv(psi @ spread @ psi.T + n)
            g, spread = g + gain @ (z - psi @ g), spread - gain @ psi @ spread
        out.append(psi @ g)
    return out


def literal_loss(method: DhtrHmm, inputs: CellInputs) -> Losses:
    cell, place, count = torch.zeros(()).double(), torch.zeros(()).double(), 0
    for b in range(len(inputs.step_mask)):
        one = trip_of(inputs, b)
        states = literal_states(method, one)
        for i, at in enumerate(literal_places(method, one, states)):
            true = int(one.cell[0, i])
            if true < 0 or one.observed[0, i]:
                continue
            cell = cell - torch.log_softmax(method.score(states[i]), dim=0)[true]
            place = place + ((at - one.place[0, i]) ** 2).sum() * 0.08**2
            count += 1
    return Losses((cell + 2 * place) / count, cell / count, place / count, torch.tensor(count))


def test_losses_and_gradients_are_those_of_the_equations(grid: RoadNetwork) -> None:
    method = made(grid).train()
    inputs = made_cells(method, 4)
    found, expected = method.loss(inputs), literal_loss(method, inputs)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.detach(), b.detach(), rtol=1e-8, atol=0)
    weights = list(method.parameters())
    gradients = torch.autograd.grad(expected.total, weights)
    for a, b in zip(torch.autograd.grad(found.total, weights), gradients, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-9)


def test_the_places_are_filtered_and_fixes_are_copied(grid: RoadNetwork) -> None:
    method = made(grid).eval()
    inputs = made_cells(method, 9)
    found = method.places(inputs).place
    for b in range(3):
        one = trip_of(inputs, b)
        for i, at in enumerate(literal_places(method, one, literal_states(method, one))):
            expected = one.fix_place[0, one.before[0, i]] if one.observed[0, i] else at
            torch.testing.assert_close(found[b, i], expected)
    raw = made(grid, filtered=False).eval().places(inputs).place
    missing = inputs.step_mask & ~inputs.observed
    assert ((raw - found)[missing].norm(dim=-1) > 0.05).float().mean() > 0.5


def test_more_padding_changes_nothing(grid: RoadNetwork) -> None:
    method = made(grid).train()
    inputs = made_cells(method, 1)
    wide = inputs.rounded(7, 16)
    assert (wide.fix_mask.shape[1], wide.step_mask.shape[1]) == (7, 16)
    torch.testing.assert_close(method.loss(wide).total, method.loss(inputs).total)


def test_places_can_be_recorded(grid: RoadNetwork) -> None:
    method = made(grid).eval()
    inputs = made_cells(method, 1)
    method._kept_roads()
    run_recordable(lambda: method.places(inputs))


def test_what_is_seen_of_a_batch() -> None:
    city = make_grid(4, 3)
    method = DhtrHmm(city, SMALL)
    a = trip([(0, 10, 2), (10, 90, 0), (20, 160, 0), (30, 250, 3)], "a")
    b = trip([(0, 210, 40), (10, 210, 90)], "b")
    trips = concat_trips([a, b])
    segment = np.array([0, -1, 2, 4, 20, 20], np.int32)
    trips = trips.replace(segment=segment, ratio=np.array([0.1, np.nan, 0.6, 0.5, 0.4, 0.9]))
    seen = np.array([True, False, False, True, True, True])
    batch = make_batch(trips, seen, city, step_s=10, time_zone="UTC")
    inputs = method.inputs(batch, torch.ones_like(batch.step_mask))
    assert inputs.before.tolist() == [[0, 0, 0, 1], [0, 1, 1, 1]]
    assert inputs.after.tolist() == [[0, 1, 1, 1], [0, 1, 1, 1]]
    assert inputs.observed.tolist() == [[True, False, False, True], [True, True, False, False]]
    assert inputs.forced.tolist() == [[True, False, True, True], [True, True, False, False]]
    middle = method._middle.numpy()
    np.testing.assert_allclose(inputs.fix_place.numpy() * 80 + middle, batch.fix_xy, atol=0.01)
    for row in range(2):
        for i in range(4):
            true = int(batch.segment[row, i])
            assert (inputs.cell[row, i] >= 0) == (true >= 0)
            if true >= 0:
                x, y = city.plane.to_xy(*city.point_at([true], [float(batch.ratio[row, i])]))
                at = np.array([x[0], y[0]])
                np.testing.assert_allclose(inputs.place[row, i].numpy() * 80 + middle, at, atol=0.01)
                centre = method.centres[inputs.cell[row, i]].numpy() * 80 + middle
                assert np.abs(at - centre).max() <= 40.01


def test_cells_are_those_that_roads_touch(grid: RoadNetwork) -> None:
    cells = road_cells(grid, 30.0)
    x, y = grid.geom_xy
    away = np.abs(cells[:, None] - np.array([[a, b] for a in np.unique(x.round()) for b in np.unique(y.round())]))
    assert len(np.unique(cells, axis=0)) == len(cells)
    assert (away.min(axis=1).min(axis=1) <= 16).all()  # a street runs through
    assert len(cells) == pytest.approx(4 * 2 * 300 / 30, abs=24)
    assert len(road_cells(grid, 1000.0)) == 1


def test_presets_and_settings() -> None:
    presets = method_class("dhtr_hmm").PRESETS  # type: ignore[attr-defined]
    assert presets["default"].d == 256
    assert presets["authors"].d == 512
    for wrong in ({"d": 7}, {"layers": 0}, {"cell_m": 0.0}, {"fix_noise_m": 0.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            DhtrConfig(**wrong)  # type: ignore[arg-type]
