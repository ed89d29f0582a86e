"""START (Jiang et al., ICDE 2023), before MTrajRec's decoder: matched roads as words, read with the time between them.

    g = TPE-GAT over the road network with transfer probabilities               nn/tpe_gat
    x_i = g(e_i) + PE(i) + minute(t_i) + weekday(t_i)                           e_i: the segment nearest to fix i
    A = softmax(Q K^T / sqrt(c) + b(|t_i - t_j|)) V,  post-norm layers, GELU    over [CLS, x_1..x_m]
    b(s) = w2 . LeakyReLU(w1 / ln(e + s) + b1) + b2                             of seconds; its own in each layer
    H = x_1..x_m, h_0 = CLS

START was made for matched trips, so a fix is told by the nearest segment (methods/road_tokens), or with ``soft_m`` by
a mean of those around it. Transfer probabilities count the turns of training trips: the share of the drives onto a
segment, as the authors' code has it, or off one (``by_source``).

Pre-training (``pretrain_epochs``, none by default) is on paths of training trips (methods/pretraining): guess the roads
of hidden spans, and tell two differently hidden copies of a trip, by their CLS, from those of the others.

Differences: a segment also has a learned vector, the decoder's (``ids``, not in ``authors``), else the encoder could
not tell places apart where the map says little; of the map there is class, length, degrees and speed; CLS stands at the
time of the first fix; no drop-path; two layers, the authors have six; the views of the contrast are hidden spans and
dropout alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.data.batch import Batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.popular import count_turns
from tedtrajrec.methods.pretraining import drawn_spans, guess_loss, pretrain
from tedtrajrec.methods.road_tokens import MINUTES, WEEKDAYS, DatedInputs, dated, minutes, road_tokens
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.gru_decoder import FACTS
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.tedformer import positions
from tedtrajrec.nn.time_attention import padding_bias
from tedtrajrec.nn.tpe_gat import TpeGat, turn_shares
from tedtrajrec.nn.transformer import TransformerLayer

FAST_MPS = 20.0  # a speed that counts as 1
HIDDEN, SPAN = 0.15, 2  # share of fixes that are hidden in pre-training, and how many in a row
CONTRAST = 0.05  # temperature


@dataclass(frozen=True)
class StartConfig(GruDecodedConfig):
    """Settings of START."""

    layers: int = 2
    heads: int = 8
    width: int = 512  # of the feed-forward networks
    road_heads: tuple[int, ...] = (8, 1)  # of the layers of TPE-GAT
    ids: bool = True  # whether segments have learned vectors
    by_source: bool = False  # whether transfer probabilities off a segment add up to 1, or those onto it
    soft_m: float = 0.0  # gamma of the mean of the segments around a fix; 0: the nearest alone
    pretrain_epochs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.heads, self.width, *self.road_heads) < 1 or self.layers < 0 or not self.road_heads:
            raise ValueError("heads, width and road_heads must be at least 1, layers at least 0")
        self.check_heads(self.heads)
        if self.soft_m < 0 or self.pretrain_epochs < 0:
            raise ValueError("soft_m and pretrain_epochs must not be negative")


class Start(GruDecodedMethod[StartConfig, DatedInputs]):
    """Roads that know their turns, and attention that knows the time between them (START + decoder)."""

    name: ClassVar[str] = "start"
    Config: ClassVar[type[StartConfig]] = StartConfig
    PRESETS: ClassVar[dict[str, StartConfig]] = {
        "default": StartConfig(),
        "paper": StartConfig(),
        "authors": StartConfig(layers=6, width=1024, road_heads=(8, 16, 1), ids=False),
    }

    speed: Tensor

    def __init__(self, network: RoadNetwork, config: StartConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        speed = torch.from_numpy(network.speed_mps / FAST_MPS).float()[:, None]
        self.register_buffer("speed", speed, persistent=False)
        said = FACTS + 1 + (c.road_width if c.ids else 0)
        self.road_gat = TpeGat(network, said, c.d, c.road_heads, dropout=c.dropout)
        self.minute = nn.Embedding(MINUTES, c.d)
        self.weekday = nn.Embedding(WEEKDAYS, c.d)
        self.cls, self.unknown = (nn.Parameter(torch.randn(c.d) * 0.02) for _ in range(2))
        self.layers = nn.ModuleList(TransformerLayer(c.d, c.heads, c.width, dropout=c.dropout) for _ in range(c.layers))
        self.intervals = nn.ModuleList(IntervalBias() for _ in range(c.layers))
        self.dropout = nn.Dropout(c.dropout)
        for table in (self.minute, self.weekday):
            nn.init.normal_(table.weight, std=0.02)

    def precompute(self, dataset: Dataset) -> None:
        """Count the turns of training trips; pre-train where the settings say so, unless weights came from a run."""
        c = self.config
        drives = drives_of(self.network, dataset.split("train").trips())
        share = turn_shares(self.network, count_turns(self.network, drives), by_source=c.by_source)
        self.road_gat.share.copy_(torch.from_numpy(share))
        self._outdate()
        if c.pretrain_epochs and self.start is None:
            task = Task(self)
            pretrain(self, dataset, task, task.loss, epochs=c.pretrain_epochs)

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> DatedInputs:
        """Return a batch as this method sees it."""
        return dated(batch, self.plain_inputs(batch, forced))

    def roads(self) -> Roads:
        """Return the roads of the decoder, and g [S, d] beside them."""
        said = [self.facts, self.speed] + [self.table] * self.config.ids
        return super().roads()._replace(more=self.road_gat(torch.cat(said, dim=1)))

    def fixes(self, inputs: DatedInputs, roads: Roads) -> FixStates:
        """Return the last states of the fixes; the decoder starts from that of CLS."""
        return self.read(inputs, cast("Tensor", roads.more))

    def read(self, inputs: DatedInputs, vectors: Tensor, hidden: Tensor | None = None) -> FixStates:
        """Return the last states of fixes and CLS.

        Parameters
        ----------
        inputs
            The fixes.
        vectors
            g of the segments [S, d].
        hidden
            Fixes whose road and time of day are not told [B, m].
        """
        c, plain = self.config, inputs.plain
        word = road_tokens(vectors, plain, self.unknown, eta_m=c.eta_m, soft_m=c.soft_m)
        when = self.minute(minutes(plain)) + self.weekday(inputs.weekday)
        x = word + when
        if hidden is not None:
            x = torch.where(hidden[..., None], self.unknown, x)
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], dim=1)
        x = self.dropout(x + positions(x.shape[1], c.d, x))
        seconds = functional.pad(inputs.seconds, (1, 0))  # CLS is at the start
        lag = (seconds[:, :, None] - seconds[:, None]).abs()
        real = padding_bias(functional.pad(plain.fix_mask, (1, 0), value=True), x)[:, None]
        for layer, interval in zip(self.layers, self.intervals, strict=True):
            x = layer(x, real + interval(lag))
        return FixStates(x[:, 1:], x[:, 0])


class IntervalBias(nn.Module):
    """What the time between two elements adds to their logit."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(1, hidden), nn.LeakyReLU(0.2), nn.Linear(hidden, 1))

    def forward(self, seconds: Tensor) -> Tensor:
        """Return b of times between elements [...]."""
        nearness = 1 / torch.log(torch.e + seconds)
        return cast("Tensor", self.network(nearness[..., None]).squeeze(-1))


