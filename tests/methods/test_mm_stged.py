"""MM-STGED against its equations written out: graph of the trip, condition of the roads, and decoder under the flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.mm_stged import MmStged, MmStgedConfig
from tedtrajrec.methods.past.flow import flow_of, no_flow
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.decoder import GruCore
from tedtrajrec.nn.flow_decoder import FlowDecoder
from tedtrajrec.nn.road_condition import RoadCondition
from tedtrajrec.nn.trajectory_graph import TrajectoryGraph, links_of
from tests.methods import mtrajrec_literal
from tests.methods.past.test_flow import driven
from tests.nn import literal

SMALL = MmStgedConfig(
    d=8, road_d=5, dropout=0.0, ratio_weight=3.0, flow_width=4, condition_width=3, condition_cells=4, top_k=2
)
D, K, FLOOR = 8, 2, 1e-6


def made(grid: RoadNetwork) -> MmStged:
    """Return a small method that has seen some trips, with weights large enough to tell segments apart."""
    torch.manual_seed(1)
    method = MmStged(grid, SMALL)
    random = np.random.default_rng(0)
    paths = random.integers(0, grid.n_segments, (12, 6)).tolist()
    method._take_flow(flow_of(driven(paths), grid.n_segments))
    nn.init.normal_(method.flow_vector)
    nn.init.uniform_(method.traffic)
    nn.init.normal_(method.decoder.score.weight)
    return method.double().train()


def plain_graph(layer: TrajectoryGraph, x: Tensor, time: Tensor, xy: Tensor, real: list[int]) -> Tensor:
    """Return X' of the fixes of trips of these lengths, pair by pair."""
    rows = []
    for b, m in enumerate(real):
        gap = (time[b, m - 1] - time[b, 0]) / (m - 1)
        for i in range(m):
            far = torch.stack([torch.linalg.vector_norm(xy[b, i] - xy[b, j]) for j in range(m)])
            spread = ((far - far.mean()) ** 2).mean().sqrt()
            by_time, by_distance, edge = (torch.zeros(D, dtype=x.dtype) for _ in range(3))
            for j in range(m):
                if j != i:
                    a = torch.exp(-(time[b, i] - time[b, j]).abs() / gap)
                    c = torch.exp(-far[j] / spread)
                    by_time = by_time + a * layer.time1(x[b, j])
                    by_distance = by_distance + c * layer.distance1(x[b, j])
                    edge = edge + layer.link(torch.stack([a, c])) + layer.end(x[b, i]) + layer.end(x[b, j])
            near = layer.time2(torch.relu(by_time)) + layer.distance2(torch.relu(by_distance))
            rows.append(layer.own(x[b, i]) + near + layer.links(edge))
    rows = torch.stack(rows)  # type: ignore[assignment]
    mean, var = rows.mean(0), rows.var(0, unbiased=False)  # type: ignore[attr-defined]
    normed = torch.relu((rows - mean) / (var + 1e-5).sqrt() * layer.norm.gain + layer.norm.bias)
    out = torch.zeros_like(x)
    at = [(b, i) for b, m in enumerate(real) for i in range(m)]
    for (b, i), row in zip(at, normed, strict=True):
        out[b, i] = x[b, i] + row
    return out


