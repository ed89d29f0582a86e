"""TedTrajRec Parallel: all steps at once, over candidates that can be driven, decoded as one chain.

The encoder is the paper's (PD-GNN, STTExtractor, TedFormer). The decoder has no loop: every step has a state
(:mod:`tedtrajrec.nn.parallel_decoder`), every candidate of a step a score from state, road and plain features of map
and past trips (:mod:`tedtrajrec.methods.lattice`), and every way from one candidate to the next another one. Together
they are a chain (:mod:`tedtrajrec.nn.chain`): trained as such, it gives the most likely trip that can be driven, the
probability of each step, and the next best trips.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.lattice import FACTS, STATIC, WITHIN_S, LatticeBuilder, Past
from tedtrajrec.methods.learned import Inputs, LearnedConfig, LearnedMethod, Losses
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.history import order_of_past
from tedtrajrec.methods.past.links import Links, find_links
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.methods.past.pairs import Pairs, learn_pairs, no_pairs, pairs_state
from tedtrajrec.methods.past.passing import index_passing, no_passing, passing_state, restored_passing
from tedtrajrec.methods.past.visits import Visits, visits_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.chain import NO, Chain, marginals, negative_log_likelihood, viterbi
from tedtrajrec.nn.decoder import Decoded
from tedtrajrec.nn.parallel_decoder import CandidateScorer, Memory, StepStates, TransitionScorer, rows
from tedtrajrec.nn.point_features import point_features
from tedtrajrec.nn.road_gnn import Gnn, Rhythm, RoadGnn, Roads
from tedtrajrec.nn.tedformer import TedFormerEncoder, positions
from tedtrajrec.nn.time_attention import Activation, Kind

PAST = "past."  # how names of what past trips taught begin in the state
MOVING = 11
CLASSES = 16


@dataclass(frozen=True)
class ParallelConfig(LearnedConfig):
    """Settings; the switches are those of the ablation."""

    heads: int = 8
    width: int = 512
    encoder_layers: int = 2
    step_layers: int = 2
    road_layers: int = 2
    gnn: Gnn = "gatv2"
    rhythm: Rhythm = "dynamic"
    attention: Kind = "ted"
    activation: Activation = "lecun"
    gamma_m: float = 30.0
    hidden: int = 64  # width of the network over features of candidates
    most: int = 48  # candidates of a step
    among: bool = True  # steps attend to each other
    geometry: bool = True  # features of map and past trips
    chain: bool = True  # trained as a chain, not step by step
    table: bool = True  # a learned vector for each segment
    table_dropout: float = 0.0  # share of batches without it, so that the model can do without
    decode: Literal["viterbi", "greedy"] = "viterbi"


class ParallelInputs(NamedTuple):
    """A batch as tensors: that of step-by-step methods, and its lattice."""

    near_segment: Tensor
    near_distance: Tensor
    near_ratio: Tensor
    fix_mask: Tensor
    fix_xy: Tensor
    fix_time: Tensor
    fix_minute: Tensor
    fix_step: Tensor
    step_mask: Tensor
    step_minute: Tensor
    segment: Tensor
    ratio: Tensor
    forced: Tensor
    list_segment: Tensor  # [B, J, C]
    list_exists: Tensor  # [B, J, C]
    list_static: Tensor  # [B, J, C, STATIC]
    list_clock: Tensor  # [B, J, C, CLOCK]
    way: Tensor  # [B, 3m, C, C] int16
    slot: Tensor  # [B, n]
    previous: Tensor  # [B, n]
    following: Tensor  # [B, n]
    since: Tensor  # [B, n]
    gap: Tensor  # [B, n]
    facts: Tensor  # [B, n, FACTS]
    votes: Tensor  # [B, n, C]

    def to(self, device: torch.device) -> ParallelInputs:
        """Return the tensors on a device."""
        return ParallelInputs(*(part.to(device, non_blocking=True) for part in self))

    def pin(self) -> ParallelInputs:
        """Return the tensors in memory that can be copied to a device while other work goes on."""
        return ParallelInputs(*(part.pin_memory() for part in self))

    def rounded(self, fixes: int = 2, steps: int = 8) -> ParallelInputs:
        """Return the batch with more padding, up to multiples of these, so that few shapes occur."""
        more_fixes, more_steps = -self.fix_mask.shape[1] % fixes, -self.step_mask.shape[1] % steps
        fill = {"near_distance": torch.inf, "segment": -1, "way": -1}
        padded = {}
        for name, value in self._asdict().items():
            more = {"list": 2 * more_fixes, "near": more_fixes, "fix": more_fixes, "way": 3 * more_fixes}.get(
                name.split("_")[0], more_steps
            )
            shape = (value.shape[0], more, *value.shape[2:])
            padded[name] = torch.cat([value, value.new_full(shape, fill.get(name, 0))], dim=1)
        return ParallelInputs(**padded)

    @property
    def plain(self) -> Inputs:
        """The part that step-by-step methods have too."""
        return Inputs(*self[: len(Inputs._fields)])


class TedTrajRecParallel(LearnedMethod[ParallelConfig]):
    """All steps at once over what can be driven, as one chain with probabilities (ours)."""

    name: ClassVar[str] = "tedtrajrec_parallel"
    Config: ClassVar[type[ParallelConfig]] = ParallelConfig
    PRESETS: ClassVar[dict[str, ParallelConfig]] = {"default": ParallelConfig()}

    attributes: Tensor
    cost: Tensor

    def __init__(self, network: RoadNetwork, config: ParallelConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.road_gnn = RoadGnn(network, c.d, layers=c.road_layers, heads=c.heads, gnn=c.gnn, rhythm=c.rhythm)
        self.register_buffer("attributes", _attributes(network), persistent=False)
        self.from_attributes = nn.Linear(self.attributes.shape[1], c.d)
        self.point = nn.Linear(c.d + 3, c.d)
        kinds: dict[str, Any] = {"kind": c.attention, "activation": c.activation, "dropout": c.dropout}
        self.encoder = TedFormerEncoder(c.d, c.heads, c.width, c.encoder_layers, **kinds)
        self.steps = StepStates(c.d, c.heads, c.width, c.step_layers, FACTS, among=c.among, **kinds)
        self.scorer = CandidateScorer(c.d, c.hidden, STATIC, MOVING, dropout=c.dropout)
        self.ways = TransitionScorer(3)
        self.dropout = nn.Dropout(c.dropout)
        self._visits: Visits | None = None
        none = np.zeros(0, np.int32)
        pace = 1 / network.speed_mps.astype(np.float64)
        self._use(Past(Links(none, none), pace, no_pairs(network.n_segments), no_passing(network.n_segments)), 15)

    def precompute(self, dataset: Dataset) -> None:
        """Learn links, pace and pairs from the training trips."""
        trips = dataset.split("train").trips()
        drives = drives_of(self.network, trips)
        pace = learn_pace(self.network, drives)
        self._visits = visits_of(self.network, trips, pace * self.network.length_m)
        pairs = learn_pairs(self._visits, self.network.n_segments, within_s=WITHIN_S)
        rank = np.argsort(order_of_past(trips))
        passing = index_passing(self._visits, rank, self.network.n_segments)
        self._use(Past(find_links(drives), pace, pairs, passing), dataset.info.step_s)

    def _use(self, past: Past, step_s: int) -> None:
        self._past, self._step_s = past, step_s
        self._builder = LatticeBuilder(self.network, past, most=self.config.most, step_s=step_s)
        cost = torch.from_numpy(past.pace * self.network.length_m).to(self.device, torch.float32)
        self.register_buffer("cost", cost, persistent=False)

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> ParallelInputs:  # type: ignore[override]
        """Return a batch as this method sees it; ``forced`` marks training, where trips are left out of the past."""
        visits = None
        if forced is not None and self._visits is not None and batch.number is not None:
            visits = self._visits.select(batch.number.numpy())
        lattice = self._builder.build(batch, visits)
        return ParallelInputs(*super().inputs(batch, forced), *(torch.from_numpy(part) for part in lattice))

    def roads(self) -> Roads:
        """Return X_road of the network, from attributes of its segments and a learned vector of each."""
        c = self.config
        start = self.from_attributes(self.attributes)
        if c.table:
            known: Tensor = self.road_gnn.table
            if self.training and c.table_dropout > 0:
                known = known * (torch.rand(1, device=known.device) >= c.table_dropout)
            start = start + known
        roads: Roads = self.road_gnn(start)
        return roads

    def encode(self, inputs: Inputs, roads: Roads) -> Memory:  # type: ignore[override]
        """Return the encoded fixes."""
        c = self.config
        x = point_features(roads, inputs.nearby, inputs.fix_minute, eta_m=c.eta_m, gamma_m=c.gamma_m)
        place = torch.cat([inputs.fix_xy, inputs.fix_time[..., None] / 64], dim=-1)
        x = self.point(torch.cat([x, place.to(x.dtype)], dim=-1))
        x = self.dropout(x + positions(x.shape[1], c.d, x))
        return Memory(self.encoder(x, inputs.fix_time, inputs.fix_mask), inputs.fix_time, inputs.fix_mask)

    def scores(self, inputs: ParallelInputs, roads: Roads) -> tuple[Chain, Tensor]:
        """Return the chain of a batch, and the ratios of all candidates [B, n, C]."""
        memory = self.encode(inputs.plain, roads)
        states = self.steps(memory, inputs.previous, inputs.following, inputs.facts, inputs.step_mask)
        static = inputs.list_static
        moving, guess = _moving(inputs)
        if not self.config.geometry:
            static, moving = torch.zeros_like(static), torch.zeros_like(moving)
        middle = _minute_of_lists(inputs)
        x = roads.at(inputs.list_segment, middle[..., None].expand_as(inputs.list_segment))
        score, ratio = self.scorer(states, x, inputs.slot, static, moving, guess)
        unary = score.float().masked_fill(~rows(inputs.list_exists, inputs.slot), NO)
        pair, which = self._transitions(inputs)
        return Chain(unary, pair, which, inputs.step_mask), ratio

    def _transitions(self, inputs: ParallelInputs) -> tuple[Tensor, Tensor]:
        """Return three matrices for each gap (inside it, into it, out of it) and which of them each move takes."""
        segment = inputs.list_segment
        fixes, lists = inputs.fix_mask.shape[1], segment.shape[1]
        g = torch.arange(fixes, device=segment.device)
        inside = torch.zeros_like(inputs.fix_mask)
        inside[:, :-1] = inputs.fix_step[:, 1:] - inputs.fix_step[:, :-1] > 1  # else the way leads from fix to fix
        into = torch.where(inside, 2 * g + 1, 2 * g + 2)
        source = torch.stack([2 * g + 1, 2 * g, 2 * g + 1], dim=-1).flatten().clamp(max=lists - 1)
        source = source.expand(len(segment), -1)
        target = torch.stack([(2 * g + 1).expand_as(into), into, (2 * g + 2).expand_as(into)], dim=-1).flatten(1)
        target = target.clamp(max=lists - 1)
        a, b = rows(segment, source)[..., :, None], rows(segment, target)[..., None, :]  # [B, P, C, 1], [B, P, 1, C]
        cost = self.cost[segment] / self._step_s
        is_fix = (torch.arange(lists, device=segment.device) % 2 == 0)[None, :, None]
        ratio = inputs.list_clock[..., 7]
        rest = rows(torch.where(is_fix, (1 - ratio) * cost, cost), source)[..., :, None]
        enter = rows(torch.where(is_fix, ratio * cost, cost), target)[..., None, :]
        same = a == b
        between = inputs.way.float() / (100 * self._step_s)
        # Driven whole, a segment counts once where a vehicle stays on it.
        whole = torch.where(same, torch.minimum(rest, enter), rest + enter + between)
        pair = self.ways(torch.arange(3, device=a.device).repeat(fixes), between, whole, between >= 0, same)
        here, there = inputs.slot[:, :-1], inputs.slot[:, 1:]
        kind = torch.where(here % 2 == 0, 1, torch.where(there == here, 0, 2))
        return pair, 3 * (here // 2) + kind

    def loss(self, inputs: ParallelInputs) -> Losses:  # type: ignore[override]
        """Return the losses of a batch."""
        chain, ratio = self.scores(inputs, self.roads())
        is_truth = rows(inputs.list_segment, inputs.slot) == inputs.segment[..., None]
        is_truth &= rows(inputs.list_exists, inputs.slot) & inputs.step_mask[..., None]
        known = is_truth.any(-1)
        truth = torch.where(known, is_truth.int().argmax(-1), -1)
        count = known.sum().clamp_min(1)
        if self.config.chain:
            segment = negative_log_likelihood(chain, truth).sum() / count
        else:
            target = truth.flatten()
            miss = functional.cross_entropy(chain.unary.flatten(0, 1), target, ignore_index=-1, reduction="sum")
            segment = miss / count
        off = ratio.gather(-1, truth.clamp_min(0)[..., None]).squeeze(-1) - inputs.ratio
        along = (off**2 * known).sum() / count
        return Losses(segment + self.config.ratio_weight * along, segment.detach(), along.detach())

    @torch.no_grad()
    def decode(self, inputs: ParallelInputs) -> Decoded:  # type: ignore[override]
        """Return the most likely trips that can be driven, and the probability of each of their steps."""
        chain, ratio = self.scores(inputs, self._kept_roads())
        if self.config.decode == "greedy":
            share = torch.softmax(chain.unary, dim=-1)
            path = share.argmax(-1)
        else:
            share = marginals(chain)
            path, _ = viterbi(chain)
        place = path.clamp_min(0)[..., None]
        segment = rows(inputs.list_segment, inputs.slot).gather(-1, place).squeeze(-1)
        chance = share.gather(-1, place).squeeze(-1).clamp(1e-9, 1)
        return Decoded(segment, ratio.gather(-1, place).squeeze(-1).float(), chance.log())

    def state(self) -> Arrays:
        """Return the weights and what past trips taught."""
        past = self._past
        parts = {
            "step_s": {"": np.array([self._step_s])},
            "pace": {"": past.pace},
            "links.": past.links._asdict(),
            "pairs.": pairs_state(past.pairs),
            "passing.": passing_state(past.passing),
        }
        taught = {PAST + part + name: array for part, arrays in parts.items() for name, array in arrays.items()}
        return super().state() | taught

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""

        def part(begin: str) -> Arrays:
            return {name.removeprefix(begin): array for name, array in state.items() if name.startswith(begin)}

        super().restore({name: array for name, array in state.items() if not name.startswith(PAST)})
        past = Past(
            Links(**part(PAST + "links.")),
            state[PAST + "pace"].astype(np.float64),
            Pairs(**part(PAST + "pairs.")),
            restored_passing(part(PAST + "passing.")),
        )
        self._use(past, int(state[PAST + "step_s"][0]))


def _moving(inputs: ParallelInputs) -> tuple[Tensor, Tensor]:
    """Return what the clock says of candidates at steps: features [B, n, C, MOVING] and the ratio it suggests."""
    clock = rows(inputs.list_clock, inputs.slot)  # [B, n, C, CLOCK]
    before, whole, after, arrive, arrive_sd, leave, leave_sd, ratio = clock.unbind(-1)
    is_gap = (inputs.slot % 2 == 1)[..., None]
    since, gap = inputs.since[..., None], inputs.gap[..., None]
    left = gap - since
    share = since / gap.clamp_min(1)
    total = (before + whole + after).clamp_min(1)
    early, late = share - before / total, share - (before + whole) / total
    came = (since - arrive) / arrive_sd.clamp_min(5)
    goes = (left - leave) / leave_sd.clamp_min(5)
    features = torch.stack(
        [
            ((since - before) / 60).clamp(-3, 3),
            ((since - before - whole) / 60).clamp(-3, 3),
            early.clamp(-1, 1),
            late.clamp(-1, 1),
            functional.relu(-early).clamp(max=1),
            functional.relu(late).clamp(max=1),
            came.clamp(-4, 4),
            goes.clamp(-4, 4),
            (functional.logsigmoid(1.7 * came) + functional.logsigmoid(1.7 * goes)).clamp(min=-10),
            inputs.votes,
            (inputs.votes + 0.01).log() / 2,
        ],
        dim=-1,
    )
    guess = torch.where(is_gap, (share * total - before) / whole.clamp_min(0.5), ratio)
    return features * is_gap[..., None], guess.clamp(0, 1)


def _minute_of_lists(inputs: ParallelInputs) -> Tensor:
    """Return the local minute of the day of each list [B, J]; that of a gap is in its middle."""
    fix = inputs.fix_minute
    following = torch.where(inputs.fix_mask[:, 1:], fix[:, 1:], fix[:, :-1])
    middle = torch.where(following >= fix[:, :-1], (fix[:, :-1] + following) / 2, fix[:, :-1])  # not over midnight
    lists = torch.stack([fix[:, :-1], middle], dim=-1).flatten(1)
    return torch.cat([lists, fix[:, -1:]], dim=1)


def _attributes(network: RoadNetwork) -> Tensor:
    """Return what the map says of each segment, as numbers that any network has [S, .]."""
    kind = np.eye(CLASSES, dtype=np.float32)[network.road_class.astype(np.int64).clip(0, CLASSES - 1)]
    plain = np.stack(
        [
            np.log(network.length_m / 100 + 0.05),
            network.speed_mps / 20,
            np.diff(network.succ_offset) / 4,
            network.twin >= 0,
        ],
        axis=1,
    )
    return torch.from_numpy(np.concatenate([plain.astype(np.float32), kind], axis=1))
