"""A plain Transformer layer, to whose logits anything may be added.

y = LayerNorm(x + Attention(x)),   x' = LayerNorm(y + FFN(y)),   FFN(x) = W2 GELU(W1 x)
Attention: softmax(Q K^T / sqrt(c) + bias) V for each head of width c

torch has one, but in use it takes another way inside, which cannot always be recorded and whose work is not counted.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from tedtrajrec.nn.time_attention import padding_bias


class TransformerLayer(nn.Module):
    """One layer of self-attention, norms last.

    Parameters
    ----------
    d, heads
        Width, and number of heads that share it.
    width
        Of the feed-forward network.
    dropout
        Of attention weights and of what either part adds.
    """

    def __init__(self, d: int, heads: int, width: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        if d % heads:
            raise ValueError(f"{heads} heads do not divide a width of {d}")
        self.heads, self.chance = heads, dropout
        self.query_key_value = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)
        self.feed = nn.Sequential(nn.Linear(d, width), nn.GELU(), nn.Dropout(dropout), nn.Linear(width, d))
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's output for x [B, k, d]; the bias [B, q or 1, k] is added to the logits of all heads."""
        return self.attend(x, *self.parts(x), bias)

    def parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values [B, heads, k, c] of x [B, k, d]."""
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.query_key_value(x).chunk(3, dim=-1)
        )
        return query, key, value

    def attend(self, x: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor) -> Tensor:
        """Return the layer's output for x [B, q, d] with these queries, which may read more than x itself."""
        chance = self.chance if self.training else 0.0
        added = bias[:, None].to(x.dtype)
        read = functional.scaled_dot_product_attention(query, key, value, added, dropout_p=chance)
        x = self.norm1(x + self.dropout(self.out(read.transpose(1, 2).flatten(-2))))
        out: Tensor = self.norm2(x + self.dropout(self.feed(x)))
        return out


class Transformer(nn.Module):
    """A stack of such layers over sequences with padding.

    Parameters
    ----------
    d, heads, width, dropout
        Of the layers.
    layers
        How many.
    """

    def __init__(self, d: int, heads: int, width: int, layers: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(TransformerLayer(d, heads, width, dropout=dropout) for _ in range(layers))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the last states of x [B, k, d]; the mask [B, k] is False for padding."""
        bias = padding_bias(mask, x)[:, None]
        for layer in self.layers:
            x = layer(x, bias)
        return x
