"""MTrajRec against its equations written out: encoder, first state, decoder, losses and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tedtrajrec.methods.mtrajrec import MTrajRec, MTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.decoder import Encoded
from tedtrajrec.nn.gru_decoder import FACTS, road_facts
from tests.conftest import make_grid
from tests.methods import mtrajrec_literal
from tests.nn import literal

SMALL = MTrajRecConfig(d=8, road_d=5, dropout=0.0, ratio_weight=3.0)


@pytest.fixture(scope="module")
def grid() -> RoadNetwork:
    return make_grid(3, 3)


@pytest.mark.parametrize("raw", [False, True])
def test_the_loss_and_its_gradients_are_those_of_the_equations(grid: RoadNetwork, raw: bool) -> None:
    torch.manual_seed(1)
    method = MTrajRec(grid, MTrajRecConfig(**{**SMALL.__dict__, "raw_cells": raw})).double().train()
    inputs = literal.double(literal.made_inputs(grid.n_segments, 7))
    x, y = grid.geom_xy
    states = torch.zeros(*inputs.fix_mask.shape, 8, dtype=torch.float64)
    starts = []
    columns, rows = (int(np.ceil((axis.max() - axis.min()) / 50)) for axis in (x, y))
    for b, real in enumerate(inputs.fix_mask.sum(1).tolist()):
        state = torch.zeros(8, dtype=torch.float64)
        for j in range(real):
            at_x, at_y = inputs.fix_xy[b, j].numpy() * max(np.ptp(x), np.ptp(y)) / 2
            column = min(max(int((at_x + (x.min() + x.max()) / 2 - x.min()) // 50), 0), columns - 1)
            row = min(max(int((at_y + (y.min() + y.max()) / 2 - y.min()) // 50), 0), rows - 1)
            step = int(inputs.fix_step[b, j])
            told = [column + 1, row + 1, step + 1]
            if not raw:
                told = [(column + 0.5) / columns * 2 - 1, (row + 0.5) / rows * 2 - 1, step / 64]
            state = mtrajrec_literal.gru(method.encoder, torch.tensor(told, dtype=torch.float64), state)
            states[b, j] = state
        starts.append(mtrajrec_literal.first_state(method.start_state, state, inputs.fix_minute[b, :real]))
    encoded = Encoded(states, torch.stack(starts), inputs.fix_time, inputs.fix_mask)
    found = method.encode(inputs, method.roads())
    torch.testing.assert_close(found.states, encoded.states)
    torch.testing.assert_close(found.start, encoded.start)

    segment, ratio = mtrajrec_literal.losses(method, inputs, encoded)
    losses = method.loss(inputs)
    torch.testing.assert_close(losses.segment, segment.detach(), rtol=1e-9, atol=0)
    torch.testing.assert_close(losses.ratio, ratio.detach(), rtol=1e-9, atol=0)
    weights = list(method.parameters())
    expected = torch.autograd.grad(segment + 3 * ratio, weights)
    for a, b in zip(torch.autograd.grad(losses.total, weights), expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_facts_of_segments(grid: RoadNetwork) -> None:
    facts = road_facts(grid).numpy()
    assert facts.shape == (grid.n_segments, FACTS)
    assert facts[:, 0].max() == pytest.approx(1)
    np.testing.assert_array_equal(facts[:, 1:-2].argmax(1), grid.road_class)
    np.testing.assert_array_equal(facts[:, 1:-2].sum(1), 1)
    for e in range(grid.n_segments):
        assert facts[e, -1] == len(grid.successors(e))
        assert facts[e, -2] == sum(e in grid.successors(other) for other in range(grid.n_segments))


def test_dropout_only_in_training_and_only_of_what_is_fed(grid: RoadNetwork) -> None:
    torch.manual_seed(0)
    method = MTrajRec(grid, MTrajRecConfig(d=8, dropout=0.9))
    inputs = literal.made_inputs(grid.n_segments, 3)
    a, b = method.train().loss(inputs), method.loss(inputs)
    assert float(a.total.detach()) != float(b.total.detach())
    method.eval()
    torch.testing.assert_close(method.loss(inputs).total, method.loss(inputs).total, rtol=0, atol=0)


@pytest.mark.parametrize("change", [{"road_d": 0}, {"cell_m": 0.0}])
def test_settings_that_make_no_sense(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        MTrajRecConfig(**change)  # type: ignore[arg-type]
