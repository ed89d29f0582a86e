"""Labels that keep their nearest hubs only, against complete ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tedtrajrec.trips.matching.labels import build_labels
from tedtrajrec.trips.matching.ways import new_roads
from tests.trips.matching.test_ways import make_town


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_label_has_all_hubs_within_its_radius(most: int) -> None:
    roads = new_roads(make_town(0), 40.0, 1.0, 1 << 20)
    whole, short = roads.labels, build_labels(roads.hierarchy, most)
    assert (whole.radius == np.inf).all()
    n_short = np.diff(short.offset)
    assert n_short.max() == most
    for label in range(len(n_short)):
        known, entry = (labels.entry[labels.offset[label] : labels.offset[label + 1]] for labels in (short, whole))
        assert known["hub"][0] == label // 2
        assert known["cost"][0] == 0
        assert (np.diff(known["cost"]) >= 0).all()
        inside = {(e["hub"], e["cost"]) for e in entry if e["cost"] < short.radius[label]}
        assert inside <= {(e["hub"], e["cost"]) for e in known}
    assert (short.radius < np.inf).any()


def test_labels_reach_as_far_as_they_have_room() -> None:
    roads = new_roads(make_town(1), 40.0, 1.0, 1 << 20)
    radius = [build_labels(roads.hierarchy, most).radius for most in (2, 5, 12, 30)]
    for nearer, farther in itertools.pairwise(radius):
        assert (nearer <= farther).all()
    assert radius[0].max() == np.inf  # the most important segment has no other hub
