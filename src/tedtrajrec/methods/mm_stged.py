"""MM-STGED (Wei et al., TKDE 2024): the graph of a trip, the flow between segments, and the traffic of the hour.

    X     = GRU(column, row, step of the fixes), then a layer over the graph of the trip        nn/trajectory_graph
    h     = mean of X
    E     = node2vec of the flow: which segments past trips went on to within a step            methods/past/flow
    s_i   = sum_e C_ie E_e / sum_e C_ie,  C_ie = exp(-dist_ie^2 / beta^2)                       at fix i
    H_i   = MLP([X_i || s_i]),   h_0 = MLP([h || mean of s]) and the hour
    q     = mean over fixes of Q(hour, cell),  Q: convolutions of the traffic                   nn/road_condition
    decoder with q, the mean of E so far, and the flow as a mask                                nn/flow_decoder

Flow and traffic are those of training trips. Differences: links by time are |t_i - t_j| over the mean gap of the trip
(the authors take the difference in number, where all gaps are alike); no user, which the data do not have; means and
sums over a trip do not count padding, nor steps without a fix; a segment may always follow itself; the flow's floor is
that of the constraint mask (theirs, 1e-10, makes a transition never seen cost 23 nats); cells of the traffic are
square, 64 along the longer side of the city (theirs are 64 x 64), and of 100 m at least; walks of node2vec leave out
steps that stay on a segment. Teacher forcing is that of training (the authors' code has 0 where they write .5); no row
of zeros before the fixes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.data.clock import minute_of_day
from tedtrajrec.data.dataset import Dataset
from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedMethod
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.methods.mtrajrec import MTrajRecConfig
from tedtrajrec.methods.past.flow import HOURS, Flow, flow_of, no_flow, traffic_of
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.decoder import Encoded
from tedtrajrec.nn.flow_decoder import FlowCore, FlowDecoder, FlowMask
from tedtrajrec.nn.gru_decoder import FACTS, GruDecoder
from tedtrajrec.nn.node2vec import node2vec
from tedtrajrec.nn.point_features import point_features
from tedtrajrec.nn.road_condition import RoadCondition
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import start_recurrent
from tedtrajrec.nn.tedformer import masked_mean
from tedtrajrec.nn.trajectory_graph import TrajectoryGraph

FLOW = "flow."  # how names of its arrays begin in the state
SMALLEST_M = 100.0  # of a cell of the traffic
EDGES = 16  # times that the busiest way on from a segment counts in walks


@dataclass(frozen=True)
class MmStgedConfig(MTrajRecConfig):
    """Settings of MM-STGED."""

    flow_width: int = 64  # of E
    condition_width: int = 64  # of Q
    condition_cells: int = 64  # of the traffic, along the longer side of the city; fewer where that is small
    top_k: int = 10  # segments of a step that the flow goes on from
    seed: int = 0  # of node2vec

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("flow_width", "condition_width", "condition_cells", "top_k")


class MmStged(GruDecodedMethod[MmStgedConfig, Inputs]):
    """The graph of a trip with flow and traffic of past trips, before MTrajRec's decoder (MM-STGED)."""

    name: ClassVar[str] = "mm_stged"
    Config: ClassVar[type[MmStgedConfig]] = MmStgedConfig
    PRESETS: ClassVar[dict[str, MmStgedConfig]] = {
        "default": MmStgedConfig(),
        "paper": MmStgedConfig(raw_cells=True),
        "authors": MmStgedConfig(d=512, road_d=128, dropout=0.5, raw_cells=True, ratio_weight=10.0, mask_radius_m=50.0),
    }

    flow_vector: Tensor
    traffic: Tensor
    following: Tensor

    def __init__(self, network: RoadNetwork, config: MmStgedConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.grid = self.cells(c.cell_m)
        self.districts = self.cells(max(2 * self._extent / c.condition_cells, SMALLEST_M))
        self.encoder = nn.GRU(3, c.d, batch_first=True)
        start_recurrent(self.encoder)
        self.graph = TrajectoryGraph(c.d)
        self.mix_fix, self.mix_trip = (
            nn.Sequential(nn.Linear(c.d + c.flow_width, c.d), nn.ReLU(), nn.Linear(c.d, c.d)) for _ in range(2)
        )
        self.condition = RoadCondition(c.condition_width)
        self.register_buffer("flow_vector", torch.zeros(network.n_segments, c.flow_width))
        self.register_buffer("traffic", torch.zeros(HOURS, self.districts.rows, self.districts.columns))
        self._take_flow(no_flow(network.n_segments))

    def make_decoder(self) -> GruDecoder:
        """Return the decoder."""
        c = self.config
        return FlowDecoder(
            self.network.n_segments,
            c.d,
            c.road_width,
            condition=c.condition_width,
            flow=c.flow_width,
            dropout=c.dropout,
        )

    def _take_flow(self, flow: Flow) -> None:
        self.flow = flow
        following = torch.from_numpy(flow.padded())
        self.register_buffer("following", following.to(self.flow_vector.device), persistent=False)
        self._forget()

    def precompute(self, dataset: Dataset) -> None:
        """Learn flow and traffic of the training trips."""
        trips, s = dataset.split("train").trips(), self.network.n_segments
        self._take_flow(flow_of(trips, s))
        vectors = np.zeros((s, self.config.flow_width), np.float32)  # 0 where nobody went
        known, edges = np.unique(self.flow.edges(EDGES), return_inverse=True)
        if len(known):
            compact = edges.reshape(2, -1).astype(np.int64)
            vectors[known] = node2vec(compact, len(known), self.config.flow_width, seed=self.config.seed)
        self.flow_vector.copy_(torch.from_numpy(vectors))
        minute = minute_of_day(trips.time, dataset.info.time_zone)
        cells = self.districts.in_unit(self._extent, *self._middle.tolist())
        self.traffic.copy_(torch.from_numpy(traffic_of(trips, minute, self.network, cells)))

    def state(self) -> Arrays:
        """Return weights, calibration, and what was learned of past trips."""
        return super().state() | {FLOW + name: array for name, array in self.flow._asdict().items()}

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        self._take_flow(Flow(*(state[FLOW + name] for name in Flow._fields)))
        super().restore({name: array for name, array in state.items() if not name.startswith(FLOW)})

    def roads(self) -> Roads:
        """Return [X || f || E] of the segments, and Q."""
        static = torch.cat([self.vectors(), self.facts, self.flow_vector], dim=1)
        return Roads(static, None, None, self.condition(self.traffic))

    def fixes(self, inputs: Inputs, roads: Roads) -> FixStates:
        """Return the states of the fixes with what flows there; the decoder starts from the means of both."""
        c, mask = self.config, inputs.fix_mask
        told = self.grid.told(inputs.fix_xy, inputs.fix_step, raw=c.raw_cells)
        x, _ = self.encoder(told)
        x = self.graph(x, inputs.fix_time, inputs.fix_xy, mask)
        flow = Roads(roads.static[:, c.road_width + FACTS :], None, None)
        near = point_features(flow, inputs.nearby, inputs.fix_minute, eta_m=c.mask_radius_m, gamma_m=c.mask_beta_m)
        trip = torch.cat([masked_mean(x, mask), masked_mean(near, mask)], dim=-1)
        return FixStates(self.mix_fix(torch.cat([x, near], dim=-1)), self.mix_trip(trip))

    def encode(self, inputs: Inputs, roads: Roads) -> Encoded:
        """Return the encoded fixes; the first state of the decoder knows the hour and the condition of the roads."""
        encoded = super().encode(inputs, roads)
        core, condition = self.decoder.core, roads.more
        if not isinstance(core, FlowCore) or condition is None:
            raise TypeError("these are the roads or the decoder of another method")
        hour = (inputs.fix_minute / 60).long().clamp(0, HOURS - 1)
        at = hour * (self.districts.rows * self.districts.columns) + self.districts.number(inputs.fix_xy)
        q = masked_mean(nn.functional.embedding(at, condition), inputs.fix_mask)
        return encoded._replace(start=core.first(encoded.start, q))

    def mask(self, inputs: Inputs) -> FlowMask:
        """Return the constraint mask, and the flow at steps without a fix."""
        c = self.config
        observed = torch.zeros_like(inputs.segment).scatter_add(1, inputs.fix_step, inputs.fix_mask.long()) > 0
        return FlowMask(self.constraint(inputs), observed, self.following, k=c.top_k, floor=c.mask_floor)
