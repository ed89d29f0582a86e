"""Routes told apart by their keys, as by writing them out; the most frequent ones of some draws."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.methods.alternatives import likeliest_routes, route_keys
from tedtrajrec.network.routing import Router
from tests.conftest import make_grid

CITY = make_grid(4, 4)
ROUTER = Router(CITY)


def written_out(path: list[int], reach_m: float) -> tuple[int, ...]:
    """Return the segments of a path with the shortest ways between them, one after another."""
    route = path[:1]
    for a, b in itertools.pairwise(path):
        if a != b:
            way = ROUTER.routes([a], 1.0, [b], 0.0, limit_m=reach_m)[0].tolist()
            route += way[1:] or [b]
    return tuple(route)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 150.0, 1000.0]))
def test_paths_have_one_key_if_they_drive_one_route(seed: int, reach_m: float) -> None:
    rng = np.random.default_rng(seed)
    near = [int(rng.integers(len(CITY)))]
    near += [int(s) for s in CITY.successors(near[0])]  # few segments, so that routes are met again
    segment = rng.choice(near, (2, 30, 5))
    lengths = np.array([5, int(rng.integers(1, 6))])
    mask = np.arange(5) < lengths[:, None]
    keys = route_keys(ROUTER, segment, mask, reach_m)
    routes: dict[int, tuple[int, ...]] = {}
    for b in range(2):
        for k in range(30):
            route = written_out(segment[b, k, : lengths[b]].tolist(), reach_m)
            assert routes.setdefault(int(keys[b, k]), route) == route
    assert len(set(routes.values())) == len(routes)


def test_a_segment_without_a_step_is_on_the_route_all_the_same() -> None:
    a = 0
    b = int(CITY.successors(a)[0])
    c = next(int(s) for s in CITY.successors(b) if ROUTER.routes([a], 1.0, [int(s)], 0.0)[0].tolist() == [a, b, s])
    paths = np.array([[[a, b, c, c], [a, a, c, c], [a, a, a, c], [a, b, b, b]]])
    keys = route_keys(ROUTER, paths, np.ones((1, 4), bool), 1000.0)[0]
    assert keys[0] == keys[1] == keys[2] != keys[3]
    leaps = route_keys(ROUTER, paths, np.ones((1, 4), bool), 0.0)[0]  # successors are next door, others out of reach
    assert leaps[0] != leaps[1] == leaps[2]


@given(st.lists(st.lists(st.integers(0, 4), min_size=6, max_size=6), min_size=1, max_size=3), st.integers(1, 6))
def test_the_most_frequent_routes_come_first(drawn: list[list[int]], k: int) -> None:
    keys = np.array(drawn, np.uint64) << np.uint64(60)
    score = np.random.default_rng(k).permutation(keys.size).reshape(keys.shape).astype(float)
    best, share = likeliest_routes(keys, score, k)
    for b, row in enumerate(drawn):
        count = Counter(row)
        top = {route: max(score[b, i] for i in range(6) if row[i] == route) for route in count}
        order = sorted(count, key=lambda route: (-count[route], -top[route]))[:k]
        assert [row[i] for i in best[b] if i >= 0] == order
        assert [score[b, i] for i in best[b] if i >= 0] == [top[route] for route in order]
        assert share[b].tolist() == pytest.approx([count[r] / 6 for r in order] + [0.0] * (k - len(order)))
