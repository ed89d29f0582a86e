"""Steps of trips: their lists, the fixes around them, plain facts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tedtrajrec.methods.lattices.steps import Fact, steps_of
from tedtrajrec.network.roadnet import RoadNetwork
from tests.methods.lattices.cities import batch_of, drive


def test_steps_by_hand(tiny_city: RoadNetwork) -> None:
    # Eastwards along the street at the bottom, 50 m a step: segments 0, 2, 4, ... are 100 m long.
    road = [(2 * (k // 2), 0.5 * (k % 2)) for k in range(9)]
    trips = drive(tiny_city, road[:8], road[:3])
    observed = np.array([1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1], bool)
    steps = steps_of(batch_of(tiny_city, trips, observed))
    assert steps.slot.tolist() == [[0, 1, 1, 2, 4, 5, 5, 6], [0, 1, 2, 2, 2, 2, 2, 2]]
    assert steps.previous.tolist() == [[0, 0, 0, 1, 2, 2, 2, 3], [0, 0, 1, 1, 1, 1, 1, 1]]
    assert steps.following.tolist() == [[0, 1, 1, 1, 2, 3, 3, 3], [0, 1, 1, 1, 1, 1, 1, 1]]
    assert steps.since.tolist() == [[0, 15, 30, 0, 0, 15, 30, 0], [0, 15, 0, 0, 0, 0, 0, 0]]
    assert steps.gap.tolist() == [[0, 45, 45, 0, 0, 45, 45, 0], [0, 30, 0, 0, 0, 0, 0, 0]]
    fact = dict(zip(Fact, steps.facts[0, 1], strict=True))
    minute = 1_600_000_015 % 86400 / 60
    wanted = {
        Fact.SHARE: 1 / 3,
        Fact.LEFT: 2 / 3,
        Fact.GAP: np.log(1.75),
        Fact.STRAIGHT: 0.15,
        Fact.SPEED: 1 / 3,
        Fact.SPEED_BEFORE: 0,
        Fact.SPEED_AFTER: 1 / 3,
        Fact.OBSERVED: 0,
        Fact.SINCE: np.log(1.25),
        Fact.UNTIL: np.log(1.5),
        Fact.SINE: np.sin(minute * 2 * np.pi / 1440),
        Fact.COSINE: np.cos(minute * 2 * np.pi / 1440),
    }
    assert fact == pytest.approx(wanted, abs=2e-3)  # metres on the plane
    assert steps.facts[0, 3, [Fact.OBSERVED, Fact.GAP, Fact.SPEED_BEFORE]] == pytest.approx([1, 0, 1 / 3], abs=2e-3)
    assert not steps.facts[1, 3:].any()


def test_steps_around_all_fixes_and_without_any(tiny_city: RoadNetwork) -> None:
    trips = drive(tiny_city, [(0, 0.1), (0, 0.3), (0, 0.5), (0, 0.7)], [(0, 0.1), (0, 0.2)])
    observed = np.array([0, 1, 0, 0, 0, 0], bool)
    steps = steps_of(batch_of(tiny_city, trips, observed))
    assert steps.slot.tolist() == [[0, 0, 0, 0]] * 2
    assert steps.since[0].tolist() == [-15, 0, 15, 30]
    assert np.isfinite(steps.facts).all()
    assert not steps.facts[1].any()
    none = steps_of(batch_of(tiny_city, trips, np.zeros(6, bool)))
    assert none.slot.tolist() == [[0, 0, 0, 0]] * 2


def test_steps_between_fixes_of_the_same_time_have_the_list_of_their_gap(tiny_city: RoadNetwork) -> None:
    trips = drive(tiny_city, [(0, 0.1), (0, 0.3), (0, 0.5)])
    batch = batch_of(tiny_city, trips, np.array([True, False, True]))
    batch = dataclasses.replace(batch, fix_time=batch.fix_time * 0)
    steps = steps_of(batch)
    assert steps.slot.tolist() == [[0, 1, 2]]
    assert np.isfinite(steps.facts).all()
