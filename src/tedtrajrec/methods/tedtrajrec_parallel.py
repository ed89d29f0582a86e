"""TedTrajRec Parallel: all steps at once, over candidates that can be driven, decoded as one chain.

The encoder is the paper's (PD-GNN, STTExtractor, TedFormer). The decoder has no loop: every step has a state
(:mod:`tedtrajrec.nn.parallel_decoder`), every candidate of a step a score from state, road and plain features of map
and past trips (:mod:`tedtrajrec.methods.lattice`), and every way from one candidate to the next another one. Together
they are a chain (:mod:`tedtrajrec.nn.chain`): trained as such, it gives the probability of each step, the most likely
trip that can be driven (:mod:`tedtrajrec.methods.driving`), and other routes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.alternatives import DRAWS, Alternatives, draw_routes
from tedtrajrec.methods.base import Arrays, Choices, Origin, Recovered, as_recovered, part_of
from tedtrajrec.methods.chain_options import Options, Scored, ends_of, options_of, probability_of, votes_for, weighed
from tedtrajrec.methods.driving import Driver
from tedtrajrec.methods.lattice import FACTS, STATIC, LatticeBuilder, Past
from tedtrajrec.methods.learned import TABLE, DecodingMethod, Inputs, Losses
from tedtrajrec.methods.lookup import Lookup
from tedtrajrec.methods.parallel_config import ParallelConfig
from tedtrajrec.methods.parallel_inputs import (
    MOVING,
    ParallelInputs,
    attributes_of,
    minute_of_lists,
    moves_of,
    moving_features,
)
from tedtrajrec.methods.past.visits import Visits
from tedtrajrec.methods.searches import BY_MAP, TRUSTED, Search
from tedtrajrec.methods.taught import LOOKUP, PAST, learn_past, no_past, parted, past_state, restored_past
from tedtrajrec.network.connectivity import is_whole
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.chain import NO, Chain, marginals, negative_log_likelihood, viterbi
from tedtrajrec.nn.decoder import Decoded
from tedtrajrec.nn.existing import Existing
from tedtrajrec.nn.kernels import is_recorded
from tedtrajrec.nn.parallel_decoder import CandidateScorer, Memory, StepStates
from tedtrajrec.nn.point_features import point_features
from tedtrajrec.nn.road_gnn import RoadGnn
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import rows
from tedtrajrec.nn.tedformer import TedFormerEncoder, positions
from tedtrajrec.nn.touched import Part, no_part
from tedtrajrec.nn.transitions import TransitionScorer

VOTED_FOR = 40  # segments of a step with most votes; few steps have more


class TedTrajRecParallel(DecodingMethod[ParallelConfig, ParallelInputs]):
    """All steps at once over what can be driven, as one chain with probabilities (ours)."""

    name: ClassVar[str] = "tedtrajrec_parallel"
    Config: ClassVar[type[ParallelConfig]] = ParallelConfig
    PRESETS: ClassVar[dict[str, ParallelConfig]] = {"default": ParallelConfig()}
    ADJUSTABLE: ClassVar[frozenset[str]] = frozenset({"decode", "margin", "error_m", "bridged", "enforced"})

    attributes: Tensor
    cost: Tensor
    ends: Tensor

    def __init__(self, network: RoadNetwork, config: ParallelConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.road_gnn = RoadGnn(network, c.d, layers=c.road_layers, heads=c.heads, gnn=c.gnn, rhythm=c.rhythm)
        self.register_buffer("attributes", attributes_of(network), persistent=False)
        self.register_buffer("ends", ends_of(network), persistent=False)
        self.from_attributes = nn.Linear(self.attributes.shape[1], c.d)
        self.point = nn.Linear(c.d + 3, c.d)
        kinds: dict[str, Any] = {"kind": c.attention, "activation": c.activation, "dropout": c.dropout}
        self.encoder = TedFormerEncoder(c.d, c.heads, c.width, c.encoder_layers, **kinds)
        self.steps = StepStates(c.d, c.heads, c.width, c.step_layers, FACTS, among=c.among, **kinds)
        self.scorer = CandidateScorer(c.d, c.hidden, STATIC, MOVING, dropout=c.dropout)
        self.ways = TransitionScorer(3)
        self.dropout = nn.Dropout(c.dropout)
        self._visits: Visits | None = None
        self._lookup: Lookup | None = None  # whose votes count in the search
        self._new_city: LatticeBuilder | None = None  # sees it as if no trip had been there
        self._whole = is_whole(network)
        self.use(no_past(network), 15)

    def precompute(self, dataset: Dataset) -> None:
        """Learn links, pace and pairs from the training trips."""
        self._visits, past = learn_past(self.network, dataset.split("train").trips(), most=self.config.remembered)
        self.use(past, dataset.info.step_s)
        self._lookup = None
        if self.config.voted:
            self._lookup = Lookup(self.network)
            self._lookup.precompute(dataset)

    def ask(self, lookup: Lookup | None) -> None:
        """Have past trips vote from now on where the settings give them a share, or no longer."""
        self._lookup = lookup

    def use(self, past: Past, step_s: int) -> None:
        """Take over what past trips taught, with steps of so many seconds."""
        self._past, self._step_s = past, step_s
        self._builder = LatticeBuilder(self.network, past, most=self.config.most, step_s=step_s)
        bridged = self.config.bridged and (self._whole or self.config.enforced)
        # Links are no roads of the map: a move over one is a break, though a likely one.
        near = None if len(past.links.source) else self._builder.near
        self._driver = Driver(
            self.network, margin=self.config.margin, near=near, bridged=bridged, enforced=self.config.enforced
        )
        pace = np.stack([past.pace, no_past(self.network).pace])
        cost = torch.from_numpy(pace * self.network.length_m).to(self.device, torch.float32)
        self.register_buffer("cost", cost, persistent=False)
        self._new_city = None

    def listed(self, batch: Batch, most: int) -> Tensor:
        """Return whether the true segment of each step is among its candidates, in lists of so many [B, n]."""
        return torch.from_numpy(self._builder.with_most(most).build(batch).holding(batch.segment.cpu().numpy()))

    def use_lists(self, most: int) -> None:
        """Have so many candidates of a step at most, which no weights depend on."""
        self.config = dataclasses.replace(self.config, most=most)
        self._builder, self._new_city = self._builder.with_most(most), None

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> ParallelInputs:
        """Return a batch as this method sees it; ``forced`` marks training, where trips are left out of the past."""
        unknown = forced is not None and batch.lot is not None and batch.lot < self.config.unknown
        visits = None
        if forced is not None and not unknown and self._visits is not None and batch.number is not None:
            visits = self._visits.select(batch.number.numpy())
        lattice = (self._builder_of_new_city() if unknown else self._builder).build(batch, visits)
        plain = self.plain_inputs(batch, forced)
        if unknown or self.origin is not None:  # the weights know no places here
            plain = plain._replace(fix_xy=torch.zeros_like(plain.fix_xy))
        flag = torch.full((len(batch), 1), int(unknown))
        seen = ParallelInputs(*[*plain, *(torch.from_numpy(part) for part in lattice), flag, *no_part()])
        if unknown or self._never_there:  # nobody has driven here: the map's own drive is the one vote
            drive = self._map_alone.best(batch, VOTED_FOR, at_fixes=True)
            seen = seen._replace(votes=votes_for(*seen.candidates, drive))
        return seen if forced is None else seen.touching(self.road_gnn)

    def _builder_of_new_city(self) -> LatticeBuilder:
        if self._new_city is None:
            past = no_past(self.network)
            self._new_city = LatticeBuilder(self.network, past, most=self.config.most, step_s=self._step_s)
        return self._new_city

    def roads(self, unknown: Tensor | None = None, part: Part | None = None) -> Roads:
        """Return X_road of the network or a part, from attributes of its segments and a learned vector of each.

        Parameters
        ----------
        unknown
            1 to leave these vectors out, 0 or None to use them.
        part
            The part; None for all.
        """
        start = self.from_attributes(self.attributes if part is None else self.attributes[part.segment])
        if self.config.table:
            table = self.road_gnn.vectors(part)
            start = start + (table if unknown is None else table * (1 - unknown))
        roads: Roads = self.road_gnn(start, part)
        return roads

    def encode(self, inputs: Inputs, roads: Roads) -> Memory:
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
        moving, guess = moving_features(inputs)
        if not self.config.geometry:
            static, moving = torch.zeros_like(static), torch.zeros_like(moving)
        segment = inputs.list_segment
        middle = minute_of_lists(inputs)[..., None].expand_as(segment)
        if is_recorded(segment):
            score, ratio = self.scorer(states, roads.at(segment, middle), inputs.slot, static, moving, guess)
            unary = score.float().masked_fill(~rows(inputs.list_exists, inputs.slot), NO)
        else:
            there = Existing.of(inputs.list_exists, inputs.slot, inputs.step_mask)
            x = roads.at(there.entries(segment), there.entries(middle))
            score, ratio = self.scorer.of_existing(
                states, x, there, there.entries(static), there.pairs(moving), there.pairs(guess)
            )
            unary, ratio = there.spread(score, guess.shape, NO), there.spread(ratio, guess.shape, 0)
        moves, which = moves_of(inputs, self.cost, self._step_s)
        return Chain(unary, self.ways.between(moves), which, inputs.step_mask), ratio

    def loss(self, inputs: ParallelInputs) -> Losses:
        """Return the losses of a batch."""
        chain, ratio = self.scores(inputs, self.roads(inputs.unknown[0, 0], inputs.part))
        listed, exists = inputs.candidates
        is_truth = (listed == inputs.segment[..., None]) & exists & inputs.step_mask[..., None]
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
        return Losses(segment + self.config.ratio_weight * along, segment.detach(), along.detach(), known.sum())

    @torch.no_grad()
    def decode(self, inputs: ParallelInputs, choices: int | None = None) -> Decoded:
        """Return a candidate of each step and its probability, or so many of the most probable ones.

        What can be driven plays no part here.
        """
        return self._decoded(self.scored(inputs), choices)

    def _decoded(self, scored: Scored, choices: int | None = None) -> Decoded:
        chain, ratio, segment, exists, _ = scored
        share = torch.softmax(chain.unary, dim=-1) if self.config.decode == "greedy" else marginals(chain)
        if choices is None and self.config.decode == "viterbi":
            place = viterbi(chain)[0][..., None]
        else:
            place = share.topk(min(choices or 1, share.shape[-1]), dim=-1).indices
        chance = share.gather(-1, place).clamp(1e-9, 1).log()
        found = segment.gather(-1, place).masked_fill(~exists.gather(-1, place), -1)
        out = Decoded(found, ratio.gather(-1, place).float(), chance)
        return out if choices is not None else Decoded(*(part.squeeze(-1) for part in out))

    @torch.no_grad()
    def scored(self, inputs: ParallelInputs) -> Scored:
        """Return the candidates of all steps with their scores, for use."""
        chain, ratio = self.scores(inputs, self._kept_roads())
        return Scored(chain, ratio, *inputs.candidates, inputs.votes)

    @torch.no_grad()
    def options(self, inputs: ParallelInputs) -> Options:
        """Return the most probable candidates of each step, and what the search for a trip is to make greatest."""
        return options_of(self.scored(inputs), self.ends)

    @property
    def drivable(self) -> bool:
        """Whether its answers are made to be driven."""
        return self.config.decode == "drivable"

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step, with its probability."""
        return self.drive(batch)[0] if self.drivable else super().recover(batch)

    def drive(self, batch: Batch) -> tuple[Recovered, Tensor]:
        """Return trips that can be driven, and where even these have a break: the move to the step is none [B, n]."""
        if self._search.voted and (self._never_there or self._lookup is not None):
            return self._drive_scored(batch, self._scored_batch(batch))
        return self._driven(batch, self._played("options", self.options, batch), self._search)

    def searched(self, batch: Batch, searches: Sequence[Search]) -> list[Recovered]:
        """Return the trips that each of several searches finds; they are scored only once."""
        scored = self._scored_batch(batch)
        options = {voted: self._options_of(batch, scored, voted) for voted in {search.voted for search in searches}}
        return [self._driven(batch, options[search.voted], search)[0] for search in searches]

    def _options_of(self, batch: Batch, scored: Scored, voted: float) -> Options:
        """Return the options of a batch that has been scored; votes count where there is someone to ask."""
        votes = None
        if voted and self._never_there:
            votes = scored.votes
        elif voted and self._lookup is not None:
            votes = votes_for(scored.segment, scored.exists, self._lookup.best(batch, VOTED_FOR, at_fixes=True))
        return options_of(scored, self.ends, votes, voted)

    @property
    def _search(self) -> Search:
        return Search(self.config.error_m, self.config.margin, BY_MAP if self._never_there else self.config.voted)

    @property
    def _never_there(self) -> bool:
        """Whether the weights are of another city, and no trips of this one have been seen either."""
        return self.origin is not None and not len(self._past.passing.segment)

    @cached_property
    def _map_alone(self) -> Lookup:
        return Lookup(self.network)  # without past trips it is Route + HMM

    def _drive_scored(self, batch: Batch, scored: Scored) -> tuple[Recovered, Tensor]:
        """Do what :meth:`drive` does, with votes where someone is asked, for trips that have been scored."""
        options = self._options_of(batch, scored, self._search.voted)
        return self._driven(batch, options, self._search, scored if self._never_there else None)

    def _driven(
        self, batch: Batch, options: Options, search: Search, by_map: Scored | None = None
    ) -> tuple[Recovered, Tensor]:
        score = weighed(options, search.error_m)
        driven = self._driver.drive(batch, Choices(*options[:3]), score, options.move, margin=search.margin)
        answer = as_recovered(batch, driven.segment.astype(np.int32), driven.ratio, driven.log_prob)
        if by_map is not None:
            own, voted = probability_of(by_map, answer.segment), answer.log_prob.exp().nan_to_num(0.0)
            answer = answer._replace(log_prob=torch.lerp(own, voted, TRUSTED / BY_MAP).log())
        broken = torch.zeros_like(batch.step_mask, device="cpu")
        broken[batch.step_mask.cpu()] = torch.from_numpy(driven.broken)
        return self._calibrated(batch, answer), broken

    def alternatives(self, batch: Batch, k: int, *, own: Tensor | None = None, draws: int = DRAWS) -> Alternatives:
        """Return the k most likely routes of each trip; see :func:`draw_routes`."""
        return draw_routes(self._driver, batch, self._scored_batch(batch), k, draws, own)

    def recover_with_alternatives(self, batch: Batch, k: int) -> tuple[Recovered, Alternatives]:
        """Return what :meth:`recover` and :meth:`alternatives` do, but score the trips only once."""
        scored = self._scored_batch(batch)
        if self.drivable:
            found = self._drive_scored(batch, scored)[0]
        else:
            found = self._calibrated(batch, Recovered(*self._decoded(scored)))
        return found, draw_routes(self._driver, batch, scored, k, DRAWS, found.segment)

    def _scored_batch(self, batch: Batch) -> Scored:
        if self.training:
            self.eval()
        return self.scored(self.inputs(batch).to(self.device))

    def state(self) -> Arrays:
        """Return the weights and what past trips taught."""
        taught = {"step_s": np.array([self._step_s])} | past_state(self._past)
        if self._lookup is not None:
            taught |= {LOOKUP + name: array for name, array in self._lookup.state().items()}
        return super().state() | {PAST + name: array for name, array in taught.items()}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        weights, taught = parted(state)
        super().restore(weights)
        self.use(restored_past(taught), int(taught["step_s"][0]))
        voters = part_of(taught, LOOKUP)
        self._lookup = Lookup(self.network) if voters else None
        if self._lookup is not None:
            self._lookup.restore(voters)

    def adopt(self, state: Arrays, network: str) -> None:
        """Take over from another network all but the learned vectors of its segments and its past trips."""
        weights, taught = parted(state)
        self.origin = Origin(network, len(weights[TABLE]))
        super().restore(weights | {TABLE: np.zeros(self.road_gnn.table.shape, np.float32)})
        self.use(no_past(self.network), int(taught["step_s"][0]))
        self._lookup = None

    @property
    def note(self) -> str:
        """What a user should know where the weights come from another network."""
        if self.origin is None:
            return ""
        uses = "roads, routes and past trips, without the memory of streets"
        if self._never_there:
            uses = "roads, routes and the matcher's drive, without the memory of streets or past trips"
        network, segments = self.origin
        return f"This model was trained on another network ({segments:,} segments, {network}): it uses {uses}."
