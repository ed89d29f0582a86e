"""Two-stage methods that learn: a network says which cell of the city a trip is in at each step, a matcher which road.

Cells are squares that a road touches: others would be learned never to be visited. Places are told in cells from the
middle of the network.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import KDTree
from torch import Tensor

from tedtrajrec.data.batch import Batch
from tedtrajrec.methods.base import Recovered
from tedtrajrec.methods.learned import LearnedConfig, LearnedMethod
from tedtrajrec.methods.second_stage import Preset, SecondStage
from tedtrajrec.network.roadnet import RoadNetwork

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CellConfig(LearnedConfig):
    """Settings of methods that make cells of steps."""

    cell_m: float = 100.0
    preset: Preset = "song12"  # of the matcher

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_positive("cell_m")


CellSettings = TypeVar("CellSettings", bound=CellConfig)


class CellInputs(NamedTuple):
    """Fixes and steps of a batch in cells."""

    fix_mask: Tensor  # [B, m] bool
    fix_place: Tensor  # [B, m, 2]
    fix_cell: Tensor  # [B, m] int64
    fix_step: Tensor  # [B, m] int64
    step_mask: Tensor  # [B, n] bool
    observed: Tensor  # [B, n] bool
    before: Tensor  # [B, n] int64, the last fix up to the step
    after: Tensor  # [B, n] int64, the first fix from the step on
    cell: Tensor  # [B, n] int64, the truth; -1 for unknown and padding
    place: Tensor  # [B, n, 2] likewise
    forced: Tensor  # [B, n] bool, steps whose truth is fed to the next one in training

    def to(self, device: torch.device) -> CellInputs:
        """Return the tensors on a device."""
        return CellInputs(*(part.to(device, non_blocking=True) for part in self))

    def pin(self) -> CellInputs:
        """Return the tensors in memory that can be copied to a device while other work goes on."""
        return CellInputs(*(part.pin_memory() for part in self))

    def rounded(self, fixes: int = 4, steps: int = 8) -> CellInputs:
        """Return the batch with more padding, up to multiples of these, so that few shapes occur."""
        more_fixes, more_steps = -self.fix_mask.shape[1] % fixes, -self.step_mask.shape[1] % steps
        padded = {}
        for name, value in self._asdict().items():
            shape = (value.shape[0], more_fixes if name.startswith("fix") else more_steps, *value.shape[2:])
            padded[name] = torch.cat([value, value.new_full(shape, -1 if name == "cell" else 0)], dim=1)
        return CellInputs(**padded)


class Places(NamedTuple):
    """Where the first stage is at every step."""

    place: Tensor  # [B, n, 2]


class CellMethod(LearnedMethod[CellSettings, CellInputs], Generic[CellSettings]):
    """A first stage that learns, and the matcher behind it.

    Attributes
    ----------
    centres
        Of the cells [C, 2].
    """

    centres: Tensor

    def __init__(self, network: RoadNetwork, config: CellSettings | None = None) -> None:
        super().__init__(network, config)
        self.second = SecondStage(network, self.config.preset)
        centres = road_cells(network, self.config.cell_m)
        middle = self._middle.numpy().astype(np.float64)
        self.register_buffer(
            "centres", torch.from_numpy((centres - middle) / self.config.cell_m).float(), persistent=False
        )
        self._tree = KDTree(centres)

    @abstractmethod
    def places(self, inputs: CellInputs) -> Places:
        """Return where a batch is at its steps, those with a fix included."""

    def recover(self, batch: Batch) -> Recovered:
        """Return the position at every step; log_prob is the matcher's, NaN where it left the step out."""
        place = self._played("places", self.places, batch).place.cpu()[batch.step_mask.cpu()].double()
        x, y = (place * self.config.cell_m + self._middle).numpy().T
        lon, lat = self.network.plane.to_lonlat(x, y)
        return self._calibrated(batch, self.second.recover(batch, lon, lat))

    def inputs(self, batch: Batch, forced: Tensor | None = None) -> CellInputs:
        """Return a batch as this method sees it."""
        batch = batch.to("cpu")
        mask, steps = batch.fix_mask, torch.arange(batch.step_mask.shape[1])
        count = mask.sum(1, keepdim=True)
        known = batch.segment >= 0
        place = torch.zeros(*known.shape, 2, dtype=torch.float64)
        lon, lat = self.network.point_at(batch.segment[known].numpy(), batch.ratio[known].double().numpy())
        place[known] = torch.from_numpy(np.stack(self.network.plane.to_xy(lon, lat), axis=-1).astype(np.float64))
        when = batch.fix_step.masked_fill(~mask, torch.iinfo(torch.int64).max)
        each = steps.expand(len(batch), -1).contiguous()
        before = (torch.searchsorted(when, each, right=True) - 1).clamp_min(0)
        after = torch.searchsorted(when, each).minimum((count - 1).clamp_min(0))
        at = batch.fix_step.gather(1, before)
        return CellInputs(
            fix_mask=mask,
            fix_place=self._in_cells(batch.fix_xy.double()) * mask[..., None],
            fix_cell=self._cell_of(batch.fix_xy.double()),
            fix_step=batch.fix_step,
            step_mask=batch.step_mask,
            observed=(at == steps) & batch.step_mask,
            before=before,
            after=after,
            cell=self._cell_of(place).masked_fill(~known, -1),
            place=self._in_cells(place) * known[..., None],
            forced=torch.zeros_like(known) if forced is None else forced & known,
        )

    def _in_cells(self, xy: Tensor) -> Tensor:
        return ((xy - self._middle) / self.config.cell_m).float()

    def _cell_of(self, xy: Tensor) -> Tensor:
        """Return the nearest cells [...] of places [..., 2] in metres."""
        return torch.from_numpy(self._tree.query(xy.numpy())[1].astype(np.int64)).view(xy.shape[:-1])


def road_cells(network: RoadNetwork, cell_m: float) -> Floats:
    """Return the middles [C, 2] of the squares that roads touch, in metres, row by row."""
    count = np.ceil(network.length_m / (cell_m / 4)).astype(np.int64) + 1
    segment = np.repeat(np.arange(network.n_segments), count)
    number = np.arange(len(segment)) - np.repeat(np.cumsum(count) - count, count)
    x, y = network.plane.to_xy(*network.point_at(segment, number / (count[segment] - 1).clip(1)))
    west, south = math.floor(x.min()), math.floor(y.min())
    row, column = ((y - south) // cell_m).astype(np.int64), ((x - west) // cell_m).astype(np.int64)
    cells = np.unique(np.stack([row, column], axis=1), axis=0)
    middles: Floats = (cells[:, ::-1] + 0.5) * cell_m + np.array([west, south])
    return middles