class Task(nn.Module):
    """START's two tasks of pre-training."""

    def __init__(self, method: Start) -> None:
        super().__init__()
        self._method = (method,)  # whose weights are not part of the task
        d = method.config.d
        self.scores = nn.Linear(d, method.network.n_segments)
        self.project = nn.Linear(d, d)

    def loss(self, inputs: DatedInputs) -> Tensor:
        """Return the sum of both losses for two hidden copies of the paths of a batch."""
        (method,), mask = self._method, inputs.plain.fix_mask
        vectors = cast("Tensor", method.roads().more)
        road = torch.where(mask, inputs.plain.near_segment[..., 0], -1)
        guesses, views = [], []
        for _ in range(2):
            hidden = drawn_spans(mask, HIDDEN, SPAN)
            states, cls = method.read(inputs, vectors, hidden)
            guesses.append(guess_loss(self.scores, states, road, hidden))
            views.append(torch.tanh(self.project(cls)))
        return (guesses[0] + guesses[1]) / 2 + contrast(views[0], views[1])


def contrast(a: Tensor, b: Tensor) -> Tensor:
    """Return the loss of SimCLR for two views [B, d] of the same trips: each is to be nearest to its other view."""
    both = functional.normalize(torch.cat([a, b]), dim=-1)
    like = (both @ both.t() / CONTRAST).fill_diagonal_(-torch.inf)
    other = torch.arange(len(both), device=a.device).roll(len(a))
    return functional.cross_entropy(like, other)
