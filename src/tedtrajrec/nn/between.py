"""Where a step stands between its fixes, as a part of the decoder's state; the paper has no such part.

    b_i = MLP([H_p || H_q || (1 - tau) H_p || tau H_q || tau || gap || observed]) + g * v((1 - tau) x_p + tau x_q, u)
    tau = (t_i - t_p) / (t_q - t_p),   u the direction from x_p to x_q

with p the last fix at or before step i, and q the first one after it, or the last fix of the trip where there is none;
v are the waves of the segments' own vectors (:mod:`tedtrajrec.nn.waves`). A recurrence has to find out by attention
which two fixes surround a step and how far it is from either. Told so, it learns from far fewer trips.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn.waves import Waves

GAP_STEPS = 16.0  # a gap of so many steps counts as 1


class Between(nn.Module):
    """Maps the two fixes around each step, and its place between them, to a vector.

    Parameters
    ----------
    d
        Width.
    waves
        Of the vectors of segments.
    still
        A way from fix to fix of this length says half of its direction; in the unit of places.
    """

    def __init__(self, d: int, waves: Waves, still: float) -> None:
        super().__init__()
        self.map = nn.Sequential(nn.Linear(4 * d + 3, 2 * d), nn.ReLU(), nn.Linear(2 * d, d))
        self.gain = nn.Parameter(torch.ones(d))
        self.waves = waves
        self.still = still

    def forward(self, states: Tensor, xy: Tensor, time: Tensor, mask: Tensor, step_time: Tensor) -> Tensor:
        """Return b [B, n, d].

        Parameters
        ----------
        states, xy, time, mask
            The fixes in order of time: H [B, m, d], places [B, m, 2], times [B, m] in steps, and False for padding
            [B, m].
        step_time
            [B, n], in steps.
        """
        seen = ((time[:, None] <= step_time[..., None]) & mask[:, None]).sum(-1)  # [B, n] fixes up to the step
        before = (seen - 1).clamp_min(0)
        after = torch.minimum(seen, (mask.sum(1, keepdim=True) - 1).clamp_min(0))
        start, end = time.gather(1, before), time.gather(1, after)
        tau = ((step_time - start) / (end - start).clamp_min(1)).clamp(0, 1)
        facts = torch.stack([tau, (end - start) / GAP_STEPS, (start == step_time).to(tau.dtype)], -1).to(states.dtype)
        share = facts[..., :1]
        told = self._told(states, before, after, facts)
        origin = _pick(xy, before).to(states.dtype)
        way = _pick(xy, after).to(states.dtype) - origin
        direction = way / (way.norm(dim=-1, keepdim=True) + self.still)
        place: Tensor = self.waves(origin + share * way, direction)
        return told + self.gain * place

    def _told(self, states: Tensor, before: Tensor, after: Tensor, facts: Tensor) -> Tensor:
        """Return the MLP's part of b.

        Its first map is linear in the fixes, so they are mapped before they are picked: there are far more steps.
        """
        first = cast("nn.Linear", self.map[0])
        b, m, d = states.shape
        weight = first.weight[:, : 4 * d].view(-1, 4, d).transpose(0, 1).flatten(0, 1)  # [4 * 2d, d]
        mapped = functional.linear(states, weight).view(b, m, 4, -1).transpose(1, 2).flatten(1, 2)  # [B, 4m, 2d]
        place = torch.arange(m, device=states.device)
        p, q = ((which[..., None] == place).to(states.dtype) for which in (before, after))  # [B, n, m], 1 at the fix
        share = facts[..., :1]
        picked = torch.cat([p, q, (1 - share) * p, share * q], dim=-1) @ mapped
        out: Tensor = self.map[1:](picked + functional.linear(facts, first.weight[:, 4 * d :], first.bias))
        return out


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """Return the elements [B, n, c] of values [B, m, c] at numbers [B, n]."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))
