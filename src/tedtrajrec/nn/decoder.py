"""The step-by-step decoder: a position at every step, each fed to the next.

    h_i  = Core(state_i, H)                                      a recurrence over steps, see the two cores
    P(e) ~ exp(w_e . h_i) C[i, e]                                the segment, under the constraint mask C
    r_i  = sigmoid(R([h_i || X(e_i, t_i)]))                      the position along it
    fed_i = (X(e_i, t_i), r_i)                                   what the next step hears of this one

Training runs the recurrence twice. First without gradients, as at inference, to learn what each step would be fed (its
own prediction, or the truth where teacher forcing says so). Then with gradients, where all that is fed is known: so
roads are looked up once for all steps, the loss of the segments comes after the loop in large products, and the loop
itself is as short as it can be. Gradients do not pass through what is fed; the paper's argmax would stop most of them
anyway.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tedtrajrec.nn.between import Between
from tedtrajrec.nn.constraint import Constraint, Mask
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.segment_loss import Chosen, chunk_rows
from tedtrajrec.nn.segment_table import SegmentScores
from tedtrajrec.nn.shortlist import Shortlist
from tedtrajrec.nn.tedformer import TedFormerLayer, each
from tedtrajrec.nn.time_attention import Activation, Evolved, Kind, padding_bias


class StepReady(NamedTuple):
    """All that a step needs and that does not depend on the state."""

    layers: Sequence[Evolved]  # the keys of each layer
    between: Tensor | None = None  # [B, d], see :class:`Between`


Ready = Sequence[StepReady]
"""One for each step."""


class Encoded(NamedTuple):
    """What an encoder says of the fixes of a batch."""

    states: Tensor  # [B, m, d], zero for padding
    start: Tensor  # [B, d], the decoder's first state
    time: Tensor  # [B, m], in steps
    mask: Tensor  # [B, m], False for padding
    xy: Tensor | None = None  # [B, m, 2], for cores that ask where fixes are


class Fed(NamedTuple):
    """Positions that are fed to the next step, in place of predictions where ``use`` is set."""

    segment: Tensor  # [B, n] int64
    ratio: Tensor  # [B, n]
    use: Tensor  # [B, n] bool


class Decoded(NamedTuple):
    """A position at every step; where several were asked for, K of them [B, n, K], the most likely first."""

    segment: Tensor  # [B, n] int64
    ratio: Tensor  # [B, n]
    log_prob: Tensor  # [B, n]; 0 where positions were given to feed, since training does not ask for it


class Core(nn.Module, ABC):
    """The recurrence of a decoder."""

    @abstractmethod
    def prepare(self, encoded: Encoded, step_time: Tensor) -> Ready:
        """Return for each step all that does not depend on the state; step times [B, n] are in steps."""

    @abstractmethod
    def embed(self, road: Tensor, ratio: Tensor) -> Tensor:
        """Return what is fed for positions: X of their segments [..., d] and ratios [...]."""

    @abstractmethod
    def step(self, ready: StepReady, fed: Tensor | None, state: Tensor) -> Tensor:
        """Return h_i [B, d] from what the step before feeds [B, .] (None at the first) and its h [B, d]."""


class TedFormerCore(Core):
    """The paper's: N layers of time-aware attention from one query to the fixes.

    state_1 = mean of H;  state_i = W [X(e_{i-1}, t_{i-1}) || r_{i-1} || h_{i-1}];  h_i = layers(state_i, H; t_i)

    With ``between``, which is ours, b_i is added to each state: where the step stands between its fixes.

    Parameters
    ----------
    d, heads, width, layers, kind, activation, dropout
        Of the layers.
    between
        The module of b.
    """

    def __init__(
        self,
        d: int,
        heads: int,
        width: int,
        layers: int,
        *,
        kind: Kind = "ted",
        activation: Activation = "lecun",
        dropout: float = 0.0,
        between: Between | None = None,
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            TedFormerLayer(d, heads, width, kind=kind, activation=activation, dropout=dropout) for _ in range(layers)
        )
        self.between = between
        self.from_fed = nn.Linear(d + 1, d)  # the linear map of the embedding layer, in two parts
        self.from_state = nn.Linear(d, d, bias=False)

    def prepare(self, encoded: Encoded, step_time: Tensor) -> Ready:
        """Return the keys of all layers at each step, and where it stands."""
        n = step_time.shape[1]
        between: Sequence[Tensor | None] = [None] * n
        if self.between is not None:
            if encoded.xy is None:
                raise ValueError("what stands between fixes needs their places")
            between = self.between(encoded.states, encoded.xy, encoded.time, encoded.mask, step_time).unbind(1)
        layers = [
            layer.attention.evolve(encoded.states, encoded.time, step_time, encoded.mask).each(n)
            for layer in each(self.layers)
        ]
        return [StepReady([layer[i] for layer in layers], between[i]) for i in range(n)]

    def embed(self, road: Tensor, ratio: Tensor) -> Tensor:
        """Return the fed part of the next state."""
        out: Tensor = self.from_fed(torch.cat([road, ratio[..., None].to(road.dtype)], dim=-1))
        return out

    def step(self, ready: StepReady, fed: Tensor | None, state: Tensor) -> Tensor:
        """Return h_i."""
        x = state if fed is None else torch.addmm(fed, state, self.from_state.weight.t())
        if ready.between is not None:
            x = x + ready.between
        for layer, evolved in zip(each(self.layers), ready.layers, strict=True):
            x = layer(x, evolved)
        return x


class GruCore(Core):
    """MTrajRec's: a GRU that reads the fixes by additive attention.

    a_i = sum_j softmax_j(v . tanh(W [h_{i-1} || H_j])) H_j
    h_i = GRU([a_i || X(e_{i-1}, t_{i-1}) || r_{i-1}], h_{i-1})

    Parameters
    ----------
    d
        Width.
    road
        Width of X, the same as that of h if not given. Where the vector of a segment is longer, only so much of it is
        heard.
    dropout
        Of what is heard of X.
    """

    def __init__(self, d: int, road: int | None = None, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.road = d if road is None else road
        self.from_state = nn.Linear(d, d)
        self.from_memory = nn.Linear(d, d, bias=False)
        self.score = nn.Linear(d, 1, bias=False)
        self.cell = nn.GRUCell(d + self.road + 1, d)
        self.dropout = nn.Dropout(dropout)

    def prepare(self, encoded: Encoded, step_time: Tensor) -> Ready:
        """Return the projected fixes, the same at each step."""
        key = self.from_memory(encoded.states)
        return [StepReady([Evolved(key, padding_bias(encoded.mask, key), encoded.states)])] * step_time.shape[1]

    def embed(self, road: Tensor, ratio: Tensor) -> Tensor:
        """Return both side by side."""
        return torch.cat([self.dropout(road[..., : self.road]), ratio[..., None].to(road.dtype)], dim=-1)

    def step(self, ready: StepReady, fed: Tensor | None, state: Tensor) -> Tensor:
        """Return h_i."""
        key, bias, value = ready.layers[0]
        logit = self.score(torch.tanh(key + self.from_state(state)[:, None])).squeeze(-1) + bias  # [B, m]
        read = (torch.softmax(logit, dim=-1)[..., None] * value).sum(1)
        heard = state.new_zeros(len(state), self.road + 1) if fed is None else fed
        out: Tensor = self.cell(torch.cat([read, heard], dim=-1), state)
        return out


class StepDecoder(nn.Module):
    """Decodes trips step by step around a core.

    Parameters
    ----------
    core
        The recurrence.
    n_segments, d
        Size of the network, and width.
    dropout
        Of the roads that are fed.
    """

    def __init__(self, core: Core, n_segments: int, d: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.core = core
        self.score = SegmentScores(d, n_segments)
        self.along = nn.Sequential(nn.Linear(2 * d, d), nn.ReLU(), nn.Linear(d, 1))
        self.dropout = nn.Dropout(dropout)

    def output(self, state: Tensor) -> Tensor:
        """Return what scores and ratios are made from [..., d], from the state of the core: that itself."""
        return state

    def ratio(self, state: Tensor, road: Tensor) -> Tensor:
        """Return r [...] from h and X of the segment [..., d]."""
        return torch.sigmoid(self.along(torch.cat([state, road], dim=-1)).squeeze(-1))

    def prepare(self, encoded: Encoded, minute: Tensor) -> Ready:
        """Return what :meth:`states` and :meth:`decode` both need: training runs both and makes it once."""
        return self.core.prepare(encoded, step_times(minute))

    def states(self, encoded: Encoded, roads: Roads, minute: Tensor, fed: Fed, ready: Ready | None = None) -> Tensor:
        """Return h of all steps [B, n, d] where all that is fed is known.

        Parameters
        ----------
        encoded, roads
            The fixes and the network.
        minute
            Local minute of the day of the steps [B, n].
        fed
            Positions of the steps; each is fed to the next.
        ready
            From :meth:`prepare`; made here if not given.
        """
        inputs = self.core.embed(self.dropout(roads.at(fed.segment, minute)), fed.ratio)  # [B, n, .]
        heard = [None, *inputs.unbind(1)]
        state, out = encoded.start, []
        for i, step in enumerate(self.prepare(encoded, minute) if ready is None else ready):
            state = self.core.step(step, heard[i], state)
            out.append(state)
        return self.output(torch.stack(out, dim=1) if out else encoded.start[:, None][:, :0])

    @torch.no_grad()
    def decode(
        self,
        encoded: Encoded,
        roads: Roads,
        minute: Tensor,
        constraint: Mask,
        fed: Fed | None = None,
        ready: Ready | None = None,
        choices: int | None = None,
        chosen: Chosen | None = None,
    ) -> Decoded:
        """Return the most likely position at every step, one step after another.

        Parameters
        ----------
        encoded, roads, minute
            As for :meth:`states`.
        constraint
            The constraint mask.
        fed
            True positions to feed (and return) in place of predictions where its mask says so.
        ready
            From :meth:`prepare`; made here if not given.
        choices
            Return so many of the most likely segments of each step, instead of one. It is still the best one that is
            fed: the probabilities of a step are those after the best segments of all steps before.
        chosen
            The segments that each trip may use; all if not given. The constraint is then of places among them.
        """
        logits = self.score.weight.new_empty(len(minute), len(self.score.weight) if chosen is None else 0)
        bonuses, minutes = constraint.each(), minute.unbind(1)
        state, heard = encoded.start, None
        out: list[tuple[Tensor, Tensor, Tensor]] = []
        for i, step in enumerate(self.prepare(encoded, minute) if ready is None else ready):
            state = self.core.step(step, heard, state)
            h = self.output(state)
            if chosen is None:
                torch.addmm(self.score.bias, h, self.score.weight.t(), out=logits)
            else:
                logits = chosen.logits(h[:, None])[:, 0]
            best, place = bonuses[i].add_to(logits).max(dim=-1, keepdim=True)
            segment = (place if chosen is None else chosen.names(place))[:, 0]
            if fed is not None:
                segment = torch.where(fed.use[:, i], fed.segment[:, i], segment)
            road = roads.at(segment, minutes[i])
            ratio = self.ratio(h, road)
            if fed is not None:
                ratio = torch.where(fed.use[:, i], fed.ratio[:, i].to(ratio.dtype), ratio)
            heard = self.core.embed(road, ratio)
            if choices is not None:
                logit, place = logits.topk(min(choices, logits.shape[1]), dim=-1)
                segment = place if chosen is None else chosen.names(place).masked_fill(logit.isneginf(), -1)
                ratio = self.ratio(
                    h[:, None].expand(*segment.shape, -1),
                    roads.at(segment.clamp_min(0), minutes[i][:, None].expand_as(segment)),
                )
            # The probability of the best is 1 / sum(exp(logits - best)); this is much faster than logsumexp.
            total = logits.sub_(best).exp_().sum(-1) if fed is None else torch.ones_like(best[:, 0])
            out.append((segment, ratio, total if choices is None else total[:, None] * (best - logit).exp()))
        if not out:
            empty = minute[:, :0] if choices is None else minute[:, :0, None].expand(-1, -1, choices)
            return Decoded(empty.long(), empty, empty)
        segments, ratios, totals = (torch.stack(part, dim=1) for part in zip(*out, strict=True))
        return Decoded(segments, ratios, totals.log_().neg_())

    def shortlist(self) -> Shortlist:
        """Return the weights of the scores as :meth:`decode_alone` needs them; they go out of date with the weights."""
        return Shortlist(self.score.weight, self.score.bias)

    @torch.no_grad()
    def decode_alone(
        self,
        encoded: Encoded,
        roads: Roads,
        minute: Tensor,
        constraint: Constraint,
        shortlist: Shortlist,
        choices: int | None = None,
    ) -> Decoded:
        """Return what :meth:`decode` returns, for one trip on the CPU, in less time.

        What takes time there is to read the weights of the scores at each step. But a step needs only the best segment,
        for which few of them are read; the probabilities wait for the end, where one product serves all steps.
        """
        bonuses, minutes = constraint.each(), minute.unbind(1)
        state, heard = encoded.start, None
        out: list[tuple[Tensor, Tensor, Tensor]] = []
        for i, step in enumerate(self.prepare(encoded, minute)):
            state = self.core.step(step, heard, state)
            h = self.output(state)
            segment = torch.tensor([shortlist.best(h[0], bonuses[i].segment[0], bonuses[i].bonus[0])])
            road = roads.at(segment, minutes[i])
            ratio = self.ratio(h, road)
            heard = self.core.embed(road, ratio)
            out.append((h, segment, ratio))
        if not out:
            return self.decode(encoded, roads, minute, constraint, choices=choices)
        states, segments, ratios = (torch.stack(part, dim=1) for part in zip(*out, strict=True))
        if choices is None:
            kept = [scores.gather(-1, segments[:, part, None]) for part, scores in self._log_probs(states, constraint)]
            return Decoded(segments, ratios, torch.cat(kept, dim=1).squeeze(-1))
        most = [scores.topk(min(choices, scores.shape[-1])) for _, scores in self._log_probs(states, constraint)]
        log_probs, several = (torch.cat(part, dim=1) for part in zip(*most, strict=True))
        road = roads.at(several, minute[..., None].expand_as(several))
        return Decoded(several, self.ratio(states[:, :, None].expand(*several.shape, -1), road), log_probs)

    def _log_probs(self, states: Tensor, constraint: Constraint) -> Iterator[tuple[slice, Tensor]]:
        """Yield log P of all segments [B, ., S] for h [B, n, d], some steps at a time: all together may be large."""
        size = chunk_rows(states.shape[1], self.score.weight)
        for first in range(0, states.shape[1], size):
            part = slice(first, first + size)
            logits = Constraint(constraint.segment[:, part], constraint.bonus[:, part]).add_to(
                self.score(states[:, part])
            )
            yield part, torch.log_softmax(logits, dim=-1)


def step_times(minute: Tensor) -> Tensor:
    """Return the numbers of the steps, 0 to n - 1, for each trip [B, n]."""
    b, n = minute.shape
    return torch.arange(n, device=minute.device, dtype=minute.dtype).expand(b, n)
