"""MMA, the matcher of TRMMA (Tian et al., ICDE 2025): which of the segments around it a fix belongs to.

    P = Transformer(W [x, y, step] + PE)                                   of the fixes
    c_ij = W' [E(e_j) || f_ij]                                             of candidate j, f: nine numbers
    a_i = sum_j softmax_j(v . tanh(U P_i + V c_ij)) c_ij                   attention of the fix to its candidates
    p_ij = sigmoid(MLP [P_i || a_i || c_ij])

The nine numbers are exp(-distance^2 / 15^2) and cosines of angles, see :func:`candidate_features`.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from tedtrajrec.nn.tedformer import positions
from tedtrajrec.nn.time_attention import padding_bias
from tedtrajrec.nn.transformer import Transformer

Floats = NDArray[np.float64]

FEATURES = 9
BETA_M = 15.0
STEPS = 64.0  # that count as 1


def candidate_features(
    fix: Floats, onward: Floats, came: Floats, start: Floats, end: Floats, place: Floats, distance_m: Floats
) -> NDArray[np.float32]:
    """Return the nine numbers of C candidates [C, 9].

    They are the weight of the distance, the cosines between the direction of the segment and five others: to the next
    fix, from the fix before, from its start to the fix, from the fix to its end, and from the fix to the nearest place
    on it; and the cosines between the last three. Where one of two directions is none, a cosine is 0.

    Parameters
    ----------
    fix
        Places of the fixes [C, 2], in metres, as all of these.
    onward, came
        From the fix to the next one, and from the one before to it [C, 2].
    start, end
        Of the segments [C, 2].
    place, distance_m
        Nearest on the segment to the fix [C, 2], and how far it is [C].
    """
    along, from_start, to_end, aside = end - start, fix - start, end - fix, place - fix
    turns = [(along, other) for other in (onward, came, from_start, to_end, aside)]
    turns += [(from_start, to_end), (from_start, aside), (to_end, aside)]
    cosines = []
    for a, b in turns:
        size = np.hypot(*a.T) * np.hypot(*b.T)
        cosines.append(np.divide((a * b).sum(axis=1), size, out=np.zeros(len(a)), where=size > 0))
    near = np.exp(-((distance_m / BETA_M) ** 2))
    return np.stack([near, *cosines], axis=1).clip(-1, 1).astype(np.float32)


class Mma(nn.Module):
    """Scores the candidates of fixes.

    Parameters
    ----------
    n_segments
        Of the network.
    d, heads, width, layers, dropout
        Of the Transformer; d is also the width of all else.
    """

    def __init__(self, n_segments: int, d: int, heads: int, width: int, layers: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.point = nn.Linear(3, d)
        self.encoder = Transformer(d, heads, width, layers, dropout=dropout)
        self.segments = nn.Embedding(n_segments, d)
        nn.init.normal_(self.segments.weight, std=d**-0.5)
        self.candidate = nn.Linear(d + FEATURES, d)
        self.of_fix, self.of_candidate = nn.Linear(d, d), nn.Linear(d, d, bias=False)
        self.attention = nn.Linear(d, 1, bias=False)
        self.score = nn.Sequential(nn.Linear(3 * d, 2 * d), nn.ReLU(), nn.Linear(2 * d, 1))

    def forward(
        self, xy: Tensor, step: Tensor, mask: Tensor, segment: Tensor, features: Tensor, exists: Tensor
    ) -> Tensor:
        """Return the logits of candidates [B, m, K].

        Parameters
        ----------
        xy, step, mask
            Of the fixes [B, m, 2], [B, m] and [B, m], False for padding.
        segment, features, exists
            Of the candidates [B, m, K], [B, m, K, FEATURES] and [B, m, K].
        """
        x = self.point(torch.cat([xy, step[..., None].to(xy.dtype) / STEPS], dim=-1))
        fixes = self.encoder(x + positions(x.shape[1], x.shape[2], x), mask)[:, :, None]  # P [B, m, 1, d]
        near = self.candidate(torch.cat([self.segments(segment), features.to(x.dtype)], dim=-1))  # c [B, m, K, d]
        logits = self.attention(torch.tanh(self.of_fix(fixes) + self.of_candidate(near))).squeeze(-1)
        weight = torch.softmax(logits + padding_bias(exists, logits), dim=-1)
        read = (weight[..., None] * near).sum(2, keepdim=True)  # a [B, m, 1, d]
        out: Tensor = self.score(torch.cat([fixes.expand_as(near), read.expand_as(near), near], dim=-1)).squeeze(-1)
        return out
