"""The parallel decoder: states that do not see padding, scores and transitions as their equations have them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tedtrajrec.nn.parallel_decoder import CandidateScorer, Memory, StepStates
from tedtrajrec.nn.sequences import rows
from tedtrajrec.nn.transitions import TransitionScorer

B, M, N, D, FACTS = 2, 3, 7, 8, 5


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + len(shape)), dtype=torch.float64)


def steps(among: bool, layers: int = 2) -> StepStates:
    torch.manual_seed(1)
    return StepStates(D, 2, 12, layers, FACTS, among=among).double().eval()


def arguments(seed: int = 0) -> tuple[Memory, Tensor, Tensor, Tensor, Tensor]:
    """Two trips: one of 3 fixes and 7 steps, one of 2 fixes and 4 steps."""
    mask = torch.tensor([[True] * 3, [True, True, False]])
    memory = Memory(random(B, M, D, seed=seed), torch.tensor([[0.0, 3.0, 6.0], [0.0, 3.0, 0.0]]).double(), mask)
    previous = torch.tensor([[0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 1, 0, 0, 0]])
    following = torch.tensor([[0, 1, 1, 1, 2, 2, 2], [0, 1, 1, 1, 0, 0, 0]])
    step_mask = torch.arange(N) < torch.tensor([[7], [4]])
    return memory, previous, following, random(B, N, FACTS, seed=seed), step_mask


def test_rows_of_each_trip() -> None:
    values, which = random(2, 3, 4), torch.tensor([[2, 0], [1, 1]])
    found = rows(values, which)
    for b in range(2):
        for i in range(2):
            assert torch.equal(found[b, i], values[b, which[b, i]])


@pytest.mark.parametrize("among", [True, False])
def test_padding_does_not_matter(among: bool) -> None:
    module = steps(among)
    memory, previous, following, facts, mask = arguments()
    states = module(memory, previous, following, facts, mask)
    assert states.shape == (B, N, D)
    alone = module(
        Memory(*(part[1:, :2] for part in memory)), previous[1:, :4], following[1:, :4], facts[1:, :4], mask[1:, :4]
    )
    torch.testing.assert_close(alone[0], states[1, :4])


def test_steps_hear_of_each_other_only_if_they_may() -> None:
    memory, previous, following, facts, mask = arguments()
    other = facts.clone()
    other[0, 5] += 1
    for among in (True, False):
        module = steps(among)
        before, after = (module(memory, previous, following, f, mask) for f in (facts, other))
        moved = (before - after).abs().amax(-1) > 1e-9
        assert moved[0].tolist() == [among] * 5 + [True] + [among]
        assert not moved[1].any()


def test_scores_and_ratios_are_those_of_the_equations() -> None:
    lists, c, hidden, n_static, n_moving = 5, 4, 6, 3, 2
    torch.manual_seed(2)
    scorer = CandidateScorer(D, hidden, n_static, n_moving).double().eval()
    states, roads, static = random(B, N, D), random(B, lists, c, D), random(B, lists, c, n_static)
    moving, guess = random(B, N, c, n_moving), torch.rand(B, N, c).double()
    slot = torch.randint(lists, (B, N), generator=torch.Generator().manual_seed(3))
    score, ratio = scorer(states, roads, slot, static, moving, guess)
    for b, i, e in [(0, 0, 0), (1, 6, 3), (0, 4, 2)]:
        j = slot[b, i]
        x = roads[b, j, e]
        mixed = (
            scorer.from_static(static[b, j, e])
            + scorer.from_road(x)
            + scorer.from_moving(moving[b, i, e])
            + scorer.from_state(states[b, i])
        )
        for layer in scorer.mix:
            mixed = layer(mixed)
        expected = states[b, i] @ scorer.key(x) / D**0.5 + scorer.score(mixed)[0]
        torch.testing.assert_close(score[b, i, e], expected)
        logit = torch.logit(guess[b, i, e].clamp(0.02, 0.98)) + scorer.shift(mixed)[0]
        torch.testing.assert_close(ratio[b, i, e], torch.sigmoid(logit))


def test_transitions_are_those_of_the_equation() -> None:
    scorer = TransitionScorer(3).double()
    with torch.no_grad():
        for weights in scorer.parameters():
            weights.copy_(random(*weights.shape))
    kind = torch.tensor([2, 0])
    between, whole = random(1, 2, 3, 3).abs() * 1.5, random(1, 2, 3, 3, seed=1).abs() * 2
    possible, same = random(1, 2, 3, 3, seed=2) > -0.5, torch.eye(3, dtype=torch.bool).expand(1, 2, 3, 3)
    found = scorer(kind, between, whole, possible, same)
    for p in range(2):
        for c in range(3):
            for d in range(3):
                u, v = between[0, p, c, d], whole[0, p, c, d]
                w = (scorer.stay if c == d else scorer.go)[kind[p]]
                relu = functional.relu
                expected = w[0] + w[3] * relu(1 - v) + w[4] * relu(2 - v)
                if c != d:
                    expected = expected + w[1] * relu(u - 0.5) + w[2] * relu(u - 1)
                    if not possible[0, p, c, d]:
                        expected = scorer.break_score[0]
                torch.testing.assert_close(found[0, p, c, d], expected)
