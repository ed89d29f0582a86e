"""The plain Transformer layer against torch's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tedtrajrec.nn.transformer import Transformer, TransformerLayer


def torchs(layer: TransformerLayer, d: int, heads: int, width: int) -> nn.TransformerEncoderLayer:
    """Return torch's layer with the same weights."""
    other = nn.TransformerEncoderLayer(d, heads, width, dropout=0.0, activation="gelu", batch_first=True)
    with torch.no_grad():
        pairs = [
            (other.self_attn.in_proj_weight, layer.query_key_value.weight),
            (other.self_attn.in_proj_bias, layer.query_key_value.bias),
        ]
        parts = [
            (other.self_attn.out_proj, layer.out),
            (other.linear1, layer.feed[0]),
            (other.linear2, layer.feed[3]),
            (other.norm1, layer.norm1),
            (other.norm2, layer.norm2),
        ]
        for theirs, ours in parts:
            pairs += [(theirs.weight, ours.weight), (theirs.bias, ours.bias)]
        for to, weight in pairs:
            to.copy_(weight)
    return other.double()


def test_layer_is_that_of_torch_with_a_bias() -> None:
    torch.manual_seed(0)
    d, heads = 8, 2
    layer = TransformerLayer(d, heads, 12).double()
    other = torchs(layer, d, heads, 12)
    x = torch.randn(3, 5, d, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 5, 5, dtype=torch.float64, requires_grad=True)
    found = layer(x, bias)
    expected = other(x, src_mask=bias.repeat_interleave(heads, dim=0))
    torch.testing.assert_close(found, expected)
    slopes, others = (torch.autograd.grad(out.sin().sum(), [x, bias]) for out in (found, expected))
    for a, b in zip(slopes, others, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("length", [1, 4])
def test_padding_changes_nothing(length: int) -> None:
    torch.manual_seed(1)
    stack = Transformer(8, 2, 12, 2).double()
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[:, :length] = True

    def alone(part: Tensor) -> Tensor:
        out: Tensor = stack(part, torch.ones(part.shape[:2], dtype=torch.bool))
        return out

    torch.testing.assert_close(stack(x, mask)[:, :length], alone(x[:, :length]))


def test_heads_must_divide_the_width() -> None:
    with pytest.raises(ValueError, match="3 heads do not divide"):
        TransformerLayer(8, 3, 12)
