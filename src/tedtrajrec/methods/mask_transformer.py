"""All steps at once from a Transformer over kept and missing ones: PLMTrajRec-style, no pre-trained weights.

PLMTrajRec (Wei et al., 2024, arXiv 2410.14281) puts all steps in a row, missing ones as constructed mask tokens, before
a pre-trained language model. Here is all of that but the language model, in whose place is a Transformer of its own.

    f_j = W [Fourier(x_j, y_j) || mean of E over the segments around fix j]         nn/fourier; E is learned
    c = convolution of width 9 along the row of steps, f_j at kept ones, else 0
    q_j = W Q(hour, cell) of fix j,  Q: convolutions of the traffic                 nn/road_condition
    z_i = c_i                                                                       at kept steps
    z_i = M [W (i - p, q - i) + v || mix_i(q)] + mix_i(c)                           at others
    mix_i(x) = exp(-relu(w (i - p))) x_p + exp(-relu(u (q - i))) x_q                p, q: the kept steps around step i
    h = Transformer([prompts, W (mean gap, length), z_1..z_n])
    P(e_i = e) ~ exp(w_e . MLP(h_i)),   r_i = sigmoid(w . h_i)

There is no recurrence, no candidate and no constraint on segments (``constrained`` adds MTrajRec's mask at kept steps,
which other methods have). It is meant to be trained with several shares of kept steps: ``train.keep=["1/4", "1/8",
"1/16"]``.

Differences: learned prompts and the sampling interval in place of a text; no prototypes of words; traffic is that of
training trips by the hour of the day; what is kept near a step weighs with a vector w for each side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.clock import minute_of_day
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.learned import DecodingMethod, Inputs, LearnedConfig, Losses
from tedtrajrec.methods.past.flow import HOURS, traffic_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import cells_over
from tedtrajrec.nn.constraint import Constraint, constrain
from tedtrajrec.nn.decoder import Decoded
from tedtrajrec.nn.fourier import FourierFeatures
from tedtrajrec.nn.road_condition import RoadCondition
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.segment_loss import chunk_rows, segment_loss
from tedtrajrec.nn.sequences import rows
from tedtrajrec.nn.tedformer import positions
from tedtrajrec.nn.transformer import Transformer

GAP_STEPS, TRIP_STEPS = 8.0, 64.0  # steps that count as 1: of an interval, of a trip
ALONG = 9  # steps that the convolution goes over
FADE = 0.1  # w at first: what is 10 steps away weighs 1 / e


@dataclass(frozen=True)
class MaskConfig(LearnedConfig):
    """Settings of the mask-token Transformer."""

    layers: int = 2
    heads: int = 8
    width: int = 512  # of the feed-forward networks
    prompts: int = 8
    wave_m: float = 1000.0  # length of the first waves of places
    condition_width: int = 32  # of Q
    condition_cells: int = 32  # of the traffic, along the longer side of the city
    constrained: bool = False  # whether segments far from a fix are held off at its step

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("heads", "width", "wave_m", "condition_width", "condition_cells"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive")
        if self.d % self.heads or self.d % 2:
            raise ValueError(f"the width d of {self.d} must be even, and {self.heads} heads must divide it")
        if min(self.layers, self.prompts) < 0:
            raise ValueError("layers and prompts must not be negative")


class Kept(NamedTuple):
    """The kept steps around each step: the last one up to it and the first one after it, or what there is."""

    before: Tensor  # [B, n] number of the fix
    after: Tensor  # [B, n]
    since: Tensor  # [B, n] steps
    until: Tensor  # [B, n] steps
    here: Tensor  # [B, n] whether the step itself is kept


class MaskTransformer(DecodingMethod[MaskConfig, Inputs]):
    """All steps at once from a Transformer with mask tokens (PLMTrajRec-style, no pre-trained weights)."""

    name: ClassVar[str] = "mask_transformer"
    Config: ClassVar[type[MaskConfig]] = MaskConfig
    PRESETS: ClassVar[dict[str, MaskConfig]] = {
        "default": MaskConfig(),
        "paper": MaskConfig(),
        "authors": MaskConfig(d=512, layers=4, width=2048, ratio_weight=10.0),
    }

    traffic: Tensor

    def __init__(self, network: RoadNetwork, config: MaskConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self._metres = np.stack(network.geom_xy, axis=-1)
        size = 2 * self._extent / c.condition_cells
        self.districts = cells_over((self._metres - self._middle.numpy()) / self._extent, size / self._extent)
        self.table = nn.Parameter(torch.randn(network.n_segments, c.d) / c.d**0.5)
        self.place = FourierFeatures(2, c.d, wavelength=c.wave_m / self._extent)
        self.fix = nn.Linear(2 * c.d, c.d)
        self.along = nn.Conv1d(c.d, c.d, ALONG, padding=ALONG // 2)
        self.register_buffer("traffic", torch.zeros(HOURS, self.districts.rows, self.districts.columns))
        self.condition = RoadCondition(c.condition_width)
        self.from_condition = nn.Linear(c.condition_width, c.d)
        self.gap = nn.Linear(2, c.d)  # its bias is v
        self.merge = nn.Linear(2 * c.d, c.d)
        self.fade = nn.Parameter(torch.full((2, 2, c.d), FADE))  # of c and of the condition, from either side
        self.prompt = nn.Parameter(torch.randn(c.prompts, c.d) * 0.02)
        self.interval = nn.Linear(2, c.d)
        self.transformer = Transformer(c.d, c.heads, c.width, c.layers, dropout=c.dropout)
        self.hidden = nn.Sequential(nn.Linear(c.d, c.d), nn.GELU())
        self.score = nn.Linear(c.d, network.n_segments)
        self.ratio = nn.Linear(c.d, 1)
        self.dropout = nn.Dropout(c.dropout)

    def precompute(self, dataset: Dataset) -> None:
        """Count the traffic of the training trips."""
        trips = dataset.split("train").trips()
        minute = minute_of_day(trips.time, dataset.info.time_zone)
        cells = cells_over(self._metres, 2 * self._extent / self.config.condition_cells)
        self.traffic.copy_(torch.from_numpy(traffic_of(trips, minute, self.network, cells)))
        self._outdate()

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> Inputs:
        """Return a batch as this method sees it."""
        return self.plain_inputs(batch, forced)

    def roads(self) -> Roads:
        """Return E of the segments, and Q."""
        return Roads(self.table, None, None, self.condition(self.traffic))

    def states(self, inputs: Inputs, roads: Roads) -> Tensor:
        """Return h of all steps [B, n, d]."""
        row = self.row(inputs, roads)
        mask, prompts = inputs.fix_mask, len(self.prompt) + 1
        count = mask.sum(1)
        last = (inputs.fix_step * mask).amax(1)
        facts = torch.stack([last / (count - 1).clamp_min(1) / GAP_STEPS, last / TRIP_STEPS], dim=-1)
        told = self.interval(facts.to(row.dtype))[:, None]
        x = torch.cat([self.prompt.expand(len(row), -1, -1), told, row], dim=1)
        x = self.dropout(x + positions(x.shape[1], x.shape[2], x))
        out: Tensor = self.transformer(x, functional.pad(inputs.step_mask, (prompts, 0), value=True))
        return out[:, prompts:]

    def row(self, inputs: Inputs, roads: Roads) -> Tensor:
        """Return z of all steps [B, n, d]."""
        kept = kept_steps(inputs.fix_step, inputs.fix_mask, inputs.step_mask.shape[1])
        fixes = self._fixes(inputs, roads)
        placed = rows(fixes, kept.before) * kept.here[..., None]
        along = self.along(placed.mT).mT  # c [B, n, d]
        size = self.districts.rows * self.districts.columns
        hour = (inputs.fix_minute / 60).long().clamp(0, HOURS - 1)
        condition = functional.embedding(hour * size + self.districts.number(inputs.fix_xy), cast("Tensor", roads.more))
        condition = self.from_condition(condition)  # [B, m, d]
        gaps = torch.stack([kept.since, kept.until], dim=-1).to(along.dtype)
        token = self.merge(torch.cat([self.gap(gaps / GAP_STEPS), self._mix(condition, kept, self.fade[1])], dim=-1))
        token = token + self._mix(rows(along, inputs.fix_step), kept, self.fade[0])
        return torch.where(kept.here[..., None], along, token)

    def _fixes(self, inputs: Inputs, roads: Roads) -> Tensor:
        """Return f [B, m, d]."""
        near = inputs.near_distance <= self.config.mask_radius_m
        share = near / near.sum(-1, keepdim=True).clamp_min(1)
        around = functional.embedding(inputs.near_segment, roads.static)
        around = (share[..., None].to(around.dtype) * around).sum(-2)
        out: Tensor = self.fix(torch.cat([self.place(inputs.fix_xy), around], dim=-1))
        return out

    def _mix(self, x: Tensor, kept: Kept, fade: Tensor) -> Tensor:
        """Return what is said of fixes x [B, m, d] at the steps between them [B, n, d]."""
        since, until = (steps[..., None].to(x.dtype) for steps in (kept.since, kept.until))
        early = torch.exp(-functional.relu(fade[0] * since)) * rows(x, kept.before)
        return early + torch.exp(-functional.relu(fade[1] * until)) * rows(x, kept.after)

    def constraint(self, inputs: Inputs) -> Constraint:
        """Return the constraint mask of a batch; without one, that of no segment."""
        c, (b, n) = self.config, inputs.step_mask.shape
        if not c.constrained:
            return Constraint(inputs.fix_step.new_zeros(b, n, 0), inputs.fix_xy.new_zeros(b, n, 0))
        floor = {"radius_m": c.mask_radius_m, "beta_m": c.mask_beta_m, "floor": c.mask_floor}
        return constrain(inputs.nearby, inputs.fix_step, inputs.fix_mask, n, **floor)

    def loss(self, inputs: Inputs) -> Losses:
        """Return the losses of a batch."""
        state = self.states(inputs, self.roads())
        known = inputs.segment >= 0
        count = known.sum().clamp_min(1)
        constraint, smoothing = self.constraint(inputs), self.config.smoothing
        miss = segment_loss(self.hidden(state), self.score, constraint, inputs.segment, smoothing=smoothing)
        off = (torch.sigmoid(self.ratio(state).squeeze(-1)) - inputs.ratio) ** 2 * known
        segment, ratio = miss / count, off.sum() / count
        return Losses(segment + self.config.ratio_weight * ratio, segment.detach(), ratio.detach(), known.sum())

    @torch.no_grad()
    def decode(self, inputs: Inputs, choices: int | None = None) -> Decoded:
        """Return the most likely positions of a batch, one a step or so many choices."""
        state = self.states(inputs, self._kept_roads())
        ratio = torch.sigmoid(self.ratio(state).squeeze(-1))
        several = min(choices or 1, self.network.n_segments)
        found = [scores.topk(several) for scores in self._log_probs(state, self.constraint(inputs))]
        log_prob, segment = (torch.cat(part).view(*ratio.shape, several) for part in zip(*found, strict=True))
        out = Decoded(segment, ratio[..., None].expand_as(log_prob), log_prob)
        return out if choices is not None else Decoded(*(part.squeeze(-1) for part in out))

    def _log_probs(self, state: Tensor, constraint: Constraint) -> Iterator[Tensor]:
        """Yield log P of all segments [., S] for h [B, n, d], some of the rows at a time: all together may be large."""
        hidden, near = self.hidden(state).flatten(0, 1), constraint.rows()
        size = chunk_rows(len(hidden), self.score.weight)
        for first in range(0, max(1, len(hidden)), size):  # at least once
            part = slice(first, first + size)
            yield torch.log_softmax(near.part(part).add_to(self.score(hidden[part])), dim=-1)


def kept_steps(fix_step: Tensor, mask: Tensor, n: int) -> Kept:
    """Return the kept steps around each of n steps.

    Parameters
    ----------
    fix_step, mask
        The steps of the fixes, which rise, and whether they are any [B, m].
    n
        Number of steps.
    """
    step = torch.arange(n, device=fix_step.device).expand(len(fix_step), n)
    seen = ((fix_step[:, None] <= step[..., None]) & mask[:, None]).sum(-1)  # [B, n]
    before = (seen - 1).clamp_min(0)
    after = torch.minimum(seen, (mask.sum(1, keepdim=True) - 1).clamp_min(0))
    since, until = (step - fix_step.gather(1, which) for which in (before, after))
    return Kept(before, after, since.abs(), until.abs(), (since == 0) & (seen > 0))
