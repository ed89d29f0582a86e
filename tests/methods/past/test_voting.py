"""Votes of past trips against an oracle that goes through all chains of candidates one by one."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.past.history import RATIO, no_history
from tedtrajrec.methods.past.voting import CUT, JUMP, PRIOR, Fixes, Steps, Weights, collect_votes
from tests.methods.past.test_history import CITY, SIMULATED, naive_passes

STEP_S = 15.0
WEIGHTS = Weights(scale_s=20.0, near_m=60.0, route=0.3)

Position = tuple[int, float]


def naive_position(trip: int, time: float) -> Position:
    """Return where a past trip was."""
    first, stop = SIMULATED.offset[trip], SIMULATED.offset[trip + 1]
    p = first + int(np.searchsorted(SIMULATED.time[first:stop], time, side="right")) - 1
    low, high = float(SIMULATED.low[p]), float(SIMULATED.high[p])
    if p + 1 < stop:
        low += (high - low) * float((time - SIMULATED.time[p]) / (SIMULATED.time[p + 1] - SIMULATED.time[p]))
    return int(SIMULATED.segment[p]), low / RATIO


def naive_votes(
    steps: list[int], candidates: list[list[Position]], likelihood: list[list[float]], route: list[Position]
) -> list[dict[int, tuple[float, float]]]:
    """Return share and ratio of every segment voted for at each step; the matcher chose all first candidates."""
    passes = [
        [naive_passes(SIMULATED, s, r, WEIGHTS.near_m, CITY.length_m[s]) for s, r in places] for places in candidates
    ]
    rarity = [
        [(PRIOR + sum(w for *_, w in found) + (0.3 if c == 0 else 0)) ** -0.5 for c, found in enumerate(here)]
        for here in passes
    ]
    gaps = []
    for g in range(len(steps) - 1):
        elapsed = STEP_S * (steps[g + 1] - steps[g])
        voters: dict[tuple[int, int], list[tuple[float, float, float, float]]] = defaultdict(list)
        for (a, before), (b, after) in itertools.product(enumerate(passes[g]), enumerate(passes[g + 1])):
            for (trip, start, w), (other, end, v) in itertools.product(before, after):
                away = abs(end - start - elapsed) / WEIGHTS.scale_s
                if trip == other and end > start and away <= CUT:
                    voters[a, b].append((w * v * np.exp(-away), trip, start, end))
        gaps.append(voters)

    def transition(g: int, a: int, b: int) -> float:
        own = WEIGHTS.route if a == b == 0 else 0.0
        return rarity[g][a] * rarity[g + 1][b] * (JUMP + own + sum(w for w, *_ in gaps[g][a, b]))

    fixes = range(len(steps))
    votes: list[dict[int, list[float]]] = [defaultdict(lambda: [0.0, 0.0]) for _ in route]

    def vote(step: int, place: Position, weight: float) -> None:
        if place[0] >= 0 and weight > 0:
            votes[step][place[0]][0] += weight
            votes[step][place[0]][1] += weight * place[1]

    for chain in itertools.product(*(range(len(places)) for places in candidates)):
        weight = float(np.prod([likelihood[f][chain[f]] for f in fixes]))
        weight *= float(np.prod([transition(g, chain[g], chain[g + 1]) for g in fixes[:-1]]))
        for f in fixes:
            vote(steps[f], candidates[f][chain[f]], weight)
        for g in fixes[:-1]:
            a, b = chain[g], chain[g + 1]
            each = weight * rarity[g][a] * rarity[g + 1][b] / transition(g, a, b)
            for k in range(steps[g] + 1, steps[g + 1]):
                part = (k - steps[g]) / (steps[g + 1] - steps[g])
                if a == b == 0:
                    vote(k, route[k], each * WEIGHTS.route)
                for w, trip, start, end in gaps[g][a, b]:
                    vote(k, naive_position(int(trip), start + part * (end - start)), each * w)
    shares = []
    for here in votes:
        total = sum(w for w, _ in here.values())
        shares.append({s: (w / total, r / w) for s, (w, r) in here.items()})
    return shares


def compiled_votes(
    steps: list[int], candidates: list[list[Position]], likelihood: list[list[float]], route: list[Position]
) -> list[dict[int, tuple[float, float]]]:
    flat = [place for places in candidates for place in places]
    fixes = Fixes(
        offset=np.array([0, len(steps)]),
        time=np.array(steps) * STEP_S,
        candidate_offset=np.cumsum([0, *map(len, candidates)]),
        segment=np.array([s for s, _ in flat], np.int32),
        ratio=np.array([r for _, r in flat]),
        likelihood=np.concatenate(likelihood),
        chosen=np.zeros(len(steps), np.int64),
        left_out=np.array([-1]),
    )
    grid = Steps(
        np.array([0, len(route)]),
        np.arange(len(route)) * STEP_S,
        np.array([s for s, _ in route], np.int32),
        np.array([r for _, r in route]),
    )
    votes = collect_votes(SIMULATED, CITY.length_m, fixes, grid, WEIGHTS)
    rows = list(zip(votes.segment.tolist(), zip(votes.share.tolist(), votes.ratio.tolist(), strict=True), strict=True))
    return [dict(rows[a:b]) for a, b in itertools.pairwise(votes.offset)]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[list[Position]], list[list[float]], list[Position]]:
    """Draw the fixes of a trip that mostly goes where a past trip went, with other candidates beside."""
    trip = draw(st.integers(0, len(SIMULATED.offset) - 2))
    lasts = int(SIMULATED.time[SIMULATED.offset[trip + 1] - 1] // STEP_S)
    steps = sorted(draw(st.sets(st.integers(0, min(lasts, 30)), min_size=1, max_size=3)))
    steps = [k - steps[0] for k in steps]
    shift = draw(st.integers(0, lasts - steps[-1])) * STEP_S
    place = st.tuples(st.sampled_from(SIMULATED.segment[SIMULATED.segment >= 0].tolist()), st.floats(0, 1))
    candidates = []
    for k in steps:
        places = [naive_position(trip, k * STEP_S + shift), *draw(st.lists(place, max_size=2))]
        candidates.append(list({s: (s, r) for s, r in draw(st.permutations(places))}.values()))
    likelihood = [[draw(st.floats(0.01, 1)) for _ in places] for places in candidates]
    nowhere = (-1, 0.0)
    route = [draw(st.one_of(place, st.just(nowhere))) for _ in range(steps[-1] + 1)]
    return steps, candidates, likelihood, route


@settings(max_examples=80)
@given(cases())
def test_votes_as_counted_chain_by_chain(
    case: tuple[list[int], list[list[Position]], list[list[float]], list[Position]],
) -> None:
    expected, found = naive_votes(*case), compiled_votes(*case)
    for here, there in zip(expected, found, strict=True):
        assert abs(sum(share for share, _ in there.values()) - 1) < 1e-9 or not there
        for s in here.keys() | there.keys():
            share, ratio = here.get(s, (0.0, 0.0))
            got, at = there.get(s, (0.0, 0.0))
            assert abs(share - got) < 2e-3
            assert share < 0.05 or abs(ratio - at) < 0.02


def test_steps_beyond_the_fixes_have_their_candidates() -> None:
    fixes = Fixes(
        offset=np.array([0, 1, 1]),
        time=np.array([30.0]),
        candidate_offset=np.array([0, 2]),
        segment=np.array([5, 9], np.int32),
        ratio=np.array([0.25, 0.5]),
        likelihood=np.array([1.0, 3.0]),
        chosen=np.array([-1]),
        left_out=np.array([-1, -1]),
    )
    steps = Steps(np.array([0, 5, 7]), np.array([0.0, 15, 30, 45, 60, 0, 15]), np.full(7, 2, np.int32), np.zeros(7))
    votes = collect_votes(no_history(CITY.n_segments), CITY.length_m, fixes, steps, WEIGHTS)
    assert votes.offset.tolist() == [0, 2, 4, 6, 8, 10, 10, 10]  # a trip without fixes has no votes
    assert votes.segment.tolist() == [5, 9] * 5
    np.testing.assert_allclose(votes.share, [0.25, 0.75] * 5)
    np.testing.assert_allclose(votes.ratio, [0.25, 0.5] * 5)


def test_a_left_out_trip_has_no_vote() -> None:
    trip = int(np.argmax(np.diff(SIMULATED.offset)))
    places = [naive_position(trip, t) for t in (0.0, 60.0)]
    steps = Steps(np.array([0, 5]), np.arange(5) * STEP_S, np.full(5, -1, np.int32), np.zeros(5))
    counts = []
    for left_out in (-1, trip):
        fixes = Fixes(
            np.array([0, 2]),
            np.array([0.0, 60.0]),
            np.array([0, 1, 2]),
            np.array([s for s, _ in places], np.int32),
            np.array([r for _, r in places]),
            np.ones(2),
            np.full(2, -1),
            np.array([left_out]),
        )
        votes = collect_votes(SIMULATED, CITY.length_m, fixes, steps, WEIGHTS)
        counts.append(
            [
                dict(zip(votes.segment[a:b].tolist(), votes.share[a:b].tolist(), strict=True))
                for a, b in itertools.pairwise(votes.offset)
            ]
        )
    seen, unseen = counts
    inner = [naive_position(trip, t)[0] for t in (15.0, 30.0, 45.0)]
    for k, s in enumerate(inner, 1):
        assert seen[k][s] > unseen[k].get(s, 0.0)
