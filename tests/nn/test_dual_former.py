"""DualFormer against torch's own layers: that of a decoder for the route, that of an encoder for the fixes."""

from __future__ import annotations

import torch
from torch import nn

from tedtrajrec.nn.dual_former import Attention, DualFormerLayer
from tedtrajrec.nn.time_attention import padding_bias


def copy_attention(ours: Attention, theirs: nn.MultiheadAttention, norm: nn.LayerNorm) -> None:
    theirs.in_proj_weight.data.copy_(torch.cat([ours.query.weight, ours.key_value.weight]).data)
    theirs.in_proj_bias.data.copy_(torch.cat([ours.query.bias, ours.key_value.bias]).data)
    theirs.out_proj.load_state_dict(ours.out.state_dict())
    norm.load_state_dict(ours.norm.state_dict())


def test_a_layer_is_that_of_torch() -> None:
    torch.manual_seed(4)
    ours = DualFormerLayer(8, 2, 12).double()
    for part in ours.parameters():
        part.data += 0.1 * torch.randn_like(part)
    kind = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "dtype": torch.float64}
    decoder = nn.TransformerDecoderLayer(8, 2, 12, **kind)
    encoder = nn.TransformerEncoderLayer(8, 2, 12, **kind)
    copy_attention(ours.among, decoder.self_attn, decoder.norm1)
    copy_attention(ours.to_fixes, decoder.multihead_attn, decoder.norm2)
    decoder.linear1.load_state_dict(ours.feed[0].state_dict())
    decoder.linear2.load_state_dict(ours.feed[3].state_dict())
    decoder.norm3.load_state_dict(ours.norm.state_dict())
    of_fixes = ours.fixes
    encoder.self_attn.in_proj_weight.data.copy_(of_fixes.query_key_value.weight.data)
    encoder.self_attn.in_proj_bias.data.copy_(of_fixes.query_key_value.bias.data)
    encoder.self_attn.out_proj.load_state_dict(of_fixes.out.state_dict())
    encoder.linear1.load_state_dict(of_fixes.feed[0].state_dict())
    encoder.linear2.load_state_dict(of_fixes.feed[3].state_dict())
    encoder.norm1.load_state_dict(of_fixes.norm1.state_dict())
    encoder.norm2.load_state_dict(of_fixes.norm2.state_dict())

    route, fixes = torch.randn(3, 5, 8).double(), torch.randn(3, 2, 8).double()
    mask = torch.arange(5) < torch.tensor([5, 2, 4])[:, None]
    found_route, found_fixes = ours(route, fixes, padding_bias(mask, route)[:, None])
    expected = encoder(fixes)
    torch.testing.assert_close(found_fixes, expected)
    torch.testing.assert_close(found_route[mask], decoder(route, expected, tgt_key_padding_mask=~mask)[mask])
