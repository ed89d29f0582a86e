"""JGRM (Ma et al., WWW 2024), before MTrajRec's decoder: fixes and roads as two views of a trip, read together.

    GPS    u_i = GRU(W [1, x, y, speed, acceleration, turn, interval, way]_i)      within the road, from nothing
           gps = BiGRU(u_1..u_m)                                                   between roads
    route  r_i = GAT(e_i) + place(i) + weekday(t_i) + minute(t_i) + until(next)    e_i: the segment nearest to fix i
           route = Transformer(W r_1..r_m)
           until(s) = softmax(w s + b) T                                           minutes in soft bins; T is learned
    joint  Transformer of W ([mean gps, gps_1..gps_m, mean route, route_1..route_m] + place + view)
    H_i = W [gps_i || route_i],  h_0 = W [gps trip || route trip]                  of what comes out

JGRM was made for matched trips, so a fix is told by the nearest segment (methods/road_tokens), or with ``soft_m`` by
a mean of those around it. There is one fix to a road, and the GRU within it makes one step; fixes on the same segment
are not merged, so that H has one state for each fix.

Pre-training (``pretrain_epochs``, none by default) is on paths of training trips (methods/pretraining): guess the roads
of spans that are hidden in both views, and tell whether two views are of the same trip.

Differences: features of fixes are scaled by their mean and deviation over training trips thinned to 1/8, and cut at 5;
of the GRU within a road one direction is there, the other is never used; dropout of attention weights in place of that
of edges; layers of roads add what they were given (``road_skip``, not in ``authors``), else a segment is hard to tell
from its neighbours; vectors of roads start from random ones; the time until the next fix is 0 for the last, and told in
minutes; layers of the route are two, the authors' four. In pre-training a negative is never the trip itself (in the
authors' code it can be).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GATConv

from tedtrajrec.data.batch import Batch, make_batch
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.data.sampling import draw_observed
from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.pretraining import drawn_spans, guess_loss, pretrain
from tedtrajrec.methods.road_tokens import MINUTES, WEEKDAYS, DatedInputs, dated, minutes, road_tokens
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.bidirectional import BiGru
from tedtrajrec.nn.road_gnn import neighbours
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import start_recurrent
from tedtrajrec.nn.tedformer import masked_mean
from tedtrajrec.nn.transformer import Transformer

FEATURES = 7  # of a fix, besides a constant
MOST = 5.0  # deviations from the mean that count
PLACES = 256  # that have a vector; fixes beyond share the last
BINS = 100  # of intervals
THINNED = "1/8"  # trips from which features are scaled
HIDDEN, SPAN = 0.2, 2  # share of fixes that are hidden in pre-training, and how many in a row
NEAR = 0.07  # temperature of the choice of negatives


@dataclass(frozen=True)
class JgrmConfig(GruDecodedConfig):
    """Settings of JGRM."""

    route_layers: int = 2
    joint_layers: int = 2
    road_layers: int = 2
    heads: int = 8  # of the route and of the roads
    joint_heads: int = 4
    width: int = 512  # of the feed-forward networks
    road_skip: bool = True  # whether layers of roads add what they were given
    soft_m: float = 0.0  # gamma of the mean of the segments around a fix; 0: the nearest alone
    pretrain_epochs: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.heads, self.joint_heads, self.width) < 1:
            raise ValueError("heads, joint_heads and width must be at least 1")
        if self.d % 2 or self.d // 2 % self.heads or self.d % self.joint_heads:
            raise ValueError(f"heads must divide half of the width d of {self.d}, and joint_heads the whole")
        if min(self.route_layers, self.joint_layers, self.road_layers, self.soft_m, self.pretrain_epochs) < 0:
            raise ValueError("layers, soft_m and pretrain_epochs must not be negative")


class Views(NamedTuple):
    """What is said of fixes and of the trip, by both views."""

    gps: Tensor  # [B, m, d]
    route: Tensor  # [B, m, d]
    gps_trip: Tensor  # [B, d]
    route_trip: Tensor  # [B, d]


class Jgrm(GruDecodedMethod[JgrmConfig, DatedInputs]):
    """Fixes and roads as two views of a trip, joined by a Transformer (JGRM + decoder)."""

    name: ClassVar[str] = "jgrm"
    Config: ClassVar[type[JgrmConfig]] = JgrmConfig
    PRESETS: ClassVar[dict[str, JgrmConfig]] = {
        "default": JgrmConfig(),
        "paper": JgrmConfig(),
        "authors": JgrmConfig(route_layers=4, width=256, road_skip=False),
    }

    edges: Tensor
    mean: Tensor
    deviation: Tensor

    def __init__(self, network: RoadNetwork, config: JgrmConfig | None = None) -> None:
        super().__init__(network, config)
        c, half = self.config, self.config.d // 2
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("deviation", torch.ones(FEATURES))
        self.point = nn.Linear(1 + FEATURES, half)
        self.within = nn.GRUCell(half, half)
        start_recurrent(self.within)
        self.between = BiGru(half, half)

        self.road_table = nn.Parameter(torch.randn(network.n_segments, half) / math.sqrt(half))
        self.register_buffer("edges", neighbours(network, loops=True), persistent=False)
        self.road_gat = nn.ModuleList(
            GATConv(half, half // c.heads, c.heads, dropout=c.dropout, add_self_loops=False, residual=c.road_skip)
            for _ in range(c.road_layers)
        )
        self.unknown = nn.Parameter(torch.randn(half) * 0.02)
        self.place, self.weekday, self.minute = (nn.Embedding(n, half) for n in (PLACES, WEEKDAYS, MINUTES))
        self.until = nn.Sequential(nn.Linear(1, BINS), nn.Softmax(dim=-1), nn.Linear(BINS, half, bias=False))
        self.into_route = nn.Linear(half, c.d)
        self.route = Transformer(c.d, c.heads, c.width, c.route_layers, dropout=c.dropout)

        self.joint_place, self.view = nn.Embedding(PLACES, c.d), nn.Embedding(2, c.d)
        self.into_joint = nn.Linear(c.d, c.d)
        self.joint = Transformer(c.d, c.joint_heads, c.width, c.joint_layers, dropout=c.dropout)
        self.to_fix, self.to_start = (nn.Linear(2 * c.d, c.d) for _ in range(2))
        self.dropout = nn.Dropout(c.dropout)
        for table in (self.place, self.weekday, self.minute, self.joint_place, self.view):
            nn.init.normal_(table.weight, std=0.02)

    def precompute(self, dataset: Dataset) -> None:
        """Learn the scale of features; pre-train where the settings say so, unless weights came from a run."""
        count, sums, squares = 0, torch.zeros(FEATURES).double(), torch.zeros(FEATURES).double()
        for trips in dataset.split("train").shards():
            seen = draw_observed(trips, THINNED, seed=0)
            info = dataset.info
            batch = make_batch(trips, seen, self.network, step_s=info.step_s, time_zone=info.time_zone)
            values = features((batch.fix_xy - self._middle), batch.fix_time)[batch.fix_mask].double()
            count, sums, squares = count + len(values), sums + values.sum(0), squares + (values**2).sum(0)
        mean = sums / max(count, 1)
        self.mean.copy_(mean)
        self.deviation.copy_((squares / max(count, 1) - mean**2).clamp_min(1e-6).sqrt())
        self._outdate()
        if self.config.pretrain_epochs and self.start is None:
            task = Task(self)
            pretrain(self, dataset, task, task.loss, epochs=self.config.pretrain_epochs)

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> DatedInputs:
        """Return a batch as this method sees it."""
        return dated(batch, self.plain_inputs(batch, forced))

    def roads(self) -> Roads:
        """Return the roads of the decoder, and those of the route [S, d / 2] beside them."""
        x: Tensor = self.road_table
        for k, layer in enumerate(self.road_gat):
            x = layer(functional.elu(x) if k else x, self.edges)
        return super().roads()._replace(more=x)

    def fixes(self, inputs: DatedInputs, roads: Roads) -> FixStates:
        """Return both views of each fix as one; the decoder starts from those of the trip."""
        views = self.views(inputs, cast("Tensor", roads.more))
        gps, route, gps_trip, route_trip = self.joined(views, inputs.plain.fix_mask)
        start = self.to_start(torch.cat([gps_trip, route_trip], dim=-1))
        return FixStates(self.to_fix(torch.cat([gps, route], dim=-1)), start)

    def views(self, inputs: DatedInputs, vectors: Tensor, hidden: Tensor | None = None) -> Views:
        """Return either view by itself.

        Parameters
        ----------
        inputs
            The fixes.
        vectors
            Of the segments [S, d / 2].
        hidden
            Fixes of which neither view is told anything [B, m].
        """
        c, plain = self.config, inputs.plain
        mask = plain.fix_mask
        scaled = (features(plain.fix_xy * self._extent, inputs.seconds) - self.mean) / self.deviation
        point = self.point(functional.pad(scaled.clamp(-MOST, MOST), (1, 0), value=1.0))
        word = road_tokens(vectors, plain, self.unknown, eta_m=c.eta_m, soft_m=c.soft_m)
        word = word + self.weekday(inputs.weekday) + self.minute(minutes(plain)) + self.until(_until(inputs))
        if hidden is not None:
            point = point.masked_fill(hidden[..., None], 0)
            word = torch.where(hidden[..., None], self.unknown, word)
        gps = self.between(self.within(point.flatten(0, 1)).unflatten(0, point.shape[:2]), mask)
        route = self.route(self.dropout(self.into_route(word + self.place(_places(mask)))), mask)
        return Views(gps, route, masked_mean(gps, mask), masked_mean(route, mask))

    def joined(self, views: Views, mask: Tensor) -> Views:
        """Return what the views say after they have heard of each other; the mask of fixes is [B, m]."""
        gps = torch.cat([views.gps_trip[:, None], views.gps], dim=1)
        route = torch.cat([views.route_trip[:, None], views.route], dim=1)
        real = functional.pad(mask, (1, 0), value=True)
        place = self.joint_place(_places(real))
        tokens = torch.cat([gps + place + self.view.weight[0], route + place + self.view.weight[1]], dim=1)
        out = self.joint(self.dropout(self.into_joint(tokens)), torch.cat([real, real], dim=1))
        gps, route = out.chunk(2, dim=1)
        return Views(gps[:, 1:], route[:, 1:], gps[:, 0], route[:, 0])


def features(metres: Tensor, seconds: Tensor) -> Tensor:
    """Return what is said of each fix [B, m, FEATURES], in metres, seconds and radians.

    Where it is, then speed, acceleration, turn, interval and way since the fix before; 0 for the first.

    Parameters
    ----------
    metres
        Where it is, from the middle of the network [B, m, 2].
    seconds
        When [B, m].
    """
    move = metres.diff(dim=1, prepend=metres[:, :1])
    interval = seconds.diff(dim=1, prepend=seconds[:, :1])
    way = move.norm(dim=-1)
    per_second = torch.where(interval > 0, 1 / interval.clamp_min(1), 0)
    speed = way * per_second
    faster = speed.diff(dim=1, prepend=speed[:, :1]) * per_second
    course = torch.atan2(move[..., 1], move[..., 0])
    both = (way > 0) & (functional.pad(way, (1, 0))[:, :-1] > 0)  # else one of them has no direction
    turn = course.diff(dim=1, prepend=course[:, :1])
    turn = torch.where(both, torch.remainder(turn + math.pi, 2 * math.pi) - math.pi, 0)
    return torch.cat([metres, torch.stack([speed, faster, turn, interval, way], dim=-1)], dim=-1)


def _until(inputs: DatedInputs) -> Tensor:
    """Return the minutes until the next fix [B, m, 1]; 0 for the last."""
    later = functional.pad(inputs.seconds[:, 1:], (0, 1))
    real = functional.pad(inputs.plain.fix_mask[:, 1:], (0, 1))
    return torch.where(real, (later - inputs.seconds) / 60, 0)[..., None]


def _places(mask: Tensor) -> Tensor:
    return torch.arange(mask.shape[1], device=mask.device).clamp_max(PLACES - 1).expand_as(mask)


class Task(nn.Module):
    """JGRM's tasks of pre-training."""

    def __init__(self, method: Jgrm) -> None:
        super().__init__()
        self._method = (method,)  # whose weights are not part of the task
        d, n = method.config.d, method.network.n_segments
        self.gps_scores, self.route_scores = nn.Linear(d, n), nn.Linear(d, n)
        self.gps, self.route = nn.Linear(d, d), nn.Linear(d, d)
        self.same = nn.Linear(2 * d, 2)

    def loss(self, inputs: DatedInputs) -> Tensor:
        """Return the losses of the hidden roads and of the matching of views, for the paths of a batch."""
        (method,), mask = self._method, inputs.plain.fix_mask
        road = torch.where(mask, inputs.plain.near_segment[..., 0], -1)
        hidden = drawn_spans(mask, HIDDEN, SPAN)
        views = method.views(inputs, cast("Tensor", method.roads().more), hidden)
        joined = method.joined(views, mask)
        guesses = guess_loss(self.gps_scores, joined.gps, road, hidden)
        guesses = guesses + guess_loss(self.route_scores, joined.route, road, hidden)
        gps = functional.normalize(self.gps(views.gps_trip), dim=-1)
        route = functional.normalize(self.route(views.route_trip), dim=-1)
        return (guesses + 2 * self.match(gps, route)) / 3

    def match(self, gps: Tensor, route: Tensor) -> Tensor:
        """Return the loss of telling views [B, d] of one trip from those of two; near ones are asked for more often."""
        if len(gps) < 2:
            return gps.sum() * 0  # there is no other trip
        with torch.no_grad():
            like = (gps @ route.t() / NEAR).fill_diagonal_(-torch.inf)
            other_route = torch.multinomial(like.softmax(1), 1)[:, 0]
            other_gps = torch.multinomial(like.t().softmax(1), 1)[:, 0]
        pairs = torch.cat([gps, gps, gps[other_gps]]), torch.cat([route, route[other_route], route])
        is_same = torch.arange(len(pairs[0]), device=gps.device) < len(gps)
        return functional.cross_entropy(self.same(torch.cat(pairs, dim=-1)), is_same.long())
