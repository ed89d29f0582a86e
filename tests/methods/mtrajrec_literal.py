"""MTrajRec's decoder written out step by step, for all methods that have it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tedtrajrec.methods.gru_decoded import GruDecodedMethod
from tedtrajrec.methods.learned import Inputs
from tedtrajrec.nn.decoder import Encoded, GruCore
from tedtrajrec.nn.gru_decoder import FACTS, GruDecoder, HourStart
from tests.nn import literal


def gru(cell: nn.GRUCell | nn.GRU, x: Tensor, state: Tensor) -> Tensor:
    """Return the next state of a GRU [d]."""
    weights = dict(cell.named_parameters())
    w, u, b, c = (weights.get(name) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    if w is None or u is None or b is None or c is None:
        w, u, b, c = (weights[f"{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    r0, z0, n0 = (w @ x + b).chunk(3)
    r1, z1, n1 = (u @ state + c).chunk(3)
    reset, update = torch.sigmoid(r0 + r1), torch.sigmoid(z0 + z1)
    return (1 - update) * torch.tanh(n0 + reset * n1) + update * state


def first_state(module: HourStart, start: Tensor, minutes: Tensor) -> Tensor:
    """Return h_0 [d] from the encoder's [d] and the minutes of the real fixes."""
    hours = [int(minute // 60) for minute in minutes]
    most = max(range(24), key=hours.count)  # the first of several
    hour = torch.tanh(module.hour.weight[:, most] + module.hour.bias)
    return torch.tanh(module.mix.weight @ torch.cat([hour, start]) + module.mix.bias)


def losses(method: GruDecodedMethod[Any, Any], inputs: Inputs, encoded: Encoded) -> tuple[Tensor, Tensor]:
    """Return the mean losses of segments and ratios; in training, what is fed is predicted or forced."""
    decoder, c = method.decoder, method.config
    assert isinstance(decoder, GruDecoder)
    core = decoder.core
    assert isinstance(core, GruCore)
    x, facts = method.vectors(), method.facts.to(method.table.dtype)
    segment_loss: Any = 0.0
    ratio_loss: Any = 0.0
    count = 0

    def ratio_of(state: Tensor, segment: int) -> Tensor:
        first = decoder.along[0]
        hidden = torch.clamp(first.weight @ torch.cat([x[segment], state]) + first.bias, min=0)
        assert facts.shape[1] == FACTS
        return torch.sigmoid(
            decoder.to_ratio.weight[0] @ torch.cat([hidden, facts[segment]]) + decoder.to_ratio.bias[0]
        )

    for b in range(len(inputs.segment)):
        mask = literal.dense_mask(inputs, b, len(x), radius_m=c.mask_radius_m, beta_m=c.mask_beta_m, floor=c.mask_floor)
        real = inputs.fix_mask[b]
        memory, state = encoded.states[b, real], encoded.start[b]
        heard = torch.zeros(x.shape[1] + 1, dtype=x.dtype)
        for i in range(int(inputs.step_mask[b].sum())):
            state = literal.step(core, state, heard, memory, inputs.fix_time[b, real], i)
            score = torch.exp(decoder.score.weight @ state + decoder.score.bias) * mask[i]
            true = int(inputs.segment[b, i])
            segment_loss = segment_loss - torch.log(score[true] / score.sum())
            ratio_loss = ratio_loss + (ratio_of(state, true) - inputs.ratio[b, i]) ** 2
            count += 1
            fed, ratio = int(score.argmax()), None
            if inputs.forced[b, i]:
                fed, ratio = true, inputs.ratio[b, i]
            heard = torch.cat([x[fed], (ratio_of(state, fed).detach() if ratio is None else ratio)[None]])
    return segment_loss / count, ratio_loss / count
