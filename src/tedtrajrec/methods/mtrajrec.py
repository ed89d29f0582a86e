"""MTrajRec (Ren et al., KDD 2021): a GRU reads cells and times, another one with attention writes positions.

    H_1..H_m = GRU(column, row, step of fixes 1..m)            in cells of 50 m;  h_0 from H_m and the hour
    a_i = sum_j softmax_j(v . tanh(W [h_{i-1} || H_j])) H_j    attention to the fixes
    h_i = GRU([a_i || X(e_{i-1}) || r_{i-1}], h_{i-1})         X: a learned vector of each segment
    P(e_i = e) ~ exp(w_e . h_i) C[i, e]                        C: near the fix at observed steps, 1 at others
    r_i = sigmoid(w . [ReLU(W [X(e_i) || h_i]) || f(e_i)])     f: length, class and degrees of the segment

All but the first line is :mod:`tedtrajrec.methods.gru_decoded`, which other methods share.

Differences: cells and steps are scaled to about 1 by default (``raw_cells`` gives plain counts, as the authors do); of
the environment there is the hour, weather and holidays are not in the data; f is that of the segment itself, where the
authors' code takes the one fed before; no row of zeros before the fixes; the hour is that of most fixes (theirs is the
number of such fixes); the classes of f are those of the map.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import nn

from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import last_real, start_recurrent


@dataclass(frozen=True)
class MTrajRecConfig(GruDecodedConfig):
    """Settings of MTrajRec."""

    cell_m: float = 50.0
    raw_cells: bool = False  # whether cells and steps are told as plain counts

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("cell_m")


class MTrajRec(GruDecodedMethod[MTrajRecConfig, Inputs]):
    """A GRU over cells and times, and the constrained multi-task GRU decoder (MTrajRec)."""

    name: ClassVar[str] = "mtrajrec"
    Config: ClassVar[type[MTrajRecConfig]] = MTrajRecConfig
    PRESETS: ClassVar[dict[str, MTrajRecConfig]] = {
        "default": MTrajRecConfig(),
        "paper": MTrajRecConfig(raw_cells=True),
        "authors": MTrajRecConfig(
            d=512, road_d=128, dropout=0.5, raw_cells=True, ratio_weight=10.0, mask_radius_m=50.0, mask_floor=1e-10
        ),
    }

    def __init__(self, network: RoadNetwork, config: MTrajRecConfig | None = None) -> None:
        super().__init__(network, config)
        self.grid = self.cells(self.config.cell_m)
        self.encoder = nn.GRU(3, self.config.d, batch_first=True)
        start_recurrent(self.encoder)

    def fixes(self, inputs: Inputs, roads: Roads) -> FixStates:  # noqa: ARG002  (other encoders use it)
        """Return the states of the GRU; the decoder starts from the last."""
        states, _ = self.encoder(self.grid.told(inputs.fix_xy, inputs.fix_step, raw=self.config.raw_cells))
        return FixStates(states, last_real(states, inputs.fix_mask))
