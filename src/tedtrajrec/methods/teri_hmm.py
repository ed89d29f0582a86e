"""TERI + HMM (Chen, Cong, Anda, PVLDB 2023): a Transformer fills in the blanks of a trip of cells from left to right.

    [c_1 BLK BLK c_4 .. c_n | BOS b_1 b_2 ..]        the steps, then the blanks as they are filled in, one behind
    x = E[id] + GCN(E')[id] + sqrt(d) position + Fourier(time) + Fourier(place)       of each token
    GCN: two layers over the transitions of cells in training trips, (D + I)^-1 (A + I) x W, LeakyReLU between
    layers of a Transformer; a token sees those before it
    P(b_k) = softmax(MLP(last state at the token before it, whose position is that of blank k))
    loss = -log P(true cells of blanks) + 0.2 NT-Xent of two views of each trip, of which spans are blank

The centres of the cells are then matched to the map.

Differences: how many steps are missing is known here, so their detection, the first stage of TERI, and surplus blanks
have no part; blanks know their time (``blank_times``, off in ``authors``); trips are thinned as for all methods, not
by spans; the contrastive loss has its weight from the start, not after 10 epochs; coordinates are in cells from the
middle and times in steps; cells that no road touches are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.cell_stage import CellConfig, CellInputs, CellMethod, Places
from tedtrajrec.methods.learned import Losses
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.fourier import FourierFeatures
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import last_real, rows
from tedtrajrec.nn.time_attention import padding_bias
from tedtrajrec.nn.transformer import TransformerLayer

GRAPH = "graph."  # how names of the transitions begin in the state
POSITIONS = 512  # that are told apart
WAVE = 16.0  # steps or cells of the first waves
NO_TIME = 333.0  # step that blanks tell where they know no time, far after all others
VIEW = 512  # width in which views of trips are compared


@dataclass(frozen=True)
class TeriConfig(CellConfig):
    """Settings of TERI + HMM."""

    layers: int = 2
    heads: int = 8
    width: int = 512
    contrastive: float = 0.2  # weight of the contrastive loss
    temperature: float = 0.3
    blank_times: bool = True  # whether blanks know their time

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.layers, self.heads, self.width) < 1 or not self.temperature > 0 or self.contrastive < 0:
            raise ValueError("layers, heads, width and temperature must be positive, contrastive at least 0")
        if self.d % self.heads or self.d % 2:
            raise ValueError(f"d must be even, and {self.heads} heads must divide it")


class Transitions(NamedTuple):
    """E transitions between cells in training trips."""

    source: NDArray[np.int64]  # [E]
    target: NDArray[np.int64]  # [E]
    times: NDArray[np.int64]  # [E] how often


class TeriHmm(CellMethod[TeriConfig]):
    """Blanks of a trip of cells filled in by a causal Transformer, then the matcher (TERI + HMM)."""

    name: ClassVar[str] = "teri_hmm"
    Config: ClassVar[type[TeriConfig]] = TeriConfig
    PRESETS: ClassVar[dict[str, TeriConfig]] = {
        "default": TeriConfig(),
        "paper": TeriConfig(),
        "authors": TeriConfig(d=128, layers=4, heads=4, width=128, blank_times=False),
    }

    edges: Tensor
    weight: Tensor

    def __init__(self, network: RoadNetwork, config: TeriConfig | None = None) -> None:
        super().__init__(network, config)
        c, cells = self.config, len(self.centres)
        self.blank, self.begin = cells, cells + 1  # tokens beside the cells
        self.own = nn.Parameter(torch.randn(cells + 2, c.d) / math.sqrt(c.d))  # E
        self.context = nn.Parameter(torch.randn(cells + 2, c.d) / math.sqrt(c.d))  # E'
        self.convolutions = nn.ModuleList(GCNConv(c.d, c.d, normalize=False, add_self_loops=False) for _ in range(2))
        self.position = nn.Parameter(torch.randn(POSITIONS, c.d) / c.d)
        self.in_time = FourierFeatures(1, c.d, wavelength=WAVE)
        self.in_space = FourierFeatures(2, c.d, wavelength=WAVE)
        self.layers = nn.ModuleList(TransformerLayer(c.d, c.heads, c.width, dropout=c.dropout) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.d)
        self.score = nn.Sequential(nn.Linear(c.d, c.d), nn.GELU(), nn.Linear(c.d, cells))
        self.view = nn.Sequential(nn.Linear(c.d, c.d), nn.GELU(), nn.Linear(c.d, VIEW))
        self.dropout = nn.Dropout(c.dropout)
        none = np.zeros(0, np.int64)
        self.use(Transitions(none, none, none))

    def precompute(self, dataset: Dataset) -> None:
        """Count the transitions between cells in the training trips."""
        trips = dataset.split("train").trips()
        if trips.segment is None or trips.ratio is None:
            raise ValueError("the trips carry no positions")
        known = np.flatnonzero(trips.segment >= 0)
        xy = self.network.plane.to_xy(*self.network.point_at(trips.segment[known], trips.ratio[known]))
        cell = self._cell_of(torch.from_numpy(np.stack(xy, axis=-1))).numpy()
        moves = (np.diff(known) == 1) & (np.diff(trips.trip_of_fix[known]) == 0) & (np.diff(cell) != 0)
        pairs = np.stack([cell[:-1][moves], cell[1:][moves]])
        (source, target), times = np.unique(pairs, axis=1, return_counts=True)
        self.use(Transitions(source, target, times))

    def use(self, transitions: Transitions) -> None:
        """Take over transitions between cells."""
        self._transitions = transitions
        nodes = np.arange(len(self.own))
        source = np.concatenate([transitions.source, nodes])
        count = np.concatenate([transitions.times, np.ones(len(nodes))])
        share = count / np.bincount(source, count)[source]
        # A cell hears of those that trips went to from it.
        edges = np.stack([np.concatenate([transitions.target, nodes]), source])
        self.register_buffer("edges", torch.from_numpy(edges).to(self.device), persistent=False)
        self.register_buffer("weight", torch.from_numpy(share).to(self.own), persistent=False)
        self._forget()

    def roads(self) -> Roads:
        """Return nothing of the roads, but the vectors of all tokens [C + 2, d], what their neighbours say included."""
        first, second = self.convolutions
        x = functional.leaky_relu(first(self.context, self.edges, self.weight), 0.2)
        x = second(self.dropout(x), self.edges, self.weight)
        return Roads(self.own.new_empty(0, 0), None, None, self.own + x)

    def embed(self, roads: Roads, token: Tensor, position: Tensor, time: Tensor) -> Tensor:
        """Return x [..., d] of tokens [...] at positions [...] and times [...] in steps."""
        place = functional.pad(self.centres, (0, 0, 0, 2))[token]
        x = functional.embedding(token, cast("Tensor", roads.more))
        x = x + math.sqrt(self.config.d) * self.position[position.clamp_max(POSITIONS - 1)]
        x = x + self.in_time(time[..., None].to(x.dtype)) + self.in_space(place)
        out: Tensor = self.dropout(x)
        return out

    def source(self, roads: Roads, cell: Tensor) -> Tensor:
        """Return x of the steps [B, n, d]; cell is -1 for blanks."""
        steps = torch.arange(cell.shape[1], device=cell.device).expand_as(cell)
        blank = cell < 0
        time = steps if self.config.blank_times else torch.where(blank, NO_TIME, steps)
        return self.embed(roads, torch.where(blank, self.blank, cell), steps, time)

    def loss(self, inputs: CellInputs) -> Losses:
        """Return the losses of a batch: cross entropy of cells, and in place of the ratio's the contrastive loss."""
        roads, n = self.roads(), inputs.step_mask.shape[1]
        blank = inputs.step_mask & ~inputs.observed
        known = blank & (inputs.cell >= 0)
        before = before_last(blank)
        has = before >= 0
        told = inputs.cell.gather(1, before.clamp_min(0))
        told = torch.where(has, torch.where(told >= 0, told, self.blank), self.begin)
        steps = torch.arange(n, device=told.device).expand_as(told)
        filled = self.embed(roads, told, steps, before.clamp_min(0))
        x = torch.cat([self.source(roads, given(inputs)), filled], dim=1)
        bias = causal_bias(inputs.step_mask, blank, x)
        for layer in self.layers:
            x = layer(x, bias)
        logits = self.score(self.norm(x[:, n:]))
        target = inputs.cell.masked_fill(~known, -1).flatten()
        miss = functional.cross_entropy(logits.flatten(0, 1), target, ignore_index=-1, reduction="sum")
        cell = miss / known.sum().clamp_min(1)
        if not (self.training and self.config.contrastive):
            return Losses(cell, cell.detach(), torch.zeros_like(cell.detach()), known.sum())
        apart = self.contrast(inputs, roads)
        return Losses(cell + self.config.contrastive * apart, cell.detach(), apart.detach(), known.sum())

    def contrast(self, inputs: CellInputs, roads: Roads) -> Tensor:
        """Return the contrastive loss of two views of the true trips, each with random spans of blanks."""
        count = inputs.step_mask.sum(1)
        views = [inputs.cell.masked_fill(spans(count, inputs.step_mask.shape[1]), -1) for _ in range(2)]
        mask = inputs.step_mask.repeat(2, 1)
        x = self.source(roads, torch.cat(views))
        bias = causal_bias(mask, None, x)
        for layer in self.layers:
            x = layer(x, bias)
        return nt_xent(self.view(last_real(self.norm(x), mask)), self.config.temperature)

    @torch.no_grad()
    def places(self, inputs: CellInputs) -> Places:
        """Return where a batch is at its steps: at the fix, or in the middle of the likeliest cell."""
        roads, n = self._kept_roads(), inputs.step_mask.shape[1]
        blank = inputs.step_mask & ~inputs.observed
        x = self.source(roads, given(inputs))
        bias = causal_bias(inputs.step_mask, blank, x)
        kept = []  # keys and values of each layer, with room for those of the blanks
        layers = cast("list[TransformerLayer]", list(self.layers))
        for layer in layers:
            query, key, value = layer.parts(x)
            kept.append([torch.cat([part, torch.zeros_like(part)], dim=2) for part in (key, value)])
            x = layer.attend(x, query, key, value, bias[:, :n, :n])
        last, since = torch.full_like(inputs.before[:, 0], self.begin), torch.zeros_like(inputs.before[:, 0])
        cells = []
        for i in range(n):
            x = self.embed(roads, last, torch.full_like(last, i), since)[:, None]
            for layer, (keys, values) in zip(layers, kept, strict=True):
                query, key, value = layer.parts(x)
                keys[:, :, n + i], values[:, :, n + i] = key[:, :, 0], value[:, :, 0]
                x = layer.attend(x, query, keys, values, bias[:, n + i, None])
            cells.append(self.score(self.norm(x[:, 0])).argmax(-1))
            last = torch.where(blank[:, i], cells[-1], last)
            since = torch.where(blank[:, i], i, since)
        place = self.centres[torch.stack(cells, dim=1)]
        return Places(torch.where(inputs.observed[..., None], rows(inputs.fix_place, inputs.before), place))

    def state(self) -> Arrays:
        """Return the weights and the transitions."""
        return super().state() | {GRAPH + name: array for name, array in self._transitions._asdict().items()}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        super().restore({name: array for name, array in state.items() if not name.startswith(GRAPH)})
        self.use(Transitions(*(state[GRAPH + name] for name in Transitions._fields)))


