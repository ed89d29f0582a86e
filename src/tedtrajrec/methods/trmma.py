"""TRMMA (Tian, Shi, Yiu, ICDE 2025): match the fixes, plan one route for each gap, and place the steps on it alone.

    MMA         the segment of each fix among its 10 nearest                         nn/mma
    planner     one route from fix to fix, as past trips to its end took it          methods/past/planner
    R = W [E(e_j) || f(e_j) || position_j]  of its segments, f: road facts;  F = W' [x, y, step || which] of two fixes
    R, F = DualFormer layers                                                         nn/dual_former
    h_0 = tanh(W'' [mean of R || hour of the week])
    P_t(j), r_t = the decoder's attention to the route, step by step                 nn/route_decoder
    loss = BCE(MMA) + 10 BCE(P, truth) + 5 |r - truth|     means over candidates, over places on routes, and over steps

A gap does not see the rest of its trip. In training routes are the true ones, as with the authors (``routes="true"``),
or planned without the trip's own drive (``"planned"``), which is what the model meets in use.

Differences, as the authors' code was not to be had (what is here follows notes on a copy of it): both models are
trained at once; f is what the map says; of planned routes that are equal the direction decides, without traffic counts
by the hour; no limit of 79 segments where the fastest route is longer; where the map has no route, the gap has its two
end segments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.learned import DecodingMethod, LearnedConfig, Losses
from tedtrajrec.methods.past.pairs import Pairs, learn_pairs, no_pairs, pairs_state
from tedtrajrec.methods.past.planner import Planner
from tedtrajrec.methods.past.visits import visits_of
from tedtrajrec.methods.trmma_inputs import (
    MatchInputs,
    TrmmaInputs,
    in_gaps,
    match_inputs,
    matched_gaps,
    planned_gaps,
    true_gaps,
)
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.nn.decoder import Decoded
from tedtrajrec.nn.dual_former import DualFormerLayer
from tedtrajrec.nn.gru_decoder import FACTS, road_facts
from tedtrajrec.nn.mma import STEPS, Mma
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.route_decoder import Along, Gaps, RouteDecoder, Truth
from tedtrajrec.nn.sequences import rows
from tedtrajrec.nn.tedformer import masked_mean
from tedtrajrec.nn.time_attention import padding_bias

PAIRS = "pairs."  # how names of what past trips drove begin in the state
POSITIONS = 80  # on a route that are told apart; the longest true route that is trained on
HOURS, HOUR_WIDTH = 48, 8  # of a working day and of one at the weekend
SATURDAY = 5
MOST_TARGETS = 4096  # destinations that are kept for one segment
LEAST = -60.0  # log probability


@dataclass(frozen=True)
class TrmmaConfig(LearnedConfig):
    """Settings of TRMMA."""

    most_candidates: int = 10
    heads: int = 8
    width: int = 512
    match_layers: int = 2
    layers: int = 2  # of DualFormer
    place_weight: float = 10.0
    ratio_weight: float = 5.0
    routes: Literal["true", "planned"] = "true"  # of training
    no_backward: bool = False  # whether, in use, steps may not go back on the route

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.heads, self.width) < 1 or min(self.match_layers, self.layers) < 0 or self.place_weight < 0:
            raise ValueError("heads and width must be positive, layers and weights at least 0")
        self.check_heads(self.heads)


class Matched(NamedTuple):
    """The candidates that fixes belong to."""

    choice: Tensor  # [B, m] int64, number of the candidate


class Trmma(DecodingMethod[TrmmaConfig, TrmmaInputs]):
    """The steps of each gap along one planned route between learned matches (TRMMA with MMA)."""

    name: ClassVar[str] = "trmma"
    Config: ClassVar[type[TrmmaConfig]] = TrmmaConfig
    PRESETS: ClassVar[dict[str, TrmmaConfig]] = {
        "default": TrmmaConfig(),
        "paper": TrmmaConfig(),
        "authors": TrmmaConfig(d=64, heads=4, width=512, layers=4),
    }

    facts: Tensor

    def __init__(self, network: RoadNetwork, config: TrmmaConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.matcher = Mma(network.n_segments, c.d, c.heads, c.width, c.match_layers, dropout=c.dropout)
        self.segments = nn.Embedding(network.n_segments, c.d)
        nn.init.normal_(self.segments.weight, std=c.d**-0.5)
        self.register_buffer("facts", road_facts(network), persistent=False)
        self.position = nn.Embedding(POSITIONS, c.d)
        self.which = nn.Embedding(2, c.d)
        self.token = nn.Linear(2 * c.d + FACTS, c.d)
        self.fix = nn.Linear(3 + c.d, c.d)
        self.layers = nn.ModuleList(DualFormerLayer(c.d, c.heads, c.width, dropout=c.dropout) for _ in range(c.layers))
        self.hour = nn.Embedding(HOURS, HOUR_WIDTH)
        self.mix = nn.Linear(c.d + HOUR_WIDTH, c.d)
        self.decoder = RouteDecoder(c.d, c.d + FACTS)
        self.dropout = nn.Dropout(c.dropout)
        self._router = Router(network)
        self.use(no_pairs(network.n_segments))

    def precompute(self, dataset: Dataset) -> None:
        """Count in the training trips which segments are driven on the way to which."""
        network = self.network
        visits = visits_of(network, dataset.split("train").trips(), network.length_m / network.speed_mps)
        self.use(learn_pairs(visits, network.n_segments, within_s=np.inf, most_targets=MOST_TARGETS))

    def use(self, pairs: Pairs) -> None:
        """Take over what past trips drove."""
        self._planner = Planner(self.network, pairs)

    def roads(self) -> Roads:
        """Return [E || f] of the segments."""
        return Roads(torch.cat([self.segments.weight, self.facts], dim=1), None, None)

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> TrmmaInputs:
        """Return a batch as this method sees it: in training with the true routes, in use with those of its matches."""
        batch = batch.to("cpu")
        fix_xy = (batch.fix_xy - self._middle) / self._extent * batch.fix_mask[..., None]
        seen = match_inputs(batch, self.finder, fix_xy, self.config.most_candidates)
        true = torch.where(batch.fix_mask, batch.segment.gather(1, batch.fix_step), -1)
        if forced is None:
            choice = self._play("match", self.match, seen).choice.cpu()[..., None]
            segment, ratio = (part.gather(-1, choice).squeeze(-1) for part in (seen.near_segment, seen.near_ratio))
            gaps = matched_gaps(batch, self._planner, segment, ratio)
        else:
            ratio = batch.ratio.gather(1, batch.fix_step)
            if self.config.routes == "true":
                gaps = true_gaps(batch, self._router, POSITIONS)
            else:
                gaps = planned_gaps(batch, self._planner, self._router)
        n = batch.step_mask.shape[1]
        when = batch.fix_step.masked_fill(~batch.fix_mask, n)
        each = torch.arange(n).expand(len(batch), -1).contiguous()
        fed = torch.zeros_like(batch.step_mask) if forced is None else forced
        return TrmmaInputs(
            *seen,
            near_true=(seen.near_segment == true[..., None]) & seen.near_exists,
            fix_ratio=ratio,
            route=gaps.route,
            gap_place=gaps.place,
            gap_ratio=in_gaps(batch, batch.ratio, 0.0),
            gap_forced=in_gaps(batch, fed, False) & (gaps.place >= 0),
            step_mask=batch.step_mask,
            before=(torch.searchsorted(when, each, right=True) - 1).clamp_min(0),
            hour=(batch.fix_minute[:, :1] / 60).long().clamp(0, 23) + 24 * (batch.weekday[:, None] >= SATURDAY),
        )

    def match_logits(self, inputs: MatchInputs) -> Tensor:
        """Return the scores of the candidates of fixes [B, m, K]."""
        i = inputs
        out: Tensor = self.matcher(i.fix_xy, i.fix_step, i.fix_mask, i.near_segment, i.near_features, i.near_exists)
        return out

    def match(self, inputs: MatchInputs) -> Matched:
        """Return which candidate each fix belongs to."""
        logits = self.match_logits(inputs)
        return Matched((logits + padding_bias(inputs.near_exists, logits)).argmax(-1))

    def along(self, inputs: TrmmaInputs, roads: Roads, truth: Truth | None = None, *, forwards: bool = False) -> Along:
        """Return the steps of all gaps along their routes; gaps are rows [B * m]."""
        b, m, length = inputs.route.shape
        exists = (inputs.route >= 0).flatten(0, 1)
        told = roads.static[inputs.route.clamp_min(0).flatten(0, 1)]  # [G, R, d + FACTS]
        d = self.config.d
        told = torch.cat([self.dropout(told[..., :d]), told[..., d:]], dim=-1)
        place = self.position(torch.arange(length, device=told.device).clamp_max(POSITIONS - 1))
        route = self.token(torch.cat([told, place.expand(b * m, -1, -1)], dim=-1))
        fix = torch.cat([inputs.fix_xy, inputs.fix_step[..., None].to(told.dtype) / STEPS], dim=-1)
        ends = torch.stack([fix, following(fix)], dim=2).flatten(0, 1)  # [G, 2, 3]
        fixes = self.fix(torch.cat([ends, self.which.weight.expand(b * m, -1, -1)], dim=-1))
        bias = padding_bias(exists, route)[:, None]
        for layer in self.layers:
            route, fixes = layer(route, fixes, bias)
        hour = self.hour(inputs.hour).expand(b, m, -1).flatten(0, 1)
        start = torch.tanh(self.mix(torch.cat([masked_mean(route, exists), hour], dim=-1)))
        ratio = inputs.fix_ratio.to(route.dtype)
        gaps = Gaps(route, told, exists, start, ratio.flatten(), following(ratio[..., None]).flatten())
        out: Along = self.decoder(gaps, inputs.gap_place.shape[2], truth, forwards=forwards)
        return out

    def loss(self, inputs: TrmmaInputs) -> Losses:
        """Return the losses of a batch: that of places on routes and of ratios; the total has the matcher's too."""
        known_fix = inputs.near_exists & inputs.near_true.any(-1, keepdim=True)
        logits = self.match_logits(inputs.match)
        match = functional.binary_cross_entropy_with_logits(logits, inputs.near_true.to(logits.dtype), reduction="none")
        match = (match * known_fix).sum() / known_fix.sum().clamp_min(1)

        place, true_ratio = inputs.gap_place.flatten(0, 1), inputs.gap_ratio.flatten(0, 1)
        truth = Truth(place, true_ratio, inputs.gap_forced.flatten(0, 1))
        along = self.along(inputs, self.roads(), truth)
        known = place >= 0
        pairs = known[..., None] & (inputs.route >= 0).flatten(0, 1)[:, None]  # [G, L, R]
        is_true = torch.arange(pairs.shape[-1], device=place.device) == place[..., None]
        share = along.log_share.exp().clamp(max=1 - 1e-6)
        miss = -torch.where(is_true, along.log_share, torch.log1p(-share))
        segment = miss.masked_fill(~pairs, 0).sum() / pairs.sum().clamp_min(1)
        ratio = ((along.ratio - true_ratio).abs() * known).sum() / known.sum().clamp_min(1)
        total = match + self.config.place_weight * segment + self.config.ratio_weight * ratio
        return Losses(total, segment.detach(), ratio.detach(), known.sum())

    @torch.no_grad()
    def decode(self, inputs: TrmmaInputs, choices: int | None = None) -> Decoded:
        """Return the likeliest candidate of each fix, and place on its gap's route of each other step, or several."""
        k = choices or 1
        logits = self.match_logits(inputs.match)
        at_fix = _likeliest(functional.logsigmoid(logits), inputs.near_exists, inputs.near_segment, k)
        near_ratio = inputs.near_ratio.gather(-1, at_fix.place)
        along = self.along(inputs, self._kept_roads(), forwards=self.config.no_backward)
        exists = (inputs.route >= 0).flatten(0, 1)[:, None].expand_as(along.log_share)
        segment = inputs.route.flatten(0, 1)[:, None].expand_as(along.log_share)
        on_route = _likeliest(along.log_share, exists, segment, k)

        b, m, slots = inputs.gap_place.shape
        steps = torch.arange(inputs.before.shape[1], device=inputs.before.device)
        since = steps - inputs.fix_step.gather(1, inputs.before)
        last = inputs.fix_mask.sum(1, keepdim=True) - 1
        in_gap = ((since > 0) & (inputs.before < last))[..., None]
        slot = inputs.before * slots + (since - 1).clamp(0, slots - 1)

        def answer(fix: Tensor, gap: Tensor) -> Tensor:
            return torch.where(in_gap, rows(gap.view(b, m * slots, -1), slot), rows(fix, inputs.before))

        ratio = along.ratio[..., None].expand(-1, -1, k)
        out = Decoded(
            answer(at_fix.segment, on_route.segment),
            answer(near_ratio, ratio).float(),
            answer(at_fix.log_prob, on_route.log_prob).float(),
        )
        return out if choices is not None else Decoded(*(part.squeeze(-1) for part in out))

    def state(self) -> Arrays:
        """Return the weights and what past trips drove."""
        taught = pairs_state(self._planner.pairs)
        return super().state() | {PAIRS + name: array for name, array in taught.items()}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        super().restore({name: array for name, array in state.items() if not name.startswith(PAIRS)})
        self.use(Pairs(*(state[PAIRS + name] for name in Pairs._fields)))


class _Likeliest(NamedTuple):
    place: Tensor  # [..., k] in the last dimension
    segment: Tensor  # [..., k] -1 where there are fewer
    log_prob: Tensor  # [..., k]


def _likeliest(log_prob: Tensor, exists: Tensor, segment: Tensor, k: int) -> _Likeliest:
    """Return the k likeliest of the last dimension, which is made wider where it is not as large."""
    more = (0, max(0, k - log_prob.shape[-1]))
    log_prob = functional.pad(log_prob.masked_fill(~exists, -torch.inf), more, value=-torch.inf)
    best, place = log_prob.topk(k, dim=-1)
    found = functional.pad(segment, more, value=-1).gather(-1, place)
    return _Likeliest(
        place.clamp_max(segment.shape[-1] - 1), found.masked_fill(best == -torch.inf, -1), best.clamp_min(LEAST)
    )


def following(x: Tensor) -> Tensor:
    """Return what each fix has, of the next one [B, m, .]; the last has none."""
    return functional.pad(x[:, 1:], (0, 0, 0, 1))
