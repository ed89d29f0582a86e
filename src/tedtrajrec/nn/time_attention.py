"""Time-aware attention: keys that move with the clock between their own time and that of the query.

The paper's TedAttn (``ted``) lets each projected key follow the closed form of a liquid time-constant cell,

    k_j(t) = g * xi2(K_j) + (1 - g) * xi3(K_j),   g = sigmoid(-xi1(K_j) (t - t_j)),   xi(x) = act(W x + b),

and attends with logits Q_i . k_j(t_i) / sqrt(d). Two other kinds serve its first ablation: ``full`` ignores time, and
``exp_decay`` adds to plain logits a learned function of the interval, b(1 / ln(e + |t_i - t_j|)) as in START.

Keys depend on the memory and on the clock alone, not on the query. So they are computed once for all queries
(:meth:`TimeAttention.evolve`) and a decoder's loop only multiplies (:meth:`TimeAttention.attend`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn.kernels import kernels_for

Kind = Literal["ted", "exp_decay", "full"]
Activation = Literal["lecun", "tanh", "gelu", "selu"]


def lecun(x: Tensor) -> Tensor:
    """Return the scaled tanh of LeCun (1989): 1.7159 tanh(2/3 x)."""
    return 1.7159 * torch.tanh(x * (2 / 3))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "lecun": lecun,
    "tanh": torch.tanh,
    "gelu": functional.gelu,
    "selu": functional.selu,
}


def padding_bias(mask: Tensor, like: Tensor) -> Tensor:
    """Return what is added to logits so that padding has no weight: finite, so that nothing but padding is no NaN."""
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(~mask, -1e4)


class Evolved(NamedTuple):
    """Keys as seen at the times of the queries, and values; c = d / heads."""

    key: Tensor  # [q, B, heads, k, c], already times 1 / sqrt(d); q is 1 where keys do not move
    bias: Tensor  # [q, B, 1, k] added to the logits: the padding, and what the interval says
    value: Tensor  # [B, heads, k, c]

    def each(self, queries: int) -> list[Evolved]:
        """Return the keys of each query, without q; taken apart at once, so that gradients are put together at once."""
        keys, biases = (
            part.unbind(0) if part.shape[0] == queries else part.unbind(0) * queries for part in (self.key, self.bias)
        )
        return [Evolved(key, bias, self.value) for key, bias in zip(keys, biases, strict=True)]


class TimeAttention(nn.Module):
    """Multi-head attention over a memory whose elements have times.

    Parameters
    ----------
    d, heads
        Width, and number of heads that share it.
    kind
        ``ted``, ``exp_decay`` or ``full``.
    activation
        Of the three networks of the closed form.
    dropout
        Of attention weights.
    """

    def __init__(
        self, d: int, heads: int, *, kind: Kind = "ted", activation: Activation = "lecun", dropout: float = 0.0
    ) -> None:
        super().__init__()
        if d % heads:
            raise ValueError(f"{heads} heads do not divide a width of {d}")
        self.heads, self.kind, self.scale = heads, kind, 1 / math.sqrt(d)
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d)
        self.value = nn.Linear(d, d)
        self.out = nn.Linear(d, d)
        self.dropout = nn.Dropout(dropout)
        if kind == "ted":
            c = d // heads
            self.activation = ACTIVATIONS[activation]
            self.cell_weight = nn.Parameter(torch.empty(heads, c, 3 * c))  # xi1, xi2, xi3 of each head
            self.cell_bias = nn.Parameter(torch.zeros(heads, 3 * c))
            nn.init.uniform_(self.cell_weight, -1 / math.sqrt(c), 1 / math.sqrt(c))
        elif kind == "exp_decay":
            self.interval = nn.Sequential(nn.Linear(1, 64), nn.LeakyReLU(0.2), nn.Linear(64, 1))

    def evolve(self, memory: Tensor, memory_time: Tensor, query_time: Tensor, mask: Tensor) -> Evolved:
        """Return the keys of a memory as they stand at the times of all queries.

        Parameters
        ----------
        memory
            [B, k, d].
        memory_time, query_time
            [B, k] and [B, q], in steps.
        mask
            [B, k], False for padding.
        """
        key = self._split(self.key(memory))  # [B, heads, k, c]
        value = self._split(self.value(memory))
        bias = padding_bias(mask, key)[None, :, None]  # [1, B, 1, k]
        if self.kind == "full":
            return Evolved(key[None] * self.scale, bias, value)
        lag = query_time.t()[:, :, None] - memory_time[None]  # [q, B, k]
        if self.kind == "exp_decay":
            nearness = 1 / torch.log(math.e + lag.abs())
            interval = self.interval(nearness[..., None].to(key.dtype)).squeeze(-1)
            return Evolved(key[None] * self.scale, bias + interval[:, :, None], value)
        rate, early, late = self._cell(key)
        gate = torch.sigmoid(-rate[None] * lag[:, :, None, :, None].to(key.dtype))  # [q, B, heads, k, c]
        return Evolved(torch.addcmul(late, gate, early - late), bias, value)

    def _cell(self, key: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rates of keys [B, heads, k, c], and what they are early and late, times 1 / sqrt(d)."""
        cell = torch.einsum("bhkc,hcx->bhkx", key, self.cell_weight) + self.cell_bias[:, None]
        rate, early, late = self.activation(cell).chunk(3, dim=-1)
        return rate, early * self.scale, late * self.scale

    def read(self, query: Tensor, query_time: Tensor, memory: Tensor, memory_time: Tensor, mask: Tensor) -> Tensor:
        """Return what all queries [q, B, d] read, in the same shape: :meth:`evolve` and :meth:`attend` at once.

        On CUDA devices with Triton a kernel does it, and the keys of all queries are never stored; parameters are those
        of :meth:`evolve`.
        """
        kernels = kernels_for("attention_cuda", self.query.weight) if self.kind == "ted" else None
        if kernels is None or torch.is_autocast_enabled(memory.device.type):
            return self.attend(query, self.evolve(memory, memory_time, query_time, mask))
        asked = self.query(query).unflatten(-1, (self.heads, -1))  # [q, B, heads, c]
        cell = torch.cat(self._cell(self._split(self.key(memory))), dim=-1)
        keep = None
        if self.training and self.dropout.p > 0:
            keep = self.dropout(asked.new_ones(*asked.shape[:3], memory.shape[1]))
        bias = padding_bias(mask, asked)
        read = kernels.attend(asked, cell, self._split(self.value(memory)), memory_time, query_time, bias, keep)
        out: Tensor = self.out(read.flatten(-2))
        return out

    def attend(self, query: Tensor, evolved: Evolved) -> Tensor:
        """Return what queries [q, B, d], or one query [B, d], read from the memory, in the same shape."""
        split = self.query(query).unflatten(-1, (self.heads, 1, -1))
        logits = (split * evolved.key).sum(-1) + evolved.bias  # [q, B, heads, k]
        weight = self.dropout(torch.softmax(logits, dim=-1))
        out: Tensor = self.out((weight[..., None] * evolved.value).sum(-2).flatten(-2))
        return out

    def _split(self, x: Tensor) -> Tensor:
        b, k, d = x.shape
        return x.view(b, k, self.heads, d // self.heads).transpose(1, 2)
