"""Scores of going from one candidate to another within a step."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn import transitions_cpu
from tedtrajrec.nn.kernels import is_recorded, kernels_for
from tedtrajrec.nn.sequences import rows


class Moves(NamedTuple):
    """Ways from the candidates of one list to those of another: P matrices a trip, whose kinds take turns."""

    source: Tensor  # [B, P] the list that each matrix leads from
    target: Tensor  # [B, P] and to
    segment: Tensor  # [B, J, C] candidates of the lists
    rest: Tensor  # [B, J, C] steps to the end of a candidate from where a vehicle is at most
    enter: Tensor  # [B, J, C] steps from its start to there
    way: Tensor  # [B, P, C, C] int16, from the end of one to the start of another; negative where there is no way
    unit: float  # that many units of it are a step
    size: Tensor  # [B, J] candidates of each list, which come first in it


class TransitionScorer(nn.Module):
    """Scores of going from one candidate to another within a step.

    With u the steps that the way between the two takes, and v those with both segments driven whole, a vehicle at its
    usual pace takes one step if u <= 1 <= v. Weights of how far that fails are learned, others for each kind of move,

        T = w0 + w1 (u - 1/2)+ + w2 (u - 1)+ + w3 (1 - v)+ + w4 (2 - v)+,

    and likewise for staying on a segment, where u is 0. Where there is no way, T is that of a break.

    Parameters
    ----------
    kinds
        Number of kinds of moves.
    """

    def __init__(self, kinds: int) -> None:
        super().__init__()
        self.go = nn.Parameter(torch.tensor([0.0, -1.0, -2.0, -1.0, 0.0]).repeat(kinds, 1))
        self.stay = nn.Parameter(torch.tensor([0.0, 0.0, 0.0, -1.0, 0.0]).repeat(kinds, 1))
        self.break_score = nn.Parameter(torch.tensor([-8.0]))

    def between(self, moves: Moves) -> Tensor:
        """Return the scores of all moves [B, P, C, C].

        On CUDA devices with Triton and on processors kernels make them. Those of candidates that do not exist mean
        nothing.
        """
        kinds, (*parts, unit, size) = len(self.go), moves
        weights = torch.cat([self.go, self.stay, self.break_score.expand(kinds, 1)], dim=1)
        kernels = kernels_for("transitions_cuda", weights)
        pair: Tensor
        if kernels is not None:
            pair = kernels.transitions(weights, parts, unit)
            return pair
        if not is_recorded(weights) and weights.dtype == torch.float32:
            return transitions_cpu.transitions(weights, parts, unit, size)
        a, rest = (rows(part, moves.source)[..., :, None] for part in (moves.segment, moves.rest))  # [B, P, C, 1]
        b, enter = (rows(part, moves.target)[..., None, :] for part in (moves.segment, moves.enter))  # [B, P, 1, C]
        same, between = a == b, moves.way.to(rest.dtype) / moves.unit
        # Driven whole, a segment counts once where a vehicle stays on it.
        whole = torch.where(same, torch.minimum(rest, enter), rest + enter + between)
        kind = torch.arange(kinds, device=a.device).repeat(moves.way.shape[1] // kinds)
        pair = self(kind, between, whole, between >= 0, same)
        return pair

    def forward(self, kind: Tensor, between: Tensor, whole: Tensor, possible: Tensor, same: Tensor) -> Tensor:
        """Return the scores [B, P, C, C].

        Parameters
        ----------
        kind
            [P].
        between, whole
            u and v [B, P, C, C], in steps.
        possible, same
            Where there is a way, and where both are the same segment.
        """
        go, stay = (weights[kind][:, :, None, None] for weights in (self.go, self.stay))  # [P, 5, 1, 1]
        near, nearer = functional.relu(1 - whole), functional.relu(2 - whole)
        far, farther = functional.relu(between - 0.5), functional.relu(between - 1)
        moved = go[:, 0] + go[:, 1] * far + go[:, 2] * farther + go[:, 3] * near + go[:, 4] * nearer
        stayed = stay[:, 0] + stay[:, 3] * near + stay[:, 4] * nearer
        return torch.where(same, stayed, torch.where(possible, moved, self.break_score))