def test_the_graph_of_a_trip_is_that_of_the_equations(inputs: Inputs) -> None:
    torch.manual_seed(2)
    layer = TrajectoryGraph(D).double()
    x = torch.randn(*inputs.fix_mask.shape, D, dtype=torch.float64, requires_grad=True)
    found = layer(x, inputs.fix_time, inputs.fix_xy, inputs.fix_mask)
    real = inputs.fix_mask.sum(1).tolist()
    expected = plain_graph(layer, x, inputs.fix_time, inputs.fix_xy, real)
    torch.testing.assert_close(found, expected)
    towards = torch.randn_like(x)
    weights = [x, *layer.parameters()]
    for a, b in zip(
        torch.autograd.grad((found * towards).sum(), weights),
        torch.autograd.grad((expected * towards).sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-9)


def test_links_where_there_is_nothing_to_measure_by() -> None:
    one = torch.tensor([[True, False], [True, True], [False, False]])
    time, xy = torch.zeros(3, 2), torch.zeros(3, 2, 2)  # one fix, two at the same place and time, none
    for links in links_of(time, xy, one):
        assert links.isfinite().all()
        assert links.diagonal(dim1=1, dim2=2).abs().max() == 0
        assert links[0].abs().max() == links[2].abs().max() == 0
        assert links[1, 0, 1] == 1


def test_the_condition_of_roads_is_that_of_the_equations() -> None:
    torch.manual_seed(0)
    hours, rows, columns, width = 4, 3, 5, 2
    module = RoadCondition(width).double().eval()  # its norm is the same in use
    traffic = torch.rand(hours, rows, columns, dtype=torch.float64)
    lift, first, last = module.lift, module.places[0], module.places[2]
    assert isinstance(first, nn.Conv2d)
    assert isinstance(last, nn.Conv2d)
    lifted = traffic[..., None] * lift.weight.view(width) + lift.bias  # type: ignore[operator]

    def around(layer: nn.Conv2d, x: Tensor) -> Tensor:
        out = torch.zeros(hours, rows, columns, width, dtype=x.dtype)
        for h, r, c in np.ndindex(hours, rows, columns):
            out[h, r, c] = layer.bias
            for i, j in np.ndindex(3, 3):
                if 0 <= r + i - 1 < rows and 0 <= c + j - 1 < columns:
                    out[h, r, c] += layer.weight[:, :, i, j] @ x[h, r + i - 1, c + j - 1]
        return out.clamp_min(0)

    smooth = around(last, around(first, lifted))
    flat = smooth.flatten(0, 2)
    smooth = (smooth - flat.mean(0)) / (flat.var(0, unbiased=False) + 1e-5).sqrt()
    expected = torch.zeros_like(lifted)
    for h, k in np.ndindex(hours, 3):
        if 0 <= h + k - 1 < hours:
            expected[h] += smooth[h + k - 1] @ module.hours.weight[:, :, k].T
    expected = lifted + (expected + module.hours.bias).clamp_min(0)
    torch.testing.assert_close(module(traffic).view(hours, rows, columns, width), expected)


def test_the_encoder_is_that_of_the_equations(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    real = inputs.fix_mask.sum(1).tolist()
    told = method.grid.told(inputs.fix_xy, inputs.fix_step)
    x = torch.zeros(*inputs.fix_mask.shape, D, dtype=torch.float64)
    for b, m in enumerate(real):
        state = torch.zeros(D, dtype=torch.float64)
        for j in range(m):
            state = x[b, j] = mtrajrec_literal.gru(method.encoder, told[b, j], state)
    x = plain_graph(method.graph, x, inputs.fix_time, inputs.fix_xy, real)
    roads = method.roads()
    found = method.encode(inputs, roads)
    condition = method.condition(method.traffic).view(24, method.districts.rows, method.districts.columns, -1)
    for b, m in enumerate(real):
        flows, conditions = [], []
        for j in range(m):
            weight = torch.exp(-((inputs.near_distance[b, j] / 15) ** 2)) * (inputs.near_distance[b, j] <= 100)
            flows.append((weight[:, None] * method.flow_vector[inputs.near_segment[b, j]]).sum(0) / weight.sum())
            column, row = method.districts.at(inputs.fix_xy[b, j])
            conditions.append(condition[int(inputs.fix_minute[b, j] // 60), row, column])
            expected = method.mix_fix(torch.cat([x[b, j], flows[-1]]))
            torch.testing.assert_close(found.states[b, j], expected)
        trip = method.mix_trip(torch.cat([x[b, :m].mean(0), torch.stack(flows).mean(0)]))
        first = mtrajrec_literal.first_state(method.start_state, trip, inputs.fix_minute[b, :m])
        start = torch.cat([first, torch.stack(conditions).mean(0), torch.zeros(5, dtype=first.dtype)])
        torch.testing.assert_close(found.start[b], start)
    assert (found.states[~inputs.fix_mask] == 0).all()


def plain_losses(method: MmStged, inputs: Inputs) -> tuple[Tensor, Tensor, list[list[int]]]:
    """Return the mean losses, and the segments that are predicted or forced; step by step under dense masks."""
    decoder = method.decoder
    assert isinstance(decoder, FlowDecoder)
    core, encoded = decoder.core, method.encode(inputs, method.roads())
    assert isinstance(core, GruCore)
    x, facts, flow, s = method.table, method.facts.double(), method.flow_vector, len(method.table)
    after = [set(row) for row in method.following.tolist()]
    segment_loss: Any = 0.0
    ratio_loss: Any = 0.0
    count, chosen = 0, []

    def ratio_of(g: Tensor, segment: int) -> Tensor:
        hidden = torch.relu(decoder.along[0](torch.cat([x[segment], g])))
        return torch.sigmoid(decoder.to_ratio(torch.cat([hidden, facts[segment]]))[0])

    for b in range(len(inputs.segment)):
        near = literal.dense_mask(inputs, b, s, radius_m=100.0, beta_m=15.0, floor=FLOOR)
        real, path = inputs.fix_mask[b], []
        observed = set(inputs.fix_step[b, real].tolist())
        h, q, _ = encoded.start[b].split([D, 3, 5])
        heard, best = torch.zeros(6, dtype=x.dtype), None
        for i in range(int(inputs.step_mask[b].sum())):
            memory = encoded.states[b, real]
            h = literal.step(core, h, torch.cat([heard, q]), memory, inputs.fix_time[b, real], i)
            so_far = flow[path].mean(0) if path else torch.zeros(4, dtype=x.dtype)
            g = decoder.fuse(torch.cat([h, so_far]))
            mask = near[i]
            if i not in observed and best is not None:
                allowed = set().union(*(after[e] for e in best))
                mask = torch.tensor([1.0 if e in allowed else FLOOR for e in range(s)], dtype=x.dtype)
            score = torch.exp(decoder.score(g)) * mask
            best = score.topk(K).indices.tolist()
            true = int(inputs.segment[b, i])
            segment_loss = segment_loss - torch.log(score[true] / score.sum())
            ratio_loss = ratio_loss + (ratio_of(g, true) - inputs.ratio[b, i]) ** 2
            count += 1
            fed, ratio = best[0], ratio_of(g, best[0]).detach()
            if inputs.forced[b, i]:
                fed, ratio = true, inputs.ratio[b, i]
            path.append(fed)
            heard = torch.cat([x[fed], ratio[None]])
        chosen.append(path)
    return segment_loss / count, ratio_loss / count, chosen


def test_the_loss_and_its_gradients_are_those_of_the_equations(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    segment, ratio, _ = plain_losses(method, inputs)
    found = method.loss(inputs)
    torch.testing.assert_close(found.segment, segment.detach(), rtol=1e-9, atol=0)
    torch.testing.assert_close(found.ratio, ratio.detach(), rtol=1e-9, atol=0)
    weights = list(method.parameters())
    a = torch.autograd.grad(found.total, weights)
    b = torch.autograd.grad(segment + 3 * ratio, weights)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-8)


def test_answers_follow_the_flow(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid).eval()
    free = inputs._replace(forced=torch.zeros_like(inputs.forced))
    _, _, expected = plain_losses(method, free)
    found = method.decode(inputs)
    several = method.decode(inputs, 3)
    torch.testing.assert_close(several.segment[..., 0], found.segment)
    torch.testing.assert_close(several.log_prob[..., 0], found.log_prob)
    for b, path in enumerate(expected):
        assert found.segment[b, : len(path)].tolist() == path
        alone = method.decode(Inputs(*(part[b : b + 1] for part in inputs)))
        assert alone.segment[0, : len(path)].tolist() == path
    method._take_flow(no_flow(grid.n_segments))
    assert (method.decode(inputs).segment != found.segment).any()


def test_padding_changes_neither_loss_nor_gradients(grid: RoadNetwork, inputs: Inputs) -> None:
    method = made(grid)
    weights = list(method.parameters())
    a, b = method.loss(inputs).total, method.loss(inputs.rounded(8, 16)).total
    torch.testing.assert_close(a, b)
    for x, y in zip(torch.autograd.grad(a, weights), torch.autograd.grad(b, weights), strict=True):
        torch.testing.assert_close(x, y)


def test_settings_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="top_k must be positive"):
        MmStgedConfig(top_k=0)
