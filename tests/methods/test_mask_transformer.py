"""The mask-token Transformer: the row of steps against loops over its equations, and how it is read."""

from __future__ import annotations

import dataclasses
from typing import cast

import pytest
import torch
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st
from torch import Tensor

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.mask_transformer import MaskConfig, MaskTransformer, kept_steps
from tedtrajrec.network.roadnet import RoadNetwork
from tests.methods.few_trips import write_few_trips
from tests.nn import literal

SMALL = MaskConfig(
    d=8, layers=1, heads=2, width=12, prompts=3, condition_width=4, condition_cells=3, wave_m=200.0, dropout=0.0
)


def made(grid: RoadNetwork, config: MaskConfig = SMALL) -> MaskTransformer:
    torch.manual_seed(1)
    method = MaskTransformer(grid, config).double().train()
    method.traffic.copy_(torch.rand_like(method.traffic))
    with torch.no_grad():
        method.fade.copy_(torch.randn_like(method.fade) * 0.3)  # some below 0, where nothing fades
    return method


@limits(max_examples=60)
@given(st.integers(1, 12).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1), min_size=1))))
def test_kept_steps_around_each_step(trip: tuple[int, set[int]]) -> None:
    n, steps = trip
    kept = sorted(steps)
    padded = torch.tensor([[*kept, 0, 0]])
    mask = torch.arange(len(kept) + 2)[None] < len(kept)
    found = kept_steps(padded, mask, n)
    for i in range(n):
        before = max((step for step in kept if step <= i), default=kept[0])
        after = min((step for step in kept if step > i), default=kept[-1])
        assert kept[found.before[0, i]] == before
        assert kept[found.after[0, i]] == after
        assert (found.since[0, i], found.until[0, i]) == (abs(i - before), abs(after - i))
        assert bool(found.here[0, i]) == (i in steps)


