"""Clusters from neighbours within a radius are those of scikit-learn on the whole matrix of distances."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.cluster import DBSCAN

from tedtrajrec.evaluation.clustering import EPS, MIN_SAMPLES, cluster_trips, compare_clusters
from tedtrajrec.evaluation.similarity import MEASURES, find_neighbours
from tests.evaluation.test_similarity import literal_matrix, sequences_of


def families(seed, n_families=4, size=9, longest=20):
    """Return trips in families: each is a part of one route with a few steps on other segments."""
    rng = np.random.default_rng(seed)
    trips = []
    for family in range(n_families):
        route = (10 * family + rng.integers(0, 3, longest).cumsum()) % 60
        for _ in range(size):
            part = route[rng.integers(0, 6) : longest - rng.integers(0, 6)].copy()
            lost = rng.random(len(part)) < 0.25
            part[lost] = rng.integers(0, 60, lost.sum())
            trips.append(part.tolist())
    return [trips[i] for i in rng.permutation(len(trips))]


def test_the_radii_are_those_of_the_paper() -> None:
    assert EPS == (0.45, 0.46, 0.47, 0.48, 0.49, 0.5, 0.51, 0.52, 0.53, 0.54, 0.55)


@pytest.mark.parametrize("measure", MEASURES)
@given(seed=st.integers(0, 10_000), min_samples=st.sampled_from([1, 3, MIN_SAMPLES]))
@settings(max_examples=5)
def test_labels_and_scores_against_the_whole_matrix(measure, seed, min_samples) -> None:
    trips = families(seed)
    whole = literal_matrix(trips, measure)
    graph = find_neighbours(sequences_of(trips), measure, radius=max(EPS), workers=1).graph
    true = np.random.default_rng(seed).integers(-1, 4, len(trips))
    for eps, labels in zip(EPS, cluster_trips(graph, min_samples=min_samples), strict=True):
        expected = DBSCAN(eps=eps, min_samples=min_samples, metric="precomputed").fit_predict(whole)
        np.testing.assert_array_equal(labels, expected)
        scores = compare_clusters(true, labels)
        assert scores["homogeneity"] == pytest.approx(metrics.homogeneity_score(true, expected), abs=1e-12)
        assert scores["completeness"] == pytest.approx(metrics.completeness_score(true, expected), abs=1e-12)
        assert scores["adjusted_rand"] == pytest.approx(metrics.adjusted_rand_score(true, expected), abs=1e-12)
        assert scores["clusters"] == len(set(expected.tolist()) - {-1})
        assert scores["noise_share"] == (expected == -1).mean()


@pytest.mark.parametrize("measure", MEASURES)
def test_families_are_found(measure) -> None:
    trips = [[family * 10 + s for s in range(8)] for family in range(3) for _ in range(6)]
    trips.append([99])
    graph = find_neighbours(sequences_of(trips), measure, radius=max(EPS)).graph
    for labels in cluster_trips(graph):
        assert labels.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [-1]


@pytest.mark.parametrize("measure", MEASURES)
@pytest.mark.parametrize("differ", [9, 11])
def test_a_distance_of_exactly_the_radius_is_within_it(measure, differ) -> None:
    """Some of 20 steps differ; 11 / 20 is 0.55 in 64 bits, but more than that in 32."""
    trips = [[*range(20)], [*range(20 - differ), *range(50, 50 + differ)]]
    graph = find_neighbours(sequences_of(trips), measure, radius=differ / 20).graph
    below, at = cluster_trips(graph, eps=(differ / 20 - 0.01, differ / 20), min_samples=2)
    assert below.tolist() == [-1, -1]
    assert at.tolist() == [0, 0]


def test_noise_is_a_cluster_when_clusterings_are_compared() -> None:
    true, found = np.array([-1, -1, 0, 0]), np.array([0, 0, -1, -1])
    assert compare_clusters(true, found) == {
        "homogeneity": pytest.approx(1.0),
        "completeness": pytest.approx(1.0),
        "adjusted_rand": pytest.approx(1.0),
        "clusters": 1,
        "noise_share": 0.5,
    }
