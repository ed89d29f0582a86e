"""Learned pace."""

from __future__ import annotations

import dataclasses

import numpy as np

from tedtrajrec.methods.past.drives import drives_of
from tedtrajrec.methods.past.pace import learn_pace
from tedtrajrec.network.roadnet import RoadNetwork
from tedtrajrec.trips.table import concat_trips
from tests.methods.past.test_drives import steps
from tests.trips.test_match import path


def test_without_drives_it_is_the_pace_of_free_flow(tiny_city: RoadNetwork) -> None:
    drives = drives_of(tiny_city, steps((0, 0.5)))
    np.testing.assert_allclose(learn_pace(tiny_city, drives), 0.1, rtol=1e-6)


def test_slow_and_fast_segments_are_told_apart(tiny_city: RoadNetwork) -> None:
    a, b, c = path(tiny_city, (0, 0), (1, 0), (2, 0), (3, 0))
    # 10 s for the first 100 m, 40 s for the next: seen only in steps that cover parts of both.
    seconds = np.array([0.0, 10.0, 50.0, 60.0])
    times = np.arange(0, 60, 7.0)
    place = np.interp(times, seconds, [0, 1, 2, 3])
    along = [(int([a, b, c][int(p)]), float(p % 1)) for p in place]
    trips = [steps(*along, step_s=7, name=str(i)) for i in range(50)]
    pace = learn_pace(tiny_city, drives_of(tiny_city, concat_trips(trips)), prior_m=100.0, rounds=30)
    np.testing.assert_allclose(pace[[a, b, c]], [0.1, 0.4, 0.1], rtol=0.25)
    unseen = path(tiny_city, (0, 5), (1, 5))[0]
    assert pace[a] < pace[unseen] < pace[b]


def test_what_is_little_driven_is_near_its_class(tiny_city: RoadNetwork) -> None:
    a, b = path(tiny_city, (0, 0), (1, 0), (2, 0))
    network = dataclasses.replace(tiny_city, road_class=np.where(np.arange(tiny_city.n_segments) == b, 3, 11))
    many = [steps((a, 0.0), (a, 0.9), step_s=30, name=str(i)) for i in range(200)]
    drives = drives_of(network, concat_trips([*many, steps((b, 0.0), (b, 0.9), step_s=9, name="b")]))
    pace = learn_pace(network, drives)
    other = path(tiny_city, (0, 5), (1, 5))[0]
    assert abs(pace[other] - pace[a]) < 0.02
    assert pace[b] < pace[a]
    assert pace[b] > 0.2  # one drive does not outweigh what is known of all roads