def plain_row(method: MaskTransformer, inputs: Inputs, trip: int, traffic: Tensor) -> Tensor:
    """Return z of the steps of a trip, step by step."""
    d = method.config.d
    m, n = int(inputs.fix_mask[trip].sum()), int(inputs.step_mask[trip].sum())
    steps = inputs.fix_step[trip, :m].tolist()
    fixes, conditions = {}, {}
    for j, step in enumerate(steps):
        around = torch.zeros(d).double()
        near = [k for k in range(inputs.near_segment.shape[2]) if inputs.near_distance[trip, j, k] <= 100]
        for k in near:
            around = around + method.table[inputs.near_segment[trip, j, k]] / len(near)
        place = method.place(inputs.fix_xy[trip, j])
        fixes[step] = method.fix.weight @ torch.cat([place, around]) + method.fix.bias
        column, row = (int(part) for part in method.districts.at(inputs.fix_xy[trip, j]))
        there = traffic[int(inputs.fix_minute[trip, j] // 60), row, column]
        conditions[step] = method.from_condition.weight @ there + method.from_condition.bias
    along = {}
    for i in range(n):
        along[i] = method.along.bias.clone()
        for tap in range(9):
            if i + tap - 4 in fixes:
                along[i] = along[i] + method.along.weight[:, :, tap] @ fixes[i + tap - 4]
    out = []
    for i in range(n):
        if i in fixes:
            out.append(along[i])
            continue
        p, q = max(step for step in steps if step < i), min(step for step in steps if step > i)

        def mix(x: dict[int, Tensor], fade: Tensor, i: int = i, p: int = p, q: int = q) -> Tensor:
            early = torch.exp(-torch.clamp(fade[0] * (i - p), min=0)) * x[p]
            return early + torch.exp(-torch.clamp(fade[1] * (q - i), min=0)) * x[q]

        gap = method.gap.weight @ torch.tensor([i - p, q - i]).double() / 8 + method.gap.bias
        token = torch.cat([gap, mix(conditions, method.fade[1])])
        out.append(method.merge.weight @ token + method.merge.bias + mix(along, method.fade[0]))
    return torch.stack(out)


def test_the_row_of_steps_follows_the_equations(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    roads = method.roads()
    found = method.row(inputs, roads)
    traffic = cast("Tensor", roads.more).view(*method.traffic.shape, -1)
    variables = [method.fade, method.table, method.along.weight, method.gap.bias, method.condition.lift.weight]
    for b, n in enumerate(inputs.step_mask.sum(1).tolist()):
        expected = plain_row(method, inputs, b, traffic)
        torch.testing.assert_close(found[b, :n], expected)
        slopes, others = (
            torch.autograd.grad(out.sin().sum(), variables, retain_graph=True) for out in (found[b, :n], expected)
        )
        for a, c in zip(slopes, others, strict=True):
            torch.testing.assert_close(a, c)


def test_prompts_tell_the_interval(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    roads = method.roads()
    row = method.row(inputs, roads)
    for b, n in enumerate(inputs.step_mask.sum(1).tolist()):
        m, last = int(inputs.fix_mask[b].sum()), int(inputs.fix_step[b].max())
        told = method.interval(torch.tensor([last / (m - 1) / 8, last / 64]).double())
        x = torch.cat([method.prompt, told[None], row[b, :n]])
        place = torch.arange(len(x)).double()[:, None] / 10_000 ** (torch.arange(0, 8, 2) / 8)
        x = x + torch.stack([place.sin(), place.cos()], dim=-1).flatten(1)
        expected = method.transformer(x[None], torch.ones(1, len(x), dtype=torch.bool))[0, 4:]
        torch.testing.assert_close(method.states(inputs, roads)[b, :n], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("constrained", [False, True])
def test_loss_and_answers_are_those_of_a_full_softmax(grid: RoadNetwork, inputs: Inputs, constrained: bool) -> None:
    method = made(grid, dataclasses.replace(SMALL, constrained=constrained, ratio_weight=3.0))
    state = method.states(inputs, method.roads())
    segments, ratios, losses = [], [], []
    for b in range(len(state)):
        mask = literal.dense_mask(inputs, b, grid.n_segments, radius_m=100, beta_m=15, floor=1e-6)
        score = torch.exp(method.score(method.hidden(state[b]))) * (mask if constrained else 1)
        segments.append(torch.log(score / score.sum(-1, keepdim=True)))
        ratios.append(1 / (1 + torch.exp(-(state[b] @ method.ratio.weight[0] + method.ratio.bias))))
    log_prob, ratio = torch.stack(segments), torch.stack(ratios)
    known = inputs.segment >= 0
    miss = -log_prob.gather(-1, inputs.segment.clamp_min(0)[..., None]).squeeze(-1)[known].mean()
    off = ((ratio - inputs.ratio) ** 2)[known].mean()
    losses = method.loss(inputs)
    torch.testing.assert_close(losses.total, miss + 3 * off)
    weights = [method.score.weight, method.table, method.ratio.weight]
    slopes, others = (torch.autograd.grad(total, weights) for total in (losses.total, miss + 3 * off))
    for a, b in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, b)

    method.eval()
    real = inputs.step_mask
    one, three = method.decode(inputs), method.decode(inputs, choices=3)
    best = log_prob.topk(3)
    torch.testing.assert_close(three.log_prob[real], best.values[real])
    assert torch.equal(three.segment[real], best.indices[real])
    assert torch.equal(one.segment[real], best.indices[..., 0][real])
    torch.testing.assert_close(one.ratio[real], ratio[real])
    torch.testing.assert_close(three.ratio[real], ratio[real][:, None].expand(-1, 3))


def test_no_steps_no_answers(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid).eval()
    none = Inputs(*(part[:0] for part in inputs))
    assert method.decode(none).segment.shape == (0, inputs.step_mask.shape[1])
    assert method.decode(none, choices=2).log_prob.shape == (0, inputs.step_mask.shape[1], 2)


def test_traffic_of_training_trips_is_learned(tmp_path_factory: pytest.TempPathFactory) -> None:
    dataset: Dataset = write_few_trips(tmp_path_factory.mktemp("mask"))
    method = MaskTransformer(dataset.network, SMALL)
    assert not method.traffic.any()
    method.precompute(dataset)
    assert method.traffic.amax((1, 2)).unique().tolist() == [0, 1]  # the most of each hour; at night nobody
    assert method.state()["traffic"].any()


@pytest.mark.parametrize("wrong", [{"d": 9}, {"heads": 3}, {"wave_m": 0.0}, {"prompts": -1}])
def test_settings_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"heads|wave_m|prompts"):
        dataclasses.replace(SMALL, **wrong)
