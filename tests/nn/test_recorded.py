"""Recorded CUDA graphs give what the plain function gives; needs a CUDA device."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tedtrajrec.methods.learned import Losses
from tedtrajrec.methods.tedtrajrec import TedTrajRec, TedTrajRecConfig
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.recorded import Recorded
from tedtrajrec.training.checkpoint import Progress
from tedtrajrec.training.config import TrainConfig
from tedtrajrec.training.trainer import Trainer
from tests.nn import literal

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
SMALL = TedTrajRecConfig(d=16, heads=2, width=32)


class Pair(NamedTuple):
    x: Tensor
    y: Tensor


class Sum(NamedTuple):
    total: Tensor


def test_each_shape_is_recorded_once_and_played_with_new_values() -> None:
    device = torch.device("cuda")
    calls = []

    def add(pair: Pair) -> Sum:
        calls.append(pair.x.shape)
        return Sum(pair.x * 2 + pair.y)

    recorded = Recorded(add, device)
    for k in range(3):
        for n in (4, 7):
            pair = Pair(torch.randn(n), torch.randn(n).to(device))  # from the host or from the device
            torch.testing.assert_close(recorded(pair).total.cpu(), pair.x * 2 + pair.y.cpu())
            assert k == 0 or len(calls) == 6  # two runs to warm up and one to record, for each shape


def test_recording_ahead_changes_nothing() -> None:
    dropout = nn.Dropout(0.5)
    pair = Pair(torch.ones(100), torch.zeros(100))
    draws = []
    for ahead in (False, True):
        recorded = Recorded(lambda pair: Sum(dropout(pair.x) + pair.y), torch.device("cuda"))
        torch.manual_seed(1)
        if ahead:
            recorded.record(Pair(torch.ones(200), torch.zeros(200)))
            recorded.record(pair)
        draws.append(recorded(pair).total.clone())
    assert torch.equal(draws[0], draws[1])


def test_dropout_follows_the_seed() -> None:
    device = torch.device("cuda")
    dropout = nn.Dropout(0.5)
    recorded = Recorded(lambda pair: Sum(dropout(pair.x) + pair.y), device)
    pair = Pair(torch.ones(100), torch.zeros(100))
    draws = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        draws.append(recorded(pair).total.clone())
    assert torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[1])


def test_recovered_trips_are_those_of_the_cpu(tiny_city: RoadNetwork) -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    method = TedTrajRec(tiny_city, SMALL).eval()
    inputs = literal.made_inputs(tiny_city.n_segments, 3)
    expected = method.decode(inputs)
    moved = method.to("cuda")
    found = Recorded(moved.decode, torch.device("cuda"))(inputs)
    assert torch.equal(found.segment.cpu(), expected.segment)
    torch.testing.assert_close(found.log_prob.cpu(), expected.log_prob, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.ratio.cpu(), expected.ratio, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("gnn", ["gatv2", "gat", "gcn", "sage", "gin", "none"])
def test_training_steps_are_those_of_the_cpu(tiny_city: RoadNetwork, gnn: str) -> None:
    torch.set_float32_matmul_precision("highest")
    losses: dict[str, list[float]] = {}
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        config = TedTrajRecConfig(d=16, heads=2, width=32, dropout=0.0, gnn=gnn)  # type: ignore[arg-type]
        method = TedTrajRec(tiny_city, config).to(device).train()
        trainer = Trainer(method, TrainConfig(), 10)
        progress = Progress()
        rows: list[Losses] = []
        for k in range(4):
            inputs = trainer.shape(literal.made_inputs(tiny_city.n_segments, k % 2))
            rows.append(trainer(inputs, progress))
            progress.step += 1
        losses[device] = [float(row.total) for row in rows]
    assert losses["cuda"] == pytest.approx(losses["cpu"], rel=1e-3)


def test_graphs_stay_through_training_and_follow_the_weights(
    tiny_city: RoadNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    method = TedTrajRec(tiny_city, SMALL).to("cuda")
    trainer = Trainer(method, TrainConfig(lr=1e-2), 10)
    inputs = literal.made_inputs(tiny_city.n_segments, 3)
    batch: Any = None
    monkeypatch.setattr(method, "inputs", lambda _: inputs)
    graphs, found = [], []
    for k in range(3):
        if k == 1:
            method.train()
            trainer(trainer.shape(inputs), Progress())
            method.eval()
        if k == 2:
            method.restore({name: value * 0.5 for name, value in method.state().items()})
        found.append(method.recover(batch))
        graphs.append(method._graphs["decode"])
        plain = TedTrajRec(tiny_city, SMALL).eval()
        plain.restore(method.state())
        expected = plain.decode(inputs)
        assert torch.equal(found[-1].segment.cpu(), expected.segment)
        torch.testing.assert_close(found[-1].ratio.cpu(), expected.ratio, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[-1].log_prob.cpu(), expected.log_prob, rtol=1e-4, atol=1e-4)
    assert all(graph is graphs[0] for graph in graphs)
    assert len(graphs[0]._records) == 1
    assert not torch.allclose(found[0].ratio, found[1].ratio, atol=1e-3)
    assert not torch.allclose(found[1].ratio, found[2].ratio, atol=1e-3)
    weight = method.road_gnn.table
    weight.data = weight.data.clone()  # a weight in another place: graphs would read the old one
    method.recover(batch)
    assert method._graphs["decode"] is not graphs[0]
