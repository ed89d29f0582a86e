"""The chain against brute force: every path through small lattices is counted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from tedtrajrec.network.grid import build_grid
from tedtrajrec.network.grid_search import GridSearch
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.network.routing import Router
from tedtrajrec.trips.matching import lattice
from tedtrajrec.trips.matching.config import MatchConfig
from tedtrajrec.trips.matching.fixes import Candidates, choose_fixes, find_candidates
from tedtrajrec.trips.matching.transitions import new_model
from tedtrajrec.trips.matching.ways import new_roads, new_scratch

CONFIG = MatchConfig(
    noise_m=12.0,
    radius_m=30.0,
    radius_limit_m=30.0,
    thin=0.0,
    reach=500.0,
    speed_power=0.0,
    fast_weight=0.0,
    slow_weight=0.0,
    stand=0.0,
    break_cost=6.0,
    skip_cost=4.0,
)


def brute_force(
    network: RoadNetwork, found: Candidates, x: NDArray[np.float64], y: NDArray[np.float64], config: MatchConfig
) -> tuple[list[int], NDArray[np.float64]]:
    """Return the best path and the probability of each candidate, from all paths; -1 stands for a fix left out."""
    router = Router(network)
    steps = [range(found.offsets[i], found.offsets[i + 1]) for i in range(len(x))]
    ratio = found.along / network.length_m[found.segment]
    log_weight = {}
    for i, j in itertools.combinations(range(len(x)), 2):
        straight = np.hypot(x[j] - x[i], y[j] - y[i])
        scale = config.detour_m + min(config.detour_mps * 20.0 * (j - i), config.detour_share * straight)
        for a, b in itertools.product(steps[i], steps[j]):
            route = router.distances(found.segment[a], ratio[a], found.segment[b], ratio[b])[0]
            log_weight[a, b] = max(-abs(route - straight) / scale, -config.break_cost)
    total = np.zeros(len(found.segment) + 1)
    best_path, best_score = [], -np.inf
    inner = [(-1, *step) for step in steps[1:-1]]
    for way in itertools.product(steps[0], *inner, steps[-1]):
        used = [c for c in way if c >= 0]
        score = found.log_likelihood[used].sum() + sum(log_weight[p] for p in itertools.pairwise(used))
        score -= config.skip_cost * (len(way) - len(used))
        total[list(way)] += np.exp(score)
        if score > best_score:
            best_path, best_score = list(way), score
    return best_path, total[:-1] / total[: steps[0].stop].sum()


@pytest.mark.parametrize(("seed", "off_m"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 60), (5, 60)])
def test_the_chain_equals_brute_force(tiny_city: RoadNetwork, seed: int, off_m: float) -> None:
    rng = np.random.default_rng(seed)
    corner = tiny_city.plane.to_xy(tiny_city.node_lon[0], tiny_city.node_lat[0])
    x = corner[0] + 100.0 * np.arange(1, 5) + rng.normal(0, 12, 4)  # near crossings, where there are most candidates
    y = corner[1] + 300.0 + rng.normal(0, 12, 4)
    y[2] += off_m
    time = 20 * np.arange(4)
    offsets = np.array([0, 4])
    noise = np.full(4, 12.0)
    used, _, _ = choose_fixes(x, y, time, offsets, noise, CONFIG.thin)
    found = find_candidates(GridSearch(build_grid(tiny_city)), tiny_city, x, y, noise, np.ones(4), CONFIG)
    status = np.zeros(4, np.uint8)
    chain = lattice.build_lattice(
        new_roads(tiny_city, 0.0, 0.0),
        new_scratch(tiny_city.n_segments),
        new_model(CONFIG),
        found,
        (x, y, time),
        offsets,
        used,
        status,
    )
    probability, chosen = lattice.smooth(found, chain)
    best_path, expected = brute_force(tiny_city, found, x, y, CONFIG)
    assert used.all()
    assert len(found.segment) > 6
    assert chosen.tolist() == best_path
    assert (-1 in best_path) == (off_m > 0)
    np.testing.assert_allclose(probability, expected, atol=1e-4)  # costs are varied by 1e-6 so that no two are equal
