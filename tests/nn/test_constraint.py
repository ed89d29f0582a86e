"""The constraint mask: the sparse form gives the probabilities of the dense one."""

from __future__ import annotations

import math

import pytest
import torch

from tedtrajrec.nn.constraint import constrain
from tests.nn import literal

S = 20


@pytest.mark.parametrize(
    ("radius_m", "beta_m", "floor"), [(100.0, 15.0, 1e-6), (50.0, 15.0, 1e-10), (80.0, 40.0, 1e-2), (30.0, 15.0, 1.0)]
)
@pytest.mark.parametrize("seed", [0, 1])
def test_equals_the_dense_mask(seed: int, radius_m: float, beta_m: float, floor: float) -> None:
    inputs = literal.double(literal.made_inputs(S, seed))
    b, n = inputs.step_mask.shape
    constraint = constrain(
        inputs.nearby, inputs.fix_step, inputs.fix_mask, n, radius_m=radius_m, beta_m=beta_m, floor=floor
    )
    assert (constraint.bonus >= 0).all()
    logits = torch.randn(b, n, S, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    found = torch.softmax(constraint.add_to(logits.clone()), dim=-1)
    for i in range(b):
        mask = literal.dense_mask(inputs, i, S, radius_m=radius_m, beta_m=beta_m, floor=floor)
        weight = torch.exp(logits[i]) * mask
        torch.testing.assert_close(found[i], weight / weight.sum(-1, keepdim=True), rtol=1e-9, atol=1e-14)
        for step in range(n):
            one = constraint.each()[step].add_to(logits[:, step].clone())
            torch.testing.assert_close(torch.softmax(one, dim=-1)[i], found[i, step])


def test_only_observed_steps_are_constrained() -> None:
    inputs = literal.made_inputs(S, 4)
    constraint = constrain(inputs.nearby, inputs.fix_step, inputs.fix_mask, inputs.step_mask.shape[1])
    observed = torch.zeros_like(inputs.step_mask)
    for i in range(len(observed)):
        observed[i, inputs.fix_step[i, inputs.fix_mask[i]]] = True
    assert ((constraint.bonus > 0).any(-1) <= observed).all()
    assert (constraint.bonus[observed] > 0).any()
    assert float(constraint.bonus.max()) <= -math.log(1e-6) + 1e-4


def test_gradient_passes_to_the_logits_alone() -> None:
    inputs = literal.made_inputs(S, 2)
    constraint = constrain(inputs.nearby, inputs.fix_step, inputs.fix_mask, inputs.step_mask.shape[1])
    weight = torch.randn(*inputs.step_mask.shape, S, requires_grad=True)
    (gradient,) = torch.autograd.grad(constraint.add_to(weight * 2).sum(), [weight])
    assert (gradient == 2).all()
