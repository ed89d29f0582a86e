"""The step-by-step decoder against a plain loop over trips and steps, for both cores."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.nn.between import Between
from tedtrajrec.nn.constraint import Constraint, constrain
from tedtrajrec.nn.decoder import Core, Encoded, Fed, GruCore, StepDecoder, TedFormerCore, step_times
from tedtrajrec.nn.roads import Roads
from tedtrajrec.nn.segment_loss import segment_loss
from tedtrajrec.nn.waves import Waves
from tests.nn import literal

S, D, HEADS = 15, 8, 2
MASK = {"radius_m": 100.0, "beta_m": 15.0, "floor": 1e-6}
CORES: dict[str, Any] = {
    "ted": lambda: TedFormerCore(D, HEADS, 12, 2, kind="ted", dropout=0.2),
    "exp_decay": lambda: TedFormerCore(D, HEADS, 12, 1, kind="exp_decay"),
    "full": lambda: TedFormerCore(D, HEADS, 12, 1, kind="full"),
    "between": lambda: TedFormerCore(D, HEADS, 12, 1, between=Between(D, Waves(D, 0.1, 4.0), 0.05)),
    "gru": lambda: GruCore(D),
}


class Case:
    """A decoder with all that it reads, in double precision."""

    def __init__(self, core: str, seed: int = 0) -> None:
        torch.manual_seed(seed)
        made: Core = CORES[core]()
        self.decoder = StepDecoder(made, S, D, dropout=0.3).double().eval()
        for parameter in self.decoder.parameters():
            nn.init.normal_(parameter, std=0.5)
        self.inputs: Inputs = literal.double(literal.made_inputs(S, seed))
        i = self.inputs
        states = torch.randn(*i.fix_mask.shape, D, dtype=torch.float64) * i.fix_mask[..., None]
        start = torch.randn(len(states), D, dtype=torch.float64)
        self.encoded = Encoded(states.requires_grad_(), start.requires_grad_(), i.fix_time, i.fix_mask, i.fix_xy)
        self.roads = Roads(*(torch.randn(*shape, dtype=torch.float64) for shape in ((S, D), (S, D), (D,))))
        self.constraint = constrain(i.nearby, i.fix_step, i.fix_mask, i.step_mask.shape[1], **MASK)
        self.masks = [literal.dense_mask(i, b, S, **MASK) for b in range(len(states))]
        self.lengths: list[int] = i.step_mask.sum(1).tolist()
        self.truth = Fed(i.segment.clamp_min(0), i.ratio, i.forced)

    def literal(self, fed: Fed | None = None) -> list[list[tuple[int, Tensor, Tensor, Tensor]]]:
        return literal.decode(
            self.decoder, self.encoded, self.roads, self.inputs.step_minute, self.masks, self.lengths, fed
        )

    def decode(self, fed: Fed | None = None) -> Any:
        return self.decoder.decode(self.encoded, self.roads, self.inputs.step_minute, self.constraint, fed)

    def states(self, fed: Fed) -> Tensor:
        return self.decoder.states(self.encoded, self.roads, self.inputs.step_minute, fed)


@pytest.fixture(params=list(CORES))
def case(request: pytest.FixtureRequest) -> Case:
    return Case(request.param)


def test_equals_a_plain_loop(case: Case) -> None:
    found = case.decode()
    for b, trip in enumerate(case.literal()):
        for i, (segment, ratio, log_prob, _) in enumerate(trip):
            assert int(found.segment[b, i]) == segment
            assert float(found.ratio[b, i]) == pytest.approx(float(ratio.detach()), rel=1e-9)
            assert float(found.log_prob[b, i]) == pytest.approx(float(log_prob[segment].detach()), rel=1e-8, abs=1e-10)


def test_several_choices_follow_the_same_path(case: Case) -> None:
    read = case.encoded, case.roads, case.inputs.step_minute, case.constraint
    found, best = case.decoder.decode(*read, choices=4), case.decode()
    assert torch.equal(found.segment[..., 0], best.segment)
    torch.testing.assert_close(found.ratio[..., 0], best.ratio)
    for b, trip in enumerate(case.literal()):
        for i, (_, _, log_prob, state) in enumerate(trip):
            expected, segment = log_prob.detach().topk(4)
            assert torch.equal(found.segment[b, i], segment)
            torch.testing.assert_close(found.log_prob[b, i], expected, rtol=1e-8, atol=1e-9)
            road = case.roads.at(segment, case.inputs.step_minute[b, i].expand(4))
            torch.testing.assert_close(found.ratio[b, i], case.decoder.ratio(state.expand(4, -1), road).detach())
    assert case.decoder.decode(*read, choices=99).segment.shape[-1] == S  # there are no more


@pytest.mark.parametrize("choices", [None, 4, 99])
def test_a_trip_alone_is_decoded_as_in_a_batch(case: Case, choices: int | None) -> None:
    read = case.encoded, case.roads, case.inputs.step_minute, case.constraint
    together, shortlist = case.decoder.decode(*read, choices=choices), case.decoder.shortlist()
    for b, n in enumerate(case.lengths):
        encoded = Encoded(*(None if part is None else part[b : b + 1] for part in case.encoded))
        constraint = Constraint(*(part[b : b + 1, :n] for part in case.constraint))
        minute = case.inputs.step_minute[b : b + 1, :n]
        alone = case.decoder.decode_alone(encoded, case.roads, minute, constraint, shortlist, choices)
        assert torch.equal(alone.segment[0], together.segment[b, :n])
        torch.testing.assert_close(alone.ratio[0], together.ratio[b, :n])
        torch.testing.assert_close(alone.log_prob[0], together.log_prob[b, :n], rtol=1e-8, atol=1e-9)


def test_feeds_the_truth_where_told(case: Case) -> None:
    found, free = case.decode(case.truth), case.decode()
    use = case.truth.use
    assert torch.equal(found.segment[use], case.truth.segment[use])
    assert torch.equal(found.ratio[use], case.truth.ratio[use])
    real = case.inputs.step_mask
    assert not torch.allclose(found.ratio[real & ~use], free.ratio[real & ~use])  # what comes after hears of it
    for b, trip in enumerate(case.literal(case.truth)):
        assert found.segment[b, : len(trip)].tolist() == [row[0] for row in trip]
        torch.testing.assert_close(found.ratio[b, : len(trip)], torch.stack([row[1] for row in trip]).detach())


def test_states_and_decode_agree(case: Case) -> None:
    found = case.decode()
    state = case.states(Fed(found.segment, found.ratio, case.truth.use))
    logits = case.constraint.add_to(case.decoder.score(state))
    best, segment = logits.max(-1)
    assert torch.equal(segment, found.segment)
    torch.testing.assert_close(best - logits.logsumexp(-1), found.log_prob)
    ratio = case.decoder.ratio(state, case.roads.at(segment, case.inputs.step_minute))
    torch.testing.assert_close(ratio, found.ratio)


def test_loss_and_gradients_equal_those_of_a_plain_loop(case: Case) -> None:
    target = case.inputs.segment
    fed = case.decode(case.truth)
    state = case.states(Fed(fed.segment, fed.ratio, case.truth.use))
    loss = segment_loss(state, case.decoder.score, case.constraint, target)
    terms: list[Tensor] = [
        -log_prob[target[b, i]]
        for b, trip in enumerate(case.literal(case.truth))
        for i, (_, _, log_prob, _) in enumerate(trip)
    ]
    expected = torch.stack(terms).sum()
    torch.testing.assert_close(loss, expected, rtol=1e-8, atol=1e-9)
    variables = [case.encoded.states, case.encoded.start, *case.decoder.parameters()]
    a = torch.autograd.grad(loss, variables, materialize_grads=True)
    b = torch.autograd.grad(expected, variables, materialize_grads=True)
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-6, atol=1e-8)


def test_no_steps_and_one_step(case: Case) -> None:
    for n in (0, 1):
        minute = case.inputs.step_minute[:, :n]
        cut = Constraint(*(part[:, :n] for part in case.constraint))
        found = case.decoder.decode(case.encoded, case.roads, minute, cut)
        assert [tuple(part.shape) for part in found] == [(3, n)] * 3
        several = case.decoder.decode(case.encoded, case.roads, minute, cut, choices=2)
        assert [tuple(part.shape) for part in several] == [(3, n, 2)] * 3
        first = Encoded(*(None if part is None else part[:1] for part in case.encoded))
        read = minute[:1], Constraint(*(part[:1] for part in cut)), case.decoder.shortlist()
        alone = case.decoder.decode_alone(first, case.roads, *read)
        assert [tuple(part.shape) for part in alone] == [(1, n)] * 3
        assert found.segment.dtype == torch.int64
        torch.testing.assert_close(found.ratio, case.decode().ratio[:, :n])
        fed = Fed(*(part[:, :n] for part in case.truth))
        assert case.decoder.states(case.encoded, case.roads, minute, fed).shape == (3, n, D)


def test_step_times() -> None:
    assert step_times(torch.zeros(2, 3)).tolist() == [[0, 1, 2], [0, 1, 2]]
