"""LCSS and EDR: against the dynamic programs, compiled and on a device; neighbours, ranks, the graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import ConfigError, InputError
from tedtrajrec.evaluation import similarity
from tedtrajrec.evaluation.similarity import (
    CPU,
    MEASURES,
    Sequences,
    distance_blocks,
    distance_matrix,
    find_neighbours,
    recall_at,
)
from tedtrajrec.evaluation.similarity_torch import device_blocks
from tedtrajrec.trips.sequences import common_subsequence


def literal_lcss(a, b):
    """Return 1 - L / min(m, n) by the recurrence of Vlachos et al. 2002."""
    if not a or not b:
        return 1.0
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    shorter = min(len(a), len(b))
    return (shorter - table[-1][-1]) / shorter


def literal_edr(a, b):
    """Return E / max(m, n) by the recurrence of Chen et al. 2005."""
    if not a or not b:
        return 1.0
    table = [[max(i, j) for j in range(len(b) + 1)] for i in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = min(table[i][j] + (x != y), table[i][j + 1] + 1, table[i + 1][j] + 1)
    return table[-1][-1] / max(len(a), len(b))


LITERAL = {"lcss": literal_lcss, "edr": literal_edr}


def literal_matrix(trips, measure):
    out = np.array([[LITERAL[measure](a, b) for b in trips] for a in trips]).reshape(len(trips), len(trips))
    np.fill_diagonal(out, 0.0)
    return out


def sequences_of(trips):
    offsets = np.cumsum([0, *map(len, trips)])
    return Sequences.of(offsets, np.array([s for trip in trips for s in trip], np.int32))


def assembled(blocks, n):
    """Return the matrix of blocks; every row comes once."""
    out, times = np.full((n, n), np.nan), np.zeros(n, int)
    for rows, distances in blocks:
        out[rows.numpy()] = distances.numpy()
        times[rows.numpy()] += 1
    assert (times == 1).all()
    return out


def on_device(sequences, measure, lanes):
    return device_blocks(sequences.offsets, sequences.values, edits=measure == "edr", device=CPU, lanes=lanes)


def trips_of(size, longest):
    return st.lists(st.lists(st.integers(0, size), max_size=longest), min_size=1, max_size=7)


@pytest.mark.parametrize("measure", MEASURES)
@given(trips=trips_of(3, 12) | trips_of(40, 30))
@settings(max_examples=30)
@example(trips=[[], [], [1]])
@example(trips=[[1], [1], [2]])
def test_short_trips_against_the_recurrence(measure, trips) -> None:
    sequences, expected = sequences_of(trips), literal_matrix(trips, measure)
    np.testing.assert_array_equal(assembled(distance_blocks(sequences, measure, workers=1), len(trips)), expected)
    np.testing.assert_array_equal(assembled(on_device(sequences, measure, 40), len(trips)), expected)


@pytest.mark.parametrize("measure", MEASURES)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_segments=st.sampled_from([1, 2, 4, 30]),
    lengths=st.lists(st.sampled_from([1, 62, 63, 64, 65, 100, 125, 126, 127, 128, 190]), min_size=2, max_size=5),
)
@settings(max_examples=6)
def test_trips_of_several_words(measure, seed, n_segments, lengths) -> None:
    rng = np.random.default_rng(seed)
    trips = [rng.integers(0, n_segments, length).tolist() for length in lengths]
    # One trip is another one with a few changes, so that long runs match across the bounds of words.
    changed = [s for s in trips[0] if rng.random() > 0.05]
    trips.append(changed + rng.integers(0, n_segments, 3).tolist())
    sequences, expected = sequences_of(trips), literal_matrix(trips, measure)
    np.testing.assert_array_equal(assembled(distance_blocks(sequences, measure, workers=1), len(trips)), expected)
    for lanes in (1, 10, 1000):
        np.testing.assert_array_equal(assembled(on_device(sequences, measure, lanes), len(trips)), expected)


def random_trips(n=150, n_segments=60, seed=0):
    rng = np.random.default_rng(seed)
    return [
        (rng.integers(0, n_segments) + rng.integers(0, 5, rng.integers(1, 80)).cumsum()) % n_segments for _ in range(n)
    ]


@pytest.mark.parametrize("measure", MEASURES)
def test_kernels_and_device_agree_and_threads_do_not_matter(measure) -> None:
    sequences = sequences_of(random_trips())
    one = assembled(distance_blocks(sequences, measure, workers=1), 150)
    assert (one < 1).mean() > 0.05
    np.testing.assert_array_equal(one, one.T)
    np.testing.assert_array_equal(assembled(distance_blocks(sequences, measure, workers=3), 150), one)
    np.testing.assert_array_equal(assembled(on_device(sequences, measure, 5000), 150), one)
    np.testing.assert_array_equal(distance_matrix(sequences, measure), one.astype(np.float32))


def test_lcss_agrees_with_the_subsequences_of_the_metrics() -> None:
    trips = random_trips(60)
    sequences = sequences_of(trips)
    distance = assembled(distance_blocks(sequences, "lcss"), 60)
    first, second = (sequences_of([trips[i] for i in which]) for which in (range(30), range(30, 60)))
    flat = [np.concatenate([trips[i] for i in which]).astype(np.int32) for which in (range(30), range(30, 60))]
    common = common_subsequence(first.offsets, flat[0], second.offsets, flat[1])
    shorter = np.minimum(first.lengths, second.lengths)
    np.testing.assert_array_equal(distance[np.arange(30), np.arange(30, 60)], (shorter - common) / shorter)


def test_a_trip_one_can_check_by_hand() -> None:
    a, b, c = [1, 1, 2, 3], [1, 2, 2, 3, 3], [7, 8]
    sequences = sequences_of([a, b, c])
    # In common: 1 2 3. Edits: one 1 becomes 2, then a 3 more.
    assert assembled(distance_blocks(sequences, "lcss"), 3)[0].tolist() == [0, 1 / 4, 1]
    assert assembled(distance_blocks(sequences, "edr"), 3)[0].tolist() == [0, 2 / 5, 1]


def test_steps_of_unknown_segment_are_no_part_of_a_trip() -> None:
    sequences = Sequences.of([0, 4, 6, 8], [5, -1, 9, -1, 5, 9, -1, -1])
    assert sequences.lengths.tolist() == [2, 2, 0]
    assert sequences.n_values == 2
    assert "3 trips, 4 steps on 2 segments" in repr(sequences)
    for measure in MEASURES:
        assert assembled(distance_blocks(sequences, measure), 3).tolist() == [[0, 0, 1], [0, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize("measure", MEASURES)
@given(trips=st.lists(st.lists(st.integers(0, 4), max_size=6), min_size=2, max_size=12), seed=st.integers(0, 99))
@settings(max_examples=30)
def test_neighbours_against_sorting(measure, trips, seed) -> None:
    n = len(trips)
    target = np.random.default_rng(seed).integers(1, n, n) + np.arange(n)
    target %= n  # any other trip
    found = find_neighbours(sequences_of(trips), measure, radius=0.5, target=target, workers=1)
    distance = literal_matrix(trips, measure)
    for i in range(n):
        others = sorted((distance[i, j], j) for j in range(n) if j != i)
        assert (found.distance[i], found.nearest[i]) == others[0]
        assert found.tied[i] == (len(others) > 1 and others[1][0] == others[0][0])
        assert [j for _, j in others].index(target[i]) + 1 == found.rank[i]
    rows, columns = np.nonzero(distance <= 0.5)
    stored = found.graph.tocoo()
    assert set(zip(*stored.coords, strict=True)) == set(zip(rows, columns, strict=True))
    np.testing.assert_array_equal(stored.data, distance[stored.coords])
    own = find_neighbours(sequences_of(trips), measure, radius=0.5, target=found.nearest)
    assert (own.rank == 1).all()


@pytest.mark.parametrize("measure", MEASURES)
def test_neighbours_do_not_depend_on_the_order_of_blocks(measure, monkeypatch) -> None:
    sequences = sequences_of(random_trips(seed=3))
    target = np.roll(np.arange(150), 1)
    on_cpu = find_neighbours(sequences, measure, radius=0.6, target=target)
    monkeypatch.setattr(similarity, "distance_blocks", lambda *_, **__: on_device(sequences, measure, 3000))
    elsewhere = find_neighbours(sequences, measure, radius=0.6, target=target)
    for name in ("nearest", "distance", "tied", "rank"):
        np.testing.assert_array_equal(getattr(elsewhere, name), getattr(on_cpu, name))
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(elsewhere.graph, name), getattr(on_cpu.graph, name))


def test_one_trip_has_no_other() -> None:
    found = find_neighbours(sequences_of([[1, 2]]), "lcss", radius=0.5)
    assert found.nearest.tolist() == [-1]
    assert np.isnan(found.distance).all()
    assert found.rank is None
    assert found.graph.nnz == 1


def test_recall_counts_ranks_up_to_k() -> None:
    rank = np.array([1, 2, 10, 11])
    assert [recall_at(rank, k) for k in (1, 10, 50)] == [0.25, 0.75, 1.0]


def test_what_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="do not divide 3 steps"):
        Sequences.of([0, 2], [1, 2, 3])
    with pytest.raises(InputError, match="no trips"):
        find_neighbours(Sequences.of([0], []), "edr", radius=0.5)
    with pytest.raises(ConfigError, match="one of lcss, edr"):
        next(distance_blocks(sequences_of([[1]]), "dtw"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("measure", MEASURES)
def test_cuda_agrees(measure) -> None:
    sequences = sequences_of(random_trips(seed=5))
    cuda = torch.device("cuda")
    found = distance_matrix(sequences, measure, device=cuda)
    np.testing.assert_array_equal(found, distance_matrix(sequences, measure))
    ours, theirs = (find_neighbours(sequences, measure, radius=0.55, device=d) for d in (CPU, cuda))
    np.testing.assert_array_equal(ours.nearest, theirs.nearest)
