"""Where a step stands between its fixes, against its definition."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tedtrajrec.nn.between import Between
from tedtrajrec.nn.waves import Waves
from tests.nn import literal

D = 6


def made() -> tuple[Between, list[Tensor], Tensor]:
    torch.manual_seed(0)
    inputs = literal.double(literal.made_inputs(15, 0))
    states = torch.randn(*inputs.fix_mask.shape, D, dtype=torch.float64) * inputs.fix_mask[..., None]
    b, n = inputs.step_mask.shape
    between = Between(D, Waves(D, 0.1, 4.0), 0.05).double()
    fixes = [states, inputs.fix_xy, inputs.fix_time, inputs.fix_mask]
    return between, fixes, torch.arange(n).double().expand(b, n)


def test_equals_its_definition() -> None:
    between, (states, xy, time, mask), steps = made()
    torch.nn.init.constant_(between.gain, 0.7)
    found = between(states, xy, time, mask, steps)
    for b in range(len(states)):
        h, x, t = states[b, mask[b]], xy[b, mask[b]], time[b, mask[b]].tolist()
        for i, now in enumerate(steps[b].tolist()):
            p = max((j for j, at in enumerate(t) if at <= now), default=0)
            q = min((j for j, at in enumerate(t) if at > now), default=len(t) - 1)
            tau = min((now - t[p]) / (t[q] - t[p]), 1) if t[q] > t[p] else float(now > t[p])
            facts = torch.tensor([tau, (t[q] - t[p]) / 16, float(t[p] == now)], dtype=torch.float64)
            told = torch.cat([h[p], h[q], (1 - tau) * h[p], tau * h[q], facts])
            hidden = torch.clamp(between.map[0].weight @ told + between.map[0].bias, min=0)
            place, way = (1 - tau) * x[p] + tau * x[q], x[q] - x[p]
            direction = way / (math.hypot(*way.tolist()) + 0.05)
            waves = between.waves
            angles = [place @ waves.waves[:, k] + direction @ waves.turns[:, k] + waves.phase[k] for k in range(D // 2)]
            vector = torch.stack([f(angle) * 2**0.5 for f in (torch.cos, torch.sin) for angle in angles])
            expected = between.map[2].weight @ hidden + between.map[2].bias + 0.7 * vector
            torch.testing.assert_close(found[b, i], expected)


def test_padding_changes_nothing() -> None:
    between, fixes, steps = made()
    more = [torch.cat([part, part[:, :2] * 0], dim=1) for part in fixes]
    torch.testing.assert_close(between(*more, steps), between(*fixes, steps), rtol=1e-12, atol=1e-12)


def test_a_trip_without_fixes_is_no_error() -> None:
    between, (states, xy, time, mask), steps = made()
    assert between(states, xy, time, mask & False, steps).isfinite().all()
