"""Clusters of trips: DBSCAN on their distances, and how far two clusterings agree (scikit-learn)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, csr_matrix
from sklearn.cluster import DBSCAN
from sklearn.metrics import adjusted_rand_score, homogeneity_completeness_v_measure

Labels = NDArray[np.int64]

EPS = tuple(k / 100 for k in range(45, 56))
"""The radii over which the paper takes means."""

MIN_SAMPLES = 5
"""Trips within the radius, itself among them, that make a trip the core of a cluster; scikit-learn's default."""


def cluster_trips(graph: csr_array, *, eps: Sequence[float] = EPS, min_samples: int = MIN_SAMPLES) -> list[Labels]:
    """Return the cluster of each trip, -1 for noise, for each radius.

    Parameters
    ----------
    graph
        The distances that are at most the largest radius, zeros stored
        (:attr:`tedtrajrec.evaluation.similarity.Neighbours.graph`); the clusters are those of the whole matrix.
    eps
        The radii; trips at a distance of at most that are neighbours.
    min_samples
        See :data:`MIN_SAMPLES`.
    """
    matrix = csr_matrix(graph)  # scikit-learn before 1.6 takes no sparse arrays
    return [
        DBSCAN(eps=radius, min_samples=min_samples, metric="precomputed").fit(matrix).labels_.astype(np.int64)
        for radius in eps
    ]


def compare_clusters(true: Labels, found: Labels) -> dict[str, float]:
    """Return how far clusters agree with the true ones, and how many there are; noise counts as one cluster more.

    Parameters
    ----------
    true, found
        The cluster of each trip in both, -1 for noise [T].
    """
    homogeneity, completeness, _ = homogeneity_completeness_v_measure(true, found)
    return {
        "homogeneity": float(homogeneity),
        "completeness": float(completeness),
        "adjusted_rand": float(adjusted_rand_score(true, found)),
        "clusters": int(found.max(initial=-1)) + 1,
        "noise_share": float((found < 0).mean()),
    }
