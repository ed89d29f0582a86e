"""The two-way LSTM against torch's own on packed sequences."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tedtrajrec.nn.sequences import turned
from tedtrajrec.nn.two_way import TwoWayLstm


def test_states_and_gradients_are_those_of_packed_sequences() -> None:
    torch.manual_seed(3)
    ours = TwoWayLstm(3, 8, 2).double()
    theirs = nn.LSTM(3, 4, 2, batch_first=True, bidirectional=True).double()
    for layer in range(2):
        for end, stack in (("", ours.ahead), ("_reverse", ours.back)):
            for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                source = getattr(stack[layer], f"{kind}_l0")
                getattr(theirs, f"{kind}_l{layer}{end}").data.copy_(source.data)
    count = torch.tensor([5, 1, 3])
    mask = torch.arange(5) < count[:, None]
    x = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    packed = pack_padded_sequence(x, count, batch_first=True, enforce_sorted=False)
    expected, _ = pad_packed_sequence(theirs(packed)[0], batch_first=True)
    found = ours(x, mask)
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    ours_gradient, theirs_gradient = (torch.autograd.grad((y * weight).sum(), x)[0] for y in (found, expected))
    torch.testing.assert_close(ours_gradient, theirs_gradient)


def test_turned() -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    x = torch.arange(8.0).view(2, 4, 1)
    assert turned(x, mask).squeeze(-1).tolist() == [[2, 1, 0, 3], [4, 5, 6, 7]]
