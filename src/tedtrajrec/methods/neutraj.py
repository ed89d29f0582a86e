"""NeuTraj (Yao et al., ICDE 2019), before MTrajRec's decoder: an LSTM with a memory of what was seen where.

    i, f, o, s = sigmoid(W x_t + U h_{t-1} + b),  g = tanh(likewise)                  one set of weights each
    c~ = f * c_{t-1} + i * g
    a = softmax(G c~),  m = a^T G                             G: memory of the (2w + 1)^2 cells around the fix
    c_t = c~ + s * tanh(W_his [m || c~] + b_his),  h_t = o * tanh(c_t)
    G_t <- s * G_t + (1 - s) * c_t                            the cell of the fix, in training only

The memory belongs to the grid, not to a trip: it starts from 0 and is kept from batch to batch and in the saved run. No
gradient passes through it or through what it is asked for (c~ in the third and fourth line). Cells that were never
written have no part in the softmax. H is all h_t, the decoder starts from the last.

Differences: only the encoder is taken, trained with the loss of the decoder and not with pairs of similar trips; a fix
is also told by its time, which NeuTraj does not know; fixes in the same cell are not merged; where several trips of a
batch write to a cell, it gets the mean of what they would write (the authors keep the last of them); a fix reads the
cells around itself (the authors' code mixes up those of the trips of a batch). In a write the gate weighs what was
there, as in the authors' code; in the paper, it seems, what is new (``gate_new``). There are two layers, each with a
memory of its own; theirs is one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from tedtrajrec.methods.base import Arrays
from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.cells import STEPS, Cells
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.sequences import last_real

MOST_CELLS = 1 << 17  # 134 MB of memory a layer at a width of 256
MEMORY, CELLS = ".memory", ".cells"  # how names in the state end


@dataclass(frozen=True)
class NeuTrajConfig(GruDecodedConfig):
    """Settings of NeuTraj."""

    layers: int = 2
    cell_m: float = 50.0  # doubled where a city is so large that there would be too many cells
    around: int = 2  # w
    gate_new: bool = False  # whether the gate weighs what is new in a write, or what was there

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("cell_m")
        if self.layers < 1 or self.around < 0:
            raise ValueError("layers must be at least 1, around at least 0")


class NeuTraj(GruDecodedMethod[NeuTrajConfig, Inputs]):
    """An LSTM that reads and writes a memory of the places around (NeuTraj + decoder)."""

    name: ClassVar[str] = "neutraj"
    Config: ClassVar[type[NeuTrajConfig]] = NeuTrajConfig
    PRESETS: ClassVar[dict[str, NeuTrajConfig]] = {
        "default": NeuTrajConfig(),
        "paper": NeuTrajConfig(),
        "authors": NeuTrajConfig(d=128, layers=1, cell_m=100.0),
    }

    def __init__(self, network: RoadNetwork, config: NeuTrajConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        cell_m = c.cell_m
        self.grid = self.cells(cell_m)
        while self.grid.columns * self.grid.rows > MOST_CELLS:
            cell_m *= 2
            self.grid = self.cells(cell_m)
        count = self.grid.columns * self.grid.rows
        self.layers = nn.ModuleList(SamLstm(c.d if k else 3, c.d, count, gate_new=c.gate_new) for k in range(c.layers))
        self.dropout = nn.Dropout(c.dropout)

    def fixes(self, inputs: Inputs, roads: Roads) -> FixStates:  # noqa: ARG002  (other encoders use it)
        """Return the states of the last layer; the decoder starts from that of the last fix."""
        places = addressed(self.grid, inputs.fix_xy, inputs.fix_mask, self.config.around)
        x = torch.cat([inputs.fix_xy, inputs.fix_time[..., None] / STEPS], dim=-1)
        for k, layer in enumerate(self.layers):
            x = layer(self.dropout(x) if k else x, places)
        return FixStates(x, last_real(x, inputs.fix_mask))

    def state(self) -> Arrays:
        """Return the weights and, of the memory, the cells that were written."""
        state = super().state()
        for name in [name for name in state if name.endswith(MEMORY)]:
            cells = np.flatnonzero(state[name][:-1].any(axis=1))
            state |= {name: state[name][cells], name + CELLS: cells}
        return state

    def restore(self, state: Arrays) -> None:
        """Take over what :meth:`state` returned."""
        whole = {name: array for name, array in state.items() if not name.endswith(CELLS)}
        rows = self.grid.columns * self.grid.rows + 1
        for name in [name for name in whole if name.endswith(MEMORY)]:
            memory = np.zeros((rows, whole[name].shape[1]), np.float32)
            memory[state[name + CELLS]] = whole[name]
            whole[name] = memory
        super().restore(whole)


class Places(NamedTuple):
    """Where in the memory fixes write and read."""

    own: Tensor  # [B, m] int64, the cell of the fix; for padding the row after the last cell, which is never read
    near: Tensor  # [B, m, K] int64, the cells around it
    inside: Tensor  # [B, m, K] bool, False where there is none, beyond the edge of the grid


def addressed(grid: Cells, xy: Tensor, mask: Tensor, around: int) -> Places:
    """Return the places of fixes at xy [B, m, 2] with so many cells on each side; the mask is False for padding."""
    column, row = grid.at(xy)
    side = torch.arange(-around, around + 1, device=xy.device)
    columns = (column[..., None, None] + side).expand(*column.shape, len(side), len(side))
    rows = (row[..., None, None] + side[:, None]).expand_as(columns)
    inside = (columns >= 0) & (columns < grid.columns) & (rows >= 0) & (rows < grid.rows)
    near = torch.where(inside, rows * grid.columns + columns, 0)
    own = torch.where(mask, row * grid.columns + column, grid.columns * grid.rows)
    return Places(own, near.flatten(-2), inside.flatten(-2))


class SamLstm(nn.Module):
    """An LSTM with spatial attention memory.

    Parameters
    ----------
    width, d
        Of what comes in and of the states.
    cells
        Of the grid.
    gate_new
        Whether the gate weighs what is new in a write, or what was there.
    """

    memory: Tensor

    def __init__(self, width: int, d: int, cells: int, *, gate_new: bool = False) -> None:
        super().__init__()
        self.d, self.gate_new = d, gate_new
        self.from_input = nn.Linear(width, 5 * d)  # i, f, o, s and g
        self.from_state = nn.Linear(d, 5 * d, bias=False)
        self.history = nn.Linear(2 * d, d)
        self.register_buffer("memory", torch.zeros(cells + 1, d))

    def forward(self, x: Tensor, places: Places) -> Tensor:
        """Return h of all fixes [B, m, d] of x [B, m, width]; in training they are remembered."""
        heard = self.from_input(x).unbind(1)
        state = cell = x.new_zeros(len(x), self.d)
        out = []
        for t, own in enumerate(places.own.unbind(1)):
            gates, new = (heard[t] + self.from_state(state)).split([4 * self.d, self.d], dim=-1)
            enter, forget, leave, space = torch.sigmoid(gates).chunk(4, dim=-1)
            plain = forget * cell + enter * torch.tanh(new)
            asked = plain.detach()
            read = self.read(asked, places.near[:, t], places.inside[:, t])
            cell = plain + space * torch.tanh(self.history(torch.cat([read, asked], dim=-1)))
            state = leave * torch.tanh(cell)
            if self.training:
                self.write(own, space, cell)
            out.append(state)
        return torch.stack(out, dim=1)

    @torch.no_grad()
    def read(self, query: Tensor, near: Tensor, inside: Tensor) -> Tensor:
        """Return what the memory around fixes says to queries [B, d]; 0 where nothing was written."""
        kept = self.memory[near]  # [B, K, d]
        score = (kept * query[:, None]).sum(-1)
        written = inside & (score != 0)
        weight = torch.softmax(score.masked_fill(~written, -torch.inf), dim=-1).masked_fill(~written, 0)
        return (weight[..., None] * kept).sum(1)

    @torch.no_grad()
    def write(self, own: Tensor, gate: Tensor, cell: Tensor) -> None:
        """Remember the states [B, d] of fixes in their cells [B]; the mean where there are several in one."""
        old, new = (cell, self.memory[own]) if self.gate_new else (self.memory[own], cell)
        wanted = gate * old + (1 - gate) * new
        same = own[:, None] == own
        mean = same.to(wanted.dtype) @ wanted / same.sum(1, keepdim=True)
        number = torch.arange(len(own), device=own.device)
        first = torch.where(same, number, len(own)).amin(1)  # all that write to a cell write the very same
        self.memory[own] = mean[first]
