"""Votes of past drives that passed both fixes of a gap, against a plain implementation of what the module says."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.past.passed import (
    FARTHEST,
    JUMP,
    LIGHT,
    NEW,
    PRIOR,
    ROUTE,
    UNLIKELY,
    Asked,
    Ends,
    Passed,
    no_heads,
    vote,
)
from tedtrajrec.methods.past.passing import Passing, index_passing, no_passing
from tedtrajrec.methods.past.visits import Visits
from tests.methods.past.test_pairs import N_SEGMENTS, made, some_visits

SCALE_S = 30.0
STEP_S = 15.0
MORE = 3
COLUMNS = N_SEGMENTS + MORE
MANY = 10**6


class Question(NamedTuple):
    """Trips whose gaps are asked for."""

    ends: Ends
    asked: Asked


class Drive(NamedTuple):
    """A past drive from candidate a to candidate b."""

    a: int
    b: int
    source: int
    target: int
    start: float
    took: float
    weight: float


def fresh(question: Question) -> Passed:
    rows = int(question.asked.steps.sum())
    gaps, ends = len(question.asked.seconds), len(question.ends.segment)
    return Passed(
        np.zeros((rows, COLUMNS), np.float32),
        np.zeros(gaps, np.float32),
        np.zeros(ends, np.float32),
        np.full((gaps, MORE), -1, np.int32),
        np.zeros((gaps, MORE, 3), np.float32),
    )


def voted(passing: Passing, question: Question, part: int = MANY) -> Passed:
    out, head = fresh(question), no_heads(passing)
    trips = len(question.asked.own)
    for low in range(0, trips, part):
        vote(passing, question.ends, question.asked, SCALE_S, head, low, min(low + part, trips), out)
    assert (head == -1).all()
    return out


def indexed(visits: Visits) -> Passing:
    return index_passing(visits, np.arange(len(visits.offset) - 1), N_SEGMENTS, most=MANY)


def question_of(trips: list[dict[str, Any]]) -> Question:
    """Return trips given by the candidates of their fixes and what is asked of their gaps, as arrays."""
    fixes = [fix for trip in trips for fix in trip["fixes"]]
    gaps = [gap for trip in trips for gap in trip["gaps"]]
    candidates = [candidate for fix in fixes for candidate in fix]
    offset = np.cumsum([0, *map(len, fixes)])
    weight = np.array([candidate["weight"] for candidate in candidates], float)
    fix_of = np.repeat(np.arange(len(fixes)), np.diff(offset))
    weight /= np.bincount(fix_of, weight, len(fixes))[fix_of]
    route = np.full(len(candidates), -1)
    first = np.cumsum([0, *(len(trip["fixes"]) for trip in trips)])
    for k, candidate in enumerate(candidates):
        if candidate["route"] is not None and fix_of[k] not in first:
            low, high = offset[fix_of[k] - 1], offset[fix_of[k]]
            route[k] = low + candidate["route"] % (high - low)
    steps = np.array([gap["steps"] for gap in gaps], np.int64)
    none = np.zeros(len(candidates))
    return Question(
        Ends(
            offset,
            np.array([candidate["segment"] for candidate in candidates], np.int32),
            np.array([candidate["ratio"] for candidate in candidates], float),
            none,
            none,
            weight,
            route,
            np.array([candidate["fit"] for candidate in candidates], float),
        ),
        Asked(
            first,
            np.cumsum([0, *(len(trip["gaps"]) for trip in trips)]),
            np.array([trip["own"] for trip in trips], np.int64),
            np.array([gap["seconds"] for gap in gaps], float),
            np.cumsum([0, *(len(gap["segments"]) for gap in gaps)]),
            np.array([segment for gap in gaps for segment in gap["segments"]], np.int32),
            np.cumsum(steps) - steps,
            steps,
            np.array([gap["early"] for gap in gaps], float),
            STEP_S,
        ),
    )


@st.composite
def some_question(draw: st.DrawFn, n_past: int) -> Question:
    segment = st.integers(0, N_SEGMENTS - 1)
    candidate = st.fixed_dictionaries(
        {
            "segment": segment,
            "ratio": st.sampled_from([0.0, 0.25, 0.5, 1.0]),
            "weight": st.sampled_from([1.0, 0.3, 0.05, 0.0002]),
            "route": st.none() | st.integers(0, 5),
            "fit": st.sampled_from([0.0, 0.5, 1.0]),
        }
    )
    gap = st.fixed_dictionaries(
        {
            "seconds": st.sampled_from([1.0, 30.0, 60.0, 90.0]),
            "segments": st.lists(segment, unique=True),
            "steps": st.integers(0, 4),
            "early": st.sampled_from([-5.0, 0.0, 15.0]),
        }
    )
    trips = []
    for _ in range(draw(st.integers(1, 3))):
        fixes = draw(
            st.lists(st.lists(candidate, min_size=1, max_size=3, unique_by=lambda c: c["segment"]), max_size=4)
        )
        n_gaps = max(len(fixes) - 1, 0)
        gaps = draw(st.lists(gap, min_size=n_gaps, max_size=n_gaps))
        trips.append({"fixes": fixes, "gaps": gaps, "own": draw(st.integers(-1, n_past - 1))})
    return question_of(trips)


@st.composite
def past_and_question(draw: st.DrawFn) -> tuple[Visits, Question]:
    visits = draw(some_visits())
    return visits, draw(some_question(len(visits.offset) - 1))


def plain_drives(visits: Visits, question: Question, trip: int, f: int, seconds: float) -> list[Drive]:
    """Return all drives from fix f to the next one."""
    ends, own = question.ends, question.asked.own[trip]
    past = np.repeat(np.arange(len(visits.offset) - 1), np.diff(visits.offset))
    found = []
    for a, b in itertools.product(
        range(ends.offset[f], ends.offset[f + 1]), range(ends.offset[f + 1], ends.offset[f + 2])
    ):
        if min(ends.weight[a], ends.weight[b]) < UNLIKELY:
            continue
        sources, targets = (
            [v for v in np.flatnonzero(visits.segment == ends.segment[k]) if past[v] != own] for k in (a, b)
        )
        for v, u in itertools.product(sources, targets):
            start, end = (
                visits.enter[x] + ends.ratio[k] * float(visits.leave[x] - visits.enter[x]) for x, k in ((v, a), (u, b))
            )
            away = abs(end - start - seconds) / SCALE_S
            if past[v] == past[u] and v <= u and end >= start and away <= FARTHEST:
                passes = (PRIOR + len(sources)) * (PRIOR + len(targets))
                found.append(Drive(a, b, v, u, start, end - start, np.exp(-away) / np.sqrt(passes)))
    # The order in which they bring new segments: by candidate and visit of the later fix, then the last ones first.
    return sorted(found, key=lambda d: (d.b, d.target, -d.a, -d.source))


def plain_transition(visits: Visits, question: Question, trip: int, drives: list[Drive], a: int, b: int) -> float:
    ends, own = question.ends, question.asked.own[trip]
    past = np.repeat(np.arange(len(visits.offset) - 1), np.diff(visits.offset))
    weight = JUMP + sum(drive.weight for drive in drives if (drive.a, drive.b) == (a, b))
    if ends.route[b] == a:
        passes = [PRIOR + ((visits.segment == ends.segment[k]) & (past != own)).sum() for k in (a, b)]
        weight += ROUTE * ends.fit[b] / np.sqrt(passes[0] * passes[1])
    return float(weight)


def plain_vote(visits: Visits, question: Question) -> Passed:
    """Return what past drives say, from the definition: over all ways through the candidates of a trip."""
    (ends, asked), out = question, fresh(question)
    for trip in range(len(asked.own)):
        fixes = range(asked.fix[trip], asked.fix[trip + 1])
        lists = [range(ends.offset[f], ends.offset[f + 1]) for f in fixes]
        drives = [
            plain_drives(visits, question, trip, f, asked.seconds[asked.gap[trip] + i])
            for i, f in enumerate(fixes[:-1])
        ]
        step = [
            {(a, b): plain_transition(visits, question, trip, drives[i], a, b) for a in lists[i] for b in lists[i + 1]}
            for i in range(len(drives))
        ]
        likely: list[dict[tuple[int, int], float]] = [dict.fromkeys(part, 0.0) for part in step]
        posterior = np.zeros(len(ends.segment))
        for path in itertools.product(*lists):
            chance = np.prod([ends.weight[k] for k in path])
            moves = list(itertools.pairwise(path))
            each = [step[i][move] for i, move in enumerate(moves)]
            for i, move in enumerate(moves):
                likely[i][move] += chance * np.prod(each[:i] + each[i + 1 :])
            for k in path:
                posterior[k] += chance * np.prod(each)
        for part in lists:
            out.posterior[part] = posterior[part] / posterior[part].sum()
        for i, some in enumerate(drives):
            gap = asked.gap[trip] + i
            out.evidence[gap] = sum(ends.weight[d.a] * ends.weight[d.b] * d.weight for d in some)
            total = sum(d.weight * likely[i][d.a, d.b] for d in some)
            shares = [d.weight * likely[i][d.a, d.b] / total for d in some]
            plain_cast(visits, asked, gap, some, shares, out)
    return out


def plain_cast(visits: Visits, asked: Asked, gap: int, drives: list[Drive], shares: list[float], out: Passed) -> None:
    known = asked.segment[asked.offset[gap] : asked.offset[gap + 1]].tolist()
    n_asked = len(known)
    rows = range(asked.row[gap], asked.row[gap] + asked.steps[gap])
    for drive, weight in zip(drives, shares, strict=True):
        if weight < LIGHT:
            continue
        stayed = set()
        for i, row in enumerate(rows):
            share = np.clip((asked.early_s[gap] + i * STEP_S) / asked.seconds[gap], 0, 1)
            time = drive.start + share * drive.took
            during = [w for w in range(drive.source, drive.target) if visits.leave[w] >= time]
            # A visit once left is not taken up again, though its end may overlap the next one.
            w = max([during[0] if during else drive.target, *stayed])
            segment = int(visits.segment[w])
            if segment not in known and len(known) < n_asked + MORE and weight >= NEW:
                out.more[gap, len(known) - n_asked] = segment
                known.append(segment)
            if segment in known:
                place = known.index(segment)
                out.votes[row, place] += weight
                if place >= n_asked and w not in stayed:
                    enter = max(visits.enter[w] - drive.start, 0.0) / max(drive.took, 1.0)
                    leave = min(visits.leave[w] - drive.start, drive.took) / max(drive.took, 1.0)
                    out.stay[gap, place - n_asked] += weight * np.array([1.0, enter, leave], np.float32)
            stayed.add(w)
    for row in rows:
        out.votes[row] /= max(out.votes[row].sum(), 1e-30)


def assert_same(found: Passed, wanted: Passed, **tolerance: float) -> None:
    np.testing.assert_array_equal(found.more, wanted.more)
    for name in ("votes", "evidence", "posterior", "stay"):
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), **tolerance, err_msg=name)


@settings(max_examples=150)
@given(past_and_question())
def test_votes_against_the_definition(given_: tuple[Visits, Question]) -> None:
    visits, question = given_
    assert_same(voted(indexed(visits), question), plain_vote(visits, question), rtol=1e-4, atol=1e-6)


@settings(max_examples=60)
@given(past_and_question())
def test_probabilities_sum_to_one(given_: tuple[Visits, Question]) -> None:
    visits, question = given_
    found = voted(indexed(visits), question)
    fixes = np.repeat(np.arange(len(question.ends.offset) - 1), np.diff(question.ends.offset))
    np.testing.assert_allclose(np.bincount(fixes, found.posterior), 1, rtol=1e-5)
    sums = found.votes.sum(axis=1)
    assert (np.isclose(sums, 1, rtol=1e-5) | (sums == 0)).all()


@settings(max_examples=60)
@given(past_and_question())
def test_the_own_trip_has_no_vote_as_if_it_had_never_been(given_: tuple[Visits, Question]) -> None:
    visits, question = given_
    found = voted(indexed(visits), question)
    for trip, own in enumerate(question.asked.own):
        if own < 0:
            continue
        others = visits.select(np.delete(np.arange(len(visits.offset) - 1), own))
        alone = question._replace(asked=question.asked._replace(own=np.full_like(question.asked.own, -1)))
        wanted = voted(indexed(others), alone)
        asked, ends = question.asked, question.ends
        gaps, fixes = slice(*asked.gap[trip : trip + 2]), asked.fix[trip : trip + 2]
        rows = [r for g in range(gaps.start, gaps.stop) for r in range(asked.row[g], asked.row[g] + asked.steps[g])]
        candidates = slice(*ends.offset[fixes])

        def part(passed: Passed, rows: list[int] = rows, gaps: slice = gaps, candidates: slice = candidates) -> Passed:
            return Passed(
                passed.votes[rows],
                passed.evidence[gaps],
                passed.posterior[candidates],
                passed.more[gaps],
                passed.stay[gaps],
            )

        assert_same(part(found), part(wanted), rtol=1e-6)


@settings(max_examples=20)
@given(past_and_question())
def test_trips_do_not_touch_each_other(given_: tuple[Visits, Question]) -> None:
    visits, question = given_
    assert_same(voted(indexed(visits), question, part=1), voted(indexed(visits), question), rtol=0)


def one_gap(segments: list[int], *, steps: int = 2, seconds: float = 45.0) -> Question:
    """Return a trip from the middle of segment 0 to that of segment 2."""
    fixes = [[{"segment": s, "ratio": 0.5, "weight": 1.0, "route": None, "fit": 0.0}] for s in (0, 2)]
    gap = {"seconds": seconds, "segments": segments, "steps": steps, "early": STEP_S}
    return question_of([{"fixes": fixes, "gaps": [gap], "own": -1}])


def test_two_drives_by_hand() -> None:
    # Both leave the middle of segment 0 at 10 s; one is at the middle of segment 2 after 45 s, the other after 75 s.
    visits = made([(0, 0, 20), (1, 20, 50), (2, 50, 60)], [(0, 0, 20), (3, 20, 70), (2, 70, 100)])
    found = voted(indexed(visits), one_gap([1, 4, 2]))
    share = 1 / (1 + np.exp(-1))  # 30 s off weighs 1/e
    assert found.more[0].tolist() == [3, -1, -1]
    np.testing.assert_allclose(found.votes[0, :4], [share, 0, 0, 1 - share], rtol=1e-6)
    np.testing.assert_allclose(found.votes[1, :4], [share, 0, 0, 1 - share], rtol=1e-6)
    assert found.evidence[0] == pytest.approx((1 + np.exp(-1)) / 3)  # two passes and one of the prior at both ends
    np.testing.assert_allclose(found.stay[0, 0], (1 - share) * np.array([1, 10 / 75, 60 / 75]), rtol=1e-6)


def test_a_drive_the_other_way_or_at_another_time_has_no_vote() -> None:
    back = made([(2, 0, 10), (1, 10, 20), (0, 20, 40)])
    slow = made([(0, 0, 20), (1, 20, 50), (2, 1000, 1010)])
    for visits in (back, slow):
        found = voted(indexed(visits), one_gap([1]))
        assert not found.votes.any()
        assert found.evidence[0] == 0
        assert found.posterior.tolist() == [1, 1]


def test_past_drives_and_routes_tell_twins_apart() -> None:
    visits = made([(0, 0, 20), (1, 20, 50), (2, 50, 60)])
    fixes = [
        [{"segment": s, "ratio": 0.5, "weight": 1.0, "route": None, "fit": 0.0} for s in pair]
        for pair in ((0, 4), (2, 5))
    ]
    gap = {"seconds": 45.0, "segments": [1], "steps": 1, "early": STEP_S}
    trip = {"fixes": fixes, "gaps": [gap], "own": -1}
    assert (voted(indexed(visits), question_of([trip])).posterior[[0, 2]] > 0.99).all()
    fixes[1][1] |= {"route": 1, "fit": 1.0}
    assert (voted(no_passing(N_SEGMENTS), question_of([trip])).posterior[[1, 3]] > 0.99).all()


def test_more_drives_than_there_is_room_for_at_first() -> None:
    n = 2000
    visits = made(*([(0, 0, 20), (1 + i % 2 * 2, 20, 50), (2, 50, 60)] for i in range(n)))
    found = voted(indexed(visits), one_gap([3]))
    assert found.evidence[0] == pytest.approx(n / (n + 1))
    # No single drive of them weighs enough to count.
    assert not found.votes.any()
    few = index_passing(visits, np.arange(n), N_SEGMENTS, most=500)
    np.testing.assert_allclose(voted(few, one_gap([3])).votes[0, :2], [1, 0], atol=1e-6)


def test_no_past_and_trips_without_fixes() -> None:
    fix = [{"segment": 1, "ratio": 0.5, "weight": w, "route": None, "fit": 0.0} for w in (0.75, 0.25)]
    fix[1]["segment"] = 2
    question = question_of([{"fixes": [], "gaps": [], "own": -1}, {"fixes": [fix], "gaps": [], "own": -1}])
    found = voted(no_passing(N_SEGMENTS), question)
    assert found.posterior.tolist() == [0.75, 0.25]
    assert len(found.votes) == 0
