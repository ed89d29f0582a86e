"""What the parallel method sees of a batch: the tensors of all methods, the lattice, and what follows from them.

Features that differ from step to step are made on the device, from those of the lists and the clock.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.road_gnn import RoadGnn
from tedtrajrec.nn.sequences import rows
from tedtrajrec.nn.touched import LARGE, LARGE_CPU, SHARE, Part, no_part, rounded
from tedtrajrec.nn.transitions import Moves

MOVING = 11  # features of a candidate at a step
CLASSES = 16  # of roads


class ParallelInputs(NamedTuple):
    """A batch as tensors: that of step-by-step methods, and its lattice.

    In training on a large network it holds the part of it that it touches, and numbers of segments count in that.
    """

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
    unknown: Tensor  # [B, 1] int64, the same for all trips: 1 if the city is to be seen as a new one, else 0
    part_asked: Tensor  # [A] see :class:`~tedtrajrec.nn.touched.Part`; of size 0 where the network is seen as a whole
    part_around: Tensor  # [U - A]
    part_to_asked: Tensor  # [3, E]
    part_to_others: Tensor  # [3, F]

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
            kind = name.split("_")[0]
            if kind == "part":
                continue
            more = {
                "list": 2 * more_fixes, "near": more_fixes, "fix": more_fixes, "way": 3 * more_fixes, "unknown": 0,
            }.get(kind, more_steps)  # fmt: skip
            shape = (value.shape[0], more, *value.shape[2:])
            padded[name] = torch.cat([value, value.new_full(shape, fill.get(name, 0))], dim=1)
        part = no_part() if self.part is None else rounded(self.part)
        return ParallelInputs(**padded, **_fields(part))

    @property
    def candidates(self) -> tuple[Tensor, Tensor]:
        """The candidates of each step, and whether there are so many [B, n, C]."""
        return rows(self.list_segment, self.slot), rows(self.list_exists, self.slot)

    def touching(self, gnn: RoadGnn) -> ParallelInputs:
        """Return the batch with the part of a large network that it touches, where that is not most of it."""
        if len(gnn.table) <= (LARGE if gnn.table.is_cuda else LARGE_CPU):
            return self
        asked = np.concatenate([self.near_segment.numpy().ravel(), self.list_segment.numpy().ravel()])
        part, number = gnn.parts.around(asked, gnn.hops)
        if len(part.segment) > SHARE * len(gnn.table):
            return self
        near, listed = map(torch.from_numpy, np.split(number, [self.near_segment.numel()]))
        # A truth that lies outside is none of the candidates, and so is unknown to the loss.
        rising, order = torch.sort(part.asked)
        place = torch.searchsorted(rising, self.segment).clamp(max=len(order) - 1)
        truth = torch.where(rising[place] == self.segment, order[place], -1)
        return self._replace(
            near_segment=near.view_as(self.near_segment),
            list_segment=listed.view_as(self.list_segment),
            segment=truth,
            **_fields(part),
        )

    @property
    def part(self) -> Part | None:
        """The part of the network whose segments are meant; None for the whole."""
        part = Part(self.part_asked, self.part_around, self.part_to_asked, self.part_to_others)
        return part if part.asked.numel() else None

    @property
    def plain(self) -> Inputs:
        """The part that step-by-step methods have too."""
        return Inputs(*self[: len(Inputs._fields)])


def _fields(part: Part) -> dict[str, Tensor]:
    """Return the fields of a batch that hold a part."""
    return {f"part_{name}": value for name, value in part._asdict().items()}


def moving_features(inputs: ParallelInputs) -> tuple[Tensor, Tensor]:
    """Return what the clock says of candidates at steps: features [B, n, C, MOVING] and the ratio it suggests."""
    # Each feature lies in one piece, as what is made of it does: a tenth of the time where the memory is the limit.
    clock = (rows(part, inputs.slot) for part in inputs.list_clock.movedim(-1, 0).contiguous())  # of [B, n, C]
    before, whole, after, arrive, arrive_sd, leave, leave_sd, ratio = clock
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
        ]
    )
    guess = torch.where(is_gap, (share * total - before) / whole.clamp_min(0.5), ratio)
    return (features * is_gap).movedim(0, -1), guess.clamp(0, 1)


def moves_of(inputs: ParallelInputs, cost: Tensor, step_s: float) -> tuple[Moves, Tensor]:
    """Return three kinds of moves for each gap (inside it, into it, out of it), and which of them each step takes.

    Parameters
    ----------
    inputs
        A batch.
    cost
        Seconds to drive each segment of the network, as learned and as the map says [2, S].
    step_s
        Seconds of a step.
    """
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
    named = segment if inputs.part is None else inputs.part_asked[segment]
    steps = cost[inputs.unknown[..., None], named] / step_s
    is_fix = (torch.arange(lists, device=segment.device) % 2 == 0)[None, :, None]
    ratio = inputs.list_clock[..., 7]
    rest, enter = (torch.where(is_fix, share * steps, steps) for share in (1 - ratio, ratio))
    moves = Moves(source, target, segment, rest, enter, inputs.way, 100 * step_s, inputs.list_exists.sum(-1))
    here, there = inputs.slot[:, :-1], inputs.slot[:, 1:]
    kind = torch.where(here % 2 == 0, 1, torch.where(there == here, 0, 2))
    return moves, 3 * (here // 2) + kind


def minute_of_lists(inputs: ParallelInputs) -> Tensor:
    """Return the local minute of the day of each list [B, J]; that of a gap is in its middle."""
    fix = inputs.fix_minute
    following = torch.where(inputs.fix_mask[:, 1:], fix[:, 1:], fix[:, :-1])
    middle = torch.where(following >= fix[:, :-1], (fix[:, :-1] + following) / 2, fix[:, :-1])  # not over midnight
    lists = torch.stack([fix[:, :-1], middle], dim=-1).flatten(1)
    return torch.cat([lists, fix[:, -1:]], dim=1)


def attributes_of(network: RoadNetwork) -> Tensor:
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