def given(inputs: CellInputs) -> Tensor:
    """Return the cells of the steps [B, n] as they are known from fixes; -1 for blanks."""
    copied = rows(inputs.fix_cell[..., None], inputs.before).squeeze(-1)
    return torch.where(inputs.observed, copied, -1)


def before_last(blank: Tensor) -> Tensor:
    """Return the last blank before each step [B, n], or -1 where there is none."""
    steps = torch.arange(blank.shape[1], device=blank.device).expand_as(blank)
    last = torch.where(blank, steps, -1).cummax(dim=1).values
    return functional.pad(last[:, :-1], (1, 0), value=-1)


def causal_bias(mask: Tensor, blank: Tensor | None, like: Tensor) -> Tensor:
    """Return what is added to logits so that each token sees those before it: steps, then blanks [B, 2n, 2n].

    Parameters
    ----------
    mask
        Real steps [B, n].
    blank
        Those that are filled in behind them [B, n]; None where there are only steps.
    like
        Tensor of the wanted type.
    """
    n = mask.shape[1]
    earlier = torch.ones(n, n, dtype=torch.bool, device=mask.device).tril()
    steps = earlier & mask[:, None]
    if blank is None:
        return padding_bias(steps, like)
    source = torch.cat([steps, torch.zeros_like(steps)], dim=2)
    filled = torch.cat([mask[:, None].expand_as(steps), earlier & blank[:, None]], dim=2)
    return padding_bias(torch.cat([source, filled], dim=1), like)


def spans(count: Tensor, n: int) -> Tensor:
    """Return one to three random spans of each trip [B, n], .3 to .7 of its steps together; count is [B]."""
    draw = torch.rand(5, len(count), 1, device=count.device)
    number = 1 + (3 * draw[0]).floor()
    length = (0.3 + 0.4 * draw[1]) * count[:, None] / number
    steps = torch.arange(n, device=count.device)
    inside = torch.zeros(len(count), n, dtype=torch.bool, device=count.device)
    for k in range(3):
        start = draw[2 + k] * (count[:, None] - length)
        inside |= (steps >= start) & (steps < start + length) & (k < number)
    return inside


def nt_xent(views: Tensor, temperature: float) -> Tensor:
    """Return the mean over views [2B, d] of -log of the share of its trip's other view (B further on or back)."""
    views = functional.normalize(views, dim=-1)
    alike = views @ views.t() / temperature
    alike = alike.masked_fill(torch.eye(len(views), dtype=torch.bool, device=views.device), -torch.inf)
    other = torch.arange(len(views), device=views.device).roll(len(views) // 2)
    return functional.cross_entropy(alike, other)
