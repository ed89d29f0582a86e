"""The equations of the model written out with loops over trips, queries, keys and heads; slow, and easy to read."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.nn.constraint import Constraint
from tedtrajrec.nn.decoder import Encoded, Fed, GruCore, StepDecoder, TedFormerCore
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.tedformer import TedFormerLayer
from tedtrajrec.nn.time_attention import TimeAttention


def made_inputs(
    n_segments: int, seed: int, *, fixes: tuple[int, ...] = (3, 2, 4), steps: tuple[int, ...] = (9, 5, 12)
) -> Inputs:
    """Return a batch of trips of unlike length with made-up candidates, some of which are missing."""
    random = torch.Generator().manual_seed(seed)
    b, m, n, k = len(fixes), max(fixes), max(steps), 6

    def rand(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=random)

    fix_mask = torch.arange(m) < torch.tensor(fixes)[:, None]
    step_mask = torch.arange(n) < torch.tensor(steps)[:, None]
    near = torch.stack([torch.randperm(n_segments, generator=random)[:k] for _ in range(b * m)]).view(b, m, k)
    distance = (rand(b, m, k) * 120).sort(-1).values
    distance[:, :, 4:] = torch.where(rand(b, m, 2) < 0.5, torch.inf, distance[:, :, 4:]).sort(-1).values
    fix_step = torch.zeros(b, m, dtype=torch.int64)
    for i in range(b):
        inner = torch.randperm(steps[i] - 2, generator=random)[: fixes[i] - 2].sort().values + 1
        fix_step[i, : fixes[i]] = torch.tensor([0, *inner.tolist(), steps[i] - 1])
    start = rand(b, 1) * 1000
    return Inputs(
        near_segment=torch.where(fix_mask[..., None] & distance.isfinite(), near, 0),
        near_distance=torch.where(fix_mask[..., None], distance, torch.inf),
        near_ratio=rand(b, m, k),
        fix_mask=fix_mask,
        fix_xy=(rand(b, m, 2) * 2 - 1) * fix_mask[..., None],
        fix_time=fix_step.float(),
        fix_minute=(start + fix_step / 4) * fix_mask,
        fix_step=fix_step,
        step_mask=step_mask,
        step_minute=(start + torch.arange(n) / 4) * step_mask,
        segment=torch.where(step_mask, torch.randint(n_segments, (b, n), generator=random), -1),
        ratio=rand(b, n) * step_mask,
        forced=(rand(b, n) < 0.4) & step_mask,
    )


def double(inputs: Inputs) -> Inputs:
    """Return a batch in double precision."""
    return Inputs(*(part.double() if part.is_floating_point() else part for part in inputs))


def activation(name: str, x: Tensor) -> Tensor:
    """Return an activation by its formula."""
    if name == "lecun":
        return 1.7159 * torch.tanh(2 * x / 3)
    if name == "tanh":
        return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))
    if name == "gelu":
        return x * (1 + torch.erf(x / math.sqrt(2))) / 2
    rise, scale = 1.6732632423543772, 1.0507009873554805
    return scale * torch.where(x > 0, x, rise * (torch.exp(x) - 1))


def attention(
    layer: TimeAttention, query: Tensor, query_time: Tensor, memory: Tensor, memory_time: Tensor, act: str = "lecun"
) -> Tensor:
    """Return what queries [q, d] of one trip read from a memory [k, d] without padding."""
    d = query.shape[1]
    c = d // layer.heads
    rows = []
    for x, t in zip(query, query_time, strict=True):
        heads = []
        for h in range(layer.heads):
            part = slice(h * c, (h + 1) * c)
            q = (layer.query.weight @ x + layer.query.bias)[part]
            logits, values = [], []
            for y, u in zip(memory, memory_time, strict=True):
                k = (layer.key.weight @ y + layer.key.bias)[part]
                extra: Any = 0.0
                if layer.kind == "ted":
                    xi1, xi2, xi3 = (
                        activation(
                            act,
                            layer.cell_weight[h, :, i * c : (i + 1) * c].T @ k
                            + layer.cell_bias[h, i * c : (i + 1) * c],
                        )
                        for i in range(3)
                    )
                    gate = 1 / (1 + torch.exp(xi1 * (t - u)))
                    k = gate * xi2 + (1 - gate) * xi3
                elif layer.kind == "exp_decay":
                    first, last = layer.interval[0], layer.interval[2]
                    hidden = first.weight[:, 0] / math.log(math.e + abs(float(t - u))) + first.bias
                    extra = last.weight[0] @ torch.where(hidden > 0, hidden, 0.2 * hidden) + last.bias[0]
                logits.append(q @ k / math.sqrt(d) + extra)
                values.append((layer.value.weight @ y + layer.value.bias)[part])
            total = sum(torch.exp(logit) for logit in logits)
            heads.append(sum(torch.exp(logit) / total * value for logit, value in zip(logits, values, strict=True)))
        rows.append(layer.out.weight @ torch.cat(heads) + layer.out.bias)
    return torch.stack(rows)


def norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """Return the layer norm of one vector."""
    mean = x.sum() / len(x)
    return (x - mean) / torch.sqrt(((x - mean) ** 2).sum() / len(x) + layer.eps) * layer.weight + layer.bias


def tedformer(
    layer: TedFormerLayer, x: Tensor, time: Tensor, memory: Tensor, memory_time: Tensor, act: str = "lecun"
) -> Tensor:
    """Return one layer for queries [q, d]: norm after the residual."""
    read = attention(layer.attention, x, time, memory, memory_time, act)
    first, last = layer.feed[0], layer.feed[3]
    rows = []
    for row, other in zip(x, read, strict=True):
        y = norm(layer.norm1, other + row)
        rows.append(norm(layer.norm2, last.weight @ torch.clamp(first.weight @ y + first.bias, min=0) + last.bias + y))
    return torch.stack(rows)


def road(roads: Roads, segment: int, minute: Tensor) -> Tensor:
    """Return X(e, t) with t as an angle, one turn a day."""
    if roads.omega is None or roads.phase is None:
        return roads.static[segment]
    omega = roads.omega if roads.omega.ndim == 1 else roads.omega[segment]
    angle = omega * (2 * math.pi * minute / 1440) + roads.phase
    return roads.static[segment] + torch.stack([angle[0], *(torch.sin(part) for part in angle[1:])])


def dense_mask(inputs: Inputs, trip: int, n_segments: int, *, radius_m: float, beta_m: float, floor: float) -> Tensor:
    """Return C [n, S] of one trip by its definition."""
    mask = torch.ones(inputs.step_mask.shape[1], n_segments, dtype=torch.float64)
    for j in range(inputs.fix_mask.shape[1]):
        if inputs.fix_mask[trip, j]:
            step = int(inputs.fix_step[trip, j])
            mask[step] = floor
            for segment, distance in zip(inputs.near_segment[trip, j], inputs.near_distance[trip, j], strict=True):
                if distance <= radius_m:
                    mask[step, segment] = max(floor, math.exp(-((float(distance) / beta_m) ** 2)))
    return mask


def step(
    core: TedFormerCore | GruCore,
    state: Tensor,
    heard: Tensor | None,
    memory: Tensor,
    memory_time: Tensor,
    now: int,
    xy: Tensor | None = None,
) -> Tensor:
    """Return h of one step of one trip [d]; ``heard`` is X and ratio of the step before [d + 1]."""
    if isinstance(core, TedFormerCore):
        x = state
        if heard is not None:
            weight = torch.cat([core.from_fed.weight, core.from_state.weight], dim=1)  # W of [X || r || h]
            x = weight @ torch.cat([heard, state]) + core.from_fed.bias
        time = torch.tensor([float(now)], dtype=state.dtype)
        if core.between is not None:  # its own test has its definition
            real = torch.ones(1, len(memory), dtype=torch.bool)
            assert xy is not None
            x = x + core.between(memory[None], xy[None], memory_time[None], real, time[None])[0, 0]
        for layer in core.layers:
            x = tedformer(layer, x[None], time, memory, memory_time)[0]
        return x
    logits = [
        core.score.weight[0]
        @ torch.tanh(core.from_state.weight @ state + core.from_state.bias + core.from_memory.weight @ y)
        for y in memory
    ]
    total = sum(torch.exp(logit) for logit in logits)
    read = sum(torch.exp(logit) / total * y for logit, y in zip(logits, memory, strict=True))
    x = torch.cat([read, torch.zeros(len(state) + 1, dtype=state.dtype) if heard is None else heard])
    cell = core.cell
    r0, z0, n0 = (cell.weight_ih @ x + cell.bias_ih).chunk(3)
    r1, z1, n1 = (cell.weight_hh @ state + cell.bias_hh).chunk(3)
    reset, update = torch.sigmoid(r0 + r1), torch.sigmoid(z0 + z1)
    return (1 - update) * torch.tanh(n0 + reset * n1) + update * state


def decode(
    decoder: StepDecoder,
    encoded: Encoded,
    roads: Roads,
    minute: Tensor,
    masks: list[Tensor],
    lengths: list[int],
    fed: Fed | None = None,
) -> list[list[tuple[int, Tensor, Tensor, Tensor]]]:
    """Return for each step of each trip: segment, ratio, log probabilities of all segments, and h; trip by trip."""
    core, along = decoder.core, decoder.along
    assert isinstance(core, TedFormerCore | GruCore)
    trips = []
    for b, n in enumerate(lengths):
        real = encoded.mask[b]
        memory, memory_time = encoded.states[b, real], encoded.time[b, real]
        state, heard, out = encoded.start[b], None, []
        for i in range(n):
            xy = None if encoded.xy is None else encoded.xy[b, real]
            state = step(core, state, heard, memory, memory_time, i, xy)
            score = torch.exp(decoder.score.weight @ state + decoder.score.bias) * masks[b][i]
            segment = int(score.argmax())
            forced = fed is not None and bool(fed.use[b, i])
            if fed is not None and forced:
                segment = int(fed.segment[b, i])
            x = road(roads, segment, minute[b, i])
            hidden = torch.clamp(along[0].weight @ torch.cat([state, x]) + along[0].bias, min=0)
            ratio = 1 / (1 + torch.exp(-(along[2].weight[0] @ hidden + along[2].bias[0])))
            if fed is not None and forced:
                ratio = fed.ratio[b, i].to(ratio.dtype)
            out.append((segment, ratio, torch.log(score / score.sum()), state))
            heard = torch.cat([x, ratio.detach()[None]])
        trips.append(out)
    return trips


def constraint_of(masks: list[Tensor]) -> Constraint:
    """Return dense masks [n, S] of trips as a constraint over all segments."""
    bonus = torch.log(torch.stack(masks))
    return Constraint(torch.arange(bonus.shape[-1]).expand(bonus.shape).contiguous(), bonus)
