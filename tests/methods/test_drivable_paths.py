"""Paths that can be driven, against all paths there are."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.drivable_paths import Lattice, drivable_paths

METRES = st.integers(0, 300).map(float)


@st.composite
def lattices(draw, most_steps=4, most_choices=3):
    """One trip; small whole numbers, so that many paths are equally good and sums are exact."""
    n, k = draw(st.integers(1, most_steps)), draw(st.integers(1, most_choices))

    def array(values, *shape):
        size = int(np.prod(shape))
        return np.array(draw(st.lists(values, min_size=size, max_size=size))).reshape(shape)

    length_of = array(METRES, 6)  # of the segments
    segment = np.stack([draw(st.permutations(range(6)).map(lambda order: order[:k])) for _ in range(n)])
    length = length_of[segment]
    a, b = np.sort(array(st.integers(0, 4), 2, n, k) / 4, axis=0) * length
    score = array(st.sampled_from([0.0, -1.0, -2.0, -np.inf]), n, k)
    score[np.isinf(score).all(axis=1), 0] = -3.0
    return Lattice(
        score=score,
        segment=segment.astype(np.int64),
        length_m=length,
        lowest_m=a,
        highest_m=b,
        # Places are whole quarters of a metre: no sum of these meets one exactly, where a rounding slack would decide.
        reach_m=array(METRES, n) + 0.1,
        gap_m=array(st.sampled_from([0.0, 10.0, 50.0, 200.0, np.inf]), n, k, k).astype(np.float32),
        move=-array(st.integers(0, 3), n, k, k).astype(np.float32),
    )


def possible(lattice, path, first, last):
    """Return whether positions exist for the steps from first up to last, staying on a segment or around to it."""
    moves = []
    for step in range(first + 1, last):
        before, c = path[step - 1], path[step]
        way = lattice.gap_m[step, before, c] + lattice.length_m[step - 1, before]
        stays = lattice.segment[step - 1, before] == lattice.segment[step, c]
        around = [] if np.isinf(way) else [(-np.inf, lattice.reach_m[step] - way)]
        moves.append([(0, lattice.reach_m[step]), *around] if stays else around)
    return any(fits(lattice, path, first, bounds) for bounds in itertools.product(*moves))


def fits(lattice, path, first, bounds):
    """Return whether x exist with x[i] - x[i - 1] within the bounds: no circle of bounds is less than 0."""
    size = len(bounds) + 1
    bound = np.full((size + 1, size + 1), np.inf)  # bound[i, j]: x[j] - x[i] at most; the last stands for 0
    np.fill_diagonal(bound, 0)
    for i in range(size):
        at = first + i, path[first + i]
        bound[size, i], bound[i, size] = lattice.highest_m[at], -lattice.lowest_m[at]
    for i, (least, most) in enumerate(bounds):
        bound[i + 1, i], bound[i, i + 1] = -least, most
    for middle in range(size + 1):
        bound = np.minimum(bound, bound[:, [middle]] + bound[[middle]])
    return (np.diagonal(bound) >= 0).all()


def value(lattice, path, broken):
    moves = [lattice.move[i, path[i - 1], path[i]] for i in range(1, len(path)) if not broken[i]]
    return sum(lattice.score[i, c] for i, c in enumerate(path)) + float(sum(moves))


def rank(lattice, path, broken):
    """Return breaks and score of a path with given breaks, best lowest, or None where it cannot be driven."""
    cuts = [0, *np.flatnonzero(broken).tolist(), len(path)]
    if np.isinf(value(lattice, path, broken)) or not all(
        possible(lattice, path, *run) for run in itertools.pairwise(cuts)
    ):
        return None
    return int(sum(broken)), -value(lattice, path, broken)


@settings(max_examples=150)
@given(lattice=lattices())
def test_no_path_has_fewer_breaks_or_is_more_likely(lattice):
    n, k = lattice.score.shape
    choice, broken = drivable_paths(np.array([0, n]), lattice)
    assert not broken[0]
    found = rank(lattice, choice, broken)
    every = (
        rank(lattice, path, (False, *breaks))
        for path in itertools.product(range(k), repeat=n)
        for breaks in itertools.product([False, True], repeat=n - 1)
    )
    assert found == min(one for one in every if one is not None)


@settings(max_examples=20)
@given(trips=st.lists(lattices(most_choices=1), min_size=1, max_size=5))
def test_trips_do_not_know_of_each_other(trips):
    joined = Lattice(*(np.concatenate(parts) for parts in zip(*trips, strict=True)))
    offsets = np.concatenate([[0], np.cumsum([len(trip.score) for trip in trips])])
    _, broken = drivable_paths(offsets, joined)
    alone = [drivable_paths(np.array([0, len(trip.score)]), trip)[1] for trip in trips]
    np.testing.assert_array_equal(broken, np.concatenate(alone))


@pytest.mark.parametrize("workers", [1, 3])
def test_many_ways_and_many_steps(workers):
    """Scores that rise with the way driven keep many stretches alive at once."""
    rng = np.random.default_rng(4)
    n, k = 6000, 6
    lattice = Lattice(
        score=-rng.random((n, k)),
        segment=np.tile(np.arange(k), (n, 1)),
        length_m=np.full((n, k), 1000.0),
        lowest_m=np.zeros((n, k)),
        highest_m=np.full((n, k), 1000.0),
        reach_m=np.full(n, 700.0),
        gap_m=rng.choice([0.0, 100.0, np.inf], (n, k, k)).astype(np.float32),
        move=-rng.random((n, k, k)).astype(np.float32),
    )
    offsets = np.arange(0, n + 1, 20)
    choice, broken = drivable_paths(offsets, lattice, workers=workers)
    assert not broken.any()  # one may always stay
    assert len(np.unique(choice)) == k
    for first in offsets[:-20:40]:
        assert possible(lattice, choice, first, first + 20)


def test_no_trips():
    empty = Lattice(*(np.zeros((0, 2)[:d]) for d in (2,) * 5), np.zeros(0), *(np.zeros((0, 2, 2), np.float32),) * 2)
    choice, broken = drivable_paths(np.array([0]), empty)
    assert len(choice) == len(broken) == 0
