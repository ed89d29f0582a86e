"""The parallel decoder: a state for every step at once, and scores of the candidates of each step.

    q_i  = W [H_prev(i) || H_next(i)] + F(facts_i) + PE(i)          a query from the fixes before and after step i
    blocks:  q += TedAttn(q, H; t);  q += SelfAttn(q over the steps);  q += FFN(q)
    s(i, e) = a_i . b_e + MLP(static(i's list, e) + moving(i, e) + U q_i + V X(e))          score of candidate e
    r(i, e) = sigmoid(logit(guess(i, e)) + MLP([q_i || X(e) || moving(i, e)]))              position along it

Nothing here loops over steps, and nothing touches more segments than there are candidates.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn import scorer_cpu
from tedtrajrec.nn.existing import Existing
from tedtrajrec.nn.kernels import kernels_for
from tedtrajrec.nn.sequences import rows
from tedtrajrec.nn.tedformer import positions
from tedtrajrec.nn.time_attention import Activation, Kind, TimeAttention


class StepBlock(nn.Module):
    """One layer: time-aware attention to the fixes, plain attention among the steps, feed-forward; pre-norm."""

    def __init__(
        self, d: int, heads: int, width: int, *, kind: Kind, activation: Activation, among: bool, dropout: float
    ) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(d) for _ in range(3))
        self.to_fixes = TimeAttention(d, heads, kind=kind, activation=activation, dropout=dropout)
        self.among = nn.Linear(d, 3 * d) if among else None
        self.out = nn.Linear(d, d) if among else None
        self.feed = nn.Sequential(nn.Linear(d, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, d))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, step_time: Tensor, step_mask: Tensor, memory: Memory) -> Tensor:
        """Return the states [B, n, d] after this layer."""
        read = self.to_fixes.read(self.norms[0](x).transpose(0, 1), step_time, *memory)
        x = x + self.dropout(read.transpose(0, 1))
        if self.among is not None and self.out is not None:
            b, n, d = x.shape
            q, k, v = self.among(self.norms[1](x)).view(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
            heard = functional.scaled_dot_product_attention(q, k, v, attn_mask=step_mask[:, None, None, :])
            x = x + self.dropout(self.out(heard.transpose(1, 2).reshape(b, n, d)))
        out: Tensor = x + self.dropout(self.feed(self.norms[2](x)))
        return out


class Memory(NamedTuple):
    """The fixes of a batch as an encoder sees them."""

    states: Tensor  # [B, m, d]
    time: Tensor  # [B, m] in steps
    mask: Tensor  # [B, m]


class StepStates(nn.Module):
    """States of all steps from the fixes.

    Parameters
    ----------
    d, heads, width, layers
        Sizes.
    facts
        Number of plain facts about a step.
    among
        Whether steps attend to each other.
    kind, activation, dropout
        Of the attention to the fixes.
    """

    def __init__(
        self,
        d: int,
        heads: int,
        width: int,
        layers: int,
        facts: int,
        *,
        among: bool = True,
        kind: Kind = "ted",
        activation: Activation = "lecun",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.around = nn.Linear(2 * d, d)
        self.facts = nn.Sequential(nn.Linear(facts, d), nn.GELU(), nn.Linear(d, d))
        self.blocks = nn.ModuleList(
            StepBlock(d, heads, width, kind=kind, activation=activation, among=among, dropout=dropout)
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(d)

    def forward(self, memory: Memory, previous: Tensor, following: Tensor, facts: Tensor, step_mask: Tensor) -> Tensor:
        """Return the states [B, n, d].

        Parameters
        ----------
        memory
            The fixes.
        previous, following
            The fix at or before each step, and that at or after it [B, n].
        facts
            [B, n, facts].
        step_mask
            [B, n].
        """
        d = memory.states.shape[-1]
        pair = torch.cat([rows(memory.states, previous), rows(memory.states, following)], dim=-1)
        n = facts.shape[1]
        x = self.around(pair) + self.facts(facts) + positions(n, d, pair)
        time = torch.arange(n, device=x.device, dtype=memory.time.dtype).expand(len(x), n)
        for block in self.blocks:
            x = block(x, time, step_mask, memory)
        out: Tensor = self.norm(x)
        return out


class CandidateScorer(nn.Module):
    """Scores and positions of the candidates of each step.

    Parameters
    ----------
    d, hidden
        Width of states, and of the network that looks at features.
    static, moving
        Number of features of a candidate that are the same at all steps of its list, and of those that are not.
    dropout
        Of the features' network.
    """

    def __init__(self, d: int, hidden: int, static: int, moving: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)
        self.from_static = nn.Linear(static, hidden)
        self.from_moving = nn.Linear(moving, hidden, bias=False)
        self.from_state = nn.Linear(d, hidden, bias=False)
        self.from_road = nn.Linear(d, hidden, bias=False)
        self.mix = nn.Sequential(nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(), self.drop)
        self.score = nn.Linear(hidden, 1)
        self.shift = nn.Linear(hidden, 1)
        self.key = nn.Linear(d, d)
        self.scale = d**-0.5

    def of_existing(
        self, states: Tensor, roads: Tensor, there: Existing, static: Tensor, moving: Tensor, guess: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return scores and ratios of the candidates of steps that exist [Q].

        Parameters
        ----------
        states
            [B, n, d].
        roads
            X of the candidates of lists that exist [E, d].
        there
            Which exist.
        static
            Features of these [E, .].
        moving, guess
            Those of the candidates of steps, and their positions [Q, .] and [Q].
        """
        key = functional.embedding(there.packed, self.key(roads))  # [B, K, d]
        identity = (states @ key.mT).flatten()[there.product_of_pair] * self.scale
        lists, state = self.from_static(static) + self.from_road(roads), self.from_state(states).flatten(0, 1)
        outer = map(torch.cat, zip(self.score.parameters(), self.shift.parameters(), strict=True))
        weights = scorer_cpu.Weights(self.from_moving.weight, *self.mix[1].parameters(), *outer)
        places = scorer_cpu.Places(there.entry_of_pair, there.step_of_pair, moving)
        dropout = self.drop.p if self.training else 0.0
        score, shift = scorer_cpu.answers(lists, state, places, weights, dropout).unbind(-1)
        return identity + score, torch.sigmoid(torch.logit(guess.clamp(0.02, 0.98)) + shift)

    def forward(
        self, states: Tensor, roads: Tensor, slot: Tensor, static: Tensor, moving: Tensor, guess: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return scores and ratios of the candidates of each step [B, n, C].

        Parameters
        ----------
        states
            [B, n, d].
        roads
            X of the candidates of each list [B, J, C, d].
        slot
            The list of each step [B, n].
        static
            Features of candidates [B, J, C, .].
        moving, guess
            Features of candidates at steps [B, n, C, .], and their position as geometry has it [B, n, C], 0 to 1.
        """
        b, n, _ = states.shape
        j, c = roads.shape[1:3]
        products = states @ self.key(roads).flatten(1, 2).transpose(1, 2) * self.scale  # [B, n, J x C]
        own = slot[:, :, None, None].expand(b, n, 1, c)
        identity = products.view(b, n, j, c).gather(2, own).squeeze(2)
        lists, state = self.from_static(static) + self.from_road(roads), self.from_state(states)
        weight, bias = map(torch.cat, zip(self.score.parameters(), self.shift.parameters(), strict=True))
        kernels = None if torch.is_grad_enabled() or self.training else kernels_for("scorer_cuda", states)
        if kernels is None:
            mixed = self.mix(rows(lists, slot) + self.from_moving(moving) + state[:, :, None])  # [B, n, C, hidden]
            score, shift = functional.linear(mixed, weight, bias).unbind(-1)  # at once, as what they read is large
        else:
            mixed = self.mix[1](kernels.first_layer(lists, slot, state, moving, self.from_moving.weight))
            score, shift = kernels.last_layer(mixed, weight, bias)
        logit = torch.logit(guess.clamp(0.02, 0.98)) + shift
        return identity + score, torch.sigmoid(logit)
