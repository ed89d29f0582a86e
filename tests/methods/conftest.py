"""A grid of streets and a made-up batch on it, for methods that are compared with their equations."""

from __future__ import annotations

import pytest

from tedtrajrec.methods.learned import Inputs
from tedtrajrec.network.roadnet import RoadNetwork
from tests.conftest import make_grid
from tests.nn import literal


@pytest.fixture(scope="session")
def grid() -> RoadNetwork:
    """Return a 4 x 4 grid of streets."""
    return make_grid(4, 4)


@pytest.fixture
def inputs(grid: RoadNetwork) -> Inputs:
    """Return a batch of trips of unlike length on it, in double precision."""
    return literal.double(literal.made_inputs(grid.n_segments, 7))
