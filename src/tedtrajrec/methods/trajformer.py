"""TrajFormer (Liang et al., CIKM 2022), before MTrajRec's decoder: continuous points and a squeezed Transformer.

    z_i = ReLU(W [x, y, speed, acceleration, gap, time]_i)
    a_ik = softmax_k MLP(distance_ik, time_k - time_i)         over the 9 fixes around fix i, for each head
    x_i = z_i + sum_k a_ik V z_k                               the kernel depends on intervals alone, not on content
    x = x + softmax(Q K(s)^T / sqrt(c)) V(s),  x = x + FFN(x)  layers with norms first, over [CLS, x_1..x_m]
    s = [CLS, max of each r fixes that follow each other]      what is attended to, r times shorter
    H = x_1..x_m,  h_0 from CLS

Differences: fixes outside of a trip have no part in the kernel, where the authors let rows of zeros in; their mask of s
is ordered differently from s itself where r > 1, here it is not; gap and time of a fix are among its features, because
the decoder must know when fixes were; the auxiliary loss of all tokens is left out, since the decoder supervises them;
intervals are in kilometres and steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.methods.gru_decoded import FixStates, GruDecodedConfig, GruDecodedMethod
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.time_attention import padding_bias

FEATURES = 6  # of a fix
GAP_STEPS, TRIP_STEPS = 8.0, 64.0  # steps that count as 1: of an interval, of a trip
FAST_M = 300.0  # metres in a step that count as 1
MOST = 5.0  # of a speed or an acceleration: fixes may be a moment apart


@dataclass(frozen=True)
class TrajFormerConfig(GruDecodedConfig):
    """Settings of TrajFormer."""

    layers: int = 2
    heads: int = 4
    window: int = 9  # fixes around a fix, itself among them
    pool: int = 2  # r: fixes that are attended to as one

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.heads, self.pool) < 1 or self.layers < 0:
            raise ValueError("heads and pool must be at least 1, layers at least 0")
        self.check_heads(self.heads)
        if self.window < 1 or self.window % 2 == 0:
            raise ValueError("window must be odd")


class TrajFormer(GruDecodedMethod[TrajFormerConfig, Inputs]):
    """Kernels over the intervals between fixes, and a Transformer with pooled keys (TrajFormer + decoder)."""

    name: ClassVar[str] = "trajformer"
    Config: ClassVar[type[TrajFormerConfig]] = TrajFormerConfig
    PRESETS: ClassVar[dict[str, TrajFormerConfig]] = {
        "default": TrajFormerConfig(),
        "paper": TrajFormerConfig(),
        "authors": TrajFormerConfig(d=64, layers=3, dropout=0.2),
    }

    def __init__(self, network: RoadNetwork, config: TrajFormerConfig | None = None) -> None:
        super().__init__(network, config)
        c = self.config
        self.token = nn.Linear(FEATURES, c.d)
        self.embedding = ContinuousPoints(c.d, c.heads, c.window, dropout=c.dropout)
        self.cls = nn.Parameter(torch.randn(c.d) * 0.02)
        self.layers = nn.ModuleList(SqueezedLayer(c.d, c.heads, c.pool, dropout=c.dropout) for _ in range(c.layers))
        self.norm = nn.LayerNorm(c.d)
        for part in (self.token, self.embedding, self.layers):
            part.apply(_start_weights)

    def fixes(self, inputs: Inputs, roads: Roads) -> FixStates:  # noqa: ARG002  (other encoders use it)
        """Return the last states of the fixes; the decoder starts from that of CLS."""
        metres = inputs.fix_xy * self._extent
        x = functional.relu(self.token(features(metres, inputs.fix_xy, inputs.fix_time)))
        x = self.embedding(x, metres, inputs.fix_time, inputs.fix_mask)
        x = torch.cat([self.cls.expand(len(x), 1, -1), x], dim=1)
        for layer in self.layers:
            x = layer(x, inputs.fix_mask)
        x = self.norm(x)
        return FixStates(x[:, 1:], x[:, 0])


def features(metres: Tensor, xy: Tensor, time: Tensor) -> Tensor:
    """Return what is said of each fix [B, m, FEATURES].

    Parameters
    ----------
    metres, xy
        Where it is, in metres and scaled [B, m, 2].
    time
        When, in steps [B, m].
    """
    gap = time.diff(dim=1, prepend=time[:, :1])  # 0 for the first
    per_step = torch.where(gap > 0, 1 / gap.clamp_min(1e-3), 0)
    way = metres.diff(dim=1, prepend=metres[:, :1]).norm(dim=-1)
    speed = (way / FAST_M * per_step).clamp(max=MOST)
    faster = (speed.diff(dim=1, prepend=speed[:, :1]) * per_step).clamp(-MOST, MOST)
    return torch.cat([xy, torch.stack([speed, faster, gap / GAP_STEPS, time / TRIP_STEPS], dim=-1)], dim=-1)


class ContinuousPoints(nn.Module):
    """Continuous point embedding: a convolution over fixes whose kernel follows from the intervals between them.

    Parameters
    ----------
    d, heads
        Width, and how many kernels share it.
    window
        How many fixes it goes over.
    dropout
        Within the network of the kernel.
    """

    def __init__(self, d: int, heads: int, window: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.kernel = nn.Sequential(
            nn.Linear(2, 64), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(64, 128), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(128, heads),
        )  # fmt: skip
        self.value = nn.Linear(d, d)

    def forward(self, x: Tensor, metres: Tensor, time: Tensor, mask: Tensor) -> Tensor:
        """Return fixes [B, m, d] with what is around them; of their place in metres [B, m, 2] and time in steps [B, m].

        The mask [B, m] is False for padding.
        """
        there, when, real = (self._around(part) for part in (metres, time[..., None], mask[..., None].to(x.dtype)))
        distance = (there - metres[:, :, None]).norm(dim=-1) / 1000  # [B, m, k]
        interval = torch.stack([distance, (when[..., 0] - time[..., None]) / GAP_STEPS], dim=-1)
        logit = self.kernel(interval.to(x.dtype)) + padding_bias(real > 0, x)  # [B, m, k, heads]
        value = self._around(self.value(x))
        value = value.reshape(*value.shape[:3], self.heads, x.shape[-1] // self.heads)  # [B, m, k, heads, c]
        out: Tensor = x + (torch.softmax(logit, dim=2)[..., None] * value).sum(2).flatten(-2)
        return out

    def _around(self, x: Tensor) -> Tensor:
        """Return the elements around each [B, m, k, .]; zeros beyond the ends."""
        side = self.window // 2
        return functional.pad(x, (0, 0, side, side)).unfold(1, self.window, 1).transpose(2, 3)


class SqueezedLayer(nn.Module):
    """A Transformer layer, norms first, that attends to CLS and to the maxima of fixes that follow each other."""

    def __init__(self, d: int, heads: int, pool: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.pool, self.chance = heads, pool, dropout
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.query = nn.Linear(d, d)
        self.key_value = nn.Linear(d, 2 * d)
        self.feed = nn.Sequential(
            nn.Linear(d, 4 * d), nn.GELU(), nn.Dropout(dropout), nn.Linear(4 * d, d), nn.Dropout(dropout)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the layer's output for CLS and fixes [B, 1 + m, d]; the mask of fixes [B, m] is False for padding."""
        normed = self.norm1(x)
        squeezed, real = pooled(normed[:, 1:], mask, self.pool)
        memory = torch.cat([normed[:, :1], squeezed], dim=1)
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(normed), *self.key_value(memory).chunk(2, dim=-1))
        )
        bias = padding_bias(functional.pad(real, (1, 0), value=True), x)[:, None, None]
        chance = self.chance if self.training else 0.0
        read = functional.scaled_dot_product_attention(query, key, value, bias, dropout_p=chance)
        x = x + self.dropout(read.transpose(1, 2).flatten(-2))
        out: Tensor = x + self.feed(self.norm2(x))
        return out


def pooled(x: Tensor, mask: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return the maxima of each ``size`` elements of x [B, m, d], and whether any of them is real: only those count."""
    b, m, d = x.shape
    more = -m % size
    real = functional.pad(mask, (0, more)).view(b, (m + more) // size, size)
    blocks = functional.pad(x, (0, 0, 0, more)).view(*real.shape, d)
    some = real.any(2)
    most = blocks.masked_fill(~real[..., None], -torch.inf).amax(2)
    return most.masked_fill(~some[..., None], 0), some


def _start_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        nn.init.zeros_(module.bias)
