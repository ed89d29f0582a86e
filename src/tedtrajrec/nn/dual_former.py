"""DualFormer of TRMMA: a route that attends to itself and to the two fixes at its ends.

F' = TransformerLayer(F)                                     the fixes
R~ = LayerNorm(R + Attention(R, R)),  R^ = LayerNorm(R~ + Attention(R~, F')),  R' = LayerNorm(R^ + FFN(R^))
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn.transformer import TransformerLayer


class Attention(nn.Module):
    """Multi-head attention to a memory, added to what asks; norm last."""

    def __init__(self, d: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if d % heads:
            raise ValueError(f"{heads} heads do not divide a width of {d}")
        self.heads = heads
        self.query, self.key_value, self.out = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)
        self.norm, self.dropout = nn.LayerNorm(d), nn.Dropout(dropout)

    def forward(self, x: Tensor, memory: Tensor, bias: Tensor | None = None) -> Tensor:
        """Return x [B, q, d] with what it reads from a memory [B, k, d]; bias [B, 1, k] is added to all logits."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), *self.key_value(memory).chunk(2, dim=-1))
        )
        added = None if bias is None else bias[:, None].to(x.dtype)
        read = functional.scaled_dot_product_attention(query, key, value, added)
        out: Tensor = self.norm(x + self.dropout(self.out(read.transpose(1, 2).flatten(-2))))
        return out


class DualFormerLayer(nn.Module):
    """One layer over fixes and route.

    Parameters
    ----------
    d, heads, width, dropout
        Width, heads, width of the feed-forward networks, dropout of what the parts add.
    """

    def __init__(self, d: int, heads: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.fixes = TransformerLayer(d, heads, width, dropout=dropout)
        self.among, self.to_fixes = Attention(d, heads, dropout=dropout), Attention(d, heads, dropout=dropout)
        self.feed = nn.Sequential(nn.Linear(d, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, d))
        self.norm, self.dropout = nn.LayerNorm(d), nn.Dropout(dropout)

    def forward(self, route: Tensor, fixes: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
        """Return route [B, R, d] and fixes [B, 2, d] after the layer; bias [B, 1, R] is that of the route's padding."""
        fixes = self.fixes(fixes, bias.new_zeros(1, 1, fixes.shape[1]))
        route = self.to_fixes(self.among(route, route, bias), fixes)
        return self.norm(route + self.dropout(self.feed(route))), fixes
