"""The GRU in both directions against torch's over packed sequences."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tedtrajrec.nn.bidirectional import BiGru


def test_both_directions_are_those_of_torch() -> None:
    torch.manual_seed(0)
    ours = BiGru(3, 4).double()
    theirs = nn.GRU(3, 4, batch_first=True, bidirectional=True).double()
    with torch.no_grad():
        for name, weight in ours.on.named_parameters():
            getattr(theirs, name).copy_(weight)
        for name, weight in ours.back.named_parameters():
            getattr(theirs, name + "_reverse").copy_(weight)
    lengths = torch.tensor([5, 1, 3])
    mask = torch.arange(5) < lengths[:, None]
    x = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    found = ours(x, mask) * mask[..., None]
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(theirs(packed)[0], batch_first=True)[0]
    torch.testing.assert_close(found, expected)
    slopes, others = (torch.autograd.grad(out.sin().sum(), x)[0] for out in (found, expected))
    torch.testing.assert_close(slopes, others)


def test_a_sequence_of_nothing_but_padding() -> None:
    ours = BiGru(3, 4)
    assert ours(torch.randn(1, 2, 3), torch.zeros(1, 2, dtype=torch.bool)).isfinite().all()
