"""Products of methods, counted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.evaluation.run import draw_steps, evaluate_draw
from tedtrajrec.experiments.efficiency import _no_fused_products, costs, count_macs, first_batch
from tedtrajrec.methods.gts import Gts, GtsConfig
from tedtrajrec.methods.learned import LearnedMethod
from tests.training.conftest import new_method, small_dataset  # noqa: F401  (a fixture)


def products(module: nn.Module, x: torch.Tensor) -> int:
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module.eval()(x)
    return counter.get_total_flops() // 2


def test_fused_layers_are_counted_as_their_products() -> None:
    b, n, d, width = 3, 7, 8, 20
    x = torch.randn(b, n, d)
    layer = nn.TransformerEncoderLayer(d, 2, width, batch_first=True)
    lstm = nn.LSTM(d, width, batch_first=True)
    with _no_fused_products():
        assert products(layer, x) == b * n * (4 * d * d + 2 * n * d + 2 * d * width)
        assert products(lstm, x) == b * n * 4 * (d + width) * width
        assert products(nn.GRU(d, width, batch_first=True), x) == b * n * 3 * (d + width) * width
    assert products(layer, x) < b * n * d * d  # so without that they are not, and it is as it was before
    assert torch.backends.mkldnn.enabled


@pytest.mark.parametrize("name", ["tedtrajrec", "gts"])
def test_macs_grow_by_the_same_for_each_trip(small_dataset: Dataset, name: str) -> None:  # noqa: F811
    method: LearnedMethod = new_method(small_dataset)
    if name == "gts":
        method = Gts(small_dataset.network, GtsConfig(d=8))
        method.precompute(small_dataset)
    counts = []
    for k in (1, 2, 3):
        draw = draw_steps(small_dataset, keep="1/8", trips=np.zeros(k, np.int64))
        method.train()  # nothing is kept from the count before
        counts.append(count_macs(method, first_batch(draw)))
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0
    assert 2 * counts[0] > counts[1]  # the network is among them once


def test_costs_of_a_row(small_dataset: Dataset) -> None:  # noqa: F811
    evaluation = evaluate_draw(new_method(small_dataset), draw_steps(small_dataset, keep="1/8"))
    history = [{"seconds": 9.0}, {"seconds": 1.0}, {"seconds": 2.0}, {"seconds": 4.0}]
    found = costs(5, evaluation, {"history": history, "peak_mib": 7})
    trip_ms = pytest.approx(1000 * evaluation.recover_s / 4)
    assert found == {"macs": 5, "trip_ms": trip_ms, "epoch_s": 2.0, "peak_mib": 7}
    assert costs(5, evaluation, {}).keys() == {"macs", "trip_ms"}
