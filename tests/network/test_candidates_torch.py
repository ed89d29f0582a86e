"""Candidate search on tensors gives what the compiled search gives."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tedtrajrec.errors import InputError
from tedtrajrec.network import candidates_torch as module
from tedtrajrec.network.candidates import CandidateFinder, Candidates
from tedtrajrec.network.candidates_torch import TorchCandidateFinder, TorchCandidates
from tedtrajrec.network.roadnet import RoadNetwork
from tests.network.test_candidates import at, make_lines

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

metres = st.integers(-500, 500) | st.floats(-500, 500, width=32)


def check_same(ours: TorchCandidates, reference: Candidates) -> None:
    assert ours.offsets.tolist() == reference.offsets.tolist()
    assert ours.segment.tolist() == reference.segment.tolist()
    np.testing.assert_allclose(ours.distance_m.cpu(), reference.distance_m, rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.ratio.cpu(), reference.ratio, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.lon.cpu(), reference.lon, rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours.lat.cpu(), reference.lat, rtol=0, atol=1e-12)


@given(
    st.lists(st.lists(st.tuples(metres, metres), min_size=2, max_size=6), min_size=1, max_size=12),
    st.lists(st.tuples(metres, metres, st.floats(0, 400)), min_size=1),
)
@settings(max_examples=60, deadline=None)
def test_any_network(roads: list[list[tuple[float, float]]], points: list[tuple[float, float, float]]) -> None:
    network = make_lines(*roads)
    lon, lat = at(*[(x, y) for x, y, _ in points])
    radius = np.array([r for _, _, r in points])
    found = TorchCandidateFinder(network).within(torch.tensor(lon), torch.tensor(lat), torch.tensor(radius))
    check_same(found, CandidateFinder(network).within(lon, lat, radius))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("radius", [0.0, 60.0, 1e5, float("inf")])
def test_nodes_and_points_in_and_outside(tiny_city: RoadNetwork, device: str, radius: float) -> None:
    rng = np.random.default_rng(1)
    west, south, east, north = tiny_city.bbox
    lon = np.concatenate([tiny_city.node_lon, rng.uniform(west - 0.01, east + 0.01, 100)])
    lat = np.concatenate([tiny_city.node_lat, rng.uniform(south - 0.01, north + 0.01, 100)])
    found = TorchCandidateFinder(tiny_city, device).within(torch.tensor(lon), torch.tensor(lat), radius)
    assert found.segment.device.type == device
    check_same(found, CandidateFinder(tiny_city).within(lon, lat, radius))


def test_small_batches_change_nothing(tiny_city: RoadNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    west, south, east, north = tiny_city.bbox
    lon, lat = torch.tensor(rng.uniform(west, east, 200)), torch.tensor(rng.uniform(south, north, 200))
    radius = torch.tensor(rng.uniform(0, 300, 200))
    whole = TorchCandidateFinder(tiny_city).within(lon, lat, radius)
    monkeypatch.setattr(module, "PAIRS_ON_CPU", 50)
    finder = TorchCandidateFinder(tiny_city)
    parts = finder.within(lon, lat, radius)
    for name in TorchCandidates.__dataclass_fields__:
        assert torch.equal(getattr(whole, name), getattr(parts, name))


def test_metres_and_degrees_are_the_same_question(tiny_city: RoadNetwork) -> None:
    lon, lat = tiny_city.node_lon + 3e-4, tiny_city.node_lat - 2e-4
    x, y = (torch.tensor(values) for values in tiny_city.plane.to_xy(lon, lat))
    found = TorchCandidateFinder(tiny_city).within_xy(x, y, 80)
    check_same(found, CandidateFinder(tiny_city).within(lon, lat, 80))


def test_no_points_and_no_candidates(tiny_city: RoadNetwork) -> None:
    finder = TorchCandidateFinder(tiny_city)
    found = finder.within(torch.zeros(0), torch.zeros(0), 50)
    assert found.offsets.tolist() == [0]
    assert len(found.segment) == 0
    assert finder.within(torch.zeros(3), torch.zeros(3), 50).offsets.tolist() == [0, 0, 0, 0]


def test_bad_input_is_named(tiny_city: RoadNetwork) -> None:
    finder = TorchCandidateFinder(tiny_city)
    fine = torch.tensor([1.0, 2.0])
    with pytest.raises(InputError, match="row 2, column 'lon': nan is not a coordinate"):
        finder.within(torch.tensor([1.0, torch.nan]), fine, 50)
    with pytest.raises(InputError, match=r"row 1, column 'lat': 91\.0 is not"):
        finder.within(fine, torch.tensor([91.0, 2.0]), 50)
    with pytest.raises(InputError, match="column 'y': inf is not a number of metres"):
        finder.within_xy(fine, torch.tensor([1.0, torch.inf]), 50)
    with pytest.raises(InputError, match=r"row 2, .*-1\.0 is not a radius"):
        finder.within(fine, fine, torch.tensor([5.0, -1.0]))
    with pytest.raises(InputError, match=r"^column 'radius_m': nan"):
        finder.within(fine, fine, float("nan"))
    with pytest.raises(InputError, match="shapes"):
        finder.within(fine, fine[:1], 50)


@pytest.mark.real
@pytest.mark.parametrize("device", DEVICES)
def test_porto(porto: RoadNetwork, device: str) -> None:
    rng = np.random.default_rng(3)
    west, south, east, north = porto.bbox
    lon, lat = rng.uniform(west, east, 2000), rng.uniform(south, north, 2000)
    radius = rng.uniform(0, 400, 2000)
    found = TorchCandidateFinder(porto, device).within(torch.tensor(lon), torch.tensor(lat), torch.tensor(radius))
    assert len(found.segment) > 10_000
    check_same(found, CandidateFinder(porto).within(lon, lat, radius))


def test_the_compiled_search_does_not_load_torch() -> None:
    code = "import sys, tedtrajrec.network.candidates; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
